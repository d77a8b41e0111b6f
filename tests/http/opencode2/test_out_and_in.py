"""Sessions as a whole: what is exported is imported elsewhere as it was; what was done in them is counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shim.http.services import Services
from shim.main.app import SERVICES
from tests.support.live import Live, live

KEPT = ("user", "assistant")


async def session_with_prompts(server: Live, *prompts: str) -> str:
    session = await server.session(title="Mine")
    for prompt in prompts:
        await server.ask(session, prompt)
    return session


async def export_session(server: Live, session: str, **params: str) -> dict[str, Any]:
    return (await server.api.get(f"/api/experimental/session/{session}/export", params=params, status=200)).body["data"]


def talk(document: dict[str, Any]) -> list[Any]:
    """The content of a message in OpenCode 2's form, without the fields that an import creates."""
    return [_message_content(one) for one in document["messages"] if one["type"] in KEPT]


def _message_content(message: dict[str, Any]) -> Any:
    if message["type"] == "user":
        return message["id"], message["text"], message.get("files", [])
    content = [
        (
            part["type"],
            part.get("text"),
            part.get("name"),
            part.get("state", {}).get("input"),
            part.get("state", {}).get("status"),
        )
        for part in message["content"]
    ]
    return message["id"], content, message["model"]["id"], message.get("error"), message["tokens"]["input"]


@pytest.mark.parametrize(
    "prompts", [("echo hello",), ("think", "tool"), ("edit", "failtool"), ("parallel", "subagent"), ("image",)]
)
async def test_out_and_in_again(server: Live, tmp_path: Path, prompts: tuple[str, ...]) -> None:
    session = await session_with_prompts(server, *prompts)
    document = await export_session(server, session)
    assert [one["type"] for one in document["messages"]].count("user") == len(prompts)
    (tmp_path / "other").mkdir()
    async with live(tmp_path / "other") as other:
        made = (await other.api.post("/api/experimental/session/import", document, status=200)).body["data"]
        assert (made["id"], made["title"]) == (session, "Mine")
        assert made["location"] == {"directory": str(other.directory)}
        assert talk(await export_session(other, session)) == talk(document)
        assert await other.ask(session, "echo and on") is not None


async def test_counts(server: Live) -> None:
    await session_with_prompts(server, "tool", "failtool")
    await session_with_prompts(server, "subagent")
    path = "/api/experimental/session/stats"
    found = (await server.api.get(path, params={"tools": "detail", "timezone": "Pacific/Auckland"}, status=200)).body["data"]
    assert (found["sessions"], found["prompts"], found["activeDays"], found["streak"]) == (2, 4, 1, 1)
    assert found["subagents"] == 1
    assert found["steps"] == sum(day["steps"] for day in found["activity"]) == sum(one["steps"] for one in found["models"])
    totals = found["tools"]["totals"]
    assert totals["failed"] == 1 and totals["calls"] == totals["succeeded"] + 1 and totals["unfinished"] == 0
    assert sum(row["calls"] for row in found["tools"]["usage"]) == totals["calls"]
    early = (await server.api.get(path, params={"to": "1000"}, status=200)).body["data"]
    assert (early["sessions"], early["steps"], early["tools"]) == (0, 0, {"mode": "none"})
    assert (await server.api.get(path, params={"timezone": "Nowhere/Land"}, status=400)).body["field"] == "timezone"
    assert (await server.api.get(path, params={"project": "none"}, status=200)).body["data"]["sessions"] == 0


async def test_counting_reads_a_session_once_for_each_state_of_it(server: Live) -> None:
    path = "/api/experimental/session/stats"
    sessions = [await session_with_prompts(server, "tool") for _ in range(3)]
    services: Services = server.api.raw.server.app[SERVICES]  # type: ignore[union-attr]
    assert services.opencode2 is not None
    for session in sessions:
        entry = services.sessions.index.find(session)
        assert entry is not None
        assert entry.actor is not None
        await entry.actor.close()
        entry.state = entry.actor = None  # as after a restart
    first = (await server.api.get(path, params={"tools": "detail"}, status=200)).body["data"]
    assert services.opencode2.counted.read == 3
    again = (await server.api.get(path, params={"tools": "detail"}, status=200)).body["data"]
    assert again["tools"] == first["tools"]
    assert services.opencode2.counted.read == 3
    await server.ask(sessions[0], "tool")
    more = (await server.api.get(path, params={"tools": "detail"}, status=200)).body["data"]
    assert services.opencode2.counted.read == 3, "a session that is loaded is counted from its model"
    assert more["tools"]["totals"]["calls"] == first["tools"]["totals"]["calls"] + 1
    await server.api.delete(f"/session/{sessions[2]}", status=200)
    fewer = (await server.api.get(path, params={"tools": "none"}, status=200)).body["data"]
    assert fewer["sessions"] == 2
