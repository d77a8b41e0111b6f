"""Configures the logs: events named `noun.verb` with values, for people (console) or machines (json), on one stream.

Sessions add their id, turn and agent through structlog's contextvars. Every event passes `redact` before it is rendered,
also those of libraries: keys, tokens, passwords, prompts, and the words and actions of agents never reach a log. The recorder
(`shim.processes`, off by default) writes raw traffic.
"""

from __future__ import annotations

import errno
import json
import logging
import re
from collections.abc import Collection, Mapping, Sequence, Sized
from functools import partial
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from shim.lib.redaction import SECRET_NAME, clean
from shim.lib.settings import LogFormat, LogLevel

LEVELS: dict[LogLevel, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}

PRIVATE_NAME = re.compile(
    r"answers?|arguments|body|command|content|delta|input|lines?|output|parts|patch|payload|prompts?|raw|reasoning|result"
    r"|stdin|stdout|system|text|title",
    re.I,
)
"""Names of values with the words and actions of people and agents. Only their length is logged."""

NOISY = {"aiohttp.access": logging.WARNING, "asyncio": logging.INFO, "watchfiles": logging.WARNING}
"""Minimum levels of verbose library loggers. Our own middleware logs requests."""

TIMES: dict[LogFormat, str] = {"console": "%Y-%m-%d %H:%M:%S", "json": "iso"}
"""People compare a log with their clock, machines with other machines."""

AGAIN_S = 10.0
"""Minimum seconds between two log lines about refused connections. asyncio would log each of them, a hundred a second."""
CLIENTS_FAULTS = "aiohttp.http_exceptions"
"""The module of aiohttp's errors for bytes that are not HTTP."""


class BoundedLogger(logging.Filter):
    """A filter for the loggers of the HTTP server, so that no client can fill the disk with log lines.

    Broken connections and invalid HTTP give one line each, at debug. Running out of open files gives a line every AGAIN_S.
    """

    def __init__(self, level: int) -> None:
        super().__init__()
        self._level = level
        self._logged_s = -AGAIN_S

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to log the record. It may shorten the record."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ConnectionError) or type(error).__module__ == CLIENTS_FAULTS:
            record.levelno, record.levelname, record.exc_info = logging.DEBUG, "DEBUG", None
            record.msg, record.args = "connection.failed", ()
            record.why = str(getattr(error, "message", error)).partition("\n")[0]
            return self._level <= logging.DEBUG
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
            if record.created - self._logged_s < AGAIN_S:
                return False
            self._logged_s = record.created
        return True


def redact(_logger: WrappedLogger | None, _method: str, event: EventDict, secrets: Collection[str] = ()) -> EventDict:
    """A structlog processor that removes secrets and the words of people and agents from an event."""
    return {name: _clean(name, value, secrets) for name, value in event.items()}


def _clean(name: str, value: object, secrets: Collection[str]) -> object:
    """Redact a value by its name, and nested values by theirs."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if SECRET_NAME.search(name):
        return "<redacted>"
    if PRIVATE_NAME.fullmatch(name):
        return f"<{len(cast('Sequence[object]', value))} long>" if isinstance(value, Sized) else "<redacted>"
    if isinstance(value, str):
        return clean(value, secrets)
    if isinstance(value, Mapping):
        return {key: _clean(str(key), inner, secrets) for key, inner in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_clean("", inner, secrets) for inner in cast("Sequence[object]", value)]
    return _clean("", str(value), secrets)


def configure(level: LogLevel, format_: LogFormat, stream: TextIO, secrets: Collection[str] = ()) -> None:
    """Send all logs of the process to `stream`. It may be called again, and changes global state, as logging is global.

    In: `secrets`, to remove wherever they occur (`shim.lib.redaction.secrets_of`).
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(TIMES[format_], utc=format_ == "json", key="time"),
        structlog.processors.StackInfoRenderer(),
    ]
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.format_exc_info,
                partial(redact, secrets=secrets),
                _renderer(format_, stream),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(LEVELS[level])
    for name, at_least in NOISY.items():
        logging.getLogger(name).setLevel(max(at_least, LEVELS[level]))
    for name in ("aiohttp.server", "asyncio"):
        logging.getLogger(name).filters[:] = [BoundedLogger(LEVELS[level])]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        # Modules create loggers at import, before this call. A cached logger would keep its first configuration.
        cache_logger_on_first_use=False,
    )


def _renderer(format_: LogFormat, stream: TextIO) -> Processor:
    if format_ == "json":
        return structlog.processors.JSONRenderer(serializer=_json)
    return structlog.dev.ConsoleRenderer(
        colors=stream.isatty(), timestamp_key="time", exception_formatter=structlog.dev.plain_traceback
    )


def _json(event: dict[str, Any], **_: Any) -> str:
    first = {name: event[name] for name in ("time", "level", "event") if name in event}
    return json.dumps(first | event, default=str)
