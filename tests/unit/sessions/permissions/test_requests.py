"""What an agent asks a person, what rules answer for them, and subagents that ask."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from shim.host.config.opencode_config import OpenCodeConfig
from shim.host.plugins.plugin_hosts import PluginVerdict
from shim.lib.errors import InvalidRequest, PermissionNotFound
from shim.sessions.permissions import requests
from shim.sessions.prompts.submit import submit
from tests.support.opencode1_views import children, permissions, questions, statuses, view
from tests.support.scripted_model import World, ask, body
from universal.agent_spec import AgentFolder
from universal.codec import Fact, PermissionReply, Prompt, QuestionReply, Signal
from universal.events import EventType, PermissionData, TurnData
from universal.permissions import Access, Enforcement, Rule
from universal.tools.accesses import Place
from universal.turn import Input


async def test_a_permission_is_asked_answered_and_remembered(w: World) -> None:
    session = w.session()
    await ask(w, session)
    message = w.agent.begin()
    w.agent.call(message, "c1")
    request = w.agent.ask("c1", "bash", command="git push origin")
    [wire] = permissions(w.manager)
    assert (wire["permission"], wire["patterns"], wire["always"]) == ("bash", ["git push origin"], ["git push *"])
    assert wire["tool"]["callID"] == "c1"
    w.manager.requests.reply_permission(request, "always")
    assert permissions(w.manager) == []
    with pytest.raises(PermissionNotFound):
        w.manager.requests.reply_permission(request, "once")
    again = w.agent.ask("c1", "bash", command="git push --force")
    assert permissions(w.manager) == []
    assert PermissionReply(again, "accept") in w.agent.commands
    w.agent.result("c1")
    w.agent.complete(message, "")
    w.agent.end_turn()


async def test_always_for_a_tool_is_none_for_another_servers_tool_of_the_same_name(w: World) -> None:
    session = w.session()
    await ask(w, session)
    message = w.agent.begin()
    w.agent.call(message, "c1")
    first = w.agent.ask("c1", "mcp__a_b__c", x=1)
    assert [row["permission"] for row in permissions(w.manager)] == ["a_b_c"]
    w.manager.requests.reply_permission(first, "always")
    again = w.agent.ask("c1", "mcp__a_b__c", x=2)
    assert PermissionReply(again, "accept") in w.agent.commands
    w.agent.ask("c1", "mcp__a__b_c", x=1)
    assert [row["permission"] for row in permissions(w.manager)] == ["a_b_c"]
    w.agent.result("c1")
    w.agent.complete(message, "")
    w.agent.end_turn()


async def test_rules_of_the_session_and_the_config_answer_for_the_person(w: World) -> None:
    session = w.session(permission=[{"permission": "question", "pattern": "*", "action": "deny"}])
    w.rules.append(Rule("bash", "rm *", "deny"))
    await ask(w, session)
    message = w.agent.begin()
    w.agent.call(message, "c1")
    denied = w.agent.ask("c1", "bash", command="rm -rf x")
    reply = next(c for c in w.agent.commands if isinstance(c, PermissionReply))
    assert (reply.permission_id, reply.decision) == (denied, "reject")
    refused = w.agent.question()
    assert QuestionReply(refused, None) in w.agent.commands
    assert not {"permission.asked", "question.asked"} & set(w.hub.kinds(session))
    w.agent.result("c1", failed=True)
    w.agent.end_turn()


async def test_a_rejection_rejects_all_open_requests_of_its_session(w: World) -> None:
    session = w.session()
    await ask(w, session)
    message = w.agent.begin()
    w.agent.call(message, "c1")
    w.agent.call(message, "c2")
    first = w.agent.ask("c1", "bash", command="a")
    second = w.agent.ask("c2", "bash", command="b")
    w.manager.requests.reply_permission(first, "reject", "no")
    replies = [c for c in w.agent.commands if isinstance(c, PermissionReply)]
    assert [(r.permission_id, r.decision, r.message) for r in replies] == [(first, "reject", "no"), (second, "reject", "no")]
    assert w.hub.kinds(session).count("permission.replied") == 2
    w.agent.end_turn()


async def test_an_always_answers_what_it_covers_in_its_own_session_only(w: World) -> None:
    one, two = w.session(), w.session()
    await ask(w, one)
    first_agent = w.agent
    await ask(w, two)
    asked = first_agent.ask("c1", "bash", command="echo a")
    first_agent.ask("c2", "bash", command="echo b")
    other = w.agent.ask("c3", "bash", command="echo c")
    w.manager.requests.reply_permission(asked, "always")
    assert [p["id"] for p in permissions(w.manager)] == [other]
    first_agent.end_turn()
    w.agent.end_turn()


async def test_a_question_is_answered_or_refused(w: World) -> None:
    session = w.session()
    await ask(w, session)
    request = w.agent.question()
    assert [q["questions"][0]["question"] for q in questions(w.manager)] == ["Which?"]
    w.manager.requests.reply_question(request, [["Blue"]])
    assert QuestionReply(request, [["Blue"]]) in w.agent.commands
    refused = w.agent.question()
    w.manager.requests.reply_question(refused, None)
    kinds = w.hub.kinds(session)
    assert (kinds.count("question.replied"), kinds.count("question.rejected")) == (1, 1)
    w.agent.end_turn()


async def test_a_subagent_is_a_session_that_can_be_opened(w: World) -> None:
    session = w.session()
    await ask(w, session)
    message = w.agent.begin()
    w.agent.call(message, "t1", "task", arguments='{"description": "look", "subagent_type": "general"}')
    w.agent.child("t1")
    [child] = children(w.manager, session)
    assert child["title"] == "look (@general subagent)"
    w.agent.text("I see", child="t1")
    request = w.agent.ask("x", "bash", child="t1", command="ls")
    assert [p["sessionID"] for p in permissions(w.manager)] == [child["id"]]
    w.manager.requests.reply_permission(request, "once")
    w.agent.says(Signal(Input.DONE, child="t1"))
    assert w.hub.folds[child["id"]].idles == 1
    w.agent.result("t1", "I see")
    w.agent.complete(message, "")
    w.agent.end_turn()
    tool = next(
        p for p in list(view(await w.manager.session(session)).messages.values())[1].wire()["parts"] if p["type"] == "tool"
    )
    assert tool["state"]["metadata"]["sessionId"] == child["id"]
    with pytest.raises(InvalidRequest):
        await submit(w.manager, child["id"], body())


@pytest.mark.parametrize("how", ["abort", "crash"])
async def test_subagents_end_with_their_parents_turn(w: World, how: str) -> None:
    session = w.session()
    await ask(w, session)
    message = w.agent.begin()
    w.agent.call(message, "t1", "task")
    w.agent.child("t1")
    inner = w.agent.begin(child="t1")
    w.agent.call(inner, "c9", child="t1")
    w.agent.ask("c9", child="t1")
    if how == "abort":
        waiting = asyncio.ensure_future(w.manager.abort(session))
        await w.settle()
        w.agent.abort_turn()
        await waiting
    else:
        w.agent.exits(1)
    assert statuses(w.manager) == {}
    [child] = children(w.manager, session)
    assert w.hub.folds[child["id"]].idles == 1


def open_requests(w: World) -> list[tuple[str, list[str]]]:
    """What a person is asked now."""
    return [(wire["permission"], wire["patterns"]) for wire in permissions(w.manager)]


async def test_a_checked_call_that_no_rule_concerns_goes_on_unseen(w: World) -> None:
    session = w.session()
    await ask(w, session)
    checked = w.agent.check("c1", command="ls")
    assert w.agent.proceeded == [checked]
    assert w.agent.replies() == []
    assert "permission.asked" not in w.hub.kinds(session)
    w.agent.end_turn()


async def test_a_denied_call_is_held_although_the_agent_does_not_ask(w: World) -> None:
    session = w.session()
    w.rules.append(Rule("edit", "*", "deny"))
    await ask(w, session)
    checked = w.agent.check("c1", "edit", filePath="a.txt")
    assert w.agent.replies() == [(checked, "reject")]
    assert w.agent.proceeded == []
    assert permissions(w.manager) == []
    w.agent.end_turn()


async def test_a_rule_that_asks_is_asked_although_the_agent_does_not_ask(w: World) -> None:
    session = w.session()
    w.rules.append(Rule("read", "secret/*", "ask"))
    await ask(w, session)
    checked = w.agent.check("c1", "read", filePath="secret/key")
    assert open_requests(w) == [("read", ["secret/key"])]
    w.manager.requests.reply_permission(checked, "once")
    assert w.agent.replies() == [(checked, "accept")]
    w.agent.end_turn()


@pytest.mark.parametrize("rules", [[], [Rule("bash", "*", "allow")], [Rule("bash", "*", "ask")]], ids=["mode", "allow", "ask"])
async def test_a_call_that_perhaps_runs_another_command_is_asked_about_once(w: World, rules: list[Rule]) -> None:
    """Also by an agent whose own mode asks afterwards."""
    w.rules.extend([*rules, Rule("bash", "git push*", "ask")])
    await ask(w, w.session())
    checked, shown = (
        w.agent.check("c1", command="uv run git push"),
        ["uv run git push" if len(rules) and rules[0].action == "ask" else "git push"],
    )
    assert open_requests(w) == [("bash", shown)]
    w.manager.requests.reply_permission(permissions(w.manager)[0]["id"], "once")
    if not rules:
        assert w.agent.proceeded == [checked]
        checked = w.agent.ask("c1", command="uv run git push")
    assert open_requests(w) == []
    assert w.agent.replies() == [(checked, "accept")]
    w.agent.ask("c2", command="uv run git push")
    assert open_requests(w) == [("bash", shown)], "another call"
    w.agent.end_turn()


async def test_outside_of_the_project_is_asked_before_the_call_itself(w: World) -> None:
    session = w.session()
    w.rules.append(Rule("edit", "*", "ask"))
    await ask(w, session)
    checked = w.agent.check("c1", "edit", filePath="/etc/hosts")
    assert open_requests(w) == [("external_directory", ["/etc/*"])]
    [outside] = permissions(w.manager)
    assert outside["id"] != checked
    w.manager.requests.reply_permission(outside["id"], "once")
    assert open_requests(w) == [("edit", ["/etc/hosts"])]
    assert w.agent.replies() == []
    w.manager.requests.reply_permission(checked, "once")
    assert w.agent.replies() == [(checked, "accept")]
    assert w.hub.kinds(session).count("permission.replied") == 2
    w.agent.end_turn()


@pytest.mark.parametrize(
    ("rules", "asked"),
    [
        ([Rule("*", "*", "ask")], [("scripted_echo", ["*"])]),
        ([Rule("other", "scripted/*", "ask")], [("other", ["scripted/echo"])]),
        ([Rule("scripted_*", "*", "allow"), Rule("other", "*", "ask")], [("other", ["scripted/echo"])]),
        ([Rule("scripted_*", "*", "allow"), Rule("other", "scripted/*", "deny")], []),
    ],
    ids=str,
)
async def test_a_call_named_by_its_title_is_judged_by_its_kind_too_and_asked_once(
    w: World, rules: list[Rule], asked: list[tuple[str, list[str]]]
) -> None:
    w.rules.extend(rules)
    await ask(w, w.session())
    metadata = {"tool": "mcp__scripted__echo", "call_id": "c1", "also": {"kind": "other", "title": "scripted/echo"}}
    request, w.agent.asked["per_titled"] = "per_titled", None
    data = PermissionData(permission_id=request, action="mcp__scripted__echo", status="requested", metadata=metadata)
    w.agent.says(Fact(EventType.PERMISSION_REQUESTED, data))
    assert open_requests(w) == asked
    if asked:
        w.manager.requests.reply_permission(permissions(w.manager)[0]["id"], "always")
    decisions = [c.decision for c in w.agent.commands if isinstance(c, PermissionReply)]
    assert decisions == (["accept_for_session"] if asked else ["reject"])
    w.agent.end_turn()


async def test_a_refused_folder_refuses_the_call(w: World) -> None:
    session = w.session()
    w.rules.append(Rule("edit", "*", "ask"))
    await ask(w, session)
    checked = w.agent.check("c1", "edit", filePath="/etc/hosts")
    [outside] = permissions(w.manager)
    w.manager.requests.reply_permission(outside["id"], "reject")
    assert w.agent.replies() == [(checked, "reject")]
    assert permissions(w.manager) == []
    w.agent.end_turn()


async def test_always_inside_covers_no_path_outside(w: World) -> None:
    session = w.session()
    await ask(w, session)
    inside = w.agent.ask("c1", "edit", filePath="a.txt")
    w.manager.requests.reply_permission(inside, "always")
    w.agent.check("c2", "edit", filePath="../elsewhere/b.txt")
    assert [permission for permission, _ in open_requests(w)] == ["external_directory"]
    w.agent.end_turn()


async def test_always_for_a_folder_covers_the_rest_of_it(w: World) -> None:
    session = w.session()
    await ask(w, session)
    w.agent.check("c1", "read", filePath="/opt/x/a")
    [outside] = permissions(w.manager)
    w.manager.requests.reply_permission(outside["id"], "always")
    again = w.agent.check("c2", "read", filePath="/opt/x/b")
    assert permissions(w.manager) == []
    assert again in w.agent.proceeded
    w.agent.end_turn()


async def test_granting_a_folder_does_not_grant_edits_in_it(w: World) -> None:
    session = w.session()
    await ask(w, session)
    checked = w.agent.check("c1", "edit", filePath="/opt/x/a")
    [outside] = permissions(w.manager)
    w.manager.requests.reply_permission(outside["id"], "once")
    assert w.agent.proceeded == [checked], "the agent goes on by its own mode"
    assert w.agent.replies() == []
    asked = w.agent.ask("c1", "edit", filePath="/opt/x/a")
    assert open_requests(w) == [("edit", ["/opt/x/a"])], "the folder is not asked about twice"
    w.manager.requests.reply_permission(asked, "reject")
    assert w.agent.replies() == [(asked, "reject")]
    w.agent.end_turn()


async def test_granting_a_folder_grants_reading_in_it(w: World) -> None:
    session = w.session()
    await ask(w, session)
    checked = w.agent.check("c1", "read", filePath="/opt/x/a")
    [outside] = permissions(w.manager)
    w.manager.requests.reply_permission(outside["id"], "once")
    assert w.agent.replies() == [(checked, "accept")]
    w.agent.end_turn()


async def test_a_request_that_the_agent_withdraws_is_not_shown_any_more(w: World) -> None:
    session = w.session()
    w.rules.append(Rule("edit", "*", "ask"))
    await ask(w, session)
    checked = w.agent.check("c1", "edit", filePath="/etc/hosts")
    data = PermissionData(permission_id=checked, action="edit", status="reject", metadata={"withdrawn": True})
    w.agent.says(Fact(EventType.PERMISSION_RESOLVED, data))
    assert permissions(w.manager) == []
    assert w.hub.kinds(session).count("permission.replied") == 1
    w.agent.end_turn()


async def test_equal_calls_in_a_row_are_asked_as_a_loop(w: World) -> None:
    session = w.session()
    await ask(w, session)
    for number in (1, 2):
        w.agent.check(f"c{number}", command="make")
    assert open_requests(w) == []
    w.agent.check("c3", command="make")
    assert open_requests(w) == [("doom_loop", ["bash"])]
    w.agent.end_turn()


async def test_a_call_that_is_checked_and_asked_counts_once_for_a_loop(w: World) -> None:
    session = w.session()
    await ask(w, session)
    for number in (1, 2):
        w.agent.check(f"c{number}", command="make")
        w.agent.ask(f"c{number}", command="make")
    assert {permission for permission, _ in open_requests(w)} == {"bash"}
    w.agent.end_turn()


async def test_plan_mode_edits_nothing_whatever_the_rules_allow(w: World) -> None:
    session = w.session()
    w.rules.append(Rule("edit", "*", "allow"))
    await ask(w, session)
    w.agent.mode = "plan"
    asked = w.agent.ask("c1", "edit", filePath="a.txt")
    assert w.agent.replies() == [(asked, "reject")]
    w.agent.end_turn()


async def test_the_agent_gets_the_rules_with_its_prompt(w: World) -> None:
    w.rules.append(Rule("bash", "rm *", "deny"))
    session = w.session(permission=[{"permission": "edit", "pattern": "*", "action": "ask"}])
    await ask(w, session)
    [prompt] = [command for command in w.agent.commands if isinstance(command, Prompt)]
    assert prompt.rules[-2:] == (Rule("bash", "rm *", "deny"), Rule("edit", "*", "ask"))
    assert w.agent.options.rules == prompt.rules
    w.agent.end_turn()


@pytest.mark.parametrize(("rule", "told"), [(Rule("read", "*.key", "deny"), 1), (Rule("bash", "rm *", "deny"), 0)])
async def test_rules_that_the_agent_cannot_obey_are_reported_once(w: World, rule: Rule, told: int) -> None:
    w.agents.limit("one", Enforcement("questions", {"read": "Reads are not seen."}))
    w.rules.append(rule)
    session = w.session()
    for _ in range(2):
        await ask(w, session)
        w.agent.complete(w.agent.begin(), "done")
        w.agent.end_turn()
        w.manager.reap(w.clock.now_ms() + 10**9)
    notices = [event for event in w.hub.events if "cannot be held" in str(event.properties)]
    assert len(notices) == told
    assert all("`read`. Reads are not seen." in str(event.properties) for event in notices)


async def test_default_rules_follow_the_agents_folder_of_the_server_and_of_the_session(w: World) -> None:
    w.agents.give_rules("one", (Rule("external_directory", "~/.own/*", "allow"),), AgentFolder("~/.own", "OWN_DIR"))
    w.agents.variables["OWN_DIR"] = "/srv/server"
    session = w.session()
    await ask(w, session)
    state = await w.manager.state(session)

    def actions() -> list[str | None]:
        policy = w.manager.policy(state)
        return [policy.action(Access("external_directory", (f"/srv/{name}/*",))) for name in ("server", "session")]

    assert actions() == ["allow", "ask"]
    state.variables["OWN_DIR"] = "/srv/session"
    assert actions() == ["ask", "allow"]
    w.agent.end_turn()


class SlowPlace:
    """A place whose links can be followed only when `let_go` is set; `wants_file` is set as soon as it is asked."""

    def __init__(self, w: World) -> None:
        self.let_go, self.wants_file = threading.Event(), threading.Event()

        async def find_place(directory: str) -> Place:
            return Place(directory, resolve=self.resolve)

        w.manager.deps = replace(w.manager.deps, find_place=find_place)

    def resolve(self, path: str) -> str:
        """Nothing here is a link."""
        self.wants_file.set()
        assert self.let_go.wait(LOOKUP_WAIT_S)
        return path


LOOKUP_WAIT_S = 10


async def wait_until(w: World, happened: Callable[[], object]) -> None:
    async with asyncio.timeout(LOOKUP_WAIT_S):
        while not happened():
            await w.settle()


async def test_files_are_looked_at_while_the_loop_goes_on(w: World) -> None:
    place, session = SlowPlace(w), w.session()
    w.rules.append(Rule("bash", "rm *", "deny"))
    await ask(w, session)
    denied = w.agent.ask("c1", "bash", command="rm x")
    asked = w.agent.ask("c2", "bash", command="ls x")
    await wait_until(w, place.wants_file.is_set)
    assert (permissions(w.manager), w.agent.commands[1:]) == ([], []), "nothing is decided before it is known what is touched"
    place.let_go.set()
    await wait_until(w, lambda: permissions(w.manager))
    assert [c.permission_id for c in w.agent.commands if isinstance(c, PermissionReply)] == [denied]
    assert [wire["id"] for wire in permissions(w.manager)] == [asked]
    w.manager.requests.reply_permission(asked, "once")
    w.agent.end_turn()


@pytest.mark.parametrize("line", ["grep -rn x .", "cd src && rg x", "cp -a src ../out", "tar cf a.tar src"])
async def test_a_line_that_shows_a_folder_is_asked_about_with_the_files_in_it_that_a_rule_forbids(
    w: World, tmp_path: Path, line: str
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x")

    async def find_place(directory: str) -> Place:
        return Place(str(tmp_path), resolve=os.path.realpath, is_folder=os.path.isdir)

    w.manager.deps = replace(w.manager.deps, find_place=find_place)
    w.rules += [Rule("*", "*", "allow"), Rule("read", "*.env", "deny")]
    await ask(w, w.session())
    allowed = w.agent.check("c1", "bash", command=line)
    await wait_until(w, lambda: allowed in w.agent.proceeded)
    (tmp_path / "src" / ".env").write_text("x")
    w.agent.check("c2", "bash", command=line)
    await wait_until(w, lambda: permissions(w.manager))
    assert [(wire["permission"], wire["patterns"]) for wire in permissions(w.manager)] == [("read", ["src/.env"])]
    w.agent.end_turn()


class Plugins:
    """Plugins that say the same of each call."""

    def __init__(self, w: World, verdict: PluginVerdict) -> None:
        SlowPlace(w).let_go.set()
        self._verdict = verdict
        setups: Any = w.manager.deps.setups
        setups.plugins = self

    async def before(self, *_: object, **__: object) -> PluginVerdict:
        return self._verdict

    async def variables(self, *_: object, **__: object) -> dict[str, str]:
        return {}

    def idle_hooks(self, *_: object, **__: object) -> tuple[str, ...]:
        return ("chat.params",)

    def wake(self, *_: object, **__: object) -> None: ...

    def server(self, *_: object, **__: object) -> None: ...


@pytest.mark.parametrize("allowed", [(), (Rule("*", "*", "allow"),), (Rule("bash", "*", "allow"), Rule("plugin", "*", "allow"))])
async def test_a_person_is_asked_before_a_call_that_a_missing_plugin_should_have_seen(
    w: World, allowed: tuple[Rule, ...]
) -> None:
    """Whatever is allowed: an allow for everything, and one that is not the person's own, say nothing about it."""
    Plugins(w, PluginVerdict(missing=("guard",)))
    w.rules += [*allowed, Rule("edit", "*", "allow")]
    session = w.session()
    await ask(w, session)
    asked = w.agent.check("c1", "bash", command="rm x")
    await wait_until(w, lambda: permissions(w.manager))
    [wire] = permissions(w.manager)
    assert (wire["permission"], wire["patterns"]) == ("plugin", ["guard"])
    w.manager.requests.reply_permission(wire["id"], "reject", "no")
    assert w.agent.replies() == [(asked, "reject")]
    w.agent.end_turn()


async def test_an_always_goes_on_without_the_plugin_and_reads_are_not_asked(w: World) -> None:
    Plugins(w, PluginVerdict(missing=("guard",)))
    w.rules.append(Rule("*", "*", "allow"))
    session = w.session()
    await ask(w, session)
    read = w.agent.ask("c1", "read", filePath="/p/a")
    await wait_until(w, w.agent.replies)
    w.agent.ask("c2", "bash", command="ls")
    await wait_until(w, lambda: permissions(w.manager))
    w.manager.requests.reply_permission(permissions(w.manager)[0]["id"], "always")
    later = w.agent.ask("c3", "bash", command="ls")
    await wait_until(w, lambda: len(w.agent.replies()) == 3)
    assert [decision for _, decision in w.agent.replies()] == ["accept"] * 3
    assert (w.agent.replies()[0][0], w.agent.replies()[-1][0]) == (read, later)
    w.agent.end_turn()


async def test_a_call_that_is_withdrawn_while_files_are_looked_at_is_never_shown(w: World) -> None:
    place, session = SlowPlace(w), w.session()
    await ask(w, session)
    withdrawn = w.agent.ask("c1", "bash", command="ls x")
    asked = w.agent.ask("c2", "bash", command="ls y")
    await wait_until(w, place.wants_file.is_set)
    data = PermissionData(permission_id=withdrawn, action="bash", status="reject")
    w.agent.says(Fact(EventType.PERMISSION_RESOLVED, data))
    place.let_go.set()
    await wait_until(w, lambda: permissions(w.manager))
    assert [wire["id"] for wire in permissions(w.manager)] == [asked]
    assert w.hub.kinds(session).count("permission.asked") == 1
    assert "permission.replied" not in w.hub.kinds(session)
    w.manager.requests.reply_permission(asked, "once")
    w.agent.end_turn()


async def test_a_turn_that_ends_while_files_are_looked_at_leaves_nothing_open(w: World) -> None:
    place, session = SlowPlace(w), w.session()
    await ask(w, session)
    w.agent.ask("c1", "bash", command="ls x")
    await wait_until(w, place.wants_file.is_set)
    w.agent.end_turn()
    place.let_go.set()
    await ask(w, session, "again")
    later = w.agent.ask("c2", "bash", command="ls y")
    await wait_until(w, lambda: permissions(w.manager))
    assert [wire["id"] for wire in permissions(w.manager)] == [later]
    w.manager.requests.reply_permission(later, "once")
    w.agent.end_turn()


@pytest.mark.parametrize("trouble", ["slow", "broken"])
async def test_a_call_whose_files_cannot_be_looked_at_is_rejected(
    w: World, trouble: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "LOOKUP_S", 0.05)
    place, session = SlowPlace(w), w.session()
    if trouble == "broken":
        place.let_go.set()
        monkeypatch.setattr(requests, "accesses_of", lambda *_: 1 / 0)
    w.rules.append(Rule("*", "*", "allow"))
    await ask(w, session)
    asked = w.agent.check("c1", "bash", command="ls x")
    await wait_until(w, lambda: any(isinstance(c, PermissionReply) for c in w.agent.commands))
    place.let_go.set()
    assert PermissionReply(asked, "reject", requests.NOT_LOOKED_UP) in w.agent.commands
    w.agent.end_turn()


async def ends(w: World, session: str) -> list[str]:
    """Why each turn ended."""
    events = await w.store.events(session)
    turns = [event.data.metadata or {} for event in events if isinstance(event.data, TurnData) and event.data.phase == "ended"]
    return [turn["reason"] for turn in turns]


REFUSALS = [
    ("reject", None, None, True),
    ("reject", "", None, True),
    ("reject", "use printf", None, False),
    ("once", None, None, False),
    ("reject", None, OpenCodeConfig({"experimental": {"continue_loop_on_deny": True}}), False),
]
"""A person's answer, its words, the configuration -> whether the agent is to end its turn."""


@pytest.mark.parametrize(("reply", "words", "config", "stops"), REFUSALS)
async def test_a_refusal_without_words_ends_the_turn(
    w: World, reply: Literal["once", "reject"], words: str | None, config: OpenCodeConfig | None, stops: bool
) -> None:
    w.config = config
    session = w.session()
    await ask(w, session)
    message = w.agent.begin()
    w.agent.call(message, "c1")
    w.manager.requests.reply_permission(w.agent.ask("c1"), reply, words)
    [answer] = [command for command in w.agent.commands if isinstance(command, PermissionReply)]
    assert answer.stops == stops
    w.agent.result("c1", failed=reply == "reject")
    w.agent.says(Signal(Input.FAILED, error={"message": "Interrupted", "code": "aborted"}, aborted=True))
    assert await ends(w, session) == ["completed" if stops else "error"], "a turn that a person has ended so is done"
    assert w.hub.kinds(session).count("session.idle") == 1


async def test_the_next_turn_can_be_aborted_after_a_refusal(w: World) -> None:
    session = w.session()
    await ask(w, session)
    refused = w.agent.question()
    w.manager.requests.reply_question(refused, None)
    assert QuestionReply(refused, None, stops=True) in w.agent.commands
    w.agent.end_turn()
    await ask(w, session, "again")
    w.agent.says(Signal(Input.FAILED, error={"message": "Interrupted", "code": "aborted"}, aborted=True))
    assert await ends(w, session) == ["completed", "error"]


async def test_a_refusal_of_a_subagents_call_ends_no_turn(w: World) -> None:
    session = w.session()
    await ask(w, session)
    message = w.agent.begin()
    w.agent.call(message, "t1", "task", arguments='{"description": "look", "subagent_type": "general"}')
    w.agent.child("t1")
    w.manager.requests.reply_permission(w.agent.ask("c1", child="t1"), "reject")
    [answer] = [command for command in w.agent.commands if isinstance(command, PermissionReply)]
    assert not answer.stops
    w.agent.says(Signal(Input.DONE, child="t1"))
    w.agent.end_turn()


async def test_a_guard_sees_a_call_again_that_is_asked_about_with_another_input(w: World) -> None:
    shown = list[str]()

    class Guard:
        async def before(self, directory: str, call: dict[str, Any], *, with_project: bool) -> PluginVerdict:
            shown.append(call["args"]["command"])
            return PluginVerdict("No removals." if call["args"]["command"].startswith("rm") else "")

    SlowPlace(w).let_go.set()
    w.rules.append(Rule("*", "*", "allow"))
    session = w.session()
    await ask(w, session)
    w.manager.deps.setups.plugins = cast("Any", Guard())
    asked = [w.agent.ask("c1", "bash", command=command) for command in ("ls", "ls", "rm x")]
    await wait_until(w, lambda: len(w.agent.replies()) == len(asked))
    assert (shown, [decision for _, decision in w.agent.replies()]) == (["ls", "rm x"], ["accept", "accept", "reject"])
    w.agent.end_turn()
