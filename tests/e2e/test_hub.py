"""Models by -hf, from a stand-in for the Hub."""
import hashlib
import http.server
import json
import threading

import pytest

from cli_tools import run, tiny

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub:
    """Repositories of files, with what may go wrong on the way."""

    def __init__(self, files):
        self.files = files
        self.cut = 0          # answers end after so many bytes
        self.no_ranges = False
        self.wrong_sum = False
        self.requests = []
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def json(self, what, status=200):
                data = json.dumps(what).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                hub.requests.append((self.path, self.headers.get("Range"), self.headers.get("Authorization")))
                if self.path == "/api/models/user/tiny/refs":
                    return self.json({"branches": [{"name": "other", "targetCommit": COMMIT[::-1]},
                                                   {"name": "main", "targetCommit": COMMIT}]})
                if self.path == f"/api/models/user/tiny/tree/{COMMIT}?recursive=true":
                    return self.json(hub.tree())
                prefix = f"/user/tiny/resolve/{COMMIT}/"
                if self.path.startswith(prefix) and self.path[len(prefix):] in hub.files:
                    return self.file(hub.files[self.path[len(prefix):]])
                return self.json({"error": "Repository not found"}, 404)

            def file(self, data):
                first = 0
                if self.headers.get("Range") and not hub.no_ranges:
                    first = int(self.headers["Range"].split("=")[1].split("-")[0])
                self.send_response(206 if first else 200)
                self.send_header("Content-Length", str(len(data) - first))
                if first:
                    self.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
                self.end_headers()
                if hub.cut:
                    self.wfile.write(data[first:first + hub.cut])
                    self.close_connection = True
                else:
                    self.wfile.write(data[first:])

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def tree(self):
        out = [{"type": "file", "path": "README.md", "size": 3, "oid": "a" * 40},
               {"type": "directory", "path": "sub", "oid": "b" * 40},
               {"type": "file", "path": "../../escape.gguf", "size": 1, "oid": "c" * 64}]
        for path, data in self.files.items():
            oid = "0" * 64 if self.wrong_sum else hashlib.sha256(data).hexdigest()
            out.append({"type": "file", "path": path, "size": len(data), "oid": "d" * 40,
                        "lfs": {"oid": oid, "size": len(data)}})
        return out


@pytest.fixture()
def hub():
    data = tiny("llama-head32").read_bytes()
    h = Hub({"tiny-Q8_0.gguf": b"GGUF is not what this is", "tiny-Q4_K_M.gguf": data, "mmproj-tiny-Q4_K_M.gguf": b"x"})
    yield h
    h.server.shutdown()


def tokenize(hub, cache, *more, repo="user/tiny", **env):
    return run("tokenize", "-hf", repo, "-p", "hello", "--ids", *more,
               env={"LLAMA_CACHE": str(cache), "HF_ENDPOINT": hub.url, **env})


def test_fetched_once(hub, tmp_path):
    first = tokenize(hub, tmp_path)
    assert (first.returncode, first.stdout[:1]) == (0, b"["), first.stderr
    place = tmp_path / "models--user--tiny" / "snapshots" / COMMIT / "tiny-Q4_K_M.gguf"
    assert place.is_symlink() and place.read_bytes() == hub.files["tiny-Q4_K_M.gguf"]
    assert (tmp_path / "models--user--tiny" / "refs" / "main").read_text() == COMMIT
    n = sum("/resolve/" in path for path, _, _ in hub.requests)
    assert tokenize(hub, tmp_path).stdout == first.stdout
    assert sum("/resolve/" in path for path, _, _ in hub.requests) == n == 1
    assert tokenize(hub, tmp_path, "--offline").stdout == first.stdout


def test_goes_on_where_it_stopped(hub, tmp_path):
    hub.cut = len(hub.files["tiny-Q4_K_M.gguf"]) // 3 + 1
    done = tokenize(hub, tmp_path)
    assert done.returncode == 0, done.stderr
    ranges = [r for path, r, _ in hub.requests if "/resolve/" in path]
    assert ranges[0] is None and len(ranges) == 3 and ranges[1] == f"bytes={hub.cut}-"


def test_from_the_start_where_there_are_no_ranges(hub, tmp_path):
    hub.no_ranges = True
    blobs = tmp_path / "models--user--tiny" / "blobs"
    blobs.mkdir(parents=True)
    data = hub.files["tiny-Q4_K_M.gguf"]
    (blobs / (hashlib.sha256(data).hexdigest() + ".downloadInProgress")).write_bytes(b"?" * 1000)
    assert tokenize(hub, tmp_path).returncode == 0


def test_a_wrong_checksum_is_thrown_away(hub, tmp_path):
    hub.wrong_sum = True
    done = tokenize(hub, tmp_path)
    assert done.returncode == 1 and b"checksum" in done.stderr
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_what_is_not_there(hub, tmp_path):
    done = tokenize(hub, tmp_path, repo="user/tiny:Q2_K")
    assert done.returncode == 2 and b"Q2_K" in done.stderr
    done = tokenize(hub, tmp_path, repo="user/none")
    assert done.returncode == 1 and b"404" in done.stderr
    assert tokenize(hub, tmp_path, repo="../../etc").returncode == 2
    done = tokenize(hub, tmp_path, "--offline")
    assert done.returncode == 1 and b"not in the cache" in done.stderr


def test_file_and_token(hub, tmp_path):
    done = tokenize(hub, tmp_path, "-hff", "tiny-Q4_K_M.gguf", HF_TOKEN="hf_secret")
    assert done.returncode == 0
    assert {a for _, _, a in hub.requests} == {"Bearer hf_secret"}


def test_the_cache_serves_when_the_hub_is_gone(hub, tmp_path):
    first = tokenize(hub, tmp_path)
    hub.server.shutdown()
    hub.server.server_close()
    again = tokenize(hub, tmp_path)
    assert (again.returncode, again.stdout) == (0, first.stdout)
    assert b"cache" in again.stderr
