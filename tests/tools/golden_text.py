#!/usr/bin/env python3
"""tests/golden/text: what llama.cpp writes greedily, where it is sure of it.

    python tests/tools/golden_text.py RUN [name…]     (RUN PROGRAM … runs a program of llama.cpp b11434)

For each prompt `llama-completion -dev none --temp 0 -no-cnv -n 32` writes a text. llama.cpp rounds activations to 8
bits, which may turn a close decision, so its own logits (llama-logits) tell for each of the first 16 tokens how far
the likeliest is ahead of the next one. Of all candidates the three with the widest of these narrowest margins stay."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / ".models"
GOLDEN = ROOT / "tests" / "golden" / "text"
COUNT, SURE, KEEP = 32, 16, 3
CANDIDATES = [
    "The capital of France is",
    "Once upon a time, there was a",
    "1, 2, 3, 4, 5, 6, 7,",
    "Monday, Tuesday, Wednesday,",
    "The quick brown fox jumps over the lazy",
    "Water boils at a temperature of",
    "def fibonacci(n):\n    if n <= 1:\n        return",
    "The opposite of hot is cold. The opposite of big is",
]
FILES = {"smollm2-135m-q4_1": "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-q4_k_m": "gemma-3-270m-q4_k_m.gguf"}


def peer(program, *arguments):
    done = subprocess.run([sys.argv[1], program, *map(str, arguments)], capture_output=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        sys.exit(f"{program}: {done.stderr.decode()}")
    return done.stdout.decode()


def ids_of(model, text):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as f:
        f.write(text)
        f.flush()
        return json.loads(peer("llama-tokenize", "-m", model, "--ids", "-f", f.name).strip().splitlines()[-1])


def margins(model, ids, start):
    """How sure llama.cpp is of each token from `start` on; None when it would not choose it."""
    with tempfile.NamedTemporaryFile(suffix=".f32") as f:
        peer("llama-logits", model, f.name, ",".join(map(str, ids)))
        rows = np.fromfile(f.name, "<f4").reshape(len(ids), -1)[start - 1 : -1]
    two = np.sort(rows, axis=1)[:, -2:]
    if any(row.argmax() != i for row, i in zip(rows, ids[start:])):
        return None
    return two[:, 1] - two[:, 0]


def examine(model, prompt):
    """The text and the narrowest margin of its first tokens."""
    common = ["-m", model, "-dev", "none", "--temp", "0", "-no-cnv", "--no-display-prompt", "-t", os.cpu_count()]
    text = peer("llama-completion", *common, "-n", COUNT, "-p", prompt)
    head = peer("llama-completion", *common, "-n", SURE, "-p", prompt).removesuffix("\n\n")
    before, ids = ids_of(model, prompt), ids_of(model, prompt + head)
    if len(ids) < len(before) + SURE or not text.startswith(head):
        return None
    m = margins(model, ids[: len(before) + SURE], len(before))
    return None if m is None else {"prompt": prompt, "text": text.removesuffix("\n\n"), "sure": head,
                                   "margin": round(float(m.min()), 3)}


def main():
    for name, file in FILES.items():
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        found = []
        for prompt in CANDIDATES:
            case = examine(MODELS / file, prompt)
            print(name, prompt, case and case["margin"], flush=True)
            if case:
                found.append(case)
        found.sort(key=lambda c: -c["margin"])
        golden = {
            "command": f"llama-completion -m {file} -dev none --temp 0 -no-cnv --no-display-prompt -n {COUNT} -p PROMPT",
            "program": "llama.cpp b11434, CPU; chosen by tests/tools/golden_text.py",
            "file": file,
            "tokens_sure": SURE,
            "cases": found[:KEEP],
        }
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / f"{name}.json").write_text(json.dumps(golden, indent=1, ensure_ascii=False) + "\n")


main()
