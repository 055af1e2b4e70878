"""Streams that can be read again and thoughts that are ended by hand: what llama.cpp's page asks its server for."""
import json
import re
import socket
import threading
import time
import urllib.request

import pytest

from cli_tools import tiny
from server_tools import Server

pytestmark = pytest.mark.sanitize
ID = "conv-1::org/model:Q8_0"
QUERY = "conv_id=conv-1%3A%3Aorg%2Fmodel%3AQ8_0"
LONG = {"prompt": "a b c", "n_predict": 300, "ignore_eos": True, "temperature": 0, "stream": True}


@pytest.fixture(scope="module")
def server():
    with Server(tiny("llama-head32"), "-c", "1024", "-np", "2", "--context-shift", "--chat-template", "chatml") as s:
        yield s


def start(server, body, id=ID, path="/completion", n=0):
    """Sends it and reads until there are n bytes of the stream; the socket is open."""
    data = json.dumps(body).encode()
    s = socket.create_connection(("127.0.0.1", server.port))
    s.settimeout(30)
    s.sendall(f"POST {path} HTTP/1.0\r\nX-Conversation-Id: {id}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data)
    got = b""
    while n and (b"\r\n\r\n" not in got or len(got.split(b"\r\n\r\n", 1)[1]) < n):
        got += s.recv(4096)
    return s


def read(server, at=0, query=QUERY):
    with urllib.request.urlopen(f"{server.url}/v1/stream?{query}&from={at}", timeout=60) as f:
        assert f.headers["Content-Type"] == "text/event-stream"
        return f.read()


def text(stream):
    return "".join(json.loads(x[6:])["content"] for x in stream.decode().split("\n\n") if x.startswith("data: "))


def look(server, *ids):
    return server.ok("/v1/streams/lookup", {"conversation_ids": ids * 3})  # each once, however often it is asked for


def idle(server):
    end = time.time() + 10
    while any(x["is_processing"] for x in server.get("/slots")[2]) and time.time() < end:
        time.sleep(0.02)
    return not any(x["is_processing"] for x in server.get("/slots")[2])


def test_a_stream_goes_on_without_its_client(server):
    want = "".join(e["content"] for _, e in server.stream("/completion", LONG))
    start(server, LONG, n=500).close()
    assert text(read(server)) == want  # also while it is being written
    whole = read(server)
    assert read(server, 100) == whole[100:] and read(server, len(whole)) == b""
    assert [s["is_done"] for s in look(server, "conv-1")] == [True]
    assert look(server, "conv-1") == look(server, ID) and look(server, "conv", "x", "", "conv-1::org") == []
    found = look(server, ID)[0]
    assert found["conversation_id"] == ID and found["total_bytes"] == len(whole)
    assert 0 <= found["completed_at"] - found["started_at"] < 60
    assert server.request("DELETE", f"/v1/stream?{QUERY}")[0] == 204
    assert server.get(f"/v1/stream?{QUERY}")[0] == 404
    assert server.request("DELETE", f"/v1/stream?{QUERY}")[0] == 204


def test_a_client_that_leaves_before_the_first_word(server):
    for _ in range(3):
        start(server, {**LONG, "prompt": "a b c " * 120, "n_predict": 5, "cache_prompt": False}).close()
        time.sleep(0.05)
    end = time.time() + 20
    while not any(s["is_done"] for s in look(server, ID)) and time.time() < end:
        time.sleep(0.02)
    assert read(server).count(b"data: ") >= 5


def test_a_stream_is_stopped(server):
    s = start(server, {**LONG, "n_predict": 100000}, n=500)
    assert server.request("DELETE", f"/v1/stream?{QUERY}")[0] == 204
    rest = b""
    while part := s.recv(65536):
        rest += part
    assert b'"error"' not in rest and idle(server)
    # Also one whose client has gone, and one that reads it.
    start(server, {**LONG, "n_predict": 100000}, n=500).close()
    out = []
    thread = threading.Thread(target=lambda: out.append(read(server)))
    thread.start()
    time.sleep(0.2)
    assert server.request("DELETE", f"/v1/stream?{QUERY}")[0] == 204
    thread.join(20)
    assert out and out[0].startswith(b"data: ") and idle(server)


def test_a_new_stream_takes_the_place_of_the_one_before(server):
    start(server, {**LONG, "n_predict": 100000}, n=500).close()
    start(server, {**LONG, "n_predict": 4}, n=100).close()
    assert read(server).count(b'"stop":false') == 4
    assert len(look(server, ID)) == 1 and idle(server)


def test_what_keeps_no_stream(server):
    server.request("DELETE", f"/v1/stream?{QUERY}")
    start(server, {**LONG, "top_k": "x"}, n=0).close()
    server.ok("/completion", {"prompt": "a", "n_predict": 1}, headers={"X-Conversation-Id": ID})
    start(server, LONG, id="x" * 2000, n=300).close()
    assert look(server, ID, "x" * 2000) == [] and idle(server)
    assert server.get("/v1/stream")[0] == 400 and server.request("DELETE", "/v1/stream")[0] == 400
    assert server.get("/v1/stream?conv_id=none")[0] == 404
    for at in ("x", "-1", "1x", "99999999999999999999999"):
        assert server.get(f"/v1/stream?conv_id=none&from={at}")[0] == 400
    assert server.post("/v1/streams/lookup", {"conversation_ids": [1, None, {}]})[2] == []
    assert server.post("/v1/streams/lookup", {})[2] == []
    assert server.request("POST", "/v1/streams/lookup", raw=b"[")[0] == 400


def test_many_streams(server):
    """The oldest go; and the end of the server doesn't wait for readers or for those without a client."""
    for i in range(80):
        start(server, {**LONG, "n_predict": 1}, id=f"many-{i}", n=10).close()
    kept = [len(look(server, f"many-{i}")) for i in range(80)]
    assert kept == sorted(kept) and 8 <= sum(kept) <= 64
    with Server(tiny("llama-head32"), "-c", "1024", "-np", "1", "--grace", "0", "--context-shift") as s:
        start(s, {**LONG, "n_predict": 60000}, n=100).close()
        thread = threading.Thread(target=lambda: read(s))
        thread.start()
        time.sleep(0.2)
        assert s.stop() == 0
        thread.join(20)


# ---- thoughts ----
THINKS = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}")


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    template = tmp_path_factory.mktemp("template") / "t.jinja"
    template.write_text(THINKS)
    with Server(tiny("llama-head32"), "-c", "1024", "-np", "2", "--context-shift", "--chat-template-file", template, "--jinja") as s:
        yield s


def control(server, **body):
    return server.post("/v1/chat/completions/control", body)


def test_thoughts_are_ended(thinker):
    body = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 100000, "reasoning_control": True,
            "logit_bias": [["</think>", False]], "ignore_eos": True, "temperature": 0}
    thoughts, words, ended = 0, 0, None
    stream = thinker.stream("/v1/chat/completions", body)
    for _, e in stream:
        for choice in e["choices"]:
            thoughts += len(choice["delta"].get("reasoning_content") or "")
            words += len(choice["delta"].get("content") or "")
        if thoughts > 5 and ended is None:
            ended = control(thinker, id=e["id"], action="reasoning_end")
        if words > thoughts:
            break
    stream.close()
    assert ended[0] == 200 and ended[2] == {"success": True}
    assert words > thoughts > 5
    assert idle(thinker)
    assert control(thinker, id=e["id"], action="reasoning_end")[2] == {
        "success": False, "message": "no active completion for this id"}


def test_controls_that_are_none(thinker):
    assert control(thinker)[0] == 400
    assert control(thinker, id="x", action="burn")[0] == 400
    assert control(thinker, id=1, action="reasoning_end")[0] == 400
    stream = thinker.stream("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 500,
                                                     "ignore_eos": True})
    _, e = next(stream)
    status, _, a = control(thinker, id=e["id"], action="reasoning_end")
    assert status == 200 and a == {"success": False, "message": "reasoning control not enabled for this completion"}
    stream.close()
    assert re.match("chatcmpl-", e["id"])
