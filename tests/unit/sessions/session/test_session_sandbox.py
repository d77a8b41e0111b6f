"""A host that a rule asks for is a permission request of the session."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

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
    return asyncio.ensure_future(w.agent.ask_host(address))


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
