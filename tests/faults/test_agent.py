"""What goes wrong with an agent's process, and what the person sees: `docs/faults.md`, row by row.

Each row, on the whole server over HTTP and SSE: exactly one idle, no process left, the other session untouched.
"""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import Live, live

REPO = Path(__file__).resolve().parents[2]
FAKE = REPO / "tests" / "fakes" / "faulty_acp.py"
PROVIDER = "faulty"
TURN_S = 50.0

ANSWER, ERROR, ABORT = "the answer", "an error", "busy until you abort"

ROWS: dict[str, tuple[str, str]] = {
    "dies at the start": (ERROR, "cannot start: no licence"),
    "hangs at the start": (ABORT, ""),
    "killed": (ERROR, "signal 9"),
    "segfault": (ERROR, "signal 11"),
    "exit 0": (ERROR, "exit code 0"),
    "exit 1": (ERROR, "the disk is made of cheese"),
    "half a line": (ERROR, "exit code 0"),
    "closes stdout": (ERROR, "exited in the middle of the turn"),
    "child holds the pipe": (ERROR, "exit code 0"),
    "child stays": (ANSWER, "last words"),
    "hangs": (ABORT, ""),
    "hangs, ignores SIGTERM": (ABORT, ""),
    "hangs after the turn": (ANSWER, "last words"),
    "garbage": (ANSWER, "last words"),
    "flood of lines": (ANSWER, "last words"),
    "one endless line": (ANSWER, "last words"),
    "huge output": (ANSWER, "bytes were left out here"),
    "stderr flood": (ANSWER, "last words"),
    "invalid UTF-8": (ANSWER, "last words"),
    "lone surrogates": (ANSWER, "half \ufffd a pair"),
    "deep JSON": (ANSWER, "last words"),
    "wrong types": (ANSWER, "last words"),
}
"""Fault -> what the person sees, and words of it."""
HIDDEN = {"half a line": "session/upd", "garbage": "Segmentation fault? No.", "one endless line": "xxxx", "deep JSON": "[[[["}
"""What nobody is shown as if the agent had said it."""
UNPARSED = {"garbage", "one endless line", "deep JSON", "half a line"}
"""What the journal keeps as said but not understood."""


def left(folder: Path) -> list[int]:
    """Processes with this folder in their command line; zombies have none."""
    found: list[int] = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            command = (place / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in command and b"faulty_acp" in command:
            found.append(int(place.name))
    return found


async def collect(server: Live, session: str, other: str, kind: str) -> list[dict[str, Any]]:
    """All events from the prompt until after the idle."""
    seen: list[dict[str, Any]] = []
    async with server.api.stream("/event") as events, asyncio.timeout(TURN_S):
        body = {"parts": [{"type": "text", "text": "go"}], "model": {"providerID": PROVIDER, "modelID": "default"}}
        await server.api.post(f"/session/{session}/prompt_async", body, status=204)
        if kind == ABORT:
            seen += await events.until(lambda event: event["type"] == "session.status")
            # Others work meanwhile.
            await server.ask(other, "echo meanwhile")
            await server.api.post(f"/session/{session}/abort", status=200)
        seen += await events.until(lambda e: e["type"] == "session.idle" and e["properties"]["sessionID"] == session, TURN_S)
        # What a further request causes comes after everything of the turn.
        await server.api.patch(f"/session/{session}", {"title": "over"}, status=200)
        seen += await events.until(lambda e: e["type"] == "session.updated" and e["properties"]["info"]["title"] == "over")
    return [event for event in seen if event["properties"].get("sessionID") == session]


@pytest.mark.parametrize("fault", ROWS)
async def test_fault(tmp_path: Path, fault: str) -> None:
    kind, words = ROWS[fault]
    agent = {"command": [sys.executable, str(FAKE), fault, str(tmp_path)]}
    async with live(tmp_path, agents={PROVIDER: agent}, abort_timeout_s=1.0) as server:
        session, other = await server.session(), await server.session()
        events = await collect(server, session, other, kind)
        assert [event["type"] for event in events].count("session.idle") == 1
        errors = [str(event["properties"].get("error")) for event in events if event["type"] == "session.error"]
        told = str(await server.messages(session)) + "".join(errors)
        assert words in told
        assert fault not in HIDDEN or HIDDEN[fault] not in told
        async with server.api.raw.get(f"/v1/sessions/{session}/events?limit=1000") as answer:
            kinds = {event["type"] for event in (await answer.json())["events"]}
        assert fault not in UNPARSED or "agent.unparsed" in kinds
        assert bool(errors) is (kind == ERROR) or kind == ABORT
        # Acknowledged and kept, and the server and the other session go on.
        assert len([message for message in await server.messages(session) if message["info"]["role"] == "user"]) == 1
        assert "You can go on" in str(await server.ask(other, "echo You can go on"))
    async with asyncio.timeout(TURN_S):
        while left(tmp_path):
            await asyncio.sleep(0)


def test_the_document_has_these_rows() -> None:
    text = (REPO / "docs" / "faults.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| `([^`]+)` \|[^|]*\| ([^|]*?) \|", text, re.M))
    assert list(rows) == list(ROWS)
    for fault, (kind, _) in ROWS.items():
        assert rows[fault].startswith(kind), fault
