#!/usr/bin/env python3
"""Writes tests/golden/vocab/infill.txt: prompts for filling in the middle as llama-server's /infill makes them.

    python tests/tools/infill_golden.py LLAMA_SERVER FILE.gguf...

LLAMA_SERVER is a command (b11434). Each FILE, a vocabulary with FIM tokens, gets a model of one layer around it.
A line: vocabulary, suffix first (1) or not, n_batch, n_predict, n_ctx, prefix, suffix, prompt, for each extra file its
name ("-": none) and text, then the number of tokens and the prompt they spell. Fields end at tabs; in them \\n, \\r, \\t,
\\\\ and \\xNN stand for bytes."""
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import gguf
import numpy as np

from vocab_parity import GOLDEN, escaped

PORT = 18437
CODE = "def add(a, b):\n    \"\"\"Sum of two.\"\"\"\n    return a + b\n\n\nclass Näher:\n\tdef f(self):\n\t\tpass\n"
REQUESTS = [
    {"input_prefix": "def f(x):\n    ", "input_suffix": "\n    return y\n"},
    {"input_prefix": "", "input_suffix": ""},
    {"input_prefix": "int main() {", "input_suffix": "}\n", "prompt": "  return <|fim_middle|>"},
    {"input_prefix": "a <|fim_prefix|> b", "input_suffix": "<fim_suffix>"},
    {"input_prefix": CODE * 6, "input_suffix": CODE * 6},
    {"input_prefix": CODE * 6, "input_suffix": CODE * 6, "prompt": "return self"},
    {"input_prefix": "x = ", "input_suffix": "\n", "input_extra": [{"filename": "ä/util.py", "text": CODE}]},
    {"input_prefix": "x = ", "input_suffix": "\n", "input_extra": [{"text": "no name\n"}, {"filename": "b.c", "text": "int b;"}]},
    {"input_prefix": CODE, "input_suffix": CODE, "input_extra": [{"filename": f"f{i}.py", "text": CODE} for i in range(12)]},
]


def model_around(path, out):
    """One layer of llama, random weights."""
    reader = gguf.GGUFReader(path)
    n, width = len(reader.fields["tokenizer.ggml.tokens"].data), 32
    w = gguf.GGUFWriter(out, "llama")
    for key, field in reader.fields.items():
        if key.startswith("tokenizer."):
            kind = field.types[0]
            w.add_key_value(key, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    w.add_context_length(8192), w.add_embedding_length(width), w.add_block_count(1), w.add_feed_forward_length(32)
    w.add_head_count(2), w.add_head_count_kv(2), w.add_layer_norm_rms_eps(1e-5), w.add_rope_dimension_count(16)
    rng = np.random.RandomState(1)
    shapes = {"token_embd": (n, width), "output_norm": (width,), **{f"blk.0.attn_{x}": (width, width) for x in ("q", "k", "v", "output")},
              "blk.0.attn_norm": (width,), "blk.0.ffn_norm": (width,), **{f"blk.0.ffn_{x}": (width, width) for x in ("gate", "up", "down")}}
    for name, shape in shapes.items():
        w.add_tensor(name + ".weight", rng.standard_normal(shape).astype(np.float32))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()


def ask(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data), timeout=60) as r:
        return json.load(r)


def wait():
    for _ in range(240):
        try:
            return ask("/health")
        except (urllib.error.URLError, OSError):
            time.sleep(0.25)
    raise SystemExit("the server does not start")


def lines(command, model, name):
    for batch, predict, flags in ((256, 16, []), (64, 100, []), (64, -1, ["--spm-infill"])):
        args = ["-m", model, "-c", "1024", "-b", str(batch), "-n", str(predict), "-np", "1", "--port", str(PORT), "-dev", "none", "--no-warmup"]
        server = subprocess.Popen(command + args + flags, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait()
            n_ctx = ask("/props")["default_generation_settings"]["n_ctx"]
            for r in REQUESTS:
                try:
                    got = ask("/infill", {**r, "n_predict": 0, "cache_prompt": False})
                except urllib.error.HTTPError as e:
                    if b"exceed" not in e.read():
                        raise
                    continue  # longer than the context: no answer to compare with
                fields = [name, str(len(flags)), str(batch), str(predict), str(n_ctx), r["input_prefix"], r["input_suffix"], r.get("prompt", "")]
                for f in r.get("input_extra", []):
                    fields += [f.get("filename", "-"), f["text"]]
                fields += [str(got["tokens_evaluated"]), got["prompt"]]
                yield "\t".join(escaped(f.encode()) for f in fields)
        finally:
            server.terminate()
            server.wait()


def main():
    command, out = shlex.split(sys.argv[1]), []
    for path in sys.argv[2:]:
        name = os.path.basename(path).replace("ggml-vocab-", "").replace(".gguf", "")
        with tempfile.TemporaryDirectory() as tmp:
            model_around(path, f"{tmp}/m.gguf")
            out += lines(command, f"{tmp}/m.gguf", name)
    with open(f"{GOLDEN}/infill.txt", "w") as f:
        f.writelines(line + "\n" for line in out)


main()
