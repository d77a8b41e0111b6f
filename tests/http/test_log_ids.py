"""Log lines carry the ids of session, turn and agent that they are about."""

from __future__ import annotations

from pathlib import Path

import structlog

from tests.support.live import live, prompt_body


async def test_lines_of_a_turn_have_its_ids(tmp_path: Path) -> None:
    processors = [structlog.contextvars.merge_contextvars, structlog.testing.LogCapture()]
    before = structlog.get_config()["processors"]
    structlog.configure(processors=processors)
    try:
        async with live(tmp_path) as server:
            session = await server.session()
            await server.api.post(f"/session/{session}/message", prompt_body("crash"), status=200)
    finally:
        structlog.configure(processors=before)
    [exited] = [entry for entry in processors[1].entries if entry["event"] == "agent.exited"]
    assert exited["session_id"] == session
    assert exited["agent"] == "mock"
    assert exited["turn"].startswith("trn_")
    [failed] = [entry for entry in processors[1].entries if entry["event"] == "turn.failed"]
    assert (failed["log_level"], failed["session_id"]) == ("warning", session)
    assert all(entry.get("turn") != "" for entry in processors[1].entries)
