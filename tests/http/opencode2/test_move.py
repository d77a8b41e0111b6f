"""A session that is moved: its next prompt is answered in the other directory, by an agent that was told what was said."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.http.opencode2.client import Tui
from tests.support.live import live


@pytest.fixture
def second_project(tmp_path: Path) -> Path:
    made = tmp_path / "other"
    (made / "sub").mkdir(parents=True)
    for command in (("init", "-q"), ("commit", "-q", "--allow-empty", "-m", "first")):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *command], cwd=made, check=True)
    return made


async def move(client: Tui, directory: Path | str, status: int = 204) -> Any:
    return await client.call("POST", f"/api/session/{client.session}/move", {"directory": str(directory)}, status=status)


async def info(client: Tui) -> dict[str, Any]:
    return (await client.call("GET", f"/api/session/{client.session}")).body["data"]


async def test_a_moved_session_goes_on_in_the_other_directory(client: Tui, second_project: Path) -> None:
    await client.turn("echo before")
    was = await info(client)
    waiting = await client.prompt("echo waits", resume=False)
    await move(client, second_project / "sub")
    seen: list[dict[str, Any]] = []

    async def act(_: Tui, event: dict[str, Any]) -> None:
        if event["type"] == "session.moved":
            seen.append(event)

    assert await client.turn("remember", act) == "succeeded"
    now = await info(client)
    assert now["location"] == {"directory": str(second_project / "sub")}
    assert now["projectID"] != was["projectID"]
    [event] = seen
    assert event["data"]["location"] == {"directory": str(second_project / "sub")}
    assert event["data"]["projectID"] == now["projectID"]
    assert event["data"]["subpath"] == now["subpath"] == "sub"
    messages = (await client.call("GET", f"/api/session/{client.session}/message", order="asc")).body["data"]
    kinds = [one["type"] for one in messages]
    moved = messages[kinds.index("location-switched")]
    assert moved["previous"]["location"] == was["location"]
    assert kinds.index("location-switched") < [one["id"] for one in messages].index(waiting["id"])
    assert "also told what others said" in " ".join(client.texts()), "the agent is a new one, and is told"
    listed = (await client.call("GET", "/api/session", directory=str(second_project / "sub"))).body["data"]
    assert [one["id"] for one in listed] == [client.session]
    assert (await client.call("GET", "/api/session", directory=str(client.live.directory))).body["data"] == []
    await client.assert_matches_server()


async def test_commands_run_there(client: Tui, second_project: Path) -> None:
    await client.new()
    await move(client, second_project)
    await client.call("POST", f"/api/session/{client.session}/shell", {"command": "pwd"}, status=204)
    page = (await client.call("GET", f"/api/session/{client.session}/message")).body["data"]
    [shell] = [one for one in page if one["type"] == "shell"]
    assert shell["output"]["output"].strip() == str(second_project)


async def test_impossible_moves_are_refused(client: Tui, second_project: Path) -> None:
    await client.new()
    await move(client, client.live.directory)
    assert "session.moved" not in client.types
    assert "There is no directory" in (await move(client, second_project / "none", status=400)).body["message"]
    await client.prompt("hang")
    while not client.running:
        await client.take_next()
    assert "is at work" in (await move(client, second_project, status=400)).body["message"]
    await client.interrupt()
    await client.end()
    await move(client, second_project)
    assert (await info(client))["location"] == {"directory": str(second_project)}


async def test_an_undo_of_what_was_done_elsewhere_touches_no_file(client: Tui, second_project: Path) -> None:
    """The same names may be there, and are somebody else's."""
    await client.new()
    await client.prompt("edit")
    await client.end()
    [changed] = [file.name for file in client.live.directory.iterdir() if file.is_file()]
    (second_project / changed).write_text("somebody else's\n")
    await move(client, second_project)
    await client.turn("echo after")
    first = next(
        one["id"]
        for one in (await client.call("GET", f"/api/session/{client.session}/message", order="asc")).body["data"]
        if one["type"] == "user"
    )
    staged = await client.call("POST", f"/api/session/{client.session}/revert/stage", {"messageID": first, "files": True})
    assert staged.body["data"]["messageID"] == first
    assert (second_project / changed).read_text() == "somebody else's\n"
    assert (client.live.directory / changed).exists()


async def test_roots_hold(tmp_path: Path, second_project: Path) -> None:
    inside = tmp_path / "project"
    async with live(tmp_path, roots=(inside,)) as server:
        session = await server.session()
        body = {"directory": str(second_project)}
        await server.api.post(f"/api/session/{session}/move", body, status=403)
        (inside / "below").mkdir()
        await server.api.post(f"/api/session/{session}/move", {"directory": str(inside / "below")}, status=204)
