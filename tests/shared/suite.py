#!/usr/bin/env python3
"""llama.cpp's own server tests against a server: suite.py SUITE/run PATH/TO/llama-server. Fails when a test fails that
suite-expected.txt does not name; says which of those named there pass by now."""
import fnmatch
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path


def expected():
    out = {}
    for line in (Path(__file__).parent / "suite-expected.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            name, reason = line.split(" | ", 1)
            out[name] = reason
    return out


def results(report):
    """Name of each test as file::test, and whether it passed."""
    out = {}
    for case in xml.parse(report).getroot().iter("testcase"):
        if case.find("skipped") is not None:
            continue
        name = case.get("classname").split(".")[-1] + ".py::" + case.get("name")
        out[name] = case.find("failure") is None and case.find("error") is None
    return out


TESTS = [f"unit/test_{t}.py" for t in (
    "basic chat_completion completion ctx_shift ignore_eos kv_keep_only_active compat_oai_responses "
    "compat_anthropic compat_gcp metrics security sleep slot_save template tokenize tool_call").split()]


def run(runner, server, tests):
    """(results or None, what the run said)"""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "report.xml")
        done = subprocess.run([runner, server, *tests, f"--junitxml={report}", "--tb=line", "-o", "console_output_style=none"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "WORKERS": os.environ.get("WORKERS", "2")})
        return (results(report) if os.path.exists(report) else None), done.stdout


def main():
    runner, server = sys.argv[1:3]
    all, said = run(runner, server, TESTS)
    if all is None:
        print(said[-4000:])
        return 1
    known = expected()
    failed = {name for name, ok in all.items() if not ok}
    new = sorted(f for f in failed if not any(fnmatch.fnmatchcase(f, k.replace("[", "[[]")) for k in known))
    if new:  # some wait for seconds of the clock, which a machine that was busy or stopped doesn't give: once more
        again, _ = run(runner, server, [f"unit/{name}" for name in new])
        for name in [n for n in new if (again or {}).get(n)]:
            print(f"failed at first, and passed when run again: {name}")
            new.remove(name)
            failed.remove(name)
            all[name] = True
    fixed = sorted(k for k in known if any(fnmatch.fnmatchcase(n, k.replace("[", "[[]")) for n in all)
                   and not any(fnmatch.fnmatchcase(f, k.replace("[", "[[]")) for f in failed))
    print(f"llama.cpp's server suite: {sum(all.values())} passed, {len(failed)} failed, of which {len(failed) - len(new)} "
          "are known to")
    for name in fixed:
        print(f"passes by now, take it off the list: {name}")
    for name in new:
        print(f"failed: {name}")
    if new:
        print(said[-8000:])
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
