"""The inspector's own API: native, universal and OpenCode events side by side, counters, export.

The sequence of its universal event identifies a row. A row's OpenCode events name messages and parts (`properties`), so that the
page can link a part to the events that created it.
"""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from aiohttp import web
from pydantic import BaseModel, Field

from shim.faces.opencode1.endpoint import extra
from shim.faces.v1.models import SessionInfo
from shim.faces.v1.routes.endpoint import exactly, page, universal, v1
from shim.faces.v1.routes.events import Entry, encode_entry
from shim.faces.v1.routes.sessions import SessionPath, session_info
from shim.host.files.roots import visible_sessions
from shim.http import wire_json
from shim.http.log_stream import frame, last_event_id, stream
from shim.http.operation import Ctx
from shim.http.services import Universal, need_room
from shim.inspector.trace import Row
from shim.lib.errors import InspectorFileNotFound
from shim.lib.redaction import SECRET_NAME, secrets_of
from shim.lib.redaction import clean as redact
from shim.store.rows import EventRow, event_of
from shim.telemetry.meters import memory_bytes
from universal.events import UniversalEvent
from universal.session.values import SessionRecord

DEFAULT_LIMIT = 500
MAX_LIMIT = 5_000
SESSIONS_LIMIT = 50
MAX_SESSIONS_LIMIT = 200
EXPORT_PAGE = 2_000


class TraceQuery(BaseModel):
    """A page: rows after `after`."""

    after: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1)] = DEFAULT_LIMIT


class LiveQuery(BaseModel):
    """A stream: rows after `after`, unless the header `Last-Event-ID` says where it was cut."""

    after: Annotated[int, Field(ge=0)] = 0


class SessionsQuery(BaseModel):
    """A page of the list. `search` is part of a title, id, agent, model, directory, state or owner; `open`: a session to add."""

    search: str = ""
    offset: Annotated[int, Field(ge=0)] = 0
    limit: Annotated[int, Field(ge=1)] = SESSIONS_LIMIT
    open: str = ""


State = Literal["waiting", "retrying", "running", "failed", "ended", "idle"]


class ListedSession(SessionInfo):
    """A session and its state: `waiting` for a person, `failed` in its last turn, `ended` with its agent's process."""

    state: State


class SessionsResponse(BaseModel):
    """A page of the sessions that match, those that wait for a person first, then the last changed first.

    total  sessions that match; all: that there are; waiting: that wait for a person, without subagents' own
    open   the session that was asked for, if there is one
    """

    sessions: list[ListedSession]
    total: int
    all: int
    waiting: int
    open: ListedSession | None = None


class TraceEvent(BaseModel):
    """An OpenCode event, as on `/event`, without its id."""

    type: str
    properties: dict[str, Any]


class TraceRow(BaseModel):
    """A universal event with its `raw`, the OpenCode events that it made, and the turn's state after it.

    state   idle; queued: a turn has begun and the agent has no prompt yet; running; waiting for a person
    queued  prompts that the agent has not been given; open: ids of what a person is asked
    """

    event: dict[str, Any]
    opencode: list[TraceEvent]
    state: Literal["idle", "queued", "running", "waiting"]
    queued: int
    open: list[str]


class TraceResponse(BaseModel):
    """A page of rows."""

    rows: list[TraceRow]
    hasMore: bool


class Counters(BaseModel):
    """Numbers of the server. Rates are of the last 10 s; memory in bytes; `lag`: events that the slowest reader is behind."""

    version: str
    uptimeMs: int
    eventsPerSecond: float
    events: dict[str, int]
    turns: dict[str, int]
    turnsRunning: int
    errors: dict[str, int]
    unparsed: dict[str, int]
    subscribers: dict[str, int]
    lag: int
    cutOff: int
    loopLagMs: float
    memoryBytes: int | None
    sessions: int


@v1("GET", "/inspector/api/sessions", tag="inspector", answer=SessionsResponse, errors=(400,))
async def list_page(ctx: Ctx, query: SessionsQuery) -> object:
    """A page of the list of sessions, as a person looks for one."""
    face, sessions = universal(ctx), ctx.services.sessions
    records = await visible_sessions(sessions.index.newest_first(), ctx.roots)
    statuses = sessions.statuses()
    # A session waits within a turn: the others need not be asked.
    waiting = {id_ for id_ in statuses if sessions.requests.waiting_since_ms(id_) is not None}

    def state_of(record: SessionRecord) -> State:
        if record.id in waiting:
            return "waiting"
        if (status := statuses.get(record.id)) is not None and status.type != "idle":
            return "retrying" if status.type == "retry" else "running"
        if sessions.index.facts(record.id).get("outcome") == "failed":
            return "failed"
        return "ended" if sessions.index.is_ended(record.id) else "idle"

    def matches(record: SessionRecord) -> bool:
        model = record.model.model_id if record.model is not None else ""
        texts = (record.title, record.directory, record.id, face.sessions.name_of(record.id), model, state_of(record))
        return any(wanted in text.lower() for text in (*texts, sessions.index.agent_of(record.id), record.owner))

    def entry(record: SessionRecord) -> ListedSession:
        return ListedSession(**session_info(ctx, record).model_dump(), state=state_of(record))

    wanted = query.search.strip().lower()
    found = [record for record in records if matches(record)] if wanted else records
    ordered = sorted(found, key=lambda record: record.id not in waiting)
    opened = next((one for one in records if query.open in (one.id, face.sessions.name_of(one.id))), None) if query.open else None
    return SessionsResponse(
        sessions=[entry(one) for one in ordered[query.offset : query.offset + min(query.limit, MAX_SESSIONS_LIMIT)]],
        total=len(found),
        all=len(records),
        waiting=sum(one.id in waiting and not one.parent_id for one in records),
        open=entry(opened) if opened is not None else None,
    )


def _row(face: Universal, entry: Entry, row: Row) -> bytes:
    """Encode a TraceRow as JSON. The event's text comes unchanged from the journal."""
    rest = wire_json.exact({"opencode": row.opencode, "state": row.state, "queued": row.queued, "open": row.open})
    return b'{"event":%b,%b' % (encode_entry(face, entry, include_raw=True), rest[1:])


@v1("GET", "/inspector/api/sessions/{session_id}/trace", tag="inspector", answer=TraceResponse, errors=(400, 404))
async def get_trace(ctx: Ctx, path: SessionPath, query: TraceQuery) -> object:
    """Rows after a sequence, oldest first."""
    face = universal(ctx)
    session_id = await face.sessions.id_of(path.session_id)
    rows, more = await face.traces.page(session_id, query.after, min(query.limit, MAX_LIMIT))
    return page(b"rows", (_row(face, entry, row) for entry, row in rows), more=more)


@v1("GET", "/inspector/api/sessions/{session_id}/trace/sse", tag="inspector", form="events", errors=(400, 404))
async def get_trace_sse(ctx: Ctx, path: SessionPath, query: LiveQuery) -> object:
    """Rows after a sequence, then live: each event's `data` is a TraceRow, its `id` the sequence."""
    face = universal(ctx)
    session_id = await face.sessions.id_of(path.session_id)
    last_id = last_event_id(ctx.request)
    after = query.after if last_id is None else last_id
    tracer = await face.traces.tracer(session_id, after)
    need_room(ctx.services)
    follower = await face.sessions.row_follower(session_id, tracer.sequence)

    def encode(entry: Entry) -> bytes:
        row = tracer.feed(event_of(entry, with_raw=False) if isinstance(entry, EventRow) else entry)
        return frame(entry.sequence, _row(face, entry, row)) if entry.sequence > after else b""

    return await stream(ctx.request, follower, encode)


@v1("POST", "/v1/x-sessions/{session_id}/abort", tag="sessions", form="none", errors=(404,))
async def abort_session(ctx: Ctx, path: SessionPath) -> None:
    """Stops the running turn, if there is one; the session goes on."""
    await ctx.services.sessions.abort(await universal(ctx).sessions.id_of(path.session_id))


@v1("GET", "/inspector/api/counters", tag="inspector", answer=Counters)
async def get_counters(ctx: Ctx) -> object:
    """What the server counts."""
    services, telemetry = ctx.services, ctx.services.telemetry
    assert telemetry is not None
    loop = asyncio.get_running_loop()
    before = loop.time()
    await asyncio.sleep(0)  # one turn of the loop, which is what is measured
    meters, feed = telemetry.meters, services.sessions.deps.feed
    return exactly(
        {
            "version": version("opencode-shim"),
            "uptimeMs": services.clock.now_ms() - meters.started_ms,
            "eventsPerSecond": feed.rate(services.clock.now_ms()),
            "events": dict(feed.events),
            "turns": dict(meters.turns),
            "turnsRunning": meters.running_turns,
            "errors": dict(meters.errors),
            "unparsed": dict(meters.unparsed),
            "subscribers": {"opencode": services.hub.stats().readers, "universal": feed.listeners},
            "lag": feed.lag(),
            "cutOff": feed.cut_off + services.hub.stats().dropped,
            "loopLagMs": round((loop.time() - before) * 1000, 3),
            "memoryBytes": memory_bytes(),
            "sessions": sum(1 for _ in services.sessions.index.records()),
        }
    )


@v1("GET", "/inspector/api/sessions/{session_id}/export", tag="inspector", form="bytes", errors=(404,))
async def export_session(ctx: Ctx, path: SessionPath) -> object:
    """The session as a zip archive of its native, universal and OpenCode events, without paths and secrets: for bug reports."""
    face, services = universal(ctx), ctx.services
    session_id = await face.sessions.id_of(path.session_id)
    rows: list[Row] = []
    more = True
    while more:
        read, more = await face.traces.page(session_id, rows[-1].event.sequence if rows else 0, EXPORT_PAGE)
        rows += [replace(row, event=event_of(entry)) for entry, row in read]
    record = services.sessions.index.record(session_id)
    about = session_info(ctx, record).model_dump(exclude_none=True) | {
        "opencode-shim": version("opencode-shim"),
        "agentVersion": _agent_version(ctx, session_id),
        "unparsed": sum(row.event.type == "agent.unparsed" for row in rows),
    }
    environment = services.agents.environment()
    paths = cleaner(record.directory, environment.get("HOME", ""), secrets_of(environment))
    archive = await asyncio.to_thread(session_archive, rows, json.loads(json.dumps(about)), paths)
    headers = {"Content-Disposition": f'attachment; filename="session-{session_id}.zip"'}
    return web.Response(body=archive, content_type="application/octet-stream", headers=headers)


def _agent_version(ctx: Ctx, session_id: str) -> str | None:
    agent = ctx.services.agents.get(ctx.services.sessions.index.agent_of(session_id))
    return agent.located.version if agent is not None else None


# --- the archive of a session ----------------------------------------------------------------------------

# Exports a session as a zip archive, for bug reports and test fixtures. Pure.
#
#     session.json      agent, versions, counts
#     native.jsonl      {sequence, raw}: the agent's payloads, unchanged
#     universal.jsonl   the journal, without raw
#     opencode.jsonl    {sequence, type, properties}: the events of OpenCode's clients
#     README.txt        the contents, and a warning to review them before sharing
#
# Directories become `/project` and `/home/user`, and possible secrets `<redacted>`. The conversation stays, because the bug is in
# it. Private data may remain, as the README says.

README = """A session of opencode-shim, for a bug report or a test.

native.jsonl     what the agent has sent
universal.jsonl  the events that it became
opencode.jsonl   what OpenCode's clients were sent for them

Paths of the project and of the home directory were replaced, and so was what looks like a key, a token or a password.
Everything that was said in the session is in here: look through it before you give it away.
"""
_SUSPECT = (
    *("sk-", "pk-", "rk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "hf_", "sgp_", "akia", "aiza"),
    *("eyj", "bearer", "basic", "://", "password", "passwd", "passphrase", "secret", "token", "apikey", "api_key", "api-key"),
    *("accesskey", "access_key", "access-key", "privatekey", "private_key", "private-key", "authori", "cookie", "credential"),
    "input_value",
)
"""Words in lower case, of which a line must contain one for `shim.lib.redaction` to change it. A test compares the two."""
REDACTED = "<redacted>"
_THINGS = {"item": {"item_id"}} | dict.fromkeys(("item_id", "turn_id", "permission_id", "question_id", "part_index"), True)
MIN_PATH_LENGTH = 4
"""Minimum characters of a path to replace. Shorter ones (`/`, `/a`) occur in too many words."""


def cleaner(directory: str, home: str, secrets: Iterable[str] = ()) -> Mapping[str, str]:
    """Map texts to their replacements, longest first. In: `secrets`, known secret values."""
    texts = {**dict.fromkeys(secrets, REDACTED), home: "/home/user", directory: "/project"}
    return {path: texts[path] for path in sorted(texts, key=len, reverse=True) if len(path) >= MIN_PATH_LENGTH}


def clean(value: Any, paths: Mapping[str, str], name: str = "") -> Any:
    """Replace paths and secrets in a JSON value."""
    if isinstance(value, str):
        if name and SECRET_NAME.search(name):
            return REDACTED
        for path, replacement in paths.items():
            value = value.replace(path, replacement)
        return redact(value)
    if isinstance(value, Mapping):
        return {clean(key, paths): clean(inner, paths, str(key)) for key, inner in cast("Mapping[Any, Any]", value).items()}
    if isinstance(value, (list, tuple)):
        return [clean(inner, paths, name) for inner in cast("Sequence[Any]", value)]
    return value


def session_archive(rows: Iterable[Row], about: Mapping[str, Any], paths: Mapping[str, str]) -> bytes:
    """Build the zip archive. In: all rows of the session."""
    native: list[str] = []
    universal: list[str] = []
    opencode: list[str] = []
    line: Any = None
    subjects: set[tuple[str, ...]] = set()
    for row in rows:
        event = row.event
        universal.append(_line(event.model_dump(by_alias=True, exclude={"raw"}) | {"raw": None}, paths))
        if event.raw is not None:
            subject = _subject(event)
            if event.raw != line or subject in subjects:
                native.append(_line({"sequence": event.sequence, "raw": event.raw}, paths))
                line, subjects = event.raw, set()
            subjects.add(subject)
        opencode += [_line({"sequence": event.sequence, **output}, paths) for output in row.opencode]
    files = {
        "README.txt": README,
        "session.json": json.dumps(clean(dict(about), paths), indent=1) + "\n",
        "native.jsonl": "".join(native),
        "universal.jsonl": "".join(universal),
        "opencode.jsonl": "".join(opencode),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, text in files.items():
            zipped.writestr(zipfile.ZipInfo(name), text.encode(), zipfile.ZIP_DEFLATED)
    return out.getvalue()


def _subject(event: UniversalEvent) -> tuple[str, ...]:
    """Return the type of an event and the ids that it concerns.

    One line of an agent becomes several events with the same raw payload and different subjects. So an equal payload with a
    repeated subject is another line.
    """
    data = event.data.model_dump(include=_THINGS)
    item = data.get("item") or data
    return event.type, *(str(item.get(name)) for name in ("item_id", "turn_id", "permission_id", "question_id", "part_index"))


def _line(value: Any, paths: Mapping[str, str]) -> str:
    """Encode a line of JSON. It cleans the value only if the line may contain a path or a secret."""
    line = json.dumps(value)
    small = line.lower()
    if any(word in small for word in _SUSPECT) or any(json.dumps(path)[1:-1] in line for path in paths):
        line = json.dumps(clean(value, paths))
    return line + "\n"


# --- the page --------------------------------------------------------------------------------------------

# Serves the inspector's page from the files of `shim/inspector`.
#
#     /inspector/              the page (`/inspector` redirects there, because its URLs are relative to any base path)
#     /inspector/files/NAME    scripts, styles, the icon
#
# The page reads its data from `/v1` and `/inspector/api`. `shim.http.access` checks its requests like all others. The policy
# allows only these files to run, and only requests to this server. With `require-trusted-types-for`, the browser refuses any
# text that a script inserts as HTML.

FOLDER = Path(__file__).resolve().parents[1] / "inspector"
KINDS = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
"""File extensions that are served, and their media types. Other files in the folder are not served."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none';"
    " form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html"
)
HEADERS = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache", "Cross-Origin-Opener-Policy": "same-origin"}
"""`no-cache` makes the browser revalidate its copy each time (ETag)."""


@extra("inspector.page", "GET", "/inspector")
async def inspector_page(ctx: Ctx) -> web.StreamResponse:
    """Return the page."""
    if not ctx.request.path.endswith("/"):
        query = f"?{ctx.request.query_string}" if ctx.request.query_string else ""
        return web.Response(status=308, headers={"Location": f"inspector/{query}"})
    return await _file(ctx.request, "index.html")


@extra("inspector.file", "GET", "/inspector/files/*")
async def file(ctx: Ctx) -> web.StreamResponse:
    """Return a file of the page."""
    return await _file(ctx.request, ctx.request.match_info["tail"])


async def _file(request: web.Request, name: str) -> web.StreamResponse:
    """Return a file. Raises InspectorFileNotFound, also for symbolic links and `..`."""
    content = await asyncio.to_thread(_read, name)
    if content is None:
        raise InspectorFileNotFound(name)
    tag = blake2b(content, digest_size=12).hexdigest()
    headers = {**HEADERS, "ETag": f'"{tag}"'}
    if any(etag.value in (tag, "*") for etag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    kind = KINDS[Path(name).suffix]
    return web.Response(body=content, headers={**headers, "Content-Type": f"{kind}; charset=utf-8"})


def _read(name: str) -> bytes | None:
    path = FOLDER.joinpath(name)
    try:
        is_served = path.suffix in KINDS and path.is_relative_to(FOLDER) and path.is_file() and path.resolve() == path
    except (OSError, ValueError):  # the name is invalid for a file
        return None
    return path.read_bytes() if is_served else None
