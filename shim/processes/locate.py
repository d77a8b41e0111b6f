"""Finds an agent's program and its version.

The order is: the variable of its spec (and then nothing else), this server's installations, PATH, the usual places of
installers. It reads files in a thread, and the wait for the version is bounded.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shim.lib.errors import AgentError
from shim.processes.agent_pipes import AgentProcess
from shim.processes.aliases import find_program, is_alias, programs_on
from universal.agent_spec import AgentSpec
from universal.launch import Exit, LaunchSpec

VERSION_WAIT_S = 15.0
"""Timeout in seconds of `--version`. Usual: 0.1 to 1 s; the first start of a 380 MB program from a cold disk takes longer."""
VERSION_LINES = 20
"""Maximum number of output lines that are searched for the version."""
VERSION = re.compile(r"(?<![\d.])\d+\.\d+\.\d+")

USUAL_PLACES: tuple[str, ...] = (
    "~/.claude/local",
    "~/.local/bin",
    "~/.npm-global/bin",
    "~/.bun/bin",
    "~/.volta/bin",
    "~/.opencode/bin",
    "~/.local/share/pnpm",
    "~/Library/pnpm",
    "/opt/homebrew/bin",
    "/usr/local/bin",
)
"""Folders of installers that often miss on PATH, above all on the PATH of a service or a desktop program."""
NVM = "~/.nvm/versions/node"
INSTALLED = "SHIM_INSTALLED_AGENTS"
"""Variable with the folder of the agents that this server installed, each below its name. Agents do not inherit it."""


@dataclass(frozen=True, slots=True)
class ProgramLocation:
    """The result of a search. `path` is absolute, or None, and then `why` says why.

    `version` is x.y.z, or None if unknown. `note` says where the program was found and why it has no version. `absent` is True
    if no variable names the program and it is in none of the places.
    """

    path: str | None
    version: str | None = None
    why: str = ""
    note: str = ""
    absent: bool = False


@dataclass(slots=True)
class VersionCache:
    """The versions that programs have printed, so that agents that share a program start it once."""

    _versions: dict[tuple[str, ...], tuple[str, str]] = field(default_factory=dict[tuple[str, ...], tuple[str, str]])
    """Command line -> (stamp of the program's file, version)."""
    _locks: dict[tuple[str, ...], asyncio.Lock] = field(default_factory=dict[tuple[str, ...], asyncio.Lock])

    async def ask(self, argv: tuple[str, ...], env: Mapping[str, str], wait_s: float) -> tuple[str | None, str]:
        """Return the version that the program prints, and the problem if it prints none. A failure is not kept."""
        async with self._locks.setdefault(argv, asyncio.Lock()):
            stamp = await asyncio.to_thread(stamp_of, argv[0]) or ""
            if stamp and self._versions.get(argv, ("", ""))[0] == stamp:
                return self._versions[argv][1], ""
            version, trouble = await _version(argv, env, wait_s)
            if version is not None:
                self._versions[argv] = stamp, version
            return version, trouble


def stamp_of(path: str) -> str | None:
    """A stamp that changes with each installation of a program; None if the program is missing. Blocking.

    The time of modification alone does not do, because npm gives all files the same time.
    """
    try:
        real = Path(path).resolve()
        status = real.stat()
    except OSError:
        return None
    return f"{real} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


async def locate(
    agent: AgentSpec, env: Mapping[str, str], *, version_wait_s: float = VERSION_WAIT_S, versions: VersionCache | None = None
) -> ProgramLocation:
    """Find the agent's program in this environment and ask it for its version. Never raises.

    A program of another major version than the agent's is passed over, and the result says so if there is no other.
    """
    location, program = await asyncio.to_thread(find, agent, env), agent.program
    if not program.version_args or (location.path is None and not location.absent):
        return location
    versions = versions or VersionCache()
    candidates = await asyncio.to_thread(_candidates, agent, env) if program.major is not None else [location]
    refused: ProgramLocation | None = None
    for candidate in candidates:
        if candidate.path is None:
            continue
        version, trouble = await versions.ask((candidate.path, *program.version_args), env, version_wait_s)
        is_shared = Path(candidate.path).name in program.shared_binaries and not _is_named(agent, env)
        if is_shared and (version is None or _major(version) != program.major):
            continue
        if program.major is not None and version is not None and _major(version) != program.major:
            why = f"{candidate.path} is version {version}, and this agent takes {program.major}.x only. {program.major_hint}"
            refused = refused or ProgramLocation(None, version, why=why)
            continue
        return replace(candidate, version=version, note=f"{candidate.note}; {trouble}" if trouble else candidate.note)
    return refused or location


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def _is_named(agent: AgentSpec, env: Mapping[str, str]) -> bool:
    return bool(agent.program.env_override and env.get(agent.program.env_override))


def find(agent: AgentSpec, env: Mapping[str, str]) -> ProgramLocation:
    """Find the agent's program without its version. Blocks: it reads files."""
    if not agent.program.binaries:
        return ProgramLocation(None, note="runs inside of the server")
    if _is_named(agent, env):
        return _named_program(agent, env)
    if location := next(_programs(agent.program.binaries, agent, env), None):
        return location
    names = " or ".join(agent.program.binaries)
    override = f" Or name it in {agent.program.env_override}." if agent.program.env_override else ""
    return ProgramLocation(
        None,
        why=f"{names} is neither on PATH nor in one of the usual places (~/.claude/local, ~/.local/bin, npm's global folders). "
        f"{agent.program.install_hint}{override}",
        absent=True,
    )


def _candidates(agent: AgentSpec, env: Mapping[str, str]) -> list[ProgramLocation]:
    """All programs that may be the agent's, in the order of `find`, and those of its shared names behind them. Blocks."""
    if _is_named(agent, env):
        return [_named_program(agent, env)]
    return [*_programs(agent.program.binaries, agent, env), *_programs(agent.program.shared_binaries, agent, env)]


def _named_program(agent: AgentSpec, env: Mapping[str, str]) -> ProgramLocation:
    variable = agent.program.env_override
    named = env[variable]
    path = shutil.which(_expand(named, env), path=env.get("PATH", ""))
    if path is None:
        return ProgramLocation(None, why=f"{variable} is {named}, which is not an executable file.")
    if is_alias(path):
        return ProgramLocation(None, why=f"{variable} is {named}, which is opencode-shim itself under another name.")
    return ProgramLocation(str(Path(path).absolute()), note=f"named by {variable}")


def _programs(names: Sequence[str], agent: AgentSpec, env: Mapping[str, str]) -> Iterator[ProgramLocation]:
    """Yield the programs of these names: of this server's installations, on PATH, in the usual places."""
    if folder := env.get(INSTALLED):
        installed = os.path.join(folder, agent.name, "node_modules", ".bin")  # noqa: PTH118 - a value for PATH
        for name in names:
            if path := find_program(name, installed):
                yield ProgramLocation(str(Path(path).absolute()), note="installed by opencode-shim")
    for name in names:
        for path in programs_on(name, env.get("PATH", "")):
            yield ProgramLocation(str(Path(path).absolute()), note="on PATH")
    for place in _places(env):
        for name in names:
            if path := find_program(name, place):
                yield ProgramLocation(path, note=f"in {place}, which is not on PATH")


def _places(env: Mapping[str, str]) -> Iterator[str]:
    """Yield npm's global folders and the usual places as absolute paths. Some may not exist."""
    for prefix in (env.get("NPM_CONFIG_PREFIX"), env.get("npm_config_prefix"), _npmrc_prefix(env)):
        if prefix:
            yield str(Path(_expand(prefix, env)).absolute() / "bin")
    for place in USUAL_PLACES:
        if (path := Path(_expand(place, env))).is_absolute():
            yield str(path)
    versions = [path for path in Path(_expand(NVM, env)).glob("v*/bin") if path.is_absolute()]
    yield from (str(path) for path in sorted(versions, key=_node_version, reverse=True))


def _node_version(path: Path) -> list[int]:
    """Return the version in `.../v22.11.0/bin` as [22, 11, 0]."""
    return [int(number) for number in re.findall(r"\d+", path.parent.name)]


def _npmrc_prefix(env: Mapping[str, str]) -> str | None:
    """Return the `prefix` of the person's .npmrc, or None."""
    try:
        text = Path(_expand("~/.npmrc", env)).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"^\s*prefix\s*=\s*(\S+)\s*$", text, re.MULTILINE)
    return match[1].replace("${HOME}", env.get("HOME", "")) if match else None


def _expand(path: str, env: Mapping[str, str]) -> str:
    """Expand `~` with the HOME of this environment instead of our own. Without a HOME the path stays and matches nothing."""
    home = env.get("HOME", "")
    return home + path[1:] if home and (path == "~" or path.startswith("~" + os.sep)) else path


async def _version(argv: tuple[str, ...], env: Mapping[str, str], wait_s: float) -> tuple[str | None, str]:
    """Return the version that the program prints, and the problem if it prints none."""
    lines: list[bytes] = []
    over: asyncio.Future[Exit] = asyncio.get_running_loop().create_future()
    command = " ".join(("`" + Path(argv[0]).name, *argv[1:])) + "`"

    def on_exit(exit_: Exit) -> None:
        if not over.done():
            over.set_result(exit_)

    try:
        process = await AgentProcess.spawn(
            LaunchSpec(argv, cwd=os.sep),
            env,
            on_lines=lambda more: lines.extend(more[: VERSION_LINES - len(lines)]),
            on_exit=on_exit,
            name="version",
        )
    except AgentError as error:
        return None, str(error)
    process.close_input()
    try:
        async with asyncio.timeout(wait_s):
            exit_ = await over
    except TimeoutError:
        return None, f"{command} did not answer within {wait_s:g} s"
    finally:
        process.kill()
    output = "\n".join([*(line.decode("utf-8", "replace") for line in lines), exit_.stderr])
    match = VERSION.search(output)
    if match is None:
        return None, f"{command} printed no version (exit {exit_.code}): {output.strip()[:200]}"
    return match[0], ""
