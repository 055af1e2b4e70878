"""Faults, short in every run and long in `scripts/test faults BUILD` (also of a sanitizer's build). After each, the next good
request is answered as before, and no slot, block, descriptor or thread is missing."""
import os
import resource
import shutil
import signal
import threading
import time

import pytest

from cli_tools import tiny
from server_faults import REPORTS, Watch, drop, fuzz
from server_tools import Server

TINY = "llama-head32"
SHORT, LONG = pytest.mark.sanitize, [pytest.mark.slow, pytest.mark.timeout(3600)]


@pytest.fixture()
def server(tmp_path):
    with Server(tiny(TINY), "-c", "2048", "-np", "2", "--metrics", "--chat-template", "chatml", "--slot-save-path", tmp_path,
                "--timeout", "5", "--max-body", "1") as s:
        yield s
        assert s.stop() == 0
        assert not any(r in s.log for r in REPORTS), s.log[-4000:]


@pytest.mark.parametrize("n", [pytest.param(400, marks=SHORT), pytest.param(10000, marks=LONG)])
def test_malformed_requests(server, n):
    watch = Watch(server)
    statuses = fuzz(server, watch, n)
    watch.check_all()
    print(statuses)
    assert statuses.get(200, 0) > n / 20 and statuses.get(400, 0) > n / 10


@pytest.mark.parametrize("seconds", [pytest.param(5, marks=SHORT), pytest.param(600, marks=LONG)])
def test_clients_that_leave(server, seconds):
    watch = Watch(server)
    states = drop(server, watch, seconds)
    watch.check_all()
    print(states)
    assert len(states) == 11


# ---- a disk that is full ----
@pytest.mark.sanitize
@pytest.mark.parametrize("room", [20000, 65536, 100000])
def test_a_disk_that_is_full(tmp_path, room):
    """A file may have so many bytes and no more (what a full disk does, for who is not root): no part of one stays, and the
    one of that name that was there before is as it was."""
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    with Server(tiny(TINY), "-c", "1024", "-np", "1", "--slot-save-path", tmp_path, preexec=limit) as s:
        s.ok("/completion", {"prompt": "a b c", "n_predict": 4, "id_slot": 0})
        short = s.ok("/slots/0?action=save", {"filename": "x"})
        before = (tmp_path / "x").read_bytes()
        assert short["n_written"] == len(before) < room
        long = {"prompt": "a b c " * 100, "n_predict": 4, "id_slot": 0, "temperature": 0}
        want = s.ok("/completion", long)
        for name in ("x", "y"):
            status, _, a = s.post("/slots/0?action=save", {"filename": name})
            assert status in (400, 500) and a["error"]["message"], a
        assert sorted(os.listdir(tmp_path)) == ["x"] and (tmp_path / "x").read_bytes() == before
        again = s.ok("/completion", long)
        assert again["content"] == want["content"] and again["timings"]["cache_n"] > 100
        assert s.ok("/slots/0?action=restore", {"filename": "x"})["n_restored"] == short["n_saved"]
        assert s.stop() == 0


# ---- a model file that is cut ----
@pytest.mark.sanitize
def test_a_model_file_that_is_cut_among_others(tmp_path):
    """Those that stream from it get an error that names it; those of another model don't notice. Once the file is whole again
    and the model loaded anew, it writes what it wrote before."""
    for name in ("good", "bad"):
        shutil.copy(tiny("llama-q4_0"), tmp_path / f"{name}.gguf")
    body = {"prompt": "a b c", "n_predict": 20, "temperature": 0}
    with Server(None, "--models-dir", tmp_path, "--models-max", "2", "-c", "512", "-np", "2", "--context-shift") as s:
        want = s.ok("/completion", {**body, "model": "bad"})["content"]
        assert s.ok("/completion", {**body, "model": "good"})["content"] == want
        last, begun = [], threading.Semaphore(0)

        def stream():
            for i, (_, e) in enumerate(s.stream("/completion", {**body, "model": "bad", "n_predict": 100000, "ignore_eos": True})):
                if i == 20:
                    begun.release()
            last.append(e)

        threads = [threading.Thread(target=stream) for _ in range(4)]  # two of them wait
        for t in threads:
            t.start()
        for _ in range(2):
            assert begun.acquire(timeout=30)
        os.truncate(tmp_path / "bad.gguf", 4096)
        for t in threads:
            t.join(60)
        errors = [e["error"]["message"] for e in last if "error" in e]
        assert len(errors) >= 2 and all("bad.gguf" in e for e in errors), last
        assert s.ok("/completion", {**body, "model": "good"})["content"] == want
        assert s.post("/completion", {**body, "model": "bad"})[0] == 500
        assert s.ok("/models/unload", {"model": "bad"})
        assert s.post("/completion", {**body, "model": "bad"})[0] in (400, 500)
        time.sleep(0.1)
        shutil.copy(tiny("llama-q4_0"), tmp_path / "bad.gguf")
        assert s.ok("/completion", {**body, "model": "bad"})["content"] == want
        assert s.stop() == 0
        assert not any(r in s.log for r in REPORTS), s.log[-4000:]
