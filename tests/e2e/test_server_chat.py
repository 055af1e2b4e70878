"""Chats in three dialects, on SmolLM2."""
import json
import os
from pathlib import Path

import pytest

from cli_tools import ROOT
from server_tools import Server

SMOLLM2 = Path(os.environ.get("GRAPPA_MODELS") or ROOT / ".models") / "SmolLM2-135M-Instruct.Q4_1.gguf"
if not SMOLLM2.exists():
    pytest.skip(f"{SMOLLM2} is not there: scripts/models.py smollm2", allow_module_level=True)

ASK = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]


@pytest.fixture(scope="module")
def server():
    with Server(SMOLLM2, "-c", "4096", "-np", "2", "--temp", "0", "--alias", "smol") as s:
        yield s


def test_chat(server):
    a = server.ok("/v1/chat/completions", {"messages": ASK, "max_tokens": 32})
    choice = a["choices"][0]
    assert "Paris" in choice["message"]["content"]
    assert choice["message"]["role"] == "assistant"
    assert choice["finish_reason"] == "stop"
    assert a["usage"]["total_tokens"] == a["usage"]["prompt_tokens"] + a["usage"]["completion_tokens"]
    assert a["model"] == "smol" and a["object"] == "chat.completion"


def test_chat_streamed_says_the_same(server):
    whole = server.ok("/v1/chat/completions", {"messages": ASK, "max_tokens": 32})
    events = [e for _, e in server.stream("/v1/chat/completions", {"messages": ASK, "max_tokens": 32,
                                                                   "stream_options": {"include_usage": True}})]
    assert events[-1] == "[DONE]"
    chunks = events[:-1]
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert len({c["id"] for c in chunks}) == 1
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("max_tokens", range(1, 13))
@pytest.mark.parametrize("streamed", [False, True])
def test_characters_are_never_cut(server, max_tokens, streamed):
    body = {"messages": [{"role": "user", "content": "Write only emoji, many of them: 🤗🎉🚀"}], "max_tokens": max_tokens,
            "logit_bias": {}, "temperature": 1, "seed": max_tokens, "logprobs": True, "top_logprobs": 2}
    if streamed:
        chunks = [e for _, e in server.stream("/v1/chat/completions", body) if e != "[DONE]"]
        text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
        tokens = [t for c in chunks for t in (c["choices"][0].get("logprobs") or {}).get("content", [])]
    else:
        choice = server.ok("/v1/chat/completions", body)["choices"][0]
        text, tokens = choice["message"]["content"], choice["logprobs"]["content"]
    raw = b"".join(bytes(t["bytes"]) for t in tokens)
    # Every byte that was written is accounted for; what is cut at the end is not shown as a broken character.
    assert raw.decode("utf-8", "ignore").startswith(text.rstrip("\ufffd")) or "\ufffd" not in text
    assert b"\xef\xbf\xbd" not in raw


@pytest.mark.parametrize("stop", [["Paris"], "Paris", ["is", "zzz"], ["capital of F"]])
def test_stop_texts_are_left_out(server, stop):
    body = {"messages": ASK, "max_tokens": 32, "stop": stop}
    whole = server.ok("/v1/chat/completions", body)["choices"][0]
    chunks = [e for _, e in server.stream("/v1/chat/completions", body) if e != "[DONE]"]
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks)
    full = server.ok("/v1/chat/completions", {**body, "stop": []})["choices"][0]["message"]["content"]
    words = [stop] if isinstance(stop, str) else stop
    end = min((full.index(w) for w in words if w in full), default=len(full))
    assert whole["message"]["content"] == text == full[:end]
    assert whole["finish_reason"] == "stop"


def test_same_prompt_at_once(server):
    import concurrent.futures as cf

    def ask(_):
        return server.ok("/completion", {"prompt": "Once upon a time", "n_predict": 48, "temperature": 0})["content"]

    alone = ask(0)
    with cf.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [alone] * 4


def test_conversation_reuses_its_beginning(server):
    first = server.ok("/v1/chat/completions", {"messages": ASK, "max_tokens": 24, "id_slot": 1})
    turns = [*ASK, {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
             {"role": "user", "content": "And of Spain?"}]
    second = server.ok("/v1/chat/completions", {"messages": turns, "max_tokens": 24, "id_slot": 1})
    assert second["timings"]["cache_n"] > first["usage"]["prompt_tokens"] / 2
    fresh = server.ok("/v1/chat/completions", {"messages": turns, "max_tokens": 24, "cache_prompt": False})
    assert fresh["choices"][0]["message"]["content"] == second["choices"][0]["message"]["content"]


def test_too_long_a_prompt(server):
    status, _, a = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 5000}]})
    assert status == 400
    assert a["error"]["type"] == "exceed_context_size_error"
    assert a["error"]["n_ctx"] == 2048 and a["error"]["n_prompt_tokens"] > 4000


def test_context_that_fills_ends_with_length(server):
    a = server.ok("/completion", {"prompt": "word " * 1990, "n_predict": -1, "ignore_eos": True})
    assert a["stop_type"] == "limit" and a["truncated"] is True
    assert a["tokens_evaluated"] + a["tokens_predicted"] <= 2049


@pytest.mark.parametrize("messages", [None, "text", [1], [{}], [{"role": 1}], [{"role": "user", "content": 1}],
                                      [{"role": "user"}]])
def test_messages_that_are_none(server, messages):
    status, _, a = server.post("/v1/chat/completions", {"messages": messages})
    assert status == 400 and a["error"]["type"] == "invalid_request_error"


def test_responses(server):
    a = server.ok("/v1/responses", {"input": ASK[0]["content"], "max_output_tokens": 32})
    assert a["object"] == "response" and a["status"] == "completed"
    assert "Paris" in a["output"][0]["content"][0]["text"]
    events = list(server.stream("/v1/responses", {"input": ASK[0]["content"], "max_output_tokens": 32}))
    names = [n for n, _ in events]
    assert names[:2] == ["response.created", "response.in_progress"] and names[-1] == "response.completed"
    assert all(n == e["type"] for n, e in events)
    text = "".join(e["delta"] for n, e in events if n == "response.output_text.delta")
    assert text == a["output"][0]["content"][0]["text"]


def test_messages(server):
    body = {"model": "any", "max_tokens": 32, "system": "Be brief.", "messages": ASK}
    a = server.ok("/v1/messages", body)
    assert a["type"] == "message" and a["content"][0]["type"] == "text"
    assert "Paris" in a["content"][0]["text"]
    events = list(server.stream("/v1/messages", body))
    names = [n for n, _ in events]
    assert names[:2] == ["message_start", "content_block_start"]
    assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    text = "".join(e["delta"]["text"] for n, e in events if n == "content_block_delta")
    assert text == a["content"][0]["text"]
    count = server.ok("/v1/messages/count_tokens", body)["input_tokens"]
    assert count == a["usage"]["input_tokens"] + a["usage"]["cache_read_input_tokens"]


def test_numbers_of_choices(server):
    a = server.ok("/v1/chat/completions", {"messages": ASK, "max_tokens": 8, "n": 2, "temperature": 1.5, "seed": 3})
    assert [c["index"] for c in a["choices"]] == [0, 1]
    assert a["choices"][0]["message"] != a["choices"][1]["message"]
    status, _, a = server.post("/v1/chat/completions", {"messages": ASK, "n": 3})
    assert status == 400 and "'n'" in a["error"]["message"]


def test_apply_template_and_counts(server):
    prompt = server.ok("/apply-template", {"messages": ASK})["prompt"]
    assert prompt.endswith("<|im_start|>assistant\n") and ASK[0]["content"] in prompt
    tokens = server.ok("/tokenize", {"content": prompt, "add_special": True})["tokens"]
    assert server.ok("/v1/chat/completions/input_tokens", {"messages": ASK})["input_tokens"] == len(tokens)
    assert server.ok("/detokenize", {"tokens": tokens})["content"] == prompt


def test_timings_and_progress(server):
    chunks = [e for _, e in server.stream("/completion", {"prompt": "a " * 1200, "n_predict": 2, "return_progress": True,
                                                          "cache_prompt": False})]
    progress = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
    assert progress[0]["processed"] == progress[0]["cache"] == 0
    assert progress[-1]["processed"] == progress[-1]["total"] >= 1200
    assert json.dumps(chunks[-1]["timings"])


STRICT = """{%- for m in messages -%}
{%- if m.role == 'tool' and messages[loop.index0 - 1].role not in ('assistant', 'tool') -%}{{ raise_exception('a result without its call') }}{%- endif -%}
<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def test_results_stand_behind_their_calls(tmp_path):
    """Anthropic's clients put the results and what the user says next into one message."""
    (tmp_path / "t.jinja").write_text(STRICT)
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": f"t{i}", "name": "f", "input": {}} for i in (1, 2)]}
    results = [{"type": "tool_result", "tool_use_id": f"t{i}", "content": "rainy"} for i in (1, 2)]
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    with Server(SMOLLM2, "-c", "1024", "-np", "1", "--temp", "0", "--chat-template-file", tmp_path / "t.jinja") as s:
        for more in ([], [{"type": "text", "text": "And now?"}]):
            turns = [{"role": "user", "content": "a"}, use, {"role": "user", "content": [*results, *more]}]
            body = {"max_tokens": 4, "messages": turns, "tools": tools,
                    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
            assert s.ok("/v1/messages", body)["type"] == "message"
        wrong = [{"role": "user", "content": [{"type": "text", "text": "x"}, *results]}]
        status, _, a = s.post("/v1/messages", {"max_tokens": 4, "messages": wrong})
        assert status == 400 and "a result without its call" in a["error"]["message"]
