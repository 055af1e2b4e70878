"""Running the program for the tests of its command line."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GRAPPA = Path(os.environ.get("GRAPPA_BIN") or os.environ.get("GRAPPA") or ROOT / "build" / "grappa")
GOLDEN = ROOT / "tests" / "golden" / "cli"
# As exact as it gets, for comparing figures.
EXACT = ["-ctk", "f32", "-ctv", "f32", "--ov", "INFERENCE_PRECISION_HINT=f32"]

if not GRAPPA.exists():
    pytest.skip(f"{GRAPPA} is not built", allow_module_level=True)


def environment(**more):
    """The environment without what would set options."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_ARG_", "GRAPPA_"))}
    return {**clean, **more}


def run(*arguments, program=GRAPPA, stdin=b"", env=None, **more):
    """The finished process; stdout and stderr are bytes."""
    return subprocess.run(
        [str(program), *map(str, arguments)], input=stdin, env=environment(**(env or {})), timeout=180,
        stdout=more.pop("stdout", subprocess.PIPE), stderr=subprocess.PIPE, **more)


def good(*arguments, **more):
    """stdout of a run that must succeed in silence."""
    done = run(*arguments, **more)
    assert (done.returncode, done.stderr.decode(errors="replace")) == (0, "")
    return done.stdout


def refused(*arguments, status=2, **more):
    """The one line on stderr of a run that must fail with this status and write nothing."""
    done = run(*arguments, **more)
    error = done.stderr.decode()
    assert (done.returncode, done.stdout) == (status, b""), error
    assert error.startswith("grappa: ") and error.endswith("\n") and error.count("\n") == 1
    return error[len("grappa: "):-1]


def tiny(name):
    """The path of a tiny model (tests/tools/tiny_models.py)."""
    pytest.importorskip("gguf")
    sys.path.insert(0, str(ROOT / "tests" / "tools"))
    import tiny_models

    return tiny_models.ensure() / f"{name}.gguf"
