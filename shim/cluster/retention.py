"""Removes sessions of a cluster that were idle for long, after a copy if one is wanted: `opencode-shim cluster prune`.

A session goes with all sessions below it, when none of them has changed since and no turn runs in any. The server that has it
deletes it, so that its clients are told. A session that nobody has is deleted here. What cannot be copied, or changes meanwhile,
is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from shim.cluster.nats.store import JetStreamStore
from shim.cluster.peers import delete_elsewhere
from shim.cluster.transfer import NamedStore, Summary, copy_session
from shim.lib.errors import ServerLost, SessionNotFound, StoreError
from shim.store.base import Store
from shim.store.rows import Kin, SessionRow, idle_families
from shim.store.servers import ServerRef


async def prune(
    cluster: NamedStore, archive: NamedStore | None, say: Callable[[str, str | None], None], *, before_ms: int, is_rehearsal: bool
) -> int:
    """Remove the sessions that have not changed since `before_ms`. Neither store is open. Out: the exit code. Raises StoreError.

    In: `archive`, a store to which they are copied before; `is_rehearsal`, only tell what would be removed.
    """
    async with AsyncExitStack() as ends:
        for named in (archive, cluster):
            if named is not None:
                await named.store.open()
                ends.push_async_callback(named.store.close)
        assert isinstance(cluster.store, JetStreamStore)
        target = None if archive is None else archive.store
        skipped = await prune_store(cluster.store, target, say, before_ms=before_ms, is_rehearsal=is_rehearsal)
    for session_id, why in skipped.items():
        say(f"  left as it is: {session_id}, because {why}", "yellow")
    return 1 if skipped else 0


async def prune_store(
    source: JetStreamStore, target: Store | None, say: Callable[[str, str | None], None], *, before_ms: int, is_rehearsal: bool
) -> dict[str, str]:
    """As `prune`, of open stores. Out: session -> why it was left as it is."""
    rows = {row.id: row for row in await source.sessions()}
    kin = (Kin(row.id, row.parent_id, row.updated_ms, bool(row.data.get("busy"))) for row in rows.values())
    families = [[rows[id_] for id_ in family] for family in idle_families(kin, before_ms)]
    await source.owners()  # which servers live
    archived = {} if target is None else {row.id: row for row in await target.sessions()}
    skipped: dict[str, str] = {}
    changes: dict[str, SessionRow | None] = {}
    count = events = 0
    for family in families:
        size = sum([await _events_of(source, row) for row in family])
        if not is_rehearsal:
            why = "" if target is None else await _archive(source, target, family, archived)
            changes.update((change.session_id, change.row) for change in (await source.look()).changes)
            if why or (why := await _remove(source, family, changes)):
                skipped[family[0].id] = why
                continue
        count, events = count + len(family), events + size
        say(f"{family[0].id}  {len(family)} sessions, {size} events  {family[0].directory}", None)
    say(f"{'Would remove' if is_rehearsal else 'Removed'} {count} sessions with {events:,} events.", None)
    return skipped


async def _events_of(store: Store, row: SessionRow) -> int:
    await store.ownership.refresh(row.id)
    return store.last_sequence(row.id)


async def _archive(
    source: JetStreamStore, target: Store, family: Sequence[SessionRow], archived: Mapping[str, SessionRow]
) -> str:
    """Copy a family. Out: why one of it could not be copied, or an empty text."""
    summary = Summary()
    for row in family:
        if row.id in archived:
            await target.ownership.claim(row.id)
        await copy_session(source, target, row, archived.get(row.id), summary)
    await target.flush()
    return next(iter(summary.skipped.values()), "")


async def _remove(source: JetStreamStore, family: Sequence[SessionRow], changes: Mapping[str, SessionRow | None]) -> str:
    """Delete a family. In: the rows of sessions that other servers have written. Out: why it was left, or an empty text."""
    if any(changes.get(row.id, row) != row for row in family):
        return "it was used meanwhile"
    try:
        for row in reversed(family):  # those below first
            await _delete(source, row.id)
    except (ServerLost, StoreError) as error:
        return str(error)
    return ""


async def _delete(store: JetStreamStore, session_id: str) -> None:
    """Delete a session here, or let the server do it that has it. Raises ServerLost, StoreError."""
    try:
        claimed = await store.claim(session_id)
    except SessionNotFound:
        return
    if not isinstance(claimed, ServerRef):
        store.delete_session(session_id)
        await store.flush(session_id)
        return
    await delete_elsewhere(store.peers, session_id, claimed)
