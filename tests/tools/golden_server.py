#!/usr/bin/env python3
"""tests/golden/server: what llama-server answers greedily, as far as it is sure of it.

    python tests/tools/golden_server.py RUN     (RUN PROGRAM … runs a program of llama.cpp b11434)

Each conversation is asked turn by turn, with llama-server's own answers as history, on its CPU. An answer is kept up to the
first token whose runner-up is nearer than MARGIN (natural logarithm): llama.cpp rounds activations to 8 bits, which may
turn a close decision. The long ones go beyond Gemma's window of 512 tokens several times."""
import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = {"gemma-3-270m-q4_k_m": "gemma-3-270m-q4_k_m.gguf", "smollm2-135m-q4_1": "SmolLM2-135M-Instruct.Q4_1.gguf"}
MARGIN, LEAST, COUNT, PORT = 0.3, 6, 32, 18234
ITEMS = "apple bread chair door eagle fork glass house island jacket kettle lamp mirror needle orange pencil".split()


def ledger(n):
    return "".join(f"Entry {i}: the {ITEMS[i * 7 % 16]} costs {i * 37 % 90 + 10} coins.\n" for i in range(1, n + 1))


# Either questions of a conversation or, as one text, a prompt that is to be gone on with.
AGAIN = "\nThe same list again:\nEntry 1: the house costs 47 coins.\nEntry 2: the"
CASES = {
    "gemma-3-270m-q4_k_m": [
        ["Name three colours of the rainbow.", "And which of them is the sky's?"],
        ["{row 75}\nGo on with the row of numbers.", "And once more."],
        "{ledger 110}" + AGAIN,
    ],
    "smollm2-135m-q4_1": [
        ["What is the capital of France? Answer in one short sentence.", "And of Spain?"],
    ],
}


def written_out(text):
    text = re.sub(r"\{ledger (\d+)\}", lambda m: ledger(int(m[1])), text)
    return re.sub(r"\{row (\d+)\}", lambda m: "1 2 3 4 5 6 7 8 9 10 " * int(m[1]), text)


def post(path, body):
    r = urllib.request.Request(f"http://127.0.0.1:{PORT}{path}", data=json.dumps(body).encode())
    with urllib.request.urlopen(r, timeout=600) as f:
        return json.load(f)


def sure_part(tokens):
    """Of an answer's tokens with the two likeliest of each: the text that is sure, and its number of tokens."""
    text, n = b"", 0
    for t in tokens:
        first, second = (x["logprob"] for x in t["top_logprobs"][:2])
        if first - second < MARGIN:
            break
        text += bytes(t["bytes"])
        n += 1
    return text.decode("utf-8", "ignore") if n >= LEAST else ""


def chat(messages):
    a = post("/v1/chat/completions", {"messages": messages, "max_tokens": COUNT, "temperature": 0, "logprobs": True, "top_logprobs": 2})
    choice = a["choices"][0]
    return {"history": choice["message"]["content"], "sure": sure_part(choice["logprobs"]["content"]),
            "prompt_tokens": a["usage"]["prompt_tokens"]}


def go_on(prompt):
    a = post("/completion", {"prompt": prompt, "n_predict": COUNT, "temperature": 0, "n_probs": 2})
    return {"sure": sure_part(a["completion_probabilities"]), "prompt_tokens": a["tokens_evaluated"]}


def main():
    out = {}
    for name, file in FILES.items():
        server = subprocess.Popen([sys.argv[1], "llama-server", "-dev", "none", "-m", ROOT / ".models" / file, "-c", "8192", "-np", "1",
                                   "--port", str(PORT)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while server.poll() is None:
                try:
                    post("/tokenize", {"content": "a"})
                    break
                except OSError:
                    time.sleep(0.1)
            for case in CASES[name]:
                messages, answers = [], []
                for q in [case] if isinstance(case, str) else case:
                    messages.append({"role": "user", "content": written_out(q)})
                    answers.append(go_on(written_out(q)) if isinstance(case, str) else chat(messages))
                    messages.append({"role": "assistant", "content": answers[-1].get("history", "")})
                    print(name, answers[-1], flush=True)
                out.setdefault(name, []).append({"case": case, "answers": answers})
        finally:
            server.kill()
            server.wait()
    folder = ROOT / "tests" / "golden" / "server"
    folder.mkdir(exist_ok=True)
    (folder / "chats.json").write_text(json.dumps(out, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
