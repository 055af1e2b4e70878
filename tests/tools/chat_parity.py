#!/usr/bin/env python3
"""Compares grappa's chat templates with Jinja2, set up as Hugging Face's apply_chat_template does it.

    chat_parity.py PROGRAM [FOLDER]

PROGRAM is the test program test_chat, which renders when it is given three files. FOLDER holds *.jinja files;
without it GRAPPA_TEMPLATES, or .models/templates. For each template and each conversation the two outputs must be
the same, or both must fail. Needs the package jinja2. Prints what differs and a count; exit status 1 when
anything differs.
"""

import datetime
import difflib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.sandbox import ImmutableSandboxedEnvironment

BOS, EOS = "<s>", "</s>"

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a <city> & \"more\"",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name, e.g. Łódź"},
                "days": {"type": "integer", "enum": [1, 2, 3], "default": 1},
            },
            "required": ["city"],
        },
    },
}
CALL = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {
            "id": "call00001",
            "type": "function",
            "function": {"name": "get_weather", "arguments": {"city": "Łódź's", "days": 2, "exact": True, "x": None}},
        }
    ],
}
RESULT = {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": '{"t": 21.5}'}


def user(text):
    return {"role": "user", "content": text}


SYSTEM = {"role": "system", "content": "You are \"brief\" & kind."}
REPLY = {"role": "assistant", "content": "Hello, it's me."}

# Row: name, messages, variables.
CASES = [
    ("plain", [SYSTEM, user("Hi é 😀"), REPLY, user("  What's 1 < 2?\n")], {"add_generation_prompt": True}),
    ("user", [user("Hi")], {"add_generation_prompt": True}),
    ("tools", [SYSTEM, user("Weather?")], {"add_generation_prompt": True, "tools": [TOOL]}),
    ("call", [user("Weather?"), CALL, RESULT, user("And?")], {"add_generation_prompt": True, "tools": [TOOL]}),
    ("think", [user("Hi"), {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello"}, user("So?")],
     {"add_generation_prompt": True, "enable_thinking": False}),
    ("complete", [user("Hi"), REPLY], {"add_generation_prompt": False}),
]


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        lineno = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return CallBlock(self.call_method("_same"), [], [], body).set_lineno(lineno)

    def _same(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.datetime.now().strftime(format)
    return env


def reference(source, messages, variables):
    """(text, None) or (None, error)"""
    try:
        variables = {"tools": None, "documents": None, "bos_token": BOS, "eos_token": EOS, **variables}
        return environment().from_string(source).render(messages=messages, **variables), None
    except Exception as e:  # a template may raise anything that Python can
        return None, f"{type(e).__name__}: {e}"


def ours(program, path, messages, variables):
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, name) for name in ("messages", "variables")]
        files[0].write_text(json.dumps(messages))
        files[1].write_text(json.dumps({"bos_token": BOS, "eos_token": EOS, **variables}))
        run = subprocess.run([program, path, *files], capture_output=True)
    if run.returncode:
        return None, run.stderr.decode().strip()
    return run.stdout.decode(), None


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("GRAPPA_TEMPLATES", ".models/templates")
    paths = sorted(pathlib.Path(folder).glob("*.jinja"))
    if not paths:
        sys.exit(f"no templates in {folder}")
    differing = 0
    for name, messages, variables in CASES:
        equal = refused = lenient = 0
        for path in paths:
            text, error = reference(path.read_text(), messages, variables)
            got, got_error = ours(sys.argv[1], path, messages, variables)
            if text is not None and got == text:
                equal += 1
            elif text is None and got is None:
                refused += 1
                if os.environ.get("VERBOSE"):
                    print(f"refused: {path.stem}: {error} | {got_error}")
            elif text is None and error.startswith("TypeError: 'NoneType'"):
                lenient += 1  # none is an empty list here: templates that loop over absent tools still work
            else:
                differing += 1
                print(f"{name}: {path.stem}: jinja2 {error or 'ok'} | grappa {got_error or 'ok'}")
                if text is not None and got is not None:
                    diff = difflib.unified_diff(text.splitlines(), got.splitlines(), lineterm="", n=0)
                    print("\n".join(f"    {line!r}" for line in list(diff)[2:12]))
        others = len(paths) - equal - refused - lenient
        print(f"{name}: {equal} equal, {refused} refused by both, {lenient} refused by Jinja2 for looping over none, "
              f"{others} differ, of {len(paths)}")
    sys.exit(differing != 0)


if __name__ == "__main__":
    main()
