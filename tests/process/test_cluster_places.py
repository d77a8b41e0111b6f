"""Work on a directory of another machine: a client of a front, or of a server without the directory, works where it is."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType

from tests.process.test_cluster_commands import LOST_S, events_of
from tests.process.test_cluster_placement import node_settings
from tests.process.test_two_servers import SEEN_S, Server, server, until
from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.timeout(180), pytest.mark.slow]

BAD_GATEWAY = 1014
NO_TERMINAL = 4404


@pytest.fixture
def front_and_node(tmp_path: Path, nats: NatsServer) -> Iterator[tuple[Server, Server]]:
    with (
        server(tmp_path, **node_settings(tmp_path, nats, "node")) as node,
        server(tmp_path, **node_settings(tmp_path, nats, "front", SHIM_NO_AGENTS="true")) as front,
    ):
        until(lambda: front.ask("POST", "/session", {})[0] == 200)
        yield front, node


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def new_terminal(at: Server, prefix: str = "") -> dict[str, Any]:
    status, answer = at.ask("POST", f"{prefix}/pty", {"command": "/bin/sh", "title": "mine"})
    assert status == 200, answer
    return answer["data"] if prefix else answer


async def read_until(socket: ClientWebSocketResponse, text: str) -> None:
    """Read output until a text has come. Raises TimeoutError."""
    output = ""
    async with asyncio.timeout(SEEN_S):
        while text not in output:
            message = await socket.receive()
            assert message.type in (WSMsgType.TEXT, WSMsgType.BINARY), (message, output)
            output += message.data if message.type is WSMsgType.TEXT else ""


async def close_of(socket: ClientWebSocketResponse) -> tuple[int, str]:
    """Read to the end, and return its code and reason."""
    async with asyncio.timeout(SEEN_S):
        while (message := await socket.receive()).type is not WSMsgType.CLOSE:
            assert message.type in (WSMsgType.TEXT, WSMsgType.BINARY)
    return message.data, str(message.extra)


@pytest.mark.parametrize("prefix", ["", "/api"])
def test_a_terminal_of_a_front_runs_where_the_directory_is(front_and_node: tuple[Server, Server], prefix: str) -> None:
    front, node = front_and_node
    terminal = new_terminal(front, prefix)
    path = f"{prefix}/pty/{terminal['id']}"
    assert parent_of(terminal["pid"]) == node.process.pid
    assert [one["id"] for one in node.get("/pty")] == [one["id"] for one in front.get("/pty")] == [terminal["id"]]
    assert front.ask("PUT", path, {"size": {"rows": 33, "cols": 111}, "title": "wide"})[0] == 200
    assert node.get("/pty")[0]["title"] == "wide"

    async def work() -> None:
        async with ClientSession() as client:
            async with client.ws_connect(f"{front.url}{path}/connect?cursor=0") as socket:
                await socket.send_str("stty size; echo s''een\n")
                await read_until(socket, "33 111\r\nseen")
                await socket.send_bytes(b"echo l''ong; yes 0123456789 | head -c 3000000; echo e''nd\n")
                await read_until(socket, "end")
            async with client.ws_connect(f"{front.url}{path}/connect?cursor=0") as again:
                await read_until(again, "0123456789")
                await again.send_str("exit\n")
                assert (await close_of(again))[0] == 1000

    asyncio.run(work())
    assert front.get("/pty") == []
    other = new_terminal(front, prefix)
    assert front.ask("DELETE", f"{prefix}/pty/{other['id']}")[0] in (200, 204)
    assert node.get("/pty") == []


def test_a_terminal_of_a_killed_server_is_closed_with_the_reason(front_and_node: tuple[Server, Server]) -> None:
    front, node = front_and_node
    terminal = new_terminal(front)

    async def work() -> tuple[int, str]:
        async with ClientSession() as client, client.ws_connect(f"{front.url}/pty/{terminal['id']}/connect") as socket:
            await socket.send_str("echo s''een\n")
            await read_until(socket, "seen")
            node.kill()
            return await close_of(socket)

    began = time.monotonic()
    assert asyncio.run(work()) == (BAD_GATEWAY, "The server node was lost.")
    assert time.monotonic() - began < LOST_S


def test_a_ticket_opens_a_terminal_through_a_front(tmp_path: Path, nats: NatsServer) -> None:
    """A browser's WebSocket has no password. The front's own password is nothing to the server of the terminal."""
    with (
        server(tmp_path, **node_settings(tmp_path, nats, "node")) as node,
        server(tmp_path, **node_settings(tmp_path, nats, "front", SHIM_NO_AGENTS="true", SHIM_PASSWORD="s3cret")) as front,
    ):

        async def work() -> None:
            signed = {"Authorization": "Bearer s3cret", "X-Opencode-Ticket": "1"}
            async with ClientSession() as client, asyncio.timeout(SEEN_S):
                id_ = None
                while id_ is None:  # until the front knows the node
                    async with client.post(f"{front.url}/pty", json={"command": "/bin/sh"}, headers=signed) as answer:
                        id_ = (await answer.json()).get("id")
                path = f"{front.url}/pty/{id_}"
                async with client.ws_connect(f"{front.url}/api/pty/pty_unknown/connect", headers=signed) as socket:
                    assert (await close_of(socket))[0] == NO_TERMINAL
                async with client.post(f"{path}/connect-token", headers=signed) as answer:
                    ticket = (await answer.json())["ticket"]
                for query, status in (("", 401), ("?ticket=wrong", 403)):
                    async with client.get(f"{path}/connect{query}", headers={"Upgrade": "websocket"}) as answer:
                        assert answer.status == status
                async with client.ws_connect(f"{path}/connect?ticket={ticket}") as socket:
                    await socket.send_str("echo s''een\n")
                    await read_until(socket, "seen")
                async with client.get(f"{path}/connect?ticket={ticket}", headers={"Upgrade": "websocket"}) as answer:
                    assert answer.status == 403, "it is used up"
                    assert "The server node refused the WebSocket" in await answer.text()

        asyncio.run(work())
        assert len(node.get("/pty")) == 1


def test_changes_of_files_and_git_are_done_where_the_directory_is(front_and_node: tuple[Server, Server], tmp_path: Path) -> None:
    front, node = front_and_node
    place = tmp_path / "place"
    place.mkdir()
    query = f"?directory={place}"
    status, project = front.ask("POST", f"/project/git/init{query}")
    assert (status, project["vcs"], (place / ".git").is_dir()) == (200, "git", True)
    assert node.get(f"/project/current{query}") == front.get(f"/project/current{query}")
    assert front.get(f"/file{query}&path=.") == node.get(f"/file{query}&path=.")


def test_files_of_a_session_are_those_of_its_server(tmp_path: Path, nats: NatsServer) -> None:
    """Only the other server may show files outside of the session's directory, so that it has done what succeeds."""
    project = tmp_path / "project"
    project.mkdir()
    with (
        server(tmp_path, **node_settings(tmp_path, nats, "node", SHIM_FS_ANYWHERE="true")),
        server(tmp_path, **node_settings(tmp_path, nats, "front", SHIM_NO_AGENTS="true")) as front,
    ):
        until(lambda: front.ask("POST", "/session", {})[0] == 200)
        session = front.ask("POST", f"/session?directory={project}", {})[1]["id"]
        file = f"/v1/fs/file?path=../outside.txt&session_id={session}"
        status, answer = front.ask("PUT", file, "text")
        assert status == 200, answer
        assert (front.get(file), (tmp_path / "outside.txt").read_text()) == ("text", '"text"')
        assert "mock" in [agent["id"] for agent in front.get("/v1/agents")["agents"]]


def types(events: list[dict[str, Any]], prefix: str) -> list[str]:
    return [event["type"] for event in events if event["type"].startswith(prefix)]


def test_clients_of_a_front_see_what_happens_in_a_directory_once(front_and_node: tuple[Server, Server], tmp_path: Path) -> None:
    front, node = front_and_node
    place = tmp_path / "place"
    place.mkdir()
    query = f"?directory={place}"
    assert front.ask("POST", f"/project/git/init{query}")[0] == 200
    with (
        events_of(front, f"/event{query}") as events,
        events_of(front, f"/api/event{query}") as events2,
        events_of(node, f"/event{query}") as own,
    ):
        front.get(f"/vcs{query}")  # from now on files are watched
        streams = (events, events2, own)
        tries = count()

        def is_watched() -> bool:
            (place / f"try{next(tries)}").write_text("x")
            return all(types(stream, "file") for stream in streams)

        until(is_watched)
        (place / "new.txt").write_text("text")
        subprocess.run(["git", "-C", place, "checkout", "-q", "-b", "other"], check=True)
        terminal = front.ask("POST", f"/pty{query}", {"command": "/bin/sh"})[1]
        assert front.ask("DELETE", f"/pty/{terminal['id']}{query}")[0] == 200
        for stream in (events, own):
            until(lambda: len(types(stream, "pty")) == 2 and types(stream, "vcs.branch"))  # noqa: B023 - awaited at once
        for stream in streams:
            until(lambda: "new.txt" in str(stream))  # noqa: B023 - awaited at once
        (place / "end.txt").write_text("text")
        for stream in streams:
            until(lambda: "end.txt" in str(stream))  # noqa: B023 - awaited at once
    added, added2, added_own = (
        [event for event in stream if event["type"].startswith("file") and "new.txt" in str(event)] for stream in streams
    )
    assert [event["properties"] for event in added] == [event["properties"] for event in added_own]
    assert len(added2) == len(added_own)
    for stream in (events, own):
        assert types(stream, "pty") == ["pty.created", "pty.deleted"]
        assert types(stream, "vcs.branch") == ["vcs.branch.updated"]


def test_a_server_without_the_directory_lets_another_one_do_it(tmp_path: Path, nats: NatsServer) -> None:
    left, right = tmp_path / "left", tmp_path / "right"
    for place in (left, right):
        place.mkdir()
        (place / f"of-{place.name}").write_text("text")
    with (
        server(left, **node_settings(tmp_path, nats, "one", SHIM_ROOTS=str(left))) as one,
        server(right, **node_settings(tmp_path, nats, "two", SHIM_ROOTS=str(right))) as two,
    ):
        until(lambda: one.ask("GET", f"/file?path=.&directory={right}")[0] == 200)
        assert [row["name"] for row in one.get(f"/file?path=.&directory={right}")] == ["of-right"]
        status, terminal = one.ask("POST", f"/pty?directory={right}", {"command": "/bin/sh"})
        assert (status, parent_of(terminal["pid"])) == (200, two.process.pid)
        assert one.get(f"/pty?directory={right}") == two.get(f"/pty?directory={right}") == [terminal]
        status, answer = one.ask("GET", f"/file?path=.&directory={tmp_path}")
        assert (status, str(tmp_path) in json.dumps(answer)) == (403, True), "nobody has it"


def test_all_servers_with_a_directory_agree_on_the_one_with_its_terminals(tmp_path: Path, nats: NatsServer) -> None:
    """Behind a balancer, each request of a client may come to another server."""
    with (
        server(tmp_path, **node_settings(tmp_path, nats, "one")) as one,
        server(tmp_path, **node_settings(tmp_path, nats, "two")) as two,
        server(tmp_path, **node_settings(tmp_path, nats, "front", SHIM_NO_AGENTS="true")) as front,
    ):
        servers = (one, two, front)
        for node in servers:
            until(lambda: len(node.get("/path")) and node.ask("POST", "/session", {})[0] == 200)  # noqa: B023 - awaited at once
        hosts: set[int] = set()
        for name in ascii_lowercase:  # a directory goes to one or the other by chance
            if len(hosts) == 2:
                break
            (place := tmp_path / name).mkdir()
            terminals = [node.ask("POST", f"/pty?directory={place}", {"command": "/bin/sh"})[1] for node in servers]
            hosts |= {parent_of(terminal["pid"]) for terminal in terminals}
            assert len({parent_of(terminal["pid"]) for terminal in terminals}) == 1
            for node in servers:
                assert node.get(f"/pty?directory={place}") == terminals
        assert hosts == {one.process.pid, two.process.pid}, "the directories are spread"
        assert os.getpid() not in hosts


def test_terminals_stay_listed_when_a_server_joins(
    tmp_path: Path, nats: NatsServer, front_and_node: tuple[Server, Server]
) -> None:
    front, _ = front_and_node
    terminals: dict[Path, Any] = {}
    for name in "abcdef":
        (tmp_path / name).mkdir()
        terminals[tmp_path / name] = front.ask("POST", f"/pty?directory={tmp_path / name}", {"command": "/bin/sh"})[1]
    with server(tmp_path, **node_settings(tmp_path, nats, "later")) as later:
        until(lambda: len(front.get("/v1/x-nodes")["nodes"]) == 3)
        for node in (front, later):
            for place, terminal in terminals.items():
                assert node.get(f"/pty?directory={place}") == [terminal]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    identity = ("-c", "user.name=User", "-c", "user.email=user@example.com")
    subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
    for number in range(5):
        (folder / f"part{number}").mkdir()
        (folder / f"part{number}" / "file").write_text("text\n")
    subprocess.run(["git", "-C", folder, "add", "."], check=True)
    subprocess.run(["git", "-C", folder, *identity, "commit", "-q", "-m", "first"], check=True)
    return folder


def test_worktrees_of_a_front_are_made_used_and_removed_at_their_server(
    tmp_path: Path, nats: NatsServer, repository: Path
) -> None:
    """They lie in the data of the server that has made them, also when another one is chosen for the repository by then."""

    def settings(name: str) -> dict[str, str]:
        """On one machine, only roots can say that a server does not have the data of the other one."""
        (tmp_path / name).mkdir(mode=0o700)
        return node_settings(tmp_path, nats, name, SHIM_ROOTS=f"{repository}:{tmp_path / name}")

    with (
        server(repository, **settings("one")),
        server(tmp_path, **node_settings(tmp_path, nats, "front", SHIM_NO_AGENTS="true")) as front,
        events_of(front, "/global/event") as events,
    ):
        query = f"?directory={repository}"
        until(lambda: front.ask("POST", f"/session{query}", {})[0] == 200)
        places: list[Path] = []
        for number in range(5):
            status, worktree = front.ask("POST", f"/experimental/worktree{query}", {"name": f"tree{number}"})
            assert status == 200, worktree
            places.append(Path(worktree["directory"]))
        assert all(tmp_path / "one" in place.parents for place in places)
        assert sorted(front.get(f"/experimental/worktree{query}")) == sorted(map(str, places))
        until(lambda: len(ready(events)) == 5)
        with server(repository, **settings("two")) as two:
            until(lambda: front.ask("POST", f"/session?directory={tmp_path / 'two'}", {})[0] == 200)
            assert two.get(f"/file?path=.&directory={places[0]}") == front.get(f"/file?path=.&directory={places[0]}")
            session = front.ask("POST", f"/session?directory={places[0]}", {})[1]["id"]
            front.prompt(session, "echo there")
            assert front.texts(session) == ["echo there", "there"]
            (places[0] / "part0" / "file").write_text("changed\n")
            body = {"directory": str(places[0])}
            assert front.ask("POST", f"/experimental/worktree/reset{query}/part0", body) == (200, True)
            assert (places[0] / "part0" / "file").read_text() == "text\n"
            for number, place in enumerate(places):
                answer = front.ask("DELETE", f"/experimental/worktree{query}/part{number}", {"directory": str(place)})
                assert (answer, place.exists()) == ((200, True), False), number
    assert len(ready(events)) == 5


def ready(events: list[dict[str, Any]]) -> list[str]:
    payloads = [event["payload"] for event in events]
    return [payload["properties"]["name"] for payload in payloads if payload["type"] == "worktree.ready"]
