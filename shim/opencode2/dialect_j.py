"""J, the build of 17 July 2026: how its events, messages and sessions differ from R's. Pure.

Source: `OPENCODE_V2_WIRE` section 1 (renames), recordings `v2-20260717`.
"""

from __future__ import annotations

from shim.opencode2.events import Event2, Wire


def event(event: Event2) -> Event2 | None:
    """One of R's events as J tells it; None if J has no such event."""
    return event


def message(message: Wire) -> Wire | None:
    """One of R's messages as J shows it; None if J has no such message."""
    return message


def session(session: Wire) -> Wire:
    """R's `Session.Info` as J's."""
    return session
