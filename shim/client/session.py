"""One session: prompts, events, a person's answers, files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Literal

import aiohttp

from shim.client.transport import Problem, Transport, segment
from shim.faces.v1.models import MessageAttachment, SessionInfo, SessionListResponse
from universal.events import EventType, ItemData, ItemDeltaData, SessionEndedData, UniversalEvent
from universal.items import ItemRole

RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Waits between attempts to reach a server again; the last one is repeated."""
GIVE_UP_S = 60.0
"""A server that cannot be reached for so long is gone."""
PAGE = 1_000


class Session:
    """A session of a server, by its name. Make it with `Client.create_session` or `Client.session`."""

    def __init__(self, transport: Transport, name: str) -> None:
        self.id = name
        self._transport = transport
        self._path = f"/v1/sessions/{segment(name)}"

    async def info(self) -> SessionInfo:
        """How it is now. Raises Problem (404)."""
        found = SessionListResponse.model_validate(await self._transport.request("GET", "/v1/sessions"))
        for session in found.sessions:
            if self.id in (session.sessionId, session.openCodeSessionId):
                return session
        raise Problem(404, "session_not_found", f"There is no session {self.id!r}.", {})

    # --- prompts -------------------------------------------------------------------------------------------

    async def send(self, message: str, attachments: Sequence[MessageAttachment] = ()) -> None:
        """A prompt; returns when it is taken. Its events come on `events`."""
        await self._transport.request("POST", f"{self._path}/messages", body=_message(message, attachments))

    async def prompt(
        self, message: str, attachments: Sequence[MessageAttachment] = (), *, include_raw: bool = False
    ) -> AsyncGenerator[UniversalEvent]:
        """A prompt, and the events from it to the end of its turn. Answer permissions and questions while you iterate.

        A connection that breaks is taken up again where it was, once the first event has come.
        """
        query = {"include_raw": include_raw}
        body = _message(message, attachments)
        last: UniversalEvent | None = None
        begun = False  # our message is there: the end of a turn before it is not the one
        try:
            async with self._transport.events("POST", f"{self._path}/messages/stream", query=query, body=body) as events:
                async for last in events:
                    yield last
                    begun = begun or _is_message(last)
                    if (begun and last.type is EventType.TURN_ENDED) or _is_over(last):
                        return
        except (aiohttp.ClientError, TimeoutError):
            if last is None:
                raise
        if last is None:
            raise aiohttp.ServerDisconnectedError(f"The server ended the stream of {self.id!r} before the turn began.")
        async for event in self.events(after=last.sequence, include_raw=include_raw):
            yield event
            begun = begun or _is_message(event)
            if begun and event.type is EventType.TURN_ENDED:
                return

    async def ask(self, message: str, attachments: Sequence[MessageAttachment] = ()) -> str:
        """A prompt; the text of its answer. For agents that ask nothing, or with `permission_mode="bypass"`."""
        said: list[str] = []
        async for event in self.prompt(message, attachments):
            if isinstance(event.data, ItemDeltaData) and event.data.part_type == "text":
                said.append(event.data.delta)
        return "".join(said)

    # --- events --------------------------------------------------------------------------------------------

    async def history(self, after: int = 0, *, include_raw: bool = False) -> AsyncGenerator[UniversalEvent]:
        """What has happened until now, in pages."""
        more = True
        while more:
            query = {"offset": after, "limit": PAGE, "include_raw": include_raw}
            page = await self._transport.request("GET", f"{self._path}/events", query=query)
            for value in page["events"]:
                event = UniversalEvent.model_validate(value)
                after = event.sequence
                yield event
            more = page["hasMore"]

    async def events(self, after: int = 0, *, include_raw: bool = False) -> AsyncGenerator[UniversalEvent]:
        """Everything after a sequence: what was, then live, without gap or duplicate, across broken connections.

        Ends when the session is terminated or deleted. Raises Problem (404 at the start), aiohttp.ClientError when the
        server cannot be reached for GIVE_UP_S.
        """
        known = False
        failing_since: float | None = None
        attempt = 0
        loop = asyncio.get_running_loop()
        while True:
            try:
                query = {"include_raw": include_raw}
                path = f"{self._path}/events/sse"
                async with self._transport.events("GET", path, query=query, last_event_id=after) as events:
                    known, failing_since, attempt = True, None, 0
                    async for event in events:
                        if event.sequence <= after:
                            continue
                        after = event.sequence
                        yield event
                        if _is_over(event):
                            return
            except Problem as problem:
                if known and problem.status == 404:
                    return
                raise
            except (aiohttp.ClientError, TimeoutError):
                failing_since = failing_since or loop.time()
                if loop.time() - failing_since > GIVE_UP_S:
                    raise
            await asyncio.sleep(RETRY_S[min(attempt, len(RETRY_S) - 1)])
            attempt += 1

    # --- answers, end --------------------------------------------------------------------------------------

    async def reply_permission(
        self, permission_id: str, reply: Literal["once", "always", "reject"], message: str | None = None
    ) -> None:
        """Answer `permission.requested`; `message` tells the agent why not. Raises Problem (404: it waits no more)."""
        body = {"reply": reply, **({"message": message} if message is not None else {})}
        await self._transport.request("POST", f"{self._path}/permissions/{segment(permission_id)}/reply", body=body)

    async def reply_question(self, question_id: str, answers: Sequence[Sequence[str]]) -> None:
        """Answer `question.requested`: labels or typed texts, a list for each of its questions."""
        body = {"answers": [list(one) for one in answers]}
        await self._transport.request("POST", f"{self._path}/questions/{segment(question_id)}/reply", body=body)

    async def reject_question(self, question_id: str) -> None:
        """Refuse to answer."""
        await self._transport.request("POST", f"{self._path}/questions/{segment(question_id)}/reject")

    async def terminate(self) -> None:
        """Stop its agent for good. It can still be read."""
        await self._transport.request("POST", f"{self._path}/terminate")

    # --- files ---------------------------------------------------------------------------------------------

    async def read_file(self, path: str) -> bytes:
        """A file of its directory."""
        found = await self._transport.request("GET", "/v1/fs/file", query={"session_id": self.id, "path": path})
        return found if isinstance(found, bytes) else b""

    async def write_file(self, path: str, data: bytes) -> None:
        """Put a file into its directory."""
        await self._transport.request("PUT", "/v1/fs/file", query={"session_id": self.id, "path": path}, data=data)


def _message(message: str, attachments: Sequence[MessageAttachment]) -> dict[str, object]:
    return {"message": message, "attachments": [one.model_dump(exclude_none=True) for one in attachments]}


def _is_message(event: UniversalEvent) -> bool:
    """A person has said something."""
    return isinstance(event.data, ItemData) and event.data.item.role is ItemRole.USER


def _is_over(event: UniversalEvent) -> bool:
    """Nothing follows: the session was terminated."""
    return isinstance(event.data, SessionEndedData) and event.data.terminated_by == "daemon"
