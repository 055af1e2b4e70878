"""Guesses change the speed of a text, not the text: greedy or by lot, by looking up or by a draft model."""
import re

import pytest

from cli_tools import run, tiny
from server_tools import Server

PROMPT = "one two three four five six seven one two three four five six seven one two three"
F32 = ["--precision", "f32", "-ctk", "f32", "-ctv", "f32"]
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
    ("qwen35-right", ("--spec-type", "draft-mtp")),
    ("qwen35moe-mtp", ("--spec-type", "draft-mtp")),
], ids=["lookup", "lookup-recurrent", "draft", "mtp-right", "mtp-wrong"])
def test_the_same_text(model, options):
    common = ("-c", "1024", "-np", "1", *F32)
    options = tuple(tiny(o) if o == "llama" else o for o in options)
    with Server(tiny(model), *common) as s:
        plain = answers(s)
    with Server(tiny(model), *common, *options) as s:
        guessed = answers(s)
        types = s.get("/props")[2]["default_generation_settings"]["params"]["speculative.types"]
    assert types == ("draft-simple" if "-md" in options else options[1])
    for (text, tokens, timings), (text_g, tokens_g, timings_g) in zip(plain, guessed):
        assert tokens == tokens_g
        assert text == text_g
        assert "draft_n" not in timings
        assert timings_g.get("draft_n_accepted", 0) <= timings_g.get("draft_n", 0)
    assert sum(t.get("draft_n_accepted", 0) for _, _, t in guessed) > 0 or model == "qwen35moe-mtp"  # whose guesses are random


@pytest.mark.sanitize
@pytest.mark.parametrize("words", [("--temp", "0"), ("--temp", "0.8", "-s", "7"), ("--temp", "0", "-r", "e"),
                                   ("--temp", "0", "--grammar", 'root ::= ("ab" | "cde" | "f"){30}')],
                         ids=["greedy", "seeded", "reverse-prompt", "grammar"])
@pytest.mark.parametrize("options", [("--spec-type", "ngram-simple"), ("-md", "llama")], ids=["lookup", "draft"])
def test_run_writes_the_same_text(options, words):
    common = ["run", "-m", tiny("llama"), "-p", PROMPT, "-n", "80", "-c", "1024", "--ignore-eos", "--perf", *F32, *words]
    options = [tiny(o) if o == "llama" else o for o in options]
    plain, guessed = run(*common), run(*common, *options, "--spec-draft-n-max", "2")
    assert (plain.returncode, guessed.returncode) == (0, 0), guessed.stderr
    assert plain.stdout == guessed.stdout
    assert b"draft acceptance" not in plain.stderr
    counts = re.search(rb"draft acceptance = ([\d.]+) \( *(\d+) accepted / *(\d+) generated\)", guessed.stderr)
    if counts:
        assert 0 <= int(counts[2]) <= int(counts[3]) and abs(float(counts[1]) - int(counts[2]) / int(counts[3])) < 1e-4
    else:
        assert words != ("--temp", "0")  # others may find nothing worth a guess, on a busy machine


def test_chat_guesses_in_every_turn():
    words = ["run", "-m", tiny("qwen2"), "-n", "40", "-c", "1024", "--temp", "0", "--ignore-eos", "--perf", *F32]
    talk = b"one two three one two three\none two three one two three\n/regen\n"
    plain, guessed = run(*words, stdin=talk), run(*words, "--spec-type", "ngram-simple", stdin=talk)
    assert plain.returncode == 0 and plain.stdout == guessed.stdout
    assert b"draft acceptance" in guessed.stderr


def test_a_draft_model_that_cannot_guess():
    for command in (["serve", "--port", "0"], ["run", "-p", "the cat"]):
        done = run(*command, "-m", tiny("llama"), "-md", tiny("mamba2"))
        assert (done.returncode, done.stdout) == (1, b"")
        assert b"recurrent layers" in done.stderr
