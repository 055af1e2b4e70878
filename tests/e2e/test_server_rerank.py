"""Reranking: scores as llama-server's (tests/golden/rerank), both forms of the answer, what is refused."""
import json
import sys

import pytest

from cli_tools import EXACT, ROOT, tiny
from server_tools import Server

sys.path.insert(0, str(ROOT / "tests" / "tools"))
import tiny_models  # noqa: E402

CASES = json.loads((ROOT / "tests" / "golden" / "rerank" / "llama.json").read_text())["cases"]
MODELS = sorted({c["model"] for c in CASES})
ASKED = {"query": "the cat sat", "documents": ["on the mat", "a dog ran to the park", "one two three"]}


@pytest.fixture(scope="module")
def server():
    with Server(tiny("qwen3-rerank"), "-c", "1024", "--reranking", "--alias", "ranker") as s:
        yield s


# A prompt in one piece, and in several.
@pytest.mark.parametrize("batch", [512, 16])
@pytest.mark.parametrize("name", MODELS)
def test_scores(name, batch):
    with Server(tiny(name), "-c", "2048", "-np", "4", "-b", batch, "--rerank", *EXACT) as s:
        for case in (c for c in CASES if c["model"] == name):
            assert tiny_models.digest(tiny(name)) == case["tensors"]
            a = s.ok("/v1/rerank", {"query": case["query"], "documents": case["documents"]})
            want = case["scores"]
            got = {r["index"]: r["relevance_score"] for r in a["results"]}
            assert sorted(got) == list(range(len(want)))
            error = sum((got[i] - w) ** 2 for i, w in enumerate(want)) / sum(w * w for w in want)
            assert error <= 1e-6, (case["query"], got, want)
            assert a["usage"] == {"prompt_tokens": case["tokens"], "total_tokens": case["tokens"]}


@pytest.mark.sanitize
def test_forms_of_the_answer(server):
    a = server.ok("/v1/rerank", ASKED)
    assert (a["object"], a["model"]) == ("list", "ranker")
    scores = [r["relevance_score"] for r in a["results"]]
    assert scores == sorted(scores, reverse=True) and len(scores) == 3
    assert all(set(r) == {"index", "relevance_score"} for r in a["results"])
    for path in ("/rerank", "/reranking", "/v1/reranking"):
        assert server.ok(path, {**ASKED, "model": "mine"}) == {**a, "model": "mine"}
    tei = {"query": ASKED["query"], "texts": ASKED["documents"]}
    best = a["results"][0]
    assert server.ok("/rerank", {**tei, "top_n": 1}) == [{"index": best["index"], "score": best["relevance_score"]}]
    with_text = server.ok("/rerank", {**tei, "return_text": True})
    assert [r["text"] for r in with_text] == [ASKED["documents"][r["index"]] for r in with_text]
    for top_n, n in ((0, 0), (2, 2), (99, 3)):
        assert len(server.ok("/rerank", {**ASKED, "top_n": top_n})["results"]) == n


def test_texts_stay_in_their_places(server):
    """What looks like a place of the template inside of the query is text."""
    body = {"query": "a {document} b", "documents": ["c"]}
    longer = {**body, "documents": ["c" * 40]}
    n = [server.ok("/rerank", b)["usage"]["total_tokens"] for b in (body, longer)]
    assert n[1] - n[0] == 39


@pytest.mark.parametrize("absent", ["query", "documents"])
def test_what_is_absent(server, absent):
    status, _, a = server.post("/v1/rerank", {k: v for k, v in ASKED.items() if k != absent})
    assert status == 400 and absent in a["error"]["message"], a


@pytest.mark.sanitize
@pytest.mark.parametrize("change, named", [({"query": None}, "query"), ({"query": 1}, "query"),
                                           ({"documents": None}, "documents"), ({"documents": []}, "documents"),
                                           ({"documents": 123}, "documents"), ({"documents": [1, 2]}, "documents"),
                                           ({"documents": ["a", None]}, "documents"), ({"documents": ["a"] * 1025}, "documents"),
                                           ({"top_n": -1}, "top_n"), ({"top_n": "x"}, "top_n"),
                                           ({"query": "a " * 3000}, "context size")])  # fmt: skip
def test_what_is_refused(server, change, named):
    status, _, a = server.post("/v1/rerank", {**ASKED, **change})
    assert status == 400 and named in a["error"]["message"], a
    server.ok("/rerank", ASKED)


def test_it_is_asked_for():
    for model, args, why in (("qwen3-rerank", [], "--reranking"), ("qwen3-rerank", ["--embeddings"], "--reranking"),
                             ("qwen3", ["--reranking"], "This model does not support reranking")):
        with Server(tiny(model), "-c", "512", *args) as s:
            status, _, a = s.post("/v1/rerank", ASKED)
            assert status == 501 and why in a["error"]["message"]
            assert a["error"]["type"] == "not_supported_error"


def test_head_of_another_shape(tmp_path):
    class Odd(tiny_models.Reranker):
        def tensors(self):
            yield from tiny_models.Model.tensors(self)
            yield self.matrix("cls.output.weight", self.labels + 1, self.dim)

    path = tmp_path / "odd.gguf"
    Odd("odd", "qwen3", 1, pre="qwen2", tied=True, head=32).write(path)
    with pytest.raises(RuntimeError, match=r"cls.output.weight is \[64, 3\]; it must be \[64, 2\]"):
        with Server(path, "-c", "512", "--reranking"):
            pass
    with Server(path, "-c", "512") as s:
        s.ok("/completion", {"prompt": "a", "n_predict": 1})
