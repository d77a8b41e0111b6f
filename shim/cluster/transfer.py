"""Copies sessions and small values from one store to another: `opencode-shim cluster import` and `export`.

Nothing is deleted and nothing that is there is changed, so that a copy may be interrupted and repeated: events that are there are
not written again. A session that another server has at work, or that went on in both stores, is left as it is. Without `claims`
sessions at work are copied up to their last stored event: a server that opens the copy ends their turns, as after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from shim.lib.errors import SessionNotFound
from shim.store.base import Checkpoint, Store
from shim.store.ownership import ClaimedSession
from shim.store.rows import SessionRow
from shim.store.servers import ServerRef

PAGE = 1_000
"""Events that are read and written at once."""


@dataclass(frozen=True, slots=True)
class NamedStore:
    """A store, and its name for people."""

    store: Store
    name: str


@dataclass(slots=True)
class Summary:
    """What a copy has done.

    sessions  sessions of which something was written; same: those that were there already, or are ahead there
    skipped   session -> why it was left as it is
    """

    sessions: int = 0
    events: int = 0
    values: int = 0
    same: int = 0
    skipped: dict[str, str] = field(default_factory=dict[str, str])


async def transfer(local: NamedStore, cluster: NamedStore, say: Callable[[str, str | None], None], *, into_cluster: bool) -> int:
    """Copy between the store of a data directory and that of a cluster, which are not open. Out: the exit code.

    In: `say`, which prints a line in a style. Raises StoreError.
    """
    async with AsyncExitStack() as ends:
        for named in (local, cluster):  # the local one first: it may have to migrate its file alone
            await named.store.open()
            ends.push_async_callback(named.store.close)
        source, target = (local, cluster) if into_cluster else (cluster, local)
        summary = await copy(source.store, target.store, lambda text: say(text, None), claims=into_cluster)
    say(f"Copied from {source.name} to {target.name}:", None)
    say(f"  {summary.sessions} sessions with {summary.events:,} new events, and {summary.values} small values", None)
    say(f"  {summary.same} sessions were there already", None)
    for session_id, why in summary.skipped.items():
        say(f"  left as it is: {session_id}, because {why}", "yellow")
    say("Nothing was deleted. You may run it again.", None)
    return 1 if summary.skipped else 0


async def copy(source: Store, target: Store, report: Callable[[str], None] = lambda _: None, *, claims: bool = True) -> Summary:
    """Copy all sessions and values. Both stores are open. Raises StoreError.

    report  told of each session that is written
    claims  sessions of the source are claimed, so that they cannot go on there meanwhile
    """
    summary = Summary()
    there = {row.id: row for row in await target.sessions()}
    for row in sorted(await source.sessions(), key=lambda row: row.created_ms):
        if await _claim(target, row.id, summary) is None:
            continue
        if claims:
            claimed = await _claim(source, row.id, summary)
            if claimed is None:
                continue
            row = claimed.row or row  # it may have changed since all were read
        else:
            await source.ownership.refresh(row.id)
        await copy_session(source, target, row, there.get(row.id), summary, report)
    for namespace in await source.namespaces():
        existing = await target.values(namespace)
        for key, value in (await source.values(namespace)).items():
            if key not in existing:
                target.set_value(namespace, key, value)
                summary.values += 1
                await _wait_for_room(target)
    await target.flush()
    return summary


async def _claim(store: Store, session_id: str, summary: Summary) -> ClaimedSession | None:
    """Claim a session. None if it is at work in another server, which is noted."""
    try:
        claimed = await store.ownership.claim(session_id)
    except SessionNotFound:
        return ClaimedSession(None)  # it is new there: its first events create it
    if isinstance(claimed, ServerRef):
        summary.skipped[session_id] = f"it is at work in another opencode-shim ({claimed}): stop that one"
        return None
    return claimed


async def copy_session(
    source: Store,
    target: Store,
    row: SessionRow,
    there: SessionRow | None,
    summary: Summary,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Copy a session whose journal in the source was read or refreshed. In: `there`, its row in the target."""
    session_id = row.id
    last, end = target.last_sequence(session_id), source.last_sequence(session_id)
    if not await _is_same_journal(source, target, session_id, min(last, end)):
        summary.skipped[session_id] = "it went on differently in both places"
        return
    if last > end or (last == end and there == row):
        summary.same += 1
        return
    while page := await source.events(session_id, last, PAGE):
        target.append(page)
        last = page[-1].sequence
        summary.events += len(page)
        await _wait_for_room(target)
    target.save_session(row)
    await _copy_checkpoint(source, target, session_id, last)
    await target.flush(session_id)
    summary.sessions += 1
    report(f"{session_id}  {last} events  {row.directory}")


async def _is_same_journal(source: Store, target: Store, session_id: str, sequence: int) -> bool:
    """Whether both journals have the same event of this sequence, or it is 0."""
    if sequence == 0:
        return True
    return await source.rows(session_id, sequence - 1, 1) == await target.rows(session_id, sequence - 1, 1)


async def _copy_checkpoint(source: Store, target: Store, session_id: str, last: int) -> None:
    """Copy the checkpoint. Without one, or if a page of it is lost, the session is opened from its journal.

    In: `last`, the last event that was copied. A checkpoint after it was written meanwhile.
    """
    checkpoint = await source.checkpoint(session_id)
    if checkpoint is None or checkpoint.sequence > last:
        return
    pages: dict[int, bytes] = {}
    for number in sorted(checkpoint.pages):
        page = await asyncio.to_thread(source.checkpoint_page, session_id, number)
        if page is None:
            return
        pages[number] = page
    existing = await target.checkpoint(session_id)
    if existing is not None and existing.sequence >= checkpoint.sequence:
        return
    dropped = frozenset[int]() if existing is None else existing.pages - checkpoint.pages
    target.save_checkpoint(session_id, Checkpoint(checkpoint.sequence, checkpoint.head, checkpoint.pages), pages, dropped)


async def _wait_for_room(store: Store) -> None:
    if (room := store.room()) is not None:
        await room
