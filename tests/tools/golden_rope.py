#!/usr/bin/env python3
"""tests/golden/rope: angles of rotary embeddings by two other implementations.

    pip download --no-deps transformers==5.24.0 && unzip transformers-*.whl transformers/modeling_rope_utils.py
    python tests/tools/golden_rope.py transformers/modeling_rope_utils.py folder-with-libggml.so.0 \
        > tests/golden/rope/cases.txt

Hugging Face's functions, run in float64 on a NumPy stand-in for torch, give frequencies and the factor of the
magnitude: exact, but said nothing of float32. ggml's rope operation (llama.cpp b11434), through ctypes, gives the
rotated tables of some positions in float32.

The file is a list of words. A case begins with `case NAME`; then come fields of struct hparams by name, factors, the
length of the context, and what is expected of the table."""
import ctypes
import math
import sys
import types
from pathlib import Path

import numpy as np

POSITIONS = [0, 1, 2, 31, 32, 100, 511, 4095, 32768, 131071]


# --- Hugging Face -------------------------------------------------------------------------------------------------


class Array(np.ndarray):
    def to(self, *_, **__):
        return self

    def float(self):
        return self


def array(x, *_, **__):
    return np.asarray(x, np.float64).view(Array)


def hugging_face(path):
    torch = types.ModuleType("torch")
    torch.arange = lambda *a, **_: array(np.arange(*a))
    torch.tensor = array
    torch.clamp = lambda x, lo, hi: array(np.clip(x, lo, hi))
    torch.where = lambda c, a, b: array(np.where(c, a, b))
    torch.int64 = torch.float = torch.float32 = torch.Tensor = None
    utils = types.ModuleType("standin.utils")
    utils.is_torch_available = lambda: True
    utils.logging = types.SimpleNamespace(get_logger=lambda _: types.SimpleNamespace(warning=print, warning_once=print))
    package = types.ModuleType("standin")
    package.__path__ = []
    sys.modules.update({"torch": torch, "standin": package, "standin.utils": utils})
    module = types.ModuleType("standin.rope")
    module.__package__ = "standin"
    exec(compile(Path(path).read_text(), path, "exec"), module.__dict__)
    return module.ROPE_INIT_FUNCTIONS


class Config:
    """What the functions ask of a model's configuration."""

    def __init__(self, n_rot, parameters, trained):
        self.rope_parameters = parameters
        self.head_dim = self.hidden_size = n_rot
        self.num_attention_heads = 1
        self.max_position_embeddings = trained

    def standardize_rope_params(self):
        pass


def frequencies(functions, case):
    kind, n_rot, base = case["kind"], case["n_rot"], case["rope_freq_base"]
    if kind == "default":
        return base ** -(np.arange(0, n_rot, 2) / n_rot), 1.0
    parameters = {"rope_type": kind, "rope_theta": base, "partial_rotary_factor": 1.0, **case["hf"]}
    config = Config(n_rot, parameters, case["n_ctx_orig"])
    inverse, magnitude = functions[kind](config, None, seq_len=case["n_ctx"])
    return np.asarray(inverse, np.float64), magnitude


# --- ggml ---------------------------------------------------------------------------------------------------------


class Ggml:
    class Params(ctypes.Structure):
        _fields_ = [("size", ctypes.c_size_t), ("memory", ctypes.c_void_p), ("no_alloc", ctypes.c_bool)]

    def __init__(self, folder):
        libraries = [ctypes.CDLL(str(Path(folder) / f"lib{n}.so.0"), ctypes.RTLD_GLOBAL) for n in ("ggml-base", "ggml-cpu")]
        self.base, self.cpu = libraries
        self.cpu.ggml_cpu_init()

    def call(self, name, *arguments, library=None):
        f = getattr(library or self.base, name)
        f.restype = ctypes.c_void_p
        return f(*arguments)

    def tensor(self, ctx, values):
        kind = {np.dtype(np.float32): 0, np.dtype(np.int32): 26}[values.dtype]
        shape = (ctypes.c_int64 * values.ndim)(*values.shape[::-1])
        t = self.call("ggml_new_tensor", ctypes.c_void_p(ctx), kind, values.ndim, shape)
        data = self.call("ggml_get_data", ctypes.c_void_p(t))
        ctypes.memmove(data, np.ascontiguousarray(values).ctypes.data, values.nbytes)
        return ctypes.c_void_p(t)

    def rope(self, positions, factors, n_rot, n_ctx_orig, *floats):
        """cos and sin [positions, n_rot / 2], times the magnitude: what (1, 0) is rotated to."""
        ctx = ctypes.c_void_p(self.call("ggml_init", self.Params(1 << 24, None, False)))
        x = np.zeros((len(positions), 1, n_rot), np.float32)
        x[:, :, : n_rot // 2] = 1
        f = self.tensor(ctx.value, np.array(factors, np.float32)) if factors else None
        y = ctypes.c_void_p(self.call("ggml_rope_ext", ctx, self.tensor(ctx.value, x),
                                      self.tensor(ctx.value, np.array(positions, np.int32)), f, n_rot, 2, n_ctx_orig,
                                      *map(ctypes.c_float, floats)))
        graph = ctypes.c_void_p(self.call("ggml_new_graph", ctx))
        self.call("ggml_build_forward_expand", graph, y)
        self.call("ggml_graph_compute_with_ctx", ctx, graph, 1, library=self.cpu)
        data = self.call("ggml_get_data", y)
        out = np.ctypeslib.as_array((ctypes.c_float * x.size).from_address(data)).reshape(len(positions), n_rot).copy()
        self.call("ggml_free", ctx)
        return out


def ggml_table(ggml, case):
    """The parameters that a llama.cpp context hands to ggml for a model with these keys."""
    yarn = case["rope_scaling"] == "yarn"
    factor = case.get("factor", 1.0)
    ext, attn = 0.0, 1.0
    if yarn:
        magnitude = lambda m: 0.1 * m * math.log(factor) + 1 if factor > 1 else 1.0  # noqa: E731
        ext = 1.0
        attn = magnitude(1.0) / (magnitude(case["yarn_log_mul"]) if case.get("yarn_log_mul") else 1.0)
        attn /= 1 + 0.1 * math.log(factor)  # ggml multiplies by it
    attn *= case.get("rope_attn_factor", 1.0)
    factors = case.get("factors")
    if case.get("factors_long") and case["n_ctx"] > case["n_ctx_orig"]:
        factors = case["factors_long"]
    return ggml.rope(POSITIONS, factors, case["n_rot"], case["n_ctx_orig"], case["rope_freq_base"], 1 / factor, ext, attn,
                     case.get("yarn_beta_fast", 32.0), case.get("yarn_beta_slow", 1.0))


# --- cases --------------------------------------------------------------------------------------------------------


def case(name, kind, n_rot, base, scaling="linear", orig=4096, n_ctx=4096, hf=None, **more):
    hf = hf or {}
    return dict(name=name, kind=kind, n_rot=n_rot, rope_freq_base=base, rope_scaling=scaling, n_ctx_orig=orig, n_ctx=n_ctx,
                hf=hf, **more)


def llama3(name, n_rot, base, orig, factor, low, high):
    """The file holds the factors by which frequencies are divided: Hugging Face's rule gives them."""
    hf = dict(factor=factor, low_freq_factor=low, high_freq_factor=high, original_max_position_embeddings=orig)
    return case(name, "llama3", n_rot, base, orig=16 * orig, n_ctx=4096, hf=hf)


def longrope(name, n_rot, orig, n_ctx, ratio):
    short = [1 + i / 64 for i in range(n_rot // 2)]
    long = [1 + (i * i) / 32 for i in range(n_rot // 2)]
    hf = dict(short_factor=short, long_factor=long, factor=ratio, original_max_position_embeddings=orig)
    return case(name, "longrope", n_rot, 10000.0, "longrope", orig, n_ctx, hf, factors=short, factors_long=long,
                rope_attn_factor=math.sqrt(1 + math.log(ratio) / math.log(orig)))


def yarn(name, n_rot, base, orig, factor, log_mul=0.0, fast=32.0, slow=1.0):
    hf = dict(factor=factor, original_max_position_embeddings=orig, beta_fast=fast, beta_slow=slow)
    if log_mul:
        hf.update(mscale=1.0, mscale_all_dim=log_mul)
    return case(name, "yarn", n_rot, base, "yarn", orig, 4 * orig, hf, factor=factor, yarn_log_mul=log_mul,
                yarn_beta_fast=fast, yarn_beta_slow=slow)


CASES = [
    case("plain-64", "default", 64, 10000.0),
    case("plain-128-1e6", "default", 128, 1e6),
    case("plain-2", "default", 2, 500.0),
    case("linear-4", "linear", 64, 10000.0, hf=dict(factor=4.0), factor=4.0),
    case("linear-8-gemma3", "linear", 256, 1e6, hf=dict(factor=8.0), factor=8.0),
    yarn("yarn-4", 128, 1e6, 32768, 4.0),
    yarn("yarn-16-short", 64, 10000.0, 64, 16.0),
    yarn("yarn-40-deepseek", 64, 10000.0, 4096, 40.0, log_mul=0.707),
    yarn("yarn-betas", 64, 150000.0, 4096, 32.0, fast=16.0, slow=2.0),
    yarn("yarn-1", 64, 10000.0, 4096, 1.0),
    llama3("llama3-8", 128, 500000.0, 8192, 8.0, 1.0, 4.0),
    llama3("llama3-32", 64, 500000.0, 8192, 32.0, 1.0, 4.0),
    longrope("longrope-short", 96, 4096, 4096, 32.0),
    longrope("longrope-long", 96, 4096, 4097, 32.0),
]
FIELDS = ["n_rot", "rope_freq_base", "n_ctx_orig", "rope_attn_factor", "yarn_log_mul", "yarn_beta_fast", "yarn_beta_slow"]


def text(values):
    return " ".join(f"{float(v):.9g}" for v in values)


def main():
    functions, ggml = hugging_face(sys.argv[1]), Ggml(sys.argv[2])
    print("# made by tests/tools/golden_rope.py")
    for c in CASES:
        inverse, magnitude = frequencies(functions, c)
        if c["kind"] == "llama3":
            plain = c["rope_freq_base"] ** -(np.arange(0, c["n_rot"], 2) / c["n_rot"])
            c["factors"] = list(plain / inverse)
        print("case", c["name"])
        for field in FIELDS:
            if c.get(field):
                print(field, f"{c[field]:.9g}")
        print("rope_freq_scale", f"{1 / c.get('factor', 1.0):.9g}")
        print("rope_scaling", c["rope_scaling"])
        for key in ("factors", "factors_long"):
            if c.get(key):
                print(key, text(c[key]))
        print("n_ctx", c["n_ctx"])
        print("magnitude", f"{magnitude:.12g}")
        print("frequencies", " ".join(f"{v:.12g}" for v in inverse))
        # Of large heads a part of the pairs will do.
        pairs = sorted({*range(0, c["n_rot"] // 2, max(1, c["n_rot"] // 32)), c["n_rot"] // 2 - 1})
        print("pairs", len(pairs), *pairs)
        for position, row in zip(POSITIONS, ggml_table(ggml, c)):
            print("row", position, text(row[pairs]), text(row[np.array(pairs) + c["n_rot"] // 2]))


main()
