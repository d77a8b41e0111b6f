"""Changes of files and of the branch, told while somebody listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.http.conftest import Place, git
from tests.support.api import EventStream

KINDS = ("file.watcher.updated", "vcs.branch.updated")
WAIT_S = 15.0


async def file_events(events: EventStream, wanted: dict[str, str]) -> dict[str, str]:
    """Files and what happened to them, read until all wanted ones were told."""
    seen: dict[str, str] = {}
    async with asyncio.timeout(WAIT_S):
        while any(seen.get(name) != kind for name, kind in wanted.items()):
            event = (await events.until("file.watcher.updated", WAIT_S))[-1]["properties"]
            seen[event["file"]] = event["event"]
    return seen


async def until(what: Callable[[], Any]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not what():
            await asyncio.sleep(0.02)


async def wait_for_watch(place: Place, *folders: Path) -> None:
    """The watch stands: a file that is made again and again has been told."""
    watchers = place.services.watchers
    await until(lambda: watchers.watched_directories() == [str(one) for one in folders or (place.project,)])


async def start(place: Place, events: EventStream) -> None:
    """Wait until changes are told."""
    await wait_for_watch(place)
    probe = place.project / "probe"
    waiting = asyncio.ensure_future(events.until("file.watcher.updated", WAIT_S))
    number = 0
    while not waiting.done():
        probe.write_text(str(number := number + 1))
        await asyncio.wait([waiting], timeout=0.2)
    assert waiting.result()[-1]["properties"]["file"] == str(probe)


async def test_files(place: Place) -> None:
    (place.project / ".gitignore").write_text("*.log\nbuild/\n")
    for name in ("build", "node_modules", "src"):
        (place.project / name).mkdir()
    async with place.api.stream("/event") as events:
        await start(place, events)
        made, deep, last = place.project / "made.txt", place.project / "src" / "deep.txt", place.project / "last.txt"
        made.write_text("1")
        (place.project / "a.log").write_text("ignored")
        (place.project / "build" / "out").write_text("ignored")
        (place.project / "node_modules" / "x").write_text("left out")
        deep.write_text("1")
        seen = await file_events(events, {str(made): "add", str(deep): "add"})
        made.unlink()
        deep.write_text("2")
        seen |= await file_events(events, {str(made): "unlink", str(deep): "change"})
        new = place.project / "new" / "folder" / "file.txt"
        new.parent.mkdir(parents=True)
        new.write_text("1")
        seen |= await file_events(events, {str(new): "add"})
        last.write_text("1")
        seen |= await file_events(events, {str(last): "add"})
        names = {str(Path(name).relative_to(place.project)) for name in seen}
        assert names <= {"probe", "made.txt", "src/deep.txt", "new/folder/file.txt", "last.txt"}
        # What was new is watched by now.
        new.write_text("again")
        await file_events(events, {str(new): "change"})


async def test_branch(place: Place) -> None:
    async with place.api.stream("/event") as events:
        await start(place, events)
        for arguments, properties in (
            (("checkout", "-q", "-b", "feature"), {"branch": "feature"}),
            (("checkout", "-q", "--detach"), {}),
            (("checkout", "-q", "main"), {"branch": "main"}),
        ):
            git(place.project, *arguments)
            assert (await events.until("vcs.branch.updated", WAIT_S))[-1]["properties"] == properties


async def test_watchers_run_only_while_a_client_listens(place: Place) -> None:
    await place.api.get("/vcs", status=200)
    assert place.services.watchers.watched_directories() == []
    async with place.api.stream("/event"):
        await wait_for_watch(place)
    await until(lambda: place.services.watchers.watched_directories() == [])
    # A stream of all directories: those that somebody works in.
    async with place.api.stream("/global/event"):
        assert place.services.watchers.watched_directories() == []
        await place.api.get("/file?path=.", status=200)
        await wait_for_watch(place)
        await place.api.post("/instance/dispose", status=200)
        await until(lambda: place.services.watchers.watched_directories() == [])


async def test_the_home_is_not_watched(place: Place) -> None:
    async with place.api.stream("/event", params={"directory": str(place.home)}):
        await until(lambda: place.services.watchers.watched_directories() == [])


async def test_the_servers_stop_ends_watches(place: Place) -> None:
    async with place.api.stream("/event"):
        await wait_for_watch(place)
        await place.services.watchers.close()
        assert place.services.watchers.watched_directories() == []
        await place.api.get("/vcs", status=200)
        assert place.services.watchers.watched_directories() == []
