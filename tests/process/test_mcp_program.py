"""`opencode-shim mcp`: the real program on stdin and stdout, with bare lines. With the SDK: tests/e2e/test_delegation.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from shim.processes.child_environment import MARK
from tests.process.test_serve import RUN, environment, run_server

PROGRAM = ["-c", RUN, "mcp"]
END_S = 40


def lines_of(home: Path, *messages: Any, **env: str) -> tuple[int, list[Any], str]:
    """Give the program these messages and then the end of stdin. Out: its code, what it wrote, and stderr."""
    text = "".join(message if isinstance(message, str) else json.dumps(message) + "\n" for message in messages)
    argv = [sys.executable, *PROGRAM, "--url", "http://127.0.0.1:9"]
    done = subprocess.run(argv, input=text, text=True, capture_output=True, env=environment(home, **env), timeout=END_S)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_server_without_the_setting_says_what_to_do(tmp_path: Path) -> None:
    with run_server(tmp_path) as (_, url):
        argv = [sys.executable, *PROGRAM, "--url", url]
        ping = json.dumps({"jsonrpc": "2.0", "id": "a", "method": "ping"}) + "\n"
        process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(tmp_path), cwd=tmp_path
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(ping)
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        process.stdin.close()
        assert process.wait(END_S) == 0
        process.stdout.close()
    assert answer["id"] == "a"
    assert "--mcp" in answer["error"]["message"]


def test_the_end_of_stdin_ends_it(tmp_path: Path) -> None:
    code, answers, _ = lines_of(tmp_path, "nonsense\n", "\n", "[1]\n")
    assert (code, [answer["error"]["code"] for answer in answers]) == (0, [-32700])


def test_an_agent_of_a_server_gets_no_persons_rights_by_it(tmp_path: Path) -> None:
    code, answers, said = lines_of(tmp_path, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, **{MARK: "0123"})
    assert (code, answers) == (1, [])
    assert "with the rights of their sessions" in said
