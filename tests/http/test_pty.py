"""Terminals over HTTP and WebSockets: real shells, the wire of a live OpenCode 1.18.33."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from yarl import URL

from shim.host.terminals.terminal_manager import NewTerminal, Terminals
from shim.lib.clock import ManualClock
from shim.lib.errors import InvalidRequest
from shim.store.base import TERMINALS
from tests.http.conftest import Place
from tests.process.support import until_empty

WAIT_S = 15.0
TICKET = {"x-opencode-ticket": "1"}


@pytest.fixture(autouse=True, params=[False, True], ids=["here", "on a holder"])
async def folder(request: pytest.FixtureRequest, place: Place) -> AsyncIterator[Path | None]:
    """Where holders of terminals are, if these are on holders."""
    if not request.param:
        yield None
        return
    with TemporaryDirectory(prefix="pty-") as folder:
        place.services.terminals = terminals_of(place, Path(folder))
        yield Path(folder)
        await place.services.terminals.close()
        assert not list(Path(folder).iterdir()), "nothing is left of a holder"


def terminals_of(place: Place, folder: Path) -> Terminals:
    """A server's terminals on holders, with the rows in the store."""
    services, keep = place.services, partial(place.services.store.set_value, TERMINALS)
    more: dict[str, Any] = {"clock": services.clock, "ids": services.ids, "changes": services.host, "keep": keep, "held": folder}
    return Terminals(environ=services.terminals.environ, owner="", **more)


class Screen:
    """A terminal's WebSocket and what came out of it."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self.socket = socket
        self.text = ""
        self.replayed = ""
        self.cursor: int | None = None

    async def until(self, wanted: str | Callable[[], bool]) -> None:
        """Read until the text has it. Raises EOFError if the socket ends before."""
        async with asyncio.timeout(WAIT_S):
            while not (wanted in self.text if isinstance(wanted, str) else wanted()):
                message = await self.socket.receive()
                if message.type is WSMsgType.TEXT:
                    self.text += message.data
                elif message.type is WSMsgType.BINARY:
                    assert message.data[:1] == b"\0" and self.cursor is None, message.data
                    self.cursor, self.replayed = json.loads(message.data[1:])["cursor"], self.text
                else:
                    raise EOFError(f"{message.type} {message.data}: {self.text!r}")

    async def wait_for_cursor(self) -> Screen:
        await self.until(lambda: self.cursor is not None)
        return self

    async def end(self) -> int | None:
        """Read to the end; the close code."""
        with pytest.raises(EOFError):
            await self.until(lambda: False)
        return self.socket.close_code

    async def type(self, text: str | bytes) -> None:
        await (self.socket.send_bytes(text) if isinstance(text, bytes) else self.socket.send_str(text))


@asynccontextmanager
async def connect(place: Place, id_: str, headers: dict[str, str] | None = None, **query: str) -> AsyncIterator[Screen]:
    async with place.api.raw.ws_connect(f"/pty/{id_}/connect", params=query, headers=headers) as socket:
        yield Screen(socket)


async def create(place: Place, *script: str, **more: Any) -> dict[str, Any]:
    """A terminal that runs a script of sh (`-l` that is added is its $0), or the person's shell."""
    body = {**({"command": "/bin/sh", "args": ["-c", *script]} if script else {}), **more}
    return (await place.api.post("/pty", body, status=200)).body


def alive(pid: int) -> bool:
    """It runs; one that waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


async def wait_for_exit(pid: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while alive(pid):
            await asyncio.sleep(0.01)


async def test_life(place: Place) -> None:
    async with place.api.stream("/event") as events:
        made = await create(place)
        assert made == {
            "id": made["id"],
            "title": f"Terminal {made['id'][-4:]}",
            "command": "/bin/bash",
            "args": ["-l"],
            "cwd": place.directory,
            "status": "running",
            "pid": made["pid"],
        }
        assert (await events.until("pty.created"))[-1]["properties"] == {"info": made}
        assert (await place.api.get("/pty", status=200)).body == [made]
        path = f"/pty/{made['id']}"
        changed = (await place.api.put(path, {"title": "mine", "size": {"rows": 30, "cols": 100}}, status=200)).body
        assert changed == made | {"title": "mine"} == (await place.api.get(path, status=200)).body
        assert (await events.until("pty.updated"))[-1]["properties"] == {"info": changed}
        async with connect(place, made["id"]) as screen:
            await screen.type("stty size\r")
            await screen.until("30 100")
            assert (await place.api.delete(path, status=200)).body is True
            assert await screen.end() == 1000
        assert (await events.until("pty.deleted"))[-1]["properties"] == {"id": made["id"]}
        await wait_for_exit(made["pid"])
        assert (await place.api.get("/pty", status=200)).body == []


async def test_exit(place: Place) -> None:
    async with place.api.stream("/event") as events:
        made = await create(place, "read line; echo last $line; exit 3")
        async with connect(place, made["id"]) as screen:
            await screen.type("words\r")
            await screen.until("last words")
            assert await screen.end() == 1000
        exited = (await events.until("pty.exited"))[-1]
        assert exited["properties"] == {"id": made["id"], "exitCode": 3}
        assert (await place.api.get(f"/pty/{made['id']}", status=404)).body["_tag"] == "PtyNotFoundError"
        killed = await create(place, "kill -9 $$")
        assert (await events.until("pty.exited"))[-1]["properties"] == {"id": killed["id"], "exitCode": 137}


async def test_replay_from_a_cursor(place: Place) -> None:
    """Positions are UTF-16 units; what is no number is the start; -1 is the end."""
    made = await create(place, "stty -echo; printf 'a\\360\\237\\231\\202b'; read x; printf '[%s]' \"$x\"; read y")
    async with connect(place, made["id"]) as screen:
        await screen.until("a🙂b")
    for cursor, kept in {"0": "a🙂b", "x": "a🙂b", "3": "b", "1": "🙂b", "-1": "", "99": ""}.items():
        async with connect(place, made["id"], cursor=cursor) as screen:
            await screen.wait_for_cursor()
            assert (screen.replayed, screen.cursor) == (kept, 4), cursor
    async with connect(place, made["id"], cursor="-1") as screen:
        await screen.wait_for_cursor()
        await screen.type("é\r".encode())
        await screen.until("[é]")
        assert "a🙂b" not in screen.text
    await place.api.delete(f"/pty/{made['id']}", status=200)


async def test_two_watch(place: Place) -> None:
    made = await create(place, "read x; echo got $x; read y")
    async with connect(place, made["id"]) as one, connect(place, made["id"]) as other:
        await one.wait_for_cursor()
        await other.wait_for_cursor()
        await one.type("it\r")
        await one.until("got it")
        await other.until("got it")


async def test_a_pty_is_a_terminal(place: Place) -> None:
    """Ctrl-C ends what runs in it, the size can be asked, and the environment is a terminal's."""
    made = await create(place, 'trap "echo caught" INT; echo $TERM $A ready; read x', cwd="/", title="T", env={"A": "b"})
    assert (made["cwd"], made["title"], made["args"][-1]) == ("/", "T", "-l")
    async with connect(place, made["id"]) as screen:
        await screen.until("xterm-256color b ready")
        await screen.type("\x03")
        await screen.until("caught")


async def test_input_larger_than_the_terminal_takes_at_once(place: Place) -> None:
    made = await create(place, "stty raw -echo; echo go; head -c 300000 | wc -c; exit")
    async with connect(place, made["id"]) as screen:
        await screen.until("go")
        await screen.type("x" * 300_000)
        await screen.until("300000")


async def test_a_flood_does_not_stop_the_server(place: Place) -> None:
    made = await create(place, "yes")
    async with connect(place, made["id"]) as screen:
        await screen.until(lambda: len(screen.text) > 500_000)
        assert (await place.api.get("/global/health", status=200)).body["healthy"] is True
        await screen.type("\x03")
        assert await screen.end() == 1000


async def test_dispose_ends_what_was_started_in_terminals(place: Place) -> None:
    """Also what has left the terminal's session and outlived it."""
    hides = "trap '' HUP; echo pid=$$.; exec sleep 300 >/dev/null 2>&1"
    made = await create(place, f'setsid sh -c "{hides.replace("$", chr(92) + "$")}" & read x')
    other = (await place.api.post("/pty", {"command": "cat"}, params={"directory": str(place.home)}, status=200)).body
    async with connect(place, made["id"]) as screen:
        await screen.until(".")
        hidden = int(screen.text.split("pid=")[1].split(".")[0])
        await screen.type("\r")
        assert await screen.end() == 1000
    assert alive(hidden)
    await place.api.post("/instance/dispose", status=200)
    await wait_for_exit(hidden)
    assert (await place.api.get("/pty", params={"directory": str(place.home)}, status=200)).body == [other]
    await place.api.post("/global/dispose", status=200)
    await wait_for_exit(other["pid"])


async def test_a_terminal_that_is_starting_is_disposed_of_too(place: Place) -> None:
    """It is in no list yet; it must not come to life after everything was ended."""
    terminals = place.services.terminals
    starting = asyncio.create_task(terminals.create(place.directory, "p", NewTerminal("/bin/sh", ("-c", "read x"))))
    await asyncio.sleep(0)
    await terminals.dispose(place.directory)
    with pytest.raises(InvalidRequest, match="was disposed while the terminal started"):
        await starting
    assert terminals.list_of(place.directory) == []
    await terminals.remove(await terminals.create(place.directory, "p", NewTerminal("/bin/sh", ("-c", "read x"))))


async def test_a_terminal_whose_client_goes_while_it_starts_ends_with_the_server(place: Place, folder: Path | None) -> None:
    """As at the end of a browser: the request is given up, and the server stops before its program runs."""
    terminals, mark = place.services.terminals, f"x{os.getpid()}"
    starting = asyncio.create_task(terminals.create(place.directory, "p", NewTerminal("/bin/sh", ("-c", f"read {mark}"))))
    await asyncio.sleep(0)
    closing = asyncio.create_task(terminals.close())
    await asyncio.sleep(0)
    starting.cancel()
    await closing
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not [line for line in lines if f"read {mark}".encode() in line]
    assert folder is None or not list(folder.iterdir())


async def test_a_directory_has_its_own(place: Place) -> None:
    made = await create(place, "read x")
    elsewhere = {"directory": str(place.home)}
    assert (await place.api.get("/pty", params=elsewhere, status=200)).body == []
    await place.api.get(f"/pty/{made['id']}", params=elsewhere, status=404)


async def refusal_status(place: Place, id_: str, **query: str) -> int:
    with pytest.raises(WSServerHandshakeError) as failed:
        async with connect(place, id_, **query):
            pass
    return failed.value.status


async def test_tickets(place: Place) -> None:
    made, other = await create(place, "read x"), await create(place, "read x")
    path = f"/pty/{made['id']}/connect-token"
    assert (await place.api.post(path, status=403)).body["_tag"] == "PtyForbiddenError"
    await place.api.post("/pty/pty_none/connect-token", headers=TICKET, status=404)

    async def ticket() -> str:
        answer = (await place.api.post(path, headers=TICKET, status=200)).body
        assert answer["expires_in"] == 60
        return answer["ticket"]

    good = await ticket()
    async with connect(place, made["id"], ticket=good) as screen:
        await screen.wait_for_cursor()
    assert await refusal_status(place, made["id"], ticket=good) == 403, "used up"
    assert await refusal_status(place, other["id"], ticket=await ticket()) == 403, "for another terminal"
    assert await refusal_status(place, made["id"], ticket="nonsense") == 403
    old = await ticket()
    clock = place.services.clock
    assert isinstance(clock, ManualClock)
    clock.value_ms += 61_000
    assert await refusal_status(place, made["id"], ticket=old) == 403, "too old"


async def test_foreign_pages_may_not_connect(place: Place) -> None:
    made = await create(place, "read x")
    with pytest.raises(WSServerHandshakeError, match="403"):
        async with connect(place, made["id"], headers={"Origin": "http://evil.example"}):
            pass
    own = str(URL(str(place.api.raw.make_url("/"))).origin())
    for origin in (own, "http://localhost:3000", "https://ide.example"):
        async with connect(place, made["id"], headers={"Origin": origin}) as screen:
            await screen.wait_for_cursor()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"command": "/nosuch"}, 'There is no program /nosuch\n  at ["command"]'),
        ({"command": "cat", "cwd": "/nosuch"}, 'There is no folder /nosuch\n  at ["cwd"]'),
        ({"command": "cat", "cwd": "x" * 5000}, None),
        ({"command": "c\0t"}, None),
        ({"command": "x" * 5000}, None),
        ({"command": "cat", "args": ["\0"]}, None),
        ({"command": "cat", "env": {"A=B": "x"}}, None),
        ({"command": "cat", "args": "x"}, 'Expected array, got "x"\n  at ["args"]'),
    ],
)
async def test_a_terminal_that_cannot_start_says_why(place: Place, body: dict[str, Any], message: str | None) -> None:
    """`message` None: any will do."""
    answer = await place.api.post("/pty", body, status=400)
    assert message is None or answer.body["data"] == {"message": message, "kind": "Payload"}
    assert (await place.api.get("/pty", status=200)).body == []


async def test_bad_requests(place: Place) -> None:
    made = await create(place, "read x")
    answer = await place.api.put(f"/pty/{made['id']}", {"size": {"rows": 0, "cols": 9}}, status=400)
    assert answer.body["data"]["message"] == 'Expected a value greater than 0, got 0\n  at ["size"]["rows"]'
    await place.api.get("/pty/nope", status=400)
    await place.api.get(f"/pty/{made['id']}/connect", status=400)
    assert await refusal_status(place, "pty_none") == 404


async def test_terminals_are_limited(place: Place) -> None:
    services = place.services
    few = Terminals(clock=services.clock, ids=services.ids, environ={}, owner="", changes=services.host, limit=1)
    await few.create(place.directory, "global", NewTerminal(command="/bin/cat"))
    with pytest.raises(InvalidRequest, match="limit"):
        await few.create(place.directory, "global", NewTerminal(command="/bin/cat"))
    await few.close()
    assert few.list_of(place.directory) == []


async def test_shells(place: Place) -> None:
    body = (await place.api.get("/pty/shells", status=200)).body
    assert {"path": "/bin/sh", "name": "sh", "acceptable": True} in body


async def stop(place: Place) -> None:
    """The server stops."""
    place.services.terminals.leaves = True
    await place.services.terminals.close()


async def begin(place: Place, folder: Path) -> None:
    """Another one begins."""
    place.services.terminals = terminals_of(place, folder)
    await place.services.terminals.take_up(await rows(place))


async def rows(place: Place) -> dict[str, Any]:
    return await place.services.store.values(TERMINALS)


on_a_holder = pytest.mark.parametrize("folder", [True], ids=["on a holder"], indirect=True)


@on_a_holder
async def test_a_shell_goes_on_in_the_next_server(place: Place, folder: Path) -> None:
    made = await create(place, title="mine")
    path = f"/pty/{made['id']}"
    async with connect(place, made["id"]) as screen:
        await screen.type("word=kept; echo on''ce\r")
        await screen.until("once")
        await stop(place)
        assert await screen.end() == 1013, "it may come back"
        seen = screen.text
    await begin(place, folder)
    assert (await place.api.get(path, status=200)).body == made
    async with connect(place, made["id"]) as anew:
        await anew.wait_for_cursor()
        assert anew.replayed.startswith(seen)
    async with connect(place, made["id"], cursor=str(len(seen))) as screen:
        await screen.type("echo $word''.\r")
        await screen.until("kept.")
        assert "once" not in screen.text, "nothing comes twice"
        await place.api.put(path, {"size": {"rows": 33, "cols": 111}}, status=200)
        await screen.type("stty size; exit 7\r")
        await screen.until("33 111")
        assert await screen.end() == 1000
    assert await rows(place) == {}


@on_a_holder
async def test_a_flood_keeps_its_positions_over_a_restart(place: Place, folder: Path) -> None:
    """Its tape has its end alone, and the program waits while nobody reads."""
    flood = "i=0; while [ $i -lt 160 ]; do printf 'é%065535d\\n' $i; i=$((i+1)); done; touch end; read x"
    made = await create(place, flood)
    async with connect(place, made["id"]) as screen:
        await screen.until("0")
    await stop(place)
    await begin(place, folder)
    end = Path(place.directory, "end")
    async with asyncio.timeout(60):
        while not end.exists() or place.services.terminals.get(place.directory, made["id"]).scrollback.cursor < 160 * 65_538:
            await asyncio.sleep(0.05)
    async with connect(place, made["id"]) as screen:
        await screen.wait_for_cursor()
    assert screen.cursor == 160 * 65_538
    [tape] = folder.glob("*/tape")
    assert tape.stat().st_size < 9.5 * 2**20
    await stop(place)
    await begin(place, folder)
    async with connect(place, made["id"]) as anew:
        await anew.wait_for_cursor()
    assert (anew.cursor, anew.replayed[-1000:]) == (screen.cursor, screen.replayed[-1000:])


@on_a_holder
async def test_a_terminal_that_ended_meanwhile_is_gone(place: Place, folder: Path) -> None:
    made = await create(place, "read x")
    await stop(place)
    os.kill(made["pid"], 9)
    await begin(place, folder)
    await until_empty(folder)
    assert place.services.terminals.list_of(place.directory) == []
    assert await rows(place) == {}


@on_a_holder
async def test_a_terminal_of_another_server_is_left_alone(place: Place, folder: Path) -> None:
    await create(place, "read x")
    other = terminals_of(place, folder)
    await other.take_up(await rows(place))
    assert other.list_of(place.directory) == []
    await other.close()
    assert len(await rows(place)) == len(place.services.terminals.list_of(place.directory)) == 1
