"""The host of a person's own tools and plugins: which files it loads, and when calls go on without it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from shim.host.config.opencode_config import OpenCodeConfig, Source
from shim.host.plugins import plugin_hosts
from shim.host.plugins.plugin_hosts import PluginHosts, PluginVerdict, find_files
from universal.setup import TOOLS_SERVER
from universal.tools.cards import view_call

CALL = {"tool": "bash", "sessionID": "ses_1", "callID": "c", "args": {"command": "ls"}}


HOST = """#!{python} -IS
import json, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(json.loads(sys.stdin.readline())["socket"])
listener.listen()
stream = listener.accept()[0].makefile("rw")
for line in stream:
    row = json.loads(line)
    reply = {{"result": {{"hooks": ["shell.env", "chat.params"], "unused": ["chat.params"]}}}}
    if row["method"] == "hook/env":
        reply = {answer}
    if reply:
        print(json.dumps({{"id": row["id"], **reply}}), file=stream, flush=True)
"""
"""A host that says that its plugins have two hooks. `answer`: what it says to `shell.env`, None for nothing."""


def put(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("export default {}")


def hosts_in(tmp_path: Path, environ: Mapping[str, str], words: list[str]) -> PluginHosts:
    def notify(_directory: str, text: str) -> None:
        words.append(text)

    return PluginHosts(tmp_path / "config", tmp_path / "packages", environ, "1.18.33", notify)


def test_files_of_a_project_are_found_with_the_project_alone(tmp_path: Path) -> None:
    config, project = tmp_path / "config", tmp_path / "project"
    directory = project / "sub"
    directory.mkdir(parents=True)
    (project / ".git").mkdir()
    mine, own = config / "tools" / "mine.ts", project / ".opencode" / "tool" / "own.js"
    plugin = directory / ".opencode" / "plugin" / "guard.ts"
    put(mine, own, plugin, own.with_name("types.d.ts"), own.with_name("notes.md"))
    configuration = OpenCodeConfig(
        {"plugin": ["@me/plugin@1.0.0", "./local.js", ["his", {"a": 1}]]},
        sources=(Source("opencode.json", "personal", {"plugin": ["@me/plugin@1.0.0"]}),),
    )
    personal, whole = find_files(str(directory), config, configuration)
    assert personal.tools == (str(mine),)
    assert personal.plugins == (("@me/plugin@1.0.0", None),)
    assert whole.tools == (str(mine), str(own))
    assert dict(whole.plugins) == {"@me/plugin@1.0.0": None, f"{directory}/local.js": None, "his": {"a": 1}, str(plugin): None}


def test_a_changed_file_is_another_host(tmp_path: Path) -> None:
    hosts, directory = hosts_in(tmp_path, {}, []), str(tmp_path)
    file = tmp_path / "config" / "tool" / "mine.ts"
    assert hosts.look(directory, OpenCodeConfig({})) == hosts.look(directory, OpenCodeConfig({}))
    assert hosts.server(directory, with_project=False) is None
    put(file)
    hosts.look(directory, OpenCodeConfig({}))
    before = hosts.server(directory, with_project=False)
    assert before is not None
    assert before.name == TOOLS_SERVER
    file.write_text("export default { changed: true }")
    hosts.look(directory, OpenCodeConfig({}))
    assert hosts.server(directory, with_project=False) != before


async def test_plugins_that_cannot_be_loaded_are_missing(tmp_path: Path) -> None:
    words: list[str] = []
    hosts = hosts_in(tmp_path, {"PATH": str(tmp_path)}, words)
    put(guard := tmp_path / "config" / "plugin" / "guard.ts")
    hosts.look(str(tmp_path), OpenCodeConfig({}))
    assert await hosts.before(str(tmp_path), CALL, with_project=False) == PluginVerdict(missing=(str(guard),))
    assert "need OpenCode, Bun or Node on PATH" in words[0]
    await hosts.close()


def test_an_own_tool_has_its_own_name_but_none_of_opencodes() -> None:
    assert view_call("claude", f"mcp__{TOOLS_SERVER}__weather", {}, []).tool == "weather"
    assert view_call("claude", f"mcp__{TOOLS_SERVER}__bash", {}, []).tool == f"{TOOLS_SERVER}_bash"
    assert view_call("claude", "mcp__other__weather", {}, []).tool == "other_weather"


@pytest.mark.parametrize(
    ("answer", "variables", "words"),
    [
        (
            '{"result": {"env": {"NAME": row["params"]["cwd"], "A=B": "x", "": "", "INT": 1, "NUL": chr(0)}}}',
            {"NAME": "/cwd"},
            "",
        ),
        ('{"error": {"message": "no key"}}', {}, "(`shell.env`): no key"),
        ("None", {}, "they took more than"),
    ],
)
async def test_plugins_give_variables_to_a_shell_or_it_starts_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, variables: dict[str, str], words: str
) -> None:
    """Nothing that is no variable is given, and a hook that fails or hangs is told and stops no shell."""
    monkeypatch.setattr(plugin_hosts, "VARIABLES_S", 2.0)
    told: list[str] = []
    program = tmp_path / "opencode"
    program.write_text(HOST.format(python=sys.executable, answer=answer))
    program.chmod(0o755)
    hosts, directory = hosts_in(tmp_path, {"SHIM_OPENCODE_BIN": str(program)}, told), str(tmp_path)
    assert await hosts.variables(directory, {"cwd": "/cwd"}, with_project=False) == {}, "there are no plugins"
    put(tmp_path / "config" / "plugin" / "env.ts")
    hosts.look(directory, OpenCodeConfig({}))
    assert hosts.idle_hooks(directory, with_project=False) == ()
    assert await hosts.variables(directory, {"cwd": "/cwd"}, with_project=False) == variables
    assert hosts.idle_hooks(directory, with_project=False) == ("chat.params",)
    assert [words in text for text in told] == [True] * bool(words), told
    await hosts.close()
