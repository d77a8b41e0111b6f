"""Programs that others wrote against a server of ours: they attach by URL, start one for each call, or call `opencode run`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .support.bench import MOCK, Bench, bench
from .support.children import wait_for
from .support.places import MODULES
from .test_started_by import HELLO, PROMPT, Place, environment, place, run_command

__all__ = ["place"]
pytestmark = [pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(300)]

PACKAGES = MODULES.parent / "python"
RUN_S, START_S = 120, 150
TOKEN = "t" * 48
TAIL = "The caller reads only this section."
"""Of the text that subtask-mcp puts around each job."""


@pytest.fixture(scope="module")
def server() -> Iterator[Bench]:
    with bench(MOCK) as made:
        yield made


def needs(name: str) -> Path:
    """The folder of a package; skips where it wants a Python that is not here."""
    folder = PACKAGES / name
    assert folder.exists(), f"{name} is not installed: run scripts/e2e-setup"
    if not any(folder.glob("*.dist-info")):
        pytest.skip(f"{name} wants a newer Python, which scripts/e2e-setup could not get")
    return folder


def evidence_of(place_: Place, name: str, url: str) -> dict[str, Any]:
    """What a program of `client_programs.py` has seen."""
    script, packages = str(Path(__file__).with_name("client_programs.py")), needs(name)
    newer = packages / ".python" / "bin" / "python"
    python = str(newer) if newer.exists() else sys.executable
    done = run_command(place_, python, script, name, str(place_.project), url, PYTHONPATH=str(packages))
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


def texts_of(server: Bench, session: str) -> list[str]:
    messages = server.api.get(f"/session/{session}/message")
    return [part["text"] for message in messages for part in message["parts"] if part["type"] == "text"]


def test_talk_bridge_undoes_and_forks(server: Bench) -> None:
    assert evidence_of(server.place, "opencode-talk-bridge", server.url) == {
        "healthy": True,
        "text": HELLO,
        "title": "two",
        "forked": 2,
        "reverted": True,
        "unreverted": True,
        "models": True,
    }


def test_agent_hub_drives_many_sessions_at_once(server: Bench) -> None:
    server.api.get("/session")  # the first request loads the routes, and the program waits for 2 s
    seen = evidence_of(server.place, "opencode-agent-hub", server.url)
    assert seen["running"]
    assert len(set(seen["sessions"])) == 4
    for session in seen["sessions"]:
        wait_for(lambda id_=session: texts_of(server, id_)[-1:] == [HELLO], RUN_S, f"{session} does not answer")
        # Its note says that `/message` wakes nobody; it does, here as in OpenCode: the mock answers by an echo.
        assert texts_of(server, session) == ["you are one of several"] * 2 + [PROMPT, HELLO]


def test_agent_sdk_reads_the_answer(server: Bench) -> None:
    assert evidence_of(server.place, "opencode-agent-sdk", server.url) == {
        "texts": [PROMPT, HELLO],
        "results": 1,
        "errors": [False],
    }


def test_launchdarkly_starts_a_server_for_each_call(place: Place) -> None:
    assert evidence_of(place, "launchdarkly-ai-opencode-agents", "") == {"idles": 1, "last": "session.idle", "deltas": True}


def test_subtask_runs_a_job_by_opencode_run(place: Place) -> None:
    def subtask(*arguments: str) -> str:
        program = "import sys; from subtask.cli import main; sys.exit(main())"
        done = run_command(place, sys.executable, "-c", program, *arguments, PYTHONPATH=str(needs("subtask-mcp")))
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    job = subtask("start", PROMPT, "--engine", "opencode", "--repo", str(place.project), "--no-sandbox").split()[0]
    ends = time.monotonic() + RUN_S
    while " done " not in (told := subtask("wait", job, "--timeout", "20")):
        assert time.monotonic() < ends, told
    assert "exit 0" in told
    assert TAIL in subtask("result", job, "--full"), "the answer's last section: the mock's echo of the job's text"


def test_a2a_passes_a_message_on(server: Bench) -> None:
    """`opencode-a2a call` takes its base URL; with that of its card, as its help has it, it looks twice for the card."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    credentials = json.dumps([{"scheme": "bearer", "token": TOKEN, "principal": "automation"}])
    more = {"A2A_STATIC_AUTH_CREDENTIALS": credentials, "A2A_CLIENT_BEARER_TOKEN": TOKEN, "A2A_PORT": str(port)}
    more |= {"A2A_PUBLIC_URL": url, "OPENCODE_BASE_URL": server.url, "OPENCODE_WORKSPACE_ROOT": str(server.place.project)}
    env = {**environment(server.place, **more), "PYTHONPATH": str(needs("opencode-a2a"))}
    argv = [sys.executable, "-c", "from opencode_a2a.cli import main; raise SystemExit(main())"]

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"{url}/.well-known/agent-card.json", timeout=3) as card:
                return card.status == 200
        except OSError:
            return False

    with server.place.log("a2a").open("w") as log:
        bridge = subprocess.Popen([*argv, "serve"], env=env, cwd=server.place.project, stdout=log, stderr=log)
    try:
        wait_for(answers, START_S, "opencode-a2a does not start")
        call = [*argv, "call", url, PROMPT]
        done = subprocess.run(call, env=env, cwd=server.place.project, capture_output=True, text=True, timeout=RUN_S, check=False)
        assert done.returncode == 0, done.stderr
        assert HELLO in done.stdout
    finally:
        os.kill(bridge.pid, 15)
        bridge.wait(RUN_S)
