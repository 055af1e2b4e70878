#!/usr/bin/env python3
"""Many clients at two servers, one after the other: tokens a second, time to the first token, memory.

    bench/load.py -m MODEL [--clients 16] [--seconds 60] [--rounds 1] [--peer ../shared/peers/llama]

Each client asks again as soon as it has its answer: prompts of 30 to 600 tokens, some of which begin alike, 16 to 128
tokens written, streamed by /completion. Both servers get the same requests by the same seed; each has as many slots as
there are clients. What counts is what arrived within the time. Written tokens a second and the ratio at the end
are of whole runs.
"""
import argparse
import http.client
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WORDS = "time year people way day man thing woman life child world school state family student group country " \
        "problem hand part place case week company system program question work government number night point".split()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, command, clients, context):
        self.port = free_port()
        self.p = subprocess.Popen(
            [*command, "--port", str(self.port), "-np", str(clients), "-c", str(context)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                if self.get("/health") == 200:
                    return
            except OSError:
                pass
            if self.p.poll() is not None:
                sys.exit(f"{command[0]} ended with status {self.p.returncode}")
            time.sleep(0.1)
        sys.exit(f"{command[0]} doesn't start")

    def get(self, path):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        c.request("GET", path)
        return c.getresponse().status

    def rss_mb(self):
        with open(f"/proc/{self.p.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("RssAnon")) // 1024

    def stop(self):
        self.p.terminate()
        self.p.wait(30)


class Client(threading.Thread):
    def __init__(self, server, seed, until):
        super().__init__(daemon=True)
        self.server, self.random, self.until = server, random.Random(seed), until
        self.tokens, self.prompt, self.first, self.failed, self.answers = 0, 0, [], 0, 0

    def body(self):
        r = self.random
        begin = f"This is the story number {r.randrange(4)}. " * r.choice([1, 1, 20])
        words = " ".join(r.choice(WORDS) for _ in range(r.choice([20, 50, 100, 400])))
        return {"prompt": begin + words, "n_predict": r.choice([16, 32, 64, 128]), "stream": True, "temperature": 0,
                "ignore_eos": True, "cache_prompt": True}

    def run(self):
        while time.monotonic() < self.until:
            try:
                self.ask()
            except (OSError, ValueError, http.client.HTTPException):
                self.failed += 1

    def ask(self):
        c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=300)
        begin = time.monotonic()
        c.request("POST", "/completion", json.dumps(self.body()), {"Content-Type": "application/json"})
        reply = c.getresponse()
        if reply.status != 200:
            raise ValueError(reply.status)
        got = 0
        for line in reply:
            if not line.startswith(b"data: "):
                continue
            event = json.loads(line[6:])
            now = time.monotonic()
            if now > self.until:
                return  # what comes now doesn't count; the server sees a client that leaves
            if event.get("content") and not got:
                self.first.append(now - begin)
            if event.get("stop"):
                self.prompt += event["timings"]["prompt_n"]
                self.answers += 1
                return
            got += 1
            self.tokens += len(event.get("tokens") or [0])
        raise ValueError("the stream broke off")


def load(name, command, args, seed):
    server = Server(command, args.clients, args.context)
    before = server.rss_mb()
    start = time.monotonic()
    clients = [Client(server, seed + i, start + args.seconds) for i in range(args.clients)]
    for c in clients:
        c.start()
    middle = 0
    while time.monotonic() < start + args.seconds:
        time.sleep(0.5)
        if not middle and time.monotonic() > start + args.seconds / 2:
            middle = server.rss_mb()
    after = server.rss_mb()
    for c in clients:
        c.join(30)
    alive = server.get("/health") == 200
    server.stop()
    first = sorted(t for c in clients for t in c.first)
    rate = sum(c.tokens for c in clients) / args.seconds
    print(f"{name:10} written/s {rate:7.1f}  prompt/s {sum(c.prompt for c in clients) / args.seconds:7.1f}  "
          f"answers {sum(c.answers for c in clients):5}  failed {sum(c.failed for c in clients)}  "
          f"first token p50 {statistics.median(first):.2f} s p95 {first[int(len(first) * 0.95)]:.2f} s  "
          f"anonymous MB {before} {middle} {after}  alive {alive}", flush=True)
    return rate


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--clients", type=int, default=16)
    p.add_argument("--seconds", type=float, default=60)
    p.add_argument("--rounds", type=int, default=1)
    p.add_argument("--context", type=int, default=32768, help="positions of all slots together")
    p.add_argument("--grappa", default=os.path.join(HERE, "build/grappa"))
    p.add_argument("--peer", default=os.path.join(HERE, "../shared/peers/llama"))
    args = p.parse_args()
    contestants = {"grappa": [args.grappa, "serve", "-m", args.model]}
    if os.access(args.peer, os.X_OK):
        contestants["llama.cpp"] = [args.peer, "llama-server", "-dev", "none", "-m", args.model]
    else:
        print(f"not compared: {args.peer} is not there")
    for i in range(args.rounds):
        rates = {n: load(n, c, args, 1000 * i) for n, c in contestants.items()}
        if len(rates) == 2:
            print(f"ratio {rates['grappa'] / rates['llama.cpp']:.2f}")


if __name__ == "__main__":
    main()
