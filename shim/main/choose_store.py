"""Chooses the store of a server: SQLite in its data directory, or the NATS of a cluster.

NATS's client is an extra, and is imported only for a cluster.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from shim.lib.clock import DAY_MS, SystemClock
from shim.lib.errors import StoreError
from shim.lib.settings import EMBEDDED, Settings
from shim.store.base import Store
from shim.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from shim.cluster.nats.layout import ClusterOptions

DATABASE = "opencode-shim.db"


def store_of(settings: Settings) -> Store:
    """The store of a server with these settings, not opened. Raises StoreError if a cluster needs what is not installed."""
    return cluster_store_of(settings) if settings.has_cluster else sqlite_of(settings)


def sqlite_of(settings: Settings) -> SqliteStore:
    """The store in the data directory, not opened."""
    return SqliteStore(settings.data_dir / DATABASE, move_aside=settings.move_aside_damaged)


def cluster_store_of(settings: Settings) -> Store:
    """The store of the cluster in the settings, not opened. Raises StoreError if there is none, or no NATS client."""
    require_cluster_extra(settings)
    from shim.cluster.nats.nats_process import EmbeddedServer
    from shim.cluster.nats.store import JetStreamStore

    embedded = EmbeddedServer(settings.data_dir) if settings.cluster == EMBEDDED else None
    return JetStreamStore(_options(settings), directory=settings.data_dir, embedded=embedded, name=settings.server_name)


async def copy_sessions(settings: Settings, say: Callable[[str, str | None], None], *, into_cluster: bool) -> int:
    """Copy the sessions of the data directory into the cluster, or those of a working cluster into the data directory.

    In: `say`, which prints a line in a style. Out: the exit code. Raises StoreError.
    """
    local, cluster = sqlite_of(settings), cluster_store_of(settings)
    from shim.cluster.transfer import NamedStore, transfer

    nats = f"the cluster {settings.cluster} ({settings.cluster_prefix})"
    return await transfer(NamedStore(local, str(local.path)), NamedStore(cluster, nats), say, into_cluster=into_cluster)


async def prune_sessions(
    settings: Settings, archive: Path | None, say: Callable[[str, str | None], None], *, days: float, is_rehearsal: bool
) -> int:
    """Remove the sessions of a cluster that have not changed for so many days. Out: the exit code. Raises StoreError.

    In: `archive`, a data directory to which they are copied before.
    """
    cluster = cluster_store_of(settings)
    from shim.cluster.retention import prune
    from shim.cluster.transfer import NamedStore

    copies = None if archive is None else NamedStore(SqliteStore(archive / DATABASE), str(archive))
    before_ms = SystemClock().now_ms() - round(days * DAY_MS)
    return await prune(NamedStore(cluster, settings.cluster or ""), copies, say, before_ms=before_ms, is_rehearsal=is_rehearsal)


def require_cluster_extra(settings: Settings) -> None:
    """Raise StoreError if the settings have no cluster, or NATS's client is not installed."""
    if not settings.has_cluster:
        raise StoreError("No cluster is set. Name its NATS servers: --cluster nats://HOST[,HOST...], or SHIM_CLUSTER.")
    if importlib.util.find_spec("nats") is None:
        raise StoreError("--cluster needs the package nats-py: uv tool install 'opencode-shim[cluster]', or leave --cluster out.")


def _options(settings: Settings) -> ClusterOptions:
    from shim.cluster.nats.layout import ClusterOptions

    secret = settings.cluster_password
    return ClusterOptions(
        tuple((settings.cluster or "").split(",")),
        settings.cluster_prefix,
        settings.cluster_replicas,
        settings.cluster_credentials,
        "" if secret is None else secret.get_secret_value(),
        settings.cluster_tls_ca,
        settings.cluster_tls_cert,
        settings.cluster_tls_key,
        settings.cluster_max_bytes,
        settings.cluster_max_session_bytes,
    )
