"""The command: where it listens, how it ends, what it prints; OpenCode's clients as it starts them.

The application here is a small one of the tests' own; `tests/process/test_serve.py` runs the real one.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from rich.console import Console
from typer.testing import CliRunner

from shim.cli import clients, screen
from shim.cli.commands import cli
from shim.cli.server import ListenError, Running, listen, run, url_of
from shim.errors import AgentNotFound, ShimError
from shim.settings import Settings, env_name

WAIT_S = 20


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the person's."""
    for name in Settings.model_fields:
        monkeypatch.delenv(env_name(name), raising=False)
    for name in ("OPENCODE_SERVER_PASSWORD", "SHIM_OPENCODE_BIN", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "share"))
    monkeypatch.chdir(tmp_path)


# --- listening -------------------------------------------------------------------------------------------


def test_port_0_picks_one_and_the_url_tells_it() -> None:
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        assert port > 0
        assert url_of(sock) == f"http://127.0.0.1:{port}"


def test_localhost_is_the_address_that_clients_are_told() -> None:
    with listen("localhost", 0) as sock:
        assert sock.getsockname()[0] == "127.0.0.1"


def test_ipv6_addresses_get_brackets() -> None:
    class Six:
        def getsockname(self) -> tuple[str, int, int, int]:
            return ("::1", 4096, 0, 0)

    assert url_of(Six()) == "http://[::1]:4096"  # pyright: ignore[reportArgumentType] - needs no socket


def test_a_taken_port_is_told_in_a_sentence() -> None:
    with listen("127.0.0.1", 0) as sock:
        port = sock.getsockname()[1]
        with pytest.raises(ListenError, match=rf"Port {port} of 127.0.0.1 is taken.*--port"):
            listen("127.0.0.1", port)


@pytest.mark.parametrize("hostname", ["0.0.0.0", "::", "192.0.2.1"])
def test_addresses_that_others_reach_are_refused(hostname: str) -> None:
    with pytest.raises(ListenError, match=r"Refused to listen on .*--hostname 127\.0\.0\.1.*ssh -L"):
        listen(hostname, 0)


def test_an_unknown_name_is_told() -> None:
    with pytest.raises(ListenError, match=r"Cannot listen on no\.such\.host\.invalid"):
        listen("no.such.host.invalid", 0)


# --- running and stopping --------------------------------------------------------------------------------


class Trace:
    """An application that says what happens to it."""

    def __init__(self, fail: Exception | None = None) -> None:
        self.seen: list[str] = []
        self.fail = fail

    def make(self, settings: Settings) -> web.Application:
        app = web.Application()
        app.router.add_get("/", self._hello)
        app.router.add_get("/slow", self._slow)
        app.cleanup_ctx.append(self._life)
        return app

    async def _life(self, app: web.Application) -> Any:
        if self.fail:
            raise self.fail
        self.seen.append("started")
        yield
        self.seen.append("stopped")

    async def _hello(self, request: web.Request) -> web.Response:
        return web.Response(text="hello")

    async def _slow(self, request: web.Request) -> web.Response:
        self.seen.append("asked")
        for _ in range(100):
            await asyncio.sleep(0)
        self.seen.append("answered")
        return web.Response(text="slow")


def run_with(trace: Trace, during: Callable[[Running], Awaitable[int]]) -> int:
    return run(Settings(port=0), listen("127.0.0.1", 0), during, make_app=trace.make)


async def get(url: str) -> str:
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return await answer.text()


def test_it_serves_until_during_returns_and_gives_its_code() -> None:
    trace = Trace()

    async def during(running: Running) -> int:
        assert await get(running.url + "/") == "hello"
        return 3

    assert run_with(trace, during) == 3
    assert trace.seen == ["started", "stopped"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_cleanly_with_0(number: signal.Signals) -> None:
    trace = Trace()
    before = signal.getsignal(number)

    async def during(running: Running) -> int:
        os.kill(os.getpid(), number)
        await asyncio.Event().wait()
        return 9

    assert run_with(trace, during) == 0
    assert trace.seen == ["started", "stopped"]
    assert signal.getsignal(number) == before


def test_what_cannot_start_says_why_and_lets_go_of_the_port() -> None:
    sock = listen("127.0.0.1", 0)
    port = sock.getsockname()[1]

    async def during(running: Running) -> int:
        raise AssertionError("it did not start")

    with pytest.raises(ShimError, match="the store is locked"):
        run(Settings(), sock, during, make_app=Trace(ShimError("the store is locked")).make)
    listen("127.0.0.1", port).close()


def test_errors_in_during_stop_it_and_come_out() -> None:
    trace = Trace()

    async def during(running: Running) -> int:
        raise LookupError("boom")

    with pytest.raises(LookupError, match="boom"):
        run_with(trace, during)
    assert trace.seen == ["started", "stopped"]


def test_a_request_is_carried_out_though_its_client_hangs_up() -> None:
    trace = Trace()

    async def during(running: Running) -> int:
        port = int(running.url.rsplit(":", 1)[1])
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n")
        await writer.drain()
        while "asked" not in trace.seen:
            await asyncio.sleep(0)
        writer.transport.abort()
        while "answered" not in trace.seen:
            await asyncio.sleep(0)
        return 0

    assert run_with(trace, during) == 0


HANGING = """
    import asyncio, subprocess, sys
    from aiohttp import web
    from shim.cli.server import listen, run
    from shim.settings import Settings

    async def hang(app):
        argv = ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 60; done"]
        stubborn = subprocess.Popen(argv, stdin=subprocess.PIPE, start_new_session=True)
        yield
        print(stubborn.pid, flush=True)
        await asyncio.Event().wait()

    def make(settings):
        app = web.Application()
        app.cleanup_ctx.append(hang)
        return app

    async def during(running):
        print("ready", flush=True)
        await asyncio.Event().wait()

    sys.exit(run(Settings(), listen("127.0.0.1", 0), during, make_app=make, stop_s=float(sys.argv[1])))
"""


def start_hanging(stop_s: float) -> subprocess.Popen[str]:
    argv = [sys.executable, "-c", textwrap.dedent(HANGING), str(stop_s)]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def test_a_stop_that_hangs_is_cut_short_and_leaves_no_child() -> None:
    with start_hanging(0.1) as process:
        process.terminate()
        child, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert "Not stopped within 0.1 s" in err
    assert not is_alive(int(child))


def test_a_second_ctrl_c_ends_it_at_once_and_leaves_no_child() -> None:
    with start_hanging(3600) as process:
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        child = int(process.stdout.readline())
        assert is_alive(child)
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert "Ended at once." in err
    assert not is_alive(child)


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
    screen.AgentRow("codex", "Codex", None, None, "not on PATH; npm install -g @openai/codex"),
    screen.AgentRow("mock", "Mock", None, "built in", None),
]


def shown(show: Callable[[Console], None]) -> str:
    stream = io.StringIO()
    show(screen.console(stream))
    return stream.getvalue()


def running(settings: Settings) -> Running:
    return Running("http://127.0.0.1:5000", web.Application(), settings)


def test_the_first_line_is_the_one_that_sdks_wait_for() -> None:
    text = shown(lambda out: screen.listening(out, running(Settings())))
    assert text == "opencode server listening on http://127.0.0.1:5000\n"


def test_the_start_shows_agents_the_line_to_attach_and_the_data(tmp_path: Path) -> None:
    directory = tmp_path / "my project"
    directory.mkdir()
    settings = Settings(directory=directory, data_dir=tmp_path / "data")
    lines = shown(lambda out: screen.started(out, running(settings), ROWS, ["mind [this]"])).splitlines()
    assert lines == [
        "",
        "agent   version  where",
        "claude  2.1.330  /opt/[x]/claude",
        "codex   -        not usable: not on PATH; npm install -g @openai/codex",
        "mock    -        built in",
        "",
        f"attach   opencode attach http://127.0.0.1:5000 --dir '{directory}'",
        "default  claude, for prompts that name no model",
        f"data     {tmp_path}/data",
        "note     mind [this]",
    ]


def test_long_lines_are_not_broken_and_not_coloured(tmp_path: Path) -> None:
    row = screen.AgentRow("claude", "Claude Code", "1", "/" + "x" * 400, None)
    assert row.where in shown(lambda out: screen.agent_table(out, [row])).split()


def test_settings_from_files_are_told_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "shim.toml").write_text("cors = ['http://a']\nidle_reap_s = 60\n")
    text = shown(lambda out: screen.started(out, running(Settings.load()), ROWS))
    assert f"settings cors, idle_reap_s from {tmp_path}/shim.toml\n" in text


def test_notes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert screen.notes(Settings(), ROWS) == []
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "secret")
    found = screen.notes(Settings(record_dir=tmp_path), ROWS[1:])
    assert [text.split()[0] for text in found] == ["No", "OPENCODE_SERVER_PASSWORD", "All"]
    silent = screen.AgentRow("claude", "Claude Code", None, "/opt/claude", None, trouble="Claude Code: it said nothing.")
    assert "Claude Code: it said nothing." in screen.notes(Settings(), [silent])
    assert not any("secret" in text for text in found)


def test_agents_in_detail_and_as_json() -> None:
    text = shown(lambda out: screen.agent_details(out, ROWS))
    assert "claude: Claude Code\n  models  opus (default), haiku\n  can     deltas\n" in text
    assert "mock: Mock\n  models  not told\n" in text
    assert "codex:" not in text
    parsed = json.loads(screen.agents_json(ROWS))
    assert parsed[0]["models"] == ["opus", "haiku"]
    assert parsed[1]["problem"].startswith("not on PATH")


# --- commands --------------------------------------------------------------------------------------------


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, list(arguments))
    if isinstance(result.exception, ShimError):
        raise result.exception
    return result.exit_code, result.output


def test_version() -> None:
    code, text = invoke("--version")
    assert code == 0
    assert text.strip().count(".") == 2


def test_config_tells_values_and_where_they_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHIM_PORT", "5001")
    code, text = invoke("config")
    assert code == 0
    assert ["port", "5001", "environment", "SHIM_PORT"] in [line.split() for line in text.splitlines()]
    parsed = json.loads(invoke("config", "--json")[1])
    assert parsed["port"] == {
        "value": 5001,
        "source": "environment SHIM_PORT",
        "env": "SHIM_PORT",
        "description": Settings.model_fields["port"].description,
    }
    assert set(parsed) == set(Settings.model_fields)


def test_a_wrong_setting_ends_the_command_with_a_sentence() -> None:
    code, out, err = opencode_shim("serve", "--port", "99999")
    assert (code, out) == (1, "")
    assert (
        err == "opencode-shim: Setting port = 99999 (flag --port) cannot be used: input should be less than or equal to 65535.\n"
    )


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


def test_tui_without_opencode_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AgentNotFound, match=r"not on PATH.*npm install -g opencode-ai"):
        invoke("tui")
    monkeypatch.setenv("SHIM_OPENCODE_BIN", str(tmp_path / "gone"))
    with pytest.raises(AgentNotFound, match=r"SHIM_OPENCODE_BIN is .*gone"):
        invoke("tui")


def test_a_tui_that_cannot_be_started_is_told(opencode: Path) -> None:
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


async def test_a_server_without_the_web_ui_is_told(aiohttp_server: Any) -> None:
    async def page(request: web.Request) -> web.Response:
        kind = "text/html" if request.path == "/with" else "application/json"
        return web.Response(text="{}", content_type=kind)

    app = web.Application()
    app.router.add_get("/{any}", page)
    server = await aiohttp_server(app)
    await clients.require_web_ui(str(server.make_url("/with")))
    with pytest.raises(ShimError, match="does not serve the web UI"):
        await clients.require_web_ui(str(server.make_url("/without")))
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ShimError, match=f"No server answers at http://127.0.0.1:{port}"):
        await clients.require_web_ui(f"http://127.0.0.1:{port}")


def test_no_browser_is_started_without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert clients.open_browser("http://127.0.0.1:1/") is False


def test_the_log_of_tui_is_the_persons_alone_and_set_aside_when_large(tmp_path: Path) -> None:
    from shim.cli.commands import LOG_FILE, LOG_KEEP_BYTES, open_log

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
