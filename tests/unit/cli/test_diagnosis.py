"""The doctor: what is judged how, and the whole command over agents of each kind (programs of a few lines)."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from shim.agents.discovery import DISCOVERY_TIMEOUT_S
from shim.cli import doctor
from shim.cli.diagnosis import AgentCheck, Diagnosis, Probe, diagnose, numbers, place, wrong
from shim.cli.screen import console
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from universal.agent_spec import LoginCheck
from universal.registry import agents

FIXTURES = Path(__file__).resolve().parents[3] / "compat_fixtures" / "agents"
GOOD = Probe(20, 300, 400, 500, answer="ready")
HERE = AgentCheck("a", "A", "/bin/a", "1.5.0", tested=("1.0.0", "2.0.0"), login="yes", models=3)


def but(**changes: Any) -> Diagnosis:
    from dataclasses import replace

    return diagnose(replace(HERE, **changes))


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({}, "ok", ""),
        ({"why": "not there; npm install a"}, "absent", "npm install a"),
        ({"why": "raises", "broken_package": True}, "wrong", "raises"),
        ({"login": "no", "login_hint": "Run `a login`."}, "wrong", "It is not logged in. Run `a login`."),
        ({"login": "no", "probe": GOOD}, "ok", ""),
        ({"trouble": "it hangs"}, "wrong", "it hangs"),
        ({"trouble": "it hangs", "probe": GOOD}, "warning", "it hangs"),
        ({"trouble": "A: no answer within 20 s", "slow": True}, "warning", "Try again when the machine is idle"),
        ({"probe": Probe(20, 30, None, 40, error="400 from the model")}, "wrong", "400 from the model"),
        ({"probe": Probe(20, 30, None, 40), "login_hint": "Log in."}, "wrong", "without an answer. Log in."),
        ({"version": "2.0.1"}, "warning", "Newer than the tested versions (1.0.0 to 2.0.0)"),
        ({"version": "0.9.0"}, "warning", "Older"),
        ({"version": None}, "warning", "does not report its version"),
        ({"tested": (), "version": None}, "ok", ""),
        ({"login": "unknown"}, "ok", "opencode-shim doctor a --probe"),
        ({"login": "unknown", "built_in": True}, "ok", ""),
    ],
)
def test_verdicts(changes: dict[str, Any], status: str, words: str) -> None:
    found = but(**changes)
    assert found.status == status
    assert words in found.remedy
    assert bool(words) == bool(found.remedy)


def test_versions_are_compared_as_numbers() -> None:
    assert [place(v, ("0.73.1", "0.87.1")) for v in ("0.9.0", "0.73.1", "0.80.0", "0.100.0", "x", None)] == [
        "older",
        "inside",
        "inside",
        "newer",
        "unknown",
        "unknown",
    ]


def test_when_the_command_says_that_something_is_wrong() -> None:
    ok, bad, absent = but(), but(login="no"), but(why="gone")
    mock = but(built_in=True, login="unknown")
    assert not wrong([ok, absent, mock], [])
    assert wrong([ok, bad], [])
    assert wrong([absent, mock], [])
    assert wrong([ok, absent], ["a"])
    assert not wrong([mock], ["mock"])


def test_tested_versions_are_those_of_the_recordings() -> None:
    """When this fails after a recording of an older or newer version: write it into `tested` of the agent's row."""
    found: dict[str, set[str]] = {}
    names = {"opencode": "opencode-acp", "zed-codex-acp": "codex-acp"}
    untested = {"cline"}  # a person names its command
    for folder in FIXTURES.iterdir():
        for inner in folder.iterdir() if folder.name != "mock" else ():
            match = re.fullmatch(r"(?:(.*?)-)?(\d+\.\d+\.\d+)(?:-g[0-9a-f]+)?(?:-again|-powers)?", inner.name)
            assert match, f"{inner} names no version"
            name = names.get(match[1], match[1]) if folder.name == "acp" else folder.name
            if name in untested:
                continue
            if inner.name.endswith("-powers"):  # single scenes of a version whose whole set was not recorded
                continue
            found.setdefault(name, set()).add(match[2])
    ordered = {name: sorted(versions, key=numbers) for name, versions in found.items()}
    assert {name: (versions[0], versions[-1]) for name, versions in ordered.items()} == {
        name: (spec.program.tested[0], spec.program.tested[-1]) for name, spec in agents().items() if spec.program.tested
    }


def test_every_agent_says_how_to_log_in() -> None:
    for spec in agents().values():
        if spec.program.binaries:
            assert spec.program.login_hint.endswith("."), spec.name


@pytest.mark.parametrize(
    ("agent", "line", "answer"),
    [
        ("claude", '  "loggedIn": true,', "yes"),
        ("claude", '  "loggedIn": false,', "no"),
        ("codex", '{"id":1,"result":{"account":null,"userId":null,"requiresOpenaiAuth":true}}', "no"),
        ("codex", '{"id":1,"result":{"account":null,"userId":null,"requiresOpenaiAuth":false}}', "yes"),
        ("codex", '{"id":1,"result":{"account":{"type":"apiKey"},"requiresOpenaiAuth":true}}', "yes"),
    ],
)
def test_login_answers_of_the_real_agents(agent: str, line: str, answer: str) -> None:
    check = agents()[agent].program.login
    assert isinstance(check, LoginCheck)
    assert bool(re.search(check.yes, line)) == (answer == "yes")
    assert bool(re.search(check.no, line)) == (answer == "no")


def program(folder: Path, name: str, code: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(f"#!{sys.executable} -IS\nimport sys\n{code}")
    file.chmod(0o755)
    return file


# --- the whole command -------------------------------------------------------------------------------------

ACP = """
import json
for line in sys.stdin:
    told = json.loads(line)
    method, answer = told.get("method"), {"jsonrpc": "2.0", "id": told.get("id")}
    if method == "initialize":
        logins = [{"id": "x", "name": "By key"}]
        answer["result"] = {"protocolVersion": 1, "agentInfo": {"version": "4.5.6"}, "authMethods": logins}
    elif method == "session/new" and LOGGED_IN:
        answer["result"] = {"sessionId": "s"}
    elif method == "session/new":
        answer["error"] = {"code": -32000, "message": "Authentication required"}
    elif method == "session/prompt":
        chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "ready"}}
        params = {"sessionId": "s", "update": chunk}
        print(json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}), flush=True)
        answer["result"] = {"stopReason": "end_turn"}
    else:
        continue
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a claude that is logged out, an ACP agent with a login, and one without."""
    folder = tmp_path / "bin"
    claude = 'print("2.1.300 (Claude Code)" if "--version" in sys.argv else \'{"loggedIn": false}\')\nsys.exit(1)'
    program(folder, "claude", claude)
    program(folder, "in", f"LOGGED_IN = True\n{ACP}")
    program(folder, "out", f"LOGGED_IN = False\n{ACP}")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.delenv("SHIM_CLAUDE_BIN", raising=False)
    return tmp_path


def settings(machine: Path) -> Settings:
    own: Any = {"in": {"command": ["in"]}, "out": {"command": ["out"]}}
    return Settings(directory=machine, data_dir=machine / "data", agents=own, mock_delay_factor=0)


async def test_the_whole_command(machine: Path) -> None:
    async with asyncio.timeout(50):
        found = await doctor.examine(settings(machine), [], probing=True)
    by_name = {one.checked.name: one for one in found}
    good = by_name["in"]
    assert (good.status, good.checked.version, good.checked.login, good.checked.models) == ("ok", "4.5.6", "unknown", 1)
    assert good.checked.probe is not None
    assert good.checked.probe.answer == "ready"
    times = good.checked.probe
    assert 0 <= (times.started_ms or 0) <= (times.event_ms or 0) <= (times.text_ms or 0) <= (times.idle_ms or 0)
    out = by_name["out"]
    assert (out.status, out.checked.login) == ("wrong", "no")
    assert "ways to log in: By key" in out.checked.trouble
    claude = by_name["claude"]
    assert (claude.status, claude.checked.version, claude.tested, claude.checked.login) == ("wrong", "2.1.300", "inside", "no")
    assert "/login" in claude.remedy
    assert by_name["gemini"].status == "absent"
    assert by_name["mock"].checked.probe is None
    rows = {row["name"]: row for row in json.loads(doctor.as_json(found))}
    assert (rows["in"]["status"], rows["in"]["probe"]["answer"], rows["claude"]["version_is"]) == ("ok", "ready", "inside")
    screen = io.StringIO()
    doctor.show(console(screen), found)
    lines = screen.getvalue().splitlines()
    assert "claude: problem" in lines
    assert any(line.startswith("  do       It is not logged in. Run `claude`") for line in lines)
    assert any(line.startswith("  probe    answered: process ") for line in lines)
    assert "  rules    a hook before every call" in lines
    assert lines[-1].startswith("not installed: codex, pi")


@pytest.mark.parametrize(
    ("missing", "row"),
    [((), "a hook before every call"), (("read", "task"), "a hook before every call; not held for read, task")],
)
def test_doctor_shows_which_rules_an_agent_does_not_hold(missing: tuple[str, ...], row: str) -> None:
    screen = io.StringIO()
    doctor.show(console(screen), [but(rules_by="a hook before every call", rules_missing=missing)])
    assert f"  rules    {row}" in screen.getvalue().splitlines()


@pytest.mark.parametrize(("level", "status"), [("project", "warning"), ("strict", "wrong")])
def test_doctor_says_that_a_wanted_sandbox_cannot_be_made(level: str, status: str) -> None:
    screen = io.StringIO()
    why = "There is no program bwrap. Install bubblewrap."
    found = but(rules_by="its questions", sandbox=f"{level}; not here", sandbox_why=why)
    doctor.show(console(screen), [found])
    assert (found.status, found.remedy) == (status, why)
    assert f"  sandbox  {level}; not here" in screen.getvalue().splitlines()


def test_doctor_shows_which_part_of_a_set_up_an_agent_does_not_take() -> None:
    screen = io.StringIO()
    doctor.show(console(screen), [but(setup_missing=("MCP servers (`mcp`)",))])
    assert "  set-up   without effect: MCP servers (`mcp`)" in screen.getvalue().splitlines()


async def test_doctor_says_why_a_program_is_not_used(machine: Path) -> None:
    """An `opencode` on PATH that is 2.x is no program for the agent `opencode`."""
    program(machine / "bin", "opencode", 'print("2.0.3")\nsys.exit(1)')
    found = await doctor.examine(settings(machine), [], probing=False)
    screen = io.StringIO()
    doctor.show(console(screen), found)
    lines = screen.getvalue().splitlines()
    (line,) = [line for line in lines if line.startswith("opencode:")]
    assert line == (
        f"opencode: not used. {machine}/bin/opencode is version 2.0.3, and this agent takes 1.x only. "
        "A program of 2.x is taken by the agent `opencode2`."
    )
    assert "opencode," not in lines[-1]
    assert any(line.startswith("opencode2: ") for line in lines)


async def test_one_agent_by_name(machine: Path) -> None:
    found = await doctor.examine(settings(machine), ["mock"], probing=True)
    assert [one.checked.name for one in found] == ["mock"]
    assert found[0].checked.probe is not None
    assert found[0].checked.probe.good
    with pytest.raises(ShimError, match='no agent named "nobody"'):
        await doctor.examine(settings(machine), ["nobody"], probing=False)


async def test_one_agent_by_name_waits_for_no_other(machine: Path) -> None:
    program(machine / "bin", "out", "import time\ntime.sleep(600)")
    async with asyncio.timeout(DISCOVERY_TIMEOUT_S / 2):
        (found,) = await doctor.examine(settings(machine), ["in"], probing=False)
    assert found.checked.version == "4.5.6"
