"""Attached files that are none: a pipe without a writer, a device, a name that no file system takes. Both wires."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.live import live

ANSWER_S = 5.0
"""A file that is read blockingly takes a thread of the server for good; ten of them all."""
THREADS = 40
"""More attachments than the server has threads."""


def pipe(folder: Path) -> str:
    os.mkfifo(folder / "pipe")
    return str(folder / "pipe")


def device(folder: Path) -> str:
    (folder / "null").symlink_to("/dev/null")  # and not /dev/zero: without the bound this test would take all memory
    return str(folder / "null")


def too_long(folder: Path) -> str:
    return f"{folder}/{'a' * 300}"


@pytest.mark.parametrize("make", [pipe, device, too_long])
async def test_an_attachment_that_is_no_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], str]) -> None:
    async with live(tmp_path) as server:
        path = make(tmp_path)
        session = await server.session()
        for mime in ("text/plain", "image/png"):
            part = {"type": "file", "mime": mime, "filename": "f", "url": f"file://{path}"}
            async with asyncio.timeout(ANSWER_S):
                await server.api.post(f"/session/{session}/message", {"parts": [part], "noReply": True}, status=200)
            told = str((await server.messages(session))[-1])
            assert "it is no regular file" in told or "File not found" in told
        body = {"text": "x", "files": [{"uri": f"file://{path}"}], "resume": False}
        async with asyncio.timeout(ANSWER_S):
            answer = await server.api.post(f"/api/session/{session}/prompt", body, status=400)
        assert "cannot be read" in answer.body["message"]


async def test_pipes_do_not_use_up_the_threads(tmp_path: Path) -> None:
    async with live(tmp_path) as server:
        path = pipe(tmp_path)
        session = await server.session()
        body = {"parts": [{"type": "file", "mime": "text/plain", "url": f"file://{path}"}] * THREADS, "noReply": True}
        async with asyncio.timeout(ANSWER_S):
            await server.api.post(f"/session/{session}/message", body, status=200)
            await server.api.get("/file", params={"path": "."}, status=200)


async def test_an_attached_folder_may_hold_names_that_are_no_text(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.txt")).touch()
    async with live(tmp_path) as server:
        session = await server.session()
        part = {"type": "file", "mime": "application/x-directory", "url": folder.as_uri()}
        await server.api.post(f"/session/{session}/message", {"parts": [part], "noReply": True}, status=200)
        assert "\ufffd.txt" in str((await server.messages(session))[-1])
