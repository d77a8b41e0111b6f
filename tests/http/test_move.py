"""The TUI's "Move session": the same as on OpenCode 2's wire (tests/http/opencode2/test_move.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.live import Live

PATH = "/experimental/control-plane/move-session"


def body(session: str, directory: Path, **more: Any) -> dict[str, Any]:
    return {"sessionID": session, "destination": {"directory": str(directory)}, **more}


async def test_a_moved_session_goes_on_there(server: Live, tmp_path: Path) -> None:
    session = await server.session()
    await server.ask(session, "echo before")
    other = tmp_path / "other"
    other.mkdir()
    await server.api.post(PATH, body(session, other, moveChanges=False), status=204)
    info = (await server.api.get(f"/session/{session}", status=200)).body
    assert info["directory"] == str(other)
    answer = await server.ask(session, "remember")
    assert answer["info"]["path"]["cwd"] == str(other)
    assert "told what others said" in " ".join(part.get("text", "") for part in answer["parts"])
    assert [m["info"]["role"] for m in await server.messages(session)] == ["user", "assistant"] * 2


async def test_impossible_moves_are_refused(server: Live, tmp_path: Path) -> None:
    session = await server.session()
    for given, why in (
        (body(session, tmp_path / "none"), "There is no directory"),
        (body(session, tmp_path, moveChanges=True), "stay where they are"),
        (body("ses_none", tmp_path), "Session not found"),
    ):
        refused = (await server.api.post(PATH, given, status=400)).body
        assert refused["name"] == "MoveSessionError"
        assert why in refused["data"]["message"]
    assert (await server.api.get(f"/session/{session}", status=200)).body["directory"] == str(server.directory)
