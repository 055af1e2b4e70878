#!/usr/bin/env python3
"""Writes llama files of 1B shape with random weights, for measuring speed and memory.

    bench/make_llama1b.py --vocab SMOLLM2.gguf [--quantize LLAMA_QUANTIZE] [--types q4_0,q4_k_m,q8_0] FOLDER

16 layers, 2048 wide, 32 query and 8 key heads of 64, 8192 inside the MLP, 32,000 tokens. The weights come from a
fixed seed, so every machine measures the same file. The vocabulary is the first 32,000 tokens of the given file,
with the merges that stay inside it, so that text can be tokenized and detokenized. Tensors are written one by one;
no more than one is in memory.

Q4_0 and Q8_0 are written by gguf-py when no llama-quantize is at hand; Q4_K_M needs llama-quantize.
"""
import argparse
import os
import subprocess
import sys

import gguf
import numpy as np

SEED = 20260101
LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, INNER, VOCAB = 16, 2048, 32, 8, 64, 8192, 32000

FILE_TYPES = {
    "f16": (gguf.LlamaFileType.MOSTLY_F16, gguf.GGMLQuantizationType.F16),
    "q4_0": (gguf.LlamaFileType.MOSTLY_Q4_0, gguf.GGMLQuantizationType.Q4_0),
    "q8_0": (gguf.LlamaFileType.MOSTLY_Q8_0, gguf.GGMLQuantizationType.Q8_0),
}


def shapes():
    """(name, shape in numpy's order) of every tensor, in the order of the file."""
    yield "token_embd.weight", (VOCAB, WIDTH)
    for i in range(LAYERS):
        p = f"blk.{i}."
        yield p + "attn_norm.weight", (WIDTH,)
        yield p + "attn_q.weight", (HEADS * HEAD, WIDTH)
        yield p + "attn_k.weight", (KV_HEADS * HEAD, WIDTH)
        yield p + "attn_v.weight", (KV_HEADS * HEAD, WIDTH)
        yield p + "attn_output.weight", (WIDTH, HEADS * HEAD)
        yield p + "ffn_norm.weight", (WIDTH,)
        yield p + "ffn_gate.weight", (INNER, WIDTH)
        yield p + "ffn_up.weight", (INNER, WIDTH)
        yield p + "ffn_down.weight", (WIDTH, INNER)
    yield "output_norm.weight", (WIDTH,)
    yield "output.weight", (VOCAB, WIDTH)


def field(reader, key):
    f = reader.get_field(key)
    return f.contents() if f is not None else None


def add_vocab(writer, path):
    r = gguf.GGUFReader(path)
    tokens = field(r, "tokenizer.ggml.tokens")[:VOCAB]
    kinds = field(r, "tokenizer.ggml.token_type")[:VOCAB]
    if len(tokens) < VOCAB:
        sys.exit(f"{path}: has {len(tokens)} tokens, {VOCAB} are needed")
    inside = set(tokens)
    merges = [m for m in field(r, "tokenizer.ggml.merges") if m.replace(" ", "") in inside]
    writer.add_tokenizer_model(field(r, "tokenizer.ggml.model"))
    writer.add_tokenizer_pre(field(r, "tokenizer.ggml.pre"))
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(field(r, "tokenizer.ggml.bos_token_id"))
    writer.add_eos_token_id(field(r, "tokenizer.ggml.eos_token_id"))
    writer.add_pad_token_id(field(r, "tokenizer.ggml.padding_token_id"))
    writer.add_add_bos_token(False)
    template = field(r, "tokenizer.chat_template")
    if template:
        writer.add_chat_template(template)


def tensor_type(shape, kind):
    return gguf.GGMLQuantizationType.F32 if len(shape) == 1 else kind


def write(path, name, vocab):
    """One file, streamed; it appears under its name only when it is whole."""
    ftype, kind = FILE_TYPES[name]
    tmp = path + ".part"
    w = gguf.GGUFWriter(tmp, "llama")
    w.add_name("llama 1B random")
    w.add_file_type(ftype)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_context_length(8192)
    w.add_embedding_length(WIDTH)
    w.add_block_count(LAYERS)
    w.add_feed_forward_length(INNER)
    w.add_head_count(HEADS)
    w.add_head_count_kv(KV_HEADS)
    w.add_rope_dimension_count(HEAD)
    w.add_rope_freq_base(500000.0)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(VOCAB)
    add_vocab(w, vocab)
    for tensor, shape in shapes():
        t = tensor_type(shape, kind)
        block, size = gguf.GGML_QUANT_SIZES[t]
        n = int(np.prod(shape))
        dtype = np.dtype(np.float32 if t == gguf.GGMLQuantizationType.F32 else np.float16)
        if t in (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16):
            w.add_tensor_info(tensor, list(shape), dtype, n * dtype.itemsize)
        else:
            w.add_tensor_info(tensor, [shape[0], shape[1] // block * size], np.dtype(np.uint8), n // block * size,
                              raw_dtype=t)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    rng = np.random.default_rng(SEED)
    for tensor, shape in shapes():
        t = tensor_type(shape, kind)
        if len(shape) == 1:
            data = np.ones(shape, np.float32)
        else:
            data = rng.standard_normal(shape, np.float32)
            data *= 0.02 if tensor == "token_embd.weight" else shape[1] ** -0.5
        if t == gguf.GGMLQuantizationType.F16:
            data = data.astype(np.float16)
        elif t != gguf.GGMLQuantizationType.F32:
            data = gguf.quants.quantize(data, t)
        w.write_tensor_data(data)
    w.close()
    os.replace(tmp, path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--vocab", required=True, help="a GGUF file with a BPE vocabulary of 32,000 tokens or more")
    p.add_argument("--quantize", default="", help="command that runs llama-quantize")
    p.add_argument("--types", default="q4_0,q4_k_m,q8_0")
    p.add_argument("folder")
    a = p.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    want = {t: os.path.join(a.folder, f"llama1b-{t}.gguf") for t in a.types.split(",")}
    want = {t: path for t, path in want.items() if not os.path.exists(path)}
    for t, path in want.items():
        if a.quantize:
            f16 = os.path.join(a.folder, "llama1b-f16.gguf")
            if not os.path.exists(f16):
                write(f16, "f16", a.vocab)
            if t == "f16":
                continue
            tmp = path + ".part"
            run = subprocess.run([*a.quantize.split(), f16, tmp, t.upper()], capture_output=True, text=True)
            if run.returncode:
                sys.exit(f"{a.quantize}: failed for {t}: " + (run.stderr.strip().splitlines() or ["no message"])[-1])
            os.replace(tmp, path)
        elif t in FILE_TYPES:
            write(path, t, a.vocab)
        else:
            sys.exit(f"{path}: writing {t} needs llama-quantize (--quantize)")
        print(path)


if __name__ == "__main__":
    main()
