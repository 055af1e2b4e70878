"""What is not a model's: keys, limits, clients that leave, signals, TLS, several models, sleep."""
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import pytest

from cli_tools import refused, tiny
from server_tools import Server

TINY = "llama-head32"


@pytest.fixture(scope="module")
def server():
    with Server(tiny(TINY), "-c", "8192", "-np", "1", "--api-key", "one,two", "--max-body", "1", "--log-format",
                "json") as s:
        yield s


def key(k="one"):
    return {"Authorization": f"Bearer {k}"}


def slots(server):
    return server.get("/slots", headers=key())[2]


def wait_until(what, seconds=20):
    end = time.time() + seconds
    while time.time() < end:
        if what():
            return True
        time.sleep(0.02)
    return False


def raw(server, data, timeout=20):
    """What comes back for these bytes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout) as s:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        out = b""
        while True:
            part = s.recv(65536)
            if not part:
                return out
            out += part


def post(path, body, more=""):
    data = json.dumps(body).encode()
    return (f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer one\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n{more}\r\n").encode() + data


# ---- keys ----
@pytest.mark.parametrize("headers", [{}, key("three"), key("onetwo"), key("on"), key(""), {"X-Api-Key": "thre"}])
def test_wrong_keys(server, headers):
    status, _, a = server.post("/tokenize", {"content": "a"}, headers=headers)
    assert status == 401
    assert a["error"] == {"code": 401, "message": "Invalid API Key", "type": "authentication_error"}


@pytest.mark.parametrize("headers", [key(), key("two"), {"X-Api-Key": "two"}, {"Authorization": "one"}])
def test_right_keys(server, headers):
    assert server.post("/tokenize", {"content": "a"}, headers=headers)[0] == 200


def test_open_paths(server):
    assert server.get("/health")[0] == 200
    status, headers, page = server.get("/", headers={"Accept-Encoding": "gzip"})
    assert status == 200 and headers["Content-Type"].startswith("text/html")
    assert server.get("/nothing/here", headers=key())[0] == 404


def test_key_file(tmp_path):
    (tmp_path / "keys").write_text("# a comment\n\nfirst\nsecond\r\n")
    with Server(tiny(TINY), "-c", "256", "--api-key-file", tmp_path / "keys") as s:
        assert [s.get("/props", headers=key(k))[0] for k in ("first", "second", "# a comment", "")] == [200, 200, 401, 401]
    (tmp_path / "keys").write_text("# nothing\n")
    assert "no key" in refused("serve", "-m", tiny(TINY), "--api-key-file", tmp_path / "keys")


# ---- origins ----
def test_origins(server):
    _, headers, _ = server.get("/health", headers={"Origin": "http://a.b"})
    assert headers["Access-Control-Allow-Origin"] == "http://a.b"
    status, headers, _ = server.request("OPTIONS", "/completions", headers={"Origin": "http://a.b"})
    assert status == 200 and headers["Access-Control-Allow-Credentials"] == "true"
    assert headers["Access-Control-Allow-Methods"] == "GET, POST, DELETE, OPTIONS"


def test_local_origins_only():
    with Server(tiny(TINY), "-c", "256", "--cors-origins", "localhost") as s:
        def allowed(origin):
            return s.get("/health", headers={"Origin": origin})[1].get("Access-Control-Allow-Origin")

        for origin in ("http://localhost", "http://127.0.0.1:3000", "https://[::1]:1"):
            assert allowed(origin) == origin
        for origin in ("http://example.com", "http://localhost.example.com", "http://notlocalhost", "null"):
            assert allowed(origin) is None


# ---- limits and bad bytes ----
def test_large_bodies_are_refused(server):
    status, _, a = server.request("POST", "/tokenize", raw=b'{"content": "' + b"a" * (1 << 20) + b'"}', headers=key())
    assert status == 413
    head = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), 10) as s:
        s.sendall(head)
        assert b" 413 " in s.recv(4096)
    chunked = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer one\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"10000\r\n" + b"a" * 0x10000 + b"\r\n"
    assert b" 413 " in raw(server, chunked + chunk * 20 + b"0\r\n\r\n")
    assert server.get("/health")[0] == 200


def test_long_headers_are_refused(server):
    answer = raw(server, b"GET /health HTTP/1.1\r\nHost: a\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n")
    assert not answer or re.match(rb"HTTP/1.1 4\d\d", answer)
    assert server.get("/health")[0] == 200


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"1", b'"a"', b"null", b"\xff\xfe", b'{"content": "\xff"}',
                                  b'{"a":' * 100000, b"[" * 100000, b'{"content": 1e999}', b"\x00" * 100,
                                  b'{"content": {"a": {"b": []}}}', b'{"content": [["a"]]}'])
def test_bodies_that_are_none(server, body):
    for path in ("/tokenize", "/completion", "/v1/chat/completions", "/v1/messages", "/v1/responses", "/apply-template"):
        status, _, a = server.request("POST", path, raw=body, headers=key())
        assert status in (400, 404), (path, a)
        assert a["error"]["message"]
    assert server.get("/health")[0] == 200


@pytest.mark.parametrize("data", [b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01",
                                  b"POST /tokenize HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
                                  b"POST /tokenize HTTP/1.1\r\nContent-Length: 10\r\n\r\n{}",
                                  b"GET /../../etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n",
                                  b"GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\nHost: a\r\n\r\n"])
def test_bytes_that_are_no_request(server, data):
    assert b"root:" not in raw(server, data)
    assert server.get("/health")[0] == 200


# ---- forms of a request ----
GOOD = json.dumps({"content": "a b"}).encode()


def answers(data):
    """(status, body) of each answer among the bytes."""
    out = []
    while data:
        head, _, data = data.partition(b"\r\n\r\n")
        status = int(head.split()[1])
        n = 0 if status == 100 else int(re.search(rb"content-length: (\d+)", head, re.I)[1])
        out.append((status, data[:n]))
        data = data[n:]
    return out


def test_bodies_in_chunks(server):
    head = b"POST /tokenize HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer one\r\nTransfer-Encoding: chunked\r\n\r\n"
    whole = raw(server, post("/tokenize", json.loads(GOOD)))
    for size in (1, 3, len(GOOD)):
        chunks = b"".join(b"%x\r\n%b\r\n" % (len(GOOD[i:i + size]), GOOD[i:i + size]) for i in range(0, len(GOOD), size))
        assert answers(raw(server, head + chunks + b"0\r\n\r\n")) == answers(whole)
        assert answers(raw(server, head + chunks + b"0\r\nX: y\r\n\r\n")) == answers(whole)


def test_clients_that_ask_first(server):
    with socket.create_connection(("127.0.0.1", server.port), 10) as s:
        s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer one\r\nExpect: 100-continue\r\n"
                  b"Content-Length: %d\r\n\r\n" % len(GOOD))
        assert s.recv(1000).startswith(b"HTTP/1.1 100 Continue\r\n")
        s.sendall(GOOD)
        assert b"tokens" in s.recv(4096)


def test_several_requests_on_a_connection(server):
    one = post("/tokenize", json.loads(GOOD))
    assert [a[0] for a in answers(raw(server, one * 5))] == [200] * 5
    bad = post("/tokenize", [])
    wrong = one.replace(b"Bearer one", b"Bearer two ")
    assert [a[0] for a in answers(raw(server, one + bad + wrong + one))] == [200, 400, 401, 200]
    close = post("/tokenize", json.loads(GOOD), "Connection: close\r\n")
    assert [a[0] for a in answers(raw(server, close + one))] == [200]
    old = raw(server, one.replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert [a[0] for a in answers(old)] == [200]


def test_streams_for_old_clients(server):
    """HTTP/1.0 knows no chunks: the connection's end is the stream's."""
    data = b""
    with socket.create_connection(("127.0.0.1", server.port), 20) as s:
        s.sendall(post("/completion", {"prompt": "a", "n_predict": 3, "ignore_eos": True, "stream": True}).replace(
            b"HTTP/1.1", b"HTTP/1.0"))
        while part := s.recv(65536):
            data += part
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"chunked" not in head and body.startswith(b"data: ") and b'"stop":true' in body


def test_compressed_bodies_are_none(server):
    import gzip
    body = gzip.compress(GOOD)
    status, _, a = server.request("POST", "/tokenize", raw=body, headers={**key(), "Content-Encoding": "gzip"})
    assert status == 400 and "JSON" in a["error"]["message"]


# ---- clients that leave ----
LONG = {"prompt": "a b c", "n_predict": 6000, "ignore_eos": True}


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_slot(server, stream):
    s = socket.create_connection(("127.0.0.1", server.port))
    s.sendall(post("/completion", {**LONG, "stream": stream}))
    assert wait_until(lambda: slots(server)[0]["is_processing"])
    s.close()
    assert wait_until(lambda: not slots(server)[0]["is_processing"], 5)


def test_one_who_waits_and_leaves_disturbs_nobody(server):
    first = {}

    def run():
        first["answer"] = server.ok("/completion", {**LONG, "n_predict": 400}, headers=key())

    thread = threading.Thread(target=run)
    thread.start()
    assert wait_until(lambda: slots(server)[0]["is_processing"])
    waiting = socket.create_connection(("127.0.0.1", server.port))
    waiting.sendall(post("/completion", LONG))
    time.sleep(0.1)
    waiting.close()
    thread.join(60)
    assert first["answer"]["tokens_predicted"] == 400
    assert wait_until(lambda: not slots(server)[0]["is_processing"], 5)
    assert server.ok("/completion", {"prompt": "a", "n_predict": 1}, headers=key())["stop"] is True


def test_a_client_that_does_not_read(server):
    s = socket.create_connection(("127.0.0.1", server.port))
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    s.sendall(post("/completion", {**LONG, "n_predict": 3000, "stream": True, "n_probs": 5}))
    assert wait_until(lambda: slots(server)[0]["is_processing"])
    # It holds no slot for longer than its text takes.
    assert wait_until(lambda: not slots(server)[0]["is_processing"], 60)
    s.close()
    assert server.get("/health")[0] == 200


def test_log_lines(server):
    def lines():
        return [json.loads(x) for x in server.read_log().splitlines() if x.startswith("{") and x.endswith("}")]

    before = len(lines())
    server.ok("/completion", {"prompt": "a b", "n_predict": 2, "ignore_eos": True}, headers=key())
    assert wait_until(lambda: len(lines()) > before)
    line = [x for x in lines() if x["path"] == "/completion" and x["status"] == 200][-1]
    assert line["completion_tokens"] == 2 and line["prompt_tokens"] > 0 and line["ms"] > 0
    assert len({x["id"] for x in lines()}) == len(lines())


# ---- signals ----
def test_sigterm_lets_what_runs_end():
    with Server(tiny(TINY), "-c", "4096", "--grace", "30") as s:
        answers = []
        thread = threading.Thread(target=lambda: answers.append(s.post("/completion", {**LONG, "n_predict": 500})))
        thread.start()
        assert wait_until(lambda: any(x["is_processing"] for x in s.get("/slots")[2]))
        assert s.stop(signal.SIGTERM) == 0
        thread.join(30)
        assert answers[0][0] == 200 and answers[0][2]["tokens_predicted"] == 500


def test_sigterm_ends_what_takes_too_long():
    with Server(tiny(TINY), "-c", "65536", "--grace", "0") as s:
        answers = []

        def run():
            try:
                answers.append(s.post("/completion", {**LONG, "n_predict": 60000})[0])
            except OSError:
                answers.append(None)

        threads = [threading.Thread(target=run) for _ in range(6)]  # more than there are slots
        for t in threads:
            t.start()
        assert wait_until(lambda: any(x["is_processing"] for x in s.get("/slots")[2]))
        start = time.time()
        assert s.stop(signal.SIGTERM) == 0
        assert time.time() - start < 20
        for t in threads:
            t.join(30)
        assert set(answers) <= {503, None}


# ---- other ways in ----
def test_tls(tmp_path):
    made = subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", tmp_path / "key", "-out",
                           tmp_path / "cert", "-days", "2", "-subj", "/CN=localhost", "-addext",
                           "subjectAltName=IP:127.0.0.1"], capture_output=True)
    if made.returncode:
        pytest.skip("openssl is not there")
    with Server(tiny(TINY), "-c", "256", "--ssl-key-file", tmp_path / "key", "--ssl-cert-file", tmp_path / "cert") as s:
        context = ssl.create_default_context(cafile=tmp_path / "cert")
        request = urllib.request.Request(s.url + "/completion", data=b'{"prompt": "a", "n_predict": 1}')
        with urllib.request.urlopen(request, context=context, timeout=20) as f:
            assert json.load(f)["stop"] is True
    assert "TLS" in refused("serve", "-m", tiny(TINY), "--port", "0", "--ssl-key-file", tmp_path / "key")


def test_local_socket(tmp_path):
    path = tmp_path / "s.sock"
    with Server(tiny(TINY), "-c", "256", "--host", f"{path},127.0.0.1") as s:
        with socket.socket(socket.AF_UNIX) as c:
            c.connect(str(path))
            c.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            assert c.recv(100).startswith(b"HTTP/1.")
        assert s.get("/health")[0] == 200


def test_ports_that_are_taken(server):
    error = refused("serve", "-m", tiny(TINY), "--port", str(server.port), status=1)
    assert str(server.port) in error and "in use" in error


def test_prefix_and_files(tmp_path):
    (tmp_path / "index.html").write_text("<!doctype html>mine")
    (tmp_path / "a.js").write_text("1")
    with Server(tiny(TINY), "-c", "256", "--api-prefix", "/x", "--path", tmp_path) as s:
        assert s.get("/x/health")[0] == 200 and s.get("/health")[0] == 404
        assert s.get("/x/")[2] == "<!doctype html>mine"
        status, headers, _ = s.get("/x/a.js")
        assert status == 200 and headers["Content-Type"].startswith("text/javascript")
        assert s.get("/x/b.js")[0] == 404


# ---- models ----
@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    dir = tmp_path_factory.mktemp("models")
    for name in ("one", "two", "three"):
        shutil.copy(tiny(TINY), dir / f"{name}.gguf")
    (dir / "mmproj-one.gguf").write_bytes(b"x")
    (dir / "broken.gguf").write_bytes(b"GGUF")
    return dir


def test_folder_of_models(folder):
    with Server(None, "--models-dir", folder, "--models-max", "2", "-c", "512", "-np", "2") as s:
        ids = [m["id"] for m in s.get("/v1/models")[2]["data"]]
        assert ids == ["broken", "one", "three", "two"]

        def loaded():
            return {m["id"] for m in s.get("/v1/models")[2]["data"] if m["status"]["value"] == "loaded"}

        assert loaded() == set()
        for name in ("one", "two", "three"):
            a = s.ok("/v1/completions", {"model": name, "prompt": "a", "max_tokens": 2})
            assert a["model"] == name
        assert loaded() == {"two", "three"}
        status, _, a = s.post("/v1/completions", {"model": "four", "prompt": "a"})
        assert status == 404 and "four" in a["error"]["message"]
        assert s.post("/v1/completions", {"prompt": "a"})[0] == 400
        assert s.post("/v1/completions", {"model": 1, "prompt": "a"})[0] == 400
        status, _, a = s.post("/v1/completions", {"model": "broken", "prompt": "a"})
        assert status == 500 and "broken.gguf" in a["error"]["message"]
        assert loaded() == {"three"}  # another had to go for the one that then could not be read
        assert s.ok("/models/load", {"model": "one"}) == {"success": True}
        assert loaded() == {"one", "three"}
        assert s.ok("/models/unload", {"model": "three"}) == {"success": True}
        assert loaded() == {"one"}
        assert s.get("/props?model=one")[2]["total_slots"] == 2


def test_models_at_once_in_one_process(folder):
    with Server(None, "--models-dir", folder, "--models-max", "3", "-c", "512", "-np", "2") as s:
        alone = s.ok("/completion", {"model": "one", "prompt": "a b c", "n_predict": 16, "temperature": 0})["content"]
        out = []
        threads = [threading.Thread(target=lambda n=n: out.append(
            s.ok("/completion", {"model": n, "prompt": "a b c", "n_predict": 16, "temperature": 0})["content"]))
            for n in ("one", "two", "three") * 3]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert out == [alone] * 9


def test_sleep():
    """What is asked of a model tells by itself whether it slept; the machine may stop for any time in between."""
    with Server(tiny(TINY), "-c", "512", "--sleep-idle-seconds", "1", "--metrics", "--context-shift") as s:
        def loads():
            return s.read_log().count(" is ready after ")

        def asleep():
            return s.get("/props")[2]["is_sleeping"]

        stream = s.stream("/completion", {"prompt": "a b", "n_predict": 100000, "ignore_eos": True})
        end = time.time() + 1.5
        while time.time() < end:
            next(stream)
        assert not asleep() and loads() == 1  # somebody uses it
        stream.close()
        assert wait_until(asleep)
        before = s.get("/metrics")[2]
        assert s.get("/v1/models")[0] == 200 and s.get("/health")[0] == 200
        assert asleep() and loads() == 1  # none of these wakes it
        assert s.get("/metrics")[2].count("\n") == before.count("\n")
        assert s.ok("/tokenize", {"content": "a"})["tokens"]
        assert loads() == 2
        assert wait_until(asleep)
        assert s.ok("/completion", {"prompt": "a b", "n_predict": 3})["tokens_predicted"] == 3

        def written(text):
            return int(re.search(r"^llamacpp:tokens_predicted_total (\d+)$", text, re.M).group(1))

        assert written(s.get("/metrics")[2]) == written(before) + 3  # figures outlive the sleep


def test_bad_starts(tmp_path):
    assert "models-dir" in refused("serve", "--models-dir", tmp_path / "none", "--port", "0", status=1)
    assert "one file, or a folder" in refused("serve", "-m", tiny(TINY), "--models-dir", tmp_path)
    (tmp_path / "bad.gguf").write_bytes(b"GGUF")
    assert "bad.gguf" in subprocess.run([*Server(tmp_path / "bad.gguf").args], capture_output=True, text=True,
                                        timeout=60).stderr
