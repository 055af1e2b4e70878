"""grappa tokenize, logits and inspect."""
import json
import re

import pytest
from cli_tools import good, refused, run, tiny

np = pytest.importorskip("numpy")
gguf = pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def spm():
    return tiny("llama")


@pytest.fixture(scope="module")
def bpe():
    return tiny("qwen2")


# --- tokenize -----------------------------------------------------------------------------------------------------


def ids(*words, **more):
    return json.loads(good("tokenize", *words, "--ids", **more))


@pytest.mark.sanitize
def test_ids_and_pieces(bpe):
    listed = ids("-m", bpe, "-p", "the cat\n")
    lines = good("tokenize", "-m", bpe, "-p", "the cat\n").decode()
    assert [int(x) for x in re.findall(r"^ *(\d+) -> '", lines, re.M)] == listed
    assert "".join(re.findall(r"^ *\d+ -> '(.*?)'$", lines, re.M | re.S)) == "the cat\n"
    assert all(len(head) == 6 for head in re.findall(r"^( *\d+) -> '", lines, re.M))


def test_bos(spm):
    with_bos = ids("-m", spm, "-p", "the cat")
    assert with_bos[0] == 1 and ids("-m", spm, "-p", "the cat", "--no-bos") == with_bos[1:]


def test_special_tokens(bpe):
    assert ids("-m", bpe, "-p", "<|im_end|>") == [319]
    assert len(ids("-m", bpe, "-p", "<|im_end|>", "--no-parse-special")) > 5
    assert good("tokenize", "-m", bpe, "-p", "<|im_end|>") == b"   319 -> '<|im_end|>'\n"


def test_count(bpe):
    text = good("tokenize", "-m", bpe, "-p", "the cat", "--ids", "--show-count").decode()
    listed, count = text.splitlines()
    assert count == f"Total number of tokens: {len(json.loads(listed))}"


def test_sources(bpe, tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"the cat\n")
    want = ids("-m", bpe, "-p", "the cat\n")
    assert ids("-m", bpe, "-f", path) == want  # not cut at the end
    assert ids("-m", bpe, "--stdin", stdin=b"the cat\n") == want
    assert ids("-m", bpe, "--stdin", "-f", path, "-p", "x", stdin=b"the dog") == ids("-m", bpe, "-p", "the dog")
    assert ids("-m", bpe, "--stdin", stdin=b"") == []
    assert ids("-m", bpe, "--stdin", stdin=rb"a\nb") == ids("-m", bpe, "-p", "a\nb")
    assert ids("-m", bpe, "--stdin", "--no-escape", stdin=rb"a\nb") == ids("-m", bpe, "-p", r"a\nb", "--no-escape")
    assert refused("tokenize", "-m", bpe, "-f", tmp_path / "none", status=1).endswith("No such file or directory")
    assert refused("tokenize", "-m", bpe, "-f", tmp_path, status=1).endswith("Is a directory")


def test_bytes_that_are_no_text(bpe, tmp_path):
    path = tmp_path / "text"
    path.write_bytes(bytes(range(256)) * 3)
    done = run("tokenize", "-m", bpe, "-f", path, "--no-escape")
    assert done.returncode == 0
    assert b"".join(re.findall(rb"^ *\d+ -> '(.*?)'$", done.stdout, re.M | re.S))


# --- logits -------------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_logits_and_steps(spm, tmp_path):
    def logits(*more):
        out = tmp_path / "out.f32"
        assert good("logits", "-m", spm, "--ids", "1,20,30,40,50", "-o", out, *more) == b""
        return np.fromfile(out, np.float32).reshape(5, 320)

    whole = logits()
    assert np.isfinite(whole).all() and whole.std() > 0.1
    for steps in ("5", "3,1,1", "1,1,1,1,1"):
        assert np.abs(logits("--steps", steps) - whole).max() < 0.05
    assert (logits("-c", "512") == whole).all()


def test_logits_to_stdout(spm, tmp_path):
    out = tmp_path / "out.f32"
    good("logits", "-m", spm, "--ids", "1,20", "-o", out)
    assert good("logits", "-m", spm, "--ids", "1,20", "-o", "-") == out.read_bytes()
    assert len(out.read_bytes()) == 2 * 320 * 4


# --- inspect ------------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
@pytest.mark.parametrize("name", ["llama", "qwen2", "llama-q4_k"])
def test_inspect_json_is_what_gguf_reads(name):
    path = tiny(name)
    got = json.loads(good("inspect", path, "--json"))
    reader = gguf.GGUFReader(path)
    keys = [f for f in reader.fields.values() if not f.name.startswith("GGUF.")]
    assert [kv["key"] for kv in got["metadata"]] == [f.name for f in keys]
    for kv, field in zip(got["metadata"], keys, strict=True):
        if len(field.types) == 1 and field.types[0] == gguf.GGUFValueType.STRING and len(field.contents()) < 200:
            shown = field.contents().replace("\n", "\\n")  # a value is one line
            assert kv["value"] == shown and kv["type"] == "string"
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            assert kv["n"] == len(field.data)
    assert [(t["name"], t["type"], t["shape"], t["size"]) for t in got["tensors"]] == [
        (t.name, t.tensor_type.name, t.shape.tolist(), t.n_bytes) for t in reader.tensors]
    assert got["n_params"] == sum(t.n_elements for t in reader.tensors)
    assert got["size"] == sum(t.n_bytes for t in reader.tensors)
    assert got["architecture"] == reader.get_field("general.architecture").contents() and got["supported"] is True
    assert all(t["runs_as"] for t in got["tensors"])


def test_inspect_text(spm, tmp_path):
    text = good("inspect", spm).decode()
    assert re.search(r"^architecture  llama$", text, re.M) and re.search(r"^metadata: \d+$", text, re.M)
    for t in gguf.GGUFReader(spm).tensors:
        assert re.search(rf"^  {re.escape(t.name)} +{t.tensor_type.name} +{' x '.join(map(str, t.shape.tolist()))} +\S", text, re.M)
    out = tmp_path / "out"
    assert good("inspect", "-m", spm, "-o", out) == b"" and out.read_text() == text


def test_inspect_ir(spm, tmp_path):
    out = tmp_path / "model.xml"
    assert good("inspect", spm, "--ir", "-o", out) == b""
    assert out.read_bytes() == good("inspect", "--ir", "-m", spm)
    assert out.read_text().startswith('<?xml version="1.0"?>') and "</net>" in out.read_text()


def test_failed_inspection_leaves_no_file(tmp_path):
    bad, out = tmp_path / "bad.gguf", tmp_path / "out"
    bad.write_bytes(b"GGUF")
    for more in ([], ["--ir"], ["--json"]):
        assert "bad.gguf" in refused("inspect", bad, "-o", out, *more, status=1)
        assert not out.exists()
