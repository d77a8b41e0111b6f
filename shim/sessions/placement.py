"""What decides which server takes a session. A server alone takes all of its own; a cluster has `shim.cluster.placement`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shim.lib.errors import InvalidRequest, NoServer, ServerStopping
from shim.lib.settings import parse_labels
from universal.lib.jsonvalue import obj

LABELS_KEY = "serverLabels"
"""Key in a session's `metadata` for the labels that its server must have: `KEY=VALUE[,KEY=VALUE...]`."""


def labels_of(metadata: object) -> tuple[str, ...]:
    """The labels that a session's `metadata` demands. Raises InvalidRequest."""
    value = obj(metadata).get(LABELS_KEY)
    if value is None:
        return ()
    try:
        return parse_labels(value)
    except ValueError as error:
        raise InvalidRequest(f"metadata.{LABELS_KEY} cannot be used: {error}.") from error


@dataclass(frozen=True, slots=True)
class Need:
    """What a session needs of its server. `agent` None: any; `labels` as KEY=VALUE."""

    directory: str
    agent: str | None = None
    labels: tuple[str, ...] = ()


class Placement:
    """The place of sessions, from the view of this server: one that no other helps. In: `labels` of this server."""

    def __init__(self, labels: Sequence[str] = ()) -> None:
        self._labels = tuple(labels)
        self.is_draining = False
        """Whether this server is about to stop, and takes no sessions (`shim.sessions.index.drain`)."""

    @property
    def may_take_sessions(self) -> bool:
        """Whether a session that is only read may become this server's."""
        return True

    def stop_taking(self) -> None:
        """Take no sessions from now on, and tell the other servers."""
        self.is_draining = True

    def has_successors(self) -> bool:
        """Whether there is another server that is not about to stop."""
        return False

    async def need_new_here(self, need: Need, *, is_final: bool) -> None:
        """Raise PlacedElsewhere if another server should take a new session, NoServer if none can.

        In: `is_final`, another server has chosen this one, which does not ask a third.
        """
        await self.need_here(need)

    async def need_here(self, need: Need, *, starts_agent: bool = True, is_ours: bool = False) -> None:
        """Raise PlacedElsewhere if another server should run the agent of a session, else ServerStopping or NoServer if none can.

        In: `starts_agent`, false for a session whose agent runs; `is_ours`, true for one that this server has.
        """
        if self.is_draining:
            raise ServerStopping
        if need.labels and (obstacle := label_obstacle(need, self._labels)):
            raise NoServer(need.directory, need.agent, obstacle, need.labels)

    def leaves_to_others(self, directory: str) -> bool:
        """Whether a session of a dead server is another's to take over."""
        return False


def label_obstacle(need: Need, labels: Sequence[str]) -> str:
    """Which label a server with these ones lacks; empty if none."""
    lacking = [label for label in need.labels if label not in labels]
    return f"This server has no label {', '.join(lacking)}" if lacking else ""
