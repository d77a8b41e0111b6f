"""The directory of agents, with shell scripts as agents: found, asked, kept, started, and missed when they are gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from shim.agents import discovery
from shim.agents.directory import AT_ONCE, AgentDirectory
from shim.agents.discovery import NAMESPACE, SLOW, DiscoveryFailed, discover, from_store, to_store
from shim.lib.clock import ManualClock
from shim.lib.errors import AgentError, AgentNotFound
from shim.lib.ids import Ids
from shim.processes.inprocess import InProcessAgent, Program, Stdio
from shim.store.memory import MemoryStore
from tests.support.specs import change
from universal.agent_spec import AgentSpec, SpareUse
from universal.agents.mock.codec import MockCodec
from universal.agents.mock.spec import MOCK
from universal.codec import Catalogue, Codec, IdFactory, Model
from universal.launch import Exit, LaunchOptions, LaunchSpec

SCRIPT = """#!/bin/sh
if [ "$1" = --version ]; then echo "@VERSION@ (Fake)"; exit 0; fi
echo "$@" >> "$0.runs"
read -r greeting
echo '{"type":"hello","session":"s","models":[{"id":"@MODEL@","name":"A model"}],"commands":[]}'
while read -r line; do :; done
"""
"""An agent that speaks as much of the mock's protocol as is needed to say what it offers."""
HANGS = """#!/bin/sh
if [ "$1" = --version ]; then echo 1.0.0; exit 0; fi
echo $$ > "$0.pid"
while read -r line; do :; done
"""
FAILS = """#!/bin/sh
if [ "$1" = --version ]; then echo 1.0.0; exit 0; fi
echo "no licence" >&2
exit 3
"""
FALLBACK = Catalogue(models=(Model("fallback", "Fallback"),), default_model="fallback")


def spec(name: str = "fake", **changes: object) -> AgentSpec:
    """A registry row of an agent with a program."""
    row = change(
        MOCK,
        name=name,
        title=name.capitalize(),
        binaries=(f"{name}-agent",),
        env_override=f"SHIM_{name.upper()}_BIN",
        version_args=("--version",),
        catalogue=FALLBACK,
        install_hint=f"Install it with: npm install {name}.",
    )
    return change(row, **changes)


class Machine:
    """A home with a folder for programs, a store, and the directories that were started on them."""

    def __init__(self, root: Path) -> None:
        self.bin = root / "bin"
        self.bin.mkdir()
        self.home = root / "home"
        self.home.mkdir()
        self.environ = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(self.home)}
        self.store = MemoryStore()
        self.directories: list[AgentDirectory] = []

    def install(self, name: str = "fake", script: str = SCRIPT, *, model: str = "m1", version: str = "1.2.3") -> Path:
        """Put a program on PATH, in one step, as installers do."""
        path = self.bin / f"{name}-agent"
        new = path.with_suffix(".new")
        new.write_text(script.replace("@MODEL@", model).replace("@VERSION@", version))
        new.chmod(0o755)
        return new.rename(path)

    def runs(self, name: str = "fake") -> int:
        """How often it was started, `--version` not counted."""
        path = self.bin / f"{name}-agent.runs"
        return len(path.read_text().splitlines()) if path.exists() else 0

    async def directory(self, *specs: AgentSpec, start: bool = True, **how: object) -> AgentDirectory:
        """A directory of these agents and the mock."""
        clock = ManualClock()
        rows = {s.name: s for s in (*specs, MOCK)}
        made = AgentDirectory(rows, clock=clock, ids=Ids(clock), store=self.store, environ=self.environ, **how)  # type: ignore[arg-type]  # passed on
        self.directories.append(made)
        if start:
            await made.start()
        return made


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    made = Machine(tmp_path)
    await made.store.open()
    try:
        async with asyncio.timeout(30):
            yield made
    finally:
        for directory in made.directories:
            await directory.close()
        await made.store.close()
        left = {task for task in asyncio.all_tasks() if task.get_name().startswith(("ask", "stop", "fake"))}
        if left:  # a process that has ended is still swept up after
            _, left = await asyncio.wait(left, timeout=5)
        assert {task.get_name() for task in left} == set()


def models(directory: AgentDirectory, name: str = "fake") -> list[str]:
    """Ids of the models that an agent is known to have."""
    agent = directory.get(name)
    assert agent is not None
    return [m.id for m in agent.catalogue.models]


def ignore(_: object) -> None:
    """For lines and exits that do not matter."""


# --- what there is -----------------------------------------------------------------------------------------


async def test_an_installed_agent_is_found_and_asked(machine: Machine) -> None:
    path = machine.install()
    directory = await machine.directory(spec(), spec("absent"))
    fake, mock = await directory.available()
    assert (fake.located.path, fake.located.version, models(directory)) == (str(path), "1.2.3", ["m1"])
    assert mock.spec is MOCK and models(directory, "mock") == ["mock"]
    assert directory.default() is fake
    assert [a.spec.name for a in directory.list_agents()] == ["fake", "absent", "mock"]
    absent = directory.get("absent")
    assert absent is not None and not absent.usable
    assert "npm install absent" in absent.located.why and "SHIM_ABSENT_BIN" in absent.located.why
    assert directory.get("unheard of") is None


async def test_without_real_agents_the_mock_is_the_default(machine: Machine) -> None:
    directory = await machine.directory(spec())
    assert [a.spec.name for a in await directory.available()] == ["mock"]
    assert directory.default().spec is MOCK


async def test_the_default_can_be_set_and_comes_first(machine: Machine) -> None:
    machine.install()
    directory = await machine.directory(spec(), default_agent="mock")
    assert [a.spec.name for a in await directory.available()] == ["mock", "fake"]


async def test_an_unknown_default_is_refused(machine: Machine) -> None:
    directory = await machine.directory(spec(), default_agent="flake", start=False)
    with pytest.raises(AgentNotFound, match=r"flake.*Known: fake, mock"):
        await directory.start()


async def test_a_default_that_is_not_installed_stays_the_default(machine: Machine) -> None:
    directory = await machine.directory(spec(), default_agent="fake")
    assert directory.default().spec.name == "fake" and directory.default().located.why


async def test_without_any_agent(machine: Machine) -> None:
    clock = ManualClock()
    directory = AgentDirectory({}, clock=clock, ids=Ids(clock), store=machine.store, environ={})
    await directory.start()
    assert directory.list_agents() == []
    with pytest.raises(AgentNotFound):
        directory.default()


async def test_the_variable_of_an_agent_names_its_program(machine: Machine, tmp_path: Path) -> None:
    machine.install(model="on the path")
    other = machine.install("other", model="named").rename(tmp_path / "elsewhere")
    machine.environ["SHIM_FAKE_BIN"] = str(other)
    directory = await machine.directory(spec())
    assert (await directory.available())[0].located.path == str(other)
    assert models(directory) == ["named"]


# --- asking ------------------------------------------------------------------------------------------------


async def test_discovered_offers_are_there_at_the_next_start(machine: Machine) -> None:
    machine.install()
    await (await machine.directory(spec())).settle()
    again = await machine.directory(spec())
    agent = again.get("fake")
    assert agent is not None and agent.located.version == "1.2.3"
    assert models(again) == ["m1"] and machine.runs() == 1
    await again.settle()
    assert machine.runs() == 2  # and it was asked again in the background


async def test_offers_of_another_file_do_not_count(machine: Machine) -> None:
    machine.install()
    await (await machine.directory(spec())).settle()
    machine.install(model="m2", version="2.0.0")
    again = await machine.directory(spec())
    assert models(again) == ["fallback"]
    agent = (await again.available())[0]
    assert (models(again), agent.located.version) == (["m2"], "2.0.0")


@pytest.mark.parametrize(
    "value", [{}, [], "x", {"path": "/x", "stamp": 1}, {"path": "/x", "stamp": "x", "version": None, "catalogue": 1}]
)
async def test_offers_stored_by_another_version_are_ignored(machine: Machine, value: object) -> None:
    machine.install()
    machine.store.set_value(NAMESPACE, "fake", value)
    directory = await machine.directory(spec())
    await directory.available()
    assert models(directory) == ["m1"]


@pytest.mark.parametrize(
    ("script", "why"), [(FAILS, "exit code 3.*no licence"), (HANGS, "within 0.2 s"), ("#!/bin/sh\n", "exit code 0")]
)
async def test_an_agent_without_a_catalogue_has_that_of_the_registry(machine: Machine, script: str, why: str) -> None:
    machine.install(script=script)
    directory = await machine.directory(spec(), discovery_timeout_s=0.2)
    fake = (await directory.available())[0]
    assert fake.usable and models(directory) == ["fallback"]
    with pytest.raises(AssertionError, match=f"(?s)Fake: .*{why}"):
        raise AssertionError(fake.trouble)
    assert fake.slow == (script == HANGS)
    assert await machine.store.values(NAMESPACE) == {}


@pytest.mark.parametrize(("transport", "seconds"), [("stdio", 5.0), ("http", 20.0)])
async def test_an_agent_behind_http_may_take_longer_for_its_offer(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, transport: str, seconds: float
) -> None:
    limits: list[float] = []

    async def note(codec: Codec, spawn: object, tell: object, *, timeout_s: float) -> None:
        limits.append(timeout_s)

    monkeypatch.setattr(discovery, "discover", note)
    machine.install()
    directory = await machine.directory(spec(transport=transport), discovery_timeout_s=5.0)
    await directory.settle()
    assert seconds in limits and {*limits} <= {5.0, seconds}


async def test_an_agent_that_hangs_delays_answers_for_a_bounded_time(machine: Machine) -> None:
    machine.install(script=HANGS)
    directory = await machine.directory(spec())
    assert [a.spec.name for a in await directory.available(timeout_s=0.05)] == ["fake", "mock"]
    assert models(directory) == ["fallback"]


async def test_closing_ends_what_is_being_asked(machine: Machine) -> None:
    machine.install(script=HANGS)
    directory = await machine.directory(spec())
    pid_file = machine.bin / "fake-agent.pid"
    while not pid_file.exists() or not pid_file.read_text().strip():
        await asyncio.sleep(0)
    await directory.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


async def test_few_agents_are_asked_at_the_same_time(machine: Machine) -> None:
    running = most = 0
    gate = asyncio.Event()

    async def program(stdio: Stdio) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await gate.wait()
        await stdio.write(b'{"type":"hello","models":[{"id":"m","name":"M"}]}')
        while await stdio.read() is not None:
            pass
        running -= 1
        return 0

    names = [f"inside{n}" for n in range(6)]
    specs = [replace(MOCK, name=name) for name in names]
    directory = await machine.directory(*specs, programs=dict.fromkeys(names, program))
    while running < AT_ONCE:
        await asyncio.sleep(0)
    gate.set()
    await directory.settle()
    assert most == AT_ONCE
    assert {tuple(models(directory, name)) for name in names} == {("m",)}


async def test_an_agent_with_neither_program_nor_code_says_so(machine: Machine) -> None:
    directory = await machine.directory(replace(MOCK, name="hollow", title="Hollow"))
    await directory.settle()
    agent = directory.get("hollow")
    assert agent is not None and "Hollow" in agent.trouble
    with pytest.raises(AgentNotFound, match="Hollow"):
        await directory.spawn(agent, LaunchOptions("", str(machine.home)), agent.spec.make(lambda k: k), ignore, ignore)


async def test_an_agent_whose_codec_knows_what_it_offers_is_not_started_to_ask_it(machine: Machine) -> None:
    class ModelCodec(MockCodec):
        def __init__(self, ids: IdFactory) -> None:
            super().__init__(ids)
            self.catalogue = Catalogue(models=(Model("known", "Known"),))

    machine.install()
    directory = await machine.directory(spec(make=ModelCodec))
    await directory.settle()
    assert models(directory, "fake") == ["known"]
    assert machine.runs() == 0


# --- starting one --------------------------------------------------------------------------------------------


class RecordingCodec(MockCodec):
    """The mock's codec, which remembers with what it was launched."""

    options: LaunchOptions | None = None

    def launch(self, options: LaunchOptions) -> LaunchSpec:
        self.options = options
        return super().launch(options)


async def run_agent(directory: AgentDirectory, name: str, where: Path) -> tuple[LaunchOptions, list[bytes], Exit, object]:
    """Start an agent, greet it, stop it: its options, what it said, its exit, its handle."""
    agent = directory.get(name)
    assert agent is not None
    codec, lines, exits = RecordingCodec(lambda kind: kind), list[bytes](), list[Exit]()
    heard = asyncio.Event()

    def on_lines(more: list[bytes]) -> None:
        lines.extend(more)
        heard.set()

    handle = await directory.spawn(agent, LaunchOptions("", str(where), mode="build"), codec, on_lines, exits.append)
    for output in codec.start():
        handle.write(output.data)  # type: ignore[union-attr]  # the handshake is one line
    await heard.wait()
    await handle.stop()
    assert codec.options is not None
    return codec.options, lines, exits[0], handle


async def test_a_program_is_started_with_all_it_needs(machine: Machine) -> None:
    path = machine.install()
    directory = await machine.directory(spec(), is_root=True)
    options, lines, exit_, _ = await run_agent(directory, "fake", machine.home)
    assert (options.binary, options.directory, options.mode, options.is_root) == (str(path), str(machine.home), "build", True)
    assert options.environment == machine.environ == directory.environment()
    assert b'"hello"' in lines[0] and exit_ == Exit(code=0)


async def test_the_mock_runs_inside(machine: Machine) -> None:
    directory = await machine.directory()
    options, lines, exit_, handle = await run_agent(directory, "mock", machine.home)
    assert isinstance(handle, InProcessAgent)
    assert options.binary == "" and b'"hello"' in lines[0] and exit_ == Exit(code=0)


async def test_a_program_that_is_gone_is_noticed(machine: Machine) -> None:
    path = machine.install()
    directory = await machine.directory(spec())
    await directory.settle()
    path.unlink()
    with pytest.raises(AgentNotFound, match=r"Fake cannot be started: .*npm install fake"):
        await run_agent(directory, "fake", machine.home)
    agent = directory.get("fake")
    assert agent is not None and not agent.usable
    assert [a.spec.name for a in await directory.available()] == ["mock"]
    machine.install()
    assert (await run_agent(directory, "fake", machine.home))[2] == Exit(code=0)
    assert [a.spec.name for a in await directory.available()] == ["fake", "mock"]


async def test_a_program_that_is_installed_later_is_found_when_it_is_wanted(machine: Machine) -> None:
    directory = await machine.directory(spec())
    path = machine.install()
    options, *_ = await run_agent(directory, "fake", machine.home)
    assert options.binary == str(path)
    await directory.settle()
    assert models(directory) == ["m1"]


async def test_a_program_that_was_replaced_is_asked_again(machine: Machine) -> None:
    machine.install()
    directory = await machine.directory(spec())
    await directory.settle()
    machine.install(model="m2", version="2.0.0")
    await run_agent(directory, "fake", machine.home)
    await directory.settle()
    agent = directory.get("fake")
    assert agent is not None and agent.located.version == "2.0.0" and models(directory) == ["m2"]


async def test_a_program_that_moved_is_found_elsewhere(machine: Machine, tmp_path: Path) -> None:
    path = machine.install()
    directory = await machine.directory(spec())
    await directory.settle()
    (machine.home / ".local" / "bin").mkdir(parents=True)
    moved = path.rename(machine.home / ".local" / "bin" / path.name)
    options, *_ = await run_agent(directory, "fake", machine.home)
    assert options.binary == str(moved)


# --- discovery alone -----------------------------------------------------------------------------------------


def inside(program: Program) -> Callable[..., object]:
    """A spawn for `discover` that runs this program."""

    async def spawn(codec: Codec, on_lines: Callable[[list[bytes]], None], on_exit: Callable[[Exit], None]) -> InProcessAgent:
        launch = codec.launch(LaunchOptions("", "/"))
        return InProcessAgent.spawn(program, launch, {}, on_lines=on_lines, on_exit=on_exit)

    return spawn


async def test_an_error_that_the_agent_tells_is_the_reason() -> None:
    async def program(stdio: Stdio) -> int:
        await stdio.write(b'{"type":"error","message":"not logged in"}')
        while await stdio.read() is not None:
            pass
        return 0

    told: list[Catalogue] = []
    with pytest.raises(DiscoveryFailed, match="not logged in"):
        await discover(MockCodec(lambda kind: kind), inside(program), told.append)  # type: ignore[arg-type]  # a Spawn
    assert told == []


async def test_a_process_that_cannot_be_started_is_the_reason() -> None:
    async def spawn(*_: object) -> InProcessAgent:
        raise AgentNotFound("it is gone")

    with pytest.raises(AgentError, match="it is gone"):
        await discover(MockCodec(lambda kind: kind), spawn, ignore)


def test_stored_offers_survive_json() -> None:
    from shim.agents.discovery import StoredOffer

    kept = StoredOffer("/bin/x", "stamp", "1.0.0", MOCK.abilities.catalogue)
    assert from_store(to_store(kept)) == kept


def test_the_environment_is_a_copy() -> None:
    environ: Mapping[str, str] = {"A": "1"}
    clock = ManualClock()
    directory = AgentDirectory({}, clock=clock, ids=Ids(clock), store=MemoryStore(), environ=environ)
    directory.environment()["A"] = "2"
    assert directory.environment() == {"A": "1"}


# --- agents of one major version -----------------------------------------------------------------------------


async def test_the_agent_of_the_programs_major_version_is_offered(machine: Machine) -> None:
    """As OpenCode 1 and 2, which both install a program `opencode`."""
    one = spec("fake", major=1, major_hint="Take two.")
    two = spec("two", major=2, shared_binaries=("fake-agent",))
    machine.install(version="2.0.3")
    directory = await machine.directory(one, two)
    await directory.settle()
    refused, taken = directory.get("fake"), directory.get("two")
    assert refused is not None and taken is not None
    assert (refused.usable, refused.located.version) == (False, "2.0.3")
    assert refused.located.why.endswith("takes 1.x only. Take two.")
    assert (taken.usable, models(directory, "two")) == (True, ["m1"])


async def test_an_agent_behind_http_is_asked_about_a_program_that_it_shares(machine: Machine) -> None:
    """At the start nobody knows which of the two agents takes the program: only its version tells."""
    two = spec("two", major=2, shared_binaries=("fake-agent",), transport="http")
    machine.install(version="2.0.3")
    directory = await machine.directory(spec("fake", major=1, major_hint="Take two."), two)
    taken = await directory.offer("two")
    assert taken is not None
    assert (taken.usable, taken.located.version) == (True, "2.0.3")


async def test_an_upgrade_to_another_major_version_is_noticed_before_the_start(machine: Machine) -> None:
    machine.install(version="1.9.0")
    directory = await machine.directory(spec("fake", major=1, major_hint="Take two."))
    await directory.settle()
    agent = directory.get("fake")
    assert agent is not None and agent.usable
    machine.install(version="2.0.0")
    with pytest.raises(AgentNotFound, match=r"takes 1\.x only\. Take two"):
        await run_agent(directory, "fake", machine.home)
    assert machine.runs() == 1, "only the first one was started, to be asked what it offers"


async def test_limits_that_an_agent_tells_in_a_turn_are_kept(machine: Machine) -> None:
    machine.install()
    directory = await machine.directory(spec())
    await directory.available()
    told: list[str] = []
    directory.listeners.limits = told.append
    agent = directory.get("fake")
    assert agent is not None
    model = agent.catalogue.models[0]
    for _ in range(2):
        directory.note_limits("fake", [replace(model, context=200_000, output=32_000)], "/p")
    assert told == ["/p"], "the second time it is nothing new"
    await directory.close()
    again = await machine.directory(spec())
    await again.available()
    await again.settle()
    [row, *_] = again.get("fake").catalogue.models  # type: ignore[union-attr]
    assert (row.context, row.output) == (200_000, 32_000), "a new discovery knows them still"


SETTINGS = SpareUse("", (), ("~/settings.json",))


def note_discoveries(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The agents that are asked from now on. Each tells one model."""
    asked: list[str] = []

    async def discover_it(_: object, agent: AgentSpec, directory: str, tell: Callable[[Catalogue], None]) -> None:
        asked.append(agent.name)
        tell(Catalogue((Model("m1", "M1"),)))

    monkeypatch.setattr(AgentDirectory, "_discover", discover_it)
    return asked


async def test_an_agent_with_a_server_of_its_own_is_asked_when_its_offer_is_wanted_and_unknown(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = note_discoveries(monkeypatch)
    machine.install()
    server = spec(transport="http", spare=SETTINGS)

    async def models(directory: AgentDirectory) -> list[str]:
        await directory.available()
        offer = await directory.offer("fake")
        return [model.id for model in offer.catalogue.models] if offer is not None else []

    directory = await machine.directory(server)
    await directory.offer("mock")
    assert asked == ["mock"], "nothing of the other was wanted"
    assert await models(directory) == ["m1"]
    await directory.close()

    known = await machine.directory(server)
    assert (await models(known), asked.count("fake")) == (["m1"], 1), "the answer of before is still right"
    await known.settle()
    assert asked.count("fake") == 2, "who looks at all agents asks it"
    await known.close()

    (machine.home / "settings.json").write_text("{}")
    changed = await machine.directory(server)
    assert (await models(changed), asked.count("fake")) == (["m1"], 3), "other settings may offer other models"


async def test_a_session_of_an_agent_with_a_server_of_its_own_asks_it_again_after_other_settings_alone(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start_nothing(*_: object) -> None: ...

    asked = note_discoveries(monkeypatch)
    monkeypatch.setattr(AgentDirectory, "_spawn", start_nothing)
    machine.install()
    settings = machine.home / "settings.json"
    settings.write_text("{}")
    directory = await machine.directory(spec(transport="http", spare=SETTINGS))
    agent = await directory.offer("fake")
    assert agent is not None
    for count, text in enumerate(("{}", '{"model": "m2"}', '{"model": "m2"}')):
        if text != settings.read_text():
            settings.write_text(text)
        await directory.spawn(agent, LaunchOptions("", "/"), RecordingCodec(lambda kind: kind), ignore, ignore)
        await asyncio.gather(*directory._asking.values())
        assert asked.count("fake") == 1 + (count > 0)


@pytest.mark.parametrize(("transport", "tries"), [("http", 2), ("stdio", 1)])
async def test_an_agent_with_a_server_of_its_own_that_is_slow_is_asked_once_more(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, transport: str, tries: int
) -> None:
    asked: list[str] = []

    async def discover_it(_: object, agent: AgentSpec, directory: str, tell: Callable[[Catalogue], None]) -> None:
        asked.append(agent.name)
        if asked.count("fake") < 2:
            raise DiscoveryFailed("it did not say it in time", SLOW)
        tell(Catalogue((Model("m1", "M1"),)))

    monkeypatch.setattr(AgentDirectory, "_discover", discover_it)
    machine.install()
    directory = await machine.directory(spec(transport=transport))
    agent = await directory.offer("fake")
    assert agent is not None
    assert (asked.count("fake"), agent.slow) == (tries, tries == 1)
