"""Programs that people use with such servers, unchanged: openai, anthropic, langchain-openai, litellm, llm, curl. `make deps`
brings them; one that is missing all the same is a failure in CI and else a skipped test."""
import asyncio
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli_tools import ROOT
from server_tools import Server

SMOLLM2 = Path(os.environ.get("GRAPPA_MODELS") or ROOT / ".models") / "SmolLM2-135M-Instruct.Q4_1.gguf"
if not SMOLLM2.exists():
    pytest.skip(f"{SMOLLM2} is not there: scripts/models.py smollm2", allow_module_level=True)

KEY = "sk-secret"


def need(name):
    try:
        return importlib.import_module(name)
    except ImportError as e:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{name} is not installed: {e}")


ASK = [{"role": "user", "content": "What is the capital of France? Answer in one short sentence."}]
WEATHER = {"type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]},
                                            "days": {"type": "integer", "minimum": 1, "maximum": 9}},
           "required": ["city", "days"], "additionalProperties": False}
# SmolLM2's own template knows no tools; this is the one of its relatives that do.
TOOLS_TEMPLATE = """{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n\\nYou may call one or more functions to assist with the user query.\\n\\nYou are provided with function signatures within <tools></tools> XML tags:\\n<tools>' }}{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}{{- '\\n</tools>\\n\\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\\n<tool_call>\\n{"name": <function-name>, "arguments": <args-json-object>}\\n</tool_call><|im_end|>\\n' }}{%- endif %}{%- for message in messages %}{%- if message.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}{%- elif message.tool_calls %}{{- '<|im_start|>assistant\\n' }}{%- for tool_call in message.tool_calls %}{{- '<tool_call>\\n{"name": "' + tool_call.function.name + '", "arguments": ' + (tool_call.function.arguments | tojson) + '}\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- else %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    template = tmp_path_factory.mktemp("template") / "tools.jinja"
    template.write_text(TOOLS_TEMPLATE)
    with Server(SMOLLM2, "-c", "8192", "-np", "2", "--temp", "0", "--alias", "smol", "--api-key", KEY,
                "--chat-template-file", template) as s:
        yield s


@pytest.fixture()
def openai(server):
    module = need("openai")
    return module.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0)


TOOL = {"type": "function", "function": {"name": "weather", "description": "The weather to come", "parameters": WEATHER}}


# ---- openai ----
def test_openai(openai):
    a = openai.chat.completions.create(model="smol", messages=ASK, max_tokens=32)
    assert "Paris" in a.choices[0].message.content and a.usage.completion_tokens > 0
    assert [m.id for m in openai.models.list()] == ["smol"]
    a = openai.completions.create(model="smol", prompt="The capital of France is", max_tokens=8)
    assert "Paris" in a.choices[0].text


def test_openai_streaming(openai):
    text, usage = "", None
    for c in openai.chat.completions.create(model="smol", messages=ASK, max_tokens=32, stream=True,
                                            stream_options={"include_usage": True}):
        text += (c.choices[0].delta.content or "") if c.choices else ""
        usage = c.usage or usage
    assert "Paris" in text and usage.total_tokens > 0


def test_openai_async(server):
    module = need("openai")

    async def ask(client):
        a = await client.chat.completions.create(model="smol", messages=ASK, max_tokens=32)
        return a.choices[0].message.content

    async def all():
        async with module.AsyncOpenAI(base_url=server.url + "/v1", api_key=KEY) as client:
            return await asyncio.gather(*[ask(client) for _ in range(4)])

    answers = asyncio.run(all())
    assert len(set(answers)) == 1 and "Paris" in answers[0]


def test_openai_errors(server, openai):
    module = sys.modules["openai"]
    with pytest.raises(module.AuthenticationError):
        openai.with_options(api_key="wrong").models.list()
    with pytest.raises(module.BadRequestError) as e:
        openai.chat.completions.create(model="smol", messages=ASK, extra_body={"top_k": "many"})
    assert "top_k" in str(e.value)


def test_openai_tools(openai):
    a = openai.chat.completions.create(model="smol", messages=ASK, tools=[TOOL], tool_choice="required", max_tokens=128)
    call = a.choices[0].message.tool_calls[0]
    assert a.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "weather" and call.id
    arguments = json.loads(call.function.arguments)
    assert arguments["city"] in ("Paris", "Rome") and 1 <= arguments["days"] <= 9
    turns = [*ASK, a.choices[0].message, {"role": "tool", "tool_call_id": call.id, "content": "Sunny."}]
    b = openai.chat.completions.create(model="smol", messages=turns, tools=[TOOL], max_tokens=32)
    assert b.choices[0].message.content is not None or b.choices[0].message.tool_calls
    named = {"type": "function", "function": {"name": "weather"}}
    calls = {}
    for c in openai.chat.completions.create(model="smol", messages=ASK, tools=[TOOL], tool_choice=named, max_tokens=128,
                                            stream=True):
        for t in c.choices[0].delta.tool_calls or []:
            calls.setdefault(t.index, ["", ""])
            calls[t.index][0] += t.function.name or ""
            calls[t.index][1] += t.function.arguments or ""
    assert calls[0][0] == "weather" and json.loads(calls[0][1]) == arguments


def test_openai_structured_output(openai):
    pydantic = need("pydantic")

    class City(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        inhabitants: int
        sights: list[str] = pydantic.Field(max_length=2)

    a = openai.chat.completions.parse(model="smol", messages=ASK, response_format=City, max_tokens=256)
    assert isinstance(a.choices[0].message.parsed, City)
    b = openai.chat.completions.create(model="smol", messages=ASK, response_format={"type": "json_object"}, max_tokens=200)
    if b.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(b.choices[0].message.content), dict)


def test_openai_responses(openai):
    a = openai.responses.create(model="smol", input=ASK, max_output_tokens=32)
    assert "Paris" in a.output_text
    with openai.responses.stream(model="smol", input=ASK, max_output_tokens=32) as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
    assert text == a.output_text


# ---- anthropic ----
@pytest.fixture()
def anthropic(server):
    module = need("anthropic")
    return module.Anthropic(base_url=server.url, api_key=KEY, max_retries=0)


def test_anthropic(anthropic):
    a = anthropic.messages.create(model="smol", max_tokens=32, messages=ASK)
    assert "Paris" in a.content[0].text and a.stop_reason == "end_turn"
    with anthropic.messages.stream(model="smol", max_tokens=32, messages=ASK) as stream:
        assert "".join(stream.text_stream) == a.content[0].text
        assert stream.get_final_message().usage.output_tokens == a.usage.output_tokens
    assert anthropic.messages.count_tokens(model="smol", messages=ASK).input_tokens > 10


def test_anthropic_tools(anthropic):
    tool = {"name": "weather", "description": "The weather to come", "input_schema": WEATHER}
    a = anthropic.messages.create(model="smol", max_tokens=128, messages=ASK, tools=[tool], tool_choice={"type": "any"})
    block = [b for b in a.content if b.type == "tool_use"][0]
    assert a.stop_reason == "tool_use" and block.name == "weather" and block.input["city"] in ("Paris", "Rome")
    with anthropic.messages.stream(model="smol", max_tokens=128, messages=ASK, tools=[tool],
                                   tool_choice={"type": "tool", "name": "weather"}) as stream:
        last = stream.get_final_message()
    assert [b.input for b in last.content if b.type == "tool_use"] == [block.input]


# ---- others ----
def test_langchain(server):
    module = need("langchain_openai")
    model = module.ChatOpenAI(model="smol", base_url=server.url + "/v1", api_key=KEY, max_tokens=32)
    assert "Paris" in model.invoke(ASK).content
    assert "Paris" in "".join(c.content for c in model.stream(ASK))


def test_litellm(server, monkeypatch):
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it looks for a newer list of prices
    module = need("litellm")
    for name in ("openai/smol", "hosted_vllm/smol"):
        a = module.completion(model=name, api_base=server.url + "/v1", api_key=KEY, messages=ASK, max_tokens=32)
        assert "Paris" in a.choices[0].message.content
    text = "".join(c.choices[0].delta.content or "" for c in module.completion(
        model="openai/smol", api_base=server.url + "/v1", api_key=KEY, messages=ASK, max_tokens=32, stream=True))
    assert "Paris" in text
    a = module.completion(model="openai/smol", api_base=server.url + "/v1", api_key=KEY, messages=ASK, max_tokens=128,
                          tools=[TOOL], tool_choice="required")
    assert json.loads(a.choices[0].message.tool_calls[0].function.arguments)["city"] in ("Paris", "Rome")
    with pytest.raises(module.AuthenticationError):
        module.completion(model="openai/smol", api_base=server.url + "/v1", api_key="wrong", messages=ASK, num_retries=0)
    a = asyncio.run(module.acompletion(model="anthropic/smol", api_base=server.url, api_key=KEY, messages=ASK, max_tokens=32))
    assert "Paris" in a.choices[0].message.content


def test_llm(server, tmp_path):
    need("llm")
    (tmp_path / "extra-openai-models.yaml").write_text(
        f"- model_id: smol\n  model_name: smol\n  api_base: {server.url}/v1\n  api_key_name: grappa\n")
    env = {**os.environ, "LLM_USER_PATH": str(tmp_path)}
    for more in ([], ["--no-stream"]):
        done = subprocess.run([sys.executable, "-m", "llm", "-m", "smol", "--key", KEY, "-o", "max_tokens", "32", *more,
                               ASK[0]["content"]], env=env, capture_output=True, text=True, timeout=120)
        assert "Paris" in done.stdout, done.stderr


def test_curl(server):
    if not shutil.which("curl"):
        (pytest.fail if os.environ.get("CI") else pytest.skip)("curl is not there")
    def curl(path, body):
        return subprocess.run(["curl", "-sS", "-N", "--fail-with-body", "-H", f"Authorization: Bearer {KEY}",
                               server.url + path, "-d", json.dumps(body)], capture_output=True, text=True, timeout=60)

    done = curl("/v1/chat/completions", {"messages": ASK, "max_tokens": 32})
    assert "Paris" in json.loads(done.stdout)["choices"][0]["message"]["content"]
    done = curl("/v1/chat/completions", {"messages": ASK, "max_tokens": 8, "stream": True})
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[-2] == "data: [DONE]" and all(x == "" or x.startswith("data: ") for x in lines)
    assert curl("/v1/chat/completions", {"messages": 1}).returncode != 0
