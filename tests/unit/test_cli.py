"""The command: what it prints, and OpenCode's clients as it starts them. Listening and ending: `test_server.py`."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr
from typer.testing import CliRunner

from shim.cli import clients, screen
from shim.cli.commands import cli
from shim.cli.server import RunningServer, listen
from shim.lib.errors import AgentNotFound, ShimError
from shim.lib.settings import Settings, env_name

WAIT_S = 20


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the person's."""
    for name in Settings.model_fields:
        monkeypatch.delenv(env_name(name), raising=False)
    for name in ("OPENCODE_SERVER_PASSWORD", "OPENCODE_PASSWORD", "SHIM_OPENCODE_BIN", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)


# --- the screen ------------------------------------------------------------------------------------------

ROWS = [
    screen.AgentRow(
        name="claude",
        title="Claude Code",
        version="2.1.330",
        where="/opt/[x]/claude",
        problem=None,
        is_default=True,
        models=("opus", "haiku"),
        default_model="opus",
        capabilities={"deltas": True},
    ),
    screen.AgentRow("codex", "Codex", None, None, "SHIM_CODEX_BIN is /x, which is not an executable file."),
    screen.AgentRow("pi", "Pi", None, None, "neither on PATH nor ...", absent=True, install="npm install -g pi"),
    screen.AgentRow("amp", "Amp", None, None, "neither on PATH nor ...", absent=True, install="npm install -g amp"),
    screen.AgentRow("mock", "Mock", None, "built in", None),
]


def console_text(show: Callable[[screen.Console], None]) -> str:
    stream = io.StringIO()
    show(screen.console(stream))
    return stream.getvalue()


def fake_server(settings: Settings) -> RunningServer:
    return RunningServer("http://127.0.0.1:5000", web.Application(), settings)


def test_the_first_line_is_the_one_that_sdks_wait_for() -> None:
    text = console_text(lambda out: screen.print_listening_line(out, fake_server(Settings())))
    assert text == "opencode server listening on http://127.0.0.1:5000\n"


def test_the_start_shows_agents_the_line_to_attach_and_the_data(tmp_path: Path) -> None:
    directory = tmp_path / "my project"
    directory.mkdir()
    settings = Settings(directory=directory, data_dir=tmp_path / "data")
    lines = console_text(lambda out: screen.print_start(out, fake_server(settings), ROWS, ["mind [this]"])).splitlines()
    assert lines == [
        "",
        "agent   version  where",
        "claude  2.1.330  /opt/[x]/claude",
        "codex   -        not usable: SHIM_CODEX_BIN is /x, which is not an executable file.",
        "mock    -        built in",
        "not installed: pi, amp (`opencode-shim agents` says how to install them)",
        "",
        f"attach   opencode attach http://127.0.0.1:5000 --dir '{directory}'",
        "inspect  http://127.0.0.1:5000/inspector",
        "default  claude, for prompts that name no model",
        "access   every program on this machine; OPENCODE_SERVER_PASSWORD sets a password",
        f"data     {tmp_path}/data",
        "note     mind [this]",
    ]


def test_long_lines_are_not_broken_and_not_coloured(tmp_path: Path) -> None:
    row = screen.AgentRow("claude", "Claude Code", "1", "/" + "x" * 400, None)
    assert row.where in console_text(lambda out: screen.agent_table(out, [row])).split()


def test_on_a_terminal_tables_are_those_of_rich() -> None:
    class Screen(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Screen()
    screen.agent_table(screen.console(stream), ROWS)
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", row).rstrip() for row in stream.getvalue().splitlines()]
    assert rows[:2] == ["agent   version  where", "claude  2.1.330  /opt/[x]/claude"]


def test_settings_from_files_are_reported_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "shim.toml").write_text("log_level = 'warn'\nidle_reap_s = 60\n")
    text = console_text(lambda out: screen.print_start(out, fake_server(Settings.load()), ROWS))
    assert f"settings log_level, idle_reap_s from {tmp_path}/shim.toml\n" in text


def test_notes(tmp_path: Path) -> None:
    assert screen.notes(Settings(), ROWS) == []
    assert screen.notes(Settings(password=SecretStr("secret")), ROWS) == []
    found = screen.notes(Settings(record_dir=tmp_path, hostname="0.0.0.0", password=SecretStr("secret")), ROWS[1:])
    assert [text.split()[0] for text in found] == ["No", "Without", "All"]
    silent = screen.AgentRow("claude", "Claude Code", None, "/opt/claude", None, trouble="Claude Code: it said nothing.")
    assert "Claude Code: it said nothing." in screen.notes(Settings(), [silent])
    assert not any("secret" in text for text in found)


def test_agents_in_detail_and_as_json() -> None:
    text = console_text(lambda out: screen.agent_details(out, ROWS))
    assert "claude: Claude Code\n  models  opus (default), haiku\n  can     deltas\n" in text
    assert "mock: Mock\n  models  unknown: it did not answer in time\n" in text
    assert text.endswith(
        "not installed  how to install it\npi             npm install -g pi\namp            npm install -g amp\n"
    )
    assert "neither on PATH" not in text
    assert "codex:" not in text
    parsed = json.loads(screen.agents_json(ROWS))
    assert parsed[0]["models"] == ["opus", "haiku"]
    assert parsed[1]["problem"].startswith("SHIM_CODEX_BIN")


# --- commands --------------------------------------------------------------------------------------------


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(arguments))
    if isinstance(result.exception, ShimError):
        raise result.exception
    return result.exit_code, result.output


def test_version_names_the_commit_too() -> None:
    code, text = invoke("--version")
    assert code == 0
    assert re.fullmatch(r"\d+\.\d+\.\d+ \([0-9a-f]{9}(, modified)?\)", text.strip())


def test_config_tells_values_and_where_they_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIM_PORT", "5001")
    code, text = invoke("config")
    assert code == 0
    assert ["port", "5001", "environment", "SHIM_PORT"] in [line.split() for line in text.splitlines()]
    assert "spare_agents" not in text
    assert "opencode-shim config --all" in text.splitlines()[-1]
    assert "spare_agents" in invoke("config", "--all")[1]
    parsed = json.loads(invoke("config", "--json")[1])
    assert parsed["port"] == {
        "value": 5001,
        "source": "environment SHIM_PORT",
        "env": "SHIM_PORT",
        "description": Settings.model_fields["port"].description,
    }
    assert set(parsed) == set(Settings.model_fields)


def test_doctor_without_agents_shows_the_project_and_which_opencode_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "opencode"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    lines = invoke("doctor", "--no-agents")[1].splitlines()
    assert f"opencode on PATH: {program} (not ours)" in lines
    assert [line for line in lines if line.startswith("project: ")]
    assert not [line for line in lines if line.startswith("claude")]


def test_a_wrong_setting_ends_the_command_with_a_sentence() -> None:
    code, out, err = opencode_shim("serve", "--port", "99999")
    assert (code, out) == (1, "")
    assert (
        err == "opencode-shim: Setting port = 99999 (flag --port) cannot be used: input should be less than or equal to 65535.\n"
    )


def test_a_number_that_is_none_is_refused_in_our_words() -> None:
    code, out, err = opencode_shim("serve", "--port", "abc")
    assert (code, out) == (2, "")
    assert err.endswith("Error: Invalid value for '--port': it needs a number, not abc.\n")


def test_a_taken_port_ends_serve_with_1() -> None:
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        code, out, err = opencode_shim("serve", "--port", str(port))
    assert (code, out) == (1, "")
    assert err.startswith(f"opencode-shim: Port {port} of 127.0.0.1 is taken")


def opencode_shim(*arguments: str, **env: str) -> tuple[int, str, str]:
    """The real command in a process of its own."""
    code = "import sys; from shim.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=WAIT_S, env={**os.environ, **env}
    )
    return done.returncode, done.stdout, done.stderr


# --- what a start imports --------------------------------------------------------------------------------


def test_a_start_without_a_terminal_does_not_import_rich() -> None:
    code = "import sys; from shim.cli import main\ntry: main()\nfinally: print(*{'rich', 'structlog'} & sys.modules.keys())"
    with listen("127.0.0.1", 0) as sock:
        argv = [sys.executable, "-c", code, "serve", "--port", str(sock.getsockname()[1])]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=WAIT_S)
    assert (done.returncode, done.stdout) == (1, "structlog\n")


def test_the_first_collection_of_a_start_does_not_visit_what_was_imported() -> None:
    code = "import gc; from shim.cli import main\ntry: main()\nfinally: print(gc.get_freeze_count() > len(gc.get_objects()))"
    done = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, timeout=WAIT_S)
    assert done.stdout.splitlines()[-1] == "True"


# --- clients ---------------------------------------------------------------------------------------------


@pytest.fixture
def opencode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the TUI: notes its arguments, ends with 7."""
    program = tmp_path / "opencode"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$(dirname "$0")/arguments"\nexit 7\n')
    program.chmod(0o755)
    monkeypatch.setenv("SHIM_OPENCODE_BIN", str(program))
    return program


def test_tui_on_a_running_server_attaches_to_it(opencode: Path) -> None:
    directory = opencode.parent / "a project"
    directory.mkdir()
    code, _ = invoke("tui", "http://127.0.0.1:1", "--directory", str(directory))
    assert code == 7
    plain = ["attach", "http://127.0.0.1:1", "--dir", str(directory)]
    assert (opencode.parent / "arguments").read_text().splitlines() == plain
    invoke("tui", "http://127.0.0.1:1", "--directory", str(directory), "-s", "ses_1", "-c")
    assert (opencode.parent / "arguments").read_text().splitlines() == [*plain, "--session", "ses_1", "--continue"]


def test_a_tui_of_2_gets_the_server_its_directory_and_the_password(opencode: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "of the server")
    script = (
        'case "$1" in --version) echo 2.0.21; exit;; esac\n'
        '{ printf "%s\\n" "$@" "$PWD" "$OPENCODE_PASSWORD"; } > "$0.arguments"\n'
    )
    opencode.write_text(f"#!/bin/sh\n{script}exit 7\n")
    directory = opencode.parent / "a project"
    directory.mkdir()
    code, _ = invoke("tui", "http://127.0.0.1:1", "--directory", str(directory), "-s", "ses_1")
    assert code == 7
    said = opencode.with_name("opencode.arguments").read_text().splitlines()
    assert said == ["--server", "http://127.0.0.1:1", "--session", "ses_1", str(directory), "of the server"]


@pytest.mark.parametrize(
    ("said", "wanted"),
    [("1.18.33", 1), ("2.0.24", 2), ("v2.1.0-beta", 2), ("opencode2 is here\n2.0.1", 2), ("local", 1), ("", 1)],
)
def test_the_generation_of_an_opencode(opencode: Path, said: str, wanted: int) -> None:
    opencode.write_text(f"#!/bin/sh\nprintf '%s\\n' '{said}'\n")
    assert clients.generation(str(opencode)) == wanted


def test_a_program_without_a_version_counts_as_opencode1(tmp_path: Path) -> None:
    assert clients.generation(str(tmp_path / "gone")) == 1


def test_tui_without_opencode_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgentNotFound, match=r"not on PATH.*npm install -g opencode-ai"):
        invoke("tui")
    monkeypatch.setenv("SHIM_OPENCODE_BIN", str(tmp_path / "gone"))
    with pytest.raises(AgentNotFound, match=r"SHIM_OPENCODE_BIN is .*gone"):
        invoke("tui")


def test_a_tui_that_cannot_be_started_is_reported(opencode: Path) -> None:
    opencode.write_text("#!/no/such/interpreter\n")
    with pytest.raises(ShimError, match=r"Cannot start .*opencode: No such file"):
        invoke("tui", "http://127.0.0.1:1")


async def test_a_cancelled_tui_is_ended_first(tmp_path: Path) -> None:
    fifo, told = tmp_path / "ready", tmp_path / "told"
    os.mkfifo(fifo)
    script = f"trap 'echo ended > {told}; exit 0' TERM; echo > {fifo}; while :; do read x < {fifo}; done"
    task = asyncio.create_task(clients.run_tui(["/bin/sh", "-c", script]))
    with await asyncio.to_thread(fifo.open) as ready:
        await asyncio.to_thread(ready.readline)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, WAIT_S)
    assert told.read_text() == "ended\n"


def test_the_page_of_a_directory() -> None:
    # From the router of the web UI 1.18.33: the directory in base64url without padding.
    assert clients.page_url("http://127.0.0.1:4096/", Path("/home/user/project")) == (
        "http://127.0.0.1:4096/L2hvbWUvdXNlci9wcm9qZWN0/session"
    )


async def test_a_server_without_the_web_ui_is_reported(aiohttp_server: Any) -> None:
    async def page(request: web.Request) -> web.Response:
        kind = "text/html" if request.path == "/with" else "application/json"
        return web.Response(text="{}", content_type=kind)

    app = web.Application()
    app.router.add_get("/{any}", page)
    server = await aiohttp_server(app)
    await clients.require_web_ui(str(server.make_url("/with")), Settings())
    with pytest.raises(ShimError, match="does not serve the web UI"):
        await clients.require_web_ui(str(server.make_url("/without")), Settings())
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ShimError, match=f"No server answers at http://127.0.0.1:{port}"):
        await clients.require_web_ui(f"http://127.0.0.1:{port}", Settings())


def test_no_browser_is_started_without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert clients.open_browser("http://127.0.0.1:1/") is False


def test_the_log_of_tui_is_the_persons_alone_and_set_aside_when_large(tmp_path: Path) -> None:
    from shim.cli.serve_command import LOG_FILE, LOG_KEEP_BYTES, open_log

    settings = Settings(data_dir=tmp_path / "data")
    with open_log(settings) as log:
        log.write("one\n")
    path = settings.data_dir / LOG_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(settings.data_dir.stat().st_mode) == 0o700
    with open_log(settings) as log:
        log.write("two\n")
    assert path.read_text() == "one\ntwo\n"
    os.truncate(path, LOG_KEEP_BYTES + 1)
    open_log(settings).close()
    assert path.read_text() == ""
    assert path.with_suffix(".log.1").stat().st_size == LOG_KEEP_BYTES + 1


def test_completions_are_printed_for_the_shell_that_is_named() -> None:
    for shell, mark in (("bash", "complete -o"), ("zsh", "#compdef opencode-shim"), ("fish", "--command opencode-shim")):
        assert mark in CliRunner().invoke(cli, ["completion", shell]).output
    assert CliRunner().invoke(cli, ["completion", "csh"]).exit_code == 2
