"""Greedy text against llama.cpp's, on real models (`make deps` brings them). The texts, and how they were made and
chosen: tests/golden/text, tests/tools/golden_text.py. Only the first tokens are compared, of which llama.cpp is sure."""
import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GRAPPA = Path(os.environ.get("GRAPPA_BIN") or os.environ.get("GRAPPA") or ROOT / "build" / "grappa")
MODELS = Path(os.environ.get("GRAPPA_MODELS") or ROOT / ".models")
GOLDEN = sorted((ROOT / "tests" / "golden" / "text").glob("*.json"))
F32 = ["-ctk", "f32", "-ctv", "f32", "--precision", "f32"]


def cases():
    for path in GOLDEN:
        golden = json.loads(path.read_text())
        for case in golden["cases"]:
            yield pytest.param(golden, case, id=f"{path.stem}: {case['prompt'][:24]}")


@pytest.mark.parametrize("options", [F32, []], ids=["f32", "default"])
@pytest.mark.parametrize("golden, case", list(cases()))
def test_greedy_text(golden, case, options):
    model = MODELS / golden["file"]
    if not model.exists():
        pytest.skip(f"{model} is not there: make deps")
    command = [GRAPPA, "run", "-m", model, "-no-cnv", "--no-display-prompt", "--temp", "0", "-c", "512", *options]
    done = subprocess.run([*command, "-n", str(golden["tokens_sure"]), "-p", case["prompt"]], capture_output=True,
                          timeout=300, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.removesuffix("\n") == case["sure"].removesuffix("\n")
