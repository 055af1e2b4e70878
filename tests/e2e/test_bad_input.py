"""What can be wrong with a file, a device or a size: each ends with status 1 (2 for wrong usage) and one line on
stderr that names the thing."""
import os
import struct
import subprocess

import pytest
from cli_tools import EXACT, refused, run, tiny

gguf = pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def model():
    return tiny("llama")


@pytest.fixture(scope="module")
def whole(model):
    return model.read_bytes()


def failure(path, *options, status=1):
    """The line that computing with a file fails with."""
    return refused("logits", "-m", path, "--ids", "1", "-o", "-", *options, status=status)


def tensor_at(data, name):
    """Where a tensor's entry has its number of dimensions."""
    key = struct.pack("<Q", len(name)) + name.encode()
    assert data.count(key) == 1
    return data.index(key) + len(key)


# --- paths --------------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
@pytest.mark.parametrize("command", [["run", "-p", "x"], ["logits", "--ids", "1", "-o", "-"], ["inspect"],
                                     ["tokenize", "-p", "x"], ["perplexity", "-p", "x"]], ids=lambda c: c[0])
def test_every_command_names_the_file(tmp_path, command):
    missing, folder, empty = tmp_path / "missing.gguf", tmp_path / "folder.gguf", tmp_path / "empty.gguf"
    folder.mkdir()
    empty.write_bytes(b"")
    for path, reason in ((missing, "No such file or directory"), (folder, "is a folder"), (empty, "is empty"),
                         (tmp_path / "empty.gguf" / "x", "Not a directory")):
        line = refused(command[0], "-m", path, *command[1:], status=1)
        assert line.startswith(f"{path}: {reason}")


def test_special_files(tmp_path):
    assert failure("/dev/null") == "/dev/null: is not a regular file"
    os.mkfifo(tmp_path / "pipe")  # must not be waited for
    assert failure(tmp_path / "pipe") == f"{tmp_path / 'pipe'}: is not a regular file"
    (tmp_path / "loop").symlink_to("loop")
    assert failure(tmp_path / "loop").startswith(f"{tmp_path / 'loop'}: Too many levels of symbolic links")


def test_no_permission(tmp_path, whole):
    path = tmp_path / "secret.gguf"
    path.write_bytes(whole)
    path.chmod(0)
    words, program = ["logits", "-m", path, "--ids", "1", "-o", "-"], {}
    if os.access(path, os.R_OK):  # root reads everything, unless it lays that right down
        without = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
        try:
            able = subprocess.run([*without, "cat", path], capture_output=True).returncode == 0
        except FileNotFoundError:
            able = True
        if able:
            pytest.skip("runs as root, and setpriv can't take away its right to read everything")
        from cli_tools import GRAPPA

        words, program = [*without[1:], GRAPPA, *words], {"program": without[0]}
    assert refused(*words, status=1, **program) == f"{path}: Permission denied"


# --- contents -----------------------------------------------------------------------------------------------------


@pytest.mark.sanitize
@pytest.mark.parametrize("start, what", [(b"hello world", "not a GGUF file"), (b"GGU", "not a GGUF file"),
                                         (b"PK\3\4....", "zip"), (b"<!DOCTYPE html>", "web page"),
                                         (b"version https://git-lfs", "Git LFS pointer")], ids=lambda x: repr(x))
def test_not_gguf(tmp_path, start, what):
    path = tmp_path / "x.gguf"
    path.write_bytes(start)
    line = failure(path)
    assert line.startswith(f"{path}: not a GGUF file") and what in line


@pytest.mark.sanitize
def test_cut_anywhere(tmp_path, model, whole):
    """In the header, in each part of the directory, at its end, and in the data down to the last byte of them."""
    reader = gguf.GGUFReader(model)
    last = reader.tensors[-1]
    head, end = reader.data_offset, int(last.data_offset) + int(last.n_bytes)
    first = whole.index(b"token_embd.weight")
    cuts = [5, 12, 23, 24, 30, first // 2, first - 1, first + 5, head - 1, head, head + 1000, end // 2, end - 1]
    for n in cuts:
        path = tmp_path / f"cut-{n}.gguf"
        path.write_bytes(whole[:n])
        assert failure(path).startswith(f"{path}: "), n
    line = failure(tmp_path / f"cut-{end - 1}.gguf")
    assert f"'{last.name}'" in line and "incomplete or damaged" in line


def test_byte_order_and_version(tmp_path, whole):
    for at, value, what in ((4, b"\0\0\0\3", "big-endian"), (4, struct.pack("<I", 1), "GGUF version 1"),
                            (4, struct.pack("<I", 4), "GGUF version 4")):
        path = tmp_path / "x.gguf"
        path.write_bytes(whole[:at] + value + whole[at + 4:])
        assert what in failure(path)


@pytest.mark.sanitize
def test_unknown_architecture(tmp_path, whole):
    path = tmp_path / "x.gguf"
    name = b"general.architecture" + struct.pack("<IQ", 8, 5)
    assert whole.count(name + b"llama") == 1
    path.write_bytes(whole.replace(name + b"llama", name + b"alpac"))
    line = failure(path)
    assert line.startswith(f'{path}: architecture "alpac" can\'t run') and "qwen3" in line
    assert run("inspect", "-m", path).returncode == 0  # a file that can't run can be looked at


@pytest.mark.sanitize
def test_tensor_types(tmp_path, whole):
    """An id that nobody knows, and one that is no type for a matrix (i32 has the size of f32)."""
    path = tmp_path / "x.gguf"
    at = tensor_at(whole, "blk.1.ffn_down.weight") + 4 + 2 * 8
    assert whole[at:at + 4] == struct.pack("<I", 0)
    for value, what in ((9999, "'blk.1.ffn_down.weight': unknown type 9999"),
                        (26, "blk.1.ffn_down.weight: type I32")):
        path.write_bytes(whole[:at] + struct.pack("<I", value) + whole[at + 4:])
        line = failure(path)
        assert line.startswith(f"{path}: ") and what in line


def test_shapes_that_do_not_fit(tmp_path, whole):
    path = tmp_path / "x.gguf"
    at = tensor_at(whole, "blk.0.ffn_up.weight") + 4
    assert whole[at:at + 16] == struct.pack("<QQ", 64, 96)
    path.write_bytes(whole[:at] + struct.pack("<QQ", 96, 64) + whole[at + 16:])
    assert "tensor blk.0.ffn_up.weight is 96 x 64, expected 64 x 96" in failure(path)


# --- devices and sizes --------------------------------------------------------------------------------------------


@pytest.mark.sanitize
def test_devices_that_are_not_here(model):
    here = run("devices").stdout.decode()
    line = failure(model, "-dev", "XPU")
    assert "device XPU is unknown" in line and "CPU" in line
    assert "device CPU.7" in failure(model, "-dev", "CPU.7")
    assert "device NPU" in failure(model, "-dev", "NPU")
    if "GPU" in here:
        pytest.skip("this machine has a GPU: -dev GPU is not refused")
    assert "device GPU" in failure(model, "-dev", "GPU")


@pytest.mark.sanitize
def test_context_larger_than_memory(model):
    line = failure(model, "-c", 1 << 30, *EXACT)  # 512 GB
    assert line.startswith("a context of 1073741824 tokens takes ") and " MB are free" in line


@pytest.mark.parametrize("token", [320, 2**31 - 1])
def test_token_ids_out_of_range(model, token):
    assert refused("logits", "-m", model, "--ids", f"1,{token}", "-o", "-") == (
        f"--ids {token}: the vocabulary has 320 tokens")


def test_openvino_properties_that_do_not_exist(model):
    assert "NO_SUCH_PROPERTY" in failure(model, "--ov", "NO_SUCH_PROPERTY=1")
    assert "INFERENCE_PRECISION_HINT" in failure(model, "--ov", "INFERENCE_PRECISION_HINT=f77")


# --- types and numbers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options, named", [
    (["-ctk", "q8_0"], "u8 for keys and f16 for values"),
    (["-ctv", "q4_0"], "f16 for keys and u4 for values"),
    (["-ctk", "bf16", "-ctv", "bf16"], "bf16 goes with --precision bf16"),
    (["-ctk", "f32", "-ctv", "f32", "--precision", "bf16"], "f32 goes with --precision f32"),
    (["--precision", "q8_0"], "precision u8"),
], ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_cache_types_that_do_not_go_together(model, options, named):
    assert named in failure(model, *options, status=2)


def test_weights_that_are_no_numbers(tmp_path, whole):
    broken = tmp_path / "nan.gguf"
    broken.write_bytes(whole[:-4096] + b"\xff" * 4096)
    assert "the logits are not numbers" in failure(broken)
