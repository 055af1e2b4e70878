#!/usr/bin/env python3
"""Compares room `vocab` with llama.cpp's tokenizer, in one process and over many texts.

Both sides are shared libraries called through ctypes: ours is built here from src/{base,gguf,vocab}/*.c, theirs is
libllama.so of build b11434. Nothing but the Python standard library is needed.

  vocab_parity.py check  --llama DIR FILE.gguf...   random texts: ids, pieces, detokenized text, special ids
  vocab_parity.py pre    --llama DIR FILE.gguf      the same for every row of pretok.def: a copy of FILE for each
  vocab_parity.py golden --llama DIR --out DIR FILE.gguf...
                                                    writes the expected ids that tests/unit/test_vocab_golden.c reads
  vocab_parity.py time   --llama DIR --text T FILE.gguf...

DIR holds libllama.so.0 and its libraries (put OpenVINO's folder into LD_LIBRARY_PATH if they need it).
--n texts for each file (10000), --seed (1), --no-special to leave out parse_special = true.
"""
import argparse
import ctypes as C
import glob
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Str(C.Structure):
    _fields_ = [("p", C.c_char_p), ("n", C.c_size_t)]


class Err(C.Structure):
    _fields_ = [("code", C.c_int), ("text", C.c_char * 512)]


class List(C.Structure):
    _fields_ = [("p", C.POINTER(C.c_int32)), ("n", C.c_size_t), ("size", C.c_size_t)]


class Buf(C.Structure):
    _fields_ = [("p", C.c_void_p), ("n", C.c_size_t), ("size", C.c_size_t), ("ceiling", C.c_size_t), ("failed", C.c_bool)]


class Ours:
    """Our own vocabulary, built from the sources."""
    lib = None

    @classmethod
    def build(cls):
        out = os.path.join(tempfile.mkdtemp(), "libvocab.so")
        sources = [f for room in ("base", "gguf", "vocab") for f in glob.glob(f"{ROOT}/src/{room}/*.c")]
        subprocess.check_call(["cc", "-std=c11", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", "-Wl,-Bsymbolic", f"-I{ROOT}/src",
                               *sources, "-o", out, "-lpcre2-8", "-lpthread"])
        cls.lib = lib = C.CDLL(out)
        for name, result, args in [
                ("gguf_open", C.c_void_p, [C.c_char_p, C.POINTER(Err)]),
                ("gguf_close", None, [C.c_void_p]),
                ("vocab_new", C.c_void_p, [C.c_void_p, C.POINTER(Err)]),
                ("vocab_free", None, [C.c_void_p]),
                ("vocab_n_tokens", C.c_int32, [C.c_void_p]),
                ("vocab_tokenize", C.c_int, [C.c_void_p, Str, C.c_bool, C.c_bool, C.POINTER(List), C.POINTER(Err)]),
                ("vocab_piece", None, [C.c_void_p, C.c_int32, C.c_int, C.c_bool, C.POINTER(Buf)]),
                ("vocab_detokenize", None, [C.c_void_p, C.POINTER(C.c_int32), C.c_size_t, C.c_bool, C.c_bool, C.POINTER(Buf)]),
                ("vocab_text", Str, [C.c_void_p, C.c_int32]),
                ("vocab_attr", C.c_uint32, [C.c_void_p, C.c_int32]),
                ("vocab_score", C.c_float, [C.c_void_p, C.c_int32]),
                ("vocab_is_eog", C.c_bool, [C.c_void_p, C.c_int32]),
                ("buf_release", None, [C.POINTER(Buf)])]:
            f = getattr(lib, name)
            f.restype, f.argtypes = result, args

    def __init__(self, path):
        if not Ours.lib:
            Ours.build()
        err = Err()
        start = time.perf_counter()
        self.g = self.lib.gguf_open(path.encode(), C.byref(err))
        middle = time.perf_counter()
        self.v = self.g and self.lib.vocab_new(self.g, C.byref(err))
        self.load_ms = (1000 * (middle - start), 1000 * (time.perf_counter() - middle))
        if not self.v:
            raise RuntimeError(err.text.decode())
        self.n = self.lib.vocab_n_tokens(self.v)

    def tokenize(self, text, add, parse):
        out, err = List(), Err()
        if self.lib.vocab_tokenize(self.v, Str(text, len(text)), add, parse, C.byref(out), C.byref(err)) != 0:
            raise RuntimeError(err.text.decode())
        ids = out.p[:out.n]
        C.CDLL(None).free(C.cast(out.p, C.c_void_p))
        return ids

    def _bytes(self, fill):
        b = Buf()
        fill(C.byref(b))
        text = C.string_at(b.p, b.n) if b.p else b""
        self.lib.buf_release(C.byref(b))
        return text

    def piece(self, t, lstrip, special):
        return self._bytes(lambda b: self.lib.vocab_piece(self.v, t, lstrip, special, b))

    def detokenize(self, ids, remove, unparse):
        a = (C.c_int32 * len(ids))(*ids)
        return self._bytes(lambda b: self.lib.vocab_detokenize(self.v, a, len(ids), remove, unparse, b))

    def text(self, t):
        s = self.lib.vocab_text(self.v, t)
        return s.p[:s.n] if s.n else b""

    def facts(self):
        for name in ("bos", "eos", "eot", "nl", "pad"):
            getattr(self.lib, "vocab_" + name).argtypes = [C.c_void_p]
            yield name, getattr(self.lib, "vocab_" + name)(self.v)
        for name in ("add_bos", "add_eos"):
            f = getattr(self.lib, "vocab_" + name)
            f.argtypes, f.restype = [C.c_void_p], C.c_bool
            yield name, f(self.v)

    def token(self, t):
        return self.lib.vocab_attr(self.v, t), self.lib.vocab_score(self.v, t), self.lib.vocab_is_eog(self.v, t)

    def close(self):
        self.lib.vocab_free(self.v)
        self.lib.gguf_close(self.g)


class ModelParams(C.Structure):
    """struct llama_model_params of b11434; what lies before the booleans is left as it comes."""
    _fields_ = [("pointers", C.c_void_p * 2), ("numbers", C.c_int32 * 5), ("more", C.c_void_p * 4),
                ("vocab_only", C.c_bool), ("rest", C.c_bool * 5)]


class Theirs:
    lib = None

    @classmethod
    def open(cls, folder):
        for name in ("libggml-base.so.0", "libggml-cpu.so.0"):
            if os.path.exists(f"{folder}/{name}"):
                C.CDLL(f"{folder}/{name}", mode=C.RTLD_GLOBAL)
        cls.lib = lib = C.CDLL(f"{folder}/libllama.so.0")
        v, i, b = C.c_void_p, C.c_int32, C.c_bool
        lib.llama_model_default_params.restype = ModelParams
        lib.llama_model_load_from_file.argtypes, lib.llama_model_load_from_file.restype = [C.c_char_p, ModelParams], v
        lib.llama_model_get_vocab.argtypes, lib.llama_model_get_vocab.restype = [v], v
        lib.llama_model_free.argtypes = [v]
        lib.llama_tokenize.argtypes = [v, C.c_char_p, i, C.POINTER(i), i, b, b]
        lib.llama_token_to_piece.argtypes = [v, i, C.c_char_p, i, i, b]
        lib.llama_detokenize.argtypes = [v, C.POINTER(i), i, C.c_char_p, i, b, b]
        lib.llama_vocab_n_tokens.argtypes = [v]
        lib.llama_vocab_get_attr.argtypes = [v, i]
        lib.llama_vocab_get_score.argtypes, lib.llama_vocab_get_score.restype = [v, i], C.c_float
        lib.llama_vocab_is_eog.argtypes, lib.llama_vocab_is_eog.restype = [v, i], b
        cls.log = C.CFUNCTYPE(None, C.c_int, C.c_char_p, v)(lambda level, text, data: None)
        lib.llama_log_set(cls.log, None)
        lib.llama_backend_init()

    def __init__(self, path):
        params = self.lib.llama_model_default_params()
        params.vocab_only = True
        start = time.perf_counter()
        self.model = self.lib.llama_model_load_from_file(path.encode(), params)
        self.load_ms = 1000 * (time.perf_counter() - start)
        if not self.model:
            raise RuntimeError("llama.cpp does not load it")
        self.v = self.lib.llama_model_get_vocab(self.model)
        self.n = self.lib.llama_vocab_n_tokens(self.v)
        self.ids = (C.c_int32 * (1 << 20))()

    def tokenize(self, text, add, parse):
        n = self.lib.llama_tokenize(self.v, text, len(text), self.ids, len(self.ids), add, parse)
        assert n >= 0
        return self.ids[:n]

    def piece(self, t, lstrip, special):
        out = C.create_string_buffer(65536)
        n = self.lib.llama_token_to_piece(self.v, t, out, len(out), lstrip, special)
        return out.raw[:n]

    def detokenize(self, ids, remove, unparse):
        a = (C.c_int32 * len(ids))(*ids)
        out = C.create_string_buffer(65536)
        n = self.lib.llama_detokenize(self.v, a, len(ids), out, len(out), remove, unparse)
        return out.raw[:n]

    def facts(self):
        for name in ("bos", "eos", "eot", "nl", "pad"):
            f = getattr(self.lib, "llama_vocab_" + name)
            f.argtypes = [C.c_void_p]
            yield name, f(self.v)
        for name in ("add_bos", "add_eos"):
            f = getattr(self.lib, "llama_vocab_get_" + name)
            f.argtypes, f.restype = [C.c_void_p], C.c_bool
            yield name, f(self.v)

    def token(self, t):
        return (self.lib.llama_vocab_get_attr(self.v, t), self.lib.llama_vocab_get_score(self.v, t),
                self.lib.llama_vocab_is_eog(self.v, t))

    def close(self):
        self.lib.llama_model_free(self.model)


WORDS = """the quick brown fox It's don't I'll we've THEY'RE he'd I'M hello World tokenization HTTPServer camelCase snake_case
Ünïcödé naïve straße ÅNGSTRÖM привет мир Здравствуйте Ελλάδα שלום عربي مرحبا हिन्दी नमस्ते ไทย ລາວ ខ្មែរ မြန်မာ 中文字符 你好世界 日本語
ひらがな カタカナ 한국어 안녕하세요 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 ﬁne ǅ ʰ ª º İstanbul ß ſ K""".split()
CODE = ["def f(x):\n\treturn x**2\n", "for (int i = 0; i < n; ++i) {\n    a[i] += b[i];\n}\n", "<div class=\"x\">&nbsp;</div>",
        "#include <stdio.h>\r\n", "SELECT * FROM t WHERE a='b';", "\\frac{a}{b}", "$HOME/.config", "https://a.b/c?d=e&f=%20", "`x`", "//*/",
        "```python\nprint('hi')\n```\n\n", "a->b::c", "!=", "<=>", "...", "---", "~~~", "^_^", "|x|", "=\"", "'s", "'S", "'ll", "'RE", " 't"]
SPACES = [" ", "  ", "   ", "    ", "\n", "\n\n", "\n\n\n", "\r\n", "\t", "\t\t", " \n", "\n ", "\v", "\f", "\r", "\u0085", "\u00a0",
          "\u1680", "\u2000", "\u2003", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u180e", "\u200b", "\ufeff", "\u2581", "\x1c", "\x1f"]
MARKS = ["e\u0301", "a\u0308\u0323", "\u0301", "\u0e33", "\u0ece", "\u0cf3", "n\u0303", "\u20dd", "\ufe0f", "\u0903", "\u11f34"]
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "❤️", "☃", "🫨", "1️⃣", "©", "™", "€", "£", "½", "²", "Ⅻ", "①", "٣", "৩", "１２", "。", "，", "「」", "…", "–", "“q”", "¿", "؟", "।"]
INVALID = [b"\x80", b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xed\xa0\x80", b"\xed\xbf\xbf",
           b"\xf8\x88\x80\x80", b"\xfe", b"\xe2\x28\xa1", b"\xf0\x28\x8c\x28", b"\xc3\xa9\xc3", b"\xf0\x80\x80\x80", b"\xbf\xbf"]


EOT_TEXTS = [b"<|eot_id|>", b"<|im_end|>", b"<|end|>", b"<end_of_turn>", b"<|endoftext|>", b"<|end_of_text|>", b"<EOT>"]


def piece(r, specials):
    """One random part of a text."""
    k = r.random()
    if k < 0.30:
        return r.choice(WORDS).encode()
    if k < 0.50:
        return r.choice(SPACES[:9] if r.random() < 0.7 else SPACES).encode()
    if k < 0.58:
        return r.choice(CODE).encode()
    if k < 0.64:
        return "".join(r.choice("0123456789") for _ in range(r.randrange(1, 12))).encode()
    if k < 0.70:
        return r.choice(EMOJI).encode()
    if k < 0.74:
        return r.choice(MARKS).encode()
    if k < 0.80:
        return bytes(r.randrange(0x20, 0x7f) for _ in range(r.randrange(1, 8)))
    if k < 0.83:
        return bytes([r.randrange(0x20)])
    if k < 0.87:
        while True:  # any character at all
            c = r.choice([r.randrange(0x80, 0x800), r.randrange(0x800, 0x10000), r.randrange(0x10000, 0x110000), r.randrange(0x1F000, 0x20000)])
            if not 0xD800 <= c < 0xE000:
                return chr(c).encode()
    if k < 0.90:
        return r.choice(INVALID)
    if k < 0.93:
        return r.choice(["a", "A", "us", "\n", " ", "é", "0", "!", "中"]).encode() * r.randrange(2, 40)
    if specials:
        t = r.choice(specials)
        return t if r.random() < 0.9 else t[:r.randrange(len(t) + 1)]
    return b"<s>"


def random_text(r, specials):
    text = b"".join(piece(r, specials) for _ in range(r.randrange(1, 16)))
    # Character codes beyond U+10FFFF end llama.cpp's process: leave out what could spell one.
    return re.sub(rb"[\xf5-\xf7]|\xf4[\x90-\xbf]", b"?", text)[:400]


def special_texts(v):
    return [v.text(t) for t in range(v.n) if v.token(t)[0] & (1 | 8 | 16)] or []


def compare(path, args):
    ours, theirs = Ours(path), Theirs(path)
    bad = 0

    def differ(what, text, a, b):
        nonlocal bad
        bad += 1
        if bad <= 5:
            print(f"  {what} of {text!r}:\n    ours   {a}\n    theirs {b}")

    if ours.n != theirs.n:
        differ("tokens", "", ours.n, theirs.n)
    for (name, a), (_, b) in zip(ours.facts(), theirs.facts()):
        # Without a key, llama.cpp takes the end of turn that its hash map happens to list first.
        by_chance = name == "eot" and ours.text(a) in EOT_TEXTS and ours.text(b) in EOT_TEXTS
        if a != b and not by_chance:
            differ(name, "", a, b)
    for t in range(ours.n):
        if ours.token(t) != theirs.token(t):
            differ("attr, score, eog", t, ours.token(t), theirs.token(t))
        for lstrip, special in ((0, True), (0, False), (1, True)):
            a, b = ours.piece(t, lstrip, special), theirs.piece(t, lstrip, special)
            if a != b:
                differ(f"piece (lstrip {lstrip}, special {special})", t, a, b)
    specials = special_texts(ours)
    r = random.Random(args.seed)
    for _ in range(args.n):
        text = random_text(r, specials)
        for add, parse in ((True, True), (False, False)):
            a, b = ours.tokenize(text, add, parse), theirs.tokenize(text, add, parse)
            if a != b:
                differ(f"ids (special {parse})", text, a, b)
            remove, unparse = r.random() < 0.5, r.random() < 0.5
            x, y = ours.detokenize(b, remove, unparse), theirs.detokenize(b, remove, unparse)
            if x != y:
                differ("detokenized", b, x, y)
    print(f"{os.path.basename(path)}: {args.n} texts, {bad} differences; loaded in {ours.load_ms[0]:.1f} + {ours.load_ms[1]:.1f} ms, "
          f"theirs {theirs.load_ms:.0f} ms", flush=True)
    ours.close()
    theirs.close()
    return bad


def with_pre(data, name):
    """The file with another tokenizer.ggml.pre. It has no tensors, so nothing hangs on offsets."""
    key = b"tokenizer.ggml.pre" + struct.pack("<I", 8)
    at = data.index(key) + len(key)
    n, = struct.unpack_from("<Q", data, at)
    return data[:at] + struct.pack("<Q", len(name)) + name + data[at + 8 + n:]


def compare_pre(args):
    names = re.findall(r'^PRETOK_NAME\("([^"]+)"', open(f"{ROOT}/src/vocab/pretok.def").read(), re.M)
    data, bad = open(args.files[0], "rb").read(), 0
    with tempfile.TemporaryDirectory() as tmp:
        for name in names:
            if args.only and name not in args.only.split(","):
                continue
            path = f"{tmp}/{name}.gguf"
            with open(path, "wb") as f:
                f.write(with_pre(data, name.encode()))
            bad += compare(path, args)
            os.remove(path)
    return bad


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("command", choices=["check", "pre", "golden", "time"])
    p.add_argument("--llama", required=True)
    p.add_argument("--n", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="")
    p.add_argument("--out")
    p.add_argument("--text")
    p.add_argument("files", nargs="+")
    args = p.parse_args()
    Theirs.open(args.llama)
    if args.command == "check":
        return sum(compare(f, args) for f in args.files) != 0
    if args.command == "pre":
        return compare_pre(args) != 0
    return 2


if __name__ == "__main__":
    sys.exit(main())
