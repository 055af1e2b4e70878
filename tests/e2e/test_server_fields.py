"""Fields of /completion beyond the usual, and options that are every request's defaults. What is expected was seen with
llama-server b11434."""
import json
import os
import re
import socket
import time
from pathlib import Path

import pytest

from cli_tools import ROOT, refused, tiny
from server_tools import Server

SMOLLM2 = Path(os.environ.get("GRAPPA_MODELS") or ROOT / ".models") / "SmolLM2-135M-Instruct.Q4_1.gguf"
TINY = "llama-head32"


@pytest.fixture(scope="module")
def server():
    with Server(tiny(TINY), "-c", "1024", "-np", "2", "--seed", "1", "--context-shift", "--metrics") as s:
        yield s


@pytest.fixture(scope="module")
def smollm2():
    if not SMOLLM2.exists():
        pytest.skip(f"{SMOLLM2} is not there: scripts/models.py smollm2")
    with Server(SMOLLM2, "-c", "512", "-np", "1") as s:
        yield s


# ---- lazy grammars ----
FRANCE = {"prompt": "The capital of France is", "n_predict": 12, "temperature": 0}
PARIS = {"grammar": 'root ::= "Paris" " " [a-z]+ "!"', "grammar_lazy": True}
TOKEN = {"grammar": 'root ::= " Paris" " " [a-z]+ "!"', "grammar_lazy": True}


@pytest.mark.parametrize("body, obeyed", [
    ({**PARIS, "grammar_triggers": [{"type": 2, "value": " (P[a-z]*s)"}]}, True),
    ({**PARIS, "grammar_triggers": [{"type": 3, "value": "[^P]*(Paris)"}]}, True),
    ({**PARIS, "grammar_triggers": [{"type": 3, "value": "aris"}]}, False),  # of the whole text
    ({**PARIS, "grammar_triggers": [{"type": 1, "value": "not in it"}]}, False),
    ({**PARIS}, False),  # nothing to wait for
    ({**TOKEN, "preserved_tokens": [" Paris"], "grammar_triggers": [{"type": 1, "value": " Paris"}]}, True),
    ({**TOKEN, "grammar_triggers": [{"type": 0, "value": "", "token": 7042}]}, True),
    ({**TOKEN, "grammar_triggers": [{"type": 0, "value": "", "token": 5}]}, False),
])
def test_lazy_grammars(smollm2, body, obeyed):
    a = smollm2.ok("/completion", {**FRANCE, **body})
    assert a["content"].startswith(" Paris")
    assert (re.fullmatch(r" Paris [a-z]+!?", a["content"]) is not None) == obeyed, a["content"]
    shown = a["generation_settings"]
    assert shown["grammar_lazy"] is True and shown["grammar"] == body["grammar"]
    assert len(shown["grammar_triggers"]) == len(body.get("grammar_triggers", []))
    assert shown["preserved_tokens"] == ([7042] if "preserved_tokens" in body else [])


def test_lazy_grammars_in_streams_and_other_dialects(smollm2):
    body = {**FRANCE, **PARIS, "grammar_triggers": [{"type": 2, "value": " (P[a-z]*s)"}]}
    whole = smollm2.ok("/completion", body)["content"]
    assert "".join(e["content"] for _, e in smollm2.stream("/completion", body)) == whole
    assert smollm2.ok("/v1/completions", body)["choices"][0]["text"] == whole


@pytest.mark.parametrize("body, words", [
    ({"grammar_triggers": []}, "no triggers set for lazy grammar"),
    ({"grammar_triggers": "a"}, "array"),
    ({"grammar_triggers": ["a"]}, "object"),
    ({"grammar_triggers": [{"type": 1}]}, "string"),
    ({"grammar_triggers": [{"type": 9, "value": "a"}]}, "type"),
    ({"grammar_triggers": [{"type": "word", "value": "a"}]}, "type"),
    ({"grammar_triggers": [{"type": 0, "value": "a"}]}, "token"),
    ({"grammar_triggers": [{"type": 0, "value": "a", "token": -1}]}, "token"),
    ({"grammar_triggers": [{"type": 1, "value": " Paris"}]}, "should be marked as preserved token:  Paris"),
    ({"grammar_triggers": [{"type": 2, "value": "("}]}, "trigger pattern"),
    ({"grammar_triggers": [{"type": 2, "value": "x" * 100000}]}, "trigger pattern"),
    ({"preserved_tokens": [1]}, "preserved_tokens"),
    ({"grammar_lazy": 1}, "grammar_lazy"),
])
def test_triggers_that_are_none(smollm2, body, words):
    status, _, a = smollm2.post("/completion", {**FRANCE, **PARIS, **body})
    assert status == 400 and words in a["error"]["message"], a


def test_a_trigger_that_takes_long_to_look_for(smollm2):
    start = time.time()
    smollm2.ok("/completion", {**FRANCE, **PARIS, "n_predict": 200, "ignore_eos": True,
                               "grammar_triggers": [{"type": 2, "value": "(([a-z ]+)+)+X"}]})
    assert time.time() - start < 60


# ---- constraints as options ----
@pytest.mark.parametrize("option", ["--grammar", "--grammar-file", "-j", "-jf"])
def test_constraint_of_all_requests(tmp_path, option):
    source = '{"enum": ["yes"]}' if "j" in option else 'root ::= "\\"yes\\""'
    (tmp_path / "f").write_text(source)
    value = tmp_path / "f" if "f" in option.split("-")[-1] else source
    with Server(tiny(TINY), "-c", "512", option, value, "--chat-template", "chatml") as s:
        for more in ({}, {"grammar": ""}, {"stream": False}):
            assert s.ok("/completion", {"prompt": "a", "n_predict": 16, **more})["content"] == '"yes"'
        assert s.ok("/completion", {"prompt": "a", "n_predict": 16, "grammar": 'root ::= "no"'})["content"] == "no"
        assert s.ok("/completion", {"prompt": "a", "n_predict": 16, "json_schema": {"enum": ["no"]}})["content"] == '"no"'
        chat = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 16}
        assert s.ok("/v1/chat/completions", chat)["choices"][0]["message"]["content"] == '"yes"'
        assert source in s.get("/props")[2]["default_generation_settings"]["params"].get("grammar", source)


def test_bad_constraints_as_options(tmp_path):
    assert "more than one" in refused("serve", "-m", tiny(TINY), "--port", "0", "--grammar", "a", "-j", "{}")
    assert "none" in refused("serve", "-m", tiny(TINY), "--port", "0", "--grammar-file", tmp_path / "none", status=1)


# ---- indentation, shifts ----
@pytest.mark.sanitize
@pytest.mark.parametrize("text, n_indent, want", [
    ("a\n    b\n  c\nd\ne", 0, None),
    ("a\n    b\n  c\nd\ne", 2, "a\n    b\n  c\n"),
    ("a\n    b\n  c\nd\ne", 4, "a\n    b\n  "),
    ("a\n    b\n  c\nd\ne", 5, "a\n    "),
    ("a\n\tb\n\t\tc\nd", 1, "a\n\tb\n\t\tc\n"),
    ("  a\nb", 2, "  a\n"),
    ("a\n  b\n\n  c", 2, "a\n  b\n"),  # an empty line has none
    ("a", 8, None),
])
def test_indentation(server, text, n_indent, want):
    body = {"prompt": "x", "n_predict": 60, "n_indent": n_indent, "grammar": f"root ::= {json.dumps(text)}"}
    a = server.ok("/completion", body)
    assert a["content"] == (want or text)
    assert a["stop_type"] == ("limit" if want else "eos")
    assert "".join(e["content"] for _, e in server.stream("/completion", body)) == (want or text)
    assert server.post("/completion", {**body, "n_indent": -1})[0] == 400


@pytest.mark.parametrize("n_discard, least, most", [(0, 260, 300), (8, 500, 512), (100000, 0, 300)])
def test_what_a_shift_forgets(server, n_discard, least, most):
    a = server.ok("/completion", {"prompt": "a b c", "n_predict": 530, "n_discard": n_discard, "ignore_eos": True, "id_slot": 1,
                                  "cache_prompt": False})
    assert a["truncated"] is True and a["tokens_predicted"] == 530
    held = [s for s in server.get("/slots")[2] if s["id"] == 1][0]["n_prompt_tokens"]
    assert least <= held <= most


# ---- what is said of slots and guesses ----
def test_slots_say_what_they_do(server):
    body = json.dumps({"prompt": "a b c d", "n_predict": 100000, "ignore_eos": True, "stream": True, "top_k": 7, "id_slot": 0,
                       "logit_bias": [[3, 1.0]]}).encode()

    def slot(id=0):
        return [s for s in server.get("/slots")[2] if s["id"] == id][0]

    with socket.create_connection(("127.0.0.1", server.port)) as s:
        s.sendall(b"POST /completion HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        end = time.time() + 20
        while not (slot()["is_processing"] and slot()["next_token"][0]["n_decoded"] > 3) and time.time() < end:
            time.sleep(0.01)
        now = slot()
    assert now["params"]["top_k"] == 7 and now["params"]["n_predict"] == 100000 and now["params"]["stream"] is True
    assert "logit_bias" not in now["params"] and "samplers" in now["params"]
    next_token = now["next_token"][0]
    assert next_token["has_next_token"] is True
    assert next_token["n_remain"] == 100000 - next_token["n_decoded"]
    server.ok("/completion", {"prompt": "a b", "n_predict": 30, "grammar": 'root ::= "a\\nb"', "id_slot": 1, "top_k": 9})
    after = slot(1)
    assert after["is_processing"] is False and after["params"]["top_k"] == 9
    assert after["next_token"] == [{"has_next_token": False, "has_new_line": False, "n_decoded": 0, "n_remain": -1}]
    assert after["n_prompt_tokens_processed"] == after["n_prompt_tokens_cache"] == 0


@pytest.mark.parametrize("more, name", [({}, "deepseek"), ({"reasoning_format": "none"}, "none"),
                                        ({"reasoning_format": "auto"}, "deepseek"), ({"reasoning_format": "x"}, None)])
def test_reasoning_format_is_shown(server, more, name):
    status, _, a = server.post("/completion", {"prompt": "a", "n_predict": 1, **more})
    assert (status == 400 and "reasoning_format" in a["error"]["message"]) if name is None else (
        a["generation_settings"]["reasoning_format"] == name)


def test_guesses_are_counted():
    with Server(tiny(TINY), "-c", "1024", "--metrics", "--spec-type", "ngram-simple") as s:
        def metric(name):
            return float(re.search(rf"^llamacpp:{name} (.*)$", s.get("/metrics")[2], re.M).group(1))

        assert metric("spec_decode_num_drafts_total") == 0
        a = s.ok("/completion", {"prompt": "a b c d e f g h " * 20, "n_predict": 60, "ignore_eos": True, "temperature": 0,
                                 "grammar": 'root ::= "a b c d e f g h "*'})
        drafted, drafts = metric("spec_decode_num_draft_tokens_total"), metric("spec_decode_num_drafts_total")
        assert a["timings"].get("draft_n", 0) == drafted
        assert 0 < drafts <= drafted


# ---- numbers ----
@pytest.mark.sanitize
@pytest.mark.parametrize("more, status", [
    ('"seed": 18446744073709551615', 200), ('"seed": 99999999999999999999999', 200), ('"top_k": 9223372036854775808', 200),
    ('"temperature": 100000000000000000000000000', 200), ('"n_predict": 123456789012345678901234567890', 400),
    ('"n_predict": -123456789012345678901234567890', 400), ('"unknown": 123456789012345678901234567890', 200),
    ('"unknown": "a \\" 123456789012345678901234567890", "x": [-99999999999999999999]', 200),
    ('"unknown": 99999999999999999999e5', 200), ('"unknown": 1e99999', 400), ('"unknown": 1' + "0" * 400, 400),
    ('"unknown": 099999999999999999999', 400)])
def test_large_numbers(server, more, status):
    got, _, a = server.request("POST", "/completion", raw=b'{"prompt": "a", "n_predict": 1, ' + more.encode() + b"}")
    assert got == status, a
    if status == 200:
        assert a["stop"] is True
