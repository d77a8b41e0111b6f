"""Every program that the server starts is asked for its environment: the server's password is in none of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.process.test_secrets import Client
from tests.process.test_serve import RUN, START_S, environment, rest, run_server

PASSWORD = "Planted-Pa55word-0815"
VARIABLES = ("OPENCODE_SERVER_PASSWORD", "OPENCODE_PASSWORD", "SHIM_PASSWORD")
MARKER = "THIS_IS_THE_PERSONS_OWN"
PROGRAMS = ("git", "npm", "hook", "agent", "opencode")
WITNESS = """#!{python} -IS
import os, sys
number = str(os.getpid())
with open({to!r} + ".part." + number, "wb") as file:
    file.write(repr(sys.argv[1:]).encode() + b"\\n")
    file.write(b"\\n".join(name + b"=" + value for name, value in os.environb.items()))
os.rename({to!r} + ".part." + number, {to!r} + "." + number)
{then}
"""
THEN = {
    "git": "os.execv('/usr/bin/git', ['git', *sys.argv[1:]])",
    "hook": "",
}
"""What a stand-in does then; the others fail."""


class Machine:
    """Stand-ins for all programs in a folder of PATH. Each writes the environment that it was given."""

    def __init__(self, home: Path) -> None:
        self.bin, self.seen = home / "bin", home / "seen"
        self.bin.mkdir()
        self.seen.mkdir()
        for name in PROGRAMS:
            text = WITNESS.format(python=sys.executable, to=str(self.seen / name), then=THEN.get(name, "sys.exit(3)"))
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        commands = home / ".config" / "opencode" / "command"
        commands.mkdir(parents=True)
        (commands / "show.md").write_text("It is !`env`.")

    def settings(self) -> dict[str, str]:
        agents = {"witness": {"command": [str(self.bin / "agent")]}}
        hooks = [{"on": ["idle", "error"], "command": [str(self.bin / "hook")]}]
        return {
            MARKER: "1",
            "PATH": f"{self.bin}:/usr/bin:/bin",
            "SHIM_OPENCODE_BIN": str(self.bin / "opencode"),
            "SHIM_AGENTS": json.dumps(agents),
            "SHIM_HOOKS": json.dumps(hooks),
        }

    def environments(self) -> dict[str, list[bytes]]:
        found: dict[str, list[bytes]] = {name: [] for name in PROGRAMS}
        for file in self.seen.iterdir():
            if ".part." in file.name:
                continue  # the server stopped while it was written
            found[file.name.partition(".")[0]].append(file.read_bytes())
        return found


def ask_with_password(client: Client, method: str, path: str, body: Any = None) -> bytes:
    status, text = client.ask(method, path, body, Authorization=f"Bearer {PASSWORD}")
    assert status < 300, (method, path, status, text)
    return text


@pytest.mark.parametrize("variable", [VARIABLES[0], *(pytest.param(name, marks=pytest.mark.slow) for name in VARIABLES[1:])])
def test_no_child_gets_the_servers_password(tmp_path: Path, variable: str) -> None:
    machine = Machine(tmp_path)
    project = tmp_path / "project"
    project.mkdir()
    with run_server(tmp_path, "--directory", str(project), **machine.settings(), **{variable: PASSWORD}) as (process, url):
        rest(process)
        client = Client(url)
        shown: dict[str, bytes] = {}
        ask_with_password(client, "POST", "/project/git/init")
        session = json.loads(ask_with_password(client, "POST", "/session", {}))["id"]
        shown["a template's shell part"] = ask_with_password(
            client, "POST", f"/session/{session}/command", {"command": "show", "arguments": "", "model": "mock/mock"}
        ) + ask_with_password(client, "GET", f"/session/{session}/message")
        shown["a shell command"] = ask_with_password(
            client, "POST", f"/session/{session}/shell", {"command": "env", "agent": "build"}
        )
        made = json.loads(ask_with_password(client, "POST", "/api/shell", {"command": f"env > {machine.seen}/shell; exit"}))
        ask_with_password(client, "POST", "/pty", {"command": "/bin/sh", "args": ["-c", f"env > {machine.seen}/terminal"]})
        prompt = {"parts": [{"type": "text", "text": "hello"}], "model": {"providerID": "witness", "modelID": "default"}}
        client.ask("POST", f"/session/{session}/message", prompt, Authorization=f"Bearer {PASSWORD}")
        client.ask("POST", "/v1/agents/claude/install", Authorization=f"Bearer {PASSWORD}")
        assert made
        process.terminate()
        assert process.wait(START_S) == 0
    for name in ("shell", "terminal"):
        shown[name] = (machine.seen / name).read_bytes()
        (machine.seen / name).unlink()
    found = machine.environments()
    found.pop("opencode")
    assert all(found.values()), f"not run: {[name for name, seen in found.items() if not seen]}"
    everything = [*shown.items(), *((name, seen) for name, all_ in found.items() for seen in all_)]
    for name, text in everything:
        assert MARKER.encode() in text, f"{name} did not get the person's environment"
        assert PASSWORD.encode() not in text, f"{name} got the password"
        assert f"{variable}={PASSWORD}".encode() not in text


@pytest.mark.parametrize("command", ["web", "tui"])
def test_opencodes_programs_do_not_get_it_either(tmp_path: Path, command: str) -> None:
    """`web` runs one for its files, `tui` asks one for its version. The TUI itself is the client, and shows the password."""
    machine = Machine(tmp_path)
    argv = [sys.executable, "-c", RUN, command, "--directory", str(tmp_path), *(["--port", "0"] if command == "web" else [])]
    planted = {**machine.settings(), "OPENCODE_PASSWORD": PASSWORD, "SHIM_PASSWORD": PASSWORD}
    done = subprocess.run(argv, env=environment(tmp_path, **planted), capture_output=True, timeout=START_S, check=False)
    assert done.returncode != 0, "the stand-in is no OpenCode"
    seen = machine.environments()["opencode"]
    assert seen
    assert all(MARKER.encode() in text for text in seen)
    clients = [text for text in seen if text.startswith(b"['attach'")]
    assert len(clients) == (command == "tui")
    for text in seen:
        assert (PASSWORD.encode() in text) is (text in clients), text.partition(b"\n")[0]
