"""The tools of `/mcp`: what an agent or another client can do with sessions (docs/delegation.md).

A function marked with `tool` is one. Its docstring tells a model what it does, and the fields of its arguments how.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, get_type_hints

import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shim.host.files.roots import require, visible_sessions
from shim.http import wire_json
from shim.http.directory import resolve
from shim.http.services import Services, list_offers
from shim.lib.complaints import fault
from shim.lib.errors import Forbidden, InvalidRequest, LimitReached, ShimError
from shim.sessions import delegation
from shim.sessions.agent_tokens import WAIT_LIMIT_S
from shim.sessions.feed import SessionChanges
from shim.sessions.history.checkpoints import read_ahead
from shim.sessions.index.named_sessions import NewSession
from shim.sessions.prompts.prompt_request import PromptRequest
from shim.sessions.prompts.submit import submit
from universal.agent_spec import modes_of
from universal.session.changes import RequestOpened, SessionDeleted, StatusChanged
from universal.session.values import ModelRef, SessionRecord, StepInfo, Text, ToolCall

log = structlog.get_logger(__name__)

WAIT_S = 240
"""Seconds that `wait` waits unless it is told otherwise."""
PAGE_CHARS = 20_000
"""Characters of an answer in one page."""
PROMPT_CHARS = 1_000_000
"""Maximum characters of a prompt."""
SESSIONS_LIMIT = 100
"""Sessions in one page of the list."""
MODELS_LIMIT = 100
"""Models of an agent that are named."""
ANSWER_MESSAGES = 500
"""Messages of an answer that are read, the newest ones."""


@dataclass(slots=True)
class Call:
    """A call that runs. `caller`: the session of the agent that calls, "" for a person; `note` says what it waits for."""

    services: Services
    caller: str = ""
    note: Callable[[], str] = lambda: "at work"


class Args(BaseModel):
    """The arguments of a tool."""

    model_config = ConfigDict(extra="forbid")


Run: TypeAlias = Callable[[Call, Any], Awaitable[Mapping[str, Any]]]
RunT = TypeVar("RunT", bound=Run)


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool. `row`: as `tools/list` has it; `waits`: it only waits, so that a client may cancel it."""

    row: Mapping[str, Any]
    args: type[Args]
    run: Run
    waits: bool


TOOLS: dict[str, Tool] = {}
"""All tools, by name."""


def tool(*, reads: bool = False, waits: bool = False) -> Callable[[RunT], RunT]:
    """Mark a function as a tool. In: whether it changes nothing; whether it only waits."""

    def mark(run: RunT) -> RunT:
        name, args = run.__name__, cast("type[Args]", get_type_hints(run)["args"])
        hints = {"readOnlyHint": reads, "destructiveHint": False, "openWorldHint": not reads}
        description = " ".join((run.__doc__ or "").split())
        row = {"name": name, "description": description, "inputSchema": args.model_json_schema(), "annotations": hints}
        TOOLS[name] = Tool(row, args, run, waits)
        return run

    return mark


async def call_tool(call: Call, tool: Tool, arguments: object) -> dict[str, Any]:
    """Run a tool. Out: the result of `tools/call`; what went wrong is told in it, for the model to read."""
    value: object = {} if arguments is None else arguments
    try:
        result = await tool.run(call, tool.args.model_validate(value))
    except ValidationError as error:
        first = fault(error, value)
        return _failure(f"{'.'.join(map(str, first.path)) or 'arguments'}: {first.reason}")
    except ShimError as error:
        return _failure(str(error))
    except Exception:  # no fault of a tool ends the connection or shows a traceback
        log.exception("mcp.call_failed", tool=tool.row["name"])
        return _failure("Unexpected server error. The server's log has the reason.")
    body = wire_json.dumps(result)
    return {"content": [{"type": "text", "text": body.decode()}], "structuredContent": wire_json.loads(body), "isError": False}


def _failure(words: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], "isError": True}


# --- agents and sessions ------------------------------------------------------------------------------------------

SessionId = Annotated[str, Field(description="Id of a session, as `start_session` and `list_sessions` tell it.", max_length=200)]
Words = Annotated[str, Field(max_length=PROMPT_CHARS)]


class ListAgents(Args):
    """In which directory; default: the server's, or that of the caller's own session."""

    directory: str = ""


@tool(reads=True)
async def list_agents(call: Call, args: ListAgents) -> Mapping[str, Any]:
    """List the coding agents that `start_session` can start, with their models and modes. The first is the default."""
    directory = await _directory(call, args.directory)
    _, agents = await list_offers(call.services, directory)
    return {
        "agents": [
            {
                "agent": agent.spec.name,
                "title": agent.spec.title,
                "models": [model.id for model in agent.catalogue.models[:MODELS_LIMIT]],
                "default_model": agent.catalogue.default_model,
                "modes": [mode.id for mode in modes_of(agent.spec, agent.catalogue)],
            }
            for agent in agents
        ]
    }


class StartSession(Args):
    """Which agent, where, and what it is to do."""

    agent: Annotated[str, Field(description="Name of the agent, as `list_agents` tells it.", max_length=256)]
    prompt: Words
    directory: Annotated[str, Field(description="Where it works. Default: where the caller does.")] = ""
    model: Annotated[str, Field(description="One of its models. Default: its own.", max_length=256)] = ""
    mode: Annotated[str, Field(description="One of its modes, such as `plan`. Default: `build`.", max_length=256)] = ""
    title: Annotated[str, Field(max_length=2000)] = ""


@tool()
async def start_session(call: Call, args: StartSession) -> Mapping[str, Any]:
    """Start a session of an agent and give it a prompt. Returns at once: use `wait` for its end, then `read` for the answer.
    The agent sees the files of its directory, and nothing of your conversation, so the prompt must say all that it needs."""
    services = call.services
    directory = await _directory(call, args.directory)
    await services.sessions.others.need_new_here(directory, args.agent, None, is_final=True)
    project = await services.projects.identity(directory)
    wish = NewSession(args.agent, mode=args.mode or None, model=args.model or None, title=args.title or None, by=call.caller)
    assert services.universal is not None
    session_id = await services.universal.sessions.create(None, wish, directory, project)
    try:
        return {**await _prompt(call, session_id, args.prompt), "directory": directory}
    except (Forbidden, LimitReached):  # a prompt that is refused leaves no empty session
        await services.sessions.delete(session_id)
        raise


class Prompt(Args):
    """What a session's agent is to do next."""

    session: SessionId
    prompt: Words
    model: Annotated[str, Field(description="Another model of its agent. Default: the one it had.", max_length=256)] = ""


@tool()
async def prompt(call: Call, args: Prompt) -> Mapping[str, Any]:
    """Give a session's agent another prompt. It knows the conversation. Returns at once: use `wait`, then `read`."""
    await _need(call, args.session)
    return await _prompt(call, args.session, args.prompt, args.model)


async def _prompt(call: Call, session_id: str, words: str, model: str = "") -> dict[str, Any]:
    sessions = call.services.sessions
    ref = ModelRef(sessions.index.agent_of(session_id), model) if model else None
    body = PromptRequest((Text("", words),), model=ref)
    if call.caller:
        message_id = await delegation.submit_below(sessions, call.caller, session_id, body)
    else:
        message_id = await submit(sessions, session_id, body)
    await call.services.store.flush(session_id)
    return {"session": session_id, "message": message_id}


class ListSessions(Args):
    """A page: `offset` sessions are left out."""

    offset: Annotated[int, Field(ge=0)] = 0


@tool(reads=True)
async def list_sessions(call: Call, args: ListSessions) -> Mapping[str, Any]:
    """List the sessions that you may use, the last changed first, with their state."""
    sessions, services = call.services.sessions, call.services
    records = await visible_sessions(sessions.index.newest_first(), services.settings.roots)
    if call.caller:
        records = [record for record in records if delegation.is_below(sessions, call.caller, record.id)]
    page = records[args.offset : args.offset + SESSIONS_LIMIT]
    return {"sessions": [_row(call, record) for record in page], "total": len(records)}


def _row(call: Call, record: SessionRecord) -> dict[str, Any]:
    sessions = call.services.sessions
    status = sessions.statuses().get(record.id)
    return {
        "session": record.id,
        "title": record.title,
        "agent": sessions.index.agent_of(record.id),
        "directory": record.directory,
        "mode": record.mode,
        "parent": record.parent_id,
        "state": _open_requests(call, record.id)["state"] or ("busy" if status is not None and status.type != "idle" else "idle"),
    }


# --- what a session does and says -----------------------------------------------------------------------------------


class Wait(Args):
    """How long, and for what."""

    session: SessionId
    timeout_s: Annotated[int, Field(ge=0, le=WAIT_LIMIT_S)] = WAIT_S
    ignore: Annotated[list[str], Field(max_length=100, description="Ids of requests that do not end the wait: seen before.")] = []


@tool(reads=True, waits=True)
async def wait(call: Call, args: Wait) -> Mapping[str, Any]:
    """Wait until a session is done, or asks for something. Its `state` is then `idle` (use `read`), `permission` (a person is
    asked: wait again, with `ignore`), `question` (use `answer`), or after `timeout_s` still `busy` (wait again)."""
    await _need(call, args.session)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + args.timeout_s
    call.note = lambda: _work_of(call, args.session)
    with _changes(call) as changed:
        while True:
            changed.clear()
            found = await _state(call, args.session, frozenset(args.ignore))
            if found["state"] != "busy" or loop.time() >= end_s:
                return found
            try:
                async with asyncio.timeout_at(end_s):
                    await changed.wait()
            except TimeoutError:
                continue


@contextmanager
def _changes(call: Call) -> Generator[asyncio.Event]:
    """An event that is set when a session begins, ends or asks."""
    changed, feed = asyncio.Event(), call.services.sessions.deps.changes

    def note(_: SessionChanges) -> None:
        changed.set()

    feed.observe(note, (StatusChanged, RequestOpened, SessionDeleted))
    try:
        yield changed
    finally:
        feed.forget(note)


async def _state(call: Call, session_id: str, ignored: frozenset[str]) -> dict[str, Any]:
    session = await call.services.sessions.session(session_id)
    found = _open_requests(call, session_id, ignored)
    if found["state"]:
        return {"session": session_id, **found}
    if session.is_busy:
        return {"session": session_id, "state": "busy", "doing": _work_of(call, session_id)}
    failure = next((m.info.error for m in session.newest_first() if isinstance(m.info, StepInfo)), None)
    return {"session": session_id, "state": "idle", **({"error": failure.message} if failure is not None else {})}


def _work_of(call: Call, session_id: str) -> str:
    """The tool that a session has called last in its newest message."""
    session = call.services.sessions.loaded_session(session_id)
    newest = next(session.newest_first(), None) if session is not None else None
    calls = [part for part in newest.parts.values() if isinstance(part, ToolCall)] if newest is not None else []
    return f"{calls[-1].tool} {calls[-1].title or ''}".strip() if calls else "at work"


def _open_requests(call: Call, session_id: str, ignored: frozenset[str] = frozenset()) -> dict[str, Any]:
    """What a session, or one below it, asks: `state` of the first request ("" without one), and all `requests`."""
    sessions = call.services.sessions

    def is_of(other_id: str) -> bool:
        return any(entry.record.id == session_id for entry in sessions.index.line(other_id))

    rows: list[dict[str, Any]] = [
        {"request": one.id, "session": s.id, "permission": one.access.permission, "patterns": list(one.access.patterns)}
        for s, one in sessions.requests.permissions()
        if one.id not in ignored and is_of(s.id)
    ]
    state = "permission" if rows else ""
    for s, asked in sessions.requests.questions():
        if asked.id not in ignored and is_of(s.id):
            rows.append({"request": asked.id, "session": s.id, "questions": [q.model_dump() for q in asked.questions]})
            state = state or "question"
    return {"state": state, "requests": rows}


class Read(Args):
    """Which answer (`back`: 0 the last one, 1 the one before), and where the page begins."""

    session: SessionId
    back: Annotated[int, Field(ge=0, le=100)] = 0
    offset: Annotated[int, Field(ge=0)] = 0


@tool(reads=True)
async def read(call: Call, args: Read) -> Mapping[str, Any]:
    """Read what a session's agent has answered to its last prompt. A long answer has pages: go on at `next_offset`."""
    await _need(call, args.session)
    sessions = call.services.sessions
    session = await sessions.session(args.session)
    await sessions.read_ahead(session, lambda s: read_ahead(s, None, ANSWER_MESSAGES, is_back=True))
    texts: list[str] = []
    back = args.back
    for message in islice(session.newest_first(), ANSWER_MESSAGES):
        if not message.is_user:
            texts += [message.text()] if back == 0 else []
        elif back == 0:
            break
        else:
            back -= 1
    whole = "\n\n".join(filter(None, reversed(texts)))
    end = args.offset + PAGE_CHARS
    more = {"next_offset": end} if end < len(whole) else {}
    state = "busy" if session.is_busy else "idle"
    return {"session": args.session, "state": state, "text": whole[args.offset : end], "length": len(whole), **more}


# --- what a person could do -------------------------------------------------------------------------------------------


class Answer(Args):
    """The answer: `reply` to a permission, `answers` to a question (labels or words for each of its questions)."""

    request: Annotated[str, Field(description="Id of the request, as `wait` tells it.", max_length=200)]
    reply: Literal["once", "always", "reject"] | None = None
    message: Annotated[str | None, Field(description="Why it is rejected, for the agent.", max_length=10_000)] = None
    answers: Annotated[list[list[str]] | None, Field(max_length=100)] = None


@tool()
async def answer(call: Call, args: Answer) -> Mapping[str, Any]:
    """Answer a question or a permission that a session waits for. `reject` alone refuses either."""
    requests = call.services.sessions.requests
    session_id = requests.session_of(args.request)
    if session_id is None:
        raise InvalidRequest("Nothing with this id waits for an answer: it was answered already, or its turn has ended.")
    await _need(call, session_id)
    if call.caller:
        await delegation.need_question(call.services.sessions, call.caller, args.request)
    session = await call.services.sessions.session(session_id)
    if args.request in session.permissions and args.reply is not None:
        requests.reply_permission(args.request, args.reply, args.message)
    elif args.request in session.questions and (args.answers is not None or args.reply == "reject"):
        requests.reply_question(args.request, args.answers)
    else:
        raise InvalidRequest("Give `reply` to a permission, and `answers` (or the reply `reject`) to a question.")
    await call.services.store.flush(session_id)
    return {"session": session_id, "answered": args.request}


class Abort(Args):
    """Which session."""

    session: SessionId


@tool()
async def abort(call: Call, args: Abort) -> Mapping[str, Any]:
    """Stop what a session's agent does now, and all that it has started."""
    await _need(call, args.session)
    await call.services.sessions.abort(args.session)
    return await _state(call, args.session, frozenset())


# --- who may do what --------------------------------------------------------------------------------------------------


async def _need(call: Call, session_id: str) -> None:
    """Check that the caller may use a session. Raises SessionNotFound, OutsideRoots."""
    if call.caller:
        delegation.need_below(call.services.sessions, call.caller, session_id)
    await require(call.services.sessions.index.record(session_id).directory, call.services.settings.roots)


async def _directory(call: Call, named: str) -> str:
    """The absolute path of a directory that the caller may use. Raises InvalidRequest, OutsideRoots."""
    base = call.services.sessions.index.record(call.caller).directory if call.caller else str(call.services.settings.directory)
    directory = resolve({"directory": named}, {}, base)
    await require(directory, call.services.settings.roots)
    if not await asyncio.to_thread(os.path.isdir, directory):
        raise InvalidRequest(f"There is no directory {directory!r}.")
    return directory
