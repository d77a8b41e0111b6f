"""A client attached to any server of a cluster works on a session of another one: what it asks, and what it sees."""

from __future__ import annotations

import json
import signal
import time
import urllib.request
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from shim.cluster.relay import TAKE_OVER_S
from tests.process.test_serve import SLACK_S, START_S
from tests.process.test_two_servers import Server, until

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

LOST_S = 15.0
"""Seconds within which a client sees that a killed server's turn has ended."""


def parts(text: str) -> dict[str, Any]:
    return {"parts": [{"type": "text", "text": text}]}


@contextmanager
def events_of(node: Server, path: str = "/event") -> Generator[list[dict[str, Any]]]:
    """The events that a client of this server gets, as they come."""
    events: list[dict[str, Any]] = []
    stream = urllib.request.urlopen(node.url + path, timeout=START_S)

    def read() -> None:
        try:
            for line in stream:
                if line.startswith(b"data: "):
                    events.append(json.loads(line[6:]))
        except (OSError, ValueError):
            pass  # closed at the end of the test

    thread = Thread(target=read, daemon=True)
    thread.start()
    until(lambda: events)
    yield events
    node.process.send_signal(signal.SIGTERM)  # ends the stream
    thread.join(START_S)
    stream.close()


def of_type(events: list[dict[str, Any]], type_: str, session: str) -> list[dict[str, Any]]:
    found = [event for event in events if event.get("type") == type_]
    return [event["properties"] for event in found if event["properties"].get("sessionID") == session]


def test_a_prompt_that_another_server_takes_is_no_error(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    session = owner.session()
    owner.prompt(session, "echo one")
    with events_of(other) as events:
        other.prompt(session, "echo two")
        until(lambda: of_type(events, "session.idle", session))
        assert of_type(events, "session.error", session) == []


def test_commands_at_another_server_are_done_by_the_owner(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    session = owner.session()
    other.prompt(session, "echo one")  # at once: the session is not in the other's list yet
    assert other.texts(session) == ["echo one", "one"]
    assert owner.texts(session) == ["echo one", "one"]
    assert other.ask("PATCH", f"/session/{session}", {"title": "Renamed"})[1]["title"] == "Renamed"
    assert [node.get(f"/session/{session}")["title"] for node in two_nodes] == ["Renamed", "Renamed"]
    status, answer = other.ask("POST", f"/api/session/{session}/prompt", {"text": "echo two"})
    assert status == 200, answer
    until(lambda: other.texts(session)[2:] == ["echo two", "two"])
    other.begin(session, "hang")
    until(lambda: owner.get("/session/status").get(session) == {"type": "busy"})
    assert other.ask("POST", f"/session/{session}/abort")[0] == 200
    assert session not in owner.get("/session/status")
    fork = other.ask("POST", f"/session/{session}/fork", {})[1]["id"]
    other.prompt(fork, "echo three")
    assert other.texts(fork)[-2:] == ["echo three", "three"]
    assert other.ask("DELETE", f"/session/{session}") == (200, True)
    assert [node.ask("GET", f"/session/{session}")[0] for node in two_nodes] == [404, 404]


def test_a_deletion_removes_the_sessions_below_at_all_servers(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    session = owner.session()
    until(lambda: session in other.titles())
    child = other.ask("POST", "/session", {"parentID": session})[1]["id"]
    grandchild = owner.ask("POST", "/session", {"parentID": child})[1]["id"]
    for node, below in ((other, child), (owner, grandchild)):
        node.prompt(below, "echo below")
        until(lambda: all(below in some.titles() for some in two_nodes))  # noqa: B023 - awaited at once
    assert other.ask("DELETE", f"/session/{session}") == (200, True)
    for id_ in (session, child, grandchild):
        assert [node.ask("GET", f"/session/{id_}")[0] for node in two_nodes] == [404, 404]


def test_a_client_reads_what_it_has_just_changed_through_another_server(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    session = owner.session()
    for number in range(30):
        other.prompt(session, f"echo {number}")
        assert other.texts(session)[-1] == str(number)


def test_an_error_of_the_owner_comes_back_with_its_status(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    session = owner.session()
    answers = [node.ask("POST", f"/session/{session}/prompt_async", {"parts": [{"type": "nothing"}]}) for node in two_nodes]
    assert answers[0][0] == 400
    assert answers[0] == answers[1]
    assert other.ask("POST", f"/session/{session}/fork", {"messageID": "msg_unknown"})[0] == 404


def test_a_permission_is_shown_and_answered_at_another_server(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    session = owner.session()
    until(lambda: session in other.titles())
    for path in ("/permission/{}/reply", "/api/session/" + session + "/permission/{}/reply"):
        owner.begin(session, "permission")
        until(lambda: other.get("/permission"))
        (request,) = other.get("/permission")
        assert request["sessionID"] == session
        body = {"decision": "once"} if "/api/" in path else {"reply": "once"}
        status, answer = other.ask("POST", path.format(request["id"]), body)
        assert status in (200, 204), answer
        until(lambda: session not in owner.get("/session/status"))
        assert other.get("/permission") == []
    assert owner.texts(session)[-1] == "Pushed."
    assert other.ask("POST", "/permission/per_unknown/reply", {"reply": "once"})[0] == 404


def test_a_client_of_another_server_sees_the_turn_as_it_happens(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    with events_of(other) as events, events_of(owner) as own:
        session = owner.session()
        for number in range(3):
            owner.begin(session, f"slow {number}")
            until(lambda: len(of_type(events, "session.idle", session)) == number + 1)  # noqa: B023 - awaited at once
        until(lambda: len(of_type(own, "session.idle", session)) == 3)
    for stream in (events, own):
        assert len(of_type(stream, "session.idle", session)) == 3
    texts = {node: "".join(e["delta"] for e in of_type(s, "message.part.delta", session)) for node, s in ((1, events), (2, own))}
    assert texts[1] == texts[2] != ""
    users = [
        {e["info"]["id"] for e in of_type(stream, "message.updated", session) if e["info"]["role"] == "user"}
        for stream in (events, own)
    ]
    assert users[0] == users[1]
    assert len(users[0]) == 3


def test_a_body_larger_than_a_message_of_nats_is_forwarded(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    session = owner.session()
    long = "x" * 3_000_000
    assert other.prompt(session, f"echo {long}")["parts"][-1]["type"]
    assert len(owner.texts(session)[0]) == len(long) + 5
    assert other.texts(session) == owner.texts(session)


def test_the_death_of_the_owner_during_a_command_is_a_clear_503(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    session = owner.session()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(other.ask, "POST", f"/session/{session}/message", parts("hang"))
        until(lambda: owner.get("/session/status").get(session) == {"type": "busy"})
        owner.kill()
        began = time.monotonic()
        status, answer = waiting.result(START_S)
    assert status == 503, answer
    assert "was lost while it worked on this request" in str(answer)
    status, answer = other.ask("POST", f"/session/{session}/message", parts("echo on"))
    assert status == 200, f"it waits for the server that takes the session over: {answer}"
    assert time.monotonic() - began < LOST_S
    assert session not in other.get("/session/status")
    assert other.texts(session)[-2:] == ["echo on", "on"]


def test_a_change_to_a_paused_owner_is_made_once_by_the_server_that_takes_over(two_nodes: tuple[Server, Server]) -> None:
    owner, other = two_nodes
    session = owner.session()
    until(lambda: session in other.titles())
    owner.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    status, answer = other.ask("PATCH", f"/session/{session}", {"title": "Renamed"})
    assert time.monotonic() - began < TAKE_OVER_S + SLACK_S
    assert (status, answer["title"]) == (200, "Renamed")
    with events_of(other) as events:
        owner.process.send_signal(signal.SIGCONT)
        assert owner.ask("PATCH", f"/session/{session}", {"title": "Renamed again"})[0] == 200
        until(lambda: titles_of(events, session)[-1:] == ["Renamed again"])
        assert titles_of(events, session) == ["Renamed again"], "the owner that went on has not made the change too"
        assert other.get(f"/session/{session}")["title"] == "Renamed again"


def titles_of(events: list[dict[str, Any]], session: str) -> list[str]:
    return [str(properties["info"]["title"]) for properties in of_type(events, "session.updated", session)]


def test_two_servers_do_not_forward_without_end(tmp_path: Path, two_nodes: tuple[Server, Server]) -> None:
    """A session whose owner has just lost it is answered once, not sent around."""
    owner, other = two_nodes
    session = owner.session()
    until(lambda: session in other.titles())
    assert other.ask("DELETE", f"/session/{session}")[0] == 200
    assert other.ask("DELETE", f"/session/{session}")[0] == 404
