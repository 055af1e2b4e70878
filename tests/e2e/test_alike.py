"""A request's tokens and their probabilities are the same to the last bit alone, among others and with guesses."""
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cli_tools import ROOT, tiny
from server_tools import Server

SMOLLM2 = Path(os.environ.get("GRAPPA_MODELS") or ROOT / ".models") / "SmolLM2-135M-Instruct.Q4_1.gguf"
WORDS = ["king", "cat", "ship", "tree", "girl", "wolf", "star", "cook", "monk"]


def written(server, word):
    a = server.ok("/completion", {"prompt": f"one two three {word} four five one two three {word} four", "n_predict": 40,
                                  "temperature": 0, "ignore_eos": True, "n_probs": 1, "cache_prompt": False,
                                  "return_tokens": True})
    return a["tokens"], [p["logprob"] for p in a["completion_probabilities"]], a["timings"].get("draft_n_accepted", 0)


@pytest.mark.parametrize("model", ["llama-q4_0", "llama-q4_k", "llama-q6_k", "llama-q8_0", "qwen2-q4_1", "qwen2moe-q4_k",
                                   "gpt-oss-mxfp4", SMOLLM2], ids=lambda m: getattr(m, "name", m))
def test_alone_among_others_and_guessed(model):
    if model == SMOLLM2 and not model.exists():
        pytest.skip("SmolLM2 is not in .models")
    common = (model if model == SMOLLM2 else tiny(model), "-c", "4096", "-np", "9")
    with Server(*common) as s:
        alone = [written(s, w) for w in WORDS]
        with ThreadPoolExecutor(len(WORDS)) as pool:
            assert list(pool.map(lambda w: written(s, w), WORDS)) == alone
    with Server(*common, "--spec-type", "ngram-simple") as s:
        guessed = [written(s, w) for w in WORDS]
    assert [g[:2] for g in guessed] == [a[:2] for a in alone]
    assert sum(g[2] for g in guessed) > 0
