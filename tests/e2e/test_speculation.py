"""Guesses change the speed of a text, not the text: greedy or by lot, by looking up or by a draft model."""
import pytest

from cli_tools import run, tiny
from server_tools import Server

PROMPT = "one two three four five six seven one two three four five six seven one two three"
REQUESTS = [{"temperature": 0}, {"temperature": 0.8, "seed": 7}, {"temperature": 0, "stop": ["e"]},
            {"temperature": 0.8, "seed": 3, "grammar": 'root ::= ("ab" | "cde" | "f"){30}'}]


def answers(server):
    out = []
    for r in REQUESTS:
        status, _, a = server.post("/completion", {"prompt": PROMPT, "n_predict": 80, "ignore_eos": True, "cache_prompt": False,
                                                   "return_tokens": True, "speculative.n_max": 2, **r})
        assert status == 200, a
        out.append((a["content"], a["tokens"], a["timings"]))
    return out


@pytest.mark.parametrize("model,options", [
    ("llama", ("--spec-type", "ngram-simple")),
    ("qwen35", ("--spec-type", "ngram-simple")),
    ("llama", ("-md", "llama")),
], ids=["lookup", "lookup-recurrent", "draft"])
def test_the_same_text(model, options):
    common = ("-c", "1024", "-np", "1", "--precision", "f32", "-ctk", "f32", "-ctv", "f32")
    options = tuple(tiny(o) if o == "llama" else o for o in options)
    with Server(tiny(model), *common) as s:
        plain = answers(s)
    with Server(tiny(model), *common, *options) as s:
        guessed = answers(s)
        types = s.get("/props")[2]["default_generation_settings"]["params"]["speculative.types"]
    assert types == ("draft-simple" if "-md" in options else "ngram-simple")
    for (text, tokens, timings), (text_g, tokens_g, timings_g) in zip(plain, guessed):
        assert tokens == tokens_g
        assert text == text_g
        assert "draft_n" not in timings
        assert timings_g.get("draft_n_accepted", 0) <= timings_g.get("draft_n", 0)
    assert sum(t.get("draft_n_accepted", 0) for _, _, t in guessed) > 0


def test_a_draft_model_that_cannot_guess():
    done = run("serve", "-m", tiny("llama"), "-md", tiny("mamba2"), "--port", "0")
    assert done.returncode == 1
    assert b"recurrent layers" in done.stderr
