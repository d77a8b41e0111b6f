"""The bounds of spare agents, with real processes: what starts them, what ends them, and when there is none."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from shim.agents.directory import Agent, AgentDirectory
from shim.agents.keys import KeyStore
from shim.agents.spares import spare_agents
from shim.agents.spares.spare_agents import (
    CHANGED_MS,
    LEAST_FREE_BYTES,
    MOST_LOSSES,
    OPEN_MS,
    PREPARE_MS,
    REFILL_MS,
    UNUSED_MS,
    Spare,
    SpareAgents,
)
from shim.host.config.setups import Setups
from shim.host.git.snapshot import NoSnapshots
from shim.host.trust.project_settings import ProjectScanner
from shim.host.trust.trust_store import ProjectTrust, TrustFile
from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.processes.process_family import end_owned
from shim.store.memory import MemoryStore
from tests.support.heron import HERON, KEY, HeronProcess, install, processes
from tests.support.specs import change
from universal.agent_spec import AgentSpec
from universal.launch import LaunchOptions
from universal.permissions import DirectoryRules, Rule

WAIT_S = 10.0
POLL_S = 0.005
"""Seconds between two looks at a process: to look all the time takes from it what it needs."""


@dataclass
class Pool:
    """Spares over real agents, with a clock, a memory and a load that the test sets."""

    home: Path
    agents: AgentDirectory
    clock: ManualClock
    trust: ProjectTrust
    free: int | None = 8 * 2**30
    idle: bool = True
    rules: tuple[Rule, ...] = ()
    roots: tuple[str, ...] = ()
    spares: SpareAgents = field(init=False)
    taken: list[Spare] = field(default_factory=list)
    snapshots: list[str] = field(default_factory=list)

    @property
    def agent(self) -> Agent:
        agent = self.agents.get("heron")
        assert agent is not None
        return agent

    def project(self, name: str = "project") -> str:
        """A new directory in the home."""
        folder = self.home / name
        folder.mkdir(exist_ok=True)
        return str(folder)

    def processes(self) -> list[HeronProcess]:
        return processes(self.home)

    async def use(self, directory: str) -> None:
        """A session has started the agent there, a while ago; the machine is idle now."""
        self.spares.note_use(self.agent, directory)
        self.clock.value_ms += REFILL_MS
        await self.look()

    async def look(self) -> None:
        await self.spares.look()
        await self.settle()

    async def settle(self) -> None:
        """Wait until ended spares have ended, and the others have said hello."""
        async with asyncio.timeout(WAIT_S):
            while self.spares._ending:
                await asyncio.wait(self.spares._ending)
            for spare in list(self.spares._spares.values()):
                while spare.codec.catalogue is None and spare.is_usable:
                    await asyncio.sleep(POLL_S)

    async def until_lost(self, number: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while self.spares.count > number:
                await asyncio.sleep(POLL_S)
        await self.settle()

    async def take(self, directory: str, **options: object) -> int | None:
        """The pid of the spare that a session there would get."""
        spare = await self.spares.take(self.agent, replace(LaunchOptions("", directory, rules=self.rules), **options))
        if spare is None:
            return None
        self.taken.append(spare)
        return spare._handle.pid if spare._handle is not None else None


@asynccontextmanager
async def pool(
    tmp_path: Path, *, spec: AgentSpec = HERON, limit: int = 2, owner: str = "", **more: object
) -> AsyncIterator[Pool]:
    home = tmp_path / "home"
    home.mkdir()
    environ = {**install(home), **{k: v for k, v in more.pop("environ", {}).items()}}  # type: ignore[attr-defined]
    clock, store = ManualClock(step_ms=0), MemoryStore()
    await store.open()
    agents = AgentDirectory(
        {"heron": spec},
        clock=clock,
        ids=Ids(clock),
        store=store,
        environ=environ,
        keys=KeyStore(tmp_path / "auth.json"),
        owner=owner,
    )
    await agents.start()
    await agents.settle()
    trust = ProjectTrust(ProjectScanner(str(home)), TrustFile(tmp_path / "trust.json", clock))
    made = Pool(home, agents, clock, trust, **more)  # type: ignore[arg-type]

    async def refresh(_directory: str) -> None: ...

    async def track(directory: str) -> str:
        made.snapshots.append(directory)
        raise NoSnapshots("no room")

    made.spares = SpareAgents(
        agents,
        clock=clock,
        ids=Ids(clock),
        limit=limit,
        trust=trust,
        roots=made.roots,
        config_refresh=refresh,
        config_rules=lambda _: DirectoryRules(made.rules),
        setups=Setups(),
        snapshots=lambda _: SimpleNamespace(track=track),  # type: ignore[arg-type,return-value]
        is_idle=lambda: made.idle,
        read_free_bytes=lambda: made.free,
    )
    try:
        yield made
    finally:
        await made.spares.close()
        for spare in made.taken:
            await spare.stop()
        await agents.close()
    assert not [row.pid for row in made.processes() if is_alive(row.pid)], "a process outlives the pool"


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
async def p(tmp_path: Path) -> AsyncIterator[Pool]:
    async with pool(tmp_path) as made:
        yield made


async def test_a_spare_is_started_after_a_use_and_taken_by_the_next_session(p: Pool) -> None:
    directory = p.project()
    await p.use(directory)
    [row] = p.processes()
    assert (row.directory, row.key) == (directory, "k")
    assert await p.take(directory) == row.pid
    assert await p.take(directory) is None, "one spare is for one session"


async def test_the_next_spare_waits_until_the_first_answer_had_time_and_the_machine_is_idle(p: Pool) -> None:
    directory = p.project()
    p.spares.note_use(p.agent, directory)
    await p.look()
    assert p.processes() == []
    p.clock.value_ms += REFILL_MS
    p.idle = False
    await p.look()
    assert p.processes() == []
    p.idle = True
    await p.look()
    assert len(p.processes()) == 1


async def test_there_is_at_most_one_spare_for_a_pair(p: Pool) -> None:
    directory = p.project()
    for _ in range(3):
        await p.use(directory)
    assert len(p.processes()) == p.spares.count == 1


async def test_the_limit_holds_and_the_last_used_directories_have_the_spares(p: Pool) -> None:
    directories = [p.project(name) for name in ("one", "two", "three")]
    for directory in directories:
        await p.use(directory)
    assert p.spares.count == 2
    assert [is_alive(row.pid) for row in p.processes()] == [False, True, True]
    assert await p.take(directories[0]) is None


async def test_a_limit_of_zero_starts_none_and_ends_those_that_run(p: Pool) -> None:
    directory = p.project()
    await p.use(directory)
    p.spares.limit = 0
    await p.look()
    await p.use(directory)
    p.spares.note_visit(p.agent, directory)
    await p.look()
    assert p.spares.count == 0
    assert [is_alive(row.pid) for row in p.processes()] == [False]


@pytest.mark.parametrize("free", [LEAST_FREE_BYTES - 1, None])
async def test_there_is_none_when_memory_is_short_or_unknown(p: Pool, free: int | None) -> None:
    directory = p.project()
    await p.use(directory)
    p.free = free
    await p.look()
    assert p.spares.count == 0, "memory became short"
    await p.use(directory)
    assert len(p.processes()) == 1
    p.free = LEAST_FREE_BYTES
    await p.use(directory)
    assert len(p.processes()) == 2


async def test_an_unused_spare_is_ended_and_a_visit_starts_no_other(p: Pool) -> None:
    directory = p.project()
    await p.use(directory)
    p.clock.value_ms += UNUSED_MS - 1
    await p.look()
    assert p.spares.count == 1
    p.clock.value_ms += 1
    await p.look()
    assert p.spares.count == 0
    for _ in range(3):  # a client that lists sessions again and again
        p.spares.note_visit(p.agent, directory)
        await p.look()
    assert len(p.processes()) == 1
    await p.use(directory)
    assert len(p.processes()) == 2


async def test_a_visit_starts_one_at_once_and_takes_no_others_place(p: Pool) -> None:
    for name in ("one", "two", "three"):
        p.spares.note_visit(p.agent, p.project(name))
        await p.look()
    assert [Path(row.directory).name for row in p.processes()] == ["one", "two"]
    assert p.spares.count == 2


@pytest.mark.parametrize("way", ["signs", "told"])
async def test_an_agent_that_is_not_logged_in_gets_none(tmp_path: Path, way: str) -> None:
    async with pool(tmp_path, environ={KEY: ""} if way == "signs" else {}) as p:
        if way == "told":
            p.agents._agents["heron"] = replace(p.agent, logged_out=True)
        await p.use(p.project())
        assert p.processes() == []


async def test_a_spare_is_prepared_once_and_the_files_of_its_directory_have_a_snapshot(p: Pool) -> None:
    directory = p.project()
    await p.use(directory)
    assert p.snapshots == [directory]
    [spare] = p.spares._spares.values()
    assert preparations(spare) == 0, "it still loads by itself"
    for _ in range(2):
        p.clock.value_ms += PREPARE_MS
        await p.look()
        assert preparations(spare) == 1


async def test_a_spare_is_prepared_as_soon_as_it_is_due(p: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_agents, "LOOK_S", 3600.0)
    await p.use(p.project())
    [spare] = p.spares._spares.values()
    p.clock.step_ms = PREPARE_MS // 2  # each reading
    p.spares.start()
    async with asyncio.timeout(WAIT_S):
        while not preparations(spare):
            await asyncio.sleep(POLL_S)


def preparations(spare: Spare) -> int:
    return getattr(spare.codec, "preparations", 0)


async def test_a_directory_without_a_spare_gets_no_snapshot_ahead(p: Pool) -> None:
    p.free = 0
    await p.use(p.project())
    assert p.snapshots == []


async def test_an_agent_whose_spec_has_no_spare_gets_none(tmp_path: Path) -> None:
    async with pool(tmp_path, spec=change(HERON, spare=None)) as p:
        await p.use(p.project())
        p.spares.note_visit(p.agent, p.project())
        await p.look()
        assert p.processes() == []


def plant_hook(directory: str, command: str = "true") -> None:
    settings = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}}
    Path(directory, ".claude").mkdir(exist_ok=True)
    Path(directory, ".claude", "settings.json").write_text(json.dumps(settings))


def decide(p: Pool, directory: str, *, trusted: bool) -> None:
    p.trust.decide(p.trust.look(directory, ("claude",)).settings, trusted=trusted)


async def test_a_project_gets_none_before_it_is_trusted_nor_when_it_is_declined(p: Pool) -> None:
    directory = p.project()
    plant_hook(directory)
    await p.use(directory)
    assert p.processes() == []
    decide(p, directory, trusted=False)
    await p.use(directory)
    assert p.processes() == []
    decide(p, directory, trusted=True)
    await p.use(directory)
    assert len(p.processes()) == 1


async def test_a_spare_is_not_taken_when_the_trust_decision_or_the_settings_have_changed(p: Pool) -> None:
    directory = p.project()
    plant_hook(directory)
    decide(p, directory, trusted=True)
    await p.use(directory)
    plant_hook(directory, "false")
    assert await p.take(directory) is None
    decide(p, directory, trusted=True)
    p.clock.value_ms += CHANGED_MS
    await p.look()
    decide(p, directory, trusted=False)
    assert await p.take(directory) is None, "the person has taken the trust back"
    await p.settle()
    assert [is_alive(row.pid) for row in p.processes()] == [False, False]


def git(p: Pool, directory: str, *arguments: str) -> None:
    command = ["git", "-C", directory, "-c", "user.name=U", "-c", "user.email=u@example.org", *arguments]
    subprocess.run(command, check=True, env={"PATH": os.environ["PATH"], "HOME": str(p.home)})


def write(path: str, content: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(content)


@pytest.mark.parametrize("name", ["CLAUDE.md", "../CLAUDE.md", ".claude/skills/one/SKILL.md", "../.heron/settings"])
@pytest.mark.parametrize("when", ["take", "look"])
async def test_a_spare_is_thrown_away_when_a_file_of_settings_changes(p: Pool, name: str, when: str) -> None:
    git(p, str(p.home), "init", "-q")  # the repository's root is above the project
    write(f"{p.home}/.gitignore", "*")
    directory = p.project()
    await p.use(directory)
    assert p.spares.count == 1
    write(f"{directory}/{name}", "new")
    if when == "take":
        assert await p.take(directory) is None
    else:
        await p.look()
    await p.settle()
    assert p.spares.count == 0
    await p.look()
    assert len(p.processes()) == 1, "its successor waits until the files are quiet"
    p.clock.value_ms += CHANGED_MS
    await p.look()
    assert await p.take(directory) == p.processes()[1].pid


async def test_a_spare_is_thrown_away_when_the_branch_or_the_working_tree_has_changed(p: Pool) -> None:
    directory = p.project()
    git(p, directory, "init", "-q")
    git(p, directory, "commit", "-q", "--allow-empty", "-m", "one")
    await p.use(directory)
    assert p.spares.count == 1
    git(p, directory, "checkout", "-q", "-b", "other")
    assert await p.take(directory) is None
    p.clock.value_ms += CHANGED_MS
    await p.look()
    assert p.spares.count == 1
    write(f"{directory}/new.txt", "new")
    await p.look()
    assert p.spares.count == 0


async def test_a_session_with_other_options_gets_a_process_of_its_own(p: Pool) -> None:
    directory = p.project()
    await p.use(directory)
    others = [
        {"resume": True, "native_session_id": "x"},
        {"variables": {"A": "b"}},
        {"project_settings": False},
        {"rules": (Rule("bash", "*", "deny"),)},
    ]
    for options in others:
        assert await p.take(directory, **options) is None, options
    assert await p.take(p.project("other")) is None
    assert await p.take(directory) == p.processes()[0].pid


async def test_a_spare_has_the_rules_of_the_configuration(p: Pool) -> None:
    p.rules = (Rule("bash", "rm *", "deny"),)
    await p.use(p.project())
    assert await p.take(p.project()) is not None
    assert p.taken[0].options.rules == p.rules


async def test_a_new_key_makes_a_spare_useless(p: Pool) -> None:
    directory = p.project()
    await p.use(directory)
    p.agents.keys.set("heron", "other")
    assert await p.take(directory) is None
    p.clock.value_ms += CHANGED_MS
    await p.look()
    assert p.processes()[-1].key == "other"


async def test_a_new_program_makes_a_spare_useless(p: Pool) -> None:
    directory = p.project()
    await p.use(directory)
    program = p.home / ".local" / "bin" / "heron"
    program.write_text(program.read_text() + "\n")
    assert await p.take(directory) is None


@pytest.mark.parametrize("fault", ["dies-at-start", "works-at-start"])
async def test_a_spare_that_is_lost_is_forgotten_and_not_started_in_a_loop(p: Pool, fault: str) -> None:
    directory = p.project()
    write(f"{directory}/{fault}", "")
    for number in range(1, MOST_LOSSES + 3):
        await p.use(directory)
        await p.until_lost(0)
        for _ in range(3):
            p.clock.value_ms += UNUSED_MS
            await p.look()
        assert len(p.processes()) == min(number, MOST_LOSSES), "one for a use, and then none"


async def test_a_spare_that_dies_while_it_waits_is_forgotten(p: Pool) -> None:
    directory = p.project()
    await p.use(directory)
    os.kill(p.processes()[0].pid, 9)
    await p.until_lost(0)
    assert await p.take(directory) is None
    await p.look()
    assert len(p.processes()) == 1


async def test_a_spare_of_a_killed_server_is_found_by_the_next_one(tmp_path: Path) -> None:
    async with pool(tmp_path, owner="data-test-spares") as p:
        await p.use(p.project())
        assert p.spares.count == 1
        assert await asyncio.to_thread(end_owned, "data-test-spares") == 1
        await p.until_lost(0)


async def test_a_spare_is_started_as_soon_as_it_is_due(p: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The keeper sleeps no longer than until then."""
    monkeypatch.setattr(spare_agents, "LOOK_S", 3600.0)
    p.clock.step_ms = REFILL_MS // 2  # each reading
    p.spares.start()
    p.spares.note_visit(p.agent, p.project("one"))
    p.spares.note_use(p.agent, p.project("two"))
    async with asyncio.timeout(WAIT_S):
        while p.spares.count < 2:
            await asyncio.sleep(POLL_S)


async def test_two_sessions_never_get_the_same_spare(p: Pool) -> None:
    directory = p.project()
    await p.use(directory)
    pids = await asyncio.gather(*(p.take(directory) for _ in range(5)))
    assert sorted(pid is None for pid in pids) == [False, True, True, True, True]


async def test_a_directory_outside_of_the_roots_gets_none(tmp_path: Path) -> None:
    (tmp_path / "allowed").mkdir()
    async with pool(tmp_path, roots=(str(tmp_path / "allowed"),)) as p:
        await p.use(p.project())
        assert p.processes() == []


async def test_disposing_a_directory_ends_its_spare_alone(p: Pool) -> None:
    one, two = p.project("one"), p.project("two")
    await p.use(one)
    await p.use(two)
    p.spares.drop(one)
    await p.settle()
    assert [is_alive(row.pid) for row in p.processes()] == [False, True]


async def test_the_number_of_pairs_that_are_remembered_is_bounded(p: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spare_agents, "HISTORIES", 3)
    for number in range(6):
        await p.use(p.project(str(number)))
    assert len(p.spares._histories) == 3
    assert p.spares.count == 2


async def test_an_agent_without_a_sign_of_its_login_gets_one_when_it_has_answered(tmp_path: Path) -> None:
    """Such as Codex with a provider of its own, which needs no account."""
    async with pool(tmp_path, environ={KEY: ""}) as p:
        await p.use(p.project())
        assert p.processes() == []
        p.spares.note_answer("heron", is_logged_in=True)
        p.clock.value_ms += CHANGED_MS
        await p.look()
        assert len(p.processes()) == 1
        p.spares.note_answer("heron", is_logged_in=False)
        await p.look()
        assert p.spares.count == 0, "it was refused since"


async def test_an_agent_that_was_refused_gets_none_although_it_has_a_key(p: Pool) -> None:
    p.spares.note_answer("heron", is_logged_in=False)
    await p.use(p.project())
    assert p.processes() == []


async def test_a_directory_that_changes_all_the_time_gets_none_until_its_next_use(p: Pool) -> None:
    directory = p.project()
    await p.use(directory)
    for number in range(MOST_LOSSES + 2):
        write(f"{directory}/CLAUDE.md", "x" * number)
        for _ in range(2):
            p.clock.value_ms += CHANGED_MS
            await p.look()
    assert len(p.processes()) == MOST_LOSSES
    await p.use(directory)
    assert p.spares.count == 1


# --- the agent of an opened session -------------------------------------------------------------------------------------


async def test_an_opened_session_gets_its_agent_ahead(p: Pool) -> None:
    directory = p.project()
    p.spares.note_open(p.agent, directory, "heron-session")
    await p.look()
    assert p.processes() == [], "a look through sessions starts nothing"
    p.clock.value_ms += OPEN_MS
    await p.look()
    [row] = p.processes()
    assert await p.take(directory) is None, "it is not for a new session"
    assert await p.take(directory, resume=True, native_session_id="other") is None
    assert await p.take(directory, resume=True, native_session_id="heron-session", resume_at="x") is None
    assert await p.take(directory, resume=True, native_session_id="heron-session") == row.pid
    assert p.taken[0].options.resume


async def test_of_many_opened_sessions_only_the_last_gets_its_agent(p: Pool) -> None:
    directory = p.project()
    for number in range(5):
        p.spares.note_open(p.agent, directory, f"session-{number}")
        p.clock.value_ms += OPEN_MS // 2
        await p.look()
    assert p.processes() == []
    p.clock.value_ms += OPEN_MS
    await p.look()
    assert len(p.processes()) == 1
    p.spares.note_open(p.agent, directory, "session-9")
    await p.settle()
    assert p.spares.count == 0, "the person has gone on"
    p.clock.value_ms += OPEN_MS
    await p.look()
    assert await p.take(directory, resume=True, native_session_id="session-9") == p.processes()[-1].pid


async def test_an_opened_session_takes_no_others_place(p: Pool) -> None:
    for name in ("one", "two"):
        await p.use(p.project(name))
    p.spares.note_open(p.agent, p.project("one"), "heron-session")
    p.clock.value_ms += OPEN_MS
    await p.look()
    assert len(p.processes()) == 2


async def test_an_opened_session_without_a_prompt_keeps_no_agent(p: Pool) -> None:
    directory = p.project()
    p.spares.note_open(p.agent, directory, "heron-session")
    p.clock.value_ms += OPEN_MS
    await p.look()
    p.clock.value_ms += UNUSED_MS
    await p.look()
    assert p.spares.count == 0
    p.spares.note_open(p.agent, directory, "heron-session")
    p.clock.value_ms += OPEN_MS
    await p.look()
    assert len(p.processes()) == 1


async def test_an_agent_that_is_started_for_its_session_needs_none_ahead(p: Pool) -> None:
    directory = p.project()
    p.spares.note_open(p.agent, directory, "heron-session")
    p.spares.forget_conversation("heron", directory, "heron-session")
    p.clock.value_ms += OPEN_MS
    await p.look()
    assert p.processes() == []
