"""grappa bench: the tests it makes of its options, and its formats."""
import csv
import io
import json
import re
import statistics

import pytest
from cli_tools import good, run, tiny

# Of llama-bench (llama.cpp b11434), in the order of its csv.
FIELDS = """build_commit build_number cpu_info gpu_info backends model_filename model_type model_size model_n_params n_batch
n_ubatch n_threads cpu_mask cpu_strict poll type_k type_v n_gpu_layers n_cpu_moe split_mode main_gpu no_kv_offload
flash_attn devices tensor_split tensor_buft_overrides load_mode lazy_mode embeddings no_op_offload no_host repack
fit_target fit_min_ctx n_prompt n_gen n_depth test_time avg_ns stddev_ns avg_ts stddev_ts""".split()
OURS = ["load_s", "peak_bytes", "openvino_version"]


@pytest.fixture(scope="module")
def model():
    return tiny("llama")


def bench(model, *options):
    return json.loads(good("bench", "-m", model, "-o", "json", *options))


def shapes_of(results):
    return [(r["n_prompt"], r["n_gen"], r["n_depth"]) for r in results]


@pytest.mark.sanitize
def test_json(model):
    (r,) = bench(model, "-p", "8", "-n", "0", "-r", "3")
    assert list(r) == FIELDS + OURS + ["samples_ns", "samples_ts"]
    assert (r["n_prompt"], r["n_gen"], r["n_batch"], r["n_ubatch"]) == (8, 0, 2048, 512)
    assert r["model_filename"] == str(model) and r["backends"] == "OPENVINO" and r["devices"] == "CPU"
    assert r["cpu_strict"] is False and r["repack"] is False and r["flash_attn"] == -1
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", r["test_time"])
    assert r["load_s"] > 0 and r["peak_bytes"] > 1 << 20
    ns, ts = r["samples_ns"], r["samples_ts"]
    assert len(ns) == 3
    assert ts == pytest.approx([8e9 / t for t in ns], rel=1e-9)
    assert r["avg_ns"] == int(statistics.mean(ns)) and r["stddev_ns"] == int(statistics.stdev(ns))
    assert r["avg_ts"] == pytest.approx(statistics.mean(ts)) and r["stddev_ts"] == pytest.approx(statistics.stdev(ts))


def test_one_run_deviates_by_nothing(model):
    (r,) = bench(model, "-p", "8", "-n", "0", "-r", "1")
    assert (r["stddev_ns"], r["stddev_ts"], len(r["samples_ns"])) == (0, 0, 1)


def test_jsonl_and_csv_say_the_same(model):
    words = ["bench", "-m", model, "-p", "4,8", "-n", "2", "-r", "2", "--no-warmup"]
    lines = [json.loads(line) for line in good(*words, "-o", "jsonl").decode().splitlines()]
    rows = list(csv.DictReader(io.StringIO(good(*words, "-o", "csv").decode())))
    assert list(rows[0]) == FIELDS + OURS
    assert shapes_of(lines) == [(4, 0, 0), (8, 0, 0), (0, 2, 0)]
    measured = {"test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "load_s", "peak_bytes"}
    for line, row in zip(lines, rows, strict=True):
        for name in set(FIELDS + OURS) - measured:
            value = line[name]
            assert row[name] == (str(int(value)) if isinstance(value, bool) else str(value)), name


def test_combinations(model):
    results = bench(model, "-p", "2", "-p", "4", "-n", "0,3", "-pg", "4,2", "-pg", "0,0", "-d", "0,5", "-r", "1")
    one_depth = [(2, 0), (4, 0), (0, 3), (4, 2)]
    assert shapes_of(results) == [(*t, d) for d in (0, 5) for t in one_depth]
    assert [r["n_prompt"] for r in bench(model, "-p", "1-3,4-8+4,2-8*2", "-n", "0", "-r", "1")] == [1, 2, 3, 4, 8, 2, 4, 8]


def test_every_axis(model):
    results = bench(model, "-m", tiny("qwen2"), "-p", "4", "-n", "0", "-r", "1", "-b", "8,4", "-ub", "4,2", "-t", "1,2",
                    "-ctk", "u8,q8_0", "-ctv", "u8", "-dev", "none")
    assert len({(r["model_filename"], r["n_batch"], r["n_ubatch"], r["n_threads"], r["type_k"]) for r in results}) == 32
    assert {r["type_v"] for r in results} == {"u8"}
    # A model is loaded once for all tests that can share it.
    assert len({r["load_s"] for r in results}) == 8


COLUMNS = ["model", "size", "params", "backend", "threads"]


def table(text):
    lines = text.splitlines()
    rows = [line for line in lines if line.startswith("|")]
    assert len({line.count("|") for line in rows}) == 1
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_markdown(model):
    text = good("bench", "-m", model, "-p", "8", "-n", "2", "-pg", "4,2", "-d", "3", "-r", "2").decode()
    head, rule, *rows = table(text)
    assert head == [*COLUMNS, "test", "t/s"]
    assert rule == ["-" * 30, "-" * 9 + ":", "-" * 9 + ":", "-" * 10, "-" * 6 + ":", "-" * 14 + ":", "-" * 19 + ":"]
    assert [row[-2] for row in rows] == ["pp8 @ d3", "tg2 @ d3", "pp4+tg2 @ d3"]
    for row in rows:
        assert re.fullmatch(r"\d+\.\d\d ± \d+\.\d\d", row[-1]) and row[3] == "OPENVINO"
    widths = [len(line) for line in text.splitlines() if line.startswith("|")]
    assert len(set(widths)) == 1
    assert re.search(r"\n\nbuild: \S+ \(\d+\)\n", text)
    assert re.search(r"\nload: .* \d+\.\d\d s\npeak memory: \d+\.\d\d MiB\n$", text)


def test_markdown_shows_what_is_not_the_default(model):
    text = good("bench", "-m", model, "-p", "4", "-n", "0", "-r", "1", "-b", "4", "-ub", "2", "-ctk", "f16", "-ctv", "f16",
                "-dev", "CPU").decode()
    head = table(text)[0]
    assert head == [*COLUMNS, "n_batch", "n_ubatch", "type_k", "type_v", "dev", "test", "t/s"]


def test_second_format_and_progress_on_stderr(model):
    done = run("bench", "-m", model, "-p", "4", "-n", "0", "-r", "2", "-o", "csv", "-oe", "jsonl", "--progress")
    assert done.stdout.startswith(b"build_commit,")
    lines = done.stderr.decode().splitlines()
    assert [json.loads(x)["n_prompt"] for x in lines if x.startswith("{")] == [4]
    said = [x.removeprefix("grappa bench: ") for x in lines if not x.startswith("{")]
    assert said == ["test 1/1: start", "test 1/1: warmup", "test 1/1: run 1/2", "test 1/1: run 2/2"]


def test_failure_leaves_well_formed_output(model):
    done = run("bench", "-m", model, "-m", "/nowhere.gguf", "-p", "4", "-n", "0", "-r", "1", "-o", "json")
    assert done.returncode == 1 and b"/nowhere.gguf" in done.stderr
    assert len(json.loads(done.stdout)) == 1


def batched(model, *options):
    return good("bench", "-m", model, "-npl", "1,3", "-npp", "5,4", "-ntg", "2", "--no-warmup", *options).decode()


@pytest.mark.sanitize
def test_many_sequences(model):
    """The tests, the fields and the table of llama-batched-bench (llama.cpp b11434)."""
    lines = [json.loads(line) for line in batched(model, "-o", "jsonl").splitlines()]
    assert [(r["pp"], r["tg"], r["pl"], r["n_kv"]) for r in lines] == [(5, 2, 1, 7), (5, 2, 3, 21), (4, 2, 1, 6), (4, 2, 3, 18)]
    for r in lines:
        assert r["is_pp_shared"] == 0
        assert r["t"] == pytest.approx(r["t_pp"] + r["t_tg"], abs=2e-6)
        assert r["speed_pp"] == pytest.approx(r["pl"] * r["pp"] / r["t_pp"], rel=1e-2)
        assert r["speed_tg"] == pytest.approx(r["pl"] * r["tg"] / r["t_tg"], rel=1e-2)
    header, rule, *rows = batched(model, "-pps").splitlines()
    assert header == ("|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |")
    assert rule == "|-------|--------|------|--------|" + "----------|" * 6
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert [c[:4] for c in cells] == [["5", "2", "1", "7"], ["5", "2", "3", "21"], ["4", "2", "1", "6"], ["4", "2", "3", "18"]]


def test_many_sequences_in_small_batches(model):
    lines = [json.loads(line) for line in batched(model, "-o", "jsonl", "-b", "2", "-ub", "1").splitlines()]
    assert len(lines) == 4


def test_many_sequences_take_one_value_of_the_rest(model):
    refused = run("bench", "-m", model, "-npl", "2", "-ub", "1,2")
    assert refused.returncode == 2 and b"-ub takes one value together with -npl" in refused.stderr
    refused = run("bench", "-m", model, "-npl", "2", "-o", "csv")
    assert refused.returncode == 2 and b"-o csv: with -npl it is md or jsonl" in refused.stderr
