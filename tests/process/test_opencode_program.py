"""The alias `opencode` as a process: what those that start it read on its stdout, and how they end it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from shim.cli import alias, screen
from shim.cli.opencode import hand_over
from shim.lib.errors import ShimError
from tests.process.test_serve import SLACK_S, START_S, STOP_S, environment

END_OF_INPUT_S = 10.0
"""What `opencode-python-sdk` and `workspace-bridge` give the server after the end of its stdin."""
RUN_S = 50


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the aliases."""
    with (tmp_path / "alias.log").open("w") as out:
        alias.install(tmp_path / "bin", ("opencode", "opencode2"), screen.console(out))
    return tmp_path / "bin"


@contextmanager
def start_opencode(folder: Path, home: Path, *arguments: str, **more: str) -> Iterator[subprocess.Popen[str]]:
    """`opencode ARGUMENTS` with three pipes; killed at the end if it still runs."""
    process = subprocess.Popen(
        [str(folder / "opencode"), *arguments],
        cwd=home,
        env=environment(home, **more),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def run_opencode(
    folder: Path, home: Path, *arguments: str, name: str = "opencode", **more: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(folder / name), *arguments],
        cwd=home,
        env=environment(home, SHIM_DEFAULT_AGENT="mock", SHIM_MOCK_DELAY_FACTOR="0", **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def test_the_version_is_all_that_it_prints(folder: Path, tmp_path: Path) -> None:
    done = run_opencode(folder, tmp_path, "--version")
    assert (done.stdout, done.stderr) == ("1.18.33\n", "")
    assert run_opencode(folder, tmp_path, "--version", name="opencode2").stdout == "2.1.2\n"


def test_a_project_with_a_module_of_the_same_name_does_not_run(folder: Path, tmp_path: Path) -> None:
    """It is started in strange projects: Python must not look there for modules."""
    (tmp_path / "shim").mkdir()
    (tmp_path / "shim" / "__init__.py").write_text("raise SystemExit('the project has run')")
    (tmp_path / "argparse.py").write_text("raise SystemExit('the project has run')")
    assert run_opencode(folder, tmp_path, "--version").stdout == "1.18.33\n"


def test_the_first_line_of_serve_has_the_url_and_sigterm_ends_it(folder: Path, tmp_path: Path) -> None:
    with start_opencode(folder, tmp_path, "serve", "--hostname=127.0.0.1", "--port=0") as process:
        line = first_line(process)
        assert line.startswith("opencode server listening on http://127.0.0.1:")
        url = line.split()[-1]
        with urllib.request.urlopen(f"{url}/api/health", timeout=START_S) as answer:
            assert json.load(answer)["healthy"] is True
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=STOP_S + SLACK_S)
        assert (process.returncode, out, err) == (0, "", "")
    assert (tmp_path / ".local/share/opencode-shim/opencode-shim.log").exists()


def test_logs_go_to_stderr_when_they_are_asked_for(folder: Path, tmp_path: Path) -> None:
    with start_opencode(folder, tmp_path, "serve", "--port", "0", "--print-logs", "--log-level", "DEBUG") as process:
        url = first_line(process).split()[-1]
        with urllib.request.urlopen(f"{url}/global/health", timeout=START_S) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=STOP_S + SLACK_S)
    assert "/global/health" in err


def test_stdio_prints_its_url_as_json_and_the_end_of_stdin_ends_it(folder: Path, tmp_path: Path) -> None:
    arguments = ("serve", "--stdio", "--hostname", "127.0.0.1", "--port", "0")
    with start_opencode(folder, tmp_path, *arguments, OPENCODE_PASSWORD="s3cret") as process:
        line = first_line(process)
        assert len(line.encode()) <= 8192
        url = json.loads(line)["url"]
        refused = urllib.request.Request(f"{url}/api/info")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(refused, timeout=START_S)
        assert caught.value.code == 401
        caught.value.close()
        refused.add_header("Authorization", "Bearer s3cret")
        with urllib.request.urlopen(refused, timeout=START_S) as answer:
            assert json.load(answer)["version"] == "2.1.2"
        assert process.stdin is not None
        process.stdin.close()
        assert process.wait(END_OF_INPUT_S) == 0
        process.stdin = None


def test_a_run_prints_the_answer(folder: Path, tmp_path: Path) -> None:
    done = run_opencode(folder, tmp_path, "run", "echo", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr
    done = run_opencode(folder, tmp_path, "run", "--continue", "--format", "json", "tool")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    kinds = [line["type"] for line in lines]
    assert (kinds[0], kinds[-1], kinds.count("tool_use")) == ("step_start", "step_finish", 1)
    listed = json.loads(run_opencode(folder, tmp_path, "session", "list", "--format", "json").stdout)
    assert [row["id"] for row in listed] == [lines[0]["sessionID"]]
    table = run_opencode(folder, tmp_path, "session", "list").stdout.splitlines()
    assert table[0].startswith("Session ID")
    assert table[2].startswith(lines[0]["sessionID"])


def test_a_run_rejects_permissions_and_auto_allows_them(folder: Path, tmp_path: Path) -> None:
    done = run_opencode(folder, tmp_path, "run", "permission")
    assert "reject" in done.stderr
    done = run_opencode(folder, tmp_path, "run", "--auto", "permission")
    assert "once" in done.stderr


def test_a_run_that_fails_says_why(folder: Path, tmp_path: Path) -> None:
    done = run_opencode(folder, tmp_path, "run", "error")
    assert done.returncode == 1
    assert "Error: " in done.stderr
    done = run_opencode(folder, tmp_path, "run", "--session", "ses_nowhere", "hello")
    assert done.returncode == 1
    assert "ses_nowhere" in done.stderr


def test_lists_have_the_form_of_opencode(folder: Path, tmp_path: Path) -> None:
    models = run_opencode(folder, tmp_path, "models", "mock", "--verbose").stdout
    name, _, rest = models.partition("\n")
    assert name.startswith("mock/")
    assert json.JSONDecoder().raw_decode(rest)[0]["id"] == name.removeprefix("mock/")
    agents = run_opencode(folder, tmp_path, "agent", "list").stdout
    assert agents.startswith("build (primary)\n  [")
    done = run_opencode(folder, tmp_path, "models", "nobody")
    assert (done.returncode, 'no provider "nobody"' in done.stderr) == (1, True)


def test_a_session_is_exported_and_imported(folder: Path, tmp_path: Path) -> None:
    run_opencode(folder, tmp_path, "run", "echo kept")
    document = run_opencode(folder, tmp_path, "export").stdout
    session = json.loads(document)["info"]["id"]
    (tmp_path / "session.json").write_text(document)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = run_opencode(folder, elsewhere, "import", str(tmp_path / "session.json"), XDG_DATA_HOME=str(elsewhere))
    assert done.stdout == f"Imported session: {session}\n", done.stderr


def test_api_starts_a_server_that_stays(folder: Path, tmp_path: Path) -> None:
    done = run_opencode(folder, tmp_path, "api", "post", "/api/session", "--data", json.dumps({"title": "Made"}))
    pid = int(done.stderr.split()[-1])
    try:
        assert done.returncode == 0
        session = json.loads(done.stdout)["data"]["id"]
        done = run_opencode(folder, tmp_path, "api", "get", "/api/session", "--param", "limit=1", "--param", "order=desc")
        assert ([row["id"] for row in json.loads(done.stdout)["data"]], done.stderr) == ([session], "")
        done = run_opencode(folder, tmp_path, "api", "get", "/api/session/ses_nowhere")
        assert (done.returncode, json.loads(done.stdout)["_tag"]) == (1, "SessionNotFoundError")
        assert done.stderr == "404 Not Found\n"
    finally:
        os.kill(pid, signal.SIGTERM)


def test_commands_that_need_the_real_opencode_are_refused_with_a_sentence(folder: Path, tmp_path: Path) -> None:
    done = run_opencode(folder, tmp_path, "stats")
    assert done.returncode == 1
    assert "Install OpenCode (npm install -g opencode-ai)" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_package_of_opencode_2_is_named_for_its_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ShimError, match="npm install -g @opencode/cli"):
        hand_over("opencode2", ["stats"])
