"""grappa run: completion, reverse prompts, chat, interruption."""
import json
import os
import pty
import select
import signal
import subprocess
import time

import pytest
from cli_tools import GRAPPA, environment, good, refused, run, tiny

GREEDY = ["--temp", "0"]


@pytest.fixture(scope="module")
def spm():
    return tiny("phi3")


@pytest.fixture(scope="module")
def bpe():
    return tiny("qwen2")


# --- completion -----------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_prompt_is_shown_unless_asked_not_to(bpe):
    words = ["run", "-m", bpe, "-p", "the cat", "-n", "8", *GREEDY]
    text = good(*words)
    assert text.startswith(b"the cat") and text.endswith(b"\n")
    assert text == b"the cat" + good(*words, "--no-display-prompt")


def test_number_of_tokens(bpe):
    def words(n, *more):
        return good("run", "-m", bpe, "-p", "the cat", "-n", n, "--no-display-prompt", *GREEDY, *more)

    assert words(0) == b"\n"
    assert words(8).startswith(words(3)[:-1]) and len(words(8)) > len(words(3)) > 1


def test_context_fills_and_the_text_ends(bpe):
    done = run("run", "-m", bpe, "-p", "the cat", "-c", "64", "--ignore-eos", *GREEDY)
    assert done.returncode == 0 and done.stderr.startswith(b"grappa: warning: the context of ")
    assert b" positions is full" in done.stderr


def test_a_shifted_context_goes_on(bpe):
    words = ["run", "-m", bpe, "-p", "the cat", "-c", "256", "--ignore-eos", "--no-display-prompt", "--perf", *GREEDY]
    full = run(*words, "-n", "-1")
    shifted = run(*words, "-n", "600", "--context-shift", "--keep", "4")
    assert shifted.stdout.startswith(full.stdout[:-1]) and len(shifted.stdout) > len(full.stdout)
    written = [int(line.split(b"/")[1].split()[0]) for line in shifted.stderr.splitlines() if b"   eval time" in line]
    assert written == [599]
    assert run(*words, "-n", "-2", "--context-shift").stdout == full.stdout  # until it is full
    assert b"can't forget" in run("run", "-m", tiny("mamba2"), "-p", "the cat", "--context-shift").stderr


@pytest.mark.parametrize("name", ["qwen2", "qwen35"])
def test_prompt_cache(name, tmp_path):
    model, kept = tiny(name), tmp_path / "kept"
    words = ["run", "-m", model, "-c", "512", "-n", "8", *GREEDY, "--prompt-cache", kept, "-v", "-v"]

    def held(done):
        assert done.returncode == 0, done.stderr
        line = next(line for line in done.stderr.decode().splitlines() if line.startswith("prompt of "))
        return int(line.split(", ")[1].split()[0])

    prompt = "the cat and the dog went to the river, and then they went home again. "
    first = run(*words, "-p", prompt)
    assert held(first) == 0
    written = first.stdout[:-1].decode(errors="surrogateescape")
    if name == "qwen2":  # what is longer goes on from there, and the same prompt needs only its end
        again = run(*words, "-p", prompt, "--prompt-cache-ro")
        assert held(again) > 10 and again.stdout == first.stdout
    if written.isascii():
        assert held(run(*words, "-p", written + " and")) > 10
    kept.write_bytes(kept.read_bytes()[:-9])
    before = kept.read_bytes()
    assert str(kept) in refused(*words[:-2], "-p", prompt, status=1)
    assert kept.read_bytes() == before


def test_prompt_that_does_not_fit(bpe, tmp_path):
    text = tmp_path / "long"
    text.write_text("the dog " * 40000)
    line = refused("run", "-m", bpe, "-f", text, "-c", "256", "--no-display-prompt", status=1)
    assert line.startswith("the prompt has ") and line.endswith("see -c")


def test_prompt_from_files(bpe, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text("the cat\n")
    two.write_text("the cat\n\n")
    words = ["run", "-m", bpe, "-n", "4", *GREEDY]
    assert good(*words, "-f", one) == good(*words, "-p", "the cat")
    assert good(*words, "-f", two) == good(*words, "-p", "the cat\n") == good(*words, "-bf", one)
    assert "No such file" in refused(*words, "-f", tmp_path / "three", status=1)


def test_escapes(bpe):
    words = ["run", "-m", bpe, "-n", "0"]
    assert good(*words, "-p", r"a\nb\tc\\d\x41\q") == b"a\nb\tc\\dA\\q\n"
    assert good(*words, "-p", r"a\nb", "--no-escape") == b"a\\nb\n"


def test_empty_prompt(bpe, spm):
    assert good("run", "-m", spm, "-p", "", "-n", "4", *GREEDY) != b"\n"
    assert refused("run", "-m", bpe, "-p", "", "-n", "4", status=1) == "the prompt is empty"


def test_seed_repeats_and_differs(spm):
    def text(seed):
        return good("run", "-m", spm, "-p", "the", "-n", "16", "-s", seed, "--no-display-prompt")

    assert text(1) == text(1)
    assert len({text(seed) for seed in range(1, 6)}) == 5


def test_logit_bias_and_ignore_eos(spm):
    words = ["run", "-m", spm, "-p", "the", "-n", "5", "--no-display-prompt", *GREEDY]
    ids = good("tokenize", "-m", spm, "-p", "t", "--ids", "--no-bos").decode().strip("[]\n").split(", ")
    piece = good(*words, "--logit-bias", f"{ids[-1]}+1000")
    assert piece == good(*words, "-l", f"{ids[-1]}+inf")
    assert piece.count(b"t") == 5 and set(piece) <= set(b" t\n")
    # The end token, made certain, ends the text at once; forbidden by --ignore-eos it does not.
    assert good(*words, "--logit-bias", "2+1000") == b"\n"
    assert good(*words, "--logit-bias", "2+1000", "--ignore-eos") != b"\n"
    assert b"</s>" in good(*words, "--logit-bias", "2+1000", "--special")


@pytest.mark.sanitize
def test_reverse_prompt_never_shows(spm):
    words = ["run", "-m", spm, "-p", "the cat", "-n", "40", "--no-display-prompt", *GREEDY]
    full = good(*words)[:-1]
    inside = [full[i : i + 3] for i in range(2, len(full) - 3) if full[i : i + 3].isascii() and full[i : i + 3].isalnum()]
    assert inside, "the model writes no ASCII: choose another"
    for stop in inside[:4]:
        text = stop.decode()
        before = full[: full.index(stop)]
        assert good(*words, "-r", text) == before + b"\n"
        assert good(*words, "-r", "never seen", "-r", text, "-r", "nor this") == before + b"\n"
    # What only begins like one comes out whole.
    assert good(*words, "-r", inside[0].decode() + "\\x01\\x01") == full + b"\n"
    # Texts in the prompt are not the model's.
    assert good(*words, "-r", "the cat") == full + b"\n"


def test_summary_only_when_asked(bpe):
    words = ["run", "-m", bpe, "-p", "the cat", "-n", "4", *GREEDY]
    plain = run(*words)
    assert plain.stderr == b""
    for option in ("--perf", "-v"):
        done = run(*words, option)
        assert done.stdout == plain.stdout
        for line in (b"load time", b"prompt eval time", b"eval time", b"total time", b"tokens per second"):
            assert line in done.stderr


def test_verbose_prompt(bpe):
    done = run("run", "-m", bpe, "-p", "the cat", "-n", "0", "--verbose-prompt")
    ids = good("tokenize", "-m", bpe, "-p", "the cat").decode()
    assert done.stderr.decode() == f"number of tokens in prompt = {ids.count('->')}\n{ids}"


def test_profile(bpe):
    assert len(run("run", "-m", bpe, "-p", "the cat", "-n", "2", "--profile").stderr.splitlines()) > 3


def test_interrupt_ends_a_completion(bpe):
    command = [GRAPPA, "run", "-m", bpe, "-p", "the cat", "-c", "100000", "--ignore-eos", *GREEDY]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as p:
        p.stdout.read(40)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
    assert p.returncode == 130 and out.endswith(b"\n")
    assert err == b"grappa: warning: the model was trained on 512 positions, the context has 100096\n"


# --- chat -------------------------------------------------------------------------------------------------------


def chat(model, text, *options, **more):
    return run("run", "-m", model, "-n", "12", *GREEDY, *options, stdin=text, **more)


@pytest.mark.sanitize
def test_chat_by_lines(bpe):
    done = chat(bpe, b"the cat\nthe dog\n/exit\nnever read\n")
    assert (done.returncode, done.stderr) == (0, b"")
    first = chat(bpe, b"the cat\n").stdout
    assert done.stdout.startswith(first) and len(done.stdout) > len(first)


def test_chat_goes_through_the_template(bpe):
    """The same as a completion of what the template makes of the conversation."""
    prompt = "<|im_start|>system\nbe\n<|im_end|>\n<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"
    want = good("run", "-m", bpe, "-p", prompt, "-n", "12", "--no-display-prompt", "--no-escape", *GREEDY)
    assert chat(bpe, b"the cat\n", "-sys", "be\n").stdout == want
    assert good("run", "-m", bpe, "-n", "12", "-sys", "be\n", "-p", "the cat", "-cnv", "-st", *GREEDY) == want


def test_chat_remembers_and_reuses_the_context(bpe):
    """A second turn is what a conversation computed from scratch gives, though only its new part is computed."""
    one = chat(bpe, b"the cat\n").stdout
    answer = one[:-1].decode(errors="surrogateescape")
    done = chat(bpe, b"the cat\nthe dog\n", "-v", "-v")
    assert done.stdout.startswith(one)
    template = "<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n{}<|im_end|>\n<|im_start|>user\nthe dog<|im_end|>\n<|im_start|>assistant\n"
    if answer.isascii():
        fresh = good("run", "-m", bpe, "-p", template.format(answer), "-n", "12", "--no-display-prompt", "--no-escape", *GREEDY)
        assert done.stdout == one + fresh
    prompts = [line for line in done.stderr.decode().splitlines() if line.startswith("prompt of ")]
    assert len(prompts) == 2 and prompts[0].endswith(", 0 of them are in the context")
    assert int(prompts[1].split(", ")[1].split()[0]) > 10


THOUGHT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


@pytest.mark.parametrize("name", ["qwen35", "qwen35moe", "lfm2", "mamba2"])
def test_chat_goes_back_to_kept_states(name, tmp_path):
    """A template that asks for a thought and later leaves it out: the next turn goes back to the end of the question."""
    model = tiny(name)
    template = tmp_path / "thought.jinja"
    template.write_text(THOUGHT)
    letters = [w for i in range(64, 90) for w in ("--logit-bias", f"{i}+50")]  # a text, whatever the model says
    words = ["--chat-template-file", template, "-c", "512", *letters]
    done = chat(model, b"the cat\nthe dog\n", *words, "-v", "-v")
    assert done.stdout == b"\n\n"  # thoughts go to stderr
    question = "<|im_start|>user\nthe cat<|im_end|>\n"
    rest = "<|im_start|>assistant\n{}<|im_end|>\n<|im_start|>user\nthe dog<|im_end|>\n<|im_start|>assistant\n<think>\n"
    prompts = [line for line in done.stderr.decode().splitlines() if line.startswith("prompt of ")]
    assert len(prompts) == 2 and prompts[0].endswith(", 0 of them are in the context")
    held = int(prompts[1].split(", ")[1].split()[0])
    assert held == len(good("tokenize", "-m", model, "-p", question, "--no-escape", "--ids").split(b","))
    fresh = good("run", "-m", model, "-p", question + rest.format(""), "-n", "12", "-c", "512",
                 "--no-display-prompt", "--no-escape", *letters, *GREEDY)
    assert b"\n" + fresh in done.stderr


def test_chat_commands(bpe):
    first = chat(bpe, b"the cat\n").stdout
    done = chat(bpe, b"/help\nthe cat\n/clear\nthe cat\n/quit\n")
    assert done.stdout == first * 2
    for word in (b"/clear", b"/exit", b"/help", b"starts anew"):
        assert word in done.stderr


def test_chat_commands_that_change_it(bpe, tmp_path):
    saved, note = tmp_path / "chat.json", tmp_path / "note.txt"
    note.write_text("a note\n")
    first = chat(bpe, b"the cat\n").stdout
    done = chat(bpe, f"the cat\n/regen\n/save {saved}\n/save\n/load {note}\n".encode())
    assert done.returncode == 0 and done.stdout == first + first
    assert b"/save needs a FILE" in done.stderr and b"not a JSON array of messages" in done.stderr
    messages = json.loads(saved.read_text())
    assert [m["role"] for m in messages] == ["user", "assistant"] and messages[0]["content"] == "the cat"
    both = chat(bpe, b"the cat\nthe dog\n").stdout
    assert chat(bpe, f"/load {saved}\nthe dog\n".encode()).stdout == both[len(first):]
    assert chat(bpe, b"/system be\nthe cat\n").stdout == chat(bpe, b"the cat\n", "-sys", "be").stdout
    chat(bpe, f"/read {note}\nthe cat\n/save {saved}\n".encode())
    assert json.loads(saved.read_text())[0]["content"] == f"--- File: {note} ---\na note\nthe cat"


def test_chat_shows_calls_and_asks_for_results(bpe, tmp_path):
    template, tools, saved = tmp_path / "t.jinja", tmp_path / "tools.json", tmp_path / "chat.json"
    template.write_text(
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n"
        '{{ {"name": c.function.name, "arguments": c.function.arguments} | tojson }}\n</tool_call>{% endfor %}<|im_end|>\n'
        "{% endfor %}{{ tools | tojson }}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"a": {"type": "integer"}}}}}]))
    grammar = r'root ::= "So.<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>"'
    done = chat(bpe, f"the cat\n18\n/save {saved}\n".encode(), "--tools", tools, "--chat-template-file", template,
                "--grammar", grammar, "-n", "200", "-c", "2048")
    assert (done.returncode, done.stdout) == (0, b'So.\nf({"a": 1})\n' * 2), done.stderr
    roles = json.loads(saved.read_text())
    assert [m["role"] for m in roles] == ["user", "assistant", "tool", "assistant"]
    assert roles[2]["tool_call_id"] == roles[1]["tool_calls"][0]["id"] and roles[2]["content"] == "18"
    bad = chat(bpe, b"the cat\n", "--tools", template)
    assert bad.returncode == 1 and b"not a JSON array of tools" in bad.stderr


def test_a_template_that_is_none_is_refused(bpe):
    for words in (["-p", "the cat"], ["-p", "the cat", "-cnv", "-st"]):
        done = run("run", "-m", bpe, *words, "--chat-template", "nope")
        assert done.returncode == 2 and b'--chat-template: "nope"' in done.stderr


def test_chat_lines_that_go_on(bpe):
    whole = good("run", "-m", bpe, "-n", "12", "-p", "the cat\nthe dog", "-cnv", "-st", *GREEDY)
    assert chat(bpe, b"the cat\\\nthe dog\n").stdout == whole


def test_chat_templates(bpe, spm, tmp_path):
    done = chat(spm, b"the cat\n")
    assert done.returncode == 0
    assert b"no chat template, chatml is used" in done.stderr
    template = tmp_path / "t.jinja"
    template.write_text("{% for m in messages %}{{ m.content }}!{% endfor %}")
    want = good("run", "-m", bpe, "-p", "the cat!", "-n", "12", "--no-display-prompt", *GREEDY)
    assert chat(bpe, b"the cat\n", "--chat-template-file", template).stdout == want
    assert chat(bpe, b"the cat\n", "--chat-template", template.read_text()).stdout == want
    done = chat(bpe, b"the cat\n", "--chat-template", "{{ raise_exception('not so') }}")
    assert done.returncode in (1, 2) and done.stdout == b"" and b"not so" in done.stderr


def test_llama_names_chat_as_those_do(bpe, spm, tmp_path):
    links = {}
    for name in ("llama-cli", "llama-completion"):
        links[name] = tmp_path / name
        links[name].symlink_to(GRAPPA.resolve())
    chatted = good("run", "-m", bpe, "-n", "6", "-p", "the cat", "-cnv", "-st", *GREEDY)
    assert good("run", "-m", bpe, "-n", "6", "-p", "the cat", "-st", *GREEDY) == chatted
    words = ["-n", "6", "-p", "the cat", *GREEDY]
    assert good("-m", bpe, *words, program=links["llama-cli"]) == chatted
    assert good("-m", bpe, *words, "--no-display-prompt", program=links["llama-completion"]) == chatted
    shown = good("-m", bpe, *words, program=links["llama-completion"])
    assert shown == b"user\nthe cat\nassistant\n" + chatted
    # Without a template it completes.
    plain = good("run", "-m", spm, *words)
    assert good("-m", spm, *words, program=links["llama-completion"]) == plain
    assert good("-m", bpe, *words, "-no-cnv", program=links["llama-cli"]) == good("run", "-m", bpe, *words)


class Terminal:
    """The program on a terminal of its own."""

    def __init__(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(GRAPPA, [str(GRAPPA), *map(str, arguments)], environment(TERM="xterm", LC_ALL="C.UTF-8"))
        self.seen = b""

    def wait_for(self, text, seconds=60):
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, self.seen
            if select.select([self.fd], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    break
        assert text in self.seen, self.seen
        self.seen = self.seen[self.seen.index(text) + len(text) :]

    def send(self, text):
        os.write(self.fd, text)

    def status(self):
        while True:
            try:
                if not os.read(self.fd, 65536):
                    break
            except OSError:
                break
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_terminal_chat(bpe):
    t = Terminal("run", "-m", bpe, "-n", "4", *GREEDY)
    t.wait_for(b"> ")
    t.send(b"/hepl\x1b[D\x1b[D\x7fp\x05\x7fl\r")  # edited: the line becomes "/hpel", which is text
    t.wait_for(b"> ")
    t.send(b"/help\r")
    t.wait_for(b"Ctrl-C stops an answer")
    t.wait_for(b"> ")
    t.send(b"\x1b[A")  # the last line again
    t.wait_for(b"/help")
    t.send(b"\r")
    t.wait_for(b"Ctrl-C stops an answer")
    t.wait_for(b"> ")
    t.send("grüße \\\r".encode())
    t.wait_for(b". ")
    t.send(b"on\r")
    t.wait_for(b"> ")
    t.send(b"\x04")
    assert t.status() == 0


def test_terminal_interrupts(bpe):
    t = Terminal("run", "-m", bpe, "-c", "100000", "--ignore-eos", *GREEDY)
    t.wait_for(b"> ")
    t.send(b"the cat\r")
    t.wait_for(b"\r\n")
    t.wait_for(b" two two")
    t.send(b"\x03")  # stops the answer
    t.wait_for(b"\n> ")
    t.send(b"\x03")  # leaves
    assert t.status() == 130


def test_terminal_plain_lines(bpe):
    t = Terminal("run", "-m", bpe, "-n", "4", "--simple-io", *GREEDY)
    t.wait_for(b"> ")
    t.send(b"the cat\n")
    t.wait_for(b"> ")
    t.send(b"/exit\n")
    assert t.status() == 0


def test_chat_takes_bytes_that_are_no_text(bpe):
    """As a prompt does: each stands as U+FFFD, and the chat goes on."""
    done = chat(bpe, b"the \xff cat\nthe dog\n")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(chat(bpe, "the \ufffd cat\n".encode()).stdout)
