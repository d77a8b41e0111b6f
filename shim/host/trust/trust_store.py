"""Records which projects a user trusts, by directory and by the content of the settings that would run there.

    {"version": 1, "projects": [{"directory", "digest", "trusted", "at", "settings": ["FILE  KEY: COMMAND", ...]}]}

A changed setting has another digest, so the server asks again. The decisions are in a file of the data directory. Server and
command line share the file and read it again when it changes. Blocking: call it in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeAlias

import structlog

from shim.host.files.roots import within
from shim.host.trust.project_settings import ProjectScanner, ProjectSettings
from shim.host.trust.settings_rules import ANY
from shim.lib import disk
from shim.lib.clock import Clock, rfc3339
from shim.lib.errors import ShimError
from universal.lib.jsonvalue import arr, obj, text

log = structlog.get_logger(__name__)

FILE = "trust.json"
FILE_LIMIT_BYTES = 16 * 2**20
KEPT_PROJECTS = 2000
"""Maximum decisions that are kept, the newest ones."""
SETTINGS_KEPT = 200
"""Maximum lines of one project that are kept, for `opencode-shim trust --list`."""

Decision: TypeAlias = Literal["trusted", "declined", "undecided"]


@dataclass(frozen=True, slots=True)
class TrustDecision:
    """A user's decision about one state of one project's settings."""

    directory: str
    digest: str
    trusted: bool
    at: str = ""
    settings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """A project's settings for some agents, and the user's decision. `settings` is empty if nothing would run."""

    settings: ProjectSettings
    decision: Decision


class TrustFile:
    """The file of decisions in the data directory. Threads and processes may share it; the last writer wins a race."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._clock = clock
        self._lock = Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._decided: tuple[TrustDecision, ...] = ()

    def decisions(self) -> tuple[TrustDecision, ...]:
        """List all decisions, oldest first. An unreadable file counts as empty, so the server asks about everything again."""
        with self._lock:
            return self._read()

    def decision(self, settings: ProjectSettings) -> Decision:
        for row in reversed(self.decisions()):
            if row.directory == settings.root and row.digest == settings.digest:
                return "trusted" if row.trusted else "declined"
        return "undecided"

    def decide(self, several: Iterable[ProjectSettings], *, trusted: bool) -> None:
        """Store a decision about each of these settings. Raises ShimError if the file cannot be written."""
        at = rfc3339(self._clock.now_ms())
        new = [
            TrustDecision(s.root, s.digest, trusted, at, tuple(setting.line for setting in s.settings[:SETTINGS_KEPT]))
            for s in several
            if s.settings
        ]
        keys = {(row.directory, row.digest) for row in new}
        with self._lock:
            old = [row for row in self._read() if (row.directory, row.digest) not in keys]
            self._write((*old, *new)[-KEPT_PROJECTS:])

    def remove(self, directory: str) -> int:
        """Remove all decisions about a directory; return their number. Raises ShimError."""
        with self._lock:
            rows = self._read()
            remaining = tuple(row for row in rows if row.directory != directory)
            if len(remaining) != len(rows):
                self._write(remaining)
            return len(rows) - len(remaining)

    def _read(self) -> tuple[TrustDecision, ...]:
        try:
            status = self.path.stat()
        except OSError:
            self._stamp, self._decided = None, ()
            return ()
        stamp = status.st_mtime_ns, status.st_size, status.st_ino
        if stamp == self._stamp:
            return self._decided
        try:
            with self.path.open("rb") as file:
                values = json.loads(file.read(FILE_LIMIT_BYTES))
            self._decided = tuple(_decision(row) for row in arr(obj(values).get("projects")))
        except (OSError, ValueError) as error:
            log.warning("trust.unreadable", path=str(self.path), error=str(error))
            self._decided = ()
        self._stamp = stamp
        return self._decided

    def _write(self, rows: Sequence[TrustDecision]) -> None:
        document = {"version": 1, "projects": [_row(row) for row in rows]}
        try:
            disk.put_private(self.path, json.dumps(document, indent=1))
        except OSError as error:
            raise ShimError(
                f"The decision could not be kept: {self.path} cannot be written ({error.strerror}). "
                "Make the file writable; until then the server asks again."
            ) from error
        self._stamp = None


def _decision(row: Any) -> TrustDecision:
    fields = obj(row)
    lines = tuple(text(line) for line in arr(fields.get("settings")))
    return TrustDecision(
        text(fields.get("directory")), text(fields.get("digest")), fields.get("trusted") is True, text(fields.get("at")), lines
    )


def _row(row: TrustDecision) -> dict[str, Any]:
    return {
        "directory": row.directory,
        "digest": row.digest,
        "trusted": row.trusted,
        "at": row.at,
        "settings": list(row.settings),
    }


class ProjectTrust:
    """Decides whether a project's settings apply.

    In: `roots`, directories (absolute, resolved) that are always trusted; `trust_all`, whether all directories are.
    """

    def __init__(
        self, scanner: ProjectScanner, decisions: TrustFile, *, roots: Sequence[str] = (), trust_all: bool = False
    ) -> None:
        self._scanner = scanner
        self._decisions = decisions
        self._roots = tuple(roots)
        self._trust_all = trust_all
        self._counting: dict[str, frozenset[tuple[str, str]] | None] = {}

    def look(self, directory: str, families: Iterable[str]) -> Verdict:
        """Return the settings that agents of these families would read, and the decision about them. Blocking."""
        if self._trust_all or (self._roots and within(directory, self._roots)):
            self._counting[directory] = None
            return Verdict(ProjectSettings(directory), "trusted")
        settings = self._scanner.look(directory).read_by(families)
        decision = self._decisions.decision(settings) if settings.settings else "trusted"
        rules = ((entry.key, entry.value) for entry in settings.settings if entry.family == ANY)
        self._counting[directory] = frozenset(rules if decision == "trusted" else ())
        return Verdict(settings, decision)

    def is_trusted(self, directory: str, families: Iterable[str]) -> bool:
        """Whether agents of these families would start with the project's settings. Changes nothing. Blocking."""
        if self._trust_all or (self._roots and within(directory, self._roots)):
            return True
        settings = self._scanner.look(directory).read_by(families)
        return not settings.settings or self._decisions.decision(settings) == "trusted"

    def decide(self, settings: ProjectSettings, *, trusted: bool) -> None:
        """Store a user's decision. Blocking. Raises ShimError."""
        self._decisions.decide([settings], trusted=trusted)

    def counts(self, directory: str, permission: str, pattern: str) -> bool:
        """Whether an `allow` rule of the project's config applies: only if the trusted config contained it. Reads no file.

        A rule that an agent adds during a turn does not apply until the user trusts it.
        """
        counting = self._counting.get(directory, frozenset())
        if counting is None or self._trust_all:
            return True
        is_for_all = permission == pattern == "*" and ("permission", "everything") in counting
        return is_for_all or (f"permission.{permission}", pattern) in counting


def each_agents_settings(settings: ProjectSettings, families: Iterable[Sequence[str]]) -> list[ProjectSettings]:
    """The settings that each agent would read, without duplicates, since a user trusts a directory for all agents."""
    rows = {part.digest: part for part in (settings.read_by(names) for names in families)}
    return [part for digest, part in rows.items() if digest]
