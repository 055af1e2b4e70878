"""The IR documents of the unit test, read, checked and run by OpenVINO.

The C program writes its sample graphs to a folder; every node's element type and shape, as our static inference
wrote them, must be what OpenVINO infers, and results are compared with NumPy."""
import math
import os
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

np = pytest.importorskip("numpy")
ov = pytest.importorskip("openvino")

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GRAPPA", ROOT / "build" / "grappa")).parent
ELEMENT = {"FP32": "f32", "FP16": "f16", "BF16": "bf16", "BOOL": "boolean"}


@pytest.fixture(scope="module")
def core():
    return ov.Core()


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    program = BUILD / "test_ir_write"
    if not program.exists():
        pytest.skip(f"{program} is not built")
    folder = tmp_path_factory.mktemp("ir")
    subprocess.run([program], env={**os.environ, "IR_SAMPLES": str(folder)}, check=True, capture_output=True)
    return folder


def written_ports(path):
    """{layer name: [(element type, dims) of each output]} as the document says."""
    layers = {}
    for layer in ElementTree.parse(path).iter("layer"):
        ports = layer.find("output")
        layers[layer.get("name")] = [
            (ELEMENT.get(p.get("precision"), p.get("precision").lower()), [int(d.text) for d in p])
            for p in (ports if ports is not None else [])
        ]
    return layers


def inferred_ports(model):
    return {
        op.get_friendly_name(): [
            (o.get_element_type().get_type_name(), [d.get_length() if d.is_static else -1 for d in o.partial_shape])
            for o in op.outputs()
        ]
        for op in model.get_ops()
        if op.get_type_name() != "Result"
    }


@pytest.mark.parametrize("name", ["linear", "state", "internal", "each_op"])
def test_shapes_as_openvino_infers_them(core, samples, name):
    path = samples / f"{name}.xml"
    model = core.read_model(path)
    model.validate_nodes_and_infer_types()
    written, inferred = written_ports(path), inferred_ports(model)
    assert len(inferred) >= 3
    assert {k: written[k] for k in inferred} == inferred


def test_linear_runs_on_weights_of_the_blob(core, samples):
    run = core.compile_model(samples / "linear.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    x = np.random.default_rng(1).normal(size=(3, 16)).astype(np.float32)
    w = ((np.arange(32 * 16) % 7 - 3) / 8).astype(np.float32).reshape(32, 16)
    want = (x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)) @ w.T
    np.testing.assert_allclose(run({"x": x})["y"], want.reshape(3, 2, 16), rtol=1e-5, atol=1e-5)


def test_state_keeps_rows_between_calls(core, samples):
    request = core.compile_model(samples / "state.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"}).create_infer_request()
    rows = np.arange(20, dtype=np.float32).reshape(1, 5, 4)
    for begin, end in ((0, 3), (3, 4), (4, 5)):
        got = request.infer({"x": rows[:, begin:end]})["sum"]
        np.testing.assert_array_equal(got, rows[:, :end].sum(1))


def test_user_data_and_names(core, samples):
    model = core.read_model(samples / "internal.xml")
    gate = next(op for op in model.get_ops() if op.get_friendly_name() == "gate")
    info = gate.get_rt_info()
    assert info["user_datak_head_size"].astype(str) == "64"
    assert info["user_datanote"].astype(str) == "a<b"
    assert gate.output(0).get_names() == {"y", "y again"}
    cache = model.input("key_cache.0")
    assert cache.get_element_type() == ov.Type.dynamic


def softmax(v):
    e = np.exp(v - v.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(x, scale, causal):
    q = x.reshape(-1, 2, 4).transpose(1, 0, 2)
    scores = q @ q.transpose(0, 2, 1) * scale
    if causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    return (softmax(scores) @ q)[None]


ERF = np.vectorize(math.erf)
W = (np.arange(32) % 5 - 2).astype(np.float32)
TABLE = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
ROW = np.arange(1, 9, dtype=np.float32)
# What each result of the sample must be, from inputs x, y and ids.
WANT = {
    "add": lambda x, y, i: x + y,
    "sub": lambda x, y, i: x - y,
    "mul": lambda x, y, i: x * y,
    "div": lambda x, y, i: x / y,
    "pow": lambda x, y, i: x**y,
    "max": lambda x, y, i: np.maximum(x, y),
    "min": lambda x, y, i: np.minimum(x, y),
    "less_equal": lambda x, y, i: x <= y,
    "greater": lambda x, y, i: x > y,
    "equal": lambda x, y, i: x == y,
    "and": lambda x, y, i: (x <= y) & (x > y),
    "or": lambda x, y, i: (x <= y) | (x > y),
    "select": lambda x, y, i: np.where(x <= y, x, y),
    "sqrt": lambda x, y, i: np.sqrt(x),
    "exp": lambda x, y, i: np.exp(x),
    "log": lambda x, y, i: np.log(x),
    "neg": lambda x, y, i: -x,
    "abs": lambda x, y, i: np.abs(x),
    "sin": lambda x, y, i: np.sin(x),
    "cos": lambda x, y, i: np.cos(x),
    "tanh": lambda x, y, i: np.tanh(x),
    "sigmoid": lambda x, y, i: 1 / (1 + np.exp(-x)),
    "relu": lambda x, y, i: np.maximum(x, 0),
    "softplus": lambda x, y, i: np.log1p(np.exp(x)),
    "swish": lambda x, y, i: x / (1 + np.exp(-x)),
    "gelu_erf": lambda x, y, i: 0.5 * x * (1 + ERF(x / math.sqrt(2))),
    "gelu_tanh": lambda x, y, i: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "clamp": lambda x, y, i: np.clip(x, 0.5, 1.25),
    "clamp_below": lambda x, y, i: np.maximum(x, 1),
    "f16": lambda x, y, i: x.astype(np.float16),
    "i64": lambda x, y, i: x.astype(np.int64),
    "reshape": lambda x, y, i: x.reshape(-1, 4, 2),
    "reshape_flat": lambda x, y, i: x.reshape(-1),
    "transpose": lambda x, y, i: x.reshape(-1, 4, 2).transpose(1, 2, 0),
    "unsqueeze": lambda x, y, i: x[None, ..., None],
    "concat": lambda x, y, i: np.concatenate([x, x], -1),
    "slice": lambda x, y, i: x[:, 1::3],
    "slice_rows": lambda x, y, i: x[-2:],
    "slice_back": lambda x, y, i: x[:, 6:1:-2],
    "split": lambda x, y, i: x[:, 4:6],
    "split_given": lambda x, y, i: x[:, 1:4],
    "gather": lambda x, y, i: TABLE[i],
    "shape": lambda x, y, i: np.array(x.shape),
    "broadcast": lambda x, y, i: np.broadcast_to(ROW, x.shape),
    "broadcast_both": lambda x, y, i: np.broadcast_to(x, (2, *x.shape)),
    "reshape_dyn": lambda x, y, i: x,
    "tile": lambda x, y, i: np.tile(x, (2, 1, 3)),
    "range": lambda x, y, i: np.arange(1, 10, 4),
    "range_dyn": lambda x, y, i: np.arange(len(x)),
    "scatter": lambda x, y, i: np.array([[21, 2, 3, 4, 5, 20, 7, 8]]),
    "sum": lambda x, y, i: x.sum(0),
    "mean": lambda x, y, i: x.mean(-1, keepdims=True),
    "largest": lambda x, y, i: x.max(1),
    "softmax": lambda x, y, i: softmax(x),
    "topk": lambda x, y, i: -np.sort(-x, -1)[:, :3],
    "topk_at": lambda x, y, i: np.argsort(-x, -1)[:, :3],
    "matmul": lambda x, y, i: x @ W.reshape(4, 8).T,
    "matmul_ta": lambda x, y, i: x.T @ x,
    "matmul_batch": lambda x, y, i: x[None] @ W.reshape(2, 1, 8, 2),
    "matmul_vector": lambda x, y, i: x @ W[:8],
    "sdpa": lambda x, y, i: attention(x, 0.25, True),
    "sdpa_mask": lambda x, y, i: attention(x, 0.5, False),
    "c_u4": lambda x, y, i: np.array([[1, 2, 3], [4, 5, 6]]),
    "c_u8": lambda x, y, i: np.array([128, 1]),
    "c_i8": lambda x, y, i: np.array([-128, 1]),
    "c_bf16": lambda x, y, i: np.array([1, -2]),
    "c_bool": lambda x, y, i: np.array([1, 0]),
    "c_empty": lambda x, y, i: np.zeros((0, 8)),
}


def test_each_operation_against_numpy(core, samples):
    run = core.compile_model(samples / "each_op.xml", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    rng = np.random.default_rng(2)
    x = rng.uniform(0.1, 2, size=(5, 8)).astype(np.float32)
    y = rng.uniform(0.1, 2, size=(1, 8)).astype(np.float32)
    x[2, 3] = y[0, 3]
    ids = np.array([2, 0, 1, 1], dtype=np.int64)
    got = run({"x": x, "y": y, "ids": ids})
    names = {n for o in run.outputs for n in o.get_names()}
    assert WANT.keys() == names
    wrong = {}
    for name, want in WANT.items():
        expected, given = np.asarray(want(x, y, ids)), got[name]
        if expected.shape != given.shape or not np.allclose(given, expected, rtol=1e-4, atol=1e-5):
            wrong[name] = (given, expected)
    assert not wrong
