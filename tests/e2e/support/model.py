"""A scripted model on loopback, so that real agents run without a model: Anthropic Messages and OpenAI Chat Completions.

    python model.py PORT [REQUEST_LOG]        PORT 0 picks one; prints "listening on PORT"

The tag `[scene:NAME]` or `[scene:NAME:ARGUMENT]` in the last prompt chooses what it answers, and the number of tool results
that came after that prompt chooses the step. The tools' names and arguments are those which the agent offers in its request.

    text         one text answer
    long:N       N words, one delta each, without a pause
    drip:N       N words, ten a second: time enough to look, reload or abort while text streams
    read_edit    text + read, text + edit of README.md, final text
    write        text + a new file, final text
    bash:CMD     text + one shell command, final text
    slow_bash:N  a shell command that prints a line a second, N seconds
    parallel     two reads in one step, final text
    reason       reasoning, then text
    question     the agent's question tool, final text
    todo         the agent's todo tool, final text
    task:SCENE   a subagent whose prompt is that scene, final text
    plan         the agent's exit-plan tool, final text
    fail_tool    a read of a missing file, final text
    error:CODE   that HTTP status from the model (400)
    overload     529 or 503 twice, then text
    hang         some text, then silence, for aborts
    markdown     a heading, a list and a block of code

What OpenCode's and Claude's own small requests ask for (titles, summaries) gets a fixed answer, whatever the scene.
Everything else echoes the prompt.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

Body = dict[str, Any]
Call = tuple[str, Body]
TITLE = "A short title"
DELTA_S = 0.01
DRIP_S = 0.1
MARKDOWN = """# A heading

Some **bold** text and `code`:

- first
- second

```python
def f(x):
    return x + 1
```

The end."""


@dataclass
class Answer:
    """What the model says in one request. `status` other than 200: an HTTP error instead. `hang`: silence after the text."""

    text: str = ""
    calls: list[Call] = field(default_factory=list)
    reasoning: str = ""
    status: int = 200
    hang: bool = False
    pause_s: float = DELTA_S


# --- what was asked ----------------------------------------------------------------------------------------------------


def text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(
        c if isinstance(c, str) else c.get("text", "") for c in content or [] if isinstance(c, str) or c.get("type") == "text"
    )


def anthropic_history(body: Body) -> Iterable[tuple[str, str]]:
    for message in body["messages"]:
        if message["role"] != "user":
            continue
        content = message["content"]
        if isinstance(content, list) and any(block.get("type") == "tool_result" for block in content):
            yield "tool", ""
        yield "user", text_of(content)


def chat_history(body: Body) -> Iterable[tuple[str, str]]:
    previous = ""
    for message in body["messages"]:
        role = message["role"]
        if role == "tool" and previous != "tool":
            yield "tool", ""
        if role == "user":
            yield "user", text_of(message["content"])
        previous = role


def chosen(history: Iterable[tuple[str, str]]) -> tuple[str, str, int, str]:
    """(scene, argument, step, prompt) of the last prompt with a tag; scene "" when there is none."""
    scene, argument, step, prompt = "", "", 0, ""
    for kind, text in history:
        tags = list(re.finditer(r"\[scene:([a-z_]+)(?::([^\]]*))?\]", text)) if kind == "user" else []
        if tags:
            # Agents put notes of their own around the prompt, on other lines.
            scene, argument, step, prompt = tags[-1][1], tags[-1][2] or "", 0, text[tags[-1].end() :].split("\n", 1)[0]
        elif kind == "tool":
            step += 1
    return scene, argument, step, prompt


def directory_of(body: Body) -> str:
    found = re.search(r"[Ww]orking directory:?\s*(/[^\s\\\"<]+)", json.dumps(body))
    return found.group(1) if found else "."


# --- the agents' own tools ---------------------------------------------------------------------------------------------


def _question(multiple: str) -> Body:
    options = [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cool"}]
    return {
        "questions": [
            {"question": "Which colour?", "header": "Colour", "options": options, **({multiple: False} if multiple else {})}
        ]
    }


TODOS = [("first", "completed"), ("second", "in_progress")]

CLAUDE_TOOLS: dict[str, Callable[..., list[Call]]] = {
    "read": lambda path: [("Read", {"file_path": path})],
    "edit": lambda path, old, new: [("Edit", {"file_path": path, "old_string": old, "new_string": new})],
    "write": lambda path, content: [("Write", {"file_path": path, "content": content})],
    "bash": lambda command: [("Bash", {"command": command, "description": "run a command"})],
    "question": lambda: [("AskUserQuestion", _question("multiSelect"))],
    "todo": lambda: [("TodoWrite", {"todos": [{"content": c, "status": s, "activeForm": f"doing {c}"} for c, s in TODOS]})],
    "task": lambda prompt: [("Agent", {"description": "look around", "prompt": prompt, "subagent_type": "general-purpose"})],
    "plan": lambda: [("ExitPlanMode", {"plan": "1. do it"})],
}
OPENCODE_TOOLS: dict[str, Callable[..., list[Call]]] = {
    "read": lambda path: [("read", {"filePath": path})],
    "edit": lambda path, old, new: [("edit", {"filePath": path, "oldString": old, "newString": new})],
    "write": lambda path, content: [("write", {"filePath": path, "content": content})],
    "bash": lambda command: [("bash", {"command": command, "description": "run a command"})],
    "question": lambda: [("question", _question(""))],
    "todo": lambda: [("todowrite", {"todos": [{"content": c, "status": s, "priority": "medium"} for c, s in TODOS]})],
    "task": lambda prompt: [("task", {"description": "look around", "prompt": prompt, "subagent_type": "general"})],
    "plan": lambda: [("plan_exit", {})],
}


def offered(calls: list[Call], names: list[str]) -> list[Call]:
    """Claude's subagent tool is offered as Task by old versions; its todo tool by some as TaskCreate."""
    out: list[Call] = []
    for name, arguments in calls:
        if name == "Agent" and name not in names and "Task" in names:
            name = "Task"
        if name == "TodoWrite" and name not in names and "TaskCreate" in names:
            out += [("TaskCreate", {"subject": c, "description": f"do {c}", "activeForm": f"doing {c}"}) for c, _ in TODOS]
            continue
        out.append((name, arguments))
    return out


# --- the scenes --------------------------------------------------------------------------------------------------------


def _steps(scene: str, argument: str, cwd: str) -> list[tuple[str, list[tuple[str, tuple[str, ...]]]]]:
    """The steps before the final text of a scene with tools: (text, [(tool, arguments)])."""
    readme, notes = f"{cwd}/README.md", f"{cwd}/notes.txt"
    ticks = f"for i in $(seq {argument or 4}); do echo tick $i; sleep 1; done"
    table: dict[str, list[tuple[str, list[tuple[str, tuple[str, ...]]]]]] = {
        "read_edit": [
            ("I'll read the file first.", [("read", (readme,))]),
            ("Now I'll add a line.", [("edit", (readme, "Hello", "Hello\nAdded line"))]),
        ],
        "write": [("A new file.", [("write", (f"{cwd}/new.txt", "alpha\nbeta\n"))])],
        "bash": [("Let me run that.", [("bash", (argument or "echo hi && ls",))])],
        "slow_bash": [("This takes a while.", [("bash", (ticks,))])],
        "parallel": [("Reading both.", [("read", (readme,)), ("read", (notes,))])],
        "question": [("I need to know.", [("question", ())])],
        "todo": [("Planning.", [("todo", ())])],
        "task": [("Delegating.", [("task", (f"[scene:{argument or 'text'}] say what you see",))])],
        "plan": [("Here is my plan.", [("plan", ())])],
        "fail_tool": [("Looking.", [("read", (f"{cwd}/missing.txt",))])],
    }
    return table.get(scene, [])


def answer(body: Body, history: Iterable[tuple[str, str]], names: list[str], system: str, attempts: dict[str, int]) -> Answer:
    """What the model says to this request. `attempts` counts the tries of each overloaded prompt."""
    scene, argument, step, prompt = chosen(history)
    if "title" in system.lower() and not names:
        return Answer(TITLE)
    if not scene:
        return Answer(TITLE)
    steps = _steps(scene, argument, directory_of(body))
    if steps:
        if step >= len(steps):
            return Answer("Done!")
        tools = CLAUDE_TOOLS if "Read" in names or "Bash" in names else OPENCODE_TOOLS
        text, wanted = steps[step]
        return Answer(text, offered([call for tool, arguments in wanted for call in tools[tool](*arguments)], names))
    if scene in ("long", "drip"):
        words = " ".join(f"word{n}" for n in range(int(argument or 50)))
        return Answer(words, pause_s=DRIP_S if scene == "drip" else 0)
    if scene == "reason":
        return Answer("After thinking: 42.", reasoning="Let me think about this carefully.")
    if scene == "markdown":
        return Answer(MARKDOWN)
    if scene == "error":
        return Answer(status=int(argument or 400))
    if scene == "overload":
        attempts[prompt] = attempts.get(prompt, 0) + 1
        return Answer("Back again.") if attempts[prompt] > 2 else Answer(status=529)
    if scene == "hang":
        return Answer("I will now think for a long time", hang=True)
    return Answer(f"You said: {prompt.strip()[:200] or 'hello'}")


# --- the two wires -----------------------------------------------------------------------------------------------------

Frame = tuple[str, Body]
"""(event name, data) of Anthropic's stream; Chat Completions has no event names."""


def words(text: str) -> list[str]:
    return re.findall(r"\S+\s*", text) or [text]


def slices(text: str, size: int = 20) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def anthropic_frames(said: Answer, model: str) -> list[Frame]:
    usage = {"input_tokens": 120, "output_tokens": 20, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
    head = {"id": f"msg_{uuid.uuid4().hex[:20]}", "type": "message", "role": "assistant", "model": model, "content": []}
    frames: list[Frame] = [("message_start", {"message": {**head, "stop_reason": None, "stop_sequence": None, "usage": usage}})]
    blocks: list[tuple[Body, list[Body]]] = []
    if said.reasoning:
        thoughts = [{"type": "thinking_delta", "thinking": word} for word in words(said.reasoning)]
        blocks.append(
            ({"type": "thinking", "thinking": "", "signature": ""}, [*thoughts, {"type": "signature_delta", "signature": "c2ln"}])
        )
    if said.text:
        blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in words(said.text)]))
    for name, arguments in said.calls:
        start = {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex[:20]}", "name": name, "input": {}}
        blocks.append((start, [{"type": "input_json_delta", "partial_json": piece} for piece in slices(json.dumps(arguments))]))
    for index, (start, deltas) in enumerate(blocks):
        frames.append(("content_block_start", {"index": index, "content_block": start}))
        frames += [("content_block_delta", {"index": index, "delta": delta}) for delta in deltas]
        if not said.hang:
            frames.append(("content_block_stop", {"index": index}))
    if not said.hang:
        stop = "tool_use" if said.calls else "end_turn"
        frames.append(("message_delta", {"delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 20}}))
        frames.append(("message_stop", {}))
    return [(name, {"type": name, **data}) for name, data in frames]


def anthropic_whole(frames: list[Frame]) -> Body:
    """The same message for a caller that does not stream (Claude's small requests)."""
    message = dict(frames[0][1]["message"])
    blocks: list[Body] = []
    for name, data in frames:
        if name == "content_block_start":
            blocks.append(dict(data["content_block"]))
        elif name == "content_block_delta":
            delta, block = data["delta"], blocks[-1]
            for key in ("text", "thinking", "signature"):
                if key in delta:
                    block[key] += delta[key]
            if "partial_json" in delta:
                block["input"] = (block["input"] or "") + delta["partial_json"]
        elif name == "message_delta":
            message.update(stop_reason=data["delta"]["stop_reason"])
    for block in blocks:
        if block["type"] == "tool_use":
            block["input"] = json.loads(block["input"] or "{}")
    return {**message, "content": blocks}


def chat_frames(said: Answer, model: str) -> list[Body]:
    head = {"id": f"chatcmpl-{uuid.uuid4().hex[:16]}", "object": "chat.completion.chunk", "created": 1767225600, "model": model}

    def chunk(delta: Body, finish: str | None = None) -> Body:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    frames = [chunk({"role": "assistant", "content": ""})]
    frames += [chunk({"reasoning_content": word}) for word in words(said.reasoning) if said.reasoning]
    frames += [chunk({"content": word}) for word in words(said.text) if said.text]
    for index, (name, arguments) in enumerate(said.calls):
        call = {
            "index": index,
            "id": f"call_{uuid.uuid4().hex[:16]}",
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        frames.append(chunk({"tool_calls": [call]}))
        frames += [chunk({"tool_calls": [{"index": index, "function": {"arguments": p}}]}) for p in slices(json.dumps(arguments))]
    if not said.hang:
        usage = {"prompt_tokens": 120, "completion_tokens": 20, "total_tokens": 140}
        frames += [chunk({}, "tool_calls" if said.calls else "stop"), {**head, "choices": [], "usage": usage}]
    return frames


def failure(status: int) -> web.Response:
    kind = "invalid_request_error" if status == 400 else "authentication_error" if status == 401 else "overloaded_error"
    return web.json_response({"type": "error", "error": {"type": kind, "message": "scripted failure"}}, status=status)


async def send(request: web.Request, frames: list[bytes], said: Answer) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    for frame in frames:
        await response.write(frame)
        await asyncio.sleep(said.pause_s)
    if said.hang:
        await asyncio.sleep(600)
    await response.write_eof()
    return response


class Model:
    """The server's state: the log of requests, and how often each overloaded prompt was tried."""

    def __init__(self, log: Path | None) -> None:
        self.log, self.attempts = log, dict[str, int]()

    def note(self, kind: str, body: Any) -> None:
        if self.log is not None:
            with self.log.open("a") as out:
                out.write(json.dumps({"kind": kind, "body": body}) + "\n")

    async def anthropic(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.note("anthropic", body)
        names = [tool.get("name", "") for tool in body.get("tools", [])]
        said = answer(body, anthropic_history(body), names, text_of(body.get("system")), self.attempts)
        if said.status != 200:
            return failure(said.status)
        frames = anthropic_frames(said, body.get("model", "claude"))
        if not body.get("stream"):
            return web.json_response(anthropic_whole(frames))
        return await send(request, [f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in frames], said)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.note("chat", body)
        names = [tool["function"]["name"] for tool in body.get("tools", [])]
        system = "\n".join(text_of(m.get("content")) for m in body["messages"] if m["role"] in ("system", "developer"))
        said = answer(body, chat_history(body), names, system, self.attempts)
        if said.status != 200:
            return failure(503 if said.status == 529 else said.status)
        frames = [f"data: {json.dumps(data)}\n\n".encode() for data in chat_frames(said, body.get("model", "m"))]
        return await send(request, frames if said.hang else [*frames, b"data: [DONE]\n\n"], said)

    async def models(self, _: web.Request) -> web.Response:
        return web.json_response(
            {"object": "list", "data": [{"id": "scripted", "type": "model", "object": "model"}], "has_more": False}
        )

    async def tokens(self, _: web.Request) -> web.Response:
        return web.json_response({"input_tokens": 100})

    async def other(self, request: web.Request) -> web.Response:
        self.note("other", {"method": request.method, "path": request.path_qs})
        return web.json_response({"error": {"type": "not_found_error", "message": request.path}}, status=404)

    def app(self) -> web.Application:
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_post("/v1/messages", self.anthropic)
        app.router.add_post("/v1/messages/count_tokens", self.tokens)
        app.router.add_post("/v1/chat/completions", self.chat)
        app.router.add_get("/v1/models", self.models)
        app.router.add_route("*", "/{tail:.*}", self.other)
        return app


async def serving(app: web.Application, port: int) -> AsyncIterator[int]:
    """Serves until closed; yields the port."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def main(port: int, log: Path | None) -> None:
    async for chosen_port in serving(Model(log).app(), port):
        sys.stdout.write(f"listening on {chosen_port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None))
