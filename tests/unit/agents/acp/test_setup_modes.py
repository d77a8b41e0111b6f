"""The modes of ACP agents: told by the agent, named so that OpenCode's clients and people know them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.agents.acp.test_codec import Talk, option
from universal.agents.acp.profiles import GENERIC, PROFILES
from universal.agents.acp.setup import mode_named, name_of, offered_modes
from universal.codec import Prompt, ToolCheck
from universal.events import EventType
from universal.permissions import Rule

URL = "https://agentclientprotocol.com/protocol/session-modes#"


def modes_of(name: str, told: list[dict[str, Any]], usual: str, *options: tuple[str, str]) -> dict[str, str]:
    profile = next((p for p in PROFILES if p.name == name), None)
    found = offered_modes(
        profile.abilities.modes if profile else GENERIC, told, usual, lambda option, value: (option, value) in options
    )
    return {mode.id: mode.native for mode in found}


@pytest.mark.parametrize(
    ("native", "name"),
    [("autoEdit", "auto-edit"), (f"{URL}plan", "plan"), ("YOLO", "yolo"), ("read-only", "read-only"), ("a b", "a-b"), ("!", "!")],
)
def test_names(native: str, name: str) -> None:
    assert name_of(native) == name


def test_modes_of_the_real_agents() -> None:
    gemini = [{"id": id_} for id_ in ("default", "autoEdit", "yolo", "plan")]
    assert modes_of("gemini", gemini, "default") == {
        "build": "default",
        "accept-edits": "autoEdit",
        "bypass": "yolo",
        "plan": "plan",
    }
    copilot = [{"value": URL + id_} for id_ in ("agent", "plan", "autopilot")]
    assert modes_of("copilot", copilot, URL + "agent", ("allow_all", "on")) == {
        "build": URL + "agent",
        "bypass": "allow_all=on",
        "plan": URL + "plan",
        "autopilot": URL + "autopilot",
    }


def test_unknown_modes_are_offered_and_absent_ones_are_not() -> None:
    assert modes_of("mine", [{"id": "chat"}, {"id": "Deep Dive"}], "chat") == {"build": "chat", "deep-dive": "Deep Dive"}
    assert modes_of("mine", [{"id": "architect"}, {"id": "build"}], "architect") == {"build": "build", "architect": "architect"}
    assert modes_of("mine", [], "") == {"build": ""}


def test_a_mode_can_be_asked_for_by_the_agents_own_name() -> None:
    modes = offered_modes(GENERIC, [{"id": "chat"}, {"id": "Deep Dive"}], "chat", lambda *_: False)
    assert [mode and mode.native for mode in (mode_named(modes, w) for w in ("deep-dive", "Deep Dive", "build", None, "x"))] == [
        "Deep Dive",
        "Deep Dive",
        "chat",
        "chat",
        None,
    ]


def test_the_catalogue_has_them_and_a_prompt_sets_them() -> None:
    talk = Talk().ready(configOptions=[option("mode", "agent", "agent", URL + "plan", "deep")])
    assert talk.codec.catalogue is not None
    assert [mode.id for mode in talk.codec.catalogue.modes] == ["build", "plan", "deep"]
    talk.send(Prompt("p", "hi", mode="plan"))
    assert talk.written_lines()[-1]["params"] == {"sessionId": "s", "configId": "mode", "value": URL + "plan"}
    talk.answer("session/set_config_option", {})
    talk.send(Prompt("p2", "hi", mode="another"))
    talk.answer("session/prompt", {"stopReason": "end_turn"})
    assert "mode_unavailable" in talk.errors()


DENY, ALLOW = Rule("bash", "rm *", "deny"), Rule("edit", "*", "allow")
LOOSE = {"currentModeId": "ask", "availableModes": [{"id": id_} for id_ in ("ask", "accept-edits", "bypass")]}


@pytest.mark.parametrize(
    ("mode", "rules", "native", "unasked"),
    [
        ("bypass", (DENY,), "ask", {"edit", "execute"}),
        ("accept-edits", (DENY,), "ask", {"edit"}),
        ("build", (DENY,), "ask", set[str]()),
        ("bypass", (ALLOW,), "bypass", set[str]()),
        ("accept-edits", (), "accept-edits", set[str]()),
    ],
)
def test_where_a_rule_may_forbid_a_call_the_agent_asks_in_its_loose_modes(
    mode: str, rules: tuple[Rule, ...], native: str, unasked: set[str]
) -> None:
    talk = Talk(holds=True).ready(modes=LOOSE)
    talk.send(Prompt("p", "hi", mode=mode, rules=rules))
    sets = [line["params"]["modeId"] for line in talk.written_lines() if line.get("method") == "session/set_mode"]
    assert (sets or ["ask"]) == [native]
    if sets:
        talk.answer("session/set_mode", {})
    assert talk.methods()[-1] == "session/prompt"
    assert talk.codec.mode == mode, "the rules of this server are those of the prompt's mode"
    checked = set[str]()
    for number, kind in enumerate(("edit", "execute")):
        call = {"toolCallId": f"c{number}", "title": "do it", "kind": kind, "rawInput": {"path": "/p/a", "command": "rm a"}}
        options = [{"optionId": "yes", "kind": "allow_once"}, {"optionId": "no", "kind": "reject_once"}]
        outputs = talk.request(number, "session/request_permission", toolCall=call, options=options)
        checked.update(kind for output in outputs if isinstance(output, ToolCheck))
        asked = [out for out in outputs if getattr(out, "type", None) is EventType.PERMISSION_REQUESTED]
        assert bool(asked) == (kind not in unasked)
    assert checked == unasked


def test_a_mode_that_was_held_is_set_once_no_rule_forbids_a_call() -> None:
    talk = Talk().ready(modes=LOOSE)
    for number, rules in enumerate(((DENY,), ())):
        talk.send(Prompt(f"p{number}", "hi", mode="bypass", rules=rules))
        if number:
            assert talk.written_lines()[-1]["params"] == {"sessionId": "s", "modeId": "bypass"}
            talk.answer("session/set_mode", {})
        talk.answer("session/prompt", {"stopReason": "end_turn"})
    assert talk.codec.mode == "bypass"
    assert talk.methods().count("session/prompt") == 2
