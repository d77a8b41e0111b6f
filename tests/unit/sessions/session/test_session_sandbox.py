"""A host that a rule asks for is a permission request of the session."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shim.agents import sandboxes
from shim.processes.sandbox import Tool
from shim.sessions.prompts.context import missed_context
from shim.sessions.session import session_sandbox
from shim.sessions.session.session_sandbox import ASK_S, HOSTS, NO_ANSWER, NO_TURN, REJECTED, TOO_MANY, TURN_OVER
from tests.support.opencode1_views import permissions, statuses
from tests.support.scripted_model import World, ask
from universal.codec import PermissionReply
from universal.permissions import Rule
from universal.unattended_policy import NOT_ALLOWED, parse

HOST = "https://docs.example/"


def request(w: World, address: str = HOST) -> asyncio.Future[str]:
    """The proxy asks."""
    return asyncio.ensure_future(w.agent.judge_host(address, ""))


async def open_request(w: World) -> dict[str, Any]:
    await w.settle()
    [request] = permissions(w.manager)
    return request


async def busy(w: World, **more: Any) -> str:
    session = w.session()
    await ask(w, session, **more)
    w.rules.append(Rule("webfetch", "*", "ask"))
    return session


async def test_a_host_is_asked_for_by_its_address_and_one_answer_counts_for_the_turn(w: World) -> None:
    await busy(w)
    first, second = request(w), request(w)
    shown = await open_request(w)
    assert (shown["permission"], shown["patterns"], shown["always"]) == ("webfetch", [HOST], [f"{HOST}*"])
    w.manager.requests.reply_permission(shown["id"], "once")
    assert [await first, await second, await request(w)] == ["", "", ""]
    assert not permissions(w.manager)
    assert not [command for command in w.agent.commands if isinstance(command, PermissionReply)], "it is no call of the agent"
    w.agent.end_turn()
    await ask(w, shown["sessionID"])
    again = request(w)
    w.manager.requests.reply_permission((await open_request(w))["id"], "reject", "not that one")
    assert await again == "not that one"
    assert await request(w) == "not that one", "a tool that tries again asks nobody"


async def test_a_refusal_without_words_leaves_the_turn_to_the_agent(w: World) -> None:
    session = await busy(w)
    answer = request(w)
    w.manager.requests.reply_permission((await open_request(w))["id"], "reject")
    assert await answer == REJECTED
    assert session in statuses(w.manager)
    w.agent.end_turn()
    await w.settle()
    assert w.hub.kinds(session).count("session.idle") == 1


async def test_always_counts_for_the_host_from_then_on(w: World) -> None:
    session = await busy(w)
    answer = request(w)
    w.manager.requests.reply_permission((await open_request(w))["id"], "always")
    assert await answer == ""
    w.agent.end_turn()
    await ask(w, session)
    assert await request(w) == ""
    other = request(w, "https://docs.example.evil.example/")
    assert (await open_request(w))["patterns"] == ["https://docs.example.evil.example/"]
    other.cancel()


async def test_a_rule_that_denies_by_now_refuses_it(w: World) -> None:
    await busy(w)
    w.rules.append(Rule("webfetch", "https://docs.example/*", "deny"))
    assert "rule" in await request(w)
    assert not permissions(w.manager)


async def test_an_abort_or_the_end_of_the_turn_refuses_what_waits(w: World) -> None:
    session = await busy(w)
    answer = request(w)
    await open_request(w)
    (await w.manager.actor(session)).abort()
    assert await answer == TURN_OVER
    w.agent.end_turn()
    await w.settle()
    assert not permissions(w.manager)
    assert session not in statuses(w.manager)
    assert await request(w) == NO_TURN
    await ask(w, session)
    answer = request(w)
    await open_request(w)
    w.agent.end_turn()
    assert await answer == TURN_OVER
    assert not permissions(w.manager)


async def test_the_wait_for_an_answer_has_an_end(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ASK_S < 300
    session = await busy(w)
    monkeypatch.setattr(session_sandbox, "ASK_S", 0.01)
    assert await request(w) == NO_ANSWER
    assert not permissions(w.manager)
    assert session in statuses(w.manager)


async def test_where_only_rules_may_allow_a_host_is_refused_at_once(w: World) -> None:
    await busy(w, unattended=parse("rules"))
    assert await request(w) == NOT_ALLOWED


async def test_the_hosts_that_a_person_is_asked_for_are_bounded(w: World) -> None:
    await busy(w)
    waiting = [request(w, f"https://h{n}.example/") for n in range(HOSTS)]
    await w.settle()
    assert await request(w) == TOO_MANY
    assert len(permissions(w.manager)) == HOSTS
    for task in waiting:
        task.cancel()


async def test_the_card_of_a_call_says_what_the_sandbox_has_refused_it(w: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_tool(path: str) -> Tool:
        return Tool("/usr/bin/bwrap")

    monkeypatch.setattr(sandboxes, "find_tool", find_tool)
    w.rules += [Rule("edit", "*", "deny"), Rule("webfetch", "*", "deny")]
    w.agents.enclose("one", "project")
    session = w.session()
    await ask(w, session)
    async with asyncio.timeout(5):
        while not w.agents.spawned:  # a thread looks whether there is a tool
            await asyncio.sleep(0.005)
    message = w.agent.begin()
    w.agent.call(message, "c1", arguments='{"command": "curl http://evil.example; touch x"}')
    assert await w.agent.judge_host("http://evil.example/", "no rule allows it") == "no rule allows it"
    w.agent.result("c1", "touch: cannot touch 'x': Read-only file system")
    w.agent.call(message, "c2")
    w.agent.result("c2", "fine")
    w.agent.call(message, "c3", name="Read", arguments='{"file_path": "log"}')
    w.agent.result("c3", "touch: cannot touch 'x': Read-only file system")
    w.agent.complete(message, "done")
    w.agent.end_turn()
    await w.settle()
    parts = [event.properties["part"] for event in w.hub.events if event.type == "message.part.updated"]
    first, second, page = [p["state"] for p in parts if p["type"] == "tool" and p["state"]["status"] == "completed"]
    assert "[sandbox] `x` is read-only in the sandbox: your rule `edit` denies `*`." in first["output"]
    assert "[sandbox] The sandbox did not reach evil.example: no rule allows it." in first["metadata"]["output"]
    assert second["output"] == "fine"
    assert "[sandbox]" not in page["output"], "it is the text of a file"
    told = missed_context((await w.manager.actor(session)).main.session, "two", ()).text
    assert "Read-only file system" in told and "[sandbox]" not in told, "no agent is told more than the kernel says"
    assert w.manager.deps.refusal_counts == {"edit": 1, "host": 1, "read": 0, "external_directory": 0, "protected": 0}
