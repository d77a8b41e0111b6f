"""Where an agent's program is, and which version it has.

Looked for in this order: the variable of its registry row (then nowhere else), what this server has installed, PATH, the
usual places of installers.
Nothing is cached here, and the loop never waits: files are looked at in a thread, the version has a bounded wait.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shim.errors import AgentError
from shim.runtime.aliases import find_program, is_alias
from shim.runtime.process import AgentProcess
from universal.codec import AgentSpec, Exit, LaunchSpec

VERSION_WAIT_S = 15.0
"""For `--version`. Usually 0.1 to 1 s; a first start of a program of 380 MB from a cold disk takes longer."""
VERSION_LINES = 20
"""So many lines of the answer are looked at."""
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
"""Of installers that do not always put themselves on PATH, above all not on that of a service or of a desktop program."""
NVM = "~/.nvm/versions/node"
INSTALLED = "SHIM_INSTALLED_AGENTS"
"""Folder of agents that were installed by this server, each below its name; agents do not inherit it."""


@dataclass(frozen=True, slots=True)
class ProgramLocation:
    """The answer. `path` is absolute, None if there is none; `why` then says why, and is empty otherwise.

    `version` is x.y.z, None if it is not known; `note` says where the program was found, and what was wrong with its version;
    `absent`: nobody named it, and it is nowhere.
    """

    path: str | None
    version: str | None = None
    why: str = ""
    note: str = ""
    absent: bool = False


async def locate(agent: AgentSpec, env: Mapping[str, str], *, version_wait_s: float = VERSION_WAIT_S) -> ProgramLocation:
    """Look for the agent's program in this environment, and ask it for its version. Raises nothing."""
    found = await asyncio.to_thread(find, agent, env)
    if found.path is None or not agent.version_args:
        return found
    version, trouble = await _version((found.path, *agent.version_args), env, version_wait_s)
    return replace(found, version=version, note=f"{found.note}; {trouble}" if trouble else found.note)


def find(agent: AgentSpec, env: Mapping[str, str]) -> ProgramLocation:
    """`locate` without the version. Blocking: it looks at files."""
    if not agent.binaries:
        return ProgramLocation(None, note="runs inside of the server")
    if agent.env_override and (named := env.get(agent.env_override)):
        path = shutil.which(_expand(named, env), path=env.get("PATH", ""))
        if path is None:
            return ProgramLocation(None, why=f"{agent.env_override} is {named}, which is not an executable file.")
        if is_alias(path):
            return ProgramLocation(
                None, why=f"{agent.env_override} is {named}, which is opencode-shim itself under another name."
            )
        return ProgramLocation(str(Path(path).absolute()), note=f"named by {agent.env_override}")
    if folder := env.get(INSTALLED):
        own = os.path.join(folder, agent.name, "node_modules", ".bin")  # noqa: PTH118 - a value for PATH
        for name in agent.binaries:
            if path := find_program(name, own):
                return ProgramLocation(str(Path(path).absolute()), note="installed by opencode-shim")
    for name in agent.binaries:
        if path := find_program(name, env.get("PATH", "")):
            return ProgramLocation(str(Path(path).absolute()), note="on PATH")
    for place in _places(env):
        for name in agent.binaries:
            if path := find_program(name, place):
                return ProgramLocation(path, note=f"in {place}, which is not on PATH")
    names = " or ".join(agent.binaries)
    override = f" Or name it in {agent.env_override}." if agent.env_override else ""
    return ProgramLocation(
        None,
        why=f"{names} is neither on PATH nor in one of the usual places (~/.claude/local, ~/.local/bin, npm's global folders). "
        f"{agent.install_hint}{override}",
        absent=True,
    )


def _places(env: Mapping[str, str]) -> Iterator[str]:
    """The usual places and npm's global folders, as absolute paths; some may not exist."""
    for prefix in (env.get("NPM_CONFIG_PREFIX"), env.get("npm_config_prefix"), _npmrc_prefix(env)):
        if prefix:
            yield str(Path(_expand(prefix, env)).absolute() / "bin")
    for place in USUAL_PLACES:
        if (path := Path(_expand(place, env))).is_absolute():
            yield str(path)
    versions = [path for path in Path(_expand(NVM, env)).glob("v*/bin") if path.is_absolute()]
    yield from (str(path) for path in sorted(versions, key=_node_version, reverse=True))


def _node_version(path: Path) -> list[int]:
    """`.../v22.11.0/bin` as numbers."""
    return [int(number) for number in re.findall(r"\d+", path.parent.name)]


def _npmrc_prefix(env: Mapping[str, str]) -> str | None:
    """`prefix` of the person's .npmrc."""
    try:
        text = Path(_expand("~/.npmrc", env)).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"^\s*prefix\s*=\s*(\S+)\s*$", text, re.MULTILINE)
    return found[1].replace("${HOME}", env.get("HOME", "")) if found else None


def _expand(path: str, env: Mapping[str, str]) -> str:
    """`~` by the HOME of this environment, not of ours. Without a HOME it stays, and is found nowhere."""
    home = env.get("HOME", "")
    return home + path[1:] if home and (path == "~" or path.startswith("~" + os.sep)) else path


async def _version(argv: tuple[str, ...], env: Mapping[str, str], wait_s: float) -> tuple[str | None, str]:
    """The version that it prints, and what is wrong if it prints none."""
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
    said = "\n".join([*(line.decode("utf-8", "replace") for line in lines), exit_.stderr])
    found = VERSION.search(said)
    if found is None:
        return None, f"{command} printed no version (exit {exit_.code}): {said.strip()[:200]}"
    return found[0], ""
