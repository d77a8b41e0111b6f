"""Reads at the end of a run, from outside: NATS with its plain client, the nodes by HTTP, the processes in /proc."""

# pyright: reportUnknownMemberType=false
# NATS's client has arguments without types.

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.js.client import JetStreamContext

from tools.chaos.evidence import AgentProcess, Event, Evidence, JournalMessage, Message
from tools.chaos.screens import content_of
from universal.lib.jsonvalue import obj, text

NATS_S = 10.0
"""Maximum seconds for an answer of NATS."""
POLL_S = 0.25
PAGE = 1000
"""Events of one read of a journal."""
FILLER, FILLER_BYTES = "filler", (1_000_000, 64_000, 4_000, 500)
"""The stream that takes the room of JetStream, and the sizes of its messages."""


@asynccontextmanager
async def _client(servers: Sequence[str]) -> AsyncGenerator[Client]:
    client = await nats.connect(list(servers), connect_timeout=int(NATS_S))
    try:
        yield client
    finally:
        await client.close()


async def have_all_copies(servers: Sequence[str], streams: Sequence[str], copies: int) -> bool:
    """Whether each stream has a leader, and as many current copies."""
    try:
        async with asyncio.timeout(NATS_S), _client(servers) as client:
            for stream in streams:
                cluster = (await client.jetstream().stream_info(stream)).cluster
                replicas = (cluster.replicas if cluster is not None else None) or []
                if cluster is None or not cluster.leader or sum(bool(one.current) for one in replicas) != copies - 1:
                    return False
        return True
    except (nats.errors.Error, OSError, TimeoutError):
        return False


async def _messages(context: JetStreamContext, stream: str, subject: str) -> list[tuple[int, str, bytes]]:
    """All messages of a stream: number, subject, content."""
    count = (await context.stream_info(stream)).state.messages
    found: list[tuple[int, str, bytes]] = []
    if not count:
        return found
    subscription = await context.subscribe(subject, stream=stream, ordered_consumer=True)
    while True:
        message = await subscription.next_msg(timeout=NATS_S)
        found.append((message.metadata.sequence.stream, message.subject, message.data))
        if message.metadata.num_pending == 0:
            break
    await subscription.unsubscribe()
    return found


def journal_message(number: int, content: bytes) -> JournalMessage:
    """A message of a journal: an envelope, and three lines for each event. Raises ValueError if it is damaged."""
    head, *lines = content.split(b"\n")
    envelope = json.loads(head)
    part, parts = envelope["part"]
    events = [tuple(json.loads(line)[:2]) for line in lines[::3]] if parts == 1 else []
    return JournalMessage(
        number,
        str(envelope["by"]),
        int(envelope["epoch"]),
        int(envelope["first"]),
        int(envelope["last"]),
        int(part),
        int(parts),
        [(int(sequence), str(event_id)) for sequence, event_id in events],
    )


async def read_nats(servers: Sequence[str], prefix: str, evidence: Evidence) -> dict[str, int]:
    """Read journals and owners of sessions. Out: server id -> process of each living server."""
    sessions = evidence.sessions
    async with _client(servers) as client:
        context = client.jetstream()
        journals: dict[str, list[JournalMessage]] = {session_id: [] for session_id in sessions}
        for number, subject, content in await _messages(context, f"{prefix}_journal", f"{prefix}.journal.*"):
            session_id = subject.rpartition(".")[2]
            if session_id in journals:
                journals[session_id].append(journal_message(number, content))
        for session_id, journal in journals.items():
            sessions[session_id].journal = journal
        for _, subject, content in await _messages(context, f"KV_{prefix}_sessions", f"$KV.{prefix}_sessions.>"):
            entry, session_id = obj(json.loads(content)), subject.rpartition(".")[2]
            if not entry.get("deleted"):
                evidence.entries.add(session_id)
            if session_id in sessions:
                sessions[session_id].owner, sessions[session_id].epoch = text(entry.get("owner")), int(entry["epoch"])
        leases = await _messages(context, f"KV_{prefix}_servers", f"$KV.{prefix}_servers.>")
        return {subject.rpartition(".")[2]: int(json.loads(content)["pid"]) for _, subject, content in leases if content}


async def get(http: aiohttp.ClientSession, url: str) -> Any:
    """The JSON of an answer. Raises aiohttp.ClientError for an error, TimeoutError."""
    async with http.get(url) as answer:
        answer.raise_for_status()
        return await answer.json()


async def read_events(http: aiohttp.ClientSession, url: str, session_id: str) -> list[Event]:
    """The journal of a session, by `/v1`."""
    found: list[Event] = []
    while True:
        after = found[-1].sequence if found else 0
        page = await get(http, f"{url}/v1/sessions/{session_id}/events?offset={after}&limit={PAGE}")
        for event in page["events"]:
            found.append(Event(event["sequence"], event["event_id"], event["type"], obj(event["data"])))
        if not page["hasMore"]:
            return found


async def read_messages(http: aiohttp.ClientSession, url: str, session_id: str) -> list[Message]:
    """The messages of a session, by the face of OpenCode 1."""
    return [message_of(value) for value in await get(http, f"{url}/session/{session_id}/message")]


def message_of(value: Mapping[str, Any]) -> Message:
    """A message of OpenCode 1, as far as the checks need it."""
    info = obj(value.get("info"))
    parts = "".join(text(part.get("text")) for part in value["parts"] if part["type"] == "text")
    is_over = "completed" in obj(info.get("time")) or "error" in info
    contents = {text(part.get("id")): content_of(part) for part in value["parts"]}
    return Message(info["id"], info["role"], text(info.get("parentID")), is_over, "error" in info, parts, contents)


async def read_list(http: aiohttp.ClientSession, url: str) -> dict[str, str]:
    """The sessions that a node lists, by `/v1`: id -> that of the one above, or an empty text."""
    sessions = (await get(http, url + "/v1/sessions"))["sessions"]
    return {text(one["sessionId"]): text(one.get("parentSessionId")) for one in sessions}


async def read_dialogs(http: aiohttp.ClientSession, url: str, directories: Iterable[str]) -> list[str]:
    """The permissions and questions that wait at a node."""
    found: set[str] = set()
    for directory in directories:
        for kind in ("permission", "question"):
            found |= {f"{one['id']} of {one['sessionID']}" for one in await get(http, f"{url}/{kind}?directory={directory}")}
    return sorted(found)


# --- processes -----------------------------------------------------------------------------------------------------


def _read(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _parent(pid: int) -> int:
    stat = _read(pid, "stat").rpartition(b")")[2].split()
    return int(stat[1]) if len(stat) > 1 and stat[0] != b"Z" else 0


def agent_processes(mark: str, program: str, nodes: Mapping[int, str], folders: Mapping[str, str]) -> Iterator[AgentProcess]:
    """The living agents of a run. In: `nodes`, pid -> name; `folders`, directory -> the session whose agent works there."""
    for pid in (int(place.name) for place in Path("/proc").iterdir() if place.name.isdigit()):
        if mark.encode() not in _read(pid, "environ") or program.encode() not in _read(pid, "cmdline") or not _parent(pid):
            continue
        try:
            folder = str(Path(f"/proc/{pid}/cwd").readlink())
        except OSError:
            continue  # it has just ended
        above = pid
        while above > 1 and above not in nodes:
            above = _parent(above)
        yield AgentProcess(pid, folders.get(folder, ""), nodes.get(above, ""))


def bug_reports(log: str) -> list[str]:
    """Lines of a server's log that report an error of its program."""
    words = ("Traceback", "This is a bug", "never retrieved", "never awaited")
    return [line.strip()[:300] for line in log.splitlines() if any(word in line for word in words)]


# --- room ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def fill(servers: Sequence[str]) -> AsyncGenerator[None]:
    """JetStream has no room meanwhile: a stream takes what is left, in smaller and smaller messages."""
    async with _client(servers) as client:
        context = client.jetstream()
        await context.add_stream(name=FILLER, subjects=[FILLER], num_replicas=len(servers))
        try:
            for size in FILLER_BYTES:
                with suppress(nats.js.errors.Error, nats.errors.Error):  # full, or its leader has stepped down for that reason
                    while True:
                        await context.publish(FILLER, bytes(size), timeout=NATS_S)
            yield
        finally:
            async with asyncio.timeout(NATS_S):
                while not await _is_gone(context):  # noqa: ASYNC110 - NATS gives no event of it
                    await asyncio.sleep(POLL_S)


async def _is_gone(context: JetStreamContext) -> bool:
    try:
        return await context.delete_stream(FILLER)
    except nats.js.errors.NotFoundError:
        return True
    except (nats.js.errors.Error, nats.errors.Error):
        return False  # there is no leader
