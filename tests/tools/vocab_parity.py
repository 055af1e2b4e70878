#!/usr/bin/env python3
"""Compares room `vocab` with llama.cpp's tokenizer, in one process and over many texts.

Both sides are shared libraries called through ctypes: ours is built here from src/{base,gguf,vocab}/*.c, theirs is
libllama.so of build b11434. Nothing but the Python standard library is needed.

  vocab_parity.py check  --llama DIR FILE.gguf...   random texts: ids, pieces, detokenized text, special ids
  vocab_parity.py pre    --llama DIR [FILE.gguf]    the same for every row of pretok.def, with a copy of FILE for each,
                                                    or with a made-up vocabulary in which any two bytes merge
  vocab_parity.py made   --llama DIR                the same for the made-up vocabularies of vocab_made.py
  vocab_parity.py golden --llama DIR [--small M.gguf] FILE.gguf...
                                                    writes tests/golden/vocab/ (see the README there)
  vocab_parity.py time   --llama DIR --text T FILE.gguf...
  vocab_parity.py long [FILE.gguf...]               1 MB of one kind, every row of pretok.def and every made-up vocabulary
                                                    or FILE: time of ours alone

DIR holds libllama.so.0 and its libraries (put OpenVINO's folder into LD_LIBRARY_PATH if they need it).
--n texts for each file (10000), --seed (1), --only a,b: these rows of pretok.def, or made-up vocabularies.
"""
import argparse
import ctypes as C
import glob
import itertools
import os
import random
import re
import struct
import subprocess
import sys
import tempfile
import time

from vocab_made import MADE, alphabet, gguf_file

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
                               *sources, "-o", out, "-lpcre2-8", "-lutf8proc", "-lm", "-lpthread"])
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

    def count(self, text):
        out, err = List(), Err()
        if self.lib.vocab_tokenize(self.v, Str(text, len(text)), True, True, C.byref(out), C.byref(err)) != 0:
            raise RuntimeError(err.text.decode())
        C.CDLL(None).free(C.cast(out.p, C.c_void_p))
        return out.n

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

    def count(self, text):
        return self.lib.llama_tokenize(self.v, text, len(text), self.ids, len(self.ids), True, True)

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


DNA = [b"<dna>ACGTACGTNNacgtCCCCCC</dna>", b"<dna>", b"</dna>", b"GATTACA", b"AAAAAACCCCCCGATTAC", b"<dna>\xc3\xa9 A", b"<dna></dna>", b"<oov>"]


def token_text(r, v):
    """What is in the vocabulary, often beside what is there as well."""
    if r.random() < 0.2:
        return r.choice(DNA)
    return b"".join(v.text(r.randrange(v.n)) for _ in range(r.randrange(1, 5))).replace("▁".encode(), b" ")[:100]


def special_texts(v):
    return [v.text(t) for t in range(v.n) if v.token(t)[0] & (1 | 8 | 16)] or []


def compare_out(ours, path):
    """The texts and ids that llama.cpp keeps beside its vocabularies."""
    if not os.path.exists(path + ".out"):
        return 0
    texts = open(path + ".inp", "rb").read().split(b"\n__ggml_vocab_test__\n")
    ids = [list(map(int, line.split())) for line in open(path + ".out")]
    bad = sum(ours.tokenize(t, False, False) != want for t, want in zip(texts, ids))
    if bad or len(ids) < 40:
        print(f"  {bad} of {len(ids)} lines of {os.path.basename(path)}.out differ")
    return bad


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
        if repr(ours.token(t)) != repr(theirs.token(t)):  # a score that is no number equals itself
            differ("attr, score, eog", t, ours.token(t), theirs.token(t))
        for lstrip, special in ((0, True), (0, False), (1, True)):
            a, b = ours.piece(t, lstrip, special), theirs.piece(t, lstrip, special)
            if a != b:
                differ(f"piece (lstrip {lstrip}, special {special})", t, a, b)
    specials = special_texts(ours)
    r = random.Random(args.seed)
    for _ in range(args.n):
        text = random_text(r, specials)
        if r.random() < 0.3:
            text = re.sub(rb"[\xf5-\xf7]|\xf4[\x90-\xbf]", b"?", text + token_text(r, ours))
        for add, parse in ((True, True), (False, False)):
            a, b = ours.tokenize(text, add, parse), theirs.tokenize(text, add, parse)
            if a != b:
                differ(f"ids (special {parse})", text, a, b)
            remove, unparse = r.random() < 0.5, r.random() < 0.5
            x, y = ours.detokenize(b, remove, unparse), theirs.detokenize(b, remove, unparse)
            if x != y:
                differ("detokenized", b, x, y)
    bad += compare_out(ours, path)
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


def pairs_vocab(values, seed):
    """A byte-level BPE in which any two of the byte values merge, in random order: where a text is cut shows in
    its ids. Some special tokens, too."""
    chars, r = alphabet(), random.Random(seed)
    pairs = [(chars[a], chars[b]) for a in values for b in values]
    r.shuffle(pairs)
    tokens = chars + [a + b for a, b in pairs]
    types = [1] * len(tokens)
    for text, kind in (("<|endoftext|>", 3), ("<|im_start|>", 3), ("<|im_end|>", 3), ("<unk>", 2), ("<tool>", 4), ("<tool", 4), ("  ", 4)):
        tokens.append(text)
        types.append(kind)
    eos = tokens.index("<|endoftext|>")
    return gguf_file({"general.architecture": "llama", "general.name": "pairs", "tokenizer.ggml.model": "gpt2",
                      "tokenizer.ggml.pre": "default", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
                      "tokenizer.ggml.merges": [f"{a} {b}" for a, b in pairs],
                      "tokenizer.ggml.bos_token_id": eos, "tokenizer.ggml.eos_token_id": eos})


def pretok_names(args):
    names = re.findall(r'^PRETOK_NAME\("([^"]+)"', open(f"{ROOT}/src/vocab/pretok.def").read(), re.M)
    # "whitespace" goes with a tokenizer of its own only: see vocab_made.py
    return [n for n in names if n != "whitespace" and (not args.only or n in args.only.split(","))]


def each_pre(data, args):
    with tempfile.TemporaryDirectory() as tmp:
        for name in pretok_names(args):
            path = f"{tmp}/{name}.gguf"
            with open(path, "wb") as f:
                f.write(with_pre(data, name.encode()))
            yield name, path


def compare_pre(args):
    data = open(args.files[0], "rb").read() if args.files else pairs_vocab(range(256), 1)
    return sum(compare(path, args) for _, path in each_pre(data, args))


def each_made(args):
    with tempfile.TemporaryDirectory() as tmp:
        for name, make in MADE.items():
            if args.only and name not in args.only.split(","):
                continue
            path = f"{tmp}/{name}.gguf"
            with open(path, "wb") as f:
                f.write(make())
            yield name, path


def compare_made(args):
    return sum(compare(path, args) for _, path in each_made(args))


def compare_long(args):
    """Nothing may take more than a few hundred milliseconds for a megabyte."""
    size, slow = 1000000, 0
    texts = [b"A", b"a", b" ", b"\n", b"1", b"'", b".", b"us", b" a", b"a ", "é".encode(), "é ".encode(), "中".encode(), "e\u0301".encode(),
             "\u0301".encode(), b"1a", b"\r\n ", b"\x01", b"aA", b"\x80", "😀".encode(), b"<", b" \t", b"Aa1 .\n", b"<tool", "▁".encode(),
             b"<dna>", b"<dna>A", b"abc", b"\xe2\x96", b"\\x0a", b"\0"]
    texts = [(t * size)[:size] for t in texts] + [b" " * size + b"x", b"\n" * size + b"x", b"1" * size + b"x", b"x" + b" " * size, b"<dna>" + b"A" * size]
    files = [(f, f) for f in args.files] or itertools.chain(each_made(args), each_pre(pairs_vocab(range(256), 1), args))
    for name, path in files:
        v, worst = Ours(path), (0, b"")
        for text in texts:
            start = time.process_time()
            v.count(text)
            worst = max(worst, (time.process_time() - start, text[:8]))
        v.close()
        slow += worst[0] > 3
        print(f"{name}: slowest {worst[0] * 1000:.0f} ms, {worst[1]!r}", flush=True)
    return slow


def compare_time(args):
    text = open(args.text, "rb").read()
    for path in args.files:
        best = []
        for side in (Ours(path), Theirs(path)):
            times = []
            for _ in range(5):
                start = time.process_time()
                n = side.count(text)
                times.append(1000 * (time.process_time() - start))
            best.append(min(times))
            side.close()
        print(f"{os.path.basename(path)}: {len(text)} bytes, {n} ids: ours {best[0]:.1f} ms, theirs {best[1]:.1f} ms, ratio {best[1] / best[0]:.1f}",
              flush=True)
    return 0


GOLDEN = f"{ROOT}/tests/golden/vocab"
GOLDEN_SPECIALS = [t.encode() for t in (
    "<s> </s> <unk> <pad> <bos> <eos> <mask> <|endoftext|> <|im_start|> <|im_end|> <|begin_of_text|> <|eot_id|> "
    "<|start_header_id|> <start_of_turn> <end_of_turn> <turn|> <|user|> <|assistant|> <|end|> [INST] [/INST] <fim_prefix> "
    "<|fim_middle|> <0x0A> <tool> <tool").split()] + ["▁".encode(), "<｜end▁of▁sentence｜>".encode(), b"\n\n\n\n", b"<h1>"]


def golden_texts():
    r = random.Random(260)
    texts = [b"", b" ", b"\n", b"a", "é".encode(), b"\x80", b"\0", b"A" * 300, b"us" * 200, b" " * 257, b"\n" * 100, b"1" * 100]
    texts += [random_text(r, GOLDEN_SPECIALS) for _ in range(300 - len(texts))]
    accents = "ÀÉÎÕÜ ǅ İ ẞ Å Ω ﬁ Ⅻ ａＢ 한국어 각 日本語、。 e\u0301a\u0308 \u1e9b\u0323 \u0344 \U0001d15e \u2f81a \ufdfa".encode()
    return texts + [*DNA, accents, accents.upper(), b"unaffable [MASK] [CLS]don't", b"abc abcab ab e <to <tool> <tools>", b"aaa bbb aaaa  b",
                    b"\ufeff", "\ufeffx".encode(), "\ufeff\ufeff".encode(), b"us" * 10000, b"A" * 10000, b"\n \t", b"a\0b"]


def escaped(text):
    """One line of texts.txt; a space at the end, which editors like to take away, is \\x20."""
    if text.endswith(b" "):
        return escaped(text[:-1]) + "\\x20"
    names = {0x5C: "\\\\", 10: "\\n", 13: "\\r", 9: "\\t"}
    try:
        text.decode()
        return "".join(names.get(ord(c)) or (c if c.isprintable() else "".join(f"\\x{b:02x}" for b in c.encode())) for c in text.decode())
    except UnicodeDecodeError:
        return "".join(names.get(b) or (chr(b) if 0x20 <= b < 0x7F else f"\\x{b:02x}") for b in text)


def fnv(data, h=0x811C9DC5):
    for b in data:
        h = (h ^ b) * 0x01000193 & 0xFFFFFFFF
    return h


def fnv_ids(ids, h=0x811C9DC5):
    return fnv(struct.pack(f"<{len(ids)}i", *ids), h)


def golden_lines(v, texts):
    """What test_vocab_golden.c checks: facts, a hash over all tokens, and for every text the number and the hash of
    its ids, with special tokens and without, and of the text that comes back."""
    facts = dict(v.facts())
    del facts["eot"]
    yield "facts " + " ".join(str(int(x)) for x in facts.values())
    yield "eog " + " ".join(str(t) for t in range(v.n) if v.token(t)[2])
    h = k = 0x811C9DC5
    for t in range(v.n):
        h = fnv(struct.pack("<I", v.token(t)[0]), h)
        for lstrip, special in ((0, True), (1, False)):
            p = v.piece(t, lstrip, special)
            k = fnv(struct.pack("<I", len(p)) + p, k)
    yield f"tokens {v.n} attrs {h:08x} pieces {k:08x}"
    for text in texts:
        with_special, without = v.tokenize(text, True, True), v.tokenize(text, False, False)
        back = v.detokenize(with_special, True, False)
        yield f"{len(with_special)} {fnv_ids(with_special):08x} {len(without)} {fnv_ids(without):08x} {fnv(back):08x}"


def keys_alone(path):
    """A model's tokenizer keys as a GGUF file without tensors."""
    data = open(path, "rb").read()
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    (count,), at, kept = struct.unpack_from("<Q", data, 16), 24, []

    def skip(kind, at):
        if kind == 8:
            return at + 8 + struct.unpack_from("<Q", data, at)[0]
        if kind != 9:
            return at + sizes[kind]
        kind, n = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(n):
            at = skip(kind, at)
        return at
    for _ in range(count):
        start, n = at, struct.unpack_from("<Q", data, at)[0]
        key = data[at + 8:at + 8 + n]
        at = skip(*struct.unpack_from("<I", data, at + 8 + n), at + 12 + n)
        if key.startswith(b"tokenizer.ggml.") or key in (b"general.architecture", b"general.name"):
            kept.append(data[start:at])
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(kept)) + b"".join(kept)


def write(name, data):
    with open(f"{GOLDEN}/{name}", "wb") as f:
        f.write(data)


def make_golden(args):
    os.makedirs(GOLDEN, exist_ok=True)
    texts = golden_texts()
    write("texts.txt", "".join(escaped(t) + "\n" for t in texts).encode())
    common = sorted(set(b" \n\r\t'.,-_<>=(1290aestAEST") | {0xC3, 0xA9, 0xCC, 0x81, 0xE4, 0xB8, 0xAD, 0xE2, 0x80, 0xA8, 0xF0, 0x9F, 0x98})
    write("pairs.gguf", pairs_vocab(common, 2))
    small = [f"{GOLDEN}/pairs.gguf"]
    for name, make in MADE.items():
        write(f"{name}.gguf", make())
        small.append(f"{GOLDEN}/{name}.gguf")
    for path in args.small:
        small.append(f"{GOLDEN}/{os.path.basename(path)}")
        write(os.path.basename(path), keys_alone(path))
    for path in args.files + small:
        v = Theirs(path)
        name = os.path.basename(path).replace("ggml-vocab-", "").replace(".gguf", "")
        write(f"{name}.txt", "".join(line + "\n" for line in golden_lines(v, texts)).encode())
        v.close()
        print(name, flush=True)
    lines = []
    for name, path in each_pre(open(f"{GOLDEN}/pairs.gguf", "rb").read(), args):
        v, hashes = Theirs(path), []
        for at in range(0, len(texts), 20):
            h = 0x811C9DC5
            for text in texts[at:at + 20]:
                h = fnv_ids(v.tokenize(text, True, True) + [-1], h)
            hashes.append(f"{h:08x}")
        v.close()
        lines.append(f"{name} {' '.join(hashes)}\n")
    write("pretok.txt", "".join(lines).encode())
    return 0


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = {"check": lambda a: sum(compare(f, a) for f in a.files), "pre": compare_pre, "made": compare_made, "golden": make_golden,
                "time": compare_time, "long": compare_long}
    p.add_argument("command", choices=commands)
    p.add_argument("--llama")
    p.add_argument("--n", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="")
    p.add_argument("--text")
    p.add_argument("--small", action="append", default=[])
    p.add_argument("files", nargs="*")
    args = p.parse_intermixed_args()
    if args.llama:
        Theirs.open(args.llama)
    return commands[args.command](args) != 0


if __name__ == "__main__":
    sys.exit(main())
