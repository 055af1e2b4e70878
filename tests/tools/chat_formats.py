#!/usr/bin/env python3
"""Makes tests/golden/chat/formats: outputs of models in every format, and the message in each.

    g++ -std=c++17 -I LLAMA/common -I LLAMA/include -I LLAMA/ggml/include -I LLAMA/vendor \\
        tests/tools/chat_formats_reference.cpp -o reference -L LIBS -l:libllama-common.so.0 …
    tests/tools/chat_formats.py ./reference .models/templates [FORMAT…]

Most outputs are what a template itself writes for a message, so the message is known before; chat_formats_reference
(llama.cpp's parser) reads them back, and what it finds is what is expected. Others are written by hand after the
format's document. Where we differ from llama.cpp on purpose, the case says what it has in "llama.cpp".
"""
import json
import os
import subprocess
import sys

OUT = "tests/golden/chat/formats"
ENDS = ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<|end_of_text|>", "<turn|>", "<end_of_turn>", "<|return|>",
        "<|call|>", "<seed:eos>", "[e~[", "<|END_OF_TURN_TOKEN|>", "<|assistant_end|>", "<SPECIAL_12>",
        "<｜end▁of▁sentence｜>", "<|endoftext|>", "<|end|>", "<|user|>", "<|observation|>", "<sep>", "<|message_sep|>"]

TOOLS = [
    ("weather", {"city": {"type": "string"}, "days": {"type": "integer"}, "metric": {"type": "boolean"}}, ["city"]),
    ("note", {"text": {"type": "string"}}, ["text"]),
    ("search", {"query": {"type": "string"},
                "filters": {"type": "object", "properties": {"lang": {"type": "string"},
                                                             "years": {"type": "array", "items": {"type": "integer"}}}},
                "tags": {"type": "array", "items": {"type": "string"}}}, ["query"]),
    ("ping", {}, []),
    ("set", {"key": {"type": "string"}, "value": {"type": ["string", "number", "null"]}}, ["key", "value"]),
]
TOOLS = [{"type": "function", "function": {"name": n, "description": "A tool.",
                                           "parameters": {"type": "object", "properties": p, "required": r}}}
         for n, p, r in TOOLS]


def call(name, **arguments):
    return {"id": "call00001", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


def message(content="", reasoning=None, *calls):
    m = {"role": "assistant", "content": content}
    if reasoning:
        m["reasoning_content"] = reasoning
    if calls:
        m["tool_calls"] = list(calls)
    return m


HARD = "He said \"no\\yes\"\n\tthen </b> {left}, 'quoted' — ünïcödé 日本語 🎉"
MESSAGES = {
    "plain": message("Hello!\n\nTwo lines, and a <b>tag</b> {\"not\": \"a call\"}."),
    "call": message("", None, call("weather", city="Paris")),
    "types": message("", None, call("weather", city="New York", days=3, metric=True)),
    "content and call": message("Let me look.", None, call("weather", city="Oslo", days=1)),
    "hard string": message("", None, call("note", text=HARD)),
    "empty string": message("", None, call("note", text="")),
    "nested": message("", None, call("search", query="a b", filters={"lang": "de", "years": [1999, -5]},
                                     tags=["x", "y z"])),
    "two calls": message("", None, call("weather", city="Rome"), call("ping")),
    "three calls": message("Three:", None, call("note", text="one"), call("note", text="two"), call("ping")),
    "no arguments": message("", None, call("ping")),
    "union": message("", None, call("set", key="a", value=1.5), call("set", key="b", value="text")),
    "reasoning": message("The answer is 4.", "Two and two.\nThat is four."),
    "reasoning and call": message("", "I need the weather.", call("weather", city="Bern")),
    "all of it": message("Looking.", "First think.", call("weather", city="Bern"), call("note", text="done")),
}

# format: (template, …); the first is that of the hand-written outputs
TEMPLATES = {
    "hermes": ("Qwen-Qwen3-0.6B", "Qwen-Qwen2.5-7B-Instruct", "NousResearch-Hermes-3-Llama-3.1-8B-tool_use",
               "ibm-granite-granite-4.0", "MiMo-VL", "Qwen-QwQ-32B"),
    "qwen3-coder": ("Qwen3-Coder", "Qwen3.5-4B", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "StepFun3.5-Flash"),
    "llama3-json": ("meta-llama-Llama-3.1-8B-Instruct", "meta-llama-Llama-3.2-3B-Instruct"),
    "mistral-nemo": ("mistralai-Mistral-Nemo-Instruct-2407",),
    "mistral-args": ("mistralai-Ministral-3-14B-Reasoning-2512", "Mistral-Small-3.2-24B-Instruct-2506",
                     "unsloth-mistral-Devstral-Small-2507"),
    "harmony": ("openai-gpt-oss-120b",),
    "deepseek-r1": ("llama-cpp-deepseek-r1", "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B"),
    "deepseek-v3.1": ("deepseek-ai-DeepSeek-V3.1",),
    "deepseek-v3.2": ("deepseek-ai-DeepSeek-V3.2",),
    "deepseek-v4": ("deepseek-ai-DeepSeek-V4",),
    "gemma4": ("google-gemma-4-31B-it",),
    "granite": ("ibm-granite-granite-3.3-2B-Instruct",),
    "command-r7b": ("CohereForAI-c4ai-command-r7b-12-2024-tool_use",),
    "command-r": ("CohereForAI-c4ai-command-r-plus-tool_use",),
    "cohere2-moe": ("Cohere2MoE",),
    "glm": ("GLM-4.6", "GLM-4.7-Flash", "Spark2.5", "poolside-Laguna-XS-2.1"),
    "ling": ("inclusionai-ling-3.0-flash",),
    "minimax-m2": ("MiniMax-M2",),
    "kimi-k2": ("Kimi-K2-Thinking", "moonshotai-Kimi-K2"),
    "kimi-k3": ("Kimi-K3",),
    "nemotron-v2": ("NVIDIA-Nemotron-Nano-v2",),
    "apertus": ("Apertus-8B-Instruct",),
    "lfm2": ("LFM2-8B-A1B", "LFM2.5-8B-A1B"),
    "functionary-v3.1": ("meetkai-functionary-medium-v3.1",),
    "functionary-v3.2": ("meetkai-functionary-medium-v3.2",),
    "seed-oss": ("ByteDance-Seed-OSS",),
    "minicpm5": ("openbmb-MiniCPM5-1B",),
    "apriel": ("unsloth-Apriel-1.5",),
    "apriel-1.6": ("Apriel-1.6-15b-Thinker-fixed",),
    "firefunction": ("fireworks-ai-llama-3-firefunction-v2",),
    "gigachat-3": ("GigaChat3-10B-A1.8B",),
    "gigachat-3.1": ("GigaChat3.1-10B-A1.8B",),
    "muse-glimmer": ("muse-glimmer",),
    "llm-jp-harmony": ("llm-jp-llm-jp-4.1-8b-thinking",),
    "generic": ("google-gemma-2-2b-it",),
}


def say(content="", reasoning="", *calls):
    return {"content": content, "reasoning": reasoning,
            "calls": [{"name": c[0], "arguments": c[1], "id": c[2] if len(c) > 2 else ""} for c in calls]}


PARIS = ("weather", '{"city": "Paris"}')
# format: (name, output, message that must come out; None: llama.cpp's)
BY_HAND = {
    "hermes": [
        ("mark in prose", "Write <tool_call> and then JSON.", say("Write <tool_call> and then JSON.")),
        ("unknown tool", '<tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call>',
         say('<tool_call>\n{"name": "nope", "arguments": {}}\n</tool_call>')),
        ("cut", '<tool_call>\n{"name": "weather", "arguments": {"city": "Pa',
         say('<tool_call>\n{"name": "weather", "arguments": {"city": "Pa')),
        ("broken JSON", '<tool_call>\n{"name": "weather", "arguments": {"city": Paris}}\n</tool_call>',
         say('<tool_call>\n{"name": "weather", "arguments": {"city": Paris}}\n</tool_call>')),
        ("no end mark", '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}', say("", "", PARIS)),
        ("arguments first", '<tool_call>{"arguments": {"city": "Paris"}, "name": "weather"}</tool_call>',
         say("", "", PARIS)),
        ("arguments in a string", '<tool_call>{"name": "weather", "arguments": "{\\"city\\": \\"Paris\\"}"}</tool_call>',
         say("", "", PARIS)),
        ("text behind", '<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>\nThat was it.',
         say("That was it.", "", ("ping", "{}"))),
        ("mark twice", '<tool_call>\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>',
         say("<tool_call>\n", "", ("ping", "{}"))),
        ("reasoning not closed", "<think>\nI wonder", say("", "I wonder")),
        ("call in reasoning", '<think>\nI could <tool_call>{"name": "ping", "arguments": {}}</tool_call>\n</think>\n\nNo.',
         say("No.", 'I could <tool_call>{"name": "ping", "arguments": {}}</tool_call>\n')),
        ("empty reasoning", "<think>\n\n</think>\n\nHi", say("Hi")),
        ("half a mark at the end", "a <tool_cal", say("a <tool_cal")),
    ],
    "qwen3-coder": [
        ("first mark left out", "<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>", None),
        ("tags in a value", "<tool_call>\n<function=note>\n<parameter=text>\na <parameter=b>c</parameter> d\n</parameter>\n"
         "</function>\n</tool_call>", say("", "", ("note", '{"text":"a <parameter=b>c</parameter> d"}'))),
        ("cut in a value", "<tool_call>\n<function=note>\n<parameter=text>\nabc",
         say("<tool_call>\n<function=note>\n<parameter=text>\nabc")),
        ("Python's words", "<tool_call>\n<function=weather>\n<parameter=city>\nTrue\n</parameter>\n<parameter=metric>\nTrue\n"
         "</parameter>\n</function>\n</tool_call>", say("", "", ("weather", '{"city":"True","metric":true}'))),
    ],
    "llama3-json": [
        ("function wrapper", '{"type": "function", "name": "weather", "parameters": {"city": "Paris"}}', say("", "", PARIS)),
        ("JSON answer", '{"answer": 42, "name": "weather"}', say('{"answer": 42, "name": "weather"}')),
        ("two", '{"name": "ping", "parameters": {}}; {"name": "weather", "parameters": {"city": "Paris"}}',
         say("", "", ("ping", "{}"), PARIS)),
        ("python tag, call", '<|python_tag|>weather.call(city="Paris", days=2)',
         say("", "", ("weather", '{"city":"Paris","days":2}'))),
        ("python tag, JSON", '<|python_tag|>{"name": "weather", "parameters": {"city": "Paris"}}', say("", "", PARIS)),
        ("python tag, no such tool", "<|python_tag|>print(1)", say("<|python_tag|>print(1)")),
    ],
    "mistral-nemo": [
        ("with an id", '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Paris"}, "id": "abcDEF123"}]', None),
        ("two", '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Paris"}, "id": "abcDEF123"}, '
         '{"name": "ping", "arguments": {}, "id": "abcDEF124"}]', None),
        ("cut between", '[TOOL_CALLS][{"name": "ping", "arguments": {}}, {"name": "wea',
         say(', {"name": "wea', "", ("ping", "{}"))),
    ],
    "mistral-args": [
        ("call", '[TOOL_CALLS]weather[ARGS]{"city": "Paris"}', None),
        ("reasoning and two calls", '[THINK]Hm.[/THINK]Now.[TOOL_CALLS]weather[ARGS]{"city": "Paris"}[TOOL_CALLS]ping[ARGS]{}',
         None),
        ("call in reasoning", "[THINK]maybe [TOOL_CALLS]ping[ARGS]{}[/THINK]No.", None),
    ],
    "harmony": [
        ("final", "<|channel|>final<|message|>Hello!", None),
        ("analysis and final", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello!",
         None),
        ("call, recipient in the channel", "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary "
         'to=functions.weather <|constrain|>json<|message|>{"city": "Paris"}', None),
        ("call, recipient in the role", "<|channel|>analysis<|message|>Look.<|end|><|start|>assistant to=functions.weather"
         '<|channel|>commentary json<|message|>{"city": "Paris"}', None),
        ("preamble", "<|channel|>commentary<|message|>I will look.<|end|><|start|>assistant<|channel|>commentary "
         'to=functions.ping <|constrain|>json<|message|>{}', None),
        ("tool that nobody offered", '<|channel|>commentary to=python code<|message|>print(1)', say()),
        ("no header", "Hello without a channel.", say("Hello without a channel.")),
        ("broken arguments", "<|channel|>commentary to=functions.weather json<|message|>{city}",
         say("<|channel|>commentary to=functions.weather json<|message|>{city}")),
        ("two analyses", "<|channel|>analysis<|message|>One.<|end|><|start|>assistant<|channel|>analysis<|message|> Two.<|end|>"
         "<|start|>assistant<|channel|>final<|message|>Hello!", None),
        ("analysis not closed", "<|channel|>analysis<|message|>Still thinking", say("", "Still thinking")),
    ],
    "deepseek-r1": [
        ("call", "Look.</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
         '{"city": "Paris"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>', say("", "Look.", PARIS)),
        ("two calls", "Look.</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n"
         '{"city": "Paris"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>ping\n```json\n{}\n```'
         "<｜tool▁call▁end｜><｜tool▁calls▁end｜>", say("", "Look.", PARIS, ("ping", "{}"))),
    ],
    "gemma4": [
        ("two thoughts", "<|channel>thought\nOne.<channel|>Text.<|channel>thought\nTwo.<channel|>More.",
         say("Text.More.", "One.Two.")),
        ("stray mark", "<|channel>thought\n<channel|>Hello!<channel|>", None),
        ("cut", '<|tool_call>call:note{text:<|"|>abc', say('<|tool_call>call:note{text:<|"|>abc')),
        ("quote in a string", '<|tool_call>call:note{text:<|"|>a "b" <| c<|"|>}<tool_call|>', None),
    ],
    "command-r7b": [
        ("ids", '<|START_THINKING|>Look.<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", '
         '"parameters": {"city": "Paris"}},\n    {"tool_call_id": "1", "tool_name": "ping", "parameters": {}}\n]<|END_ACTION|>',
         None),
        ("answer", "<|START_THINKING|>Hm.<|END_THINKING|><|START_RESPONSE|>Hello!<|END_RESPONSE|>", None),
    ],
    "command-r": [
        ("call", 'Action:\n```json\n[{"tool_name": "weather", "parameters": {"city": "Paris"}}]\n```', say("", "", PARIS)),
        ("Action in prose", "Action: none.", say("Action: none.")),
    ],
    "kimi-k2": [
        ("call", '<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>'
         '{"city": "Paris"}<|tool_call_end|><|tool_calls_section_end|>', None),
        ("reasoning not closed", "<think>Call it.<|tool_calls_section_begin|><|tool_call_begin|>functions.ping:0"
         "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>", None),
        ("no section", '<|tool_call_begin|>functions.weather:3<|tool_call_argument_begin|>{"city": "Paris"}', None),
    ],
    "lfm2": [
        ("single quotes", "<|tool_call_start|>[note(text='a \"b\" \\'c\\'')]<|tool_call_end|>",
         say("", "", ("note", '{"text":"a \\"b\\" \'c\'"}'))),
        ("literals", "<|tool_call_start|>[weather(city=\"Paris\", days=2, metric=True)]<|tool_call_end|>", None),
        ("broken second call", '<|tool_call_start|>[ping(), weather(city=)]<|tool_call_end|>',
         say(", weather(city=)]<|tool_call_end|>", "", ("ping", "{}"))),
    ],
    "functionary-v3.2": [
        ("content and call", 'all\nLook.\n>>>weather\n{"city": "Paris"}', say("Look.\n", "", PARIS)),
        ("two calls", 'weather\n{"city": "Paris"}\n>>>ping\n{}', say("", "", PARIS, ("ping", "{}"))),
        ("no recipient", "Hello there,\nall.", say("Hello there,\nall.")),
    ],
    "functionary-v3.1": [("two calls", '<function=weather>{"city": "Paris"}</function><function=ping>{}</function>', None)],
    "glm": [
        ("union", "<tool_call>set\n<arg_key>key</arg_key>\n<arg_value>a</arg_value>\n<arg_key>value</arg_key>\n"
         "<arg_value>null</arg_value>\n</tool_call>", say("", "", ("set", '{"key":"a","value":null}'))),
        ("cut", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Par",
         say("<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Par")),
    ],
    "seed-oss": [
        ("call", "<seed:tool_call>\n<function=weather>\n<parameter=city>Paris</parameter>\n<parameter=days>2</parameter>\n"
         "</function>\n</seed:tool_call>", None),
        ("reasoning and two calls", "<seed:think>Look.</seed:think>\n<seed:tool_call>\n<function=note>\n<parameter=text>a\nb\n"
         "</parameter>\n</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=ping>\n</function>\n</seed:tool_call>",
         None),
    ],
    "minimax-m2": [
        ("call", 'Look.\n</think>\n\n<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Paris</parameter>\n'
         '<parameter name="days">2</parameter>\n</invoke>\n</minimax:tool_call>', None),
        ("two calls", 'Look.\n</think>\n\nNow.\n<minimax:tool_call>\n<invoke name="ping">\n</invoke>\n<invoke name="note">\n'
         '<parameter name="text">a\nb</parameter>\n</invoke>\n</minimax:tool_call>',
         say("Now.\n", "Look.\n", ("ping", "{}"), ("note", '{"text":"a\\nb"}'))),
        ("section without a call", "</think>\n\n<minimax:tool_call>\nNothing.</minimax:tool_call>",
         say("<minimax:tool_call>\nNothing.</minimax:tool_call>")),
    ],
    "nemotron-v2": [
        ("call", 'Look.\n</think>\n\n<TOOLCALL>[{"name": "weather", "arguments": {"city": "Paris"}}, '
         '{"name": "ping", "arguments": {}}]</TOOLCALL>', say("", "Look.\n", PARIS, ("ping", "{}"))),
    ],
    "cohere2-moe": [
        ("ids", 'Look.<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": '
         '{"city": "Paris"}},\n    {"tool_call_id": "1", "tool_name": "ping", "parameters": {}}\n]<|END_ACTION|>', None),
    ],
    "apriel-1.6": [
        ("answer", "Hm.\n[BEGIN FINAL RESPONSE]\nHello!", say("Hello!", "Hm.\n")),
        ("call", 'Hm.\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{"name": "weather", "arguments": {"city": "Paris"}}]</tool_calls>',
         say("", "Hm.\n", PARIS)),
    ],
    "apriel": [("calls", '<tool_calls>[{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "ping", "arguments": {}}]'
                "</tool_calls>", say("", "", PARIS, ("ping", "{}")))],
    "firefunction": [("calls", ' functools[{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "ping", "arguments": '
                      "{}}]", say("", "", PARIS, ("ping", "{}")))],
    "gigachat-3.1": [("call", 'Hm.<|function_call|>{"name": "weather", "arguments": {"city": "Paris"}}', say("Hm.", "", PARIS))],
    "minicpm5": [("CDATA", '<function name="note"><param name="text"><![CDATA[<p> </param>]]></param></function>', None)],
    "gigachat-3": [("call", '<|message_sep|>\n\nfunction call<|role_sep|>\n{"name": "weather", "arguments": {"city": "Paris"}}',
                    say("", "", PARIS))],
    "muse-glimmer": [
        ("answer", " to=user<|message|>Hello!<|eot|>", None),
        ("call", ' to=weather<|message|><atem:function_calls>\n<atem:invoke name="weather">\n<atem:parameter name="city">Paris'
         "</atem:parameter>\n</atem:invoke>\n</atem:function_calls>", None),
    ],
    "granite": [("answer in marks", "<think>Hm.</think><response>Hello!</response>", say("Hello!", "Hm."))],
    "generic": [
        ("call", '{"tool_call": {"name": "weather", "arguments": {"city": "Paris"}}}', say("", "", PARIS)),
        ("calls", '{"tool_calls": [{"name": "ping", "arguments": {}}, {"name": "weather", "arguments": {"city": "Paris"}}]}',
         say("", "", ("ping", "{}"), PARIS)),
        ("other JSON", '{"a": [1, 2]}', say('{"a": [1, 2]}')),
    ],
}
# Formats without a template among llama.cpp's.
NO_TEMPLATE = {
    "functiongemma": [
        ("call", "<start_function_call>call:weather{city:<escape>Paris<escape>,days:2}<end_function_call>",
         say("", "", ("weather", '{"city":"Paris","days":2}'))),
        ("content and two calls", "Hm.<start_function_call>call:ping{}<end_function_call><start_function_call>call:note{text:"
         "<escape>a <b> c<escape>}<end_function_call>", say("Hm.", "", ("ping", "{}"), ("note", '{"text":"a <b> c"}'))),
    ],
    "granite-3": [
        ("calls", '<|tool_call|>[{"name": "weather", "arguments": {"city": "Paris"}}, {"name": "ping", "arguments": {}}]',
         say("", "", PARIS, ("ping", "{}"))),
    ],
    "pythonic": [
        ("calls", '[weather(city="Paris", days=2), ping()]',
         say("", "", ("weather", '{"city":"Paris","days":2}'), ("ping", "{}"))),
        ("a list", "[1, 2, 3]", say("[1, 2, 3]")),
        ("a link", "[text](url)", say("[text](url)")),
    ],
    "content-only": [("text", "Hello <tool_call>!", say("Hello <tool_call>!"))],
}


def same(a, b):
    if a["reasoning"].strip() != b["reasoning"].strip() or a["content"].strip() != b["content"].strip():
        return False
    if [c["name"] for c in a["calls"]] != [c["name"] for c in b["calls"]]:
        return False
    return all(json.loads(x["arguments"]) == json.loads(y["arguments"]) for x, y in zip(a["calls"], b["calls"]))


def of_message(m):
    calls = [(c["function"]["name"], c["function"]["arguments"]) for c in m.get("tool_calls", [])]
    return say(m["content"], m.get("reasoning_content", ""), *calls)


# Templates that can't write types as lists or objects inside objects.
NO_UNION = {"ByteDance-Seed-OSS", "GigaChat3.1-10B-A1.8B", "openai-gpt-oss-120b", "llm-jp-llm-jp-4.1-8b-thinking"}
SIMPLE = {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "CohereForAI-c4ai-command-r-plus-tool_use"}

# Templates whose prompt says nothing of thinking being on.
THINKING_ON = {"google-gemma-4-31B-it", "deepseek-ai-DeepSeek-V3.2", "Kimi-K3"}


def tools_of(template):
    return TOOLS[:2] if template in SIMPLE else TOOLS[:4] if template in NO_UNION else TOOLS


def cases_of(fmt, templates):
    for t in TEMPLATES[fmt]:
        for name, m in MESSAGES.items():
            yield {"format": fmt, "name": f"{t}: {name}", "template": f"{templates}/{t}.jinja", "message": m, "ends": ENDS, "enable_thinking": t in THINKING_ON or "reasoning_content" in m,
                   "tools": tools_of(t)}
    t = TEMPLATES[fmt][0]
    for name, output, expected in BY_HAND.get(fmt, []):
        yield {"format": fmt, "name": f"by hand: {name}", "template": f"{templates}/{t}.jinja", "output": output,
               "tools": tools_of(t), "expected": expected}


def kept(c):
    """What is written of a case; None when it's none."""
    parsed, m = c.get("parsed"), c.get("message")
    if parsed and parsed["calls"] and not parsed["content"].strip():
        parsed["content"] = ""  # white space alone beside calls is no content here
    out = {"name": c["name"], "template": os.path.basename(c["template"]), "prompt": c.get("prompt", ""),
           "output": c.get("output")}
    if m:
        if not parsed or not same(parsed, of_message(m)):
            return None  # the template doesn't write all of it, or not as the model does
        return {**out, "message": parsed}
    expected = c["expected"] or parsed
    if expected is None:
        return None
    out["message"] = expected
    if parsed != expected:
        out["llama.cpp"] = parsed or c["error"]
    return out


def main():
    reference, templates, *only = sys.argv[1:]
    os.makedirs(OUT, exist_ok=True)
    with open(f"{OUT}/tools.json", "w") as f:
        json.dump(TOOLS, f, indent=1)
    cases = [c for fmt in TEMPLATES if not only or fmt in only for c in cases_of(fmt, templates)]
    lines = subprocess.run([reference], input="".join(json.dumps(c) + "\n" for c in cases), capture_output=True, text=True,
                           check=True).stdout.rstrip("\n").split("\n")
    found = {}
    for line in lines:
        c = json.loads(line)
        k = kept(c)
        if k:
            found.setdefault(c["format"], []).append(k)
        else:
            print("left out:", c["name"], c.get("error", "")[:100])
    for fmt, outputs in ({} if only else NO_TEMPLATE).items():
        name = "granite" if fmt == "granite-3" else fmt
        found.setdefault(name, []).extend({"name": f"by hand: {n}", "template": "", "prompt": "", "output": o, "message": m}
                                          for n, o, m in outputs)
    for fmt, list_ in found.items():
        with open(f"{OUT}/{fmt}.json", "w") as f:
            json.dump({"format": fmt, "cases": list_}, f, ensure_ascii=False, indent=1)
            f.write("\n")
    print({fmt: len(v) for fmt, v in found.items()}, sum(map(len, found.values())))


main()
