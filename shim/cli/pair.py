"""`opencode-shim pair`: a link for another device as a QR code, the tokens of those that came in, and how to take one back.

Over HTTP, as `shim.cli.transfer`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit, urlunsplit

from shim.cli import screen
from shim.cli.screen import LOOPBACK
from shim.cli.transfer import request
from shim.errors import ShimError
from shim.settings import Settings
from universal.jsonvalue import arr, obj, text

ELSEWHERE = ("192.0.2.1", 9)
"""An address of nobody (RFC 5737), asked for only to learn from which of ours packets would leave."""
QUIET = 2
"""Light modules around the code: half of what the norm wants, which cameras read as well."""
BLOCKS = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}
"""(upper is dark, lower is dark) -> character, for light text on a dark terminal."""
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


async def invite(settings: Settings, url: str, out: screen.Console, at: str | None) -> int:
    """Show a link that lets one device in, as text and as a QR code. Raises ShimError where no device could use it."""
    base = (at or settings.public_url or reachable(url)).rstrip("/")
    answer = obj(await request(settings, "POST", f"{url}/api/pair"))
    link = f"{base}/auth/connect/{text(answer.get('code'))}"
    for row in qr_rows(link):
        screen.line(out, row)
    screen.line(out, "")
    screen.line(out, link, "bold")
    seconds = answer.get("expires_in")
    minutes = int(seconds) // 60 if isinstance(seconds, int | float) else 0
    screen.line(out, f"Open it on the other device within {minutes} minutes. It works once. Who came in: opencode-shim pair list")
    if base.startswith("http://"):
        screen.line(out, "Without HTTPS, who listens in on the network can read all of it (docs/install.md).", "yellow")
    return 0


def reachable(url: str, own_address: Callable[[], str] | None = None) -> str:
    """The server's URL as other machines write it. Raises ShimError for a server that only this machine reaches."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in LOOPBACK or host.startswith("127."):
        raise ShimError(
            f"The server listens on {host}, which only this machine reaches. Name its address behind a proxy or tunnel"
            " (opencode-shim pair --at https://HOST, or the setting public_url), or serve with --hostname 0.0.0.0 and a password."
        )
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not listened on
        host = (own_address or lan_address)()
    return urlunsplit((parts.scheme, f"[{host}]:{parts.port}" if ":" in host else f"{host}:{parts.port}", parts.path, "", ""))


def lan_address() -> str:
    """This machine's address on its network: the one that packets to elsewhere leave from. None is sent. Raises ShimError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(ELSEWHERE)
        except OSError as error:
            raise ShimError(f"This machine has no network: {error.strerror}. Name an address: --at http://HOST:PORT") from error
        return str(sock.getsockname()[0])


def qr_rows(link: str) -> list[str]:
    """A QR code as lines of half blocks, two rows of it in each, with its quiet zone. Dark on a light terminal, and reversed."""
    import segno  # late: only this command needs it

    rows = [list(row) for row in segno.make(link, error="m", micro=False).matrix_iter(border=QUIET)]
    if len(rows) % 2:
        rows.append([0] * len(rows[0]))
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return ["".join(BLOCKS[bool(upper), bool(lower)] for upper, lower in zip(top, low, strict=True)) for top, low in pairs]
