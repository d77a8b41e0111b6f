"""Installing agents with npm: into our folder, with progress, bounded; what goes wrong is said with what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from shim.agents.directory import AgentDirectory
from shim.agents.install import Installer, InstallFailed
from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.processes.locate import INSTALLED
from shim.store.memory import MemoryStore
from universal.agent_spec import AgentSpec
from universal.registry import agents

WAIT_S = 20.0

NPM = """#!/bin/sh
while [ $# -gt 0 ]; do case "$1" in --prefix) shift; to="$1";; esac; shift; done
echo "npm http fetch GET 200 https://registry.example/claude 12ms" >&2
{body}
"""
WORKS = """mkdir -p "$to/node_modules/.bin"
printf '#!/bin/sh\\necho "2.1.330 (Claude Code)"\\n' > "$to/node_modules/.bin/claude"
chmod +x "$to/node_modules/.bin/claude"
echo "added 1 package"
"""


class Place:
    """A directory of agents on a machine that has only this npm."""

    def __init__(self, tmp_path: Path, npm: str | None, timeout_s: float = WAIT_S) -> None:
        clock = ManualClock()
        self.store = MemoryStore()
        path = tmp_path / "bin"
        path.mkdir()
        if npm is not None:
            (path / "npm").write_text(NPM.format(body=npm))
            (path / "npm").chmod(0o755)
        self.folder = tmp_path / "data" / "agents"
        environ = {"PATH": f"{path}:/usr/bin:/bin", "HOME": str(tmp_path / "home"), INSTALLED: str(self.folder)}
        if npm is None:
            environ["PATH"] = str(path)
        specs = {name: spec for name, spec in agents().items() if name in ("claude", "goose", "mock")}
        self.agents = AgentDirectory(specs, clock=clock, ids=Ids(clock), store=self.store, environ=environ, discovery_timeout_s=2)
        self.installer = Installer(self.agents, self.folder, clock, timeout_s=timeout_s)

    async def __aenter__(self) -> Place:
        await self.store.open()
        await self.agents.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.installer.close()
        await self.agents.close()
        await self.store.close()


def test_packages_are_those_of_the_hint() -> None:
    for name, spec in agents().items():
        assert all(package in spec.program.install_hint for package in spec.program.npm), name
        assert bool(spec.program.npm) == ("npm install" in spec.program.install_hint), name


async def test_an_agent_is_installed_and_found(tmp_path: Path) -> None:
    async with Place(tmp_path, WORKS) as place:
        assert place.installer.state("claude") is None
        before = place.agents.get("claude")
        assert before is not None
        assert not before.usable
        async with asyncio.timeout(WAIT_S):
            await asyncio.gather(place.installer.install("claude"), place.installer.install("claude"))
        after = place.agents.get("claude")
        assert after is not None
        assert after.usable
        assert after.located.path == str(place.folder / "claude" / "node_modules" / ".bin" / "claude")
        state = place.installer.state("claude")
        assert state is not None
        assert (state.state, state.error) == ("done", None)
        assert any("registry.example" in line for line in state.lines)
        assert "added 1 package" in state.lines


@pytest.mark.parametrize(
    ("npm", "agent", "why"),
    [
        (None, "claude", "npm was not found"),
        ('echo "ERR! 404" >&2; exit 1', "claude", "ERR! 404"),
        ("true", "claude", "npm has installed"),
        (WORKS, "goose", "not installed with npm"),
    ],
)
async def test_a_failed_install_says_why(tmp_path: Path, npm: str | None, agent: str, why: str) -> None:
    async with Place(tmp_path, npm) as place:
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(InstallFailed, match=why):
                await place.installer.install(agent)
        state = place.installer.state(agent)
        assert state is None or (state.state == "failed" and why in (state.error or ""))


async def test_a_hanging_install_is_ended(tmp_path: Path) -> None:
    async with Place(tmp_path, "sleep 60", timeout_s=0.5) as place:
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(InstallFailed, match="not done within"):
                await place.installer.install("claude")


async def test_a_server_that_stops_ends_it(tmp_path: Path) -> None:
    async with Place(tmp_path, "sleep 60") as place:
        installing = asyncio.ensure_future(place.installer.install("claude"))
        await asyncio.sleep(0)
        async with asyncio.timeout(WAIT_S):
            await place.installer.close()
            with pytest.raises(asyncio.CancelledError):
                await installing


ON_NPM = [spec for spec in agents().values() if spec.program.npm]


@pytest.mark.parametrize("spec", ON_NPM, ids=lambda spec: spec.name)
def test_an_install_hint_names_the_packages(spec: AgentSpec) -> None:
    assert f"npm install -g {' '.join(spec.program.npm)}" in spec.program.install_hint


def test_agents_on_npm_are_installed_by_their_living_packages() -> None:
    by_name = {spec.name: spec.program.npm for spec in ON_NPM}
    assert by_name["opencode2"] == ("@opencode/cli",)
    assert by_name["kimi"] == ("@moonshot-ai/kimi-code",)
