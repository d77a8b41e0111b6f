"""The client of one session: prompts, events, answers of a person, files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import Literal

import aiohttp

from shim.client.transport import Problem, Transport, segment
from shim.faces.v1.models import MessageAttachment, MessageRequest, SessionInfo, SessionListResponse
from universal.events import EventType, ItemData, ItemDeltaData, PermissionData, QuestionData, SessionEndedData, UniversalEvent
from universal.items import ItemRole

RETRY_S = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between attempts to reach a server again. The last one is repeated."""
GIVE_UP_S = 60.0
"""Seconds without a connection after which the server counts as gone."""
PAGE = 1_000
ASK_S = 600.0
"""Seconds that `ask` waits for an answer, unless its caller says otherwise."""


class AnswerTimeout(TimeoutError):
    """`ask` has no answer in time. `requests` are the permissions and questions that nobody has answered; the turn goes on."""

    def __init__(self, timeout_s: float, requests: Iterable[str]) -> None:
        self.requests = tuple(requests)
        cause = (
            f"The agent waits for {'; '.join(self.requests)}. Reply to it (`prompt` yields it), let another client reply, or ask"
            ' with unattended="rules": what no rule allows is then rejected.'
            if self.requests
            else "The agent still works: allow more by `timeout_s`, or follow `events`."
        )
        super().__init__(f"No answer within {timeout_s:g} s, and the turn goes on. {cause}")


class Session:
    """A session of a server. Create it with `Client.create_session` or `Client.session`."""

    def __init__(self, transport: Transport, name: str) -> None:
        self.id = name
        self._transport = transport
        self._path = f"/v1/sessions/{segment(name)}"

    async def info(self) -> SessionInfo:
        """Return the session's current state. Raises Problem (404)."""
        listing = SessionListResponse.model_validate(await self._transport.request("GET", "/v1/sessions"))
        for session in listing.sessions:
            if self.id in (session.sessionId, session.openCodeSessionId):
                return session
        raise Problem(404, "session_not_found", f"There is no session {self.id!r}.", {})

    # --- prompts -------------------------------------------------------------------------------------------

    async def send(self, message: str, attachments: Sequence[MessageAttachment] = (), *, unattended: str | None = None) -> None:
        """Send a prompt and return once it is accepted. Its events come on `events`. `unattended`: see `create_session`."""
        await self._transport.request("POST", f"{self._path}/messages", body=_message(message, attachments, unattended))

    async def prompt(
        self,
        message: str,
        attachments: Sequence[MessageAttachment] = (),
        *,
        include_raw: bool = False,
        unattended: str | None = None,
    ) -> AsyncGenerator[UniversalEvent]:
        """Send a prompt and yield its events up to the end of its turn. Answer permissions and questions while you iterate.

        After the first event a broken connection is resumed where it was.
        """
        query = {"include_raw": include_raw}
        body = _message(message, attachments, unattended)
        last: UniversalEvent | None = None
        has_begun = False  # True once our message has come: an earlier turn's end is not ours
        try:
            async with self._transport.events("POST", f"{self._path}/messages/stream", query=query, body=body) as events:
                async for last in events:
                    yield last
                    has_begun = has_begun or _is_message(last)
                    if (has_begun and last.type is EventType.TURN_ENDED) or _is_over(last):
                        return
        except (aiohttp.ClientError, TimeoutError):
            if last is None:
                raise
        if last is None:
            raise aiohttp.ServerDisconnectedError(f"The server ended the stream of {self.id!r} before the turn began.")
        async for event in self.events(after=last.sequence, include_raw=include_raw):
            yield event
            has_begun = has_begun or _is_message(event)
            if has_begun and event.type is EventType.TURN_ENDED:
                return

    async def ask(
        self,
        message: str,
        attachments: Sequence[MessageAttachment] = (),
        *,
        unattended: str | None = None,
        timeout_s: float = ASK_S,
    ) -> str:
        """Send a prompt and return the text of its answer. Raises AnswerTimeout, which says what the agent waits for."""
        deltas: list[str] = []
        requests: dict[str, str] = {}
        try:
            async with asyncio.timeout(timeout_s), aclosing(self.prompt(message, attachments, unattended=unattended)) as events:
                async for event in events:
                    match event.data:
                        case ItemDeltaData(part_type="text", delta=delta):
                            deltas.append(delta)
                        case PermissionData(permission_id=id_, action=action, status="requested"):
                            requests[id_] = f"a permission ({action})"
                        case QuestionData(question_id=id_, prompt=prompt, status="requested"):
                            requests[id_] = f"an answer ({prompt})"
                        case PermissionData(permission_id=id_) | QuestionData(question_id=id_):
                            requests.pop(id_, None)
                        case _:
                            pass
        except TimeoutError as error:
            raise AnswerTimeout(timeout_s, requests.values()) from error
        return "".join(deltas)

    # --- events --------------------------------------------------------------------------------------------

    async def history(self, after: int = 0, *, include_raw: bool = False) -> AsyncGenerator[UniversalEvent]:
        """Yield all events so far, in pages."""
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
        """Yield all events after a sequence, stored then live, without gap or duplicate, across broken connections.

        Ends when the session is terminated or deleted. Raises Problem (404 at the start), and aiohttp.ClientError if the server
        cannot be reached for GIVE_UP_S.
        """
        connected = False
        failing_since: float | None = None
        attempt = 0
        loop = asyncio.get_running_loop()
        while True:
            try:
                query = {"include_raw": include_raw}
                path = f"{self._path}/events/sse"
                async with self._transport.events("GET", path, query=query, last_event_id=after) as events:
                    connected, failing_since, attempt = True, None, 0
                    async for event in events:
                        if event.sequence <= after:
                            continue
                        after = event.sequence
                        yield event
                        if _is_over(event):
                            return
            except Problem as problem:
                if connected and problem.status == 404:
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
        """Answer `permission.requested`. `message` tells the agent why not. Raises Problem (404: the request is closed)."""
        body = {"reply": reply, **({"message": message} if message is not None else {})}
        await self._transport.request("POST", f"{self._path}/permissions/{segment(permission_id)}/reply", body=body)

    async def reply_question(self, question_id: str, answers: Sequence[Sequence[str]]) -> None:
        """Answer `question.requested` with a list of labels or typed texts for each of its questions."""
        body = {"answers": [list(labels) for labels in answers]}
        await self._transport.request("POST", f"{self._path}/questions/{segment(question_id)}/reply", body=body)

    async def reject_question(self, question_id: str) -> None:
        """Reject a question."""
        await self._transport.request("POST", f"{self._path}/questions/{segment(question_id)}/reject")

    async def terminate(self) -> None:
        """Stop the session's agent for good. Its events can still be read."""
        await self._transport.request("POST", f"{self._path}/terminate")

    # --- files ---------------------------------------------------------------------------------------------

    async def read_file(self, path: str) -> bytes:
        """Return the bytes of a file in the session's directory."""
        answer = await self._transport.request("GET", "/v1/fs/file", query={"session_id": self.id, "path": path})
        return answer if isinstance(answer, bytes) else b""

    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file in the session's directory."""
        await self._transport.request("PUT", "/v1/fs/file", query={"session_id": self.id, "path": path}, data=data)


def _message(message: str, attachments: Sequence[MessageAttachment], unattended: str | None) -> dict[str, object]:
    request = MessageRequest(message=message, attachments=list(attachments), unattended=unattended)
    return request.model_dump(exclude_none=True)


def _is_message(event: UniversalEvent) -> bool:
    """Return True for a message of the person."""
    return isinstance(event.data, ItemData) and event.data.item.role is ItemRole.USER


def _is_over(event: UniversalEvent) -> bool:
    """Return True for the last event of a terminated session."""
    return isinstance(event.data, SessionEndedData) and event.data.terminated_by == "daemon"
