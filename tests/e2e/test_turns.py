"""How turns end, over HTTP and SSE, with the mock and with the real claude.

After each: exactly one idle, and nothing of the session after it; nothing open; HTTP tells what the stream told.
"""

from __future__ import annotations

import os
import signal
from contextlib import closing

import pytest

from .support.bench import CLAUDE, CLAUDE_OLD, MOCK, Bench, Watch, bench, nightly
from .support.children import wait_for
from .support.wire import Stream, texts, tools

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
both = pytest.mark.parametrize("server", [*nightly(MOCK), CLAUDE], indirect=True)
everywhere = pytest.mark.parametrize("server", [*nightly(MOCK), CLAUDE, *nightly(CLAUDE_OLD)], indirect=True)
claudes = pytest.mark.parametrize("server", [CLAUDE, *nightly(CLAUDE_OLD)], indirect=True)
mock = pytest.mark.parametrize("server", [MOCK], indirect=True)

REPLIES = [("once", None), ("reject", None), ("reject", "use another name")]


def errors(messages: list[dict]) -> list[str]:
    return [message["info"]["error"]["name"] for message in messages if "error" in message["info"]]


@everywhere
def test_success(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt(server.say("[scene:text] say hello", "echo You said: say hello"))
    messages = watch.wait_for_end(at)
    assert texts(messages) == ["You said: say hello"]
    assert errors(messages) == []


@everywhere
def test_an_edit_changes_the_file_and_shows_the_diff(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    (server.place.project / "README.md").write_text("Hello\n")
    messages = watch.wait_for_end(watch.prompt(server.say("[scene:read_edit] edit", "edit README.md")))
    text = (server.place.project / "README.md").read_text()
    assert text.startswith("Hello\n")
    assert len(text.splitlines()) == 2
    read, edit = tools(messages)
    assert (read["tool"], edit["tool"]) == ("read", "edit")
    assert "+" + text.splitlines()[1] in edit["state"]["metadata"]["diff"]
    diff = server.api.get(f"/session/{watch.session}/diff")
    assert [(entry["file"], entry["additions"], entry["deletions"]) for entry in diff] == [("README.md", 1, 0)]


@everywhere
def test_a_second_turn_knows_the_first(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    watch.wait_for_end(watch.prompt(server.say("[scene:text] first", "echo You said: first")))
    at = watch.prompt(server.say("[scene:text] second", "remember"))
    said = texts(watch.wait_for_end(at))
    assert said == ["You said: first", server.say("You said: second", "I remember 1 prompt before this one.")]


@pytest.mark.nightly
@both
def test_parallel_tools(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    calls = tools(watch.wait_for_end(watch.prompt(server.say("[scene:parallel] read both", "parallel"))))
    assert [call["state"]["status"] for call in calls] == ["completed", "completed"]


@pytest.mark.nightly
@both
def test_reasoning(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    messages = watch.wait_for_end(watch.prompt(server.say("[scene:reason] think", "think")))
    kinds = [part["type"] for part in messages[-1]["parts"]]
    assert kinds == ["step-start", "reasoning", "text", "step-finish"]


@everywhere
def test_a_failed_tool_does_not_end_the_turn(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    messages = watch.wait_for_end(watch.prompt(server.say("[scene:fail_tool] read", "failtool")))
    assert [call["state"]["status"] for call in tools(messages)] == ["error"]
    assert texts(messages)[-1]
    assert errors(messages) == []


@everywhere
def test_an_error_of_the_model(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt(server.say("[scene:error] fail", "error"))
    messages = watch.wait_for_end(at)
    assert len(errors(messages)) == 1
    said = [event for event in watch.events(at) if event["type"] == "session.error"]
    assert len(said) == 1
    again = watch.prompt(server.say("[scene:text] and now", "echo You said: and now"))
    assert texts(watch.wait_for_end(again))[-1] == "You said: and now", "the session goes on"


@everywhere
def test_abort_while_text_streams(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt(server.say("[scene:drip:300] talk", "slow 60"))
    watch.wait_text(server.say("word5", "tick 1"), at)
    assert server.api.post(f"/session/{watch.session}/abort") is True
    messages = watch.wait_for_end(at)
    assert errors(messages) == ["MessageAbortedError"]
    assert server.say("word5", "tick 1") in texts(messages)[0], "what was said stays"
    again = watch.prompt(server.say("[scene:text] again", "echo You said: again"))
    assert texts(watch.wait_for_end(again))[-1] == "You said: again"


@everywhere
def test_abort_while_a_tool_runs(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt(server.say("[scene:slow_bash:60] run", "permission"))
    watch.wait_tool("running", at)
    assert server.api.post(f"/session/{watch.session}/abort") is True
    messages = watch.wait_for_end(at)
    assert errors(messages) == ["MessageAbortedError"]
    assert len(tools(messages)) == 1
    wait_for(lambda: not _tick_processes(server), 5, "the tool's shell still runs")


def _tick_processes(server: Bench) -> list[str]:
    from .support.children import processes_with

    return [line for line in processes_with(str(server.place.root)).values() if "echo tick" in line]


@everywhere
def test_abort_while_a_permission_is_open(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt(server.say("[scene:bash:touch never.txt] make", "permission"))
    asked = watch.wait("permission.asked", at)
    assert server.api.post(f"/session/{watch.session}/abort") is True
    messages = watch.wait_for_end(at)
    assert errors(messages) == ["MessageAbortedError"]
    answered = watch.wait("permission.replied", at)
    assert (answered["requestID"], answered["reply"]) == (asked["id"], "reject")
    assert not (server.place.project / "never.txt").exists()


@everywhere
def test_abort_right_after_the_204(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt(server.say("[scene:hang] think", "hang"))
    assert server.api.post(f"/session/{watch.session}/abort") is True
    messages = watch.wait_for_end(at)
    assert errors(messages) in (["MessageAbortedError"], [])
    again = watch.prompt(server.say("[scene:text] again", "echo You said: again"))
    assert texts(watch.wait_for_end(again))[-1] == "You said: again", "the aborted prompt does not come back"


@both
def test_abort_of_an_idle_session_changes_nothing(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    watch.wait_for_end(watch.prompt(server.say("[scene:text] hi", "echo You said: hi")))
    before = server.api.messages(watch.session)
    assert server.api.post(f"/session/{watch.session}/abort") is True
    stream.quiet(0.5)
    assert server.api.messages(watch.session) == before
    assert texts(watch.wait_for_end(watch.prompt(server.say("[scene:text] ho", "echo You said: ho"))))[-1] == "You said: ho"


@everywhere
@pytest.mark.parametrize(
    ("reply", "message"),
    [("once", None), ("reject", None), ("reject", "use another name")],
)
def test_permission(server: Bench, stream: Stream, reply: str, message: str | None) -> None:
    watch = Watch.on(server.api, stream)
    name = f"made-{reply}-{'told' if message else 'silent'}.txt"
    at = watch.prompt(server.say(f"[scene:bash:touch {name}] make", "permission"))
    asked = watch.wait("permission.asked", at)
    assert [ask["id"] for ask in server.api.get("/permission")] == [asked["id"]]
    before = server.model.steps()
    server.api.post(f"/permission/{asked['id']}/reply", {"reply": reply, **({"message": message} if message else {})})
    messages = watch.wait_for_end(at)
    if reply == "reject" and message is None:
        late = server.agent == CLAUDE_OLD  # it goes on until it reads the interrupt
        assert server.model.steps() - before <= late, "it ends the turn: the model is asked nothing more"
    assert not any(message["info"].get("error") for message in messages)
    (call,) = tools(messages)
    assert call["state"]["status"] == ("error" if reply == "reject" else "completed")
    if server.real:
        assert (server.place.project / name).exists() == (reply != "reject")
    if reply == "reject":
        assert "rejected permission" in call["state"]["error"], "the TUI strikes the card through by these words"
        assert (message or "") in call["state"]["error"]
    status, answer = server.api.call("POST", f"/permission/{asked['id']}/reply", {"reply": "once"})
    assert (status, answer["_tag"]) == (404, "PermissionNotFoundError")


@pytest.mark.parametrize("agent", [*nightly(MOCK), CLAUDE])
def test_permission_for_good(agent: str) -> None:
    """On a server of its own, since "always" holds for the project."""
    with bench(agent) as server:
        stream = Stream(server.api)
        server.later(stream.close)
        watch = Watch.on(server.api, stream)
        at = watch.prompt(server.say("[scene:bash:touch a.txt] make", "permission"))
        asked = watch.wait("permission.asked", at)
        server.api.post(f"/permission/{asked['id']}/reply", {"reply": "always"})
        watch.wait_for_end(at)
        other = Watch.on(server.api, stream)
        at = other.prompt(server.say("[scene:bash:touch b.txt] make", "permission"))
        messages = other.wait_for_end(at)
        assert [call["state"]["status"] for call in tools(messages)] == ["completed"]
        assert "permission.asked" not in [event["type"] for event in other.events(at)]


@everywhere
@pytest.mark.parametrize("answered", [True, False])
def test_question(server: Bench, stream: Stream, answered: bool) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt(server.say("[scene:question] ask", "question 1"))
    asked = watch.wait("question.asked", at)
    label = asked["questions"][0]["options"][0]["label"]
    if answered:
        server.api.post(f"/question/{asked['id']}/reply", {"answers": [[label]]})
    else:
        server.api.post(f"/question/{asked['id']}/reject")
    messages = watch.wait_for_end(at)
    (call,) = tools(messages)
    assert call["tool"] == "question"
    if answered:
        assert call["state"]["metadata"]["answers"] == [["Red"]]
    else:
        assert call["state"]["status"] == "error"
        assert "user dismissed" in call["state"]["error"], "the TUI strikes the card through by these words"


@pytest.mark.nightly
@everywhere
def test_todo(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt(server.say("[scene:todo] plan", "todo"))
    messages = watch.wait_for_end(at)
    todos = server.api.get(f"/session/{watch.session}/todo")
    assert len(todos) >= 2, (todos, [call["tool"] for call in tools(messages)])
    assert {call["tool"] for call in tools(messages)} == {"todowrite"}
    last = [event for event in watch.events(at) if event["type"] == "todo.updated"][-1]
    assert last["properties"]["todos"] == todos


@everywhere
def test_a_subagent_is_a_child_session(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    messages = watch.wait_for_end(watch.prompt(server.say("[scene:task] delegate", "subagent")))
    task = next(call for call in tools(messages) if call["tool"] == "task")
    (child,) = server.api.get(f"/session/{watch.session}/children")
    assert task["state"]["metadata"]["sessionId"] == child["id"]
    assert task["state"]["status"] == "completed"
    heard = server.api.messages(child["id"])
    assert [message["info"]["role"] for message in heard][:2] == ["user", "assistant"]
    assert texts(heard), "one can read what the subagent said"
    idles = [event for event in stream.of(child["id"]) if event["type"] == "session.idle"]
    assert len(idles) == 1


@both
def test_a_subagent_in_the_background(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt(server.say("[scene:task:slow_bash:2] delegate", "background"))
    messages = watch.wait_for_end(at)
    assert len(texts(messages)) >= 2, "it speaks again when the subagent is done"


@both
def test_prompts_while_busy_are_answered_and_idle_comes_once(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt(server.say("[scene:drip:20] one", "slow 2"))
    watch.wait_text(server.say("word1", "tick 1"), at)
    watch.prompt(server.say("[scene:text] two", "echo You said: two"))
    watch.prompt(server.say("[scene:text] three", "echo You said: three"))
    users = [m for m in server.api.messages(watch.session) if m["info"]["role"] == "user"]
    assert len(users) == 3, "they are shown at once"
    messages = watch.wait_for_end(at)
    assert texts(messages)[-1] == "You said: three"
    answered = {m["info"]["parentID"] for m in messages if m["info"]["role"] == "assistant"}
    assert users[-1]["info"]["id"] in answered


@both
def test_a_prompt_that_waits_for_its_answer(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = stream.mark()
    body = {"parts": [{"type": "text", "text": server.say("[scene:read_edit] edit", "edit notes.txt")}]}
    (server.place.project / "README.md").write_text("Hello\n")
    answer = server.api.post(f"/session/{watch.session}/message", body)
    messages = watch.wait_for_end(at)
    assert answer == messages[-1]


@claudes
def test_the_agent_is_killed(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    before = set(server.agents())
    at = watch.prompt("[scene:slow_bash:60] run")
    watch.wait_tool("running", at)
    (pid,) = set(server.agents()) - before
    os.kill(pid, signal.SIGKILL)
    messages = watch.wait_for_end(at)
    assert len(errors(messages)) == 1
    wait_for(lambda: not _tick_processes(server), 5, "the tool's shell outlives its agent")
    again = watch.prompt("[scene:text] again")
    assert texts(watch.wait_for_end(again))[-1] == "You said: again", "the next prompt resumes the conversation"


@mock
@pytest.mark.parametrize("word", ["crash", "exit"])
def test_the_mock_dies(server: Bench, stream: Stream, word: str) -> None:
    watch = Watch.on(server.api, stream)
    messages = watch.wait_for_end(watch.prompt(word))
    assert len(errors(messages)) == 1
    assert texts(watch.wait_for_end(watch.prompt("echo again")))[-1] == "again"


@mock
@pytest.mark.parametrize(
    ("word", "idles"), [("late", 1), ("wake", 2), ("retry", 1), ("burst 2000", 1), ("unparsed", 1), ("image", 1)]
)
def test_odd_endings(server: Bench, stream: Stream, word: str, idles: int) -> None:
    watch = Watch.on(server.api, stream)
    watch.wait_for_end(watch.prompt(word), idles=idles)


@pytest.mark.nightly
@both
def test_markdown_text_is_the_sum_of_its_deltas(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt(server.say("[scene:markdown] write", "markdown"))
    (text,) = texts(watch.wait_for_end(at))
    deltas = "".join(e["properties"]["delta"] for e in watch.events(at) if e["type"] == "message.part.delta")
    assert deltas == text


@pytest.mark.parametrize("agent", [CLAUDE, *nightly("codex")])
def test_the_size_of_a_model_is_known_after_a_turn(agent: str) -> None:
    """Neither tells it before. Clients hear that they must read the models again, and a server that starts again knows it."""

    def contexts(server: Bench) -> set[int]:
        [provider] = [row for row in server.api.get("/provider")["all"] if row["id"] == server.shim.provider]
        return {model["limit"]["context"] for model in provider["models"].values()}

    with bench(agent) as server:
        server.models()
        assert contexts(server) == {0}
        with closing(Stream(server.api)) as everything:
            watch = Watch.on(server.api, Stream(server.api))
            server.later(watch.stream.close)
            watch.wait_for_end(watch.prompt("[scene:text] hi"))
            everything.wait(lambda event: event["type"] == "server.instance.disposed")
        known = contexts(server)
        assert max(known) >= 100_000
        server.restart()
        server.models()
        assert contexts(server) == known


@pytest.mark.parametrize("server", [CLAUDE, *nightly("opencode")], indirect=True)
def test_the_agent_names_the_session_unless_a_person_has(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    watch.wait_for_end(watch.prompt("[scene:text] say hello"))
    wait_for(lambda: server.api.get(f"/session/{watch.session}")["title"] == "A short title", 10, "the agent's title")
    named = Watch(server.api, stream, server.api.post("/session", {"title": "Mine"})["id"])
    before = len(server.model.requests())
    named.wait_for_end(named.prompt("[scene:text] say hello"))
    assert server.api.get(f"/session/{named.session}")["title"] == "Mine"
    assert len(server.model.requests()) == before + 1, "no title is asked for"
