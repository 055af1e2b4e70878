"""Logits against llama.cpp's, on models small enough for every run: one for each thing a family or a tensor type
does differently. The expected values and how they were made: tests/golden/logits."""
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("gguf")

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "tools"))
import tiny_models  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "logits"
GRAPPA = Path(os.environ.get("GRAPPA_BIN") or os.environ.get("GRAPPA") or ROOT / "build" / "grappa")
MANIFEST = json.loads((GOLDEN / "manifest.json").read_text())
CASES = {c["model"]: c for c in MANIFEST["cases"]}
F32 = {m.name for m in tiny_models.FAMILIES}
# What llama.cpp rounds on its side (keys, values, activations) is below; a wrong graph is above.
LIMIT_F32, LIMIT_ROUNDED = 1e-5, 5e-3
EXACT = ["-ctk", "f32", "-ctv", "f32", "--ov", "INFERENCE_PRECISION_HINT=f32"]


@pytest.fixture(scope="session")
def models():
    return tiny_models.ensure()


@pytest.fixture(scope="session")
def grappa():
    if not GRAPPA.exists():
        pytest.skip(f"{GRAPPA} is not built")
    return GRAPPA


def logits(grappa, path, ids, out, *more):
    command = [grappa, "logits", "-m", path, "-c", str(MANIFEST["context"]), *EXACT, "--ids", ",".join(map(str, ids))]
    done = subprocess.run([*command, *more, "-o", out], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return np.fromfile(out, np.float32).reshape(len(ids), MANIFEST["vocabulary"])


def nmse(got, want):
    return float(((got - want) ** 2).sum() / (want**2).sum())


def expected(case):
    rows = np.fromfile(GOLDEN / f"{case['model']}.f32", "<f4")
    return rows.reshape(len(case["positions"]), MANIFEST["vocabulary"]).astype(np.float64)


@pytest.mark.parametrize("name", tiny_models.MODELS)
def test_tiny_models_are_those_of_the_golden_logits(models, name):
    assert tiny_models.digest(models / f"{name}.gguf") == CASES[name]["tensors"]


@pytest.mark.parametrize("name", tiny_models.MODELS)
def test_prompt_in_one_call(grappa, models, tmp_path, name):
    case = CASES[name]
    got = logits(grappa, models / f"{name}.gguf", case["ids"], tmp_path / "out.f32")
    error = nmse(got[case["positions"]], expected(case))
    assert error <= (LIMIT_F32 if name in F32 else LIMIT_ROUNDED)


@pytest.mark.parametrize("name", [n for n in tiny_models.MODELS if n in F32 or not n.startswith("llama")])
def test_prompt_in_pieces(grappa, models, tmp_path, name):
    """Calls of several rows, of one row, and across the windows and blocks of 32 find the same past."""
    case = CASES[name]
    steps = [3, 1, 1, 28]
    steps.append(len(case["ids"]) - sum(steps))
    sizes = ",".join(map(str, steps))
    got = logits(grappa, models / f"{name}.gguf", case["ids"], tmp_path / "out.f32", "--steps", sizes)
    error = nmse(got[case["positions"]], expected(case))
    assert error <= (LIMIT_F32 if name in F32 else LIMIT_ROUNDED)
