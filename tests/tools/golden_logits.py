#!/usr/bin/env python3
"""Expected logits of the tiny models, from llama.cpp, into tests/golden/logits.

    python tests/tools/golden_logits.py -- llama-logits

What stands behind `--` is a command that takes FILE OUT.f32 ID,ID,… and writes the logits of all positions as
float32 [positions, vocabulary], computed by llama.cpp on the CPU in one call with a context of 256; a program of
thirty lines around llama_decode does it. Kept are the rows of a few positions per model, and manifest.json.

With quantised matrices llama.cpp rounds activations to 8 bits. So that errors of the weights can be seen below
that, the logits kept are those of a copy whose matrices gguf-py has dequantised to F32; the file itself must be
near, and how near stands in the manifest. NAME.first.f32 is what llama.cpp computes with the quantised file itself
for the first id alone.

    python tests/tools/golden_logits.py --windows -- llama-logits

makes windows.json and NAME.windows.f32 instead: of models with a sliding window, far beyond it. The context must
hold 700 ids then."""
import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
import tiny_models

GOLDEN = tiny_models.ROOT / "tests" / "golden" / "logits"
N = 72  # ids of a model: past the sliding windows of 32, and over two KV blocks of 32
WINDOWS = ["gemma3", "gemma3-pattern", "gpt-oss", "lfm2-window"]
FAR = 700  # ids: more than twenty windows, so that blocks have been let go many times
CONTEXT = 256  # decides between the long and short factors of longrope


def ids_of(model):
    return np.random.RandomState(model.seed).randint(0, tiny_models.VOCAB, size=N).tolist()


def positions_of(model):
    return [0, 5, 31, 33, 48, N - 1] if model in tiny_models.FAMILIES else [0, 40, N - 1]


def run(command, path, ids):
    with tempfile.NamedTemporaryFile(suffix=".f32") as out:
        text = ",".join(map(str, ids))
        subprocess.run([*command, path, out.name, text], check=True, stdout=subprocess.DEVNULL)
        return np.fromfile(out.name, np.float32).reshape(len(ids), tiny_models.VOCAB)


def exact(model):
    """The same model with its matrices in F32."""

    class Exact(type(model)):
        def tensors(self):
            for name, values, kind in super().tensors():
                yield name, gguf.dequantize(values, kind).astype(np.float32), gguf.GGMLQuantizationType.F32

    return Exact(**{f.name: getattr(model, f.name) for f in dataclasses.fields(model)})


def exact_logits(command, model, ids):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "exact.gguf"
        exact(model).write(path)
        return run(command, path, ids)


def windows(args, folder):
    positions = [0, 50, 131, 300, 512, FAR - 1]
    cases = []
    for name in WINDOWS:
        model, path = tiny_models.MODELS[name], folder / f"{name}.gguf"
        ids = np.random.RandomState(model.seed).randint(0, tiny_models.VOCAB, size=FAR).tolist()
        run(args.command, path, ids)[positions].astype("<f4").tofile(GOLDEN / f"{name}.windows.f32")
        cases.append({"model": name, "tensors": tiny_models.digest(path), "positions": positions, "ids": ids})
    made = {"made_by": f"{args.version}: llama-logits MODEL.gguf OUT.f32 IDS", "cases": cases}
    text = json.dumps(made, separators=(",", ":")).replace('{"model"', '\n{"model"')
    (GOLDEN / "windows.json").write_text(text + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", default="llama.cpp b11434, CPU", help="what made them, for the manifest")
    parser.add_argument("--only", help="names of models, with commas: the others' logits stay as they are")
    parser.add_argument("--windows", action="store_true", help="long prompts of models with a sliding window instead")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    folder = tiny_models.ensure()
    if args.windows:
        windows(args, folder)
        return
    only = set(args.only.split(",")) if args.only else set(tiny_models.MODELS)
    kept = {c["model"]: c for c in json.loads((GOLDEN / "manifest.json").read_text())["cases"]} if args.only else {}
    cases = []
    for name, model in tiny_models.MODELS.items():
        if name not in only:
            cases.append(kept[name])
            continue
        path = folder / f"{name}.gguf"
        ids, positions = ids_of(model), positions_of(model)
        case = {"model": name, "tensors": tiny_models.digest(path), "positions": positions, "ids": ids}
        logits = run(args.command, path, ids)
        if model not in tiny_models.FAMILIES:
            rounded, logits = logits, exact_logits(args.command, model, ids)
            error = float(((rounded - logits) ** 2).sum() / (logits**2).sum())
            assert error < 2e-3, f"{name}: gguf-py and llama.cpp read the weights differently ({error:.1e})"
            case["llama.cpp_nmse"] = float(f"{error:.2g}")
            # Of one token: no sums over several keys, whose order and f16 rounding differ, only products.
            run(args.command, path, ids[:1]).astype("<f4").tofile(GOLDEN / f"{name}.first.f32")
        assert np.isfinite(logits).all(), name
        print(f"{name:20} spread {logits.std():.3f}, NMSE of llama.cpp {case.get('llama.cpp_nmse', 0):.1e}")
        logits[positions].astype("<f4").tofile(GOLDEN / f"{name}.f32")
        cases.append(case)
    manifest = {"made_by": f"{args.version}: llama-logits MODEL.gguf OUT.f32 IDS", "context": CONTEXT,
                "vocabulary": tiny_models.VOCAB, "cases": cases}  # fmt: skip
    text = json.dumps(manifest, separators=(",", ":")).replace('{"model"', '\n{"model"')
    (GOLDEN / "manifest.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
