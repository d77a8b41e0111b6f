"""`opencode-shim pair`: the pairing tokens of a server, and how to take one back. Over HTTP, as `shim.cli.transfer`."""

from __future__ import annotations

from datetime import UTC, datetime
from urllib.parse import quote

from shim.cli import screen
from shim.cli.transfer import request
from shim.settings import Settings
from universal.jsonvalue import arr, obj, text

NAME_SHOWN = 60
"""Characters of a client's name that the list shows."""


async def show(settings: Settings, url: str, out: screen.Console) -> int:
    """The tokens that are good, the newest first, a line each."""
    rows = [obj(row) for row in arr(await request(settings, "GET", f"{url}/api/pair"))]
    for row in rows:
        name = "".join(c if c.isprintable() else " " for c in text(row.get("name")))[:NAME_SHOWN] or "(no name)"
        screen.line(out, f"{text(row.get('id'))}  {_day(row.get('created'))} to {_day(row.get('expires'))}  {name}")
    if not rows:
        screen.line(out, "No device is paired. POST /api/pair makes a code for one (docs/clients.md).")
    return 0


async def revoke(settings: Settings, url: str, token_id: str, out: screen.Console) -> int:
    """Take a token back. Raises ShimError if there is none of this id."""
    await request(settings, "DELETE", f"{url}/api/pair/{quote(token_id, safe='')}")
    screen.line(out, f"Revoked: {token_id} is refused from now on, and what was opened with it is closed.")
    return 0


def _day(epoch_ms: object) -> str:
    return f"{datetime.fromtimestamp(epoch_ms / 1000, UTC):%Y-%m-%d}" if isinstance(epoch_ms, int | float) else "?"
