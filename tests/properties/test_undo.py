"""Whatever commands do to files, turn by turn: an undo to any turn, and a redo, give back exactly what was there.

Bytes, the executable bit, links, empty and binary files, names with spaces and of all scripts, folders that become files.
The whole server takes part: commands run by POST /session/{id}/shell, undo and redo over HTTP.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.live import Live, live
from tests.unit.host.git.test_snapshot import state

NAMES = ("a", "b.txt", "d", "d/a", "d/e/b", "e/\u00fc \u65e5\u672c.txt", "x y")
CONTENTS = ("", "one\n", "one\r\ntwo", "\0\u00ff", "same\n" * 50)

name = st.sampled_from(NAMES)
operation = st.one_of(
    st.tuples(st.just("write"), name, st.sampled_from(CONTENTS)),
    st.tuples(st.just("delete"), name, st.none()),
    st.tuples(st.just("rename"), name, name),
    st.tuples(st.just("chmod"), name, st.sampled_from((0o644, 0o755))),
    st.tuples(st.just("link"), name, name),
)
turns = st.lists(st.lists(operation, max_size=4), min_size=1, max_size=4)
moves = st.lists(st.one_of(st.integers(0, 3), st.just("redo")), min_size=1, max_size=4)

SCRIPT = """
import json, os, pathlib, shutil, sys
def clear(path):
    if path.is_dir() and not path.is_symlink(): shutil.rmtree(path)
    else: path.unlink(missing_ok=True)
def room(path):
    for folder in reversed(path.parents):
        if str(folder) != "." and (folder.is_symlink() or folder.is_file()): folder.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
for what, name, value in json.loads(sys.argv[1]):
    path = pathlib.Path(name)
    if what == "write":
        room(path); clear(path); path.write_bytes(value.encode())
    elif what == "delete":
        if os.path.lexists(path): clear(path)
    elif what == "rename" and path.is_file() and not path.is_symlink() and value != name:
        data = path.read_bytes(); mode = path.stat().st_mode
        path.unlink(); path = pathlib.Path(value); room(path); clear(path); path.write_bytes(data); path.chmod(mode)
    elif what == "chmod" and path.is_file() and not path.is_symlink(): path.chmod(value)
    elif what == "link": room(path); clear(path); path.symlink_to(value)
"""


async def run(server: Live, session: str, operations: list[Any]) -> None:
    """One turn."""
    argument = json.dumps(operations).replace("'", "'\\''")
    command = f"{sys.executable} -I '{server.directory.parent / 'script.py'}' '{argument}'"
    await server.api.post(f"/session/{session}/shell", {"agent": "build", "command": command}, status=200)


async def play(folder: Path, all_turns: list[Any], all_moves: list[Any]) -> None:
    """The turns, then the undos and redos, each with its check; then one more turn, which makes the last undo final."""
    (folder / "script.py").write_text(SCRIPT)
    async with live(folder) as server:
        session = await server.session()
        states: list[Any] = [state(server.directory)]
        for operations in all_turns:
            await run(server, session, operations)
            states.append(state(server.directory))
        users = [m["info"]["id"] for m in await server.messages(session) if m["info"]["role"] == "user"]
        expected, undone = states[-1], None
        for move in all_moves:
            if move == "redo":
                await server.api.post(f"/session/{session}/unrevert", status=200)
                expected, undone = states[-1], None
            else:
                undone = min(move, len(users) - 1)
                await server.api.post(f"/session/{session}/revert", {"messageID": users[undone]}, status=200)
                expected = states[undone]
            assert state(server.directory) == expected
        await run(server, session, [])
        assert state(server.directory) == expected
        left = [m["info"]["id"] for m in await server.messages(session) if m["info"]["role"] == "user"]
        assert left[:-1] == (users if undone is None else users[:undone])


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(all_turns=turns, all_moves=moves)
def test_undo_and_redo_are_exact(all_turns: list[Any], all_moves: list[Any]) -> None:
    folder = Path(tempfile.mkdtemp(dir=os.environ.get("TMPDIR")))
    try:
        asyncio.run(play(folder, all_turns, all_moves))
    finally:
        shutil.rmtree(folder)
