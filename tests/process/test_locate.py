"""Finding programs and their versions, in a home of the test's own."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from shim.processes.locate import ProgramLocation, VersionCache, find, locate, stamp_of
from tests.process.support import BOUND_S
from tests.support.specs import change
from universal.agent_spec import AgentAbilities, AgentProgram, AgentSpec, Capabilities
from universal.codec import Catalogue, Codec, IdFactory


def no_codec(_: IdFactory) -> Codec:
    raise NotImplementedError


AGENT = AgentSpec(
    name="demo",
    title="Demo",
    make=no_codec,
    program=AgentProgram(
        binaries=("demo", "demo-cli"),
        version_args=("--version",),
        env_override="SHIM_DEMO_BIN",
        install_hint="Install it with `npm install -g demo`.",
    ),
    abilities=AgentAbilities(
        capabilities=Capabilities(),
        modes=(),
        catalogue=Catalogue(),
    ),
)


class Home:
    """A HOME with programs, and the environment that goes with it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.env = {"HOME": str(root), "PATH": str(root / "on-path")}

    def put(self, path: str, says: str = "echo 1.2.3", mode: int = 0o755) -> str:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\n{says}\n")
        file.chmod(mode)
        return str(file)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def test_a_program_on_path_is_found(home: Home) -> None:
    path = home.put("on-path/demo")
    home.put(".local/bin/demo")
    assert find(AGENT, home.env) == ProgramLocation(path, note="on PATH")


def test_the_first_name_is_preferred(home: Home) -> None:
    second = home.put("on-path/demo-cli")
    assert find(AGENT, home.env).path == second
    first = home.put("on-path/demo")
    assert find(AGENT, home.env).path == first


@pytest.mark.parametrize(
    "place",
    [
        ".claude/local/demo",
        ".local/bin/demo",
        ".npm-global/bin/demo",
        ".bun/bin/demo-cli",
        ".nvm/versions/node/v22.1.0/bin/demo",
    ],
)
def test_a_program_in_a_usual_place_is_found(home: Home, place: str) -> None:
    path = home.put(place)
    assert find(AGENT, home.env) == ProgramLocation(path, note=f"in {Path(path).parent}, which is not on PATH")


def test_the_newest_node_of_nvm(home: Home) -> None:
    home.put(".nvm/versions/node/v9.0.0/bin/demo")
    newest = home.put(".nvm/versions/node/v22.1.0/bin/demo")
    home.put(".nvm/versions/node/v22.0.9/bin/demo")
    assert find(AGENT, home.env).path == newest


def test_npms_prefix(home: Home) -> None:
    by_npmrc = home.put("packages/bin/demo")
    (home.root / ".npmrc").write_text("registry=x\nprefix = ${HOME}/packages\n")
    assert find(AGENT, home.env).path == by_npmrc
    by_variable = home.put("elsewhere/bin/demo")
    assert find(AGENT, {**home.env, "NPM_CONFIG_PREFIX": str(home.root / "elsewhere")}).path == by_variable


def test_named(home: Home) -> None:
    home.put("on-path/demo")
    path = home.put("else where/my demo")
    assert find(AGENT, {**home.env, "SHIM_DEMO_BIN": path}) == ProgramLocation(path, note="named by SHIM_DEMO_BIN")
    assert find(AGENT, {**home.env, "SHIM_DEMO_BIN": "~/else where/my demo"}).path == path
    assert find(AGENT, {**home.env, "SHIM_DEMO_BIN": "demo"}).path == str(home.root / "on-path/demo")


@pytest.mark.parametrize("named", ["/no/such/file", "no-such-name", "~/no-such-file"])
def test_named_but_not_there_is_an_error_and_nothing_else_is_taken(home: Home, named: str) -> None:
    home.put("on-path/demo")
    located = find(AGENT, {**home.env, "SHIM_DEMO_BIN": named})
    assert located == ProgramLocation(None, why=f"SHIM_DEMO_BIN is {named}, which is not an executable file.")


def test_named_but_not_executable(home: Home) -> None:
    path = home.put("demo", mode=0o644)
    assert "not an executable file" in find(AGENT, {**home.env, "SHIM_DEMO_BIN": path}).why


def test_an_empty_name_is_no_name(home: Home) -> None:
    path = home.put("on-path/demo")
    assert find(AGENT, {**home.env, "SHIM_DEMO_BIN": ""}).path == path


def test_a_missing_program_is_not_found(home: Home) -> None:
    home.put("on-path/demo", mode=0o644)
    located = find(AGENT, home.env)
    assert located.path is None
    assert located.why.startswith("demo or demo-cli is neither on PATH nor in one of the usual places")
    assert located.why.endswith("Install it with `npm install -g demo`. Or name it in SHIM_DEMO_BIN.")


def test_without_a_home_and_a_path() -> None:
    assert find(AGENT, {}).path is None


def test_a_relative_entry_of_path_gives_an_absolute_path(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    path = home.put("on-path/demo")
    monkeypatch.chdir(home.root)
    assert find(AGENT, {**home.env, "PATH": "on-path"}).path == path


async def test_an_agent_inside_the_server_needs_no_program(home: Home) -> None:
    assert await locate(change(AGENT, binaries=()), home.env) == ProgramLocation(None, note="runs inside of the server")


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("echo '2.1.330 (Claude Code)'", "2.1.330"),
        ("echo codex-cli 0.169.0-alpha.1", "0.169.0"),
        ("echo v1.18.33 >&2", "1.18.33"),
        ("echo node 22; echo demo 10.20.30; exit 1", "10.20.30"),
        ("cat; echo 1.2.3", "1.2.3"),
    ],
)
async def test_the_programs_version_is_read(home: Home, says: str, version: str) -> None:
    path = home.put("on-path/demo", says)
    home.env["PATH"] += ":/usr/bin:/bin"
    async with asyncio.timeout(BOUND_S):
        assert await locate(AGENT, home.env) == ProgramLocation(path, version, note="on PATH")


async def test_a_program_that_prints_no_version(home: Home) -> None:
    path = home.put("on-path/demo", "echo 'error: 1.2 is no version' >&2; exit 2")
    located = await locate(AGENT, home.env)
    assert (located.path, located.version, located.why) == (path, None, "")
    assert located.note == "on PATH; `demo --version` printed no version (exit 2): error: 1.2 is no version"


async def test_a_program_that_does_not_answer(home: Home) -> None:
    home.put("on-path/demo", "while :; do read line; done")
    async with asyncio.timeout(BOUND_S):
        located = await locate(AGENT, home.env, version_wait_s=0.2)
    assert located.version is None
    assert located.note == "on PATH; `demo --version` did not answer within 0.2 s"


async def test_a_program_that_cannot_be_started(home: Home) -> None:
    path = home.put("on-path/demo")
    Path(path).write_text("#!/no/such/interpreter\n")
    located = await locate(AGENT, home.env)
    assert located.path == path
    assert "interpreter" in located.note


async def test_a_program_that_floods(home: Home) -> None:
    home.put("on-path/demo", "echo 1.2.3; while :; do echo 9.9.9; done")
    async with asyncio.timeout(BOUND_S):
        located = await locate(AGENT, home.env, version_wait_s=0.5)
    assert "did not answer" in located.note


# --- two agents of one program ----------------------------------------------------------------------------

ONE = change(AGENT, name="one", title="One", binaries=("demo",), major=1, major_hint="Take the agent `two`.")
TWO = change(AGENT, name="two", title="Two", binaries=("demo2",), shared_binaries=("demo",), env_override="SHIM_TWO_BIN", major=2)


@pytest.mark.parametrize(("version", "taker"), [("1.18.34", "one"), ("2.0.3", "two"), ("2.1.0-beta.1", "two")])
async def test_a_program_of_two_generations_is_taken_by_the_agent_of_its_major_version(
    home: Home, version: str, taker: str
) -> None:
    path = home.put("on-path/demo", f"echo demo {version}")
    located = {spec.name: (await locate(spec, home.env)).path for spec in (ONE, TWO)}
    assert located == {"one": None, "two": None} | {taker: path}


async def test_a_program_of_another_major_version_is_refused_with_a_sentence(home: Home) -> None:
    path = home.put("on-path/demo", "echo 2.0.3")
    located = await locate(ONE, home.env)
    assert located == ProgramLocation(
        None, "2.0.3", why=f"{path} is version 2.0.3, and this agent takes 1.x only. Take the agent `two`."
    )
    assert not located.absent, "it is there, so a person wants to know why it is not used"


async def test_a_shared_program_of_another_agent_is_no_news(home: Home) -> None:
    home.put("on-path/demo", "echo 1.18.34")
    located = await locate(TWO, home.env)
    assert located.absent
    assert located.why.startswith("demo2 is neither on PATH")


@pytest.mark.parametrize("first", ["on-path", "other-path"])
async def test_a_later_program_of_the_right_major_version_is_taken(home: Home, first: str) -> None:
    paths = {1: home.put("on-path/demo", "echo 1.18.34"), 2: home.put("other-path/demo", "echo 2.0.3")}
    rest = {"on-path": "other-path", "other-path": "on-path"}[first]
    home.env["PATH"] = f"{home.root / first}:{home.root / rest}"
    assert [(await locate(spec, home.env)).path for spec in (ONE, TWO)] == [paths[1], paths[2]]


async def test_a_program_of_the_agents_first_name_may_keep_its_version_to_itself(home: Home) -> None:
    shared = home.put("on-path/demo", "echo local")
    assert [(await locate(spec, home.env)).path for spec in (ONE, TWO)] == [shared, None]
    path = home.put("on-path/demo2", "echo local")
    assert (await locate(TWO, home.env)).path == path


async def test_a_named_program_of_another_major_version_is_refused(home: Home) -> None:
    home.put("on-path/demo", "echo 1.18.34")
    named = home.put("named/demo", "echo 2.0.3")
    located = await locate(ONE, {**home.env, "SHIM_DEMO_BIN": named})
    assert (located.path, located.version) == (None, "2.0.3")
    assert (await locate(TWO, {**home.env, "SHIM_TWO_BIN": named})).path == named


async def test_agents_that_share_a_program_start_it_once(home: Home) -> None:
    path = home.put("on-path/demo", 'echo run >> "$0.runs"; echo 1.18.34')
    versions = VersionCache()
    await asyncio.gather(*(locate(spec, home.env, versions=versions) for spec in (ONE, TWO)))
    assert Path(f"{path}.runs").read_text() == "run\n"
    home.put("on-path/demo", 'echo run >> "$0.runs"; echo 2.0.33')
    assert (await locate(TWO, home.env, versions=versions)).version == "2.0.33", "another file is asked again"


def test_a_stamp_changes_with_the_file(tmp_path: Path) -> None:
    path, link = tmp_path / "program", tmp_path / "link"
    assert stamp_of(str(path)) is None
    path.write_text("one")
    link.symlink_to(path)
    first = stamp_of(str(link))
    assert first is not None and first == stamp_of(str(link))
    new = tmp_path / "new"
    new.write_text("two")
    os.utime(new, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))  # npm gives all files the same time
    new.rename(path)
    assert stamp_of(str(link)) != first
