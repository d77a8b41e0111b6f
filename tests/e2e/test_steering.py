"""Prompts that come during a turn, with real agents that take them in at their next step.

After each: exactly one idle, each prompt answered or cancelled once, and what HTTP tells is what the stream told.
"""

from __future__ import annotations

import pytest

from .support.bench import CLAUDE, Bench, Watch, nightly, other_wires
from .support.wire import Json, Stream, texts, tools

CODEX, PI, OPENCODE, CLAUDE_ACP = "codex", "pi", "opencode", "claude-agent-acp"
STEERED = [CLAUDE, CODEX, PI, *nightly(CLAUDE_ACP, OPENCODE)]
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
steered = pytest.mark.parametrize("server", [CLAUDE, *nightly(CODEX, PI, OPENCODE, CLAUDE_ACP)], indirect=True)


def texts_of_prompts(messages: list[Json]) -> list[str]:
    return [m["parts"][0]["text"].partition("] ")[2] for m in messages if m["info"]["role"] == "user"]


def answers(messages: list[Json]) -> list[tuple[str, str]]:
    """(prompt that was answered, text) of each answer with a text."""
    prompts = {m["info"]["id"]: m["parts"][0]["text"].partition("] ")[2] for m in messages if m["info"]["role"] == "user"}
    said = [(prompts[m["info"]["parentID"]], texts([m])) for m in messages if m["info"]["role"] == "assistant"]
    return [(prompt, text) for prompt, all_texts in said for text in all_texts]


def steer_into(scene: str, server: Bench, stream: Stream, *more: str) -> tuple[Watch, int]:
    """A prompt "one" whose tool runs, and then "two" (and `more`): the watch, and where the turn begins in the stream."""
    watch = Watch.on(server.api, stream)
    at = watch.prompt(f"[scene:{scene}] one")
    watch.wait_tool("running", at)
    for text in ("two", *more):
        watch.prompt(f"[scene:text] {text}")
    return watch, at


@steered
def test_steer_while_text_streams(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt("[scene:drip:60] one")
    watch.wait_text("word1", at)
    watch.prompt("[scene:text] two")
    messages = watch.wait_for_end(at)
    (first, words), second = answers(messages)
    assert (first, words.split()[-1]) == ("one", "word59"), "what is said is not cut off"
    assert second == ("two", "You said: two")


@pytest.mark.parametrize("server", STEERED, indirect=True)
def test_steer_while_a_tool_runs(server: Bench, stream: Stream) -> None:
    watch, at = steer_into("slow_bash:4", server, stream)
    messages = watch.wait_for_end(at)
    assert [tool["state"]["status"] for tool in tools(messages)] == ["completed"], "the command is not killed"
    # claude-agent-acp may move the command to the background, whose end then has an answer of its own.
    said = answers(messages)[: 2 if server.agent == CLAUDE_ACP else None]
    assert said == [("one", "This takes a while."), ("two", "You said: two")]


@other_wires
@pytest.mark.parametrize("server", [CLAUDE], indirect=True)
def test_steer_by_the_other_wires(server: Bench, stream: Stream, wire: str) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt_on(wire, "[scene:slow_bash:4] one")
    watch.wait_tool("running", at)
    watch.prompt_on(wire, "[scene:text] two")
    assert answers(watch.wait_for_end(at)) == [("one", "This takes a while."), ("two", "You said: two")]


@steered
def test_steer_while_a_permission_is_open(server: Bench, stream: Stream) -> None:
    watch = Watch.on(server.api, stream)
    at = watch.prompt("[scene:ask_bash:touch steered.txt] one")
    asked = watch.wait("permission.asked", at)
    watch.prompt("[scene:text] two")
    server.api.post(f"/permission/{asked['id']}/reply", {"reply": "once"})
    messages = watch.wait_for_end(at)
    # claude-agent-acp would stop a call that has just begun, so it is given a prompt after a second, and this call is shorter.
    first = [("one", "Let me run that."), *([("one", "Done!")] if server.agent == CLAUDE_ACP else [])]
    assert answers(messages) == [*first, ("two", "You said: two")]
    assert (server.place.project / "steered.txt").exists()


@steered
def test_steer_twice_in_a_row(server: Bench, stream: Stream) -> None:
    watch, at = steer_into("slow_bash:4", server, stream, "three")
    messages = watch.wait_for_end(at)
    assert texts_of_prompts(messages) == ["one", "two", "three"]
    assert answers(messages)[0] == ("one", "This takes a while.")
    assert answers(messages)[-1] == ("three", "You said: three")


@pytest.mark.parametrize("server", [CLAUDE, *nightly(CODEX, OPENCODE, CLAUDE_ACP)], indirect=True)  # Pi has no subagents
def test_steer_while_a_subagent_works(server: Bench, stream: Stream) -> None:
    watch, at = steer_into("task:slow_bash:2", server, stream)
    messages = watch.wait_for_end(at)
    assert answers(messages)[-1] == ("two", "You said: two")


@pytest.mark.parametrize("server", [CLAUDE, *nightly(CLAUDE_ACP, CODEX, PI, OPENCODE)], indirect=True)
def test_an_abort_takes_back_what_was_not_taken_in(server: Bench, stream: Stream) -> None:
    watch, at = steer_into("slow_bash:60", server, stream)
    assert server.api.post(f"/session/{watch.session}/abort") is True
    messages = watch.wait_for_end(at)
    assert answers(messages) == [("one", "This takes a while.")]
    assert texts_of_prompts(messages) == ["one", "two"]
    again = watch.prompt("[scene:text] again")
    assert answers(watch.wait_for_end(again))[1:] == [("again", "You said: again")], "it does not run afterwards"


@pytest.mark.parametrize("server", [CLAUDE, *nightly(PI)], indirect=True)
def test_a_prompt_can_be_removed_until_it_is_taken_in(server: Bench, stream: Stream) -> None:
    watch, at = steer_into("slow_bash:4", server, stream)
    (waiting,) = server.api.get(f"/api/session/{watch.session}/inbox")["data"]
    server.api.call("DELETE", f"/api/session/{watch.session}/inbox/{waiting['id']}")
    messages = watch.wait_for_end(at)
    assert texts_of_prompts(messages) == ["one"]
    assert answers(messages) == [("one", "This takes a while."), ("one", "Done!")]


CHANGES = """export default function (pi) {
  pi.on("input", (event) => {
    if (event.text.includes("swallow")) return { action: "handled" };
    return event.text.includes("shout") ? { action: "transform", text: event.text + " LOUD" } : { action: "continue" };
  });
}
"""
"""An extension of Pi's that handles some texts itself, and changes others."""


@pytest.mark.parametrize("server", [PI], indirect=True)
def test_an_extension_that_changes_or_handles_a_steered_prompt_holds_no_turn_open(server: Bench, stream: Stream) -> None:
    folder = server.place.home / ".pi" / "agent" / "extensions"
    folder.mkdir(exist_ok=True)
    (folder / "changes.ts").write_text(CHANGES)
    for word, said in (("shout", "You said: shout LOUD"), ("swallow", "Done!")):
        watch = Watch.on(server.api, stream)
        at = watch.prompt("[scene:slow_bash:3] one")
        watch.wait_tool("running", at)
        watch.prompt(f"[scene:text] {word}")
        messages = watch.wait_for_end(at)
        assert texts(messages) == ["This takes a while.", said]
        assert [m["info"].get("error") for m in messages] == [None] * len(messages)
