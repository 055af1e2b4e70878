"""The server's own endpoints, on a tiny model."""
import pytest

from cli_tools import tiny
from server_tools import Server

pytestmark = pytest.mark.sanitize


@pytest.fixture(scope="module")
def server():
    with Server(tiny("llama-head32"), "-c", "512", "-np", "2", "--metrics", "--alias", "tiny,another", "--tags", "a,b",
                "--seed", "1") as s:
        yield s


def test_health_props_models(server):
    assert server.get("/health")[2] == {"status": "ok"}
    props = server.get("/props")[2]
    assert props["total_slots"] == 2
    assert props["default_generation_settings"]["n_ctx"] == 256
    assert props["default_generation_settings"]["params"]["seed"] == 1
    models = server.get("/v1/models")[2]
    assert [m["id"] for m in models["data"]] == ["another"]
    assert set(models["data"][0]["aliases"]) == {"tiny", "another"}
    assert set(models["data"][0]["tags"]) == {"a", "b"}


@pytest.mark.parametrize("field, value", [("top_k", "x"), ("stream", "yes"), ("stop", 3), ("n_predict", []),
                                          ("temperature", {}), ("logit_bias", "x"), ("grammar", 1),
                                          ("samplers", 2), ("stream_options", 1)])
def test_wrong_types_name_the_field(server, field, value):
    status, _, answer = server.post("/completion", {"prompt": "a", "n_predict": 1, field: value})
    assert status == 400
    assert answer["error"]["type"] == "invalid_request_error"
    assert field in answer["error"]["message"]


@pytest.mark.parametrize("prompt", [[-1], [1 << 20], [1.5], [None], 7, [], {"a": 1}])
def test_prompts_that_are_none(server, prompt):
    status, _, answer = server.post("/completion", {"prompt": prompt, "n_predict": 1})
    assert status == 400, answer
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], (int, float)):
        assert str(prompt[0]) in answer["error"]["message"]
    assert server.get("/health")[0] == 200


def test_unknown_fields_are_ignored(server):
    server.ok("/completion", {"prompt": "a", "n_predict": 1, "no_such_field": {"deep": [1]}})


def test_one_model(server):
    whole = server.get("/v1/models")[2]["data"][0]
    for name in ("tiny", "another"):
        one = server.get(f"/v1/models/{name}")[2]
        assert one["id"] == "another" and {**one, "created": 0} == {**whole, "created": 0}
    for name in ("none", "org/none", "tin", "tinyy", "%00", "x" * 3000):
        status, _, a = server.get(f"/v1/models/{name}")
        assert status == 404 and a["error"]["type"] == "not_found_error"


def test_audio_is_refused(server):
    status, _, a = server.request("POST", "/v1/audio/transcriptions", raw=b"x")
    assert status == 501 and "audio" in a["error"]["message"]


def test_head_and_methods(server):
    status, headers, body = server.request("HEAD", "/health")
    assert status == 200 and body == "" and int(headers["Content-Length"]) > 0
    for method, path in (("PUT", "/completion"), ("DELETE", "/slots/0"), ("GET", "/completion"), ("HEAD", "/tokenize")):
        assert server.request(method, path)[0] == 404
