"""What goes wrong between a server and its clients, made on purpose: malformed requests, clients that leave in any state, and
what must be the same afterwards. Seeded, so that a run can be repeated."""
import concurrent.futures
import copy
import json
import os
import random
import re
import socket
import struct
import threading
import time
import urllib.parse

GOOD = {"prompt": "a b c", "n_predict": 20, "temperature": 0, "ignore_eos": True}
REPORTS = ("AddressSanitizer", "runtime error", "ThreadSanitizer", "LeakSanitizer")


class Watch:
    """A server before and after: the same answers, no slot at work, no descriptor or thread more, the whole pool to be had."""

    def __init__(self, server):
        self.server = server
        self.full()
        server.ok("/completion", {**GOOD, "grammar": "root ::= [a-z]*"})  # what works out constraints is there from then on
        self.want = self.answer()
        self.fds, self.threads = self.settled()

    def answer(self):
        return self.server.ok("/completion", {**GOOD, "cache_prompt": False})["content"]

    def counts(self):
        proc = f"/proc/{self.server.process.pid}"
        return len(os.listdir(proc + "/fd")), len(os.listdir(proc + "/task"))

    def settled(self, most=None, seconds=30):
        """Once all is idle and the counts are no more than `most`; what they are."""
        end = time.time() + seconds
        while time.time() < end:
            idle = not any(s["is_processing"] for s in self.server.get("/slots")[2])
            counts = self.counts()
            if idle and (most is None or all(a <= b for a, b in zip(counts, most))):
                return counts
            time.sleep(0.1)
        return self.counts()

    def full(self):
        """Every slot is filled to its end at once: blocks that were lost would be missing."""
        slots = self.server.get("/slots")[2]
        n = slots[0]["n_ctx"]
        with concurrent.futures.ThreadPoolExecutor(len(slots)) as pool:
            body = {"n_predict": n, "ignore_eos": True, "id_slot": 0, "temperature": 1}
            for a in pool.map(lambda s: self.server.ok("/completion", {**body, "prompt": f"{s['id']}", "id_slot": s["id"]}), slots):
                assert a["tokens_evaluated"] + a["tokens_predicted"] >= n, a["tokens_predicted"]

    def check(self):
        assert self.answer() == self.want
        log = self.server.read_log()
        assert not any(r in log for r in REPORTS), log[-4000:]

    def check_all(self):
        self.check()
        self.full()
        fds, threads = self.settled((self.fds, self.threads))
        assert not any(s["is_processing"] for s in self.server.get("/slots")[2])
        assert fds <= self.fds and threads <= self.threads, (fds, self.fds, threads, self.threads)
        self.check()


# ---- malformed requests ----
MESSAGES = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {
                "name": "f", "arguments": "{\"a\": 1}"}}]}, {"role": "tool", "tool_call_id": "1", "content": "x"},
            {"role": "user", "content": "b"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", 1, None]}}, "required": ["a"]}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}]
SEEDS = [
    ("POST", "/completion", {"prompt": "a", "n_predict": 3, "stop": ["b", "c"], "logit_bias": [[1, 2.0], ["a", False]],
                             "samplers": ["top_k", "temperature"], "grammar": 'root ::= [a-z]+ "!"', "n_probs": 2, "stream": True,
                             "grammar_lazy": True, "grammar_triggers": [{"type": 2, "value": "a(b)"}], "preserved_tokens": ["a"],
                             "dry_multiplier": 1, "dry_sequence_breakers": ["x"], "n_indent": 1, "seed": 3, "id_slot": 0,
                             "response_fields": ["content", "timings/prompt_n"], "return_progress": True}),
    ("POST", "/completion", {"prompt": ["a", [1, 2, "b"], {"prompt_string": "c"}], "n_predict": 2, "json_schema": SCHEMA}),
    ("POST", "/v1/completions", {"prompt": "a", "max_tokens": 3, "logprobs": 2, "n": 2, "stream": True, "model": "x",
                                 "stream_options": {"include_usage": True}}),
    ("POST", "/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 3, "tools": TOOLS, "tool_choice": "auto",
                                      "parallel_tool_calls": True, "logprobs": True, "top_logprobs": 3}),
    ("POST", "/v1/chat/completions", {"messages": MESSAGES[:2], "max_tokens": 3, "stream": True, "chat_template_kwargs": {
        "enable_thinking": False}, "response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}),
    ("POST", "/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}],
                               "max_output_tokens": 3, "instructions": "i", "stream": True, "tools": [
                                   {"type": "function", "name": "f", "parameters": SCHEMA}]}),
    ("POST", "/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 3, "system": [
        {"type": "text", "text": "s"}], "tools": [{"name": "f", "input_schema": SCHEMA}], "stream": True,
        "thinking": {"type": "enabled", "budget_tokens": 10}}),
    ("POST", "/v1/messages/count_tokens", {"messages": [{"role": "user", "content": "a"}]}),
    ("POST", "/tokenize", {"content": ["a", 1, "b"], "add_special": True, "with_pieces": True}),
    ("POST", "/detokenize", {"tokens": [1, 2, 3]}),
    ("POST", "/apply-template", {"messages": MESSAGES}),
    ("POST", "/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": "f", "text": "t"}]}),
    ("POST", "/slots/0?action=save", {"filename": "a"}), ("POST", "/slots/1?action=restore", {"filename": "a"}),
    ("POST", "/slots/0?action=erase", {}), ("GET", "/slots", None), ("GET", "/metrics", None), ("GET", "/props", None),
    ("POST", "/v1/embeddings", {"input": ["a"]}), ("POST", "/v1/rerank", {"query": "a", "documents": ["b"]}),
    ("POST", "/v1/chat/completions/control", {"id": "x", "action": "reasoning_end"}),
    ("POST", "/v1/streams/lookup", {"conversation_ids": ["a"]}), ("GET", "/v1/stream?conv_id=a&from=3", None),
    ("DELETE", "/v1/stream?conv_id=a", None), ("GET", "/v1/models", None), ("POST", "/lora-adapters", [{"id": 0, "scale": 1}]),
]
ODD = [None, True, False, 0, -1, 1, 1.5, -0.0, 1e308, -1e308, 2 ** 31, -2 ** 31 - 1, 2 ** 63, 2 ** 64, 10 ** 40, "", "a", "\x00",
       "a\x00b", "\ud800", "\U0001f600", "\u202e", "x" * 5000, "{{" * 50, "{% for a in range(999999999) %}x{% endfor %}",
       [], [[]], {}, [None], [[1, 2], [3]], {"a": {"b": []}}, ["a"] * 2000, list(range(-5, 5)), {"": ""}, "(" * 3000, "root ::= root",
       "root ::= ", "[" * 500, {"$ref": "#"}, {"type": "string", "pattern": "(a*)*$"}]


def places(j, at=()):
    """Every place in a JSON value."""
    yield at
    for k, v in j.items() if isinstance(j, dict) else enumerate(j) if isinstance(j, list) else ():
        yield from places(v, (*at, k))


def changed(rng, j):
    """The value with something odd in it somewhere."""
    j = json.loads(json.dumps(j))
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.choice(list(places(j)))
        if not at:
            return copy.deepcopy(rng.choice(ODD)) if rng.random() < 0.2 else j
        node = j
        for k in at[:-1]:
            node = node[k]
        how = rng.randrange(4)
        if how == 0 and isinstance(node, dict):
            del node[at[-1]]
        elif how == 1 and isinstance(node, dict):
            node[rng.choice(("", "a\x00", "type", "content", "$ref", at[-1] + "x"))] = copy.deepcopy(node[at[-1]])
        elif how == 2:
            for _ in range(rng.choice((1, 3, 200))):
                node[at[-1]] = rng.choice(([node[at[-1]]], {"a": node[at[-1]]}))
        else:
            node[at[-1]] = copy.deepcopy(rng.choice(ODD))
    return j


def garbled(rng, data):
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 3, 20))):
        if not data:
            break
        i, how = rng.randrange(len(data)), rng.randrange(5)
        if how == 0:
            data[i] = rng.randrange(256)
        elif how == 1:
            data[i] = rng.choice(b'{}[]",:0123456789.-+eE\\ntfu\x00\xff')
        elif how == 2:
            del data[i:i + rng.choice((1, 1, 10, 1000))]
        elif how == 3:
            data[i:i] = data[i:i + rng.choice((1, 10, 100))] * rng.choice((1, 2, 50))
        else:
            del data[i:]
    return bytes(data)


HEADERS = ["Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 5, 6", "Content-Length: x",
           "Transfer-Encoding: chunked", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked, chunked", "Expect: 100-continue",
           "Expect: 200-ok", "Connection: close", "Connection: upgrade", "Upgrade: websocket", "Content-Encoding: gzip",
           "Accept-Encoding: gzip;q=x", "Content-Type: multipart/form-data", "Host:", ": x", "X" * 3000 + ": y", "X: " + "y" * 60000,
           "Authorization: Bearer", "Origin: \x01\x7f", "X-Conversation-Id: a", "X-Conversation-Id: " + "z" * 3000, "Cookie: a=b",
           "Range: bytes=0-", "Content-Length: 3\r\nContent-Length: 4", " folded", "X:\x00", "\xff\xfe: \xff"]


def request(rng):
    """Bytes that are almost a request."""
    method, path, body = rng.choice(SEEDS)
    how = rng.random()
    data = b"" if body is None else json.dumps(changed(rng, body) if how < 0.7 else body).encode()
    if 0.5 < how < 0.9:
        data = garbled(rng, data)
    if rng.random() < 0.1:
        method = rng.choice(("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "PATCH", "TRACE", "CONNECT", "X", "", "G" * 2000))
    if rng.random() < 0.1:
        path = rng.choice((path + "?" + "a=b&" * 500, path + "/", "/" + path, "/..", "/%00", "/%zz", "*", "http://a/health", "/" * 3000,
                           path.replace("action", "%61ction"), path + "?action=" + urllib.parse.quote("save\x00"), "/slots/99999999999999",
                           "/slots/-1?action=erase"))
    lines = [f"{method} {path} HTTP/{rng.choice(('1.1',) * 27 + ('1.0', '0.9', '2.0', 'x'))}", "Host: a",
             "Content-Type: application/json"]
    chunked = rng.random() < 0.1
    if chunked:
        lines.append("Transfer-Encoding: chunked")
        size = rng.choice((f"{len(data):x}", f"{len(data):x};a=b", "-1", "ffffffffffffffff", "zz", f"{len(data) // 2:x}", ""))
        data = size.encode() + b"\r\n" + data + rng.choice((b"\r\n0\r\n\r\n", b"", b"\r\n", b"\r\n0\r\nX: y\r\n\r\n"))
    elif rng.random() < 0.95:
        lines.append(f"Content-Length: {len(data) + rng.choice((0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 3))}")
    for _ in range(rng.choice((0, 0, 0, 0, 1, 2))):
        lines.append(rng.choice(HEADERS))
    out = "\r\n".join(lines).encode("utf-8", "surrogatepass") + rng.choice((b"\r\n\r\n",) * 9 + (b"\n\n",)) + data
    return garbled(rng, out) if how > 0.95 else out


def complete(answer):
    """An answer with its length, or a stream's end: no need to wait for the connection's."""
    head, _, body = answer.partition(b"\r\n\r\n")
    n = re.search(rb"content-length: (\d+)", head, re.I)
    return (n and len(body) >= int(n[1])) or (b"chunked" in head and body.endswith(b"0\r\n\r\n"))


def ask(port, data, seconds=20):
    """What comes back for the bytes: b"" for nothing."""
    out = b""
    with socket.create_connection(("127.0.0.1", port), seconds) as s:
        end = time.time() + seconds
        s.settimeout(0.3)  # then it says that no more comes: what waits for the rest gives up
        try:
            s.sendall(data)
            while time.time() < end:
                try:
                    part = s.recv(65536)
                except TimeoutError:
                    s.shutdown(socket.SHUT_WR)
                    s.settimeout(seconds)
                    continue
                out += part
                if not part or complete(out):
                    break
        except OSError:
            pass
    return out


def fuzz(server, watch, n, seed=1):
    """n malformed requests from a few clients at once; every 200 of them a good one. Returns how many had which status."""
    statuses, strange, lock = {}, [], threading.Lock()

    def one(i):
        rng = random.Random(seed * 1000003 + i)
        data = request(rng)
        start = time.time()
        answer = ask(server.port, data)
        status = int(answer[9:12]) if answer.startswith(b"HTTP/1.") and answer[9:12].isdigit() else 0
        with lock:
            statuses[status] = statuses.get(status, 0) + 1
            if time.time() - start > 15 or (status == 500 and b"input is not supported" not in answer) or status > 505:
                strange.append((i, data[:300], answer[-300:], time.time() - start))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for first in range(0, n, 200):
            list(pool.map(one, range(first, min(n, first + 200))))
            watch.check()
    assert not strange, strange[:3]
    return statuses


# ---- clients that leave ----
def leave(rng, port):
    """One client, in a random state when it goes. Returns which."""
    stream = rng.random() < 0.7
    body = json.dumps({"prompt": "a b " * rng.randrange(1, 120), "n_predict": rng.randrange(1, 400), "stream": stream, "ignore_eos": True,
                       "cache_prompt": rng.random() < 0.5, "return_progress": rng.random() < 0.3, "n_probs": rng.choice((0, 0, 5)),
                       "grammar": rng.choice(("", "", "root ::= [a-z]*"))}).encode()
    more = rng.choice(("", "", "", "Expect: 100-continue\r\n", f"X-Conversation-Id: {rng.randrange(20)}\r\n"))
    path = rng.choice(("/completion", "/v1/completions"))
    head = f"POST {path} HTTP/1.{rng.randrange(2)}\r\nHost: a\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode()
    state = rng.choice(("connected", "in headers", "in body", "slowly in body", "queued", "in prompt", "in prompt", "in stream", "in stream",
                        "in stream", "not reading", "half closed", "between requests", "stopped by another"))
    s = socket.socket()
    s.settimeout(5)
    try:
        if state == "not reading":
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        if rng.random() < 0.5:  # RST in the place of FIN
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        s.connect(("127.0.0.1", port))
        if state == "in headers":
            s.sendall(head[:rng.randrange(len(head))])
        elif state == "in body":
            s.sendall(head + body[:rng.randrange(len(body))])
        elif state == "slowly in body":
            for b in (head + body)[:rng.randrange(40, 200)]:
                s.sendall(bytes((b,)))
        elif state != "connected":
            s.sendall(head + body)
        if state == "in prompt":
            time.sleep(rng.random() * 0.05)
        elif state == "in stream":
            for _ in range(rng.randrange(1, 30)):
                s.recv(rng.randrange(1, 3000))
        elif state == "not reading":
            time.sleep(rng.random() * 0.5)
        elif state == "half closed":
            s.shutdown(socket.SHUT_WR)
            s.recv(100)
        elif state == "between requests":
            s.recv(10)
            s.sendall(head)
        elif state == "stopped by another":
            ask(port, f"DELETE /v1/stream?conv_id={rng.randrange(20)} HTTP/1.0\r\n\r\n".encode(), 5)
    except OSError:
        pass
    s.close()
    return state


def drop(server, watch, seconds, seed=1, clients=8):
    """Clients leave for so long, while an honest one gets its answers. Returns how many left in which state."""
    states, lock, end = {}, threading.Lock(), time.time() + seconds

    def work(k):
        rng = random.Random(seed * 1009 + k)
        while time.time() < end:
            state = leave(rng, server.port)
            with lock:
                states[state] = states.get(state, 0) + 1

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        workers = [pool.submit(work, k) for k in range(clients)]
        while time.time() < end:
            watch.check()
            time.sleep(0.2)
        for w in workers:
            w.result()
    # Those without a client that may be read again go on; they are stopped here.
    for k in range(20):
        ask(server.port, f"DELETE /v1/stream?conv_id={k} HTTP/1.0\r\n\r\n".encode(), 5)
    return states
