"""Models through the server: conversations as llama-server answers them, also far beyond a sliding window and after a cold
start; hybrid ones, whose second turn finds the first; files with little in them."""
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cli_tools import ROOT, tiny
from server_tools import Server

MODELS = Path(os.environ.get("GRAPPA_MODELS") or ROOT / ".models")
GOLDEN = json.loads((ROOT / "tests/golden/server/chats.json").read_text())
FILES = {"gemma-3-270m-q4_k_m": "gemma-3-270m-q4_k_m.gguf", "smollm2-135m-q4_1": "SmolLM2-135M-Instruct.Q4_1.gguf"}
sys.path.insert(0, str(ROOT / "tests/tools"))
from golden_server import written_out  # noqa: E402


# ---- llama-server's answers ----
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("start", ["first", "second"])
def test_conversations(name, start):
    """Each as the first thing after a cold start, twice; the second time all of them on one server with four slots."""
    path = MODELS / FILES[name]
    if not path.exists():
        pytest.skip(f"{path} is not there: scripts/models.py")
    long = 0

    def check(want, text, n_prompt):
        nonlocal long
        assert n_prompt == want["prompt_tokens"]
        assert text.startswith(want["sure"]), (text, want["sure"])
        long += n_prompt > 1400 and want["sure"] != ""

    with Server(path, "-c", "16384", "-np", "1" if start == "first" else "4", "--temp", "0") as s:
        for row in GOLDEN[name]:
            messages, held = [], 0
            if isinstance(row["case"], str):
                got = s.ok("/completion", {"prompt": written_out(row["case"]), "n_predict": 32})
                check(row["answers"][0], got["content"], got["tokens_evaluated"])
                continue
            for q, a in zip(row["case"], row["answers"]):
                messages.append({"role": "user", "content": written_out(q)})
                got = s.ok("/v1/chat/completions", {"messages": messages, "max_tokens": 32})
                check(a, got["choices"][0]["message"]["content"], got["usage"]["prompt_tokens"])
                assert got["timings"]["cache_n"] >= held
                held = a["prompt_tokens"] - 64
                messages.append({"role": "assistant", "content": a["history"]})
    assert long >= (3 if name.startswith("gemma") else 0)


# ---- hybrid and recurrent ones ----
@pytest.mark.parametrize("name", ["lfm2", "qwen35", "qwen3next", "falcon-h1", "granitehybrid", "nemotron_h", "jamba", "mamba2"])
def test_the_second_turn_of_a_hybrid(name):
    """It finds the first in the cache, and writes what it writes without one."""
    with Server(tiny(name), "-c", "2048", "-np", "2", "--chat-template", "chatml", "--temp", "0") as s:
        def chat(messages, **more):
            return s.ok("/v1/chat/completions", {"messages": messages, "max_tokens": 12, "ignore_eos": True, **more})

        messages = [{"role": "user", "content": "a b c d " * 12}]
        for turn in range(3):
            got = chat(messages)
            fresh = chat(messages, cache_prompt=False)
            assert got["choices"][0]["message"] == fresh["choices"][0]["message"]
            assert fresh["timings"]["cache_n"] == 0
            if turn:
                assert got["timings"]["cache_n"] > 0
            messages += [got["choices"][0]["message"], {"role": "user", "content": "e f g " * 3}]


# ---- files with little in them ----
def without(path, out, *keys):
    done = subprocess.run([sys.executable, "-m", "gguf.scripts.gguf_new_metadata", "--force",
                           *[w for k in keys for w in ("--remove-metadata", k)], str(path), str(out)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


def test_a_file_without_its_type_and_name(tmp_path):
    path = without(tiny("llama-q4_0"), tmp_path / "m.gguf", "general.file_type", "general.name", "general.quantization_version")
    body = {"prompt": "a b c", "n_predict": 12, "temperature": 0}
    with Server(tiny("llama-q4_0"), "-c", "256") as s:
        want = s.ok("/completion", body)["content"]
    with Server(path, "-c", "256") as s:
        assert s.ok("/completion", body)["content"] == want
        assert s.get("/v1/models")[2]["data"][0]["id"] == str(path)
        assert s.get("/props")[2]["model_path"] == str(path)


def test_a_file_without_a_template(tmp_path):
    """It chats as ChatML, llama.cpp's choice."""
    path = without(tiny("llama-head32"), tmp_path / "m.gguf", "tokenizer.chat_template")
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}]
    with Server(path, "-c", "256") as s:
        assert s.ok("/apply-template", {"messages": messages})["prompt"] == (
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n")
        assert s.ok("/v1/chat/completions", {"messages": messages, "max_tokens": 2})["object"] == "chat.completion"


def test_a_file_whose_pre_tokenizer_nobody_knows():
    """It says which name that is, and where."""
    path = MODELS / FILES["smollm2-135m-q4_1"]
    if not path.exists():
        pytest.skip(f"{path} is not there: scripts/models.py smollm2")
    with pytest.raises(RuntimeError) as e:
        with Server(path, "-c", "256", "--override-kv", "tokenizer.ggml.pre=str:no-such"):
            pass
    assert "tokenizer.ggml.pre" in str(e.value) and "no-such" in str(e.value)


# ---- starts ----
@pytest.mark.sanitize
def test_a_cold_start_twice():
    """The same first answer after each, and while the first requests come before the server is ready, 503 and then answers."""
    said = set()
    for _ in range(2):
        start = time.time()
        with Server(tiny("gemma3"), "-c", "1024", "-np", "2") as s:
            a = s.ok("/completion", {"prompt": "a b c " * 100, "n_predict": 16, "temperature": 0, "ignore_eos": True})
            said.add((a["content"], a["tokens_evaluated"], a["timings"]["cache_n"]))
        assert time.time() - start < 60
    assert len(said) == 1 and next(iter(said))[2] == 0
