#!/usr/bin/env python3
"""Makes the files of this folder: per GGML type TYPE.blocks, random blocks of ROWS rows of COLS elements, and
TYPE.f32, the values that gguf-py gives them (native little-endian f32).

    python3 -m venv v && v/bin/pip install gguf==0.19.0 numpy && v/bin/python tests/golden/quant/make.py

All bits of the blocks are random, but for the fields that are floats: those take any finite f16 (zeros of both
signs, subnormals and negative ones among them) with the exponents spread evenly, so that sums meet terms of
very different size."""
import pathlib

import gguf
import numpy as np

ROWS, COLS = 5, 512
HERE = pathlib.Path(__file__).parent
SPECIAL = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x0400, 0x7BFF, 0xFBFF, 0x3C00], np.uint16)

# Byte offsets of the f16 fields of a block.
F16_AT = {
    "F16": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82],
    "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0],
}
TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
         "IQ4_NL", "IQ4_XS", "MXFP4"]


def halves(rng, n):
    """n finite f16 as bits, at times special ones."""
    bits = rng.integers(0, 2, n) << 15 | rng.integers(0, 31, n) << 10 | rng.integers(0, 1024, n)
    return np.where(rng.random(n) < 0.2, rng.choice(SPECIAL, n), bits.astype(np.uint16))


def make(name, rng):
    qtype = gguf.GGMLQuantizationType[name]
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    n = ROWS * COLS // block
    blocks = rng.integers(0, 256, (n, size), np.uint8)
    for at in F16_AT.get(name, []):
        blocks[:, at:at + 2] = halves(rng, n).view(np.uint8).reshape(n, 2)
    if name == "F32":
        blocks = rng.standard_normal(n).astype(np.float32).view(np.uint8).reshape(n, 4)
    if name == "BF16":  # the upper half of an f32, exponent below that of infinity
        blocks[:, 1] = np.where(blocks[:, 1] & 0x7F == 0x7F, blocks[:, 1] & 0xBF, blocks[:, 1])
    if name == "MXFP4":  # exponents at which 12 times the scale is finite
        blocks[:, 0] = np.where(rng.random(n) < 0.2, rng.integers(0, 3, n), blocks[:, 0] % 250)
    values = gguf.dequantize(blocks.reshape(ROWS, -1), qtype).astype(np.float32)
    assert values.shape == (ROWS, COLS) and np.isfinite(values).all(), name
    (HERE / f"{name}.blocks").write_bytes(blocks.tobytes())
    (HERE / f"{name}.f32").write_bytes(values.tobytes())


for i, name in enumerate(TYPES):
    make(name, np.random.default_rng([20240229, i]))
