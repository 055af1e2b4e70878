"""grappa perplexity against llama-perplexity's figures (tests/golden/cli), and its file of logits."""
import re
import struct

import pytest
from cli_tools import EXACT, GOLDEN, good, refused, run, tiny

np = pytest.importorskip("numpy")

TEXT = GOLDEN / "text.txt"
BASE = GOLDEN / "llama.logits"
N_CTX, N_VOCAB, N_CHUNK = 32, 320, 8
ROWS = N_CTX - 1 - N_CTX // 2
# What two implementations in float32 differ by, as seen in the logits' own tests.
NEAR = 5e-4


@pytest.fixture(scope="module")
def model():
    return tiny("llama")


def numbers(text):
    return [float(x) for x in re.findall(r"-?\d+\.\d+", text)]


def without_numbers(text):
    return re.sub(r" *-?\d+\.\d+", " #", text).rstrip()


def same_report(got, want, near):
    """The same words and layout, and figures as near as `near` or their last digit."""
    assert without_numbers(got) == without_numbers(want)
    a, b = numbers(got), numbers(want)
    digits = [len(x.split(".")[1]) for x in re.findall(r"-?\d+\.\d+", want)]
    for x, y, d in zip(a, b, digits, strict=True):
        assert x == pytest.approx(y, rel=near, abs=1.5 * 10.0**-d + near)


@pytest.mark.parametrize("steps", [[], ["-ub", "10"], ["-ub", "100"], ["-b", "32"], ["-ub", "1"]])
def test_perplexity(model, steps):
    out = good("perplexity", "-m", model, "-f", TEXT, "-c", N_CTX, "--chunks", N_CHUNK, *EXACT, *steps).decode()
    same_report(out, (GOLDEN / "ppl.txt").read_text(), NEAR)


def test_lines_of_output_type_1(model):
    words = ["perplexity", "-m", model, "-f", TEXT, "-c", N_CTX, "--chunks", "3", *EXACT]
    lines = good(*words, "--ppl-output-type", "1").decode().splitlines()
    rows = [line.split() for line in lines[:3]]
    assert [row[0] for row in rows] == ["0", "32", "64"]
    running = numbers((GOLDEN / "ppl.txt").read_text())[:3]
    assert [float(row[1]) for row in rows] == pytest.approx(running, rel=NEAR)
    # llama-perplexity's for the first chunk: ln of the perplexity, and its deviation.
    assert [float(x) for x in rows[0][2:]] == pytest.approx([6.540169, 0.290942], rel=NEAR)


def test_all_chunks_is_the_default(model):
    words = ["perplexity", "-m", model, "-f", TEXT, "-c", N_CTX]
    assert good(*words).decode().count("[") == good(*words, "--chunks", "9999").decode().count("[") > N_CHUNK


def test_short_text(model):
    line = refused("perplexity", "-m", model, "-p", "the cat", status=1)
    assert re.fullmatch(r"the text has \d tokens; for chunks of 512 there must be at least 1024", line)


def test_arithmetic(model, tmp_path):
    """The estimate is what NumPy makes of the logits that `grappa logits` writes."""
    ids = np.frombuffer(BASE.read_bytes(), np.int32, N_CTX * N_CHUNK, 20).reshape(N_CHUNK, N_CTX)
    nll = []
    for chunk in ids:
        out = tmp_path / "l.f32"
        given = [1, *chunk[1:]]  # this vocabulary adds a BOS, 1
        good("logits", "-m", model, "--ids", ",".join(map(str, given)), "-o", out, *EXACT)
        logits = np.fromfile(out, np.float32).reshape(N_CTX, N_VOCAB).astype(np.float64)
        for pos in range(N_CTX // 2, N_CTX - 1):
            row = logits[pos]
            nll.append(np.log(np.exp(row - row.max()).sum()) + row.max() - row[chunk[pos + 1]])
    assert len(nll) == N_CHUNK * ROWS
    text = good("perplexity", "-m", model, "-f", TEXT, "-c", N_CTX, "--chunks", N_CHUNK, *EXACT).decode()
    ppl, deviation = numbers(text)[-2:]
    assert ppl == pytest.approx(np.exp(np.mean(nll)), rel=1e-5)
    assert deviation == pytest.approx(np.exp(np.mean(nll)) * np.std(nll) / (len(nll) - 1) ** 0.5, rel=1e-4)


# --- files of logits ----------------------------------------------------------------------------------------------


def unpack(path):
    """(tokens, log-probabilities [chunk * row, vocabulary]) of a file of logits."""
    data = path.read_bytes()
    assert data[:8] == b"_logits_"
    n_ctx, n_vocab, n_chunk = struct.unpack("<3i", data[8:20])
    assert (n_ctx, n_vocab, n_chunk) == (N_CTX, N_VOCAB, N_CHUNK)
    tokens = np.frombuffer(data, np.int32, n_ctx * n_chunk, 20)
    rows = np.frombuffer(data, np.uint16, offset=20 + tokens.nbytes).reshape(n_chunk * ROWS, 4 + n_vocab)
    head = np.ascontiguousarray(rows[:, :4]).view(np.float32)
    return tokens, head[:, :1] * rows[:, 4:] + head[:, 1:]


def test_file_is_llama_perplexitys(model, tmp_path):
    mine = tmp_path / "mine"
    words = ["perplexity", "-m", model, "-f", TEXT, "-c", N_CTX, "--chunks", N_CHUNK, *EXACT]
    assert good(*words, "--kl-divergence-base", mine) == good(*words, "--save-all-logits", mine, "-ub", "10") == good(*words)
    tokens, got = unpack(mine)
    expected_tokens, want = unpack(BASE)
    assert (tokens == expected_tokens).all()
    assert np.abs(got - want).max() < 0.02 and np.exp(got).sum(1) == pytest.approx(np.ones(len(got)), abs=1e-3)


@pytest.mark.sanitize
@pytest.mark.parametrize("steps", [[], ["-ub", "10"]])
def test_divergence(steps):
    out = good("perplexity", "-m", tiny("gemma3"), "--kl-divergence-base", BASE, "--kl-divergence", *EXACT, *steps).decode()
    same_report(out.lstrip("\n"), (GOLDEN / "gemma3.kld").read_text(), 3e-3)


def test_no_divergence_from_itself(model, tmp_path):
    mine = tmp_path / "mine"
    good("perplexity", "-m", model, "-f", TEXT, "-c", N_CTX, "--chunks", N_CHUNK, "--kl-divergence-base", mine)
    out = good("perplexity", "-m", model, "--kl-divergence", "--kl-divergence-base", mine).decode()
    assert float(re.search(r"Maximum KLD: +(\S+)", out)[1]) < 1e-4
    assert re.search(r"Same top p: 100\.000 ± 0\.000 %", out)
    # Fewer positions than make a statistic: only the table.
    few = good("perplexity", "-m", model, "--kl-divergence", "--kl-divergence-base", mine, "--chunks", "2").decode()
    assert few.count("±") == 10 and "======" not in few


DAMAGE = {
    "empty": lambda d: b"",
    "another file": lambda d: b"GGUF" + d[4:],
    "no header": lambda d: d[:15],
    "no tokens": lambda d: d[:100],
    "rows cut off": lambda d: d[:-1],
    "n_ctx 0": lambda d: d[:8] + struct.pack("<i", 0) + d[12:],
    "n_ctx negative": lambda d: d[:8] + struct.pack("<i", -32) + d[12:],
    "n_ctx huge": lambda d: d[:8] + struct.pack("<i", 2**31 - 1) + d[12:],
    "n_vocab huge": lambda d: d[:12] + struct.pack("<i", 2**31 - 1) + d[16:],
    "n_chunk huge": lambda d: d[:16] + struct.pack("<i", 2**31 - 1) + d[20:],
    "all huge": lambda d: d[:8] + struct.pack("<3i", *[2**31 - 1] * 3) + d[20:],
    "another vocabulary": lambda d: d[:12] + struct.pack("<i", 310) + d[16:],
    "token too great": lambda d: d[:20] + struct.pack("<i", 320) + d[24:],
    "token negative": lambda d: d[:20] + struct.pack("<i", -1) + d[24:],
}


@pytest.mark.sanitize
@pytest.mark.parametrize("kind", DAMAGE)
def test_damaged_files(model, tmp_path, kind):
    path = tmp_path / "bad"
    path.write_bytes(DAMAGE[kind](BASE.read_bytes()))
    line = refused("perplexity", "-m", model, "--kl-divergence", "--kl-divergence-base", path, status=1)
    assert line.startswith(f"{path}: ")


def test_files_that_cannot_be(model, tmp_path):
    words = ["perplexity", "-m", model, "-f", TEXT, "-c", N_CTX]
    assert refused(*words, "--kl-divergence-base", tmp_path / "no" / "x", status=1).endswith("No such file or directory")
    assert refused(*words, "--kl-divergence", "--kl-divergence-base", tmp_path / "x", status=1).endswith("No such file or directory")
    done = run(*words, "--kl-divergence-base", "/dev/full")
    assert done.returncode == 1 and done.stderr == b"grappa: can't write /dev/full: No space left on device\n"
