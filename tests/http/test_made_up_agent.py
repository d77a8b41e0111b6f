"""A made-up agent, one folder with one entry point: all that is known of it stands in its spec, and is found everywhere."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shim.agents import plugins
from shim.agents.keys import KeyStore
from shim.cli import agents as agents_command
from shim.cli import doctor
from shim.faces.v1.routes import agents as agent_routes
from shim.lib.settings import Settings
from shim.main.app import SERVICES, build_app
from shim.processes.sandbox import Tool
from shim.store.memory import MemoryStore
from tests.coverage.cells import columns
from tests.http.test_plugins import EXAMPLE, install
from tests.support.api import ApiClient
from tools.coverage import agent_rows, table
from universal.agent_spec import AgentSpec
from universal.registry import agents
from universal.tools.cards import view_call

MACAW = """
from tests.support.specs import change
from opencode_shim_parrot import PARROT, ParrotCodec
from universal.agent_spec import LoginSigns
from universal.tools import Row

class MacawCodec(ParrotCodec):
    name = "macaw"

MACAW = change(
    PARROT,
    name="macaw",
    title="Macaw",
    make=MacawCodec,
    binaries=("macaw",),
    env_override="SHIM_MACAW_BIN",
    npm=("macaw-cli",),
    install_hint="Install it with `npm install -g macaw-cli`.",
    key_variables=("MACAW_API_KEY",),
    login_signs=LoginSigns(("MACAW_API_KEY",)),
    login_hint="Set MACAW_API_KEY.",
    tested=("3.1.0", "3.1.4"),
    lacks={"mcp": "Macaws have no MCP client."},
    tools={"squawk": Row("bash", {"line": "command"})},
)
"""
NPM = """#!/bin/sh
while [ $# -gt 0 ]; do case "$1" in --prefix) shift; to="$1";; esac; last="$1"; shift; done
[ "$last" = macaw-cli ] || exit 1
mkdir -p "$to/node_modules/.bin" && cp "{program}" "$to/node_modules/.bin/macaw"
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AgentSpec:
    """The agent, as the server loads it from its package."""
    site = tmp_path / "site"
    install(site, "macaw-agent", {"macaw": "macaw_agent:MACAW"})
    (site / "macaw_agent").mkdir()
    (site / "macaw_agent" / "__init__.py").write_text(MACAW)
    for folder in (EXAMPLE, site):
        monkeypatch.syspath_prepend(str(folder))
    for module in ("opencode_shim_parrot", "macaw_agent"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    loaded = plugins.load(agents())
    assert not loaded.broken
    return loaded.specs["macaw"]


def settings_in(tmp_path: Path) -> Settings:
    (tmp_path / "project").mkdir(exist_ok=True)
    return Settings(directory=tmp_path / "project", data_dir=tmp_path / "data", web_ui=False)


@pytest.fixture
async def api(tmp_path: Path, spec: AgentSpec) -> AsyncIterator[ApiClient]:
    """A server on a machine that has npm and not the agent."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "program"
    program.write_text(f"#!{sys.executable} -IS\n{(EXAMPLE.parent / 'fakes' / 'parrot.py').read_text()}")
    (folder / "npm").write_text(NPM.format(program=program))
    for file in (program, folder / "npm"):
        file.chmod(0o755)
    environ = {"PATH": f"{folder}:/usr/bin:/bin", "HOME": str(tmp_path / "home")}
    async with ApiClient(build_app(settings_in(tmp_path), store=MemoryStore(), environ=environ)) as client:
        yield client


async def test_a_new_agent_is_listed_and_installed_from_its_spec(api: ApiClient, tmp_path: Path) -> None:
    rows = {row.name: row for row in await agents_command.of(api.raw.app)}
    assert rows["macaw"].title == "Macaw"
    assert "npm install -g macaw-cli" in (rows["macaw"].problem or "")
    assert list(rows)[-2:] == ["kilo-serve", "mock"]
    installed = await api.raw.post("/v1/agents/macaw/install")
    assert installed.status == 204
    found = api.raw.app[SERVICES].agents.get("macaw")
    assert found is not None
    assert found.located.path == str(tmp_path / "data" / "agents" / "macaw" / "node_modules" / ".bin" / "macaw")


async def test_a_key_for_it_is_taken_and_becomes_its_variable(api: ApiClient, spec: AgentSpec, tmp_path: Path) -> None:
    await api.request("PUT", "/auth/macaw", json={"type": "api", "key": "k"}, status=200)
    keys = KeyStore(tmp_path / "data" / "auth.json")
    assert keys.environment(spec) == {"MACAW_API_KEY": "k"}
    assert "MACAW_API_KEY" not in keys.environment(agents()["claude"])


async def test_the_login_is_seen_by_the_specs_signs(tmp_path: Path, spec: AgentSpec) -> None:
    for environ, is_seen in (({}, False), ({"MACAW_API_KEY": "k"}, True)):
        environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home"), **environ}
        async with ApiClient(build_app(settings_in(tmp_path), store=MemoryStore(), environ=environ)) as client:
            rows = (await (await client.raw.get("/v1/agents")).json())["agents"]
            assert next(row["credentialsAvailable"] for row in rows if row["id"] == "macaw") is is_seen


@pytest.mark.parametrize(
    ("made_by", "kernel"),
    [(Tool(kind="Landlock"), (["edit", "read", "external_directory", "webfetch"], "Landlock")), (Tool(why="none"), ([], None))],
)
async def test_the_universal_api_says_what_holds_each_agent(
    api: ApiClient, monkeypatch: pytest.MonkeyPatch, made_by: Tool, kernel: tuple[list[str], str | None]
) -> None:
    monkeypatch.setattr(agent_routes, "tool", lambda environ: made_by)
    rules = {row["id"]: row["rules"] for row in (await (await api.raw.get("/v1/agents")).json())["agents"]}
    assert rules["claude"] == {"by": "a hook before every call", "missing": {}, "kernel": []}, "nothing is left to the kernel"
    kimi = rules["kimi"]
    assert list(kimi["missing"]) == ["*"] and (kimi["kernel"], kimi.get("kernelBy")) == kernel


async def test_the_doctor_examines_it(tmp_path: Path, spec: AgentSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (found,) = await doctor.examine(settings_in(tmp_path), ["macaw"], probing=False)
    assert found.checked.tested == ("3.1.0", "3.1.4")
    assert found.checked.login_hint == "Set MACAW_API_KEY."
    assert "npm install -g macaw-cli" in found.remedy


def test_a_new_agent_is_in_the_tables_of_readme_and_coverage(spec: AgentSpec) -> None:
    specs = {**agents(), "macaw": spec}
    assert "| Macaw | `macaw` | ✓ 3.1.0, 3.1.4 |" in agent_rows(specs.values())
    head, _, *features = table(columns(specs), {}).splitlines()
    assert head.endswith("| Macaw |")
    mcp = next(row for row in features if "MCP" in row)
    assert mcp.endswith("| – |")
    assert features[0].endswith("| · |")


def test_tools_get_the_cards_that_the_spec_names(spec: AgentSpec) -> None:
    card = view_call("macaw", "squawk", {"line": "ls"}, [])
    assert (card.tool, card.input) == ("bash", {"command": "ls"})
