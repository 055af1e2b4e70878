#!/usr/bin/env python3
"""Writes a pair of llama files that write (nearly) alike and differ in cost, for measuring a draft model (-md).

    bench/make_pair.py [--wide 16] [--drop 20] SMOLLM2.gguf TARGET.gguf [DRAFT.gguf]

TARGET is the given model with feed-forward blocks so many times as wide: the rows of its gate and up matrices repeated,
and what they would add multiplied by zero. So its text is the given model's, and its cost that of a larger model.
DRAFT is the given model without some layers: it guesses, and is wrong now and then, as a smaller model of the same
family is. A real pair has other rates; what this one shows is what guessing costs and brings at the rate it has.
"""
import argparse
import os

import gguf
import numpy as np


def copy_fields(w, r, changed):
    for f in r.fields.values():
        if f.name.startswith("GGUF.") or f.name == "general.architecture":
            continue
        kind, sub = f.types[0], f.types[-1] if len(f.types) > 1 else None
        w.add_key_value(f.name, changed.get(f.name, f.contents()), kind, sub)


def widened(t, times):
    """Rows are dimension 0 of t.data, whatever the type; blocks lie along dimension 1."""
    if t.name.endswith((".ffn_gate.weight", ".ffn_up.weight")):
        return np.concatenate([t.data] * times, axis=0)
    if t.name.endswith(".ffn_down.weight"):  # a block of zero bytes is a block of zeros
        return np.concatenate([t.data] + [np.zeros_like(t.data)] * (times - 1), axis=1)
    return t.data


def write(path, r, tensors, changed):
    w = gguf.GGUFWriter(path + ".part", r.get_field("general.architecture").contents())
    copy_fields(w, r, changed)
    for name, data, kind in tensors:
        w.add_tensor(name, np.ascontiguousarray(data), raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    os.replace(path + ".part", path)
    print(f"{path}: {os.path.getsize(path) / 1e6:.0f} MB")


def renumbered(name, kept):
    """None for a tensor of a layer that is left out."""
    if not name.startswith("blk."):
        return name
    layer, rest = name[4:].split(".", 1)
    return f"blk.{kept.index(int(layer))}.{rest}" if int(layer) in kept else None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--wide", type=int, default=16)
    p.add_argument("--drop", default="20", help="layers that the draft lacks")
    p.add_argument("source")
    p.add_argument("target")
    p.add_argument("draft", nargs="?")
    a = p.parse_args()
    r = gguf.GGUFReader(a.source)
    arch = r.get_field("general.architecture").contents()
    inner, count = f"{arch}.feed_forward_length", f"{arch}.block_count"
    write(a.target, r, [(t.name, widened(t, a.wide), t.tensor_type) for t in r.tensors],
          {inner: r.get_field(inner).contents() * a.wide})
    if a.draft:
        dropped = {int(x) for x in a.drop.split(",") if x}
        kept = [i for i in range(r.get_field(count).contents()) if i not in dropped]
        names = [(renumbered(t.name, kept), t) for t in r.tensors]
        write(a.draft, r, [(n, t.data, t.tensor_type) for n, t in names if n], {count: len(kept)})


if __name__ == "__main__":
    main()
