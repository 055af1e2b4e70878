#!/usr/bin/env python3
"""Writes tests/golden/chat/features.txt: small templates, and what Jinja2 makes of them when set up as Hugging Face
does it. Needs the package jinja2 (made with 3.1.6).

    python3 tests/tools/chat_golden.py > tests/golden/chat/features.txt

Records are "key LENGTH\\n" text "\\n". For each case: name, template, messages, variables, and text or error; an error
that the template raised itself is "raised" with its message, any other is "refused" and has no text.
"""

import datetime
import json
import sys

from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import CallBlock
from jinja2.sandbox import ImmutableSandboxedEnvironment

BOS, EOS = "<s>", "</s>"

CHAT = [
    {"role": "system", "content": "You are \"brief\"."},
    {"role": "user", "content": "  Hi é 😀 <b>\n"},
    {"role": "assistant", "content": "Hello, it's me."},
    {"role": "user", "content": "1 < 2?"},
]
CALLS = [
    {"role": "user", "content": [{"type": "text", "text": "What?"}, {"type": "image"}]},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1, "b": [True, None]}}}]},
    {"role": "tool", "content": "21.5"},
]
SCHEMA = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"type": "string"}}, "keys": {"type": "number", "minimum": 0.5}},
    "required": [],
}
VARIABLES = {
    "tools": [{"type": "function", "function": {"name": "f", "description": "Łódź & <x> 'y'", "parameters": SCHEMA}}],
    "numbers": [1, -2, 0.1, 1.0, 1e16, 1e15, 1e-5, 0.0001, 123456789012345678, 2.5e300],
    "odd": {"a\"b": "\t\b\f\r\n\\/\u0001\u007f\u2028", "empty": {}, "none": None, "list": [], "deep": {"x": [1, [2, {"y": 3}]]}},
    "words": ["b", "A", "c", "a"],
    "text": "  The quick\tbrown\nfox  ",
    "think": "<think>\nhm\n</think>\n\nHello",
    "yes": True,
    "n": 7,
}

# Row: name, template, messages.
CASES = [
    ("chatml", "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}", CHAT),
    ("blocks and white space", "\n  {% if true %}\n    a\n  {% endif %}\n\t{# note #}\n b\n{%- if true %}\n c\n {%- endif -%}\n\n d\n", CHAT),
    ("plus marks", "  {%+ if true %} x {% endif +%}\n  y{{ 1 -}}  z  {{- 2 }}\n\n", CHAT),
    ("trailing newline", "a\n", CHAT),
    ("two trailing newlines", "a\n\n", CHAT),
    ("crlf", "a\r\n{% if true %}\r\nb\r\n{% endif %}\r\n", CHAT),
    ("comments", "a{# {% if %} {{ #}b\n{#- x -#}\nc", CHAT),
    ("raw", "{% raw %}{{ not }} {% this %}{% endraw %} {{ '{{' }}", CHAT),
    ("bos and eos", "{{ bos_token }}{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}", CHAT),
    ("absent variables", "[{{ nothing }}] {{ nothing is defined }} {{ messages[0].nothing is defined }} {{ tools is none }} "
     "{{ documents is none }} {{ nothing|default('d') }} {{ (nothing or 'o') }}", CHAT),
    ("attribute of absent", "{{ nothing.more }}", CHAT),
    ("loop over absent", "[{% for x in nothing %}{{ x }}{% endfor %}]", CHAT),
    ("unknown filter", "{{ 1|nosuch }}", CHAT),
    ("syntax", "{% if %}", CHAT),
    ("unclosed", "{% for m in messages %}", CHAT),
    ("raise", "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}", CHAT),
    ("raise in macro", "{% macro f(x) %}{{ raise_exception('No ' ~ x ~ '!') }}{% endmacro %}{{ f('way') }}", CHAT),
    ("roles must alternate", "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
     "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% endfor %}",
     [{"role": "user", "content": "a"}, {"role": "system", "content": "b"}, {"role": "user", "content": "c"}][:1] + [
         {"role": "user", "content": "b"}]),
    ("tojson", "{{ tools|tojson }}\n{{ odd | tojson }}\n{{ numbers|tojson }}\n{{ messages|tojson }}", CHAT),
    ("tojson indent", "{{ tools|tojson(indent=2) }}\n{{ odd|tojson(indent=4) }}\n{{ [[], {}, [1]]|tojson(indent=0) }}", CHAT),
    ("tojson options", "{{ odd|tojson(ensure_ascii=True) }}{{ tools|tojson(ensure_ascii=False, separators=(',', ':')) }}"
     "{{ {'b': 1, 'a': [2]}|tojson(sort_keys=true) }}{{ messages[1]|tojson(True, 1) }}{{ words|tojson(indent='\t') }}", CHAT),
    ("tojson scalars", "{{ 'é\"'|tojson }} {{ true|tojson }} {{ none|tojson }} {{ 1|tojson }} {{ 1.0|tojson }} {{ (1, 2)|tojson }}", CHAT),
    ("tojson of absent", "{{ nothing|tojson }}", CHAT),
    ("numbers", "{% for x in numbers %}{{ x }} {% endfor %}{{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ 7 % 3 }} {{ 2 ** 10 }} {{ 6 / 3 }}", CHAT),
    ("printing", "{{ true }} {{ none }} {{ [1, 'a', true, none, 1.5] }} {{ {'k': \"v'v\", 'n': none} }} {{ ('a',) }} {{ 'x' ~ false }} "
     "{{ words }} {{ ['\\n', 'é', '\"', \"'\"] }} {{ odd.deep }}", CHAT),
    ("string methods", "[{{ text.strip() }}|{{ text.lstrip() }}|{{ text.rstrip() }}|{{ 'xxaxx'.strip('x') }}|{{ text.split() }}|{{ 'a,b,,c'.split(',') }}|"
     "{{ 'a,b,c'.split(',', 1) }}|{{ text.upper() }}|{{ 'hello world'.title() }}|{{ 'abc'.startswith('ab') }}|{{ 'abc'.endswith(('x', 'c')) }}|"
     "{{ 'aXbX'.replace('X', '-') }}|{{ 'aXbX'.replace('X', '-', 1) }}|{{ 'abc'.find('c') }}|{{ '-'.join(words) }}|{{ 'Abc'.lower() }}|"
     "{{ 'abc'.capitalize() }}|{{ 'a\nb\n'.splitlines() }}|{{ '12'.isdigit() }}|{{ 'aba'.count('a') }}|{{ '{} {}'.format(1, 'x') }}]", CHAT),
    ("more string methods", "[{{ 'a-b-c'.rsplit('-', 1) }}|{{ 'a=b'.partition('=') }}|{{ 'abc'.rfind('b') }}|"
     "{{ 'pre-x'.removeprefix('pre-') }}|{{ 'x.txt'.removesuffix('.txt') }}|{{ 'ab'.ljust(4) }}|{{ 'ab'.rjust(4, '.') }}|{{ 'abc'.index('b') }}|{{ 'a=b=c'.rpartition('=') }}|{{ 'ab'.partition('=') }}|{{ ' a b  c '.rsplit(None, 1) }}|{{ 'a,b,c'.rsplit(',') }}]", CHAT),
    ("think", "{% set c = think %}{% if '</think>' in c %}{% set r = c.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
     "{% set c = c.split('</think>')[-1].lstrip('\n') %}[{{ r }}][{{ c }}]{% endif %}{{ c }}", CHAT),
    ("slices", "{{ words[1:] }}{{ words[:-1] }}{{ words[::-1] }}{{ text[2:5] }}{{ words[-1] }}{{ 'abc'[1] }}{{ messages[1:]|length }}", CHAT),
    ("namespace", "{% set ns = namespace(found=false, n=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}"
     "{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}{{ ns.found }} {{ ns.n }}", CHAT),
    ("scope", "{% set x = 1 %}{% for m in messages %}{% set x = 2 %}{% endfor %}{{ x }}{% if true %}{% set x = 3 %}{% endif %}{{ x }}", CHAT),
    ("loop controls", "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}{% if loop.index == 4 %}{% break %}{% endif %}{{ loop.index }}{% endfor %}", CHAT),
    ("loop", "{% for m in messages %}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.revindex }}{{ loop.previtem.role if loop.previtem is defined }}"
     "{{ loop.nextitem.role if loop.nextitem is defined else '-' }}{{ loop.cycle('a', 'b') }} {% else %}none{% endfor %}{% for x in [] %}{% else %}none{% endfor %}", CHAT),
    ("loop filter", "{% for m in messages if m.role != 'system' %}{{ loop.index }}{{ m.role }}{% endfor %}", CHAT),
    ("recursive loop", "{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{% endif %}{% endfor %}", CHAT),
    ("unpacking", "{% for k, v in odd.deep.items() %}{{ k }}={{ v }}{% endfor %}{% set a, b = (1, 2) %}{{ a }}{{ b }}{% for k, v in odd|dictsort %}{{ k }};{% endfor %}"
     "{% for k, v in odd|items %}{{ k }};{% endfor %}", CHAT),
    ("generation", "{% for m in messages %}\n{% if m.role == 'assistant' %}\n{% generation %}\n{{ m.content }}\n{%- endgeneration %}\n{% else %}\n{{ m.role }}\n"
     "{% endif %}\n{% endfor %}{{ '{% generation %}' }}{# {% generation %} #}", CHAT),
    ("generation scope", "{% set x = 1 %}{%- generation -%} {% set x = 2 %}{{ x }} {%- endgeneration -%} {{ x }}", CHAT),
    ("macro", "{% macro f(a, b='d', c=none) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ f(1) }}{{ f(1, 2) }}{{ f(1, c=3) }}{% set y = f(9)|trim %}{{ y }}", CHAT),
    ("call", "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}x{% endcall %}", CHAT),
    ("set block", "{% set x %}a{{ n }}{% endset %}{{ x }}{% set z | upper %}q{% endset %}{{ z }}", CHAT),
    ("filter block", "{% filter upper %}abc{{ n }}{% endfilter %}", CHAT),
    ("with", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}", CHAT),
    ("tests", "{{ 's' is string }} {{ 1 is number }} {{ [] is sequence }} {{ 's' is sequence }} {{ {} is mapping }} {{ 's' is iterable }} {{ none is none }} "
     "{{ none is iterable }} {{ true is boolean }} {{ 1 is integer }} {{ 1.0 is float }} {{ 1 is odd }} {{ 'a' in 'abc' }} {{ 'k' in {'k': 1} }} {{ 1 not in [2] }} "
     "{{ n is divisibleby 7 }} {{ true is true }} {{ 1 is eq 1 }} {{ 'a' is in 'abc' }} {{ [] is iterable }} {{ {} is sequence }}", CHAT),
    ("conditions", "{{ 'y' if yes else 'n' }}{{ 'y' if not yes }}{{ yes and n }}{{ none or 'x' }}{{ not [] }}{{ 1 if {} else 2 }}{{ 1 < 2 < 3 }}{{ 'a' == 'a' and 'b' != 'a' }}", CHAT),
    ("filters", "{{ words|join(', ') }} {{ words|first }} {{ words|last }} {{ words|length }} {{ words|sort|join }} {{ words|reverse|list }} {{ text|trim }} {{ 'abc'|upper }} "
     "{{ 'ABC'|lower }} {{ 'hello there'|title }} {{ 'hello'|capitalize }} {{ '5'|int + 1 }} {{ '2.5'|float }} {{ 3.7|round }} {{ 3.14159|round(2) }} {{ -3|abs }} "
     "{{ [1, 2, 3]|sum }} {{ [3, 1]|min }} {{ [3, 1]|max }} {{ words|map('upper')|join }} {{ 1|string + 'x' }} {{ 'a'|replace('a', 'b') }} {{ [1, 1, 2]|unique|list }} "
     "{{ [1, 2, 3, 4]|batch(2)|list }} {{ 'x'|default('d') }} {{ ''|default('d', true) }} {{ 'abc'|list }} {{ 'a'|safe }} {{ '%s-%d'|format('x', 3) }}", CHAT),
    ("select", "{{ messages|selectattr('role', 'equalto', 'user')|map(attribute='content')|list }} {{ messages|rejectattr('role', 'eq', 'user')|list|length }} "
     "{{ [1, 2, 3]|select('odd')|list }} {{ [1, none]|reject('none')|list }} {{ messages|map(attribute='role')|unique|join(',') }} "
     "{{ messages|groupby('role')|map(attribute=0)|list }} {{ messages|selectattr('tool_calls', 'defined')|list|length }}", CHAT),
    ("indent", "{{ 'a\nb\n\nc'|indent(2) }}|{{ 'a\nb'|indent(2, true) }}|{{ 'a\nb'|indent(2, first=True) }}", CHAT),
    ("content parts", "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% elif m.content is none %}-{% else %}{% for p in m.content %}"
     "{% if p.type == 'text' %}{{ p.text }}{% else %}<image>{% endif %}{% endfor %}{% endif %}{% if m.tool_calls %}{% for c in m.tool_calls %}"
     "{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v|tojson if v is not string else v }},{% endfor %}){% endfor %}{% endif %}\n{% endfor %}", CALLS),
    ("schema with names of methods", "{% for k, v in tools[0].function.parameters.properties.items() %}{{ k }}: {{ v.type }};{% endfor %}"
     "{{ tools[0].function.parameters.properties['items'].type }} {{ tools[0].function.parameters.properties.keys()|list }} "
     "{{ tools[0].function.parameters.properties.get('keys').minimum }} {{ tools[0].function.parameters.get('nope') }} {{ tools[0].function.parameters.get('nope', 1) }}", CHAT),
    ("dict functions", "{{ dict(a=1, b='x') }} {{ {'a': 1}.values()|list }} {{ {'a': {'b': 2}}.a.b }} {{ {'a': 1}|length }} {{ {1: 'x'}[1] }}", CHAT),
    ("range", "{% for i in range(3) %}{{ i }}{% endfor %}{{ range(1, 10, 3)|list }} {{ range(5)[2] }}", CHAT),
    ("list concatenation", "{{ [1] + [2, 3] }} {{ words + ['z'] }} {{ 'ab' * 2 }} {{ [0] * 3 }} {{ 'a' ~ 1 ~ none }}", CHAT),
    ("escape", "{{ '<b>' }} {{ '<b>'|e }} {{ 'a\\tb' }} {{ \"it's\" }} {{ 'it\\'s' }} {{ '\\u00e9' }} {{ 'a' 'b' }}", CHAT),
    ("do", "{% do 1 %}", CHAT),
    ("include", "{% include 'chat' %}", CHAT),
    ("strftime", "{{ strftime_now('%%')|length }} {{ strftime_now('%Y')|length }} {{ strftime_now('%d %b %Y') is string }}", CHAT),
    ("generation prompt", "{{ add_generation_prompt }}", CHAT),
    ("sums of lists", "{% set ns = namespace(l=[]) %}{% for m in messages %}{% set ns.l = ns.l + [m.role] %}{% endfor %}{{ ns.l }} {{ ns.l|length }} {{ ns.l[1] }} {{ ns.l is sequence }}", CHAT),
    ("jumps over inserted checks", "{% set ns = namespace(a=0) %}{% for i in range(6) %}{% set ns.a = [i] if i % 2 else {'k': i} %}{{ ns.a }}{% if ns.a == [1] or ns.a == {'k': 4} %}!{% elif [i] in [[2], [3]] and not (i == 2) %}?{% else %}.{% endif %}"
     "{% if i == 4 %}{% continue %}{% endif %}{{ (words[i] if i < 4 else words) ~ ',' }}{% endfor %}", CHAT),
    ("macro with lists", "{% macro f(l, d=[1]) %}{% for x in l + d %}{{ x }}{% else %}none{% endfor %}{% endmacro %}{{ f([2]) }}{{ f([], []) }}{{ f(l=words[1:], d=(words|list)[:1]) }}", CHAT),
    ("empty", "", CHAT),
    ("no messages", "{% for m in messages %}x{% endfor %}{{ messages|length }}", []),
    ("unicode", "{{ '日本語'|length }} {{ '日本語'[1] }} {{ 'É'|lower }} {{ 'ß'|upper }} {{ 'naïve'.title() }} {{ 'ﬁ' }}", CHAT),
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


def put(key, text):
    raw = text.encode()
    sys.stdout.buffer.write(b"%s %d\n%s\n" % (key.encode(), len(raw), raw))


def main():
    for name, template, messages in CASES:
        put("name", name)
        put("template", template)
        put("messages", json.dumps(messages, ensure_ascii=False))
        put("variables", json.dumps(VARIABLES, ensure_ascii=False))
        try:
            variables = {"documents": None, "bos_token": BOS, "eos_token": EOS, "add_generation_prompt": True, **VARIABLES}
            put("text", environment().from_string(template).render(messages=messages, **variables))
        except TemplateError as e:
            put("raised" if type(e) is TemplateError else "refused", str(e))
        except Exception as e:
            put("refused", f"{type(e).__name__}: {e}")


if __name__ == "__main__":
    main()
