"""Things that broke servers for somebody: hostile constraints, recursive schemas, files with little in them."""
import json
import os
import random
import shutil
import socket
import time

import pytest

from cli_tools import tiny
from server_tools import Server

pytestmark = pytest.mark.sanitize


@pytest.fixture(scope="module")
def server():
    with Server(tiny("llama-head32"), "-c", "2048", "-np", "4", "--seed", "3") as s:
        yield s


DEEP = '{"type":"array","items":' * 10000 + "{}" + "}" * 10000
TREE = {"type": "object", "properties": {"value": {"type": "integer"}, "left": {"$ref": "#/$defs/node/anyOf/1"},
                                         "right": {"$ref": "#/$defs/node"}}, "required": ["value"],
        "additionalProperties": False}
TREE = {"$defs": {"node": {"anyOf": [{"type": "null"}, {**TREE}]}}, **{"$ref": "#/$defs/node/anyOf/1"}}


@pytest.mark.parametrize("body", [
    {"grammar": "root ::= " + "(" * 60000},
    {"grammar": 'root ::= "a" | nothing'},
    {"grammar": "root ::= root root"},
    {"json_schema": {"type": "string", "pattern": "^+[a-z]$"}},
    {"json_schema": {"type": "string", "pattern": "^{2}x$"}},
    {"json_schema": {"type": "string", "pattern": "(" * 5000}},
    {"json_schema": {"$ref": "#"}},
    {"json_schema": {"type": "hiccup"}},
    '{"prompt": "a", "n_predict": 4, "json_schema": ' + DEEP + "}",
    '{"prompt": "a", "n_predict": 4, "json_schema": ' + DEEP[:24 * 1500] + "{}" + "}" * 1500 + "}",
])
def test_constraints_that_are_none(server, body):
    start = time.time()
    if isinstance(body, str):
        status, _, a = server.request("POST", "/completion", raw=body.encode())
    else:
        status, _, a = server.post("/completion", {"prompt": "a", "n_predict": 4, **body})
    assert time.time() - start < 20
    assert status in (200, 400), a
    if "grammar" in body and "nothing" in body["grammar"]:
        assert status == 400
    assert server.ok("/completion", {"prompt": "a", "n_predict": 1})["stop"] is True


def obeys(node):
    return isinstance(node, dict) and isinstance(node["value"], int) and set(node) <= {"value", "left", "right"} and all(
        node.get(k) is None or obeys(node[k]) for k in ("left", "right"))


def test_a_recursive_schema_is_obeyed(server):
    for seed in range(4):
        a = server.ok("/completion", {"prompt": "tree", "n_predict": 200, "json_schema": TREE, "seed": seed,
                                      "temperature": 1.5})
        if a["stop_type"] == "eos":
            assert obeys(json.loads(a["content"])), a["content"]


def test_schemas_are_obeyed_in_streams_too(server):
    schema = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}, "b": {"type": "boolean"}}, "required": ["a", "b"],
              "additionalProperties": False}
    text = "".join(e["content"] for _, e in server.stream("/completion", {"prompt": "a", "n_predict": 60,
                                                                          "json_schema": schema}))
    assert set(json.loads(text)) == {"a", "b"}


def test_clients_that_leave_at_random(server):
    """At any time: before the answer, in it, with half a request. After all of it the server answers as before."""
    rng = random.Random(1)
    want = server.ok("/completion", {"prompt": "a b c", "n_predict": 20, "temperature": 0})["content"]
    for _ in range(60):
        body = json.dumps({"prompt": "a b " * rng.randrange(1, 200), "n_predict": rng.randrange(1, 400),
                           "stream": rng.random() < 0.7}).encode()
        head = f"POST /completion HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        data = head + body
        s = socket.create_connection(("127.0.0.1", server.port))
        s.sendall(data[: len(data) if rng.random() < 0.8 else rng.randrange(len(data))])
        if rng.random() < 0.5:
            s.settimeout(rng.random() * 0.05 + 0.001)
            try:
                s.recv(rng.randrange(1, 5000))
            except OSError:
                pass
        s.close()
    assert server.ok("/completion", {"prompt": "a b c", "n_predict": 20, "temperature": 0})["content"] == want
    end = time.time() + 10
    while any(x["is_processing"] for x in server.get("/slots")[2]) and time.time() < end:
        time.sleep(0.05)
    assert not any(x["is_processing"] for x in server.get("/slots")[2])


def test_malformed_requests(server):
    """Bytes of a good request changed at random; whatever comes back, the next good one is answered."""
    rng = random.Random(2)
    body = json.dumps({"prompt": "a", "n_predict": 1, "stop": ["b"], "logit_bias": [[1, 2.0]], "samplers": ["top_k"],
                       "messages": [{"role": "user", "content": "a"}]}).encode()
    for i in range(400):
        changed = bytearray(body)
        for _ in range(rng.randrange(1, 6)):
            changed[rng.randrange(len(changed))] = rng.choice(b'{}[]",:0123456789.-+eE\\ntfu\x00\xff')
        path = ("/completion", "/v1/chat/completions", "/v1/messages", "/tokenize", "/v1/responses")[i % 5]
        status, _, a = server.request("POST", path, raw=bytes(changed))
        assert status in (200, 400, 404, 500), (path, bytes(changed), a)
        assert status != 500 or "input is not supported" in json.dumps(a), (path, bytes(changed), a)
    assert server.ok("/completion", {"prompt": "a", "n_predict": 1})["stop"] is True


def test_disk_that_takes_nothing(tmp_path):
    """A slot can't be saved where there is no room; the slot is as it was, and the next try elsewhere works."""
    with Server(tiny("llama-head32"), "-c", "512", "-np", "1", "--slot-save-path", "/dev/full") as s:
        s.ok("/completion", {"prompt": "a b c", "n_predict": 4, "id_slot": 0})
        assert s.post("/slots/0?action=save", {"filename": "x"})[0] in (400, 500)
        assert s.ok("/completion", {"prompt": "a b c", "n_predict": 4, "id_slot": 0})["timings"]["cache_n"] > 0
    with Server(tiny("llama-head32"), "-c", "512", "-np", "1", "--slot-save-path", tmp_path) as s:
        s.ok("/completion", {"prompt": "a b c", "n_predict": 4, "id_slot": 0})
        saved = s.ok("/slots/0?action=save", {"filename": "x"})
        assert s.ok("/slots/0?action=erase", {})["n_erased"] == saved["n_saved"]
        assert s.ok("/slots/0?action=restore", {"filename": "x"})["n_restored"] == saved["n_saved"]
        assert s.ok("/completion", {"prompt": "a b c", "n_predict": 4, "id_slot": 0})["timings"]["prompt_n"] == 1
        for name in ("../x", "/etc/passwd", "", ".x", "a/b"):
            assert s.post("/slots/0?action=save", {"filename": name})[0] == 400
        assert s.post("/slots/7?action=save", {"filename": "x"})[0] == 400
        assert s.post("/slots/0?action=burn", {})[0] == 400
        (tmp_path / "bad").write_bytes(b"not a slot")
        status, _, a = s.post("/slots/0?action=restore", {"filename": "bad"})
        assert status == 400 and "bad" in a["error"]["message"]


def test_embeddings():
    with Server(tiny("llama-head32"), "-c", "512", "--embeddings", "--pooling", "mean") as s:
        a = s.ok("/v1/embeddings", {"input": ["a b", "c"]})
        assert [d["index"] for d in a["data"]] == [0, 1]
        v = a["data"][0]["embedding"]
        assert abs(sum(x * x for x in v) - 1) < 1e-3
        import base64
        import struct
        b = s.ok("/v1/embeddings", {"input": "a b", "encoding_format": "base64"})["data"][0]["embedding"]
        assert list(struct.unpack(f"<{len(v)}f", base64.b64decode(b))) == pytest.approx(v, abs=1e-6)
        assert s.ok("/embedding", {"content": "a b"})[0]["embedding"][0] == pytest.approx(v)
        assert s.post("/v1/embeddings", {"input": []})[0] == 400
        assert s.post("/v1/embeddings", {"input": "a", "encoding_format": "x"})[0] == 400
        assert s.post("/completion", {"prompt": "a"})[0] == 501


def test_embeddings_are_asked_for():
    with Server(tiny("llama-head32"), "-c", "512") as s:
        status, _, a = s.post("/v1/embeddings", {"input": "a"})
        assert status == 501 and "--embeddings" in a["error"]["message"]
        assert s.post("/v1/rerank", {"query": "a", "documents": ["b"]})[0] == 501


def test_infill():
    ids = {"pre": 10, "suf": 11, "mid": 12}
    keys = ",".join(f"tokenizer.ggml.fim_{k}_token_id=int:{v}" for k, v in ids.items())
    with Server(tiny("llama-head32"), "-c", "512", "-b", "128", "--override-kv", keys) as s:
        body = {"input_prefix": "a b", "input_suffix": " c", "prompt": "d", "n_predict": 4, "return_tokens": True}
        a = s.ok("/infill", body)
        pieces = [t["piece"] for t in s.ok("/tokenize", {"content": list(ids.values()), "with_pieces": True})["tokens"]]
        assert a["stop"] is True and len(a["tokens"]) <= 4
        at = [a["prompt"].find(str(p)) for p in pieces]
        assert at == sorted(at) or -1 in at
        for name in ("input_prefix", "input_suffix"):
            status, _, b = s.post("/infill", {k: v for k, v in body.items() if k != name})
            assert status == 400 and name in b["error"]["message"]
        assert s.post("/infill", {**body, "input_extra": "x"})[0] == 400
        assert s.post("/infill", {**body, "input_extra": [{"filename": "f"}]})[0] == 400
        more = s.ok("/infill", {**body, "input_extra": [{"filename": "f.py", "text": "x y"}]})
        assert more["tokens_evaluated"] > a["tokens_evaluated"]
    with Server(tiny("llama-head32"), "-c", "512") as s:
        status, _, a = s.post("/infill", body)
        assert status == 501 and "prefix token is missing" in a["error"]["message"]


def test_a_model_without_context_shift():
    """It is said once; texts end where the context does, as llama-server has it for models that can't shift."""
    with Server(tiny("mamba2"), "-c", "256", "-np", "1", "--context-shift") as s:
        a = s.ok("/completion", {"prompt": "a b c", "n_predict": 1000, "ignore_eos": True, "temperature": 0})
        assert a["truncated"] and a["stop_type"] == "limit" and a["tokens_predicted"] < 256
        assert "no --context-shift for" in s.read_log()


@pytest.mark.parametrize("left", [0, 4096, 20000])
def test_a_model_file_that_is_cut_while_it_is_read(tmp_path, left):
    """Steps follow one another without a pause, so that the cut comes in the middle of one. The stream ends with an error,
    others get one that names the file, and what needs no weights goes on."""
    path = tmp_path / "model.gguf"
    shutil.copy(tiny("llama-q4_0"), path)
    with Server(path, "-c", "512", "-np", "1", "--context-shift") as s:
        stream = s.stream("/completion", {"prompt": "a b c", "n_predict": 100000, "ignore_eos": True})
        for _ in range(30):
            next(stream)
        os.truncate(path, left)
        last = list(stream)[-1][1]
        assert "model.gguf" in last["error"]["message"], last
        status, _, a = s.post("/completion", {"prompt": "a", "n_predict": 1})
        assert status == 500 and "model.gguf" in a["error"]["message"], a
        assert s.ok("/tokenize", {"content": "a b"})["tokens"]
        assert s.get("/health")[0] == 200
        assert s.stop() == 0


@pytest.mark.parametrize("field", [
    {"dry_multiplier": 1, "dry_sequence_breakers": [f"b{i}" for i in range(50000)]},
    {"samplers": ["top_k"] * 100000},
    {"stop": [f"s{i}" for i in range(20000)]},
    {"logit_bias": [[f"hello {i}", 1] for i in range(20000)]},
    {"n": 1000000},
    {"n_probs": 1000000000},
    {"json_schema": {"type": "array", "items": {"type": "integer"}, "minItems": 1000000000}},
    {"json_schema": {"enum": [f"v{i}" for i in range(20000)]}},
    {"grammar": 'root ::= (("a"{1000}){1000}){1000}'},
], ids=lambda f: next(reversed(f)))
def test_more_of_it_than_anybody_needs(server, field):
    """Obeyed or refused, but in a bounded time."""
    start = time.time()
    assert server.post("/completion", {"prompt": "a", "n_predict": 2, **field}, timeout=30)[0] in (200, 400)
    assert time.time() - start < 20
    assert server.ok("/completion", {"prompt": "a", "n_predict": 1})["stop"] is True
