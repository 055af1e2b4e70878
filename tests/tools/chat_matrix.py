#!/usr/bin/env python3
"""Requests of many kinds through all chat templates of llama.cpp's source package, and what has to come of them.

    chat_matrix.py make SERVER MODEL > tests/golden/chat/matrix.txt
    chat_matrix.py compare PROGRAM

`make` renders each request with Hugging Face transformers' apply_chat_template (5.24) and with llama.cpp's
/apply-template (SERVER: a command that runs llama-server; MODEL: SmolLM2-135M-Instruct), and chooses: transformers'
text where it renders and the request needs nothing that llama-server does on purpose to messages (row's `peer`), else
llama-server's, else "refused". `compare` has PROGRAM (test_chat_matrix) render the same requests and shows the
differences as text. Both keep the peers' answers in the folder $CHAT_MATRIX (default: build/chat_matrix).

The golden file holds "now SECONDS", then a line for each template and request: hash of the prompt, by whom, template,
request. The requests are in requests.json beside it.
"""

import concurrent.futures
import datetime
import difflib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEMPLATES = pathlib.Path(os.environ.get("GRAPPA_TEMPLATES", ROOT / ".models/templates"))
GOLDEN = ROOT / "tests/golden/chat"
BOS, EOS = "<|im_start|>", "<|im_end|>"


def tool(name, description, properties, required):
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER = tool("get_weather", 'Weather of a <city> & "more"', {
    "city": {"type": "string", "description": "Name, e.g. Łódź"},
    "days": {"type": "integer", "enum": [1, 2, 3], "default": 1},
}, ["city"])
SEARCH = tool("search", "Finds things.", {
    "query": {"type": "string", "description": "What to find"},
    "filters": {"type": "object", "properties": {"kind": {"type": "string"}, "price": {"type": "number", "minimum": 0.5}}},
    "tags": {"type": "array", "items": {"type": "string"}},
}, ["query"])
TOOLS = [WEATHER, SEARCH]
BARE = {"type": "function", "function": {"name": "ping"}}

SYSTEM = {"role": "system", "content": 'You are "brief" & kind.'}
REPLY = {"role": "assistant", "content": "Hello, it's me."}


def user(text):
    return {"role": "user", "content": text}


def call(id, name, arguments):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*rows, **more):
    return {"role": "assistant", "content": "", "tool_calls": list(rows), **more}


def result(id, name, content):
    return {"role": "tool", "name": name, "tool_call_id": id, "content": content}


C1 = call("call00001", "get_weather", {"city": "Łódź's", "days": 2, "exact": True})
C2 = call("call00002", "search", {"query": 'a "b"\n<c>', "filters": {"kind": "x", "price": 1.5}, "tags": ["p", "q"]})
TEXT_CALL = call("call00001", "get_weather", '{"city": "Paris", "days": 2}')
R1 = result("call00001", "get_weather", '{"t": 21.5}')
R2 = result("call00002", "search", "nothing\nfound")
THOUGHT = {"role": "assistant", "content": "Hello!", "reasoning_content": "The user greets.\nI greet back."}

# Row: name, request, whose text it must be when both peers render ("hf" or "llama").
CASES = [
    ("user", {"messages": [user("Hi")]}, "hf"),
    ("plain", {"messages": [SYSTEM, user("Hi é 😀"), REPLY, user("  What's 1 < 2?\n")]}, "hf"),
    ("long", {"messages": [SYSTEM] + [user("Hi"), REPLY] * 4 + [user("So?")]}, "hf"),
    ("no question", {"messages": [user("Hi"), REPLY, user("x")], "add_generation_prompt": False}, "hf"),
    ("tools", {"messages": [SYSTEM, user("Weather?")], "tools": TOOLS}, "hf"),
    ("tools, no system", {"messages": [user("Weather?")], "tools": TOOLS}, "hf"),
    ("tools, choice none", {"messages": [user("Weather?")], "tools": [WEATHER], "tool_choice": "none"}, "hf"),
    ("bare tool", {"messages": [user("Ping!")], "tools": [BARE]}, "llama"),
    ("call", {"messages": [user("Weather?"), calls(C1), R1], "tools": TOOLS}, "hf"),
    ("call and answer", {"messages": [SYSTEM, user("Weather?"), calls(C1), R1, REPLY, user("And?")], "tools": TOOLS}, "hf"),
    ("two calls", {"messages": [user("Weather?"), calls(C1, C2), R1, R2], "tools": TOOLS}, "hf"),
    ("calls in turn", {"messages": [user("Do."), calls(C1), R1, calls(C2), R2, REPLY, user("And?")], "tools": TOOLS}, "hf"),
    ("call with content", {"messages": [user("Weather?"), {**calls(C1), "content": "Let me see."}, R1], "tools": TOOLS}, "hf"),
    ("null argument", {"messages": [user("Weather?"), calls(call("call00001", "get_weather", {"city": None, "days": 1.5})), R1],
                       "tools": TOOLS}, "hf"),
    ("arguments as text", {"messages": [user("Weather?"), calls(TEXT_CALL), R1], "tools": TOOLS}, "llama"),
    ("null content", {"messages": [user("Weather?"), {**calls(TEXT_CALL), "content": None}, R1], "tools": TOOLS}, "llama"),
    ("absent content", {"messages": [user("Weather?"), {k: v for k, v in calls(TEXT_CALL).items() if k != "content"}, R1],
                        "tools": TOOLS}, "llama"),
    ("call, tools gone", {"messages": [user("Weather?"), calls(TEXT_CALL), R1, user("And?")]}, "llama"),
    ("reasoning", {"messages": [user("Hi"), THOUGHT, user("So?")]}, "hf"),
    ("reasoning and call", {"messages": [user("Weather?"), calls(C1, reasoning_content="I need it."), R1], "tools": TOOLS}, "hf"),
    ("reasoning in text", {"messages": [user("Hi"), {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello"}, user("So?")]},
     "hf"),
    ("thinking off", {"messages": [SYSTEM, user("Hi")], "chat_template_kwargs": {"enable_thinking": False}}, "hf"),
    ("thinking off, later", {"messages": [user("Hi"), THOUGHT, user("So?")], "chat_template_kwargs": {"enable_thinking": False}},
     "hf"),
    ("kwargs", {"messages": [SYSTEM, user("Hi")], "chat_template_kwargs": {"custom": [1, "a"], "thinking": True, "date_string": "1 Jan"}},
     "hf"),
    ("effort", {"messages": [SYSTEM, user("Hi")], "chat_template_kwargs": {"reasoning_effort": "low"}}, "hf"),
    ("preserve", {"messages": [user("Hi"), THOUGHT, user("So?")], "chat_template_kwargs": {"preserve_reasoning": True}}, "llama"),
    ("parts", {"messages": [SYSTEM, {"role": "user", "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}]}]},
     "llama"),
    ("developer", {"messages": [{"role": "developer", "content": "Be brief."}, user("Hi")]}, "llama"),
    ("late system", {"messages": [user("Hi"), SYSTEM, user("So?")]}, "hf"),
    ("two systems", {"messages": [SYSTEM, {"role": "system", "content": "And quick."}, user("So?")]}, "hf"),
    ("empty content", {"messages": [user(""), {"role": "assistant", "content": ""}, user("Hi")]}, "hf"),
    ("image", {"messages": [{"role": "user", "content": [{"type": "text", "text": "What?"}, {
        "type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]}]}, "llama"),
    ("continue", {"messages": [user("Count."), {"role": "assistant", "content": "One, two,"}]}, "llama"),
    ("continue reasoning", {"messages": [user("Count."), {"role": "assistant", "content": "", "reasoning_content": "I have to"}]},
     "llama"),
    ("continue both", {"messages": [SYSTEM, user("Count."), {"role": "assistant", "content": "One,", "reasoning_content": "Easy."}]},
     "llama"),
    ("two at the end", {"messages": [user("Count."), REPLY, REPLY]}, "llama"),
]


# Templates that think only when they are told to: llama-server leaves thinking off.
SILENT = {"Apertus-8B-Instruct"}

# Row: template, requests, why it must be llama-server's text though transformers renders another.
ON_PURPOSE = [
    ("StepFun3.5-Flash", "plain", "white space around messages is cut off"),
    ("google-gemma-4-31B-it", "call with content", "the model's turn is opened"),
    ("google-gemma-4-31B-it-interleaved", "call.*|two calls|null argument|reasoning and call",
     "results of tools become a field of the call's message, the only form that this template knows"),
    ("mistralai-Ministral-3.*|.*Devstral.*", "reasoning.*|thinking off, later", "reasoning becomes a part of the content"),
    ("muse-glimmer", "effort", "reasoning_effort is also reasoning_strength"),
]

# Row: template, requests, why neither peer's text is right. These are not in the golden file.
NEITHER = [
    ("meetkai-functionary-medium-v3.1", "bare tool|arguments as text|null content|absent content",
     "text is joined with what `safe` marked: escaped as Jinja2 does, which llama.cpp doesn't; and Jinja2 alone gets other "
     "messages"),
    ("CohereForAI-c4ai-command-r-plus-tool_use", "call, tools gone", "llama.cpp keeps a newline that Jinja2 drops"),
    ("google-gemma-4-31B-it-interleaved", "null argument", "llama.cpp prints None as nothing"),
    ("HuggingFaceTB-SmolLM3-3B|llama-cpp-rwkv-world|microsoft-Phi-3.5.*",
     "(bare )?tools?(, no system)?|call|call and.*|call with.*|two calls|calls in turn|null argument|arguments.*|(null|absent) content|"
     "reasoning and call", "the template shows no tools: they stand in the system message"),
    ("google-gemma-2.*", "(bare )?tools?(, no system)?", "the same"),
    ("Apertus.*|Apriel-1.6.*|upstage-Solar.*|NVIDIA-Nemotron-Nano-v2|llama-cpp-rwkv-world|poolside-Laguna-XS.*", "continue.*",
     "llama.cpp doesn't know the marks of reasoning, or the white space that belongs to them"),
]


def listed(rows, template, name):
    return any(re.fullmatch(t, template) and re.fullmatch(n, name) for t, n, _ in rows)


# ---- the peers ----

def by_transformers(source, request, now, thinking=True):
    from transformers.utils import chat_template_utils as utils

    class clock(datetime.datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.datetime.fromtimestamp(now, datetime.timezone.utc)

    utils.datetime = clock
    today = clock.now()
    kwargs = {"bos_token": BOS, "eos_token": EOS, "enable_thinking": thinking, "datetime": today.strftime("%b %d %Y"),
              "date_string": today.strftime("%d %b %Y"), **request.get("chat_template_kwargs", {})}
    messages = utils._normalize_chat_messages(request["messages"])
    ask = request.get("add_generation_prompt", True)
    error = None
    for tools in [request["tools"]] if "tools" in request else [None, []]:  # some templates loop over none, which is an error
        try:
            texts, _ = utils.render_jinja_template([messages], tools=tools, chat_template=source, add_generation_prompt=ask, **kwargs)
            return {"prompt": texts[0]}
        except Exception as e:
            error = error or f"{type(e).__name__}: {e}"
    return {"error": error}


def post(port, path, body):
    call = urllib.request.Request(f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(),
                                  {"Content-Type": "application/json"})
    try:
        return json.load(urllib.request.urlopen(call, timeout=60))
    except urllib.error.HTTPError as e:
        return {"error": json.load(e)["error"]["message"]}


def by_server(server, model, path):
    """Answers to all requests, and the capabilities of the template."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    command = [*server, "-m", model, "--jinja", "--chat-template-file", str(path), "-dev", "none", "--port", str(port),
               "-c", "512", "-np", "1", "--no-warmup", "--no-webui"]
    env = {**os.environ, "TZ": "UTC"}
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env) as process:
        try:
            drain = concurrent.futures.ThreadPoolExecutor(1).submit(process.stderr.read)
            for _ in range(600):
                if process.poll() is not None:
                    return {"failed": drain.result().decode(errors="replace")[-400:]}
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
                    break
                except OSError:
                    time.sleep(0.1)
            answers = {name: post(port, "/apply-template", request) for name, request, _ in CASES}
            caps = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/props"))["chat_template_caps"]
            return {"answers": answers, "caps": caps}
        finally:
            process.terminate()
            process.wait()


def peers(server=None, model=None):
    """What both make of everything, from the folder or made anew."""
    folder = pathlib.Path(os.environ.get("CHAT_MATRIX", ROOT / "build/chat_matrix"))
    folder.mkdir(parents=True, exist_ok=True)
    stamp = folder / "now"
    if not stamp.exists():
        stamp.write_text(str(int(time.time())))
    now = int(stamp.read_text())
    out = {}
    for path in sorted(TEMPLATES.glob("*.jinja")):
        kept = folder / (path.stem + ".json")
        known = json.loads(kept.read_text()) if kept.exists() else {}
        wanted = {name: request for name, request, _ in CASES}
        if known.get("requests") != wanted and server:
            print(path.stem, file=sys.stderr)
            known = {"requests": wanted, "llama": by_server(server, model, path)}
            kept.write_text(json.dumps(known))
        known["hf"] = {name: by_transformers(path.read_text(), request, now, path.stem not in SILENT) for name, request, _ in CASES}
        out[path] = known
    return now, out


# ---- what is expected ----

def expected(path, name, peer, known):
    """(by whom, text or None); None for what is in no golden file"""
    if listed(NEITHER, path.stem, name):
        return None
    if listed(ON_PURPOSE, path.stem, name):
        peer = "llama"
    hf = known["hf"][name].get("prompt")
    llama = known["llama"].get("answers", {}).get(name, {}).get("prompt")
    order = [("hf", hf), ("llama", llama)]
    for whose, text in order if peer == "hf" else reversed(order):
        if text is not None and (whose == peer or not refused_on_purpose(name)):
            return whose, text
    return "refused", None


def refused_on_purpose(name):
    return name in ("image", "two at the end")


def digest(text):
    """FNV-1a, 64 bits."""
    h = 0xCBF29CE484222325
    for byte in text.encode():
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"


def make(server, model):
    now, known = peers(server, model)
    (GOLDEN / "requests.json").write_text(
        json.dumps({name: request for name, request, _ in CASES}, ensure_ascii=False, indent=1) + "\n")
    print("now", now)
    for path, k in known.items():
        for name, _, peer in CASES:
            whose, text = expected(path, name, peer, k) or ("neither", None)
            if whose == "neither":
                continue
            print(digest(text) if text is not None else "-" * 16, whose, path.stem, name, sep="\t")


def compare(program):
    now, known = peers()
    lines = [json.dumps({"template": str(path), "now": now, "request": request}) for path in known for _, request, _ in CASES]
    run = subprocess.run([program, "render"], input="\n".join(lines), text=True, capture_output=True, env={**os.environ, "TZ": "UTC"})
    ours = iter(map(json.loads, run.stdout.splitlines()))
    counts = {}
    only = os.environ.get("ONLY", "")
    for path, k in known.items():
        got_caps = None
        for name, _, peer in CASES:
            got = next(ours)
            got_caps = got.get("caps", got_caps)
            whose, text = expected(path, name, peer, k) or ("neither", None)
            llama = k["llama"].get("answers", {}).get(name, {})
            same = got.get("prompt") == text
            if whose == "neither":
                same = True
            kind = "apart" if whose == "neither" else "refused by all" if same and text is None else f"as {whose}" if same else "differ"
            count = counts.setdefault(name, {})
            count[kind] = count.get(kind, 0) + 1
            if not same and re.search(only, f"{path.stem}/{name}"):
                print(f"{name}: {path.stem}: want {whose}, hf {k['hf'][name].get('error', 'ok')[:80]!r}, "
                      f"llama {'same as grappa' if llama.get('prompt') == got.get('prompt') else llama.get('error', 'ok')[-80:]!r}, "
                      f"grappa {got.get('error', 'ok')!r}")
                if text is not None and "prompt" in got:
                    diff = difflib.unified_diff(text.splitlines(True), got["prompt"].splitlines(True), n=0)
                    print("".join(f"    {line!r}\n" for line in list(diff)[2:10]), end="")
        caps = k["llama"].get("caps")
        if caps and got_caps and caps != got_caps:
            print(f"caps: {path.stem}:", {n: (caps[n], got_caps.get(n)) for n in caps if caps[n] != got_caps.get(n)})
    for name, count in counts.items():
        print(f"{name:24}", ", ".join(f"{n} {kind}" for kind, n in sorted(count.items())))
    sys.stderr.write(run.stderr)


if __name__ == "__main__":
    if len(sys.argv) == 4 and sys.argv[1] == "make":
        make(sys.argv[2].split(), sys.argv[3])
    elif len(sys.argv) == 3 and sys.argv[1] == "compare":
        compare(sys.argv[2])
    else:
        sys.exit(__doc__)
