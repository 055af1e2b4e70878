"""grappa beside a llama.cpp at hand: fresh random models of every family, quantised anew to every type, so that nothing
here rests on golden data. Needs ../shared/peers/llama (or $GRAPPA_SHARED), a command that runs llama.cpp's programs
by name; without it all is skipped. CI runs it where that folder is, `make test` does not. What it measures is printed:
`pytest -rP tests/shared` shows it, with two more seeds of weights if `-m "slow or not slow"` is given.

llama.cpp rounds activations to 8 bits when it multiplies quantised weights. So quantised files are compared twice: as
users run them, where our kernels round alike; and repacked, with OpenVINO told to leave activations alone, against
llama.cpp on the same file dequantised to F32: what counts there is our graph and our weights. Keys and values are f16
in both, which also keeps routers from choosing otherwise where two experts are as good."""
import json
import os
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("GRAPPA_SHARED") or ROOT.parent / "shared")
PEERS = SHARED / "peers" / "llama"
GRAPPA = Path(os.environ.get("GRAPPA") or ROOT / "build" / "grappa")
MODELS = Path(os.environ.get("GRAPPA_MODELS") or ROOT / ".models")
FAMILIES = re.findall(r'^ARCH\("([^"]+)"', (ROOT / "src" / "arch" / "arch.def").read_text(), re.M)
LIMIT = 1e-10
# llama.cpp looks GELU up in a table of f16; it caches the narrow row that all heads' keys come out of, we the keys;
# OLMo's first norm of random embeddings has nearly no variance to divide by.
LIMITS = {**dict.fromkeys("gemma3 phi2 starcoder2 falcon gptneox gpt2 starcoder codeshell".split(), 1e-7),
          "mpt": 1e-6, "deepseek2": 1e-8, "mistral4": 1e-8, "gemma": 1e-9, "olmo": 1e-9}
# Test files with a sliding window of 32: far beyond it, in a context that lets go of what lies behind.
WINDOWED = "cohere2 exaone-moe exaone4 gemma3 gpt-oss lfm2 mellum olmo2".split()
SEEDS = [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(3, marks=pytest.mark.slow)]
TYPES = ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K_M", "Q4_K_M", "Q5_K_M", "Q6_K", "IQ4_NL",
         "IQ4_XS"]
EXACT = ["--repack", "--precision", "f32", "--ov", "DYNAMIC_QUANTIZATION_GROUP_SIZE=0"]

pytestmark = pytest.mark.skipif(not PEERS.exists(), reason="no llama.cpp at hand: ../shared/peers/llama")


@pytest.fixture(scope="session")
def llama():
    """Runs a program of llama.cpp."""
    libs = next((ROOT / ".venv" / "lib").glob("python3*/site-packages/openvino/libs"))
    env = {**os.environ, "OPENVINO_LIBS": str(libs)}

    def run(*command, **kwargs):
        return subprocess.run([str(PEERS), *map(str, command)], check=True, capture_output=True, env=env,
                              stdin=subprocess.DEVNULL, timeout=300, **kwargs).stdout

    return run


@pytest.fixture(scope="session")
def dense(llama, tmp_path_factory):
    """A llama of random weights."""
    folder = tmp_path_factory.mktemp("archs")
    llama("test-llama-archs", "-a", "^llama$", "-s", "1", "-o", folder)
    return folder / "llama-dense.gguf"


def grappa(*arguments):
    run = subprocess.run([str(GRAPPA), *map(str, arguments)], capture_output=True, stdin=subprocess.DEVNULL, timeout=300)
    assert run.returncode == 0, run.stderr.decode(errors="replace")
    return run.stdout


def grappa_logits(path, ids, tmp_path, *options):
    out = tmp_path / "grappa.f32"
    grappa("logits", "-m", path, "--ids", ",".join(map(str, ids)), "-o", out, *options)
    return np.fromfile(out, np.float32).reshape(len(ids), -1)


def llama_logits(llama, path, ids, tmp_path):
    out = tmp_path / "llama.f32"
    llama("llama-logits", path, out, ",".join(map(str, ids)))
    return np.fromfile(out, np.float32).reshape(len(ids), -1)


def nmse(a, b):
    assert a.shape == b.shape and np.isfinite(a).all()
    return float(np.sum((a - b) ** 2, dtype=np.float64) / np.sum(b.astype(np.float64) ** 2))


def ids_below(n, count, seed):
    return np.random.RandomState(seed).randint(0, n, count).tolist()


@pytest.fixture(scope="session")
def archs(llama, tmp_path_factory):
    """The folder with files of all families, by the seed of their weights."""
    made = {}

    def folder(seed):
        if seed not in made:
            made[seed] = tmp_path_factory.mktemp(f"seed{seed}")
            names = "|".join(map(re.escape, FAMILIES))
            llama("test-llama-archs", "-a", f"^({names})$", "-s", seed, "-o", made[seed])
        return made[seed]

    return folder


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family, seed, archs, llama, tmp_path):
    """With and without experts, past the sliding windows of 32 tokens; in pieces, down to single tokens."""
    paths = [p for p in (archs(seed) / f"{family}-{kind}.gguf" for kind in ("dense", "moe")) if p.exists()]
    assert paths, f"test-llama-archs writes no {family}"
    long = family in WINDOWED
    ids, more = ids_below(128, 250 if long else 80, seed), ["-c", 4096] if long else []
    steps = ["--steps", f"17,40,1,1,1,{len(ids) - 60}"]
    for path in paths:
        want = llama_logits(llama, path, ids, tmp_path)
        error = nmse(grappa_logits(path, ids, tmp_path, *EXACT, *steps, *more), want)
        print(f"{path.stem:24} seed {seed}: NMSE {error:.1e}")
        path.unlink()
        assert error < LIMITS.get(family, LIMIT)


@pytest.mark.parametrize("kind", TYPES)
def test_type(kind, dense, llama, tmp_path):
    small, plain = tmp_path / "small.gguf", tmp_path / "plain.gguf"
    llama("llama-quantize", dense, small, kind)
    llama("llama-quantize", "--allow-requantize", small, plain, "F32")
    ids = ids_below(128, 40, 2)
    want = llama_logits(llama, plain, ids, tmp_path)
    assert nmse(grappa_logits(small, ids, tmp_path, *EXACT), want) < 1e-7
    # As users run it: the same rounding; a value on the edge may fall to the other side later in a prompt.
    want = llama_logits(llama, small, ids, tmp_path)
    got = grappa_logits(small, ids, tmp_path)
    # llama.cpp rounds the rows that meet F16 and BF16 weights to these types, we do not.
    assert nmse(got[:1], want[:1]) < (1e-5 if kind in ("F16", "BF16") else 1e-9)
    assert nmse(got, want) < 1e-3


REAL = {
    "SmolLM2": MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf",
    "Gemma 3": MODELS / "gemma-3-270m-q4_k_m.gguf",
    "stories260K": SHARED / "models" / "stories260K.gguf",
}
TEXT = ("Once upon a time there was a little girl. She said: \"It's 12.50 €!\" 日本語 and naïve émigrés\n\n"
        "    for (int i = 0; i < 10; i++) { x += 0x1F; }\t🙂 the end.")


@pytest.mark.parametrize("name", REAL)
def test_real_model(name, llama, tmp_path):
    path = REAL[name]
    if not path.exists():
        pytest.skip(f"{path} is not there")
    want_ids = json.loads(llama("llama-tokenize", "-m", path, "-p", TEXT, "--ids", "--log-disable"))
    assert json.loads(grappa("tokenize", "-m", path, "-p", TEXT, "--ids")) == want_ids
    plain = tmp_path / "plain.gguf"
    llama("llama-quantize", "--allow-requantize", path, plain, "F32")
    want = llama_logits(llama, plain, want_ids, tmp_path)
    exact = grappa_logits(path, want_ids, tmp_path, *EXACT)
    plain.unlink()
    assert nmse(exact, want) < 1e-6
    assert (exact.argmax(1) == want.argmax(1)).mean() > 0.98


def test_bench_speaks_as_llama_bench(llama):
    arguments = ["-m", REAL["SmolLM2"], "-p", "16", "-n", "4", "-r", "2", "-o", "json"]
    ours = json.loads(grappa("bench", *arguments))
    theirs = json.loads(llama("llama-bench", "-dev", "none", *arguments))
    assert [(x["n_prompt"], x["n_gen"]) for x in ours] == [(x["n_prompt"], x["n_gen"]) for x in theirs]
    for a, b in zip(ours, theirs):
        assert set(b) <= set(a)
        assert (a["model_size"], a["model_n_params"]) == (b["model_size"], b["model_n_params"])
        assert len(a["samples_ns"]) == 2 and a["avg_ts"] > 0
