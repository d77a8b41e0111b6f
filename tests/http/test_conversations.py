"""Conversations of Claude Code's own program over HTTP: which files are read, and which are not."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from shim.sessions.transfer import conversations
from tests.support.universal import Face

IDS = [f"0000000{number}-0000-0000-0000-000000000000" for number in range(4)]


def write(home: Path, id_: str, directory: Path, *, folder: str = "p") -> Path:
    """One prompt and its answer, as Claude Code 2.1.330 stores them."""
    place = {"sessionId": id_, "cwd": str(directory), "timestamp": "2026-11-28T10:00:00.000Z", "isSidechain": False}
    said = {"role": "assistant", "id": "m", "model": "m", "content": [{"type": "text", "text": "Yes."}]}
    rows = [
        {"type": "user", "uuid": "a", "parentUuid": None, "message": {"role": "user", "content": "is it?"}, **place},
        {"type": "assistant", "uuid": "b", "parentUuid": "a", "message": said, **place},
    ]
    file = home / ".claude" / "projects" / folder / f"{id_}.jsonl"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(map(json.dumps, rows)))
    return file


async def test_links_pipes_and_other_projects_are_not_read(v1: Face, tmp_path: Path) -> None:
    home = tmp_path / "home"
    here = write(home, IDS[0], v1.live.directory)
    write(home, IDS[1], tmp_path / "elsewhere")
    secret = write(tmp_path / "outside", IDS[2], v1.live.directory)
    here.with_name(secret.name).symlink_to(secret)
    here.with_name(f"{'f' * 8}.jsonl").symlink_to(tmp_path / "nothing")
    os.mkfifo(here.with_name(f"{IDS[3]}.jsonl"))
    rows = (await v1.call("list_stored", agent="claude"))["sessions"]
    assert [(row["id"], row["title"]) for row in rows] == [(IDS[0], "is it?")]
    for id_ in (*IDS[1:], "..%2F..%2Fsecret", "*" * 8):
        await v1.call("open_stored", status=400, agent="claude", id=id_)


async def test_two_that_open_one_at_once_get_one_session(v1: Face, tmp_path: Path) -> None:
    write(tmp_path / "home", IDS[0], v1.live.directory)
    answers = await asyncio.gather(*(v1.call("open_stored", agent="claude", id=IDS[0]) for _ in range(3)))
    assert len({answer["sessionId"] for answer in answers}) == 1
    (listed,) = (await v1.call("list_sessions"))["sessions"]
    assert (listed["nativeSessionId"], listed["resumeCommand"]) == (IDS[0], f"claude --resume {IDS[0]}")
    assert len((await v1.live.api.get("/session", status=200)).body) == 1


async def test_a_conversation_that_is_too_long_is_refused_whole(
    v1: Face, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "home", IDS[0], v1.live.directory)
    monkeypatch.setattr(conversations, "FILE_BYTES", 100)
    answer = await v1.call("open_stored", status=400, agent="claude", id=IDS[0])
    assert "at most 100 are read" in json.dumps(answer)
    assert (await v1.live.api.get("/session", status=200)).body == []
