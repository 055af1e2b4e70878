#!/usr/bin/env python3
"""The laws that a compiler can't see: which room may include which, what must never be called, what must never be
written down. The arrows are those of CMakeLists.txt: a room may include the headers of the rooms that its
grappa_room(… USES …) line names, and no others.
"""
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# Linked but not seen: the command line knows the engine only as grappa.h.
LINK_ONLY = {"cli": {"engine"}, "server": {"engine"}}
# Headers from outside that belong to a room, or a few.
OWNED = [
    (re.compile(r"openvino/|(^|/)ov_.*\.h$"), ["ov"], "OpenVINO"),
    (re.compile(r"pcre2"), ["vocab", "sampler"], "PCRE2"),
    (re.compile(r"utf8proc"), ["vocab"], "utf8proc"),
    (re.compile(r"editline|histedit|readline"), ["cli"], "libedit"),
    (re.compile(r"microhttpd"), ["server"], "libmicrohttpd"),
    (re.compile(r"grappa_rust"), ["chat"], "the Rust library's templates"),
    (re.compile(r"grappa_constraint"), ["sampler"], "the Rust library's constraints"),
]
# The public headers are implemented by engine and chat, and used by the command line and the server.
PUBLIC = re.compile(r"grappa(-\w+)?\.h")
PUBLIC_ROOMS = {"chat", "engine", "cli", "server"}

BANNED = {
    "strcpy": "memcpy with a checked length, or struct buf",
    "strcat": "struct buf",
    "strncpy": "memcpy with a checked length",
    "strncat": "struct buf",
    "sprintf": "snprintf or struct buf",
    "vsprintf": "vsnprintf or struct buf",
    "gets": "getline",
    "atoi": "strtol, with its errors looked at",
    "atol": "strtol, with its errors looked at",
    "atoll": "strtoll, with its errors looked at",
    "atof": "strtod, with its errors looked at",
    "strtok": "strchr or strcspn",
    "alloca": "an array of known size, or malloc",
    "setjmp": "the error value",
    "longjmp": "the error value",
    "tmpnam": "mkstemp",
    "mktemp": "mkstemp",
    "system": "nothing: no shell",
    "popen": "nothing: no shell",
}
# Nothing below the command line ends the process or writes to standard output.
SILENT = {"exit", "_exit", "printf", "puts", "putchar", "vprintf", "perror"}
SILENT_EXEMPT = {"cli"}

MAX_LINES = 600

# Addresses may point to these; any other host in a tracked file is a mistake (a mirror, a machine of somebody's).
HOSTS = {"www.apache.org", "github.com", "localhost", "127.0.0.1", "huggingface.co", "docs.openvino.ai",
         "json-schema.org", "www.w3.org", "example.com", "localhost.example.com", "arxiv.org", "a.b", "www.rfc-editor.org", "minijinja.rs"}
PATHS = re.compile(r"(?<![\w.])/(work|root|home/\w+|tmp/w)(/|\b)")
URL = re.compile(r"\b[a-z][a-z+]*://([A-Za-z0-9.-]+)")
DATA = ("tests/golden/", "tests/fuzz/corpus/", "web/dist/")
PRUNED = ("rust/Cargo.lock",)  # cargo writes it

problems = []


def problem(path, line, text):
    problems.append(f"{path}:{line}: {text}")


def tracked():
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                         check=True)
    return [f for f in out.stdout.splitlines() if os.path.isfile(os.path.join(ROOT, f))]


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="surrogateescape") as f:
        return f.read()


def arrows():
    table = {}
    for room, rest in re.findall(r"^grappa_room\((\w+)([^)]*)\)", read("CMakeLists.txt"), re.M):
        uses = re.search(r"USES ([^)]*?)(?: PKG|$)", rest)
        table[room] = {u for u in (uses.group(1).split() if uses else [])} | {room}
    for room, hidden in LINK_ONLY.items():
        table[room] -= hidden
    return table


def without_comments(text):
    """Comments and the insides of strings blanked, lines kept."""
    def blank(m):
        s = m.group(0)
        return re.sub(r"[^\n]", " ", s) if s.startswith("/") else s[0] + re.sub(r"[^\n]", " ", s[1:-1]) + s[-1]
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def check_includes(path, room, text, table):
    for m in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*(["<])([^">]+)[">]', text, re.M):
        name, line = m.group(2), line_of(text, m.start())
        target = name.split("/")[0]
        if m.group(1) == '"':
            if PUBLIC.fullmatch(name):
                if room not in PUBLIC_ROOMS:
                    problem(path, line, f"{name} is for {', '.join(sorted(PUBLIC_ROOMS))}")
                continue
            if "/" in name and target in table:
                if target not in table[room]:
                    problem(path, line, f"room {room} may not include {name}: CMakeLists.txt has no such arrow")
                if not os.path.isfile(os.path.join(ROOT, "src", name)):
                    problem(path, line, f"src/{name} does not exist")
                continue
        for pattern, owners, what in OWNED:
            if pattern.search(name) and room not in owners:
                problem(path, line, f"only src/{' and src/'.join(owners)} includes {what}")


def check_source(path, table):
    parts = path.split("/")
    room = parts[1] if len(parts) > 2 else ""
    text = read(path)
    if room not in table:
        problem(path, 1, "no grappa_room() of CMakeLists.txt owns this folder")
        return
    check_includes(path, room, text, table)
    code = without_comments(text)
    for m in re.finditer(r"(?<![\w.>])(\w+)\s*\(", code):
        if m.group(1) in BANNED:
            problem(path, line_of(code, m.start()), f"{m.group(1)} is banned: use {BANNED[m.group(1)]}")
        elif m.group(1) in SILENT and room not in SILENT_EXEMPT and path != "src/base/mem.c":
            problem(path, line_of(code, m.start()), f"{m.group(1)}: only src/cli ends the process or prints")
    for m in re.finditer(r"\btypedef\s+(struct|union|enum)\b", code):
        if path.endswith((".c", ".h")):
            problem(path, line_of(code, m.start()), "no typedef of a struct, union or enum")
    if path.endswith((".c", ".h", ".cpp")):
        if not text.lstrip().startswith(("/*", "//")):
            problem(path, 1, "the first comment says what idea lives here; there is none")
        n = text.count("\n")
        if n > MAX_LINES:
            print(f"{path}: {n} lines, over {MAX_LINES}: time to split it?", file=sys.stderr)


def check_words(path):
    if path in PRUNED or path.startswith(DATA):
        return
    for i, line in enumerate(read(path).splitlines(), 1):
        if "\x00" in line:
            return  # not text
        m = PATHS.search(line)
        if m and path != "scripts/check_includes.py":
            problem(path, i, f"a path of one machine: {m.group(0)}")
        for host in URL.findall(line):
            if host.lower() not in HOSTS and "." in host:
                problem(path, i, f"an address outside the known ones: {host}")


def main():
    table = arrows()
    for path in tracked():
        if path.startswith("src/"):
            if path.endswith((".c", ".h", ".cpp", ".def")):
                check_source(path, table)
        check_words(path)
    for p in sorted(problems):
        print(p, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
