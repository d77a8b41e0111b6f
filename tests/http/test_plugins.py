"""An agent from another package: the worked example of docs/adding-an-agent.md, installed, through HTTP and SSE."""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.api import EventStream
from tests.support.live import Live, live

EXAMPLE = Path(__file__).resolve().parent.parent / "plugin_example"
PROGRAM = Path(__file__).resolve().parent.parent / "fakes" / "parrot.py"
DOCUMENT = EXAMPLE.parents[1] / "docs" / "adding-an-agent.md"
LONGEST_EXAMPLE = 150


def install(site: Path, name: str, entries: dict[str, str]) -> None:
    """What an installer leaves: a `.dist-info` with the entry points of the group."""
    info = site / f"{name.replace('-', '_')}-1.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
    lines = [f"{entry} = {value}" for entry, value in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(["[opencode_shim.agents]", *lines, ""]))


def parrot_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example package as a package manager would install it, by what its pyproject.toml says; the folder of `parrot`."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    install(tmp_path / "site", project["name"], project["entry-points"]["opencode_shim.agents"])
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delitem(sys.modules, "opencode_shim_parrot", raising=False)
    folder = tmp_path / "home" / ".local" / "bin"
    folder.mkdir(parents=True)
    program = folder / "parrot"
    program.write_text(f"#!{sys.executable} -IS\n{PROGRAM.read_text()}")
    program.chmod(0o755)
    return folder


PARROT: dict[str, Any] = {"model": {"providerID": "parrot", "modelID": "ara"}}


async def test_the_example_runs_a_whole_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parrot_folder(tmp_path, monkeypatch)
    async with live(tmp_path) as server:
        offered = (await server.api.get("/provider", status=200)).body
        parrot = next(provider for provider in offered["all"] if provider["id"] == "parrot")
        assert list(parrot["models"]) == ["grey", "ara"]
        session, _ = await server.turn("polly", **PARROT)
        said = [part for message in await server.messages(session) for part in message["parts"]]
        assert [part["text"] for part in said if part["type"] == "text"] == ["polly", "Listen: ", "ara says polly"]
        (tool,) = [part for part in said if part["type"] == "tool"]
        assert (tool["tool"], tool["state"]["status"], tool["state"]["output"]) == ("bash", "completed", "hi\n")
        assert tool["state"]["title"] == "echo hi"


async def test_a_plugin_agent_may_fail_stop_and_talk_nonsense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parrot_folder(tmp_path, monkeypatch)
    async with live(tmp_path) as server:
        _, failed = await server.turn("fly", **PARROT)
        assert failed.errors[0]["data"]["message"] == "Its wings are clipped."
        session = await abort_turn(server)
        assert (await server.messages(session))[-1]["info"]["error"]["name"] == "MessageAbortedError"
        await server.turn("nonsense", **PARROT)


async def abort_turn(server: Live) -> str:
    """A turn that waits, aborted when it has said so."""

    async def act(_: EventStream, event: dict[str, Any]) -> None:
        if event["type"] == "message.part.delta":
            await server.api.post(f"/session/{event['properties']['sessionID']}/abort", status=200)

    return (await server.turn("wait", act, **PARROT))[0]


def test_the_document_shows_the_example_and_it_is_short() -> None:
    files = [EXAMPLE / "pyproject.toml", EXAMPLE / "opencode_shim_parrot" / "__init__.py"]
    assert sum(len(file.read_text().splitlines()) for file in files) < LONGEST_EXAMPLE
    shown = re.findall(r"```\w+\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    for file in files:
        assert file.read_text() in shown, f"copy {file.name} into {DOCUMENT.name}"


BROKEN = {
    "raises": "raise RuntimeError('boom')",
    "exits": "import sys; sys.exit(3)",
    "number": "AGENT = 7",
    "taken": "from universal.agents.claude.spec import CLAUDE as AGENT",
    "shouts": "import dataclasses\nfrom universal.agents.mock.spec import MOCK\nAGENT = dataclasses.replace(MOCK, name='LOUD')",
}


async def test_broken_packages_are_reported_and_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    for name, code in BROKEN.items():
        install(site, f"broken-{name}", {name: f"broken_{name}:AGENT"})
        (site / f"broken_{name}.py").write_text(code)
        monkeypatch.delitem(sys.modules, f"broken_{name}", raising=False)
    install(site, "broken-missing", {"missing": "not_there:AGENT"})
    monkeypatch.syspath_prepend(str(site))
    async with live(tmp_path) as server:
        from shim.cli.agents import of
        from shim.main.app import SERVICES

        told = {row.name: row.problem or "" for row in await of(server.api.raw.app) if row.title.startswith("broken-")}
        assert set(told) == {*BROKEN, "missing"}
        assert all(why.startswith(f'The agent "{name}" of the package broken-{name} is left out: ') for name, why in told.items())
        assert "RuntimeError: boom" in told["raises"]
        assert "SystemExit: 3" in told["exits"]
        assert "gives a int" in told["number"]
        assert '"claude" is taken' in told["taken"]
        assert '"LOUD" cannot be the name' in told["shouts"]
        assert "No module named 'not_there'" in told["missing"]
        assert server.api.raw.app[SERVICES].agents.get("claude") is not None
        await server.turn("echo hi")


RAISES = """
from opencode_shim_parrot import PARROT, ParrotCodec
from dataclasses import replace
class Codec(ParrotCodec):
    name = "hasty"
    def receive(self, line):
        if b"text" in line:
            raise KeyError("feather")
        return super().receive(line)
AGENT = replace(PARROT, name="hasty", make=Codec)
"""


async def test_a_codec_that_raises_ends_its_turn_with_an_error_that_names_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parrot_folder(tmp_path, monkeypatch)
    install(tmp_path / "site", "hasty-agent", {"hasty": "hasty_agent:AGENT"})
    (tmp_path / "site" / "hasty_agent.py").write_text(RAISES)
    monkeypatch.delitem(sys.modules, "hasty_agent", raising=False)
    async with live(tmp_path) as server:
        await server.api.get("/provider", status=200)
        _, fold = await server.turn("polly", model={"providerID": "hasty", "modelID": "grey"})
        assert "fault of the package hasty-agent" in fold.errors[0]["data"]["message"]
        assert "KeyError: 'feather'" in fold.errors[0]["data"]["message"]
        await server.turn("polly", **PARROT)


def test_the_environment_of_these_tests_has_no_such_agent() -> None:
    """They would pass by accident otherwise."""
    assert not any((Path(folder) / "parrot").exists() for folder in os.environ["PATH"].split(os.pathsep))
