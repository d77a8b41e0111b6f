"""`opencode-shim cluster import` and `export`: copy sessions between a data directory (SQLite) and a cluster (NATS)."""

from __future__ import annotations

from contextlib import AsyncExitStack

from shim.cli.screen import Console, line
from shim.lib.settings import Settings
from shim.main.choose_store import DATABASE, cluster_store_of, sqlite_of
from shim.store.transfer import Summary, copy


async def import_sessions(settings: Settings, out: Console) -> int:
    """Copy the sessions of the data directory into the cluster. Returns the exit code. Raises StoreError."""
    return await _copy(settings, out, into_cluster=True)


async def export_sessions(settings: Settings, out: Console) -> int:
    """Copy the sessions of a working cluster into the data directory. Returns the exit code. Raises StoreError."""
    return await _copy(settings, out, into_cluster=False)


async def _copy(settings: Settings, out: Console, *, into_cluster: bool) -> int:
    cluster, local = cluster_store_of(settings), sqlite_of(settings)
    async with AsyncExitStack() as ends:
        for store in (local, cluster):  # the local one first: it may have to migrate its file alone
            await store.open()
            ends.push_async_callback(store.close)
        source, target = (local, cluster) if into_cluster else (cluster, local)
        summary = await copy(source, target, lambda text: line(out, text), claims=into_cluster)
    database, nats = str(settings.data_dir / DATABASE), f"the cluster {settings.cluster} ({settings.cluster_prefix})"
    show(out, summary, *((database, nats) if into_cluster else (nats, database)))
    return 1 if summary.skipped else 0


def show(out: Console, summary: Summary, source: str, target: str) -> None:
    """Print what was copied, and what was left as it is."""
    line(out, f"Copied from {source} to {target}:")
    line(out, f"  {summary.sessions} sessions with {summary.events:,} new events, and {summary.values} small values")
    line(out, f"  {summary.same} sessions were there already")
    for session_id, why in summary.skipped.items():
        line(out, f"  left as it is: {session_id}, because {why}", "yellow")
    line(out, "Nothing was deleted. You may run it again.")
