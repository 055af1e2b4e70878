"""Small made-up vocabularies, seeded, for tokenizers of which no vocabulary file is at hand: every byte of such a file
is decided here. vocab_parity.py compares them with llama.cpp and keeps some of them in tests/golden/vocab."""
import random
import struct

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

SAMPLE = """the quick brown fox jumps over a lazy dog, don't it's we've hello world tokenization HTTPServer snake_case naïve
straße ÅNGSTRÖM привет мир Здравствуйте Ελλάδα שלום عربي हिन्दी ไทย 中文字符 你好世界 日本語 ひらがな カタカナ 한국어 안녕하세요
for (int i = 0; i < n; ++i) { a[i] += b[i]; } def f(x): return x**2 1234567890 3.14159 é e\u0301 ﬁ ½ Ⅻ ① １２ … – “q” €£
😀 👍🏽 🇩🇪 ❤️ aaaa bbbb AAAA us us us !!! ... --- <s> </s> </ > a\u0301 \u200b \ufeff \ue000 𝔘𝔫𝔦 \u0301"""


def alphabet():
    """GPT-2's character for each byte."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    other = [b for b in range(256) if b not in plain]
    return [chr(b if b in plain else 256 + other.index(b)) for b in range(256)]


def gguf_file(keys):
    """A GGUF file of keys alone; values are str, bool, int (u32), bytes (an array of u8), or lists of str, bytes
    (strings), int (i32) or float (f32)."""
    def string(t):
        t = t.encode() if isinstance(t, str) else t
        return struct.pack("<Q", len(t)) + t
    out = b"GGUF" + struct.pack("<IQQ", 3, 0, len(keys))
    for key, v in keys.items():
        out += string(key)
        if isinstance(v, bytes):
            out += struct.pack("<IIQ", 9, 0, len(v)) + v
        elif isinstance(v, list):
            kind = {str: 8, bytes: 8, int: 5, float: 6}[type(v[0])]
            out += struct.pack("<IIQ", 9, kind, len(v))
            out += b"".join(string(x) if kind == 8 else struct.pack("<i" if kind == 5 else "<f", x) for x in v)
        elif isinstance(v, bool):
            out += struct.pack("<IB", 7, v)
        elif isinstance(v, int):
            out += struct.pack("<II", 4, v)
        else:
            out += struct.pack("<I", 8) + string(v)
    return out


class Vocab:
    def __init__(self, model, **keys):
        self.keys, self.tokens, self.types, self.scores = {"tokenizer.ggml.model": model, **keys}, [], [], []

    def add(self, text, kind=NORMAL, score=0.0):
        if text and text not in self.tokens:
            self.tokens.append(text)
            self.types.append(kind)
            self.scores.append(float(score))
        return self.tokens.index(text) if text else None

    def file(self):
        name = self.keys.pop("general.name", "made")
        return gguf_file({"general.architecture": "llama", "general.name": name, **self.keys,
                          "tokenizer.ggml.tokens": self.tokens, "tokenizer.ggml.scores": self.scores,
                          "tokenizer.ggml.token_type": self.types})


def pieces(r, text, n, longest=8):
    """n substrings, short ones more often."""
    for _ in range(n):
        at, size = r.randrange(len(text)), 1 + int(longest * r.random() ** 2)
        yield text[at:at + size]


def rwkv(seed):
    r, v = random.Random(seed), Vocab("rwkv")
    v.add("<s>")
    spelled = [bytes([b]) for b in range(256)] + list(pieces(r, SAMPLE.encode(), 600, 9))
    for b in spelled:
        v.add(repr(b)[2:-1])  # as the files have it: \n, \xe4, \\
    v.add("\\x0a\\x20\\x20")  # a byte spelled in another way
    v.add("<|user|>", CONTROL)
    v.add("<tool>", USER)
    return v.file()


def plamo2(seed):
    r, v = random.Random(seed), Vocab("plamo2", **{"tokenizer.ggml.add_bos_token": True})
    for text, kind in (("<|plamo:unk|>", UNKNOWN), ("<|plamo:bos|>", CONTROL), ("<|plamo:eos|>", CONTROL), ("<|plamo:pad|>", CONTROL),
                       ("</s>", CONTROL), ("<tool>", USER)):
        v.add(text, kind)
    for b in range(256):
        v.add(f"<0x{b:02X}>", BYTE)
    for text in pieces(r, SAMPLE, 700):
        # Some cost the same, so that the longer one must win; some are out of the game.
        score = r.choice([-r.random() * 16, -float(r.randrange(1, 12)), -2500.0, float("nan"), -float("inf")] if r.random() < 0.3 else [-r.random() * 16])
        v.add(text, NORMAL, score)
    v.add("aaa", NORMAL, -3.0)
    v.add("aa", NORMAL, -2.0)
    v.add("a", NORMAL, -1.0)
    return v.file()


def charsmap(rules):
    """SentencePiece's compiled form: a double array in which the child c of a node lies at (its place ^ its offset) ^ c,
    and at c = 0 the place of the replacement."""
    texts, root = b"", {}
    for key, to in rules.items():
        node = root
        for c in key.encode():
            node = node.setdefault(c, {})
        node[0] = len(texts)
        texts += to.encode() + b"\0"
    units, bases = {0: 0}, set()
    work = [(root, 0)]
    while work:
        node, at = work.pop()
        base = 256
        while base in bases or any(base ^ c in units for c in node):
            base += 1
        bases.add(base)
        offset = at ^ base
        assert offset < 1 << 21
        units[at] |= offset << 10 | (0x100 if 0 in node else 0)
        for c, child in node.items():
            units[base ^ c] = 1 << 31 | child if c == 0 else c
        work += [(child, base ^ c) for c, child in node.items() if c]
    size = (max(units) | 255) + 1
    table = b"".join(struct.pack("<I", units.get(i, 0x7F)) for i in range(size))
    return struct.pack("<I", len(table)) + table + texts


RULES = {"\n": " ", "\t": " ", "\r": " ", "\u3000": " ", "\u00a0": " ", "ﬁ": "fi", "Ａ": "A", "１": "1", "２": "2", "½": "1/2", "…": "...",
         "e\u0301": "é", "a\u0308": "ä", "\u200b": "", "Ⅻ": "XII", "“": "\"", "”": "\"", "ab": "b", "abc": "  c", "A\u030a": "Å"}


def unigram(seed, **keys):
    r, v = random.Random(seed), Vocab("t5", **{"tokenizer.ggml.precompiled_charsmap": charsmap(RULES), **keys})
    for text, kind in (("<pad>", CONTROL), ("</s>", CONTROL), ("<unk>", UNKNOWN)):
        v.add(text, kind)
    for text in ("<tool>", "<to", "  ", "ab e", "é"):
        v.add(text, USER, -7.5)
    for text in pieces(r, SAMPLE.replace(" ", "▁").replace("\n", "▁"), 700):
        v.add(text, UNUSED if r.random() < 0.03 else NORMAL, -r.random() * 12 if r.random() < 0.8 else -float(r.randrange(1, 9)))
    v.add("▁", NORMAL, -3.5)
    v.add("aaa▁b", NORMAL, -1.5)  # across a space
    return v.file()


def wordpiece(seed, **keys):
    r, v = random.Random(seed), Vocab("bert", **keys)
    for text in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"):
        v.add(text, CONTROL)
    text = SAMPLE + SAMPLE.lower()
    for c in sorted(set(text)):
        if r.random() < 0.9 and c.strip():
            v.add(c)
            v.add("▁" + c)
    for part in pieces(r, text, 500):
        part = part.strip()
        v.add(("▁" if r.random() < 0.5 else "") + part.split()[0] if part else "")
    v.keys.update({f"tokenizer.ggml.{k}_token_id": v.tokens.index(t) for k, t in
                   (("unknown", "[UNK]"), ("bos", "[CLS]"), ("seperator", "[SEP]"), ("padding", "[PAD]"), ("mask", "[MASK]"))})
    return v.file()


def bpe(r, v, symbols, n):
    """n merges of random neighbours, each a token."""
    merges, words = [], list(symbols)
    for _ in range(n):
        a, b = r.choice(words), r.choice(words)
        if len(a + b) < 7 and f"{a} {b}" not in merges:
            merges.append(f"{a} {b}")
            v.add(a + b)
            words.append(a + b)
    v.keys["tokenizer.ggml.merges"] = merges
    return v


def hybriddna(seed):
    r, v = random.Random(seed), Vocab("hybriddna", **{"tokenizer.ggml.pre": "qwen2"})
    for c in alphabet():
        v.add(c)
    bpe(r, v, [c for c in "ACGTNacgt<>/dn Ġ" if c.strip()], 300)
    for text, kind in (("CCCCCC", NORMAL), ("<|endoftext|>", CONTROL), ("<dna>", NORMAL), ("</dna>", NORMAL), ("<oov>", NORMAL)):
        v.add(text, kind)
    for i in range(400):
        v.add(("CCCCCC", "AAAAAA", "GATTAC")[i] + "\ue000" if i < 3 else "".join(r.choice("ACGT") for _ in range(6)) + "\ue000")
    return v.file()


def whitespace(seed, **keys):
    r, v = random.Random(seed), Vocab("whitespace", **{"tokenizer.ggml.pre": "whitespace", **keys})
    symbols = sorted(set(SAMPLE) - set(" \n"))
    for c in symbols:
        if r.random() < 0.95:
            v.add(c)
    for b in range(0x80, 0x100, 3):
        v.add(f"<0x{b:02X}>", BYTE)
    bpe(r, v, symbols + list("etaoinshr") * 9, 900)
    v.add("<|endoftext|>", CONTROL)
    return v.file()


def fim(seed):
    """Byte-level, with Qwen2.5-Coder's tokens for filling in the middle."""
    r, v = random.Random(seed), Vocab("gpt2", **{"tokenizer.ggml.pre": "qwen2"})
    for c in alphabet():
        v.add(c)
    bpe(r, v, list("etaoinshrdlufm") * 4 + ["Ġ"] * 9 + ["Ċ"] * 3 + list("()_=:."), 400)
    for text in ("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"):
        v.add(text, CONTROL)
    v.keys["tokenizer.ggml.eos_token_id"] = v.tokens.index("<|endoftext|>")
    return v.file()


KEYS = "tokenizer.ggml."
MADE = {
    "rwkv": lambda: rwkv(1),
    "plamo2": lambda: plamo2(2),
    "unigram": lambda: unigram(3),
    "unigram-merged": lambda: unigram(4, **{KEYS + "add_space_prefix": True, KEYS + "remove_extra_whitespaces": True, KEYS + "add_bos_token": True,
                                            KEYS + "bos_token_id": 0}),
    "unigram-prefix": lambda: unigram(5, **{KEYS + "add_space_prefix": True}),
    "wordpiece": lambda: wordpiece(6),
    "wordpiece-cased": lambda: wordpiece(7, **{KEYS + "normalizer.lowercase": False}),
    "wordpiece-accents": lambda: wordpiece(8, **{KEYS + "normalizer.strip_accents": False}),
    "fim": lambda: fim(12),
    "hybriddna": lambda: hybriddna(9),
    "whitespace": lambda: whitespace(10),
    "whitespace-lower": lambda: whitespace(11, **{KEYS + "normalizer.lowercase": True}),
}
