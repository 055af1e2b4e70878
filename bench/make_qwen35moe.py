#!/usr/bin/env python3
"""Writes qwen35moe files with random weights: the proportions of Qwen3.5-35B-A3B with fewer layers.

    bench/make_qwen35moe.py --vocab SMOLLM2.gguf [--layers N] [--small] [--mtp random|right] FOLDER

FOLDER/qwen35moe-q4_k_m.gguf is for measuring speed and memory: 4 layers (three gated delta nets and one full
attention) with all the widths of the model, 256 experts of which each token takes 8, 32,000 tokens, and about the
mixture of types that Q4_K_M is; 2.1 GB. FOLDER/qwen35moe-small.gguf (--small) is for comparing logits over long
prompts: F32, narrow, 8 layers, four value heads to a key head; 280 MB.

--mtp adds a layer that guesses (blk.N.nextn) and a word to the name. With "random" its guesses are never right. With
"right" they always are: what blocks add is zero, so the next token is a function of the last one, and the layer passes on
what it reads. The work is the same.

Nothing is quantised: random bits go straight into the blocks, with scales as a quantiser would choose them, and the
values spread by 1/sqrt(inputs) around zero. Random weights route tokens evenly, so nearly all experts are in use
as soon as a prompt has a few hundred tokens. The weights come from a fixed seed. Tensors are written one by one;
the largest has 220 MB, and no more than one is in memory.
"""
import argparse
import os
from dataclasses import dataclass

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

from make_llama1b import VOCAB, add_vocab

SEED = 20260102
CHUNK = 1 << 16  # blocks made at a time
EXPERT_DOWN = (T.Q6_K, T.Q4_K)  # by layer, in turn


@dataclass
class Shape:
    file: str
    file_type: gguf.LlamaFileType
    quantised: bool
    layers: int
    width: int
    experts: int
    inner: int  # width of an expert, and of the one that all tokens share
    heads: int
    kv_heads: int
    head: int
    rope: int
    sections: list  # of the rotated pairs
    key_heads: int  # of a delta net
    value_heads: int
    state: int  # size of its heads
    used: int = 8
    conv: int = 4
    interval: int = 4  # every fourth layer has full attention
    mtp: str = ""


FULL = Shape("qwen35moe-q4_k_m.gguf", gguf.LlamaFileType.MOSTLY_Q4_K_M, True, layers=4, width=2048, experts=256, inner=512,
             heads=16, kv_heads=2, head=256, rope=64, sections=[11, 11, 10, 0],
             key_heads=16, value_heads=32, state=128)  # fmt: skip
SMALL = Shape("qwen35moe-small.gguf", gguf.LlamaFileType.ALL_F32, False, layers=8, width=256, experts=64, inner=128,
              heads=4, kv_heads=2, head=64, rope=32, sections=[6, 5, 5, 0],
              key_heads=2, value_heads=8, state=64)  # fmt: skip


# --- what is in a file --------------------------------------------------------------------------------------------


def ones(rng, shape):
    return 1 + normal(rng, shape, 0.125)


def flat(rng, shape):
    return np.ones(shape, np.float32)


def bias(rng, shape):
    return normal(rng, shape, 0.5)


def decay(rng, shape):
    """Rates of -1/16 to -1: states that remember from one token to a few dozens."""
    return -rng.integers(1, 17, shape).astype(np.float32) / 16


def tensors(s):
    """(name, shape in numpy's order, type or what makes the values of an F32 tensor), in the order of the file."""
    keys, values = 2 * s.key_heads * s.state, s.value_heads * s.state
    q, kv, w = s.heads * s.head, s.kv_heads * s.head, s.width
    yield "token_embd.weight", (VOCAB, w), T.Q4_K
    for i in range(s.layers + bool(s.mtp)):
        p = f"blk.{i}."
        yield p + "attn_norm.weight", (w,), ones
        if (i + 1) % s.interval and i < s.layers:
            yield p + "attn_qkv.weight", (keys + values, w), T.Q4_K
            yield p + "attn_gate.weight", (values, w), T.Q4_K
            yield p + "ssm_conv1d.weight", (keys + values, s.conv), bias
            yield p + "ssm_dt.bias", (s.value_heads,), bias
            yield p + "ssm_a", (s.value_heads,), decay
            yield p + "ssm_beta.weight", (s.value_heads, w), T.F32
            yield p + "ssm_alpha.weight", (s.value_heads, w), T.F32
            yield p + "ssm_norm.weight", (s.state,), ones
            yield p + "ssm_out.weight", (w, values), T.Q4_K
        else:
            yield p + "attn_q.weight", (2 * q, w), T.Q4_K  # with its gate
            yield p + "attn_k.weight", (kv, w), T.Q4_K
            yield p + "attn_v.weight", (kv, w), T.Q6_K
            yield p + "attn_q_norm.weight", (s.head,), ones
            yield p + "attn_k_norm.weight", (s.head,), ones
            yield p + "attn_output.weight", (w, q), T.Q4_K
        down = EXPERT_DOWN[i % 2]
        yield p + "post_attention_norm.weight", (w,), ones
        yield p + "ffn_gate_inp.weight", (s.experts, w), T.F32
        yield p + "ffn_gate_exps.weight", (s.experts, s.inner, w), T.Q4_K
        yield p + "ffn_up_exps.weight", (s.experts, s.inner, w), T.Q4_K
        yield p + "ffn_down_exps.weight", (s.experts, w, s.inner), down
        yield p + "ffn_gate_inp_shexp.weight", (w,), ones
        yield p + "ffn_gate_shexp.weight", (s.inner, w), T.Q4_K
        yield p + "ffn_up_shexp.weight", (s.inner, w), T.Q4_K
        yield p + "ffn_down_shexp.weight", (w, s.inner), down
        if i == s.layers:
            yield p + "nextn.eh_proj.weight", (w, 2 * w), T.Q8_0
            yield p + "nextn.enorm.weight", (w,), flat if s.mtp == "right" else ones
            yield p + "nextn.hnorm.weight", (w,), ones
    yield "output_norm.weight", (w,), ones
    yield "output.weight", (VOCAB, w), T.Q6_K


def write_keys(w, s):
    w.add_name("qwen35moe random")
    w.add_file_type(s.file_type)
    w.add_quantization_version(gguf.GGML_QUANT_VERSION)
    w.add_vocab_size(VOCAB)
    w.add_context_length(8192)
    w.add_embedding_length(s.width)
    w.add_block_count(s.layers + bool(s.mtp))
    if s.mtp:
        w.add_uint32("qwen35moe.nextn_predict_layers", 1)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_key_length(s.head)
    w.add_value_length(s.head)
    w.add_layer_norm_rms_eps(1e-6)
    w.add_rope_freq_base(1e7)
    w.add_rope_dimension_count(s.rope)
    w.add_rope_dimension_sections(s.sections)
    w.add_expert_count(s.experts)
    w.add_expert_used_count(s.used)
    w.add_expert_feed_forward_length(s.inner)
    w.add_expert_shared_feed_forward_length(s.inner)
    w.add_ssm_conv_kernel(s.conv)
    w.add_ssm_inner_size(s.value_heads * s.state)
    w.add_ssm_state_size(s.state)
    w.add_ssm_time_step_rank(s.value_heads)
    w.add_ssm_group_count(s.key_heads)
    w.add_uint32("qwen35moe.full_attention_interval", s.interval)


# --- weights ------------------------------------------------------------------------------------------------------


def normal(rng, shape, spread):
    return rng.standard_normal(shape, np.float32) * np.float32(spread)


def half(value, n):
    """n rows of the two bytes of a half."""
    return np.full((n, 1), value, np.float16).view(np.uint8)


def q4_k(b, spread):
    """Halves d and dmin, eight scales and eight minima of 6 bits, 256 nibbles. Each minimum is its scale and dmin
    7.5 d, so values are d * scale * (nibble - 7.5). The scales are random in 32 to 63."""
    d = spread / (48.4 * (255 / 12) ** 0.5)  # root mean square of the scales, spread of the nibbles
    b[:, 0:2] = half(d, len(b))
    b[:, 2:4] = half(7.5 * d, len(b))
    b[:, 4:8] |= 0xA0  # scales 0 to 3 and, above them, two bits of scales 4 to 7: the highest bit of both
    b[:, 8:12] = b[:, 4:8]  # minima 0 to 3 and two bits of minima 4 to 7
    b[:, 12:16] = (b[:, 12:16] & 15) * 17  # the other four bits of scales and minima 4 to 7


def q6_k(b, spread):
    """128 + 64 bytes with 256 values of 6 bits, from -32 to 31; sixteen scales of 8 bits, a half. The scales are
    random in 64 to 127, of either sign: the values' mean of -1/2 must not add up."""
    d = spread / (97.3 * ((64**2 - 1) / 12) ** 0.5)
    scales = b[:, 192:208].view(np.int8)
    scales[:] = np.where(scales < 0, -64 - (scales & 63), 64 + (scales & 63))
    b[:, 208:210] = half(d, len(b))


def q8_0(b, spread):
    """A half, 32 signed bytes."""
    b[:, 0:2] = half(spread / (256**2 / 12) ** 0.5, len(b))


BLOCKS = {T.Q4_K: q4_k, T.Q6_K: q6_k, T.Q8_0: q8_0}
ADDS = ("attn_output.weight", "ssm_out.weight", "ffn_down_exps.weight", "ffn_down_shexp.weight")  # to the stream


def first_half(width):
    """The matrix of Q8_0 that passes on the first of two vectors."""
    rows = np.zeros((width, 2 * width // 32, 34), np.uint8)
    rows[:, :, 0:2] = half(1 / 127, 1)
    at = np.arange(width)
    rows[at, at // 32, 2 + at % 32] = 127
    return rows.reshape(width, -1)


def random_tensor(rng, shape, kind, spread):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rows = np.empty((*shape[:-1], shape[-1] // elements * size), np.uint8)
    blocks = rows.reshape(-1, size)
    for at in range(0, len(blocks), CHUNK):
        part = blocks[at : at + CHUNK]
        part[:] = np.frombuffer(rng.bytes(part.size), np.uint8).reshape(part.shape)
        BLOCKS[kind](part, spread)
    return rows


def write(path, s, vocab):
    """One file, streamed; it appears under its name only when it is whole."""
    tmp = path + ".part"
    w = gguf.GGUFWriter(tmp, "qwen35moe")
    write_keys(w, s)
    add_vocab(w, vocab)
    for name, shape, kind in tensors(s):
        elements, size = gguf.GGML_QUANT_SIZES[kind] if s.quantised and kind in BLOCKS else (1, 4)
        if elements == 1:
            w.add_tensor_info(name, list(shape), np.dtype(np.float32), int(np.prod(shape)) * size)
        else:
            row = shape[-1] // elements * size
            w.add_tensor_info(name, [*shape[:-1], row], np.dtype(np.uint8), int(np.prod(shape[:-1])) * row, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_ti_data_to_file()
    rng = np.random.default_rng(SEED)
    for name, shape, kind in tensors(s):
        spread = 1.0 if name == "token_embd.weight" else shape[-1] ** -0.5
        right = s.mtp == "right"
        spread = 0.0 if right and name.endswith(ADDS) else spread
        if right and s.quantised and name.endswith("eh_proj.weight"):
            data = first_half(shape[0])
        elif callable(kind):
            data = kind(rng, shape)
        elif s.quantised and kind in BLOCKS:
            data = random_tensor(rng, shape, kind, spread)
        else:
            data = normal(rng, shape, spread)
        w.write_tensor_data(data)
    w.close()
    os.replace(tmp, path)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--vocab", required=True, help="a GGUF file with a BPE vocabulary of 32,000 tokens or more")
    p.add_argument("--layers", type=int, help="4, or 8 of the small one; every fourth has full attention")
    p.add_argument("--small", action="store_true", help="the narrow file in F32")
    p.add_argument("--mtp", choices=("random", "right"), default="", help="a layer that guesses")
    p.add_argument("folder")
    a = p.parse_args()
    shape = SMALL if a.small else FULL
    shape.layers = a.layers or shape.layers
    os.makedirs(a.folder, exist_ok=True)
    shape.mtp = a.mtp
    path = os.path.join(a.folder, shape.file.replace("qwen35moe", f"qwen35moe-{a.mtp}") if a.mtp else shape.file)
    write(path, shape, a.vocab)
    print(path)


if __name__ == "__main__":
    main()
