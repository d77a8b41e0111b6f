"""`opencode run --attach`: what it prints as text and as JSON, and that it ends."""

from __future__ import annotations

import json
import subprocess

import pytest

from .support.bench import CLAUDE, MOCK, Bench, nightly
from .support.places import program

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
both = pytest.mark.parametrize("server", [*nightly(MOCK), CLAUDE], indirect=True)


def start_run(server: Bench, text: str, *flags: str) -> subprocess.CompletedProcess[str]:
    """`opencode run`, once it has ended."""
    model = "claude/default" if server.real else "mock/mock"
    argv = [program("opencode"), "run", "--attach", server.url, "--model", model, *flags, text]
    return subprocess.run(
        argv,
        cwd=server.place.project,
        env=server.place.env(OPENCODE_DISABLE_AUTOUPDATE="1"),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def run(server: Bench, text: str, *flags: str) -> str:
    """What `opencode run` prints; it has to succeed."""
    done = start_run(server, text, *flags)
    assert done.returncode == 0, done.stderr + server.shim.child.log()[-2000:]
    return done.stdout


@pytest.mark.nightly
@both
def test_text(server: Bench) -> None:
    assert "You said: say hello" in run(server, server.say("[scene:text] say hello", "echo You said: say hello"))


@both
def test_json(server: Bench) -> None:
    lines = [json.loads(line) for line in run(server, server.say("[scene:bash] run it", "tool"), "--format", "json").splitlines()]
    kinds = [line["type"] for line in lines]
    assert kinds[0] == "step_start"
    assert kinds[-1] == "step_finish"
    [use] = [line["part"] for line in lines if line["type"] == "tool_use"]
    assert (use["tool"], use["state"]["status"]) == ("bash", "completed")
    assert any(line["type"] == "text" for line in lines)


@both
def test_a_question_that_run_cannot_show_is_rejected_and_the_run_ends(server: Bench) -> None:
    run(server, server.say("[scene:bash:touch made.txt] make it", "permission"))
    assert not (server.place.project / "made.txt").exists()
    run(server, server.say("[scene:question] ask", "question"))


@both
def test_an_error_is_printed(server: Bench) -> None:
    done = start_run(server, server.say("[scene:error] fail", "error"))
    assert "error" in (done.stdout + done.stderr).lower()
