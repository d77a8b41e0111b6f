"""Hooks: a command or a webhook when a session becomes idle, asks something, or fails. They never hold up a turn.

    [[hooks]]
    on = ["idle", "permission", "question", "error"]
    command = ["notify-send", "opencode-shim"]        or:  url = "https://example.org/hook"

A command gets the JSON on its stdin, and SHIM_HOOK_EVENT, SHIM_HOOK_SESSION in its environment; a webhook gets it as POST. Both
have a time limit. The queue is bounded: if a hook is too slow, its oldest notice is dropped, with a line in the log.
Only root sessions count, because the end of a subagent is not the end of the work. Secrets in texts are redacted. A hook with
`reply = true` gets links that answer what is asked (`shim.telemetry.reply_links`).
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import structlog

from shim.lib.errors import ShimError
from shim.lib.redaction import clean
from shim.lib.settings_tables import Hook
from shim.lib.tasks import end_tasks
from shim.processes.command import run
from shim.telemetry.reply_links import Ask
from universal.events import ErrorData, EventType, PermissionData, QuestionData, TurnData, UniversalEvent
from universal.lib.jsonvalue import obj, text
from universal.session.values import SessionRecord

QUEUE = 100
SHOWN_CHARS = 2_000

log = structlog.get_logger(__name__)

FindSession = Callable[[str], SessionRecord | None]
"""Returns a session's record by id; None for a deleted one."""
MakeLinks = Callable[[Ask], Mapping[str, str]]
"""Makes links that answer an ask."""


@dataclass(frozen=True, slots=True)
class Notice:
    """The data for a hook. `event` is one of the setting's `on` words."""

    event: str
    body: Mapping[str, Any]


def notice_of(event: UniversalEvent, record: SessionRecord | None) -> Notice | None:
    """Convert an event to a notice; None for most events. Pure."""
    if record is None or record.parent_id:
        return None
    data = event.data
    match data:
        case TurnData() if event.type is EventType.TURN_ENDED:
            kind, more = "idle", {"reason": text(obj(data.metadata).get("reason")), "turn_id": data.turn_id}
        case PermissionData() if event.type is EventType.PERMISSION_REQUESTED and not obj(data.metadata).get("auto"):
            title = text(obj(data.metadata).get("title"))
            kind, more = "permission", {"permission_id": data.permission_id, "action": data.action, "ask": title or data.action}
        case QuestionData() if event.type is EventType.QUESTION_REQUESTED and not obj(data.metadata).get("auto"):
            kind, more = "question", {"question_id": data.question_id, "prompt": data.prompt, "options": list(data.options)}
        case ErrorData():
            kind, more = "error", {"message": data.message, "code": data.code}
        case _:
            return None
    body = {
        "event": kind,
        "session_id": event.session_id,
        "title": record.title,
        "directory": record.directory,
        "time": event.time,
        "sequence": event.sequence,
        **more,
    }
    return Notice(kind, {key: _clean(value) for key, value in body.items()})


def _clean(value: Any) -> Any:
    if isinstance(value, list):
        return [_clean(inner) for inner in value]  # pyright: ignore[reportUnknownVariableType] - JSON
    if not isinstance(value, str):
        return value
    return clean(value)[:SHOWN_CHARS]


class _Runner:
    """A hook with its queue."""

    def __init__(self, hook: Hook) -> None:
        self.hook = hook
        self._waiting: deque[Notice] = deque()
        self._task: asyncio.Task[None] | None = None
        self.dropped = 0

    def put(self, notice: Notice) -> None:
        if len(self._waiting) >= QUEUE:
            self._waiting.popleft()
            self.dropped += 1
            log.warning("hook.dropped", hook=self.hook.name, dropped=self.dropped)
        self._waiting.append(notice)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._work(), name=f"hook {self.hook.name}")

    async def _work(self) -> None:
        while self._waiting:
            notice = self._waiting.popleft()
            try:
                await (_post(self.hook, notice) if self.hook.url else _command(self.hook, notice))
            except (ShimError, OSError, TimeoutError) as error:
                log.warning("hook.failed", hook=self.hook.name, kind=notice.event, error=str(error) or type(error).__name__)
            except Exception:  # a hook never ends the worker of the others
                log.exception("hook.failed", hook=self.hook.name, kind=notice.event)

    def forget(self) -> None:
        """Drop the queue. A running call ends by itself, within its timeout."""
        self._waiting.clear()

    async def close(self) -> None:
        self.forget()
        await end_tasks(self._task)


class Hooks:
    """All hooks of the settings. The feed calls `observe` with every universal event while there are some."""

    def __init__(self, hooks: Sequence[Hook], find_session: FindSession, make_links: MakeLinks = lambda _: {}) -> None:
        self._runners = [_Runner(hook) for hook in hooks]
        self._find_session = find_session
        self._make_links = make_links

    @property
    def is_on(self) -> bool:
        return bool(self._runners)

    def want(self, kind: str) -> bool:
        """Whether a hook is called for events of this kind."""
        return any(kind in runner.hook.on for runner in self._runners)

    def observe(self, event: UniversalEvent) -> None:
        """Queue the event for the hooks that want it. Never blocks."""
        notice = notice_of(event, self._find_session(event.session_id))
        if notice is None:
            return
        for runner in self._runners:
            if notice.event in runner.hook.on:
                body = notice.body
                if runner.hook.reply and isinstance(event.data, Ask):
                    body = {**body, "reply_urls": self._make_links(event.data)}
                runner.put(Notice(notice.event, body))

    def replace(self, hooks: Sequence[Hook]) -> None:
        """Use other hooks from now on. A hook that stays keeps its queue; the queue of a removed one is dropped."""
        runners = [next((r for r in self._runners if r.hook == hook), None) or _Runner(hook) for hook in hooks]
        for runner in self._runners:
            if runner not in runners:
                runner.forget()
        self._runners = runners

    async def close(self) -> None:
        await asyncio.gather(*(runner.close() for runner in self._runners))


async def _command(hook: Hook, notice: Notice) -> None:
    environment = {"SHIM_HOOK_EVENT": notice.event, "SHIM_HOOK_SESSION": str(notice.body["session_id"])}
    body = json.dumps(notice.body).encode()
    result = await run(hook.command, "/", environment=environment, timeout_s=hook.timeout_s, limit_bytes=64 * 1024, stdin=body)
    if not result.ok:
        stderr = result.stderr.decode("utf-8", "replace").strip()[-300:]
        reason = f"exit code {result.code}" if result.code is not None else f"not done within {hook.timeout_s:g} s"
        log.warning("hook.failed", hook=hook.name, kind=notice.event, error=f"{reason} {stderr}".strip())


async def _post(hook: Hook, notice: Notice) -> None:
    # A late import, because servers without webhooks need no client.
    import aiohttp

    assert hook.url is not None
    url = hook.url.get_secret_value()
    headers = {name: value.get_secret_value() for name, value in hook.headers.items()}
    async with (
        asyncio.timeout(hook.timeout_s),
        aiohttp.ClientSession() as session,
        session.post(url, json=dict(notice.body), headers=headers) as answer,
    ):
        if answer.status >= 400:
            log.warning("hook.failed", hook=hook.name, kind=notice.event, error=f"HTTP {answer.status}")
