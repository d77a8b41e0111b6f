"""The other real agents over HTTP and SSE, against the scripted model: Codex, OpenCode, Pi, and two that speak ACP.

The scenes of an agent are turns of one session, until one of them fails. After each: exactly one idle, and nothing of the
session after it; nothing open; HTTP tells what the stream told; nothing that the agent said went unparsed.
What an agent does not have is in `LACKS` with the reason, and that it is so is seen in its requests to the model or in the turn.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from tests.coverage.cells import COLUMNS

from .support.bench import Bench, Watch, nightly
from .support.children import processes_with, wait_for
from .support.places import ADOPTED
from .support.wire import TURN_S, Json, Stream, texts, tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2 * TURN_S)]
NAMES = (ADOPTED[0],) if ADOPTED[0] else ("codex", "opencode", "pi", "claude-agent-acp", "opencode-acp")
every_agent = pytest.mark.parametrize("server", NAMES, indirect=True)


def by_day(*names: str) -> pytest.MarkDecorator:
    """The agents that show a rule in `make e2e`; all others show it in the night.

    What an agent says in a scene is recorded, and its codec is tested with it. Here is looked at whether the program that is
    installed still does so: a turn, its questions, a rule that denies and each way to an end, each with one agent or two.
    """
    return pytest.mark.parametrize(
        "server", [name if name in names or ADOPTED[0] else nightly(name)[0] for name in NAMES], indirect=True
    )


by_night = by_day()

TODO_TOOLS = {"TodoWrite", "TaskCreate", "todowrite", "update_plan", "todo"}
QUESTION_TOOLS = {"AskUserQuestion", "question", "request_user_input"}
LACKS: dict[tuple[str, str], str] = {
    ("claude", "state of a new todo"): "its task tools make pending tasks; the list of two states is that of TodoWrite",
    ("codex", "failed read"): "Codex has no tool to read with: a command that fails tells its exit code, which is no failed tool",
    ("codex", "retry"): "Codex tells a retry only when a stream breaks; a refused request is tried again in silence",
    ("pi", "todo"): "Pi has no todo tool",
    ("claude-agent-acp", "todo"): "the adapter offers its model no todo tool",
    ("claude-agent-acp", "retry"): "the adapter says nothing of retries",
    ("codex-acp", "failed read"): "as Codex",
    ("codex-acp", "question card"): "the adapter asks by a form that belongs to no call of a tool",
    (
        "codex-acp",
        "end of an aborted command",
    ): "Codex lets it run on, and the adapter has no call that ends it",
    ("codex-acp", "todo card"): "the adapter tells a plan, and no call of a tool",
    ("codex-acp", "retry"): "the adapter says nothing of retries",
    ("qwen", "error of a kill"): "what was killed is its launcher; its worker may still answer when it is told to end",
    ("gemini", "tasks of its list"): "its list of tasks is a call of kind `other`, which does not tell them",
    ("gemini", "arguments of a command"): "it tells a title and no arguments, so a person is asked about each command",
    ("gemini", "bare thoughts"): "it makes a headline of the first line",
    ("opencode-acp", "question"): "`opencode acp` offers its model no question tool",
    ("kilo-serve", "failure of a dismissed question"): "Kilo completes the call, with words for its model",
    ("opencode-acp", "retry"): "`opencode acp` says nothing of retries",
}
"""(agent, thing) -> why it is not there. What its card and its column in docs/coverage.md say is not said here again."""
TOLD = {"todo": "todos", "question": "questions", "retry": "retries", "output of a read": "tool_results"}
TOLD |= {"words of an error": "errors"}
"""Thing -> the feature of the coverage table."""

RETRY_WORDS = {"claude": "overloaded", "vibe": "HTTP 503", "copilot": "a transient API error"}
"""What an agent tells of a retry instead of the provider's words."""
REPLIES = [("once", None), ("reject", None), ("reject", "use another name")]


@dataclass
class Talk:
    """The session in which the scenes of an agent are played; a new one when the last scene has left it unfit."""

    server: Bench
    watch: Watch | None = None

    def session(self) -> Watch:
        if self.watch is None:
            self.watch = Watch.on(self.server.api, Stream(self.server.api))
        return self.watch

    def drop(self) -> None:
        if self.watch is not None:
            self.watch.stream.close()
            self.watch = None


@pytest.fixture(scope="module")
def talk(server: Bench) -> Iterator[Talk]:
    made = Talk(server)
    yield made
    made.drop()


@pytest.fixture
def watch(server: Bench, talk: Talk) -> Iterator[Watch]:
    """The agent's session, on the project as it was at the start."""
    server.place.reset()
    current = talk.session()
    at = current.stream.mark()
    yield current
    if server.unparsed_messages() or not current.at_rest(at):
        talk.drop()
    assert server.unparsed_messages() == []


def reason(server: Bench, thing: str) -> str:
    """Why it is not there, or "". The column of an agent with recordings says it too."""
    column, feature = COLUMNS.get(server.agent), TOLD.get(thing)
    cell = column.cell(feature) if column is not None and feature is not None else None
    return LACKS.get((server.agent, thing)) or (cell.why if cell is not None else "")


def lacks(server: Bench, thing: str) -> bool:
    return bool(reason(server, thing))


def skip_without(server: Bench, thing: str) -> None:
    if why := reason(server, thing):
        pytest.skip(why)


def let_run(server: Bench, watch: Watch, at: int) -> None:
    """Until a command runs: some agents tell too little of it for a rule that allows it."""
    watch.wait_tool("running", at)
    if lacks(server, "arguments of a command"):
        server.api.post(f"/permission/{watch.wait('permission.asked', at)['id']}/reply", {"reply": "once"})


def tool_names(server: Bench) -> set[str]:
    """The tools that the agent offered to the model in its last request."""
    names: set[str] = set()
    for tool in _last_request(server).get("tools", []):
        names.update(row["name"] for row in tool.get("functionDeclarations", []))
        names.add(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type"))
    return names


def _last_request(server: Bench) -> Json:
    bodies: list[Json] = [r["body"] for r in server.model.requests() if r["kind"] in ("anthropic", "chat", "gemini", "responses")]
    return [body for body in bodies if body.get("tools")][-1]


def errors(messages: list[Json]) -> list[str]:
    return [message["info"]["error"]["name"] for message in messages if "error" in message["info"]]


def _tick_processes(server: Bench) -> list[str]:
    return [line for line in processes_with(str(server.place.root)).values() if "echo tick" in line]


@by_night
def test_text_grows(watch: Watch) -> None:
    at = watch.prompt("[scene:text] say hello")
    assert texts(watch.wait_for_answer(at)) == ["You said: say hello"]
    deltas = [event["properties"]["delta"] for event in watch.events(at) if event["type"] == "message.part.delta"]
    assert "".join(deltas) == "You said: say hello"
    assert len(deltas) > 1


@by_day("codex", "claude-agent-acp")
def test_an_edit_changes_the_file_and_shows_the_diff(server: Bench, watch: Watch) -> None:
    at = watch.prompt("[scene:read_edit] edit")
    messages = watch.wait_for_answer(at)
    assert (server.place.project / "README.md").read_text() == "Hello\nAdded line\n"
    read, edit = tools(messages)
    assert read["state"]["status"] == edit["state"]["status"] == "completed"
    assert lacks(server, "output of a read") or "Hello" in read["state"]["output"]
    assert edit["tool"] in ("edit", "apply_patch"), "one of the cards that show a diff"
    assert "\n Hello\n+Added line\n" in edit["state"]["metadata"]["diff"]
    last = [event for event in watch.events(at) if event["type"] == "session.diff"][-1]["properties"]["diff"]
    assert ("README.md", 1, 0) in [(entry["file"], entry["additions"], entry["deletions"]) for entry in last]
    assert server.api.get(f"/session/{watch.session}/diff") == last


@by_day("codex", "opencode", "pi", "claude-agent-acp")
@pytest.mark.parametrize(
    ("reply", "message"),
    [("once", None), *(pytest.param("reject", why, marks=pytest.mark.nightly) for why in (None, "use another name"))],
)
def test_a_permission(server: Bench, watch: Watch, reply: str, message: str | None) -> None:
    name = f"made-{reply}-{'told' if message else 'silent'}.txt"
    at = watch.prompt(f"[scene:ask_bash:touch {name}] make")
    asked = watch.wait("permission.asked", at)
    assert (asked["permission"], asked["patterns"]) == ("bash", [f"touch {name}"])
    assert asked["always"] == ([] if lacks(server, "arguments of a command") else ["touch *"])
    assert [ask["id"] for ask in server.api.get("/permission")] == [asked["id"]]
    before = server.model.steps()
    server.api.post(f"/permission/{asked['id']}/reply", {"reply": reply, **({"message": message} if message else {})})
    messages = watch.wait_for_answer(at)
    (call,) = tools(messages)
    if reply == "reject" and message is None:
        late = server.agent == "claude-agent-acp"  # it may have begun a request when it reads that it is cancelled
        assert server.model.steps() - before <= late, "it ends the turn: the model is asked nothing more"
    assert not any(message["info"].get("error") for message in messages)
    assert call["state"]["input"]["command"] == f"touch {name}"
    assert (server.place.project / name).exists() == (reply != "reject")
    if reply == "reject":
        assert call["state"]["status"] == "error"
        assert "rejected permission" in call["state"]["error"], "the TUI strikes the card through by these words"
        assert (message or "") in call["state"]["error"]
    else:
        assert call["state"]["status"] == "completed"


@by_day("codex")
def test_a_permission_for_good(server: Bench, watch: Watch) -> None:
    """With a command of which no other scene asks, since "always" holds for the project. It is this server that keeps it."""
    skip_without(server, "arguments of a command")
    at = watch.prompt("[scene:ask_bash:git push -q . HEAD:refs/heads/one] push")
    asked = watch.wait("permission.asked", at)
    assert asked["always"] == ["git push *"]
    server.api.post(f"/permission/{asked['id']}/reply", {"reply": "always"})
    assert [call["state"]["status"] for call in tools(watch.wait_for_answer(at))] == ["completed"]
    at = watch.prompt("[scene:ask_bash:git push -q . HEAD:refs/heads/two] push")
    assert [call["state"]["status"] for call in tools(watch.wait_for_answer(at))] == ["completed"]
    assert "permission.asked" not in [event["type"] for event in watch.events(at)]
    assert {"one", "two"} <= {path.name for path in (server.place.project / ".git" / "refs" / "heads").iterdir()}


@by_day("codex", "pi", "claude-agent-acp")
def test_a_rule_that_denies_holds(server: Bench) -> None:
    """The rule is of the session, and nobody is asked."""
    rules = [{"permission": "bash", "pattern": "touch forbidden*", "action": "deny"}]
    with closing(Stream(server.api)) as stream:
        watch = Watch.on(server.api, stream, permission=rules)
        at = watch.prompt("[scene:ask_bash:touch forbidden.txt] make")
        calls = tools(watch.wait_for_answer(at))
        assert [call["state"]["status"] for call in calls] == ["error"]
        assert "permission.asked" not in [event["type"] for event in watch.events(at)]
    assert not (server.place.project / "forbidden.txt").exists()


def script(code: str) -> str:
    """A prompt after which the model calls Pi's `codemode` with this script."""
    return f"[scene:tool:codemode:{json.dumps({'code': code})}] run"


@pytest.mark.skipif(ADOPTED[0] != "pi", reason="the pinned Pi (0.87.1) runs no scripts")
@every_agent
@pytest.mark.parametrize("reply", ["once", "reject"])
def test_a_call_in_a_script_is_asked(server: Bench, watch: Watch, reply: str) -> None:
    name = f"nested-{reply}.txt"
    at = watch.prompt(script(f"return await tools.bash({{command: 'touch {name}'}})"))
    while (asked := watch.wait("permission.asked", at))["permission"] != "bash":
        at = watch.stream.mark()
        server.api.post(f"/permission/{asked['id']}/reply", {"reply": "once"})
    assert asked["patterns"] == [f"touch {name}"]
    server.api.post(f"/permission/{asked['id']}/reply", {"reply": reply})
    watch.wait_for_answer(at)
    assert (server.place.project / name).exists() == (reply == "once")


@pytest.mark.skipif(ADOPTED[0] != "pi", reason="the pinned Pi (0.87.1) runs no scripts")
@every_agent
@pytest.mark.parametrize("denied", ["bash", "scripted_echo"])
def test_a_rule_that_denies_holds_in_a_script(server: Bench, denied: str) -> None:
    rules = [
        {"permission": "*", "pattern": "*", "action": "allow"},
        {"permission": denied, "pattern": "*", "action": "deny"},
    ]
    code = (
        "const [shell, mcp] = await Promise.allSettled([tools.bash({command: 'cp notes.txt forbidden.txt'}), "
        "tools.mcp__scripted__echo({text: 'hello'})]); return shell.status + ' ' + mcp.status"
    )
    with closing(Stream(server.api)) as stream:
        watch = Watch.on(server.api, stream, permission=rules)
        at = watch.prompt(script(code))
        messages = watch.wait_for_answer(at)
        assert "permission.asked" not in [event["type"] for event in watch.events(at)], (
            "nor is `cp` one that the person asks about"
        )
        outputs = " ".join(call["state"].get("output", "") for call in tools(messages))
        assert ("rejected fulfilled" if denied == "bash" else "fulfilled rejected") in outputs
    assert (server.place.project / "forbidden.txt").exists() == (denied != "bash")


@by_day("codex", "pi")
@pytest.mark.parametrize("answered", [True, *nightly(False)])
def test_a_question(server: Bench, watch: Watch, answered: bool) -> None:
    at = watch.prompt("[scene:question] ask")
    if lacks(server, "question"):
        watch.wait_for_end(at)
        assert not tool_names(server) & QUESTION_TOOLS
        assert "question.asked" not in [event["type"] for event in watch.events(at)]
        return
    asked = watch.wait("question.asked", at)
    (question,) = asked["questions"]
    labels = [option["label"] for option in question["options"]]
    assert (question["question"], labels[:2]) == ("Which colour?", ["Red", "Blue"]), "codex-acp adds one of its own"
    if answered:
        server.api.post(f"/question/{asked['id']}/reply", {"answers": [["Red"]]})
    else:
        server.api.post(f"/question/{asked['id']}/reject")
    calls = tools(watch.wait_for_answer(at))
    if lacks(server, "question card"):
        assert calls == []
        return
    (call,) = calls
    assert call["tool"] == "question"
    if answered:
        assert call["state"]["metadata"]["answers"] == [["Red"]]
    elif lacks(server, "failure of a dismissed question"):
        assert call["state"]["status"] == "completed"
    else:
        assert call["state"]["status"] == "error"
        assert "user dismissed" in call["state"]["error"], "the TUI strikes the card through by these words"


@by_night
def test_reasoning(server: Bench, watch: Watch) -> None:
    at = watch.prompt("[scene:reason] think")
    (message,) = watch.wait_for_answer(at)
    assert [part["type"] for part in message["parts"]] == ["step-start", "reasoning", "text", "step-finish"]
    thought = message["parts"][1]["text"].strip()
    headline = "**Thinking**\n" if lacks(server, "bare thoughts") else ""
    assert thought == f"{headline}Let me think about this carefully."


@by_night
def test_todos(server: Bench, watch: Watch) -> None:
    skip_without(server, "tasks of its list")
    at = watch.prompt("[scene:todo] plan")
    messages = watch.wait_for_answer(at)
    if lacks(server, "todo"):
        assert not tool_names(server) & TODO_TOOLS
        assert "todo.updated" not in [event["type"] for event in watch.events(at)]
        return
    todos = server.api.get(f"/session/{watch.session}/todo")
    states = ("pending", "pending") if lacks(server, "state of a new todo") else ("completed", "in_progress")
    assert [(entry["content"], entry["status"]) for entry in todos] == [*zip(("first", "second"), states, strict=True)]
    assert {call["tool"] for call in tools(messages)} == (set() if lacks(server, "todo card") else {"todowrite"})
    last = [event for event in watch.events(at) if event["type"] == "todo.updated"][-1]
    assert last["properties"]["todos"] == todos


@by_night
def test_a_failed_tool_does_not_end_the_turn(server: Bench, watch: Watch) -> None:
    messages = watch.wait_for_answer(watch.prompt("[scene:fail_tool] read"))
    (call,) = tools(messages)
    if lacks(server, "failed read"):
        assert call["tool"] in ("bash", "read"), "the adapter tells a command that reads as a read"
        assert call["state"]["metadata"].get("exit", 1) == 1
        assert "No such file" in call["state"].get("output", call["state"].get("error"))
    else:
        assert (call["tool"], call["state"]["status"]) == ("read", "error")
        assert any(word in call["state"]["error"] for word in ("missing.txt", "does not exist", "not found"))
    assert texts(messages)[-1] == "Done!"
    assert errors(messages) == []


@by_day("codex")
def test_an_error_of_the_model(server: Bench, watch: Watch) -> None:
    at = watch.prompt("[scene:error] fail")
    messages = watch.wait_for_answer(at)
    assert len(errors(messages)) == 1
    words = messages[-1]["info"]["error"]["data"]["message"]
    assert words if lacks(server, "words of an error") else "scripted failure" in words
    assert len([event for event in watch.events(at) if event["type"] == "session.error"]) == 1
    again = watch.prompt("[scene:text] and now")
    assert texts(watch.wait_for_answer(again)) == ["You said: and now"], "the session goes on"


@by_night
def test_an_overloaded_model_is_asked_again(server: Bench, watch: Watch) -> None:
    before = len(server.model.requests())
    at = watch.prompt("[scene:overload] again please")
    assert texts(watch.wait_for_answer(at)) == ["Back again."]
    tries = [r for r in server.model.requests()[before:] if "scene:overload" in json.dumps(r)]
    assert len(tries) >= 3
    told = [e["properties"]["status"] for e in watch.events(at) if e["type"] == "session.status"]
    retries = [status for status in told if status["type"] == "retry"]
    if lacks(server, "retry"):
        assert retries == []
        return
    assert [status["attempt"] for status in retries] == [1, 2]
    words = RETRY_WORDS.get(server.agent, "scripted failure")
    assert all(words in status["message"] for status in retries), retries


@by_day("pi")
def test_abort_while_text_streams(server: Bench, watch: Watch) -> None:
    at = watch.prompt("[scene:drip:300] talk")
    watch.wait_text("word5", at)
    assert server.api.post(f"/session/{watch.session}/abort") is True
    messages = watch.wait_for_answer(at)
    assert errors(messages) == ["MessageAbortedError"]
    assert "word5" in texts(messages)[0], "what was said stays"
    again = watch.prompt("[scene:text] again")
    assert texts(watch.wait_for_answer(again)) == ["You said: again"]


@by_day("codex", "claude-agent-acp")
def test_abort_while_a_tool_runs(server: Bench, watch: Watch) -> None:
    at = watch.prompt("[scene:slow_bash:60] run")
    let_run(server, watch, at)
    wait_for(lambda: _tick_processes(server), 10, "the tool's shell does not start")
    assert server.api.post(f"/session/{watch.session}/abort") is True
    messages = watch.wait_for_answer(at)
    assert errors(messages) == ["MessageAbortedError"]
    assert len(tools(messages)) == 1
    if not lacks(server, "end of an aborted command"):
        wait_for(lambda: not _tick_processes(server), 5, "the tool's shell still runs")


@by_day("codex", "pi")
def test_abort_while_a_permission_is_open(server: Bench, watch: Watch) -> None:
    at = watch.prompt("[scene:ask_bash:touch never.txt] make")
    asked = watch.wait("permission.asked", at)
    assert server.api.post(f"/session/{watch.session}/abort") is True
    messages = watch.wait_for_answer(at)
    assert errors(messages) == ["MessageAbortedError"]
    answered = watch.wait("permission.replied", at)
    assert (answered["requestID"], answered["reply"]) == (asked["id"], "reject")
    assert not (server.place.project / "never.txt").exists()


@by_day("claude-agent-acp")
def test_abort_right_after_the_204(server: Bench, watch: Watch) -> None:
    at = watch.prompt("[scene:hang] think")
    assert server.api.post(f"/session/{watch.session}/abort") is True
    assert errors(watch.wait_for_answer(at)) in (["MessageAbortedError"], [])
    again = watch.prompt("[scene:text] after that")
    assert texts(watch.wait_for_answer(again)) == ["You said: after that"], "the aborted prompt does not come back"


@by_night
def test_three_turns(server: Bench, watch: Watch) -> None:
    for word in ("amber", "birch", "cedar"):
        assert texts(watch.wait_for_answer(watch.prompt(f"[scene:text] {word}"))) == [f"You said: {word}"]
    said = json.dumps(_last_request(server))
    assert said.index("amber") < said.index("birch") < said.index("cedar"), "the agent tells its model what was said before"


@by_day("codex", "pi", "claude-agent-acp")
def test_the_agent_is_killed(server: Bench, watch: Watch) -> None:
    watch.wait_for_answer(watch.prompt("[scene:text] walnut"))
    at = watch.prompt("[scene:slow_bash:60] run")
    let_run(server, watch, at)
    for pid in server.agents():
        os.kill(pid, signal.SIGKILL)
    seen = errors(watch.wait_for_answer(at))
    assert len(seen) == 1 or (lacks(server, "error of a kill") and seen == [])
    wait_for(lambda: not _tick_processes(server), 5, "the tool's shell outlives its agent")
    again = watch.prompt("[scene:text] once more")
    assert texts(watch.wait_for_answer(again)) == ["You said: once more"]
    assert "walnut" in json.dumps(_last_request(server)), "the next prompt resumes the conversation"


@by_day("codex")
def test_the_server_is_killed_and_started_again(server: Bench, talk: Talk) -> None:
    before = talk.session()
    before.wait_for_answer(before.prompt("[scene:text] maple"))
    server.restart(kill=True)
    after = Watch(server.api, Stream(server.api), before.session)
    try:
        at = after.prompt("[scene:text] and on")
        after.stream.idle(after.session, since=at)
        after.stream.quiet()
        kinds = [event["type"] for event in after.events(at)]
        assert (kinds.count("session.idle"), kinds[-1]) == (1, "session.idle")
        assert texts(server.api.messages(after.session))[-2:] == ["You said: maple", "You said: and on"]
        assert "maple" in json.dumps(_last_request(server)), "the agent resumes its conversation"
        assert server.unparsed_messages() == []
    finally:
        after.stream.close()
        talk.drop()
