"""Logs: what is written, in which form, and above all what never is."""

from __future__ import annotations

import errno
import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from aiohttp.http_exceptions import BadHttpMessage
from pydantic import BaseModel

from shim.lib.logging import configure, redact
from shim.lib.redaction import secrets_of
from shim.lib.settings import LogLevel


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    """Logging is global: put it back as pytest had it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in ("aiohttp.server", "asyncio"):
        logging.getLogger(name).filters.clear()
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def log_entries(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def stream() -> io.StringIO:
    stream = io.StringIO()
    configure("info", "json", stream)
    return stream


def test_json_has_one_object_per_line_with_context(stream: io.StringIO) -> None:
    log = structlog.get_logger("shim.test")
    with structlog.contextvars.bound_contextvars(session_id="ses_1", turn=3, agent="claude"):
        log.info("turn.ended", reason="completed", took_ms=12)
    log.info("agent.reaped")
    first, second = log_entries(stream)
    assert list(first)[:3] == ["time", "level", "event"]
    del first["time"]
    assert first == {
        "level": "info",
        "event": "turn.ended",
        "reason": "completed",
        "took_ms": 12,
        "session_id": "ses_1",
        "turn": 3,
        "agent": "claude",
    }
    assert "session_id" not in second


def test_the_level_holds_for_both_kinds_of_loggers(stream: io.StringIO) -> None:
    structlog.get_logger().debug("not.seen")
    logging.getLogger("aiohttp.server").debug("not seen")
    logging.getLogger("aiohttp.access").info("GET / 200")
    assert stream.getvalue() == ""


def test_libraries_are_routed_in_with_their_name_and_traceback(stream: io.StringIO) -> None:
    try:
        raise ValueError("broken for sk-ant-0123456789abcdef")
    except ValueError:
        logging.getLogger("aiohttp.server").exception("Error handling request from %s", "127.0.0.1")
    (line,) = log_entries(stream)
    assert (line["level"], line["logger"]) == ("error", "aiohttp.server")
    assert line["event"] == "Error handling request from 127.0.0.1"
    assert "ValueError: broken for sk-<redacted>" in line["exception"]


@pytest.mark.parametrize("level", ["debug", "info"])
def test_client_errors_log_no_traceback(stream: io.StringIO, level: LogLevel) -> None:
    """Ten thousand connections that are broken off, or that are no HTTP, are not a hundred thousand lines."""
    configure(level, "json", stream)
    server = logging.getLogger("aiohttp.server")
    for error in (ConnectionResetError("gone"), BadHttpMessage("Invalid method\n\n  b'x'")):
        server.error("Error handling request from %s", "::1", exc_info=error)
    found = log_entries(stream)
    assert [(one["level"], one["event"], one["why"]) for one in found] == (
        [("debug", "connection.failed", "gone"), ("debug", "connection.failed", "Invalid method")] if level == "debug" else []
    )
    assert not any("exception" in one for one in found)


def test_no_more_open_files_is_reported_once(stream: io.StringIO) -> None:
    configure("info", "json", stream)
    for _ in range(100):
        logging.getLogger("asyncio").error("socket.accept() out of system resource", exc_info=OSError(errno.EMFILE, "Too many"))
    assert len(log_entries(stream)) == 1


def test_people_read_the_time_of_their_clock_and_machines_read_utc() -> None:
    stream = io.StringIO()
    configure("info", "console", stream)
    structlog.get_logger().info("agent.spawned")
    configure("info", "json", stream)
    structlog.get_logger().info("agent.spawned")
    console, machine = stream.getvalue().splitlines()
    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[info", console)
    assert re.search(r'"time": "\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"', machine)


def test_console_is_plain_when_it_is_no_terminal() -> None:
    stream = io.StringIO()
    configure("debug", "console", stream)
    structlog.get_logger().debug("agent.spawned", agent="mock", api_key="k-1")
    text = stream.getvalue()
    assert "agent.spawned" in text
    assert "\x1b" not in text
    assert "k-1" not in text


def test_a_second_configuration_replaces_the_first(stream: io.StringIO) -> None:
    log = structlog.get_logger()
    log.info("one")
    other = io.StringIO()
    configure("info", "json", other)
    log.info("two")
    assert [line["event"] for line in log_entries(stream)] == ["one"]
    assert [line["event"] for line in log_entries(other)] == ["two"]


@pytest.mark.parametrize(
    "name",
    ["api_key", "apiKey", "x-api-key", "ANTHROPIC_AUTH_TOKEN", "password", "Authorization", "client_secret", "cookie"],
)
def test_secrets_go_by_their_name(name: str) -> None:
    assert redact(None, "info", {"event": "e", name: "hunter2"})[name] == "<redacted>"
    nested = redact(None, "info", {"event": "e", "headers": {name: ["hunter2"]}})
    assert "hunter2" not in json.dumps(nested)


@pytest.mark.parametrize("name", ["prompt", "text", "delta", "output", "title", "stdin", "answers", "content"])
def test_conversation_text_is_logged_as_its_length(name: str) -> None:
    assert redact(None, "info", {"event": "e", name: "my diary"})[name] == "<8 long>"
    assert redact(None, "info", {"event": "e", "data": [{name: ["my diary"]}]})["data"] == [{name: "<1 long>"}]


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("key sk-ant-api03-AbCd1234_x done", "key sk-<redacted> done"),
        ("ghp_0123456789abcdefABCDEF", "ghp_<redacted>"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer <redacted>"),
        ("basic b3BlbmNvZGU6c2VjcmV0", "basic <redacted>"),
        ("https://me:secret@proxy:8080/x", "https://me:<redacted>@proxy:8080/x"),
        ("GET /event?auth_token=b3Blbm&x=1", "GET /event?auth_token=<redacted>&x=1"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc", "<redacted token>"),
        ('{"apiKey": "abc"}', '{"apiKey": "<redacted>"}'),
        ("an ordinary sentence, port 4096", "an ordinary sentence, port 4096"),
        ("http://127.0.0.1:4096/session", "http://127.0.0.1:4096/session"),
    ],
)
def test_secrets_inside_of_texts(text: str, kept: str) -> None:
    assert redact(None, "info", {"event": text, "error": [text]}) == {"event": kept, "error": [kept]}


def test_numbers_pass_whatever_their_name() -> None:
    event: dict[str, Any] = {"event": "e", "input_tokens": 12, "output": 3, "password": None, "took_ms": 1.5}
    assert redact(None, "info", dict(event)) == event


def test_inputs_quoted_by_pydantic_are_dropped(stream: io.StringIO) -> None:
    class Body(BaseModel):
        count: int

    words = ["dear diary", "it's 'me'"]
    try:
        Body.model_validate({"count": "\n".join(words)})
    except ValueError:
        structlog.get_logger().exception("request.failed")
    (line,) = log_entries(stream)
    assert "input_value=<redacted>, input_type=str" in line["exception"]
    assert "dear diary\\n" not in line["exception"]


def test_values_that_are_no_json_are_written_as_text(stream: io.StringIO) -> None:
    structlog.get_logger().info("e", path=io, error=ValueError("Bearer abcdefghi"))
    (line,) = log_entries(stream)
    assert line["error"] == "Bearer <redacted>"


def test_known_secrets_go_wherever_they_stand() -> None:
    stream = io.StringIO()
    known = secrets_of(
        {"MY_API_KEY": "plain words here", "EDITOR_TOKEN": "short", "SSH_KEY_SECRET": "/run/agent.sock", "PATH": "/usr/bin"}
    )
    assert known == {"plain words here"}
    configure("info", "json", stream, known)
    structlog.get_logger().info("e", error="it said: plain words here!", names=["plain words here"])
    (line,) = log_entries(stream)
    assert (line["error"], line["names"]) == ("it said: <redacted>!", ["<redacted>"])
