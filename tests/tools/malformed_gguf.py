#!/usr/bin/env python3
"""Writes small GGUF files that break the format, each in one way, and sound ones that only look odd.

    python tests/tools/malformed_gguf.py tests/golden/gguf/malformed

cases.tsv says what should become of each: its name, OK or the kind of error, and words that the error must hold.
Which files are refused is llama.cpp's judgement (its tests/test-gguf.cpp, and its loader for what that leaves
open); the words are ours.
"""

import os
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
TF32, TF16, TQ4_0, TQ4_2, TQ5_0, TQ4_K, TI8, TI64 = 0, 1, 2, 4, 6, 12, 24, 27
MAX = 2**64 - 1


def u32(v):
    return struct.pack("<I", v)


def u64(v):
    return struct.pack("<Q", v)


def text(s, n=None):
    b = s.encode()
    return u64(len(b) if n is None else n) + b


def kv(key, vtype, payload):
    return text(key) + u32(vtype) + payload


def array(key, vtype, n, payload=b""):
    return kv(key, ARR, u32(vtype) + u64(n) + payload)


def tensor(name, ne, ttype=TF32, offset=0, n_dims=None):
    return (text(name) + u32(len(ne) if n_dims is None else n_dims) + b"".join(map(u64, ne)) + u32(ttype) +
            u64(offset))


def gguf(kvs=(), tensors=(), data=b"", version=3, n_kv=None, n_tensors=None, align=32):
    head = (b"GGUF" + u32(version) + u64(len(tensors) if n_tensors is None else n_tensors) +
            u64(len(kvs) if n_kv is None else n_kv) + b"".join(kvs) + b"".join(tensors))
    if data:
        head += bytes(-len(head) % align)
    return head + data


ARCH = kv("general.architecture", STR, text("llama"))
FOUR = bytes(range(16))  # the data of four F32


def pad(data, align=32):
    return data + bytes(-len(data) % align)


def alignment(value, vtype=U32):
    return kv("general.alignment", vtype, u32(value))


def header():
    yield "empty", b"", "FORMAT", "empty"
    yield "magic-three-bytes", b"GGU", "FORMAT", "not a GGUF file"
    yield "magic-reversed", b"FUGG" + gguf()[4:], "UNSUPPORTED", "byte-swapped"
    yield "magic-other", b"\x7fELF" + gguf()[4:], "FORMAT", "begins with 7f 45 4c 46"
    yield "magic-control", b"\n\r\t\x00" + gguf()[4:], "FORMAT", "begins with 0a 0d 09 00"
    yield "git-lfs", b"version git-lfs/spec/v1\noid sha256:0\nsize 1\n", "FORMAT", "Git LFS"
    yield "web-page", b"<!DOCTYPE html><html></html>", "FORMAT", "web page"
    yield "zip", b"PK\x03\x04" + bytes(30), "FORMAT", "zip"
    yield "ggjt", b"tjgg" + u32(3) + bytes(30), "FORMAT", "older than GGUF"
    yield "header-magic-only", b"GGUF", "FORMAT", "header"
    yield "header-cut", gguf()[:23], "FORMAT", "header"
    yield "version-0", gguf(version=0), "UNSUPPORTED", "version 0"
    yield "version-1", gguf(version=1), "UNSUPPORTED", "version 1"
    yield "version-4", gguf(version=4), "UNSUPPORTED", "version 4"
    yield "version-swapped", gguf(version=0x03000000), "UNSUPPORTED", "byte-swapped"
    for n in (1, 2**32, 2**60, 2**63, MAX):
        yield f"tensors-{n:x}", gguf(n_tensors=n), "FORMAT", f"{n} tensors"
        yield f"keys-{n:x}", gguf(n_kv=n), "FORMAT", f"{n} keys"
    yield "header-alone", gguf(), "OK", ""
    yield "version-2", gguf([ARCH], version=2), "OK", ""


def metadata():
    def one(item, n_kv=None):
        return gguf([item], n_kv=n_kv)

    yield "key-length-past-end", one(text("a", 1000) + bytes(20)), "FORMAT", "key 0"
    yield "key-length-max", one(text("a", MAX) + bytes(20)), "FORMAT", "key 0"
    yield "key-empty", one(kv("", U64, u64(1))), "FORMAT", "key 0 has no name"
    yield "key-missing", gguf([ARCH], n_kv=2), "FORMAT", "key 1"
    yield "key-twice", gguf([ARCH, ARCH]), "FORMAT", "'general.architecture' is there twice"
    yield "key-control-characters", gguf([kv("a\n\x1b[31mb", 99, u64(0))]), "FORMAT", "'a??[31mb'"
    yield "key-very-long", gguf([kv("k" * 5000, 99, u64(0))]), "FORMAT", "unknown value type 99"
    yield "type-13", one(kv("a", 13, u64(0))), "FORMAT", "'a': unknown value type 13"
    yield "type-max", one(kv("a", 0xFFFFFFFF, u64(0))), "FORMAT", "'a': unknown value type 4294967295"
    yield "type-cut", one(text("a" * 12) + b"\0\0"), "FORMAT", "'aaaaaaaaaaaa'"
    yield "value-cut", one(kv("a.b.c", U64, bytes(7))), "FORMAT", "'a.b.c'"
    yield "string-past-end", one(kv("a.b", STR, text("x", 2))), "FORMAT", "'a.b'"
    yield "string-length-max", one(kv("a.b", STR, text("x", MAX))), "FORMAT", "'a.b'"
    yield "string-length-wrap", one(kv("a.b", STR, text("x", MAX - 40))), "FORMAT", "'a.b'"
    yield "array-type-13", one(array("a", 13, 1, u64(0))), "FORMAT", "'a': unknown value type 13"
    yield "array-of-arrays", one(array("a", ARR, 1, u32(U8) + u64(0))), "UNSUPPORTED", "'a': an array of arrays"
    yield "array-cut", one(kv("abcdef", ARR, u32(U8) + b"\0\0\0")), "FORMAT", "'abcdef'"
    for vtype, name in ((U8, "u8"), (U64, "u64"), (STR, "string")):
        for n in (3, 2**32, 2**60, 2**61, 2**63, MAX):
            yield f"array-{name}-{n:x}", one(array("abc", vtype, n, b"xy")), "FORMAT", f"'abc': an array of {n}"
    yield ("array-string-element-past-end", one(array("a", STR, 2, text("x") + text("y", 9) + b"z")), "FORMAT", "'a'")
    yield ("array-string-element-max", one(array("a", STR, 2, text("x") + text("y", MAX) + bytes(9))), "FORMAT", "'a'")
    yield "array-empty", gguf([array("a", U32, 0), array("b", STR, 0)]), "OK", ""
    yield "bool-2", gguf([kv("a", BOOL, b"\2"), array("b", BOOL, 2, b"\x80\0")]), "OK", ""
    for value in (0, 3, 13, 0x80000001):
        yield f"alignment-{value:x}", gguf([alignment(value)]), "FORMAT", f"'general.alignment' is {value}, not a power"
    yield "alignment-i32", gguf([alignment(32, I32)]), "FORMAT", "'general.alignment' is of type i32"
    yield "alignment-array", gguf([array("general.alignment", U32, 1, u32(32))]), "FORMAT", "of type array of u32"
    yield "alignment-1", gguf([alignment(1)], [tensor("a", [4])], FOUR, align=1), "OK", ""
    yield "alignment-64", gguf([alignment(64)], [tensor("a", [4]), tensor("b", [4], offset=64)], pad(FOUR, 64) + FOUR,
                               align=64), "OK", ""


def tensors():
    def one(item, data=FOUR):
        return gguf([ARCH], [item], pad(data))

    def two(offset):
        return gguf([], [tensor("a", [4]), tensor("b", [4], offset=offset)], bytes(128))

    yield "name-past-end", one(text("a", 1000) + bytes(16)), "FORMAT", "tensor 0"
    yield "name-length-max", one(text("a", MAX) + bytes(16)), "FORMAT", "tensor 0"
    yield "name-of-64", one(tensor("n" * 64, [4])), "FORMAT", "a name of 64 bytes"
    yield "name-of-63", one(tensor("n" * 63, [4])), "OK", ""
    yield "name-twice", gguf([], [tensor("a", [4]), tensor("a", [4], offset=32)], pad(FOUR) * 2), "FORMAT", "'a' is there twice"
    yield "dims-5", one(tensor("a", [1] * 5)), "FORMAT", "'a': 5 dimensions"
    yield "dims-max", one(tensor("a", [4], n_dims=0xFFFFFFFF)), "FORMAT", "'a': 4294967295 dimensions"
    yield "dims-0", one(tensor("a", [])), "OK", ""
    yield "directory-cut", gguf([], [tensor("abcdef", [4])[:-1]]), "FORMAT", "tensor 0"
    yield "directory-second-missing", gguf([], [tensor("a", [4])], pad(FOUR), n_tensors=2), "FORMAT", "tensor"
    yield "ne-negative", one(tensor("a", [MAX])), "FORMAT", "'a': a shape of [18446744073709551615, 1, 1, 1]"
    yield "ne-2^63", one(tensor("a", [2**63], TI8)), "FORMAT", "'a': a shape of"
    yield "ne-2^63-1", one(tensor("a", [2**63 - 1], TI8)), "FORMAT", "'a': 9223372036854775807 bytes"
    yield "ne-2^42+1", one(tensor("a", [2**42 + 1])), "FORMAT", "'a': 17592186044420 bytes"
    yield "ne-2^42+1-second", one(tensor("a", [4, 2**42 + 1])), "FORMAT", "'a':"
    yield "ne-2^42+1-quantised", one(tensor("a", [2**42 + 1], TQ4_0)), "FORMAT", "'a': 4398046511105 elements in a row"
    yield "ne-product-2^64", one(tensor("a", [2**32, 2**32])), "FORMAT", "'a': a shape of"
    yield "ne-product-2^66", one(tensor("a", [4 * (2**31 - 1)] * 2)), "FORMAT", "'a': a shape of"
    yield "ne-product-wraps-to-0", one(tensor("a", [2**16] * 4, TI8)), "FORMAT", "'a': a shape of"
    yield "bytes-2^64", one(tensor("a", [2**31, 2**30], TI64)), "FORMAT", "'a': 2305843009213693952 elements"
    yield "bytes-pad-wraps", one(tensor("a", [4, 2**30 - 1, 2**30 + 1])), "FORMAT", "'a':"
    yield "zero-elements", gguf([], [tensor("a", [4, 0]), tensor("b", [4])], pad(FOUR)), "OK", ""
    yield "zero-elements-but-huge", one(tensor("a", [2**62, 4, 0])), "FORMAT", "'a': a shape of"
    for ttype in (4, 5, 31, 33, 36, 38, 43, 255, 0x80000000, 0xFFFFFFFF):
        yield f"type-{ttype:x}-of-tensor", one(tensor("a", [32], ttype), bytes(64)), "UNSUPPORTED", f"'a': unknown type {ttype}"
    yield "row-33-of-Q4_0", one(tensor("a", [33], TQ4_0), bytes(64)), "FORMAT", "not a multiple of Q4_0's block of 32"
    yield "row-128-of-Q4_K", one(tensor("a", [128, 2], TQ4_K), bytes(256)), "FORMAT", "not a multiple of Q4_K's block"
    yield "offset-max", one(tensor("a", [4], offset=MAX)), "FORMAT", "'a': offset 18446744073709551615"
    yield "offset-top", one(tensor("a", [4], offset=MAX - 31)), "FORMAT", "'a': offset 18446744073709551584"
    yield "offset-unaligned", two(16), "FORMAT", "'b': offset 16 is not a multiple of 32"
    yield "offset-gap", two(64), "FORMAT", "'b': offset 64"
    yield "offset-overlap", two(0), "FORMAT", "'b': offset 0"
    yield "data-missing", gguf([ARCH], [tensor("a", [4])]), "FORMAT", "'a': 16 bytes"
    yield "data-cut", gguf([ARCH], [tensor("a", [4]), tensor("b", [4], offset=32)], pad(FOUR) + FOUR[:-1]), "FORMAT", "'b': 16 bytes"
    yield "data-cut-in-first", gguf([ARCH], [tensor("a", [40]), tensor("b", [4], offset=160)], bytes(100)), "FORMAT", "'a': 160 bytes"
    yield "data-sum-overflows", gguf([], [tensor("a", [2**63 - 64], TI8), tensor("b", [2**63 - 64], TI8, 2**63 - 64)], bytes(32)), "FORMAT", "'a': 9223372036854775744 bytes"
    yield "data-without-last-padding", gguf([ARCH], [tensor("a", [4])], FOUR), "OK", ""
    yield "data-and-more", gguf([ARCH], [tensor("a", [4])], pad(FOUR) + b"GGUF and more"), "OK", ""


def split():
    def keys(no, count, total=1):
        return [kv("split.no", U16, struct.pack("<H", no)), kv("split.count", U16, struct.pack("<H", count)),
                kv("split.tensors.count", I32, u32(total))]

    yield "split-of-one", gguf(keys(0, 1)), "OK", ""
    yield "split-name", gguf(keys(0, 2)), "FORMAT", "-00001-of-00002.gguf"
    yield "split-joined", gguf(keys(0, 2), [tensor("a", [4])], pad(FOUR) + gguf(keys(1, 2))), "FORMAT", "joined"
    yield "split-no-5-of-2", gguf(keys(5, 2)), "FORMAT", "'split.no' is 5"
    yield "split-count-string", gguf([kv("split.count", STR, text("2"))]), "FORMAT", "'split.count' is of type string"
    yield "split-count-2^31", gguf([kv("split.count", U32, u32(2**31))]), "FORMAT", "'split.count' is 2147483648"


def main(folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "cases.tsv"), "w") as table:
        for group in (header, metadata, tensors, split):
            for name, data, result, words in group():
                with open(os.path.join(folder, name + ".gguf"), "wb") as f:
                    f.write(data)
                table.write(f"{name}.gguf\t{result}\t{words}\n")


if __name__ == "__main__":
    main(sys.argv[1])
