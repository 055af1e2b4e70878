"""The command line itself: commands and names it is called by, options, environment, help, exit statuses."""
import re
import subprocess

import pytest
from cli_tools import GRAPPA, ROOT, good, refused, run, tiny

COMMANDS = ["run", "bench", "perplexity", "tokenize", "logits", "inspect", "devices", "help", "version"]
PROGRAMS = {"llama-cli": "run", "llama-completion": "run", "llama-bench": "bench", "llama-perplexity": "perplexity",
            "llama-tokenize": "tokenize", "grappa-run": "run", "grappa-tokenize": "tokenize"}

# Names of every option in options.def, with the commands that know it, read by other means than the program's own.
GROUPS = {"MODEL": {"run", "perplexity", "logits"}, "ANY": set(COMMANDS)}


def rows(macro):
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "src/cli/options.def").read_text(), flags=re.S)
    for row in re.findall(rf"^{macro}\((.*?)\)$", text, flags=re.S | re.M):
        yield row


def option_names():
    """(name, commands) of every row, whether it does something, is ignored or is refused."""
    for macro in ("OPT", "NOP", "REFUSED"):
        for row in rows(macro):
            texts = re.findall(r'"((?:[^"\\]|\\.)*)"', row)
            names = texts[0].split(",")
            if macro != "REFUSED" and texts[1].startswith("-"):
                names += texts[1].split(",")
            known = set()
            for word in re.findall(r"\b[A-Z]+\b", re.sub(r'"(?:[^"\\]|\\.)*"', "", row)):
                known |= GROUPS.get(word, {word.lower()} & set(COMMANDS))
            for name in names:
                yield name, known


@pytest.fixture(scope="module")
def model():
    return tiny("llama")


# --- commands ---------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_overview_names_every_command():
    text = good("help").decode()
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", text, re.M)
    assert good("--help") == good("-h") == good("help")


def test_bare_name_explains_itself_but_is_wrong():
    done = run()
    assert (done.returncode, done.stdout) == (2, good("help"))


@pytest.mark.sanitize
@pytest.mark.parametrize("command", COMMANDS)
def test_help_contains_every_option(command):
    text = good("help", command).decode()
    assert text == good(command, "-h").decode() == good(command, "--help").decode()
    words = set(re.split(r"[\s,:]+", text))
    expected = {name for name, known in option_names() if command in known}
    assert len(expected) > 5
    assert expected - words == set()


def test_help_gives_defaults_and_environment():
    text = re.sub(r"\s+", " ", good("help", "run").decode())
    assert "--top-k N of the likeliest N; 0: off (default: 40) [LLAMA_ARG_TOP_K, GRAPPA_TOP_K]" in text
    assert "(default: 512) [LLAMA_ARG_CTX_SIZE" in re.sub(r"\s+", " ", good("help", "perplexity").decode())


def test_help_of_a_program_name():
    assert good("help", "llama-bench") == good("help", "bench")
    assert refused("help", "benhc") == "benhc: unknown command; did you mean bench?"


def test_version():
    assert re.fullmatch(r"grappa \d+\.\d+\.\d+\nOpenVINO \d+\.\d+\S*\n", good("version").decode())
    assert good("version") == good("--version") == good("run", "--version")


def test_devices():
    assert re.search(r"^CPU +\S", good("devices").decode(), re.M)
    assert good("devices") == good("run", "--list-devices") == good("--list-devices")


@pytest.mark.parametrize("program", PROGRAMS)
def test_program_names_select_the_command(tmp_path, program):
    link = tmp_path / program
    link.symlink_to(GRAPPA.resolve())
    assert good("-h", program=link) == good("help", PROGRAMS[program])


def test_unknown_commands():
    assert refused("runn") == "runn: unknown command; did you mean run?"
    assert refused("xyzzy") == "xyzzy: unknown command; see `grappa help`"
    assert refused("-m", "model.gguf").startswith("-m: unknown command")


# --- options ----------------------------------------------------------------------------------------------------

WRONG = [
    (["run", "--tmep", "1"], "--tmep: unknown option; did you mean --temp?"),
    (["run", "--wibblewobble"], "--wibblewobble: unknown option of `run`; see `grappa help run`"),
    (["tokenize", "--temp", "1"], "--temp: unknown option"),
    (["run", "-n"], "-n: needs a value, N"),
    (["run", "-n", "12x"], "-n 12x: not a whole number"),
    (["run", "-n", ""], '-n "": not a whole number'),
    (["run", "-n", " 1"], "-n  1: not a whole number"),
    (["run", "-n", "-3"], "-n -3: out of range, -2 … 2147483647"),
    (["run", "-n", "99999999999999999999"], "-n 99999999999999999999: out of range"),
    (["run", "-c", "-1"], "-c -1: out of range, 0 … 1073741824"),
    (["run", "--temp", "warm"], "--temp warm: not a number"),
    (["run", "--temp", "nan"], "--temp nan: not a number"),
    (["run", "--top-p", "1.5"], "--top-p 1.5: out of range, 0 … 1"),
    (["run", "--seed", "4294967296"], "--seed 4294967296: out of range, -1 … 4294967295"),
    (["run", "--mirostat", "3"], "--mirostat 3: out of range, 0 … 2"),
    (["run", "--rope-scaling", "cubic"], "--rope-scaling cubic: must be one of none|linear|yarn"),
    (["run", "--perf=1"], "--perf: takes no value"),
    (["run", "surplus"], "surplus: unexpected argument of `run`; see `grappa help run`"),
    (["run", "--lora", "x"], "--lora: adapters are not supported"),
    (["bench", "-p", "1,,2"], "-p 1,,2: an entry is empty"),
    (["bench", "-p", "8-1"], "-p 8-1: not a whole number or range"),
    (["bench", "-p", "1-8*1"], "-p 1-8*1: not a whole number or range"),
    (["bench", "-p", "0-8*2"], "-p 0-8*2: not a whole number or range"),
    (["bench", "-p", "1-9999999"], "-p 1-9999999: too many values"),
    (["bench", "-o", "xml"], "-o xml: must be one of md|csv|json|jsonl"),
    (["bench", "-r", "0"], "-r 0: out of range, 1 … 1000000"),
    (["logits", "--ids", "1,-2"], "--ids -2: out of range"),
]


@pytest.mark.sanitize
@pytest.mark.parametrize("arguments, line", WRONG, ids=[" ".join(a) for a, _ in WRONG])
def test_wrong_usage(arguments, line):
    assert refused(*arguments).startswith(line)


NEEDS_THE_MODEL = [
    (["run", "-p", "x", "-ctk", "q5_1"], "--cache-type-k q5_1: not a type"),
    (["run", "-p", "x", "--ov", "KEY"], "--ov KEY: must be KEY=VALUE"),
    (["run", "-p", "x", "--ov", "=V"], "--ov =V: must be KEY=VALUE"),
    (["run", "-p", "x", "--logit-bias", "5"], "--logit-bias 5: must be a token id, + or -, and a number"),
    (["run", "-p", "x", "--logit-bias", "5+-1"], "--logit-bias 5+-1: must be"),
    (["run", "-p", "x", "--logit-bias", "99999+1"], "--logit-bias 99999+1: the vocabulary has 320 tokens"),
    (["run", "-p", "x", "--samplers", "top_q"], ""),
    (["tokenize"], "`tokenize` needs a text: -p TEXT, -f FILE or --stdin"),
    (["logits", "-o", "x"], "`logits` needs tokens: --ids ID,ID,…"),
    (["logits", "--ids", "1"], "`logits` needs a place to write: -o FILE"),
    (["logits", "--ids", "1,2", "--steps", "3", "-o", "x"], "--steps: the calls compute 3 tokens, --ids has 2"),
    (["logits", "--ids", "1,320", "-o", "x"], "--ids 320: the vocabulary has 320 tokens"),
    (["bench", "-p", "0", "-n", "0"], "nothing to measure"),
    (["bench", "-pg", "3"], "-pg 3: must be two numbers, PP,TG"),
    (["bench", "-pg", "3,x"], "-pg 3,x: must be two numbers, PP,TG"),
    (["perplexity"], "`perplexity` needs a text: -f FILE or -p TEXT"),
    (["perplexity", "-p", "x", "-c", "3"], "-c 3: chunks must have at least 4 positions"),
    (["perplexity", "--kl-divergence"], "--kl-divergence needs a file to compare with"),
]


@pytest.mark.parametrize("arguments, line", NEEDS_THE_MODEL, ids=[" ".join(a) for a, _ in NEEDS_THE_MODEL])
def test_wrong_values_that_show_later(model, tmp_path, arguments, line):
    assert refused(*arguments, "-m", model, cwd=tmp_path).startswith(line)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["run", "bench", "perplexity", "tokenize", "logits", "inspect"])
def test_model_is_needed_and_must_be_there(command):
    assert refused(command) == f"`{command}` needs a model: -m FILE"
    more = {"tokenize": ["-p", "x"], "logits": ["--ids", "1", "-o", "-"], "perplexity": ["-p", "x"]}.get(command, [])
    done = run(command, "-m", "/nowhere/x.gguf", *more)
    line = done.stderr.decode()
    assert done.returncode == 1 and line.count("\n") == 1
    assert line.startswith("grappa: ") and "/nowhere/x.gguf" in line and "No such file" in line


def test_no_model_but_a_text_file(tmp_path):
    path = tmp_path / "a\nb.gguf"
    path.write_text("hello")
    assert "\n" not in refused("inspect", path, status=1)
    assert "a?b.gguf" in refused("inspect", path, status=1)


# --- environment ------------------------------------------------------------------------------------------------


def test_environment_is_checked_like_options():
    assert refused("run", env={"LLAMA_ARG_TOP_K": "x"}) == "LLAMA_ARG_TOP_K x: not a whole number"
    assert refused("run", env={"GRAPPA_TOP_K": "x"}) == "GRAPPA_TOP_K x: not a whole number"
    assert refused("run", env={"LLAMA_ARG_PERF": "maybe"}) == "LLAMA_ARG_PERF maybe: must be on or off"
    # Of another command, or empty: nobody asked.
    assert refused("tokenize", env={"LLAMA_ARG_TOP_K": "x"}) == "`tokenize` needs a model: -m FILE"
    assert refused("run", env={"LLAMA_ARG_TOP_K": ""}) == "`run` needs a model: -m FILE"


def test_environment_sets_and_the_command_line_wins(model):
    words = ["run", "-p", "the cat", "--temp", "0", "--no-display-prompt"]
    four = good(*words, "-m", model, "-n", "4")
    assert good(*words, env={"LLAMA_ARG_MODEL": str(model), "LLAMA_ARG_N_PREDICT": "4"}) == four
    assert good(*words, env={"GRAPPA_MODEL": str(model), "LLAMA_ARG_MODEL": "/no", "GRAPPA_N_PREDICT": "4"}) == four
    assert good(*words, "-m", model, "-n", "4", env={"LLAMA_ARG_MODEL": "/no", "LLAMA_ARG_N_PREDICT": "9"}) == four
    done = run(*words, "-m", model, "-n", "1", env={"LLAMA_ARG_PERF": "on"})
    assert b"prompt eval time" in done.stderr


# --- options without effect ---------------------------------------------------------------------------------------


def test_ignored_options_take_their_value_and_are_named_when_verbose(model):
    words = ["tokenize", "-m", model, "-p", "the cat", "--ids"]
    plain = good(*words)
    assert good(*words, "-lv", "5", "--log-prefix", "--log-colors", "off", "--offline") == plain
    text = run(*words, "-v", "-lv", "5").stderr.decode()
    assert text == "-lv has no effect here\n"
    full = ["run", "-m", model, "-p", "the cat", "-n", "2", "--temp", "0"]
    ignored = ["-ngl", "99", "-fa", "on", "-ts", "3,1", "-sm", "layer", "-mg", "0", "--mlock", "--no-mmap", "--numa",
               "distribute", "-nkvo", "--no-warmup", "--poll", "50", "--prio", "2", "--cpu-mask", "ff", "-C", "ff"]
    assert good(*full, *ignored) == good(*full) == good(*full, "-fa") == good(*full, "-fa", "--jinja")


def test_other_spellings(model):
    words = ["run", "-m", model, "-p", "the cat", "--temp", "0"]
    assert good(*words, "--n-predict=2") == good(*words, "--n_predict", "2") == good(*words, "-n", "2")


# --- messages -----------------------------------------------------------------------------------------------------


def test_log_file_and_levels(model, tmp_path):
    words = ["run", "-m", model, "-p", "the cat", "-n", "1"]
    log = tmp_path / "log"
    done = run(*words, "-v", "--log-file", log)
    assert b"context of" in done.stderr and "context of" in log.read_text()
    quiet = run("run", "-m", tiny("qwen2"), "-p", "a", "-n", "3", "-c", "999999999", "--log-disable")
    assert quiet.stderr.count(b"\n") <= 1
    assert refused(*words, "--log-file", "/nowhere/log", status=1)


# --- standard streams ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["help", "run"], ["version"], ["devices"]])
def test_full_disk(words):
    with open("/dev/full", "wb") as full:
        done = run(*words, stdout=full)
    assert (done.returncode, done.stderr) == (1, b"grappa: can't write to stdout: No space left on device\n")


def test_full_disk_while_writing(model, tmp_path):
    with open("/dev/full", "wb") as full:
        for words in (["run", "-p", "the cat", "-n", "50", "--temp", "0"], ["tokenize", "-p", "the cat"], ["inspect"],
                      ["inspect", "--ir"], ["bench", "-p", "2", "-n", "0", "-r", "1", "-o", "json"],
                      ["logits", "--ids", "1,2,3", "-o", "-"]):
            done = run(words[0], "-m", model, *words[1:], stdout=full)
            assert done.returncode == 1 and b"No space left on device\n" in done.stderr, words
            assert done.stderr.count(b"\n") == 1
    for words in (["logits", "--ids", "1,2,3"], ["inspect", "--json"], ["inspect", "--ir"]):
        line = refused(words[0], "-m", model, *words[1:], "-o", "/dev/full", status=1)
        assert line == "can't write /dev/full: No space left on device"
    assert refused("logits", "-m", model, "--ids", "1", "-o", tmp_path / "no" / "x", status=1).endswith("No such file or directory")


@pytest.mark.sanitize
def test_reader_that_leaves(model):
    for words in (["run", "-p", "the cat", "-n", "-1", "--ignore-eos"], ["inspect"], ["inspect", "--ir"],
                  ["tokenize", "-p", "the cat " * 9000, "--ids"]):
        line = f'"$0" "$@" 2>err | head -c 10; s=("${{PIPESTATUS[@]}}"); cat err >&2; exit "${{s[0]}}"'
        done = subprocess.run(["bash", "-c", line, GRAPPA, words[0], "-m", model, *words[1:]], capture_output=True,
                              timeout=120, cwd=model.parent)
        (model.parent / "err").unlink()
        assert (done.returncode, len(done.stdout), done.stderr) == (0, 10, b""), words


def test_closed_streams(model):
    words = [GRAPPA, "run", "-m", model, "-p", "the cat", "-n", "2"]
    done = subprocess.run(["bash", "-c", '"$0" "$@" >&-', *words], capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (1, b"grappa: can't write to stdout: Bad file descriptor\n")
    done = subprocess.run(["bash", "-c", '"$0" "$@" <&- 2>&-', *words], capture_output=True, timeout=120)
    assert done.returncode == 0 and done.stdout
