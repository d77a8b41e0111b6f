"""Reads what agents tell of the limits of a person's plan: how much of each window is used, and when it begins anew. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from universal.items import Json
from universal.lib.jsonvalue import obj, text, whole

_CODEX_WINDOWS = {300: "five_hour", 10_080: "seven_day"}
"""`windowDurationMins` -> the name that Claude Code has for such a window."""


class PlanWindow(NamedTuple):
    """A limit: `used` from 0 to 1 (or more, where paid usage goes on), `resets_at` in seconds since 1970, 0 if it is not told."""

    name: str
    used: float
    resets_at: int = 0

    @property
    def title(self) -> str:
        return f"{self.name.replace('_', '-')} limit"


def of_claude(info: Mapping[str, Json]) -> list[PlanWindow]:
    """The windows of `rate_limit_info`: `unifiedWindows`, which not every version has, else the one that it is about."""
    rows = obj(info.get("unifiedWindows")) or {text(info.get("rateLimitType")): info}
    return _windows(rows, "utilization", "resetsAt")


def of_codex(snapshot: Mapping[str, Json]) -> list[PlanWindow]:
    """The windows of `rateLimits`. Without a plan (an API key) both are null."""
    prefix = limit if (limit := text(snapshot.get("limitId"))) not in ("", "codex") else ""
    found: list[PlanWindow] = []
    for row in (obj(snapshot.get("primary")), obj(snapshot.get("secondary"))):
        percent, minutes = _used(row.get("usedPercent")), whole(row.get("windowDurationMins"))
        if percent is not None:
            name = _CODEX_WINDOWS.get(minutes, f"{minutes}_minute")
            found.append(PlanWindow(f"{prefix}_{name}" if prefix else name, percent / 100, whole(row.get("resetsAt"))))
    return found


def windows_of(metadata: Mapping[str, Json]) -> list[PlanWindow]:
    """The windows in the metadata of a status item "limits"."""
    return _windows(obj(metadata.get("windows")), "used", "resets_at")


def _windows(rows: Mapping[str, Json], used_key: str, reset_key: str) -> list[PlanWindow]:
    found = [(name, _used(obj(row).get(used_key)), whole(obj(row).get(reset_key))) for name, row in rows.items()]
    return [PlanWindow(name, used, resets_at) for name, used, resets_at in found if name and used is not None]


def _used(value: Json) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 2**31 else None


@dataclass(slots=True)
class PlanLimits:
    """The windows that one process has told. `metadata` of a status item "limits" is {windows: {name: {used, resets_at}}}."""

    windows: dict[str, PlanWindow] = field(default_factory=dict[str, PlanWindow])

    def update(self, told: Iterable[PlanWindow]) -> dict[str, Json] | None:
        """Return the metadata if something changed, else None. Windows that are not told stay as they were."""
        after = self.windows | {window.name: window for window in told}
        if after == self.windows:
            return None
        self.windows = after
        return {"windows": {name: {"used": window.used, "resets_at": window.resets_at} for name, window in after.items()}}

    @property
    def summary(self) -> str:
        """What is used, in words of a person."""
        return ", ".join(f"{window.title}: {window.used:.0%} used" for window in self.windows.values())

    @property
    def resets_at(self) -> int:
        """When the last of the used up windows begins anew, in seconds since 1970; 0 if none is used up."""
        return max((window.resets_at for window in self.windows.values() if window.used >= 1), default=0)
