"""`opencode run`: sends one prompt and prints the agent's turn until it ends.

Texts go to stdout, tools and errors to stderr. `--format json` writes a line of JSON for each finished part to stdout, as
OpenCode 1.18.33 does. No person can answer: permissions are rejected (`--auto`: allowed once), and questions are denied.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from aiohttp import ClientError, ClientSession, ClientTimeout

from shim.cli.local_server import authorization, trust
from shim.cli.opencode_client import Options, file_part, on_server
from shim.cli.transfer import request as ask
from shim.lib.clock import SystemClock
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from universal.lib.jsonvalue import arr, obj, text

Json: TypeAlias = dict[str, Any]

STDIN_WAIT_S = 5.0
"""Seconds in which a pipe must begin to bring something, if there is a message without it."""
CONNECT_S = 10.0
SILENCE_S = 60.0
"""Seconds without any byte after which the stream is dead. The server sends a heartbeat every 10 s."""
MAX_EVENT_BYTES = 2**26
NOBODY_ANSWERS = [{"permission": name, "action": "deny", "pattern": "*"} for name in ("question", "plan_enter", "plan_exit")]
"""Permission rules of a session that `run` creates. OpenCode sets the same ones."""


def _read_pipe(*, is_needed: bool) -> str:
    """The text that is piped in, to its end. Unless it is needed, it must begin in STDIN_WAIT_S: a supervisor closes no pipe."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    try:
        comes = is_needed or bool(select.select([sys.stdin.fileno()], [], [], STDIN_WAIT_S)[0])
    except (OSError, ValueError):  # no stream of the system
        comes = True
    if comes:
        return sys.stdin.read()
    sys.stderr.write(f"Nothing came on stdin within {STDIN_WAIT_S:g} s: the message is sent without it.\n")
    return ""


def read(options: Options) -> str:
    """Return the message of a command line. Raises ShimError for an option that this server does not support.

    Like OpenCode, it quotes words with blanks and appends the text from stdin. Unlike it, it does not wait for the end of a
    silent pipe if there is a message.
    """
    if options.interactive:
        raise ShimError("`run --interactive` needs OpenCode's own terminal. Use `opencode attach URL --mini` with a real one.")
    if options.fork and not (options.last or options.session):
        raise ShimError("--fork needs --continue or --session.")
    words = " ".join(f'"{word}"' if " " in word else word for word in options.message)
    piped = _read_pipe(is_needed=not (words or options.command))
    message = "\n".join(part for part in (words, piped) if part)
    if not message.strip() and not options.command:
        raise ShimError("There is nothing to send. Give a message or a command.")
    return message


def run(options: Options) -> int:
    """Send the prompt and print its turn until it ends. Returns 1 if the turn failed."""
    options.message = read(options)
    return on_server(options, lambda settings, url: _run(settings, url, options))


async def _run(settings: Settings, url: str, options: Options) -> int:
    session = await _session(settings, url, options)
    if options.share:
        shared = await ask(settings, "POST", f"{url}/session/{session}/share")
        sys.stderr.write(f"{text(obj(obj(shared).get('share')).get('url'))}\n")
    path, body = _prompt(settings, options)
    printer = Printer(session, json_lines=options.format == "json", thinking=options.thinking)
    async with contextlib.aclosing(_events(settings, url)) as events:
        await anext(events)  # `server.connected`: no later event is missed
        sending = asyncio.create_task(ask(settings, "POST", f"{url}/session/{session}/{path}", body))
        try:
            await _until_idle(settings, url, session, events, printer, sending, allow=options.auto)
            await sending
        finally:
            sending.cancel()
    return 1 if printer.failed else 0


async def _session(settings: Settings, url: str, options: Options) -> str:
    session = options.session
    if session is None and options.last:
        sessions = arr(await ask(settings, "GET", f"{url}/session", params={"roots": "true", "limit": "1"}))
        if not sessions:
            raise ShimError(f"There is no session in {settings.directory} to continue.")
        session = text(obj(sessions[0])["id"])
    if session is None:
        title = {"title": options.title} if options.title else {}
        session = text(obj(await ask(settings, "POST", f"{url}/session", {**title, "permission": NOBODY_ANSWERS}))["id"])
    elif options.fork:
        session = text(obj(await ask(settings, "POST", f"{url}/session/{session}/fork", {}))["id"])
    return session


def _prompt(settings: Settings, options: Options) -> tuple[str, Json]:
    """Return the last segment of the request's path, and its body."""
    files = [file_part(name, Path(settings.directory)) for name in options.file]
    more: Json = {key: value for key, value in (("agent", options.agent), ("variant", options.variant)) if value}
    if options.command:
        model = {"model": options.model} if options.model else {}
        return "command", {"command": options.command, "arguments": options.message, "parts": files, **model, **more}
    if options.model:
        provider, _, model_id = options.model.partition("/")
        more["model"] = {"providerID": provider, "modelID": model_id}
    return "message", {"parts": [*files, {"type": "text", "text": options.message}], **more}


async def _until_idle(
    settings: Settings,
    url: str,
    session: str,
    events: AsyncGenerator[Json],
    printer: Printer,
    sending: asyncio.Task[Any],
    *,
    allow: bool,
) -> None:
    """Print events until the session is idle. Raises ShimError if the prompt is refused or the stream ends."""
    while True:
        following = asyncio.ensure_future(anext(events, None))
        try:
            await asyncio.wait({following, sending}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() and sending.exception() is not None:
                return  # the caller's `await` raises it
            event = await following
        finally:
            if not following.done():
                following.cancel()
                await asyncio.wait({following})
        if event is None:
            raise ShimError(
                "The server closed the event stream before the turn ended. See its log, then `opencode run --continue`."
            )
        properties = obj(event.get("properties"))
        if text(properties.get("sessionID")) != session:
            continue
        match event.get("type"):
            case "permission.asked":
                reply = "once" if allow else "reject"
                sys.stderr.write(f"! permission {text(properties.get('permission'))}: {reply}\n")
                await ask(settings, "POST", f"{url}/permission/{text(properties['id'])}/reply", {"reply": reply})
            case "session.idle":
                return
            case _:
                printer.show(event)


@dataclass(slots=True)
class Printer:
    """Prints each part of one session's turn once, when the part is complete."""

    session: str
    json_lines: bool = False
    thinking: bool = False
    failed: bool = False
    _users: set[str] = field(default_factory=set[str])
    _printed_ids: set[str] = field(default_factory=set[str])

    def show(self, event: Json) -> None:
        properties = obj(event.get("properties"))
        match event.get("type"):
            case "message.updated":
                info = obj(properties.get("info"))
                if info.get("role") == "user":
                    self._users.add(text(info.get("id")))
            case "message.part.updated":
                self._part(obj(properties.get("part")))
            case "session.error":
                self._error(obj(properties.get("error")))
            case _:
                pass

    def _part(self, part: Json) -> None:
        name = text(part.get("id"))
        if name in self._printed_ids or text(part.get("messageID")) in self._users:
            return
        state = obj(part.get("state"))
        kinds = {
            "step-start": "step_start",
            "step-finish": "step_finish",
            "text": "text",
            "tool": "tool_use",
            "reasoning": "reasoning",
        }
        kind = kinds.get(text(part.get("type")))
        whole = {
            "tool_use": state.get("status") in ("completed", "error"),
            "text": "end" in obj(part.get("time")),
            "reasoning": "end" in obj(part.get("time")) and self.thinking,
        }
        if kind is None or not whole.get(kind, True):
            return
        self._printed_ids.add(name)
        if self.json_lines:
            self._line(kind, part=part)
        elif kind == "text":
            sys.stdout.write(text(part.get("text")) + "\n")
        elif kind == "reasoning":
            sys.stdout.write(f"Thinking: {text(part.get('text'))}\n")
        elif kind == "tool_use":
            title = text(state.get("title")) or text(state.get("error"))
            sys.stderr.write(f"| {text(part.get('tool'))}  {title}\n")
        sys.stdout.flush()

    def _error(self, error: Json) -> None:
        self.failed = True
        message = text(obj(error.get("data")).get("message")) or text(error.get("name"))
        if self.json_lines:
            self._line("error", error=error)
        sys.stderr.write(f"Error: {message}\n")

    def _line(self, kind: str, **more: Any) -> None:
        line = {"type": kind, "timestamp": SystemClock().now_ms(), "sessionID": self.session, **more}
        sys.stdout.write(json.dumps(line, ensure_ascii=False) + "\n")
        sys.stdout.flush()


async def _events(settings: Settings, url: str) -> AsyncGenerator[Json]:
    """Yield the events of the directory. Raises ShimError when the stream breaks."""
    timeout = ClientTimeout(total=None, connect=CONNECT_S, sock_read=SILENCE_S)
    params = {"directory": str(settings.directory)}
    try:
        async with (
            ClientSession(timeout=timeout, headers=authorization(settings), read_bufsize=MAX_EVENT_BYTES) as client,
            client.get(f"{url}/event", params=params, ssl=trust(url)) as answer,
        ):
            if answer.status != 200:
                raise ShimError(f"The server at {url} refused the event stream: status {answer.status}.")
            async for line in answer.content:
                if line.startswith(b"data:"):
                    yield obj(json.loads(line[5:]))
    except (ClientError, TimeoutError, ValueError) as error:
        raise ShimError(f"The event stream from {url} broke: {error or 'it was silent for too long'}.") from error
