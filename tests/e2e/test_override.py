"""--override-kv: what a file says, said otherwise. The same change made by an option that llama.cpp has for it, or in
the file itself, must give the same logits."""
import pytest
from cli_tools import EXACT, good, refused, run, tiny

gguf = pytest.importorskip("gguf")
np = pytest.importorskip("numpy")
IDS = ",".join(str(3 + 7 * i % 300) for i in range(40))


@pytest.fixture(scope="module")
def model():
    return tiny("llama")


def logits(model, *options):
    raw = good("logits", "-m", model, "--ids", IDS, "-o", "-", *EXACT, *options)
    return np.frombuffer(raw, np.float32)


@pytest.mark.sanitize
def test_override_equals_the_option_for_it(model):
    plain = logits(model)
    changed = logits(model, "--override-kv", "llama.rope.freq_base=float:500000")
    assert np.abs(changed - plain).max() > 0.05
    assert np.array_equal(changed, logits(model, "--rope-freq-base", "500000"))
    assert np.array_equal(plain, logits(model, "--override-kv", "llama.rope.freq_base=int:10000"))


def test_added_keys_equal_those_of_a_file(model):
    """llama-linear differs from llama in its weights and in two keys; without them it is the file with them gone."""
    linear = tiny("llama-linear")
    plain = logits(linear, "--override-kv", "llama.rope.scaling.type=str:none")
    assert np.abs(plain - logits(linear)).max() > 0.01
    assert np.array_equal(plain, logits(linear, "--rope-scaling", "none"))
    added = ["llama.rope.scaling.type=str:linear", "llama.rope.scaling.factor=float:4"]
    several = logits(model, "--override-kv", ",".join(added))
    assert np.array_equal(several, logits(model, "--override-kv", added[0], "--override-kv", added[1]))
    assert np.array_equal(several, logits(model, "--rope-scaling", "linear", "--rope-scale", "4"))
    assert np.abs(several - logits(model)).max() > 0.01


def test_vocabulary_follows(model):
    words = ["run", "-m", model, "-p", "the cat", "-n", "1", "--temp", "0", "--verbose-prompt"]
    assert b"1 -> '<s>'" in run(*words).stderr
    assert b"<s>" not in run(*words, "--override-kv", "tokenizer.ggml.add_bos_token=bool:false").stderr


def test_wrong_overrides_are_named(model):
    words = ["logits", "-m", model, "--ids", "1", "-o", "-", "--override-kv"]
    assert refused(*words, "llama.rope.freq_base=float:x") == (
        "override 'llama.rope.freq_base=float:x': not a finite number")
    assert refused(*words, "llama.rope.freq_base") == "override 'llama.rope.freq_base': must be KEY=TYPE:VALUE"
    # Values of the right form that the model can't have: what a file with them would be told.
    line = refused(*words, "llama.block_count=int:3", status=1)
    assert "llama.gguf" in line and "blk.2.attn_norm.weight is missing" in line
    line = refused(*words, "llama.block_count=str:two", status=1)
    assert "llama.gguf" in line and "'llama.block_count' is of type string" in line
    line = refused(*words, "general.architecture=str:perceptron", status=1)
    assert 'architecture "perceptron"' in line and "llama" in line
