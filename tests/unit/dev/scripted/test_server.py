"""The scripted model: what it answers, on each of its three wires."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aiohttp import ClientSession

from shim.dev.scripted import gemini
from shim.dev.scripted.answers import ScriptedRequest, answer, directory_of
from shim.dev.scripted.server import ScriptedModel, serve
from shim.dev.scripted.tools import CLAUDE, CODEX, OPENCODE, PI, dialect

NAMES = {
    "claude": ("Read", "Edit", "Bash", "mcp__files__echo"),
    "opencode": ("read", "edit", "bash", "todowrite", "files_echo"),
    "codex": ("exec_command", "apply_patch", "update_plan"),
    "pi": ("read", "edit", "bash", "write"),
}


def scripted_request(*history: tuple[str, str], tools: tuple[str, ...] = NAMES["claude"], **body: Any) -> ScriptedRequest:
    return ScriptedRequest(history, tools, "", {"note": "Working directory: /p", **body})


def test_an_agent_is_known_by_its_tools() -> None:
    assert [dialect(NAMES[name]) for name in NAMES] == [CLAUDE, OPENCODE, CODEX, PI]


def test_the_number_of_results_since_the_last_tag_is_the_step() -> None:
    history = (("user", "[scene:read_edit] please"),)
    assert [c.name for c in answer(scripted_request(*history), {}).calls] == ["Read"]
    assert [c.name for c in answer(scripted_request(*history, ("tool", "")), {}).calls] == ["Edit"]
    assert answer(scripted_request(*history, ("tool", ""), ("tool", "")), {}).text == "Done!"
    again = (*history, ("tool", ""), ("tool", ""), ("user", "[scene:bash:ls] now"))
    assert [c.arguments["command"] for c in answer(scripted_request(*again), {}).calls] == ["ls"]


@pytest.mark.parametrize(
    ("agent", "name"), [("claude", "mcp__files__echo"), ("opencode", "files_echo"), ("codex", None), ("pi", None)]
)
def test_a_tool_of_an_mcp_server_is_called_where_it_is_offered(agent: str, name: str | None) -> None:
    said = answer(scripted_request(("user", "[scene:mcp:echo] x"), tools=NAMES[agent]), {})
    assert [(c.name, c.arguments) for c in said.calls] == ([(name, {"text": "hello"})] if name else [])


def test_a_request_that_wants_json_gets_the_simplest_value_of_its_schema() -> None:
    """Gemini CLI's model `auto` asks so which model is to answer; an answer that does not fit is asked for again for 89 s."""
    properties = {"reasoning": {"type": "STRING"}, "score": {"type": "INTEGER"}, "model": {"enum": ["flash", "pro"]}}
    schema = {"type": "OBJECT", "properties": properties, "required": list(properties)}
    settings = {"responseMimeType": "application/json", "responseJsonSchema": schema}
    said = gemini.in_schema({"generationConfig": settings})
    assert said is not None
    assert json.loads(said.text) == {"reasoning": "a reasoning", "score": 1, "model": "flash"}
    assert gemini.in_schema({"generationConfig": {"temperature": 1}}) is None


def test_a_tool_is_called_by_its_name_with_nested_arguments() -> None:
    wanted = {"questions": [{"a": ["x]", {"b": "[scene:text]"}]}]}
    said = answer(scripted_request(("user", f"note\n[scene:tool:AnyTool:{json.dumps(wanted)}] please")), {})
    assert [(c.name, c.arguments) for c in said.calls] == [("AnyTool", wanted)]
    done = answer(scripted_request(("user", f"[scene:tool:AnyTool:{json.dumps(wanted)}] please"), ("tool", "")), {})
    assert done.text == "Done!"


def test_a_list_of_arguments_is_one_call_in_each_step() -> None:
    prompt = ("user", '[scene:tool:Read:[{"file_path":"/a"},{"file_path":"/b"}]] x')
    assert [c.arguments for c in answer(scripted_request(prompt), {}).calls] == [{"file_path": "/a"}]
    assert [c.arguments for c in answer(scripted_request(prompt, ("tool", "")), {}).calls] == [{"file_path": "/b"}]


def test_a_tool_that_takes_text_is_called_with_a_json_string() -> None:
    (call,) = answer(scripted_request(("user", '[scene:tool:apply_patch:"*** Begin [x]"] x'), tools=NAMES["codex"]), {}).calls
    assert (call.name, call.free) == ("apply_patch", "*** Begin [x]")


def test_a_subagent_calls_a_tool_by_its_name() -> None:
    (call,) = answer(
        scripted_request(("user", '[scene:task:tool:Write:{"file_path":"/p/[x]"}] x'), tools=(*NAMES["claude"], "Agent")), {}
    ).calls
    (inner,) = answer(scripted_request(("user", str(call.arguments["prompt"]))), {}).calls
    assert (inner.name, inner.arguments) == ("Write", {"file_path": "/p/[x]"})


def test_an_overloaded_prompt_is_answered_the_third_time() -> None:
    attempts: dict[str, int] = {}
    one, other = scripted_request(("user", "[scene:overload] one")), scripted_request(("user", "[scene:overload] other"))
    assert [answer(one, attempts).status for _ in range(3)] == [529, 529, 200]
    assert answer(other, attempts).status == 529


def test_the_scripted_model_sees_images_and_words() -> None:
    image = {"type": "image", "source": {}}
    history = ("user", "[scene:see:magenta] look")
    assert answer(scripted_request(history, parts=[image, {"text": "[scene:see:magenta] look"}]), {}).text == "I see 1 image(s)."
    assert answer(scripted_request(history, parts=["a magenta file"]), {}).text == "I see 0 image(s), and the word magenta."


async def ask(path: str, body: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Status, and the stream's events (or the one answer)."""
    async with (
        serve(ScriptedModel()) as port,
        ClientSession() as http,
        http.post(f"http://127.0.0.1:{port}{path}", json=body) as response,
    ):
        said = await response.text()
    lines = [line.removeprefix("data: ") for line in said.split("\n") if line.startswith("data: {")]
    return response.status, [json.loads(line) for line in lines or [said]]


PROMPT = "[scene:reason] think"


async def test_anthropic_messages() -> None:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": PROMPT}]}
    _, events = await ask("/v1/messages", body)
    assert events[0]["message"]["model"] == "m"
    deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
    assert "".join(d.get("text", "") for d in deltas) == "After thinking: 42."
    assert "".join(d.get("thinking", "") for d in deltas) == "Let me think about this carefully."
    _, [whole] = await ask("/v1/messages", {**body, "stream": False})
    assert [block["type"] for block in whole["content"]] == ["thinking", "text"]


async def test_chat_completions() -> None:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": PROMPT}]}
    _, events = await ask("/v1/chat/completions", body)
    deltas = [e["choices"][0]["delta"] for e in events if e["choices"]]
    assert "".join(d.get("content", "") for d in deltas) == "After thinking: 42."
    assert events[-1]["usage"]["total_tokens"] == 140
    _, [whole] = await ask("/v1/chat/completions", {**body, "stream": False})
    assert whole["choices"][0]["message"]["content"] == "After thinking: 42."


async def test_responses() -> None:
    tools = [{"type": "custom", "name": "apply_patch"}, {"type": "function", "name": "exec_command"}]
    servers = [{"type": "namespace", "name": "mcp__files__", "tools": [{"type": "function", "name": "echo"}]}]
    body = {"model": "m", "stream": True, "input": [{"type": "message", "role": "user", "content": "[scene:write] x"}]}
    _, events = await ask("/responses", {**body, "tools": tools})
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    call = events[-1]["response"]["output"][-1]
    assert (call["type"], call["input"].splitlines()[1]) == ("custom_tool_call", "*** Add File: ./new.txt")
    _, events = await ask("/v1/responses", {**body, "input": "[scene:mcp:echo] x", "tools": [*tools, *servers]})
    call = events[-1]["response"]["output"][-1]
    assert (call["name"], call["namespace"]) == ("echo", "mcp__files__")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses"])
async def test_failures_and_cuts(path: str) -> None:
    def body(tag: str) -> dict[str, Any]:
        return {"stream": True, "messages": [{"role": "user", "content": tag}], "input": tag}

    assert (await ask(path, body("[scene:error:401] x")))[0] == 401
    assert (await ask(path, body("[scene:overload] x")))[0] in (529, 503)
    cut = json.dumps((await ask(path, body("[scene:length] x")))[1])
    assert any(reason in cut for reason in ("max_tokens", '"length"', "max_output_tokens"))


@pytest.mark.parametrize(
    "words",
    [
        "Working directory: /p/q",
        "4. Working Directory: /p/q\n",
        "I'm currently working in the directory: /p/q",
        "<cwd>/p/q</cwd>",
    ],
)
def test_the_directory_is_read_from_the_agents_requests(words: str) -> None:
    assert directory_of({"messages": [{"role": "system", "content": words}]}) == "/p/q"
