"""Terminals and commands of OpenCode 2: real shells, held against its schema."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSServerHandshakeError
from yarl import URL

from shim.host.changes import HostChanged, ShellCreated, ShellDeleted, ShellExited
from tests.http.conftest import Place
from tests.http.test_pty import TICKET, WAIT_S, Screen, wait_for_exit

POLL_S = 0.01


async def terminal(place: Place, *script: str, **more: Any) -> dict[str, Any]:
    body = {"command": "/bin/sh", "args": ["-c", *script], **more} if script else more
    return (await place.api.post("/api/pty", body, status=200)).body["data"]


async def test_life(place: Place) -> None:
    made = await terminal(place, "printf ready; cat", title="mine")
    assert (made["title"], made["status"], made["cwd"]) == ("mine", "running", place.directory)
    assert (await place.api.get("/api/pty", status=200)).body["data"] == [made]
    assert (await place.api.get(f"/api/pty/{made['id']}", status=200)).body["data"] == made
    body = {"title": "other", "size": {"rows": 10, "cols": 20}}
    assert (await place.api.put(f"/api/pty/{made['id']}", body, status=200)).body["data"]["title"] == "other"
    async with place.api.raw.ws_connect(f"/api/pty/{made['id']}/connect?cursor=0") as socket:
        screen = Screen(socket)
        await screen.until("ready")
        await screen.wait_for_cursor()
        assert screen.cursor == 5
        await screen.type("hello\n")
        await screen.until("hello\r\nhello")
        await place.api.delete(f"/api/pty/{made['id']}", status=204)
        assert await screen.end() == 1000
    await wait_for_exit(made["pid"])
    for method in ("GET", "DELETE"):
        assert (await place.api.request(method, f"/api/pty/{made['id']}", status=404)).body["_tag"] == "PtyNotFoundError"


async def test_an_unknown_terminal_is_reported_by_the_close_code(place: Place) -> None:
    async with place.api.raw.ws_connect("/api/pty/pty_nosuch/connect") as socket:
        assert await Screen(socket).end() == 4404
    assert (await place.api.get("/api/pty/pty_nosuch/connect", status=400)).body["_tag"] == "InvalidRequestError"


async def test_tickets(place: Place) -> None:
    made = await terminal(place, "cat")
    path = f"/api/pty/{made['id']}/connect"
    refused = await place.api.post(f"{path}-token", status=403)
    assert refused.body["_tag"] == "ForbiddenError"
    token = (await place.api.post(f"{path}-token", headers=TICKET, status=200)).body["data"]
    assert token["expires_in"] == 60
    async with place.api.raw.ws_connect(URL(path).with_query(ticket=token["ticket"])) as socket:
        await Screen(socket).wait_for_cursor()
    with pytest.raises(WSServerHandshakeError) as again:  # it is used up
        await place.api.raw.ws_connect(URL(path).with_query(ticket=token["ticket"]))
    assert again.value.status == 403


# --- commands -------------------------------------------------------------------------------------------------


async def command(place: Place, text: str, **more: Any) -> dict[str, Any]:
    return (await place.api.post("/api/shell", {"command": text, **more}, status=200)).body["data"]


async def finished_shell(place: Place, id_: str) -> dict[str, Any]:
    task = place.services.shells.get(place.directory, id_).task
    assert task is not None
    async with asyncio.timeout(WAIT_S):
        await task
    return (await place.api.get(f"/api/shell/{id_}", status=200)).body["data"]


async def output(place: Place, id_: str, **query: int) -> dict[str, Any]:
    params = {key: str(value) for key, value in query.items()}
    return (await place.api.get(f"/api/shell/{id_}/output", params=params, status=200)).body["data"]


async def test_a_command_and_its_pages(place: Place) -> None:
    made = await command(place, "printf 'äbc'; printf def >&2; exit 3", metadata={"by": "test"})
    assert (made["status"], made["cwd"], made["metadata"]) == ("running", place.directory, {"by": "test"})
    done = await finished_shell(place, made["id"])
    assert (done["status"], done["exit"], "completed" in done["time"]) == ("exited", 3, True)
    assert (await place.api.get("/api/shell", status=200)).body["data"] == []
    assert await output(place, made["id"]) == {"output": "äbcdef", "cursor": 7, "size": 7, "truncated": False}
    assert await output(place, made["id"], limit=3) == {"output": "äb", "cursor": 3, "size": 7, "truncated": True}
    assert await output(place, made["id"], cursor=3) == {"output": "cdef", "cursor": 7, "size": 7, "truncated": False}
    assert await output(place, made["id"], cursor=99) == {"output": "", "cursor": 7, "size": 7, "truncated": False}
    assert Path(done["file"]).stat().st_mode & 0o777 == 0o600
    await place.api.delete(f"/api/shell/{made['id']}", status=204)
    assert not Path(done["file"]).exists()
    assert (await place.api.get(f"/api/shell/{made['id']}", status=404)).body["_tag"] == "ShellNotFoundError"
    await place.api.delete(f"/api/shell/{made['id']}", status=204)


async def test_the_life_of_a_command_is_published(place: Place) -> None:
    seen: list[HostChanged] = []
    place.services.host.observe(seen.append)
    made = await command(place, "exit 3")
    await finished_shell(place, made["id"])
    await place.api.delete(f"/api/shell/{made['id']}", status=204)
    assert {changed.directory for changed in seen} == {place.directory}
    created, *rest = [changed.change for changed in seen]
    assert isinstance(created, ShellCreated)
    assert (created.info.id, created.info.status) == (made["id"], "running")
    assert rest == [ShellExited(made["id"], "exited", 3), ShellDeleted(made["id"])]


async def test_a_command_ends_at_its_timeout(place: Place) -> None:
    made = await command(place, "sleep 60", timeout=20)
    done = await finished_shell(place, made["id"])
    assert (done["status"], done["signal"]) == ("timeout", "SIGTERM")


async def test_the_time_limit_of_a_running_command_can_be_changed_and_taken_away(place: Place) -> None:
    """A route of the builds before 2.0 (`shell.timeout`)."""
    made = await command(place, "sleep 60", timeout=60_000)
    path = f"/api/shell/{made['id']}/timeout"
    shell = place.services.shells.get(place.directory, made["id"])
    answer = (await place.api.patch(path, {"timeout": 0}, status=200)).body
    assert (answer["data"]["id"], answer["data"]["status"]) == (made["id"], "running")
    assert answer["location"]["project"]["id"]
    assert shell.timer is None
    await place.api.patch(path, {"timeout": -1}, status=400)
    await place.api.patch("/api/shell/sh_none/timeout", {"timeout": 1}, status=404)
    await place.api.patch(path, {"timeout": 1}, status=200)
    assert (await finished_shell(place, made["id"]))["status"] == "timeout"


async def test_removing_ends_what_it_has_started(place: Place) -> None:
    made = await command(place, "setsid sleep 61 & echo $!; sleep 62")
    async with asyncio.timeout(WAIT_S):
        while not (found := await output(place, made["id"]))["output"].endswith("\n"):
            await asyncio.sleep(POLL_S)
    assert [one["id"] for one in (await place.api.get("/api/shell", status=200)).body["data"]] == [made["id"]]
    await place.api.delete(f"/api/shell/{made['id']}", status=204)
    await wait_for_exit(int(found["output"]))


async def test_a_command_belongs_to_its_directory(place: Place, tmp_path: Path) -> None:
    (place.project / "src").mkdir()
    made = await command(place, "pwd", cwd="src")
    await finished_shell(place, made["id"])
    assert (await output(place, made["id"]))["output"] == os.path.realpath(place.project / "src") + "\n"
    elsewhere = {"location[directory]": str(tmp_path)}
    await place.api.get(f"/api/shell/{made['id']}", params=elsewhere, status=404)
    await place.api.delete("/api/debug/location", status=204)
    await place.api.get(f"/api/shell/{made['id']}", status=404)


@pytest.mark.parametrize(
    "body", [{}, {"command": ""}, {"command": "x", "cwd": "nosuch"}, {"command": "a\0b"}, {"command": "x", "timeout": 0}]
)
async def test_commands_that_cannot_be(place: Place, body: dict[str, Any]) -> None:
    assert (await place.api.post("/api/shell", body, status=400)).body["_tag"] == "InvalidRequestError"


async def test_output_left_by_a_killed_server_is_removed(place: Place) -> None:
    folder = place.services.settings.data_dir / "shell"
    folder.mkdir(parents=True)
    (folder / "sh_old.log").write_text("old")
    made = await command(place, "true")
    await finished_shell(place, made["id"])
    assert [file.name for file in folder.iterdir()] == [f"{made['id']}.log"]


async def test_running_commands_are_limited(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shim.host.terminals.shells.RUNNING_LIMIT", 1)
    monkeypatch.setattr("shim.host.terminals.shells.ENDED_LIMIT", 1)
    made = await command(place, "cat < /dev/zero > /dev/null")
    assert "limit" in (await place.api.post("/api/shell", {"command": "true"}, status=400)).body["message"]
    await place.api.delete(f"/api/shell/{made['id']}", status=204)
    first = await command(place, "exit 1")
    await finished_shell(place, first["id"])
    second = await command(place, "exit 2")
    await finished_shell(place, second["id"])
    await place.api.get(f"/api/shell/{first['id']}", status=404)
    async with asyncio.timeout(WAIT_S):  # what is not listed any more is removed beside the answers
        while Path(first["file"]).exists():
            await asyncio.sleep(POLL_S)
