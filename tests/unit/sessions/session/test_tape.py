"""Tapes: calls are kept as they were, rows stand behind their events, and what cannot be kept is given up."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from shim.lib.clock import ManualClock
from shim.processes.held_process import HeldProcess, NumberedLine
from shim.sessions.session.tape import LEASE_S, LIMIT_CALLS, Tape, Tapes, calls_of, read_call
from shim.store.sqlite import SqliteStore
from universal.codec import Attachment, Interrupt, Output, PermissionReply, Prompt, QuestionReply, WriteLine
from universal.launch import LaunchOptions
from universal.permissions import Rule
from universal.setup import TOOLS_SERVER, DirectorySetup, McpServer

PROMPT = Prompt(
    "itm_1", "hello", [Attachment("image/png", base64="AAAA")], model="m", system="s", rules=(Rule("bash", "*", "ask"),),
    setup=DirectorySetup(text="words", has_plugins=True),
)  # fmt: skip


class Puppet:
    """A codec with the calls that tapes note. It calls itself, as real ones do."""

    def __init__(self) -> None:
        self.got: list[Any] = []

    def launch(self, options: LaunchOptions) -> str:
        self.got.append(options)
        return "a launch"

    def send(self, command: Any) -> list[Output]:
        self.got.append(command)
        return [WriteLine(b"one"), *self.proceed("inner")]

    def proceed(self, permission_id: str) -> list[Output]:
        self.got.append(permission_id)
        return [WriteLine(permission_id.encode())]

    def receive(self, line: bytes) -> list[Output]:
        return [WriteLine(b"re:" + line)]

    def change_setup(self, setup: DirectorySetup) -> list[Output]:
        return []

    def adopt(self, options: LaunchOptions) -> bool:
        return True


async def open_store(folder: Path) -> SqliteStore:
    store = SqliteStore(folder / "journal.db")
    await store.open()
    return store


def new_tape(store: SqliteStore, folder: Path) -> tuple[Tape, Any]:
    tape = Tape(Tapes(store, folder, ManualClock()), "ses_1", lambda: None)
    codec: Any = Puppet()
    tape.listen(codec)
    return tape, codec


COMMANDS = [
    PROMPT,
    Interrupt(),
    PermissionReply("per_1", "reject", "no", stops=True),
    QuestionReply("que_1", (("a", "b"), ())),
    QuestionReply("que_1", None),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: type(command).__name__)
async def test_a_command_comes_back_as_it_was(command: Any, tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    tape, codec = new_tape(store, tmp_path)
    codec.receive(b"first")
    codec.send(command)
    await tape.hold.commit()
    [call] = (await store.values(calls_of("ses_1"))).values()
    name, [again] = read_call(call)
    assert (call["at"], name, type(again)) == (1, "send", type(command))
    if isinstance(command, QuestionReply):
        assert (again.answers is None) == (command.answers is None)
        assert [tuple(one) for one in again.answers or ()] == list(command.answers or ())
    else:
        assert again == command
    assert tape.calls == 1
    await store.close()


async def test_lines_have_numbers_in_the_order_of_outputs(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    tape, codec = new_tape(store, tmp_path)
    lines = [output.data for output in (*codec.send(PROMPT), *codec.receive(b"x"))]
    assert lines == [b"one", b"inner", b"re:x"]
    assert [line.number for line in lines if isinstance(line, NumberedLine)] == [1, 2, 3]
    assert (tape.lines, tape.outputs, tape.writes, tape.calls) == (1, 3, 3, 1)
    await asyncio.sleep(0)
    await store.close()


async def test_an_environment_is_not_kept(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    tape, codec = new_tape(store, tmp_path)
    options = LaunchOptions("/bin/agent", "/", environment={"KEY": "secret-1"}, variables={"OWN": "secret-2"}, model="m")
    assert codec.launch(options) == "a launch"
    assert codec.got == [options]
    await tape.hold.commit()
    stored = str(await store.values(calls_of("ses_1")))
    assert "secret" not in stored
    assert "/bin/agent" in stored
    assert tape.is_exact
    await store.close()


async def test_servers_of_a_setup_are_kept_for_the_holder_alone(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    tape, codec = new_tape(store, tmp_path)
    setup = DirectorySetup((McpServer("s", ("run",), environment={"TOKEN": "secret"}),), text="words")
    prompt, options = Prompt("k", "t", [], setup=setup), LaunchOptions("/bin/agent", "/", setup=setup)
    codec.launch(options)
    codec.send(prompt)
    codec.change_setup(setup)
    codec.change_setup(DirectorySetup())
    assert tape.is_exact
    await tape.hold.commit()
    calls = await store.values(calls_of("ses_1"))
    assert "secret" not in str(calls)
    assert len(tape.notes) == 1, "each set-up stands there once"
    again = [read_call(calls[str(number)], tape.notes)[1] for number in range(1, 5)]
    assert again == [[options], [prompt], [setup], [DirectorySetup()]]
    with pytest.raises(IndexError):
        read_call(calls["1"])
    await store.close()


@pytest.mark.parametrize(
    "setup",
    [DirectorySetup((McpServer(TOOLS_SERVER),)), DirectorySetup((McpServer("own"),), has_shim=True)],
    ids=["tools", "own"],
)
async def test_tools_of_this_server_make_it_end_with_its_server(setup: DirectorySetup, tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    tape, codec = new_tape(store, tmp_path)
    codec.send(Prompt("k", "t", setup=setup))
    assert not tape.is_exact
    await tape.hold.commit()
    assert await store.values(calls_of("ses_1")) == {}
    await store.close()


async def test_too_many_calls_make_it_end_with_its_server(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    tape, codec = new_tape(store, tmp_path)
    tape.calls = LIMIT_CALLS
    codec.proceed("p")
    assert not tape.is_exact
    await asyncio.sleep(0)
    await store.close()


async def test_the_end_of_a_tape_leaves_nothing(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    tape, codec = new_tape(store, tmp_path)
    codec.send(PROMPT)
    await asyncio.sleep(0)
    tape.end()
    await store.flush()
    assert await store.namespaces() == []
    await store.close()


async def test_a_tape_is_removed_with_what_happens_in_the_same_round(tmp_path: Path) -> None:
    """Another one may follow it, or the end of its turn: without either of them the next server would know of no agent."""
    store = await open_store(tmp_path)
    tape, codec = new_tape(store, tmp_path)
    codec.send(PROMPT)
    await asyncio.sleep(0)
    await store.flush()
    tape.end()
    assert store.groups.is_grouping
    await store.close()


async def test_an_agent_that_is_dropped_has_no_lease(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    tape, _ = new_tape(store, tmp_path)
    leases: list[int] = []
    tape.process = cast(HeldProcess, SimpleNamespace(lease=leases.append))
    tape.renew_lease(is_busy=True)
    tape.drop()
    assert leases == [LEASE_S, 0]
    await store.close()


async def test_the_tape_of_a_spare_is_stored_from_the_moment_a_session_takes_it(tmp_path: Path) -> None:
    store = await open_store(tmp_path)
    tapes = Tapes(store, tmp_path, ManualClock())
    tape, codec = Tape(tapes, "", lambda: None), Puppet()
    tape.listen(codec)  # type: ignore[arg-type]
    codec.launch(LaunchOptions("", "/"))
    codec.receive(b"hello")
    codec.adopt(LaunchOptions("", "/", rules=(Rule("bash", "*", "ask"),)))
    await asyncio.sleep(0)
    await store.flush()
    assert await store.namespaces() == [], "nobody's agent is in no store"
    tape.adopt("ses_1")
    codec.send(PROMPT)
    await asyncio.sleep(0)
    await store.flush()
    stored = await store.values(calls_of("ses_1"))
    calls = [(stored[key]["at"], *read_call(stored[key])) for key in sorted(stored)]
    assert [(at, name) for at, name, _ in calls] == [(0, "launch"), (1, "adopt"), (1, "send")]
    assert calls[1][2][0].rules == (Rule("bash", "*", "ask"),)
    assert (tape.lines, tape.calls) == (1, 3)
    await store.close()


def test_ids_of_a_tape_hang_on_its_token_and_their_number(tmp_path: Path) -> None:
    tapes = Tapes(SqliteStore(tmp_path / "journal.db"), tmp_path, ManualClock())
    tape = Tape(tapes, "ses_1", lambda: None)
    row = {"folder": str(tape.hold.folder), "secret": tape.hold.secret, "token": tape.hold.token, "began_ms": tape.began_ms}
    again = Tape(tapes, "ses_1", lambda: None, row)
    ids = [tape.new_id(kind) for kind in ("item", "item", "permission", "question")]
    assert ids == [again.new_id(kind) for kind in ("item", "item", "permission", "question")]
    assert ids[0] < ids[1]
    assert [id_[:4] for id_ in ids] == ["itm_", "itm_", "per_", "que_"]
