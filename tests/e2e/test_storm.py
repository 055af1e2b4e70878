"""64 sequences at once for some time, in the program itself: random lengths, clients that leave, several answers to one
prompt, beginnings in common. Every answer that comes to its end is the one that the same request got alone. Short in every
run, five minutes in `scripts/test storm BUILD`. tests/unit/test_engine_schedule.c does the same to the engine without
OpenVINO, where blocks can be counted and threads watched."""
import json
import random
import socket
import threading
import time

import pytest

from cli_tools import tiny
from server_faults import REPORTS
from server_tools import Server

N_SLOTS = N_CLIENTS = 64
# Little room for 64 sequences, so that some are put back to the queue and computed again.
OPTIONS = ("-c", "8192", "-np", N_SLOTS, "-kvu", "--precision", "f32", "-ctk", "f32", "-ctv", "f32")
WORDS = "one two three four five six seven eight nine ten".split()


def requests():
    """Bodies that fit a slot, some of which begin alike."""
    rng = random.Random(5)
    common = " ".join(rng.choice(WORDS) for _ in range(45))
    out = []
    for i in range(48):
        own = " ".join(rng.choice(WORDS) for _ in range(rng.choice((1, 5, 15, 40))))
        body = {"prompt": f"{common} {own}" if i % 3 == 0 else own, "n_predict": rng.choice((1, 8, 30, 90)),
                "ignore_eos": True, "return_tokens": True}
        body.update({"temperature": 0} if i % 4 else {"temperature": 0.9, "seed": i})
        out.append(body)
    return out


class Storm:
    def __init__(self, server, bodies, alone, seconds):
        self.server, self.bodies, self.alone = server, bodies, alone
        self.end = time.time() + seconds
        self.lock = threading.Lock()
        self.right, self.left, self.wrong = 0, 0, []

    def leave(self, rng, body):
        """A client that goes away: with half a request, before the answer, or in it."""
        data = json.dumps({**body, "stream": rng.random() < 0.7}).encode()
        data = f"POST /completion HTTP/1.1\r\nHost: a\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data
        with socket.create_connection(("127.0.0.1", self.server.port)) as s:
            s.sendall(data[: len(data) if rng.random() < 0.9 else rng.randrange(len(data))])
            s.settimeout(rng.random() * 0.3 + 0.001)
            try:
                s.recv(rng.randrange(1, 4000))
            except OSError:
                pass

    def client(self, number):
        rng = random.Random(number)
        while time.time() < self.end and not self.wrong:
            i = rng.randrange(len(self.bodies))
            body = self.bodies[i]
            if rng.random() < 0.3:
                self.leave(rng, body)
                with self.lock:
                    self.left += 1
                continue
            copies = rng.choice((2, 3)) if body["temperature"] == 0 and rng.random() < 0.15 else 1
            status, _, a = self.server.post("/completion", {**body, "n_cmpl": copies} if copies > 1 else body)
            answers = a if isinstance(a, list) else [a]
            with self.lock:
                if status != 200 or len(answers) != copies or any(x["tokens"] != self.alone[i] for x in answers):
                    self.wrong.append((body, self.alone[i], a))
                self.right += 1


@pytest.mark.parametrize("seconds", [pytest.param(3, marks=pytest.mark.sanitize),
                                     pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
@pytest.mark.parametrize("model", ["llama-q4_0", "gemma3-q4_0", "qwen35-q4_0", "qwen3moe-q4_0"])
def test_storm(model, seconds):
    bodies = requests()
    with Server(tiny(model), *OPTIONS) as server:
        alone = [server.ok("/completion", {**b, "cache_prompt": False})["tokens"] for b in bodies]
        storm = Storm(server, bodies, alone, seconds)
        clients = [threading.Thread(target=storm.client, args=(i,)) for i in range(N_CLIENTS)]
        for c in clients:
            c.start()
        for c in clients:
            c.join()
        print(f"{model}: {storm.right} answers, {storm.left} clients left")
        assert not storm.wrong, storm.wrong[0]
        assert storm.right > 0
        end = time.time() + 10
        while any(x["is_processing"] for x in server.get("/slots")[2]) and time.time() < end:
            time.sleep(0.05)
        assert not any(x["is_processing"] for x in server.get("/slots")[2])
        assert server.ok("/completion", bodies[1])["tokens"] == alone[1]
        assert server.stop() == 0
        assert not any(r in server.log for r in REPORTS), server.log[-4000:]
