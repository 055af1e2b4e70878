#!/usr/bin/env python3
"""Writes GGUF files with gguf-py, and next to them what GGUFReader reads out of them.

    python tests/tools/golden_gguf.py tests/golden/gguf

everything.gguf holds every value type and every tensor type that gguf-py knows; everything.txt lists it.
split-0000?-of-00003.gguf is a model in three parts; split.txt lists its tensors.
big-endian.gguf is a file for the other byte order.
"""

import logging
import os
import random
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType, GGUFEndian, GGUFReader, GGUFValueType as T, GGUFWriter

SCALARS = {
    T.UINT8: [0, 255],
    T.INT8: [-128, 127],
    T.UINT16: [0, 65535],
    T.INT16: [-32768, 32767],
    T.UINT32: [0, 4294967295],
    T.INT32: [-2147483648, 2147483647],
    T.FLOAT32: [1e-05, -3.5, 1e30, float("inf")],
    T.BOOL: [False, True],
    T.STRING: ["", "naïve 🦙", 'two\nlines, a "quote"'],
    T.UINT64: [0, 2**64 - 1],
    T.INT64: [-(2**63), 2**63 - 1],
    T.FLOAT64: [0.1, -1e300],
}
# gguf-py's size of this type differs from ggml's struct.
OMITTED = {GGMLQuantizationType.Q8_1}


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_everything(path, rng):
    w = GGUFWriter(path, "llama")
    w.add_custom_alignment(64)
    for vtype, values in SCALARS.items():
        for i, v in enumerate(values):
            w.add_key_value(f"scalar.{vtype.name.lower()}.{i}", v, vtype)
        w.add_key_value(f"array.{vtype.name.lower()}", values * 3, T.ARRAY, vtype)
    for qtype, (block, size) in gguf.GGML_QUANT_SIZES.items():
        if qtype in OMITTED:
            continue
        rows, blocks = rng.randint(1, 3), rng.randint(1, 2)
        data = np.frombuffer(rng.randbytes(rows * blocks * size), dtype=np.uint8).reshape(rows, blocks * size)
        w.add_tensor(f"tensor.{qtype.name}", data, raw_dtype=qtype)
    for dims in range(1, 5):
        w.add_tensor(f"dims.{dims}", np.arange(2 * 3 ** (dims - 1), dtype=np.float32).reshape([3] * (dims - 1) + [2]))
    finish(w)


def write_split(folder, rng):
    w = GGUFWriter(os.path.join(folder, "split.gguf"), "llama", split_max_tensors=2)
    w.add_uint32("llama.block_count", 2)
    w.add_string("general.name", "in three parts")
    for i in range(5):
        w.add_tensor(f"blk.{i}.weight", np.array([rng.random() for _ in range(5 + i)], dtype=np.float32))
    finish(w)


def write_big_endian(path):
    w = GGUFWriter(path, "llama", endianess=GGUFEndian.BIG)
    w.add_uint32("llama.block_count", 1)
    w.add_tensor("a", np.zeros(4, dtype=np.float32))
    finish(w)


def fnv1a(data):
    h = 0xCBF29CE484222325
    for b in data:
        h = (h ^ b) * 0x100000001B3 % 2**64
    return h


def element(v, vtype):
    if vtype == T.STRING:
        return v.encode().hex() or "-"
    if vtype in (T.FLOAT32, T.FLOAT64):
        return "%.17g" % v
    return str(int(v))


def listing(reader, part=0):
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or part > 0:
            continue
        is_array, vtype = field.types[0] == T.ARRAY, field.types[-1]
        values = field.contents() if is_array else [field.contents()]
        yield "\t".join(["kv", key, str(int(vtype)), str(int(is_array)), str(len(values))] +
                        [element(v, vtype) for v in values])
    for t in reader.tensors:
        ne = [int(n) for n in t.shape]
        block, size = gguf.GGML_QUANT_SIZES[t.tensor_type]
        raw = t.data.tobytes()
        yield "\t".join(map(str, ["tensor", t.name, t.tensor_type.name, block, size, len(ne),
                                  *(ne + [1] * (4 - len(ne))), t.n_bytes, part, t.data_offset,
                                  f"{fnv1a(raw):016x}"]))


def write_listing(path, lines):
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\n")


def main(folder):
    logging.disable(logging.INFO)
    rng = random.Random(1)
    os.makedirs(folder, exist_ok=True)
    everything = os.path.join(folder, "everything.gguf")
    write_everything(everything, rng)
    write_listing(os.path.join(folder, "everything.txt"), listing(GGUFReader(everything)))
    write_split(folder, rng)
    lines = []
    for part in range(3):
        reader = GGUFReader(os.path.join(folder, f"split-{part + 1:05}-of-00003.gguf"))
        lines += listing(reader, part)
    write_listing(os.path.join(folder, "split.txt"), lines)
    write_big_endian(os.path.join(folder, "big-endian.gguf"))


if __name__ == "__main__":
    main(sys.argv[1])
