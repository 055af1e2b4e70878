#!/usr/bin/env python3
"""Tiny GGUF models with random weights, one for each thing a family or a tensor type does differently.

    python tests/tools/tiny_models.py [folder]        (default .models/tiny)

The files are the same wherever they are made: random numbers come from NumPy's frozen RandomState and become
floats by exact arithmetic only. tests/golden/logits holds what llama.cpp computes with them, and the digest of
each file's tensors; so a change here means new golden logits (tests/tools/golden_logits.py).

Weights have a spread of 1/sqrt(inputs) and norms are near 1, which keeps activations and logits near 1 and lets
an error anywhere show in the logits. The vocabularies are small but work: bytes, and what a BPE training on a few
lines gives."""
import hashlib
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".models" / "tiny"
VOCAB = 320

# --- vocabularies -----------------------------------------------------------------------------------------------

TEXT = """the cat sat on the mat and the dog ran to the park where the other cats were playing in the rain
there was once a small model that could not say much but it said the same thing every time it was asked
once upon a time a model learned to count one two three four five six seven eight nine ten"""
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train(space, n):
    """The first n merges of byte-pair encoding on TEXT, words starting with `space`."""
    words = [list(space + w) for w in TEXT.split()]
    merges = []
    while len(merges) < n:
        pairs = Counter(p for w in words for p in zip(w, w[1:]))
        pair = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(pair)
        for w in words:
            i = 0
            while i + 1 < len(w):
                if (w[i], w[i + 1]) == pair:
                    w[i : i + 2] = [w[i] + w[i + 1]]
                i += 1
    return merges


def byte_letters():
    """The letter that stands for each byte in a byte-level vocabulary (GPT-2's table)."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b if b in shown else 256 + sum(c not in shown for c in range(b))) for b in range(256)]


def bpe_vocab(w, pre):
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    merges = train("Ġ", VOCAB - 256 - len(special))
    tokens = byte_letters() + [a + b for a, b in merges] + special
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre(pre)
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.NORMAL] * (VOCAB - 3) + [gguf.TokenType.CONTROL] * 3)
    w.add_token_merges([f"{a} {b}" for a, b in merges])
    w.add_bos_token_id(VOCAB - 3)
    w.add_eos_token_id(VOCAB - 1)
    w.add_chat_template(CHATML)


def spm_vocab(w):
    letters = sorted(set(TEXT) - {"\n", " "}) + ["▁"]
    merges = train("▁", VOCAB - 3 - 256 - len(letters))
    pieces = [a + b for a, b in merges] + letters
    w.add_tokenizer_model("llama")
    w.add_token_list(["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + pieces)
    w.add_token_scores([0.0] * 259 + [-float(i) for i in range(len(pieces))])
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL]
    w.add_token_types(kinds + [gguf.TokenType.BYTE] * 256 + [gguf.TokenType.NORMAL] * len(pieces))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)
    w.add_unk_token_id(0)
    w.add_add_bos_token(True)


# --- weights ----------------------------------------------------------------------------------------------------


def noise(rng, shape):
    """About normal, spread 1: the sum of four integers. Exact up to the last product, on every machine."""
    n = rng.randint(0, 1 << 16, size=(4, *shape)).sum(0) - 2 * 65535
    return n.astype(np.float32) * np.float32(3**0.5 / (2 * 32768))


# Types whose blocks gguf-py can read but not make: bytes of a block, and the halves in it that scale its values
# (offset, factor). A factor for the minimum centres the values around zero.
BLOCKS = {
    T.Q2_K: (84, [(80, 1), (82, 1.5)]),
    T.Q3_K: (110, [(108, 1)]),
    T.Q4_K: (144, [(0, 1), (2, 7.5)]),
    T.Q5_K: (176, [(0, 1), (2, 15.5)]),
    T.Q6_K: (210, [(208, 1)]),
    T.IQ4_NL: (18, [(0, 1)]),
    T.IQ4_XS: (136, [(0, 1)]),
    T.IQ3_S: (110, [(0, 1)]),
    T.IQ3_XXS: (98, [(0, 1)]),
    T.IQ2_S: (82, [(0, 1)]),
    T.IQ2_XS: (74, [(0, 1)]),
    T.IQ2_XXS: (66, [(0, 1)]),
    T.IQ1_S: (50, [(0, 1)]),
}


def random_blocks(rng, shape, spread, kind):
    """Blocks of random bytes whose scales give the values a spread."""
    size, halves = BLOCKS[kind]
    elements = gguf.GGML_QUANT_SIZES[kind][0]
    blocks = rng.randint(0, 256, size=(shape[0] * shape[1] // elements, size)).astype(np.uint8)

    def scale(by):
        for at, factor in halves:
            blocks[:, at : at + 2] = (by * np.float32(factor)).astype(np.float16).reshape(-1, 1).view(np.uint8)

    rows = (shape[0], shape[1] // elements * size)
    scale(np.full(len(blocks), 1 / 64, np.float32))
    unit = gguf.dequantize(blocks.reshape(rows), kind).astype(np.float64).std() * 64
    vary = rng.randint(24, 41, size=len(blocks)) / 32  # 0.75 to 1.25
    # Two digits of the quotient: sums may round differently from machine to machine, this does not.
    scale((float(f"{spread / unit:.2g}") * vary).astype(np.float32))
    return blocks.reshape(rows)


LAYER_NORM = ("gpt2", "stablelm")  # LayerNorms with biases
GATED = ("qwen35", "qwen35moe", "qwen3next")  # attention with gates, and delta nets


@dataclass
class Model:
    name: str
    arch: str
    seed: int
    dim: int = 64
    ff: int | list = 96
    layers: int = 2
    heads: int = 4
    kv_heads: int | list = 2  # a list: by layer; 0: no attention
    head: int = 16
    tied: bool = False
    pre: str = ""  # pre-tokenizer of a BPE vocabulary; none: SentencePiece
    rope_base: float = 10000.0
    rope_dims: int = 0
    type: T = T.F32
    mixed: T | None = None  # attn_v and ffn_down, as in the _M mixtures
    keys: dict = field(default_factory=dict)  # without the architecture's prefix
    factors: dict = field(default_factory=dict)  # rope factor tensors
    groups: int = 0  # of recurrent layers: key heads of a delta net, groups of Mamba 2 …
    ssm_heads: int = 0  # … heads …
    ssm_head: int = 16  # … and the sizes of a head and of its state, here the same
    mixed_in: bool = False  # the old tensor of qwen3next: Q, K, V and Z by key head
    nextn: int = 0  # layers behind the trunk that guess further tokens …
    nextn_own: bool = False  # … with embeddings, a norm and a head of their own
    norms: str = ""  # "heads": of Q and K, as qwen3 and gemma3 have them; "each head": with weights of its own

    def write(self, path):
        # Every tensor has a stream of its own, so that adding one leaves the others as they are.
        w = gguf.GGUFWriter(path, self.arch)
        self.write_keys(w)
        for name, values, kind in self.tensors():
            w.add_tensor(name, values, raw_dtype=kind)
        w.write_header_to_file()
        w.write_kv_data_to_file()
        w.write_tensors_to_file()
        w.close()

    def write_keys(self, w):
        w.add_name(f"tiny {self.seed}")  # not the family: llama.cpp looks for "phi3" in names
        w.add_file_type(int(self.type))
        w.add_vocab_size(VOCAB)
        w.add_context_length(self.keys.get("context_length", 512))
        w.add_embedding_length(self.dim)
        w.add_block_count(self.layers + self.nextn)
        w.add_feed_forward_length(self.ff)
        w.add_head_count(self.heads)
        w.add_head_count_kv(self.kv_heads)
        w.add_layer_norm_eps(1e-5) if self.arch in LAYER_NORM else w.add_layer_norm_rms_eps(1e-5)
        w.add_rope_freq_base(self.rope_base)
        if self.head * self.heads != self.dim and not isinstance(self, Latent):
            w.add_key_length(self.head)
            w.add_value_length(self.head)
        if self.rope_dims or self.arch in ("llama", "phi3", "granite", "granitemoe", "granitehybrid"):
            w.add_rope_dimension_count(self.rope_dims or self.head)
        for key, value in self.keys.items():
            if key == "context_length":
                continue
            add = {str: w.add_string, bool: w.add_bool, int: w.add_uint32, float: w.add_float32, list: w.add_array}[type(value)]
            add(f"{self.arch}.{key}", value)
        if self.groups:
            w.add_ssm_conv_kernel(4)
            w.add_ssm_inner_size(self.inner)
            w.add_ssm_state_size(self.ssm_head)
            w.add_ssm_time_step_rank(self.ssm_heads)
            if self.arch != "jamba":
                w.add_ssm_group_count(self.groups)
        if self.nextn:
            w.add_uint32(f"{self.arch}.nextn_predict_layers", self.nextn)
        bpe_vocab(w, self.pre) if self.pre else spm_vocab(w)

    def rng(self, name):
        digest = hashlib.sha256(f"{self.seed} {name}".encode()).digest()
        return np.random.RandomState(int.from_bytes(digest[:4], "little"))

    def matrix(self, name, rows, columns, spread=None):
        spread = spread or columns**-0.5
        kind = self.mixed if self.mixed and ("attn_v" in name or "ffn_down" in name) else self.type
        rng = self.rng(name)
        if kind in BLOCKS:
            return name, random_blocks(rng, (rows, columns), spread, kind), kind
        values = noise(rng, (rows, columns)) * np.float32(spread)
        return name, gguf.quantize(values, kind), kind

    def norm(self, name, n):
        return name, 1 + noise(self.rng(name), (n,)) * np.float32(0.125), T.F32

    def bias(self, name, n):
        return name, noise(self.rng(name), (n,)) * np.float32(0.5), T.F32

    def tensors(self):
        # gemma3 multiplies the embedding by sqrt(dim); a tied head wants the same small spread.
        spread = self.dim**-0.5 if self.tied else 1.0
        yield self.matrix("token_embd.weight", VOCAB, self.dim, spread)
        if self.arch == "gpt2":
            yield self.matrix("position_embd.weight", 512, self.dim, 1.0)
        if self.arch in LAYER_NORM:
            yield self.bias("output_norm.bias", self.dim)
        yield self.norm("token_embd_norm.weight" if self.arch.startswith("lfm2") else "output_norm.weight", self.dim)
        if not self.tied:
            yield self.matrix("output.weight", VOCAB, self.dim)
        for name, values in self.factors.items():
            yield name, np.array(values, np.float32), T.F32
        for i in range(self.layers):
            yield from self.layer(i, f"blk.{i}.")
        for i in range(self.layers, self.layers + self.nextn):
            yield from self.layer(i, f"blk.{i}.")
            yield self.matrix(f"blk.{i}.nextn.eh_proj.weight", self.dim, 2 * self.dim)
            yield self.norm(f"blk.{i}.nextn.enorm.weight", self.dim)
            yield self.norm(f"blk.{i}.nextn.hnorm.weight", self.dim)
            if self.nextn_own:
                yield self.matrix(f"blk.{i}.nextn.embed_tokens.weight", VOCAB, self.dim, 1.0)
                yield self.norm(f"blk.{i}.nextn.shared_head_norm.weight", self.dim)
                yield self.matrix(f"blk.{i}.nextn.shared_head_head.weight", VOCAB, self.dim)

    @property
    def inner(self):
        return self.ssm_heads * self.ssm_head

    def layer(self, i, blk):
        kv_heads, ff = self.of_layer(self.kv_heads, blk), self.of_layer(self.ff, blk)
        if self.arch in GATED:
            recurrent = i < self.layers and (i + 1) % self.keys.get("full_attention_interval", 4) != 0
        else:
            recurrent = self.arch in ("mamba2", "falcon-h1") or (kv_heads == 0 and not (self.arch.startswith("nemotron_h") and ff))
        mixers = {"jamba": self.mamba1, "lfm2": self.shortconv, "lfm2moe": self.shortconv, **dict.fromkeys(GATED, self.delta_net)}
        mixer = mixers.get(self.arch, self.mamba)
        attention = self.arch != "mamba2" and kv_heads > 0 and (not recurrent or self.arch == "falcon-h1")
        if attention:
            yield from self.attention(blk)
        else:
            yield self.norm(blk + "attn_norm.weight", self.dim)
        if recurrent:
            yield from mixer(blk)
        if self.arch == "qwen35":
            yield self.norm(blk + "post_attention_norm.weight", self.dim)
        if ff and self.arch != "mamba2":
            yield from self.mlp(blk)

    def of_layer(self, value, blk):
        return value[int(blk.split(".")[1])] if isinstance(value, list) else value

    def decay(self, name, shape):
        """Rates of -1/16 to -1: states that remember from one token to a few dozens."""
        return name, -(1 + self.rng(name).randint(0, 16, size=shape)).astype(np.float32) / 16, T.F32

    def delta_net(self, blk):
        keys = 2 * self.groups * self.ssm_head
        if self.mixed_in:
            yield self.matrix(blk + "ssm_in.weight", keys + 2 * self.inner, self.dim)
        else:
            yield self.matrix(blk + "attn_qkv.weight", keys + self.inner, self.dim)
            yield self.matrix(blk + "attn_gate.weight", self.inner, self.dim)
        yield self.f32(blk + "ssm_conv1d.weight", (keys + self.inner, 4), 0.5)
        yield self.bias(blk + "ssm_dt.bias", self.ssm_heads)
        yield self.decay(blk + "ssm_a", (self.ssm_heads,))
        if self.arch == "qwen3next":
            yield self.f32(blk + "ssm_ba.weight", (2 * self.ssm_heads, self.dim), self.dim**-0.5)
        else:
            yield self.f32(blk + "ssm_beta.weight", (self.ssm_heads, self.dim), self.dim**-0.5)
            yield self.f32(blk + "ssm_alpha.weight", (self.ssm_heads, self.dim), self.dim**-0.5)
        yield self.norm(blk + "ssm_norm.weight", self.ssm_head)
        yield self.matrix(blk + "ssm_out.weight", self.dim, self.inner)

    def mamba(self, blk):
        filtered = self.inner + 2 * self.groups * self.ssm_head
        yield self.matrix(blk + "ssm_in.weight", self.inner + filtered + self.ssm_heads, self.dim)
        yield self.f32(blk + "ssm_conv1d.weight", (filtered, 4), 0.5)
        yield self.bias(blk + "ssm_conv1d.bias", filtered)
        yield self.bias(blk + "ssm_dt.bias", self.ssm_heads)
        yield self.decay(blk + "ssm_a", (self.ssm_heads, 1))
        yield self.f32(blk + "ssm_d", (self.ssm_heads, 1), 1.0)
        name, values, kind = self.norm(blk + "ssm_norm.weight", self.inner)
        yield name, values.reshape(self.groups, -1), kind
        yield self.matrix(blk + "ssm_out.weight", self.dim, self.inner)

    def mamba1(self, blk):
        """The number of heads is the width that steps come out of; channels are twice the stream."""
        inner, state, rank = 2 * self.dim, self.ssm_head, self.ssm_heads
        yield self.matrix(blk + "ssm_in.weight", 2 * inner, self.dim)
        yield self.f32(blk + "ssm_conv1d.weight", (inner, 4), 0.5)
        yield self.bias(blk + "ssm_conv1d.bias", inner)
        yield self.matrix(blk + "ssm_x.weight", rank + 2 * state, inner)
        yield self.norm(blk + "ssm_dt_norm.weight", rank)
        yield self.matrix(blk + "ssm_dt.weight", inner, rank)
        yield self.bias(blk + "ssm_dt.bias", inner)
        yield self.norm(blk + "ssm_b_norm.weight", state)
        yield self.norm(blk + "ssm_c_norm.weight", state)
        yield self.decay(blk + "ssm_a", (inner, state))
        yield self.f32(blk + "ssm_d", (inner,), 1.0)
        yield self.matrix(blk + "ssm_out.weight", self.dim, inner)

    def shortconv(self, blk):
        yield self.matrix(blk + "shortconv.in_proj.weight", 3 * self.dim, self.dim)
        yield self.f32(blk + "shortconv.conv.weight", (self.dim, self.keys["shortconv.l_cache"]), 0.5)
        yield self.matrix(blk + "shortconv.out_proj.weight", self.dim, self.dim)

    def f32(self, name, shape, spread):
        return name, noise(self.rng(name), shape) * np.float32(spread), T.F32

    def attention(self, blk):
        q, kv = self.heads * self.head, self.of_layer(self.kv_heads, blk) * self.head
        yield self.norm(blk + "attn_norm.weight", self.dim)
        if self.arch in LAYER_NORM:
            yield self.bias(blk + "attn_norm.bias", self.dim)
        if self.arch == "gpt2":
            yield self.bias(blk + "attn_qkv.bias", q + 2 * kv)
            yield self.bias(blk + "attn_output.bias", self.dim)
        if self.arch in ("phi3", "gpt2"):
            yield self.matrix(blk + "attn_qkv.weight", q + 2 * kv, self.dim)
        else:
            gate = 2 if self.arch in GATED else 1
            for part, n in (("q", gate * q), ("k", kv), ("v", kv)):
                yield self.matrix(f"{blk}attn_{part}.weight", n, self.dim)
                if self.arch == "qwen2":
                    yield self.bias(f"{blk}attn_{part}.bias", n)
        yield self.matrix(blk + "attn_output.weight", self.dim, q)
        if self.arch in ("qwen3", "gemma3", "qwen35", "lfm2") or self.norms == "heads":
            yield self.norm(blk + "attn_q_norm.weight", self.head)
            yield self.norm(blk + "attn_k_norm.weight", self.head)
        if self.norms == "each head":
            for part, heads in (("q", self.heads), ("k", self.kv_heads)):
                name, values, kind = self.norm(f"{blk}attn_{part}_norm.weight", heads * self.head)
                yield name, values.reshape(heads, self.head), kind
        if self.arch == "gemma3":
            yield self.norm(blk + "post_attention_norm.weight", self.dim)

    def mlp(self, blk):
        ff = self.of_layer(self.ff, blk)
        if self.arch not in ("qwen35", "nemotron_h", "stablelm"):
            yield self.norm(blk + ("ffn_norm" if self.arch == "falcon-h1" else "ffn_norm.weight"), self.dim)
        if self.arch == "phi3":
            yield self.matrix(blk + "ffn_up.weight", 2 * ff, self.dim)
        else:
            if self.arch not in ("nemotron_h", "gpt2"):
                yield self.matrix(blk + "ffn_gate.weight", ff, self.dim)
            yield self.matrix(blk + "ffn_up.weight", ff, self.dim)
        yield self.matrix(blk + "ffn_down.weight", self.dim, ff)
        if self.arch == "gpt2":
            yield self.bias(blk + "ffn_norm.bias", self.dim)
            yield self.bias(blk + "ffn_up.bias", ff)
            yield self.bias(blk + "ffn_down.bias", self.dim)
        if self.arch == "gemma3":
            yield self.norm(blk + "post_ffw_norm.weight", self.dim)


@dataclass
class Reranker(Model):
    """With a head of a few labels, as converted from Qwen3-Reranker."""

    labels: int = 2
    template: str = (
        "<|im_start|>system\nyes or no?<|im_end|>\n<|im_start|>user\n<Query>: {query}\n<Document>: {document}<|im_end|>\n"
    )

    def write_keys(self, w):
        super().write_keys(w)
        w.add_pooling_type(gguf.PoolingType.RANK)
        w.add_classifier_output_labels([f"label {i}" for i in range(self.labels)])
        if self.template:
            w.add_chat_template([{"name": "rerank", "template": self.template}])

    def tensors(self):
        yield from super().tensors()
        yield self.matrix("cls.output.weight", self.labels, self.dim)


@dataclass
class Mixture(Model):
    """With experts in all layers but the first `dense` ones."""

    experts: int = 8
    used: int = 3
    ff_exp: int = 32
    shared: int = 0  # width of the expert that all rows share
    dense: int = 0
    selection_bias: bool = False
    biases: bool = False
    fused: bool = False  # gate and up in one tensor
    q_norm: str = ""  # of Q and K: "heads", "rows"
    ffn_norm: str = "ffn_norm"
    latent_ff: int = 0  # width of the rows that experts work on
    step: int = 1  # of so many layers the last has experts

    def write_keys(self, w):
        w.add_expert_count(self.experts)
        w.add_expert_used_count(self.used)
        w.add_expert_feed_forward_length(self.ff_exp)
        if self.shared:
            w.add_expert_shared_feed_forward_length(self.shared)
        if self.latent_ff:
            w.add_uint32(f"{self.arch}.moe_latent_size", self.latent_ff)
        if self.dense:
            w.add_leading_dense_block_count(self.dense)
        super().write_keys(w)

    def stack(self, name, rows, columns):
        name, values, kind = self.matrix(name, self.experts * rows, columns)
        return name, values.reshape(self.experts, rows, -1), kind

    def small(self, name, rows, columns):
        """In F32 whatever the other matrices are."""
        return name, noise(self.rng(name), (rows, columns)) * np.float32(columns**-0.5), T.F32

    def attention(self, blk):
        if self.arch == "bailingmoe2":
            yield self.norm(blk + "attn_norm.weight", self.dim)
            yield self.matrix(blk + "attn_qkv.weight", (self.heads + 2 * self.kv_heads) * self.head, self.dim)
            yield self.matrix(blk + "attn_output.weight", self.dim, self.heads * self.head)
        else:
            yield from super().attention(blk)
        sizes = {"heads": (self.head, self.head), "rows": (self.heads * self.head, self.kv_heads * self.head)}
        for part, n in zip("qk", sizes.get(self.q_norm, ())):
            yield self.norm(f"{blk}attn_{part}_norm.weight", n)
        if self.arch == "qwen2moe" or self.biases:
            for part, n in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads)):
                yield self.bias(f"{blk}attn_{part}.bias", n * self.head)
        if self.biases:
            yield self.bias(blk + "attn_output.bias", self.dim)
        if self.arch == "gpt-oss":
            yield self.bias(blk + "attn_sinks.weight", self.heads)

    def mlp(self, blk):
        i, width = int(blk.split(".")[1]), self.latent_ff or self.dim
        gated = self.arch != "nemotron_h_moe"
        if i < self.dense or (i + 1) % self.step:
            for name, values, kind in super().mlp(blk):
                yield name.replace("ffn_norm", self.ffn_norm), values, kind
            return
        if gated:
            yield self.norm(f"{blk}{self.ffn_norm}.weight", self.dim)
        if self.latent_ff:
            yield self.matrix(blk + "ffn_latent_down.weight", width, self.dim)
            yield self.matrix(blk + "ffn_latent_up.weight", self.dim, width)
        yield self.small(blk + "ffn_gate_inp.weight", self.experts, self.dim)
        if self.selection_bias:
            yield self.bias(blk + "exp_probs_b.bias", self.experts)
        if self.fused:
            yield self.stack(blk + "ffn_gate_up_exps.weight", 2 * self.ff_exp, self.dim)
        else:
            if gated:
                yield self.stack(blk + "ffn_gate_exps.weight", self.ff_exp, width)
            yield self.stack(blk + "ffn_up_exps.weight", self.ff_exp, width)
        yield self.stack(blk + "ffn_down_exps.weight", width, self.ff_exp)
        if self.biases:
            yield self.bias(blk + "ffn_gate_inp.bias", self.experts)
            for part, n in (("gate", self.ff_exp), ("up", self.ff_exp), ("down", self.dim)):
                name, values, kind = self.bias(f"{blk}ffn_{part}_exps.bias", self.experts * n)
                yield name, values.reshape(self.experts, n), kind
        if self.shared:
            if self.arch == "qwen2moe" or self.arch in GATED:
                yield self.norm(blk + "ffn_gate_inp_shexp.weight", self.dim)
            for part, rows, columns in (("gate", self.shared, self.dim), ("up", self.shared, self.dim),
                                        ("down", self.dim, self.shared)):  # fmt: skip
                if gated or part != "gate":
                    yield self.matrix(f"{blk}ffn_{part}_shexp.weight", rows, columns)


@dataclass
class Latent(Mixture):
    """DeepSeek's attention: heads of `head` + 16 rotated dimensions for Q and K, of `head` for V."""

    latent: int = 32
    q_rank: int = 48  # 0: one matrix
    old: bool = False  # K and V come out of one matrix

    def write_keys(self, w):
        if self.old:
            w.add_key_length(self.head + 16)
            w.add_value_length(self.head)
        else:
            self.kv_heads = 1
            w.add_key_length(self.latent + 16)
            w.add_value_length(self.latent)
            w.add_key_length_mla(self.head + 16)
            w.add_value_length_mla(self.head)
        w.add_kv_lora_rank(self.latent)
        if self.q_rank:
            w.add_q_lora_rank(self.q_rank)
        super().write_keys(w)

    def attention(self, blk):
        q, v = self.heads * (self.head + 16), self.heads * self.head
        yield self.norm(blk + "attn_norm.weight", self.dim)
        if self.q_rank:
            yield self.matrix(blk + "attn_q_a.weight", self.q_rank, self.dim)
            yield self.norm(blk + "attn_q_a_norm.weight", self.q_rank)
            yield self.matrix(blk + "attn_q_b.weight", q, self.q_rank)
        else:
            yield self.matrix(blk + "attn_q.weight", q, self.dim)
        yield self.matrix(blk + "attn_kv_a_mqa.weight", self.latent + 16, self.dim)
        yield self.norm(blk + "attn_kv_a_norm.weight", self.latent)
        if self.old:
            yield self.matrix(blk + "attn_kv_b.weight", 2 * v, self.latent)
        else:
            name, values, kind = self.matrix(blk + "attn_k_b.weight", self.heads * self.latent, self.head)
            yield name, values.reshape(self.heads, self.latent, -1), kind
            name, values, kind = self.matrix(blk + "attn_v_b.weight", v, self.latent)
            yield name, values.reshape(self.heads, self.head, -1), kind
        yield self.matrix(blk + "attn_output.weight", self.dim, v)


# --- the models -------------------------------------------------------------------------------------------------

LLAMA3 = {"rope_freqs.weight": [1, 1.5, 2, 4, 8, 8, 8, 8]}
LONGROPE = {
    "rope_factors_long.weight": [1, 1.25, 1.5, 2, 3, 5, 8, 12],
    "rope_factors_short.weight": [1, 1, 1, 1.125, 1.25, 1.25, 1.5, 1.5],
}


def scaling(kind, **more):
    return {"rope.scaling.type": kind, **{f"rope.scaling.{k}": v for k, v in more.items()}}


def gemma3(name, seed, **more):
    """Windows of 32 in five layers of six, as the family has it when the file names no pattern."""
    keys = {"attention.sliding_window": 32, **more.pop("keys", {})}
    shape = dict(layers=6, heads=2, kv_heads=1, head=32, ff=64, tied=True, rope_base=1e6)
    return Model(name, "gemma3", seed, **{**shape, **more}, keys=keys)


def qwen35(name, seed, **more):
    keys = {"rope.dimension_sections": [3, 3, 2, 0], **more.pop("keys", {})}
    shape = dict(layers=4, ff=64, head=32, rope_dims=16, rope_base=1e6, pre="qwen2", groups=2, ssm_heads=6)
    return Model(name, "qwen35", seed, **{**shape, **more}, keys=keys)


def hybrid_moe(name, arch, seed, **more):
    keys = {"rope.dimension_sections": [3, 3, 2, 0]} if arch == "qwen35moe" else {}
    shape = dict(layers=2, head=32, rope_dims=16, rope_base=1e6, pre="qwen2", groups=2, ssm_heads=6, shared=64)
    keys["full_attention_interval"] = 2
    return Mixture(name, arch, seed, q_norm="heads", ffn_norm="post_attention_norm", **shape, **more, keys=keys)


def lfm2(name, seed, **more):
    keys = {"shortconv.l_cache": 3, **more.pop("keys", {})}
    return Model(name, "lfm2", seed, layers=4, kv_heads=[0, 2, 0, 2], tied=True, pre="gpt-2", rope_base=1e6, **more, keys=keys)


MAMBA = dict(groups=2, ssm_heads=8)  # 128 channels: granitehybrid wants twice the width
GRANITE = {"embedding_scale": 3.0, "residual_scale": 0.5, "attention.scale": 0.125, "logit_scale": 2.0}
SIGMOID = {"expert_gating_func": 2, "expert_weights_scale": 1.5}
GROUPS = {"expert_group_count": 4, "expert_group_used_count": 2}

FAMILIES = [
    Model("llama", "llama", 1),
    Model("llama-tied", "llama", 2, tied=True, kv_heads=4, pre="llama-bpe", rope_base=500000.0),
    Model("llama-llama3", "llama", 3, pre="llama-bpe", rope_base=500000.0, factors=LLAMA3),
    Model("llama-linear", "llama", 4, keys=scaling("linear", factor=4.0)),
    Model("llama-yarn", "llama", 5, keys=scaling("yarn", factor=4.0, original_context_length=64)),
    Model("llama-head32", "llama", 6, head=32, kv_heads=1),
    Model("qwen2", "qwen2", 7, pre="qwen2", tied=True, rope_base=1e6),
    Model("qwen2-yarn", "qwen2", 8, pre="qwen2", rope_base=1e6, keys=scaling("yarn", factor=2.0, original_context_length=128)),
    Model("qwen3", "qwen3", 9, pre="qwen2", tied=True, head=32, rope_base=1e6),
    gemma3("gemma3", 10),
    gemma3("gemma3-linear", 11, keys=scaling("linear", factor=8.0)),
    gemma3("gemma3-pattern", 12, layers=3, keys={"attention.sliding_window_pattern": 2, "rope.freq_base_swa": 5000.0}),
    Model("phi3", "phi3", 13, kv_heads=4, keys={"attention.sliding_window": 32}),
    # The context that the tests ask for (256) is over the original one: the long factors count; then the short.
    Model("phi3-long", "phi3", 14, factors=LONGROPE,
          keys=scaling("longrope", original_context_length=64, attn_factor=1.1875)),
    Model("phi3-short", "phi3", 15, factors=LONGROPE,
          keys=scaling("longrope", original_context_length=256, attn_factor=1.1875)),
    Model("phi3-partial", "phi3", 16, rope_dims=12,
          factors={k: v[:6] for k, v in LONGROPE.items()},
          keys=scaling("longrope", original_context_length=64, attn_factor=1.1875)),
    Model("smollm3", "smollm3", 17, layers=4, ff=64, tied=True, pre="smollm", rope_base=5000000.0),
    # Six value heads to two key heads: tiled in the file, grouped in the operation.
    qwen35("qwen35", 18),
    qwen35("qwen35-mtp", 19, layers=3, nextn=1, keys={"full_attention_interval": 2}),
    lfm2("lfm2", 20),
    lfm2("lfm2-window", 21, keys={"attention.sliding_window": 32}),
    Model("mamba2", "mamba2", 22, pre="gpt-2", **MAMBA),
    Model("granitehybrid", "granitehybrid", 23, layers=3, kv_heads=[0, 2, 0], pre="gpt-2", **MAMBA,
          keys={"embedding_scale": 2.0, "residual_scale": 0.75, "attention.scale": 0.125, "logit_scale": 4.0}),
    # Six value heads to two key heads again; here the file groups them too.
    hybrid_moe("qwen35moe", "qwen35moe", 26, fused=True),
    hybrid_moe("qwen3next", "qwen3next", 27),
    hybrid_moe("qwen3next-old", "qwen3next", 28, mixed_in=True),
    Mixture("lfm2moe", "lfm2moe", 29, layers=3, kv_heads=[0, 2, 0], dense=1, selection_bias=True, q_norm="heads", pre="gpt-2",
            keys={"shortconv.l_cache": 3, "expert_gating_func": 2}),
    Mixture("granitehybrid-moe", "granitehybrid", 50, kv_heads=[0, 2], ff=32, shared=64, pre="gpt-2", **MAMBA,
            keys={"logit_scale": 4.0, "rope.scaling.finetuned": False}),
    Model("falcon-h1", "falcon-h1", 24, pre="gpt-2", **MAMBA),
    Model("nemotron_h", "nemotron_h", 25, layers=4, kv_heads=[0, 2, 0, 0], ff=[0, 0, 96, 0], pre="gpt-2", **MAMBA,
          keys={"attention.layer_norm_epsilon": 1e-5}),
    Mixture("llama-moe", "llama", 30, ff=32),
    Mixture("qwen3moe", "qwen3moe", 31, pre="qwen2", q_norm="heads", head=32),
    Mixture("qwen2moe", "qwen2moe", 32, pre="qwen2", shared=64),
    Mixture("olmoe", "olmoe", 33, ff=32, q_norm="rows", kv_heads=4),
    Mixture("granitemoe", "granitemoe", 34, ff=32, shared=64, keys=GRANITE),
    Model("granite", "granite", 35, tied=True, keys=GRANITE),
    Mixture("ernie4_5-moe", "ernie4_5-moe", 36, shared=64, dense=1, layers=3, selection_bias=True,
            keys={"interleave_moe_layer_step": 1}),
    Mixture("glm4moe", "glm4moe", 37, shared=32, dense=1, rope_dims=8, selection_bias=True,
            ffn_norm="post_attention_norm", keys={**SIGMOID, "expert_shared_count": 1, "expert_weights_norm": True}),
    Mixture("bailingmoe2", "bailingmoe2", 38, shared=32, dense=1, selection_bias=True, q_norm="heads", experts=12,
            keys={**SIGMOID, **GROUPS, "expert_shared_count": 1, "expert_weights_norm": True}),
    Mixture("hunyuan-moe", "hunyuan-moe", 39, ff=32, shared=64, q_norm="heads"),
    Model("hunyuan-dense", "hunyuan-dense", 40, norms="heads"),
    Mixture("minimax-m2", "minimax-m2", 41, ff=32, q_norm="rows", rope_dims=8, selection_bias=True,
            keys={"expert_gating_func": 2}),
    Mixture("gpt-oss", "gpt-oss", 42, biases=True, head=32, ffn_norm="post_attention_norm",
            keys={"attention.sliding_window": 32}),
    Latent("deepseek2", "deepseek2", 43, shared=32, dense=1, layers=3, rope_dims=16, selection_bias=True, fused=True,
           keys={**SIGMOID, **GROUPS, "expert_shared_count": 1, "expert_weights_norm": True,
                 **scaling("yarn", factor=4.0, original_context_length=64, yarn_log_multiplier=0.0707)}),
    # llama.cpp asks for a q_lora_rank unless there are so many layers.
    Latent("deepseek2-lite", "deepseek2", 44, shared=32, dense=1, layers=27, rope_dims=16, q_rank=0, old=True,
           ff=64, kv_heads=4, keys={"expert_shared_count": 1}),
    # Queries grow from the 32nd position on.
    Model("mistral3", "mistral3", 45, keys={"attention.temperature_scale": 0.5,
                                            **scaling("yarn", factor=4.0, original_context_length=32)}),
    # Experts and what all rows share are down(relu(up(x))^2), on rows narrower than the stream.
    Mixture("nemotron_h_moe", "nemotron_h_moe", 46, layers=3, kv_heads=[0, 2, 0], ff=[0, 0, 32], shared=64, latent_ff=48,
            selection_bias=True, pre="gpt-2", **MAMBA,
            keys={"attention.layer_norm_epsilon": 1e-5, "expert_weights_scale": 2.5, "expert_weights_norm": True}),
    # Mamba 1.
    Mixture("jamba", "jamba", 47, kv_heads=[0, 2], ff=32, pre="gpt-2", groups=1, ssm_heads=8),
    # Both blocks read one LayerNorm; heads have norms of their own.
    Model("stablelm", "stablelm", 48, norms="each head", rope_dims=8, pre="gpt-2"),
    Model("gpt2", "gpt2", 49, kv_heads=4, tied=True, pre="gpt-2"),
    # The router's weights act on what experts read; every fourth layer doesn't rotate.
    Mixture("llama4", "llama4", 51, layers=4, step=2, shared=32, used=2, keys={"interleave_moe_layer_step": 2}),
]  # fmt: skip

SMALL_TYPES = [T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.IQ4_NL, T.MXFP4]
SUPER_TYPES = [k for k in BLOCKS if k != T.IQ4_NL] + [T.TQ1_0, T.TQ2_0]
WIDE = dict(dim=256, ff=256, layers=1, head=64)
QUANTISED = [
    *(Model(f"llama-{t.name.lower()}", "llama", 100 + t, type=t) for t in SMALL_TYPES),
    *(Model(f"llama-{t.name.lower()}", "llama", 100 + t, type=t, **WIDE) for t in SUPER_TYPES),
    Model("llama-q4_k_m", "llama", 200, type=T.Q4_K, mixed=T.Q6_K, **WIDE),
    Model("qwen2-q4_1", "qwen2", 201, type=T.Q4_1, pre="qwen2", tied=True),
    Model("qwen3-q8_0", "qwen3", 202, type=T.Q8_0, pre="qwen2", tied=True, head=32),
    gemma3("gemma3-q4_0", 203, type=T.Q4_0),
    Model("phi3-q4_0", "phi3", 204, type=T.Q4_0, kv_heads=4),
    Mixture("qwen3moe-q4_0", "qwen3moe", 206, type=T.Q4_0, pre="qwen2", q_norm="heads", head=32),
    Mixture("qwen2moe-q4_k", "qwen2moe", 207, type=T.Q4_K, mixed=T.Q6_K, pre="qwen2", shared=256, ff_exp=256, experts=4,
            used=2, **WIDE),
    Mixture("nemotron_h_moe-q8_0", "nemotron_h_moe", 209, type=T.Q8_0, layers=3, kv_heads=[0, 2, 0], ff=[0, 0, 32], shared=64, used=8,
            selection_bias=True, pre="gpt-2", **MAMBA, keys={"attention.layer_norm_epsilon": 1e-5}),
    Mixture("gpt-oss-mxfp4", "gpt-oss", 208, type=T.MXFP4, biases=True, head=32, ffn_norm="post_attention_norm",
            keys={"attention.sliding_window": 32}),
    Model("smollm3-q5_1", "smollm3", 205, type=T.Q5_1, layers=4, ff=64, tied=True, pre="smollm"),
    qwen35("qwen35-q4_0", 206, type=T.Q4_0),
    lfm2("lfm2-q8_0", 207, type=T.Q8_0),
    Model("mamba2-q8_0", "mamba2", 208, type=T.Q8_0, pre="gpt-2", **MAMBA),
]
MODELS = {m.name: m for m in FAMILIES + QUANTISED}


@dataclass
class Right(Model):
    """Blocks add nothing, so the next token is a function of the last, and the layer that guesses knows it: by the
    token, or, `by_rows`, by the row of the token before it alone."""

    by_rows: bool = False

    def tensors(self):
        embeddings = next(super().tensors())[1]
        turn = np.arange(VOCAB)  # the token that follows; never one of the last three, which end texts
        turn[:-3] = np.roll(turn[:-3], -9)
        for name, values, kind in super().tensors():
            if name == "output.weight":
                values = np.empty_like(embeddings)
                values[turn] = embeddings
            if name.endswith("shared_head_head.weight"):
                values = np.empty_like(embeddings)
                values[turn[turn]] = embeddings
            if name.endswith(("output_norm.weight", "shared_head_norm.weight", "hnorm.weight")):
                values = np.ones_like(values)
            if name.endswith(("attn_output.weight", "ssm_out.weight", "ffn_down.weight")):
                values = np.zeros_like(values)
            if name.endswith("nextn.eh_proj.weight"):
                values = np.eye(self.dim, 2 * self.dim, self.dim if self.by_rows else 0, dtype=np.float32)
            if name.endswith("nextn.enorm.weight"):
                values = np.ones_like(values)
            yield name, values, kind


# Without logits to compare.
FILES = {**MODELS, **{m.name: m for m in [
    Reranker("qwen3-rerank", "qwen3", 300, pre="qwen2", tied=True, head=32, rope_base=1e6),
    Reranker("qwen3-rerank-f16", "qwen3", 301, type=T.F16, pre="qwen2", tied=True, head=32, rope_base=1e6, template=""),
    Reranker("qwen3vl-rerank", "qwen3vl", 302, pre="qwen2", head=32, rope_base=1e6, norms="heads", labels=3,
             keys={"rope.dimension_sections": [6, 5, 5, 0]}),
    hybrid_moe("qwen35moe-mtp", "qwen35moe", 303, nextn=1, nextn_own=True),
    hybrid_moe("qwen3next-mtp", "qwen3next", 304, nextn=1),
    Mixture("glm4moe-mtp", "glm4moe", 305, shared=32, dense=1, rope_dims=8, selection_bias=True, nextn=1, nextn_own=True,
            ffn_norm="post_attention_norm", keys={**SIGMOID, "expert_shared_count": 1, "expert_weights_norm": True}),
    Latent("deepseek2-mtp", "deepseek2", 308, shared=32, dense=1, layers=2, rope_dims=16, selection_bias=True, nextn=1,
           keys={**SIGMOID, "expert_shared_count": 1, "expert_weights_norm": True}),
    Right("qwen35-right", "qwen35", 306, layers=3, ff=64, head=32, rope_dims=16, rope_base=1e6, pre="qwen2", groups=2,
          ssm_heads=6, nextn=1, keys={"rope.dimension_sections": [3, 3, 2, 0], "full_attention_interval": 2}),
    Right("qwen35-rows", "qwen35", 307, layers=3, ff=64, head=32, rope_dims=16, rope_base=1e6, pre="qwen2", groups=2,
          ssm_heads=6, nextn=1, nextn_own=True, by_rows=True,
          keys={"rope.dimension_sections": [3, 3, 2, 0], "full_attention_interval": 2}),
]}}  # fmt: skip


def digest(path):
    """Of names, types and bytes of a file's tensors: what logits depend on, apart from keys."""
    h = hashlib.sha256()
    for t in gguf.GGUFReader(path).tensors:
        h.update(f"{t.name} {t.tensor_type.name} {t.shape.tolist()}\n".encode())
        h.update(t.data.tobytes())
    return h.hexdigest()[:16]


def ensure(folder=FOLDER):
    """Makes the files unless this script, as it stands, has made them already."""
    folder = Path(folder)
    stamp, mine = folder / "made-by", hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == mine and all((folder / f"{n}.gguf").exists() for n in FILES):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, model in FILES.items():
        # Beside, then renamed: a program that has the old file mapped keeps it.
        new = folder / f"{name}.gguf.new"
        model.write(new)
        new.replace(folder / f"{name}.gguf")
    stamp.write_text(mine)
    return folder


if __name__ == "__main__":
    made = ensure(sys.argv[1] if len(sys.argv) > 1 else FOLDER)
    print(f"{len(FILES)} models in {made}")
