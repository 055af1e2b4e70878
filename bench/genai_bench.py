#!/usr/bin/env python3
"""OpenVINO GenAI with llama-bench's questions: genai_bench.py -m MODEL.gguf [-p 512] [-n 128] [-r 1]; prints JSON as
llama-bench does. With --first it instead writes text for PROMPT as soon as there is some, to time a start.
Runs in a Python environment of its own that holds openvino-genai."""
import argparse
import json
import sys
import time

import numpy as np
import openvino as ov
import openvino_genai as genai


def config(n):
    c = genai.GenerationConfig()
    c.max_new_tokens = n
    c.ignore_eos = True
    c.do_sample = False
    c.apply_chat_template = False
    return c


def run(pipe, ids, n):
    return pipe.generate(ov.Tensor(np.asarray([ids], np.int64)), config(n)).perf_metrics


def main():
    p = argparse.ArgumentParser()
    p.add_argument("-m", required=True)
    p.add_argument("-p", type=int, default=512)
    p.add_argument("-n", type=int, default=128)
    p.add_argument("-r", type=int, default=1)
    p.add_argument("-d", default="CPU")
    p.add_argument("--first", metavar="PROMPT")
    a = p.parse_args()
    start = time.perf_counter()
    pipe = genai.LLMPipeline(a.m, a.d)
    load = time.perf_counter() - start
    if a.first is not None:
        pipe.generate(a.first, config(4), lambda s: print(s, end="", flush=True) and False)
        return
    rng = np.random.default_rng(1)

    def prompt():  # never the same twice: a prompt seen before comes out of the prefix cache
        return rng.integers(100, 30000, a.p).tolist()

    run(pipe, prompt(), 1)  # warm-up: the first inference of each shape packs the weights
    run(pipe, [100], 8)
    pp = [a.p / (run(pipe, prompt(), 1).get_ttft().mean / 1e3) for _ in range(a.r)]
    # The first token belongs to the prompt; the time per token of the other n is the decode speed.
    tg = [1e3 / run(pipe, [100], a.n + 1).get_tpot().mean for _ in range(a.r)]
    json.dump([{"n_prompt": a.p, "n_gen": 0, "avg_ts": float(np.median(pp)), "load_s": load},
               {"n_prompt": 0, "n_gen": a.n, "avg_ts": float(np.median(tg)), "load_s": load}], sys.stdout)


if __name__ == "__main__":
    main()
