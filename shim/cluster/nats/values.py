"""Small values of a cluster, in the bucket `PREFIX_values`. The last write wins; other servers see it at their next look.

A value that was removed leaves an entry that says so, and expires.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shim.cluster.nats.connection import Connection, Message
from shim.cluster.nats.layout import Layout
from shim.store.ownership import ValueChange
from shim.store.rows import dump, load

REMOVED_S = 86_400
"""Seconds that the entry of a removed value stays, so that other servers see it."""


@dataclass(frozen=True, slots=True)
class StoredValue:
    """The entry of a value. `by`: the server that wrote it; `value` None: it was removed."""

    namespace: str
    key: str
    value: Any
    by: str = ""


class Values:
    """The values of all servers."""

    def __init__(self, connection: Connection, layout: Layout, server_id: str) -> None:
        self._connection = connection
        self._layout = layout
        self._server_id = server_id
        self._last = 0
        """Number of the last entry that `changes` has read."""

    async def open(self) -> None:
        """Note where changes begin."""
        self._last = await self._connection.last_sequence(self._layout.values)

    def encode(self, namespace: str, key: str, value: Any) -> bytes:
        """The entry of a value. Raises StoreError if it is not JSON."""
        entry = {"namespace": namespace, "key": key, "value": value, "by": self._server_id}
        return dump(entry, f"value {namespace}/{key}").encode()

    async def write(self, subject: str, payload: bytes, *, is_removed: bool) -> None:
        """Replace an entry."""
        await self._connection.append(subject, payload, expires_s=REMOVED_S if is_removed else 0)

    async def read(self, namespace: str) -> dict[str, Any]:
        """All values of a namespace."""
        messages = await self._connection.read_all(self._layout.values, self._layout.value_key(namespace, "*"))
        return {entry.key: entry.value for entry in map(_decode, messages) if entry.value is not None}

    async def namespaces(self) -> list[str]:
        """The namespaces that have values."""
        messages = await self._connection.read_all(self._layout.values, self._layout.values.subjects)
        return list(dict.fromkeys(entry.namespace for entry in map(_decode, messages) if entry.value is not None))

    async def changes(self) -> list[ValueChange]:
        """The values that other servers have set or removed since the last call."""
        messages = await self._connection.read_all(self._layout.values, self._layout.values.subjects, self._last + 1)
        if messages:
            self._last = max(self._last, messages[-1].sequence)
        entries = [entry for entry in map(_decode, messages) if entry.by != self._server_id]
        return [ValueChange(entry.namespace, entry.key, entry.value) for entry in entries]


def _decode(message: Message) -> StoredValue:
    value = load(message.data.decode(), "value")
    return StoredValue(str(value["namespace"]), str(value["key"]), value["value"], str(value.get("by", "")))
