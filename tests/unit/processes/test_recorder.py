"""Raw traffic is written down in the form of the recordings, readable by nobody else."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.live import live


async def test_a_turn_leaves_a_recording(tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    async with live(tmp_path, record_dir=folder) as server:
        session = await server.session()
        await server.ask(session, "echo hello there")
    found = [[json.loads(line) for line in path.read_text().splitlines()] for path in folder.iterdir()]
    [rows] = [rows for rows in found if any("hello there" in str(row) for row in rows)]
    assert (rows[0]["agent"], rows[0]["cwd"]) == ("mock", str(server.directory))
    assert {row["dir"] for row in rows[1:]} == {"in", "out", "exit"}
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())


async def test_a_folder_that_cannot_be_written_stops_no_agent(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    async with live(tmp_path, record_dir=tmp_path / "file" / "below") as server:
        answer = await server.ask(await server.session(), "echo fine")
    assert answer["info"]["finish"] == "stop"
