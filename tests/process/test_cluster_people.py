"""People at several servers of a cluster: what one of them uses at one server counts at the others too."""

from __future__ import annotations

import base64
import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.process.test_serve import START_S
from tests.process.test_two_servers import Server, until

PASSWORD = "correct-horse"
NODE_SETTINGS = {"OPENCODE_SERVER_PASSWORD": PASSWORD}

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]


def ask(node: Server, password: str, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Status and JSON of an answer to who has a password."""
    login = base64.b64encode(f"opencode:{password}".encode()).decode()
    headers = {"Content-Type": "application/json", "Authorization": f"Basic {login}"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(
            urllib.request.Request(node.url + path, data, headers, method=method), timeout=START_S
        ) as answer:
            text = answer.read()
            return answer.status, json.loads(text) if text else None
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read() or b"null")


def prompt(node: Server, password: str, session: str, text: str) -> tuple[int, Any]:
    return ask(node, password, "POST", f"/session/{session}/prompt_async", {"parts": [{"type": "text", "text": text}]})


def test_a_quota_counts_what_a_person_uses_at_all_servers(two_nodes: tuple[Server, Server]) -> None:
    one, two = two_nodes
    person = {"name": "wim", "role": "work", "limits": {"max_running": 1, "max_cost_day": 1e-9}}
    status, answer = ask(one, PASSWORD, "POST", "/api/people", person)
    assert status == 200, answer
    wim = answer["token"]
    until(lambda: ask(two, wim, "GET", "/session")[0] == 200)
    busy, idle = (ask(node, wim, "POST", "/session", {})[1]["id"] for node in (one, two))

    def usage(node: Server) -> dict[str, Any]:
        return ask(node, PASSWORD, "GET", "/api/people")[1][0]["usage"]

    assert prompt(one, wim, busy, "hang")[0] == 204
    until(lambda: usage(two)["running"] == 1)
    status, answer = prompt(two, wim, idle, "echo one")
    assert (status, "1 agents work for wim already" in str(answer)) == (429, True), answer
    assert prompt(two, PASSWORD, idle, "echo two")[0] == 204, "who has the password has no quota"
    assert ask(two, wim, "POST", f"/session/{busy}/abort")[0] == 200
    until(lambda: usage(two)["running"] == 0)
    until(lambda: usage(two)["cost_day"] > 0)
    status, answer = prompt(two, wim, idle, "echo three")
    assert (status, "USD for wim today" in str(answer)) == (429, True), answer
