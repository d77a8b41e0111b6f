"""`opencode-shim pair` and `people`: shows a link for another device as a QR code, lists the paired devices and revokes them.

It talks to the server over HTTP, like `shim.cli.transfer`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit, urlunsplit

from shim.cli import screen
from shim.cli.screen import LOOPBACK
from shim.cli.transfer import request
from shim.lib.errors import ShimError
from shim.lib.settings import Settings
from universal.lib.jsonvalue import arr, obj, text

ELSEWHERE = ("192.0.2.1", 9)
"""An unused address (RFC 5737). Connecting a UDP socket to it shows which of our addresses packets would leave from."""
QUIET = 2
"""Light modules around the code. The norm asks for twice as many, but cameras read this too."""
BLOCKS = {(False, False): "█", (False, True): "▀", (True, False): "▄", (True, True): " "}
"""(upper is dark, lower is dark) -> character, for light text on a dark terminal."""
NAME_SHOWN = 60
"""Maximum number of characters of a client's name in the list."""


async def show(settings: Settings, url: str, out: screen.Console) -> int:
    """Print the valid tokens, the newest first, a line each."""
    rows = [obj(row) for row in arr(await request(settings, "GET", f"{url}/api/pair"))]
    for row in rows:
        name = "".join(c if c.isprintable() else " " for c in text(row.get("name")))[:NAME_SHOWN] or "(no name)"
        screen.line(out, f"{text(row.get('id'))}  {_day(row.get('created'))} to {_day(row.get('expires'))}  {name}")
    if not rows:
        screen.line(out, "No device is paired. `opencode-shim pair` shows a link for one (docs/clients.md).")
    return 0


async def revoke(settings: Settings, url: str, token_id: str, out: screen.Console) -> int:
    """Revoke a token. Raises ShimError if there is none with this id."""
    await request(settings, "DELETE", f"{url}/api/pair/{quote(token_id, safe='')}")
    screen.line(out, f"Revoked: the server now refuses {token_id} and has closed its streams and terminals.")
    return 0


async def add_person(settings: Settings, url: str, name: str, terms: Mapping[str, object], out: screen.Console) -> int:
    """Create a person and print the token, which is shown once. Raises ShimError."""
    answer = obj(await request(settings, "POST", f"{url}/api/people", {"name": name, **terms}))
    screen.line(out, text(answer.get("token")), "bold")
    role = terms.get("role")
    screen.line(out, f"The password of {name} ({role}), shown once (OPENCODE_SERVER_PASSWORD of OpenCode's clients).")
    return 0


async def change_person(settings: Settings, url: str, name: str, terms: Mapping[str, object], out: screen.Console) -> int:
    """Change what a person may do. Raises ShimError."""
    await request(settings, "PATCH", f"{url}/api/people/{quote(name, safe='')}", dict(terms))
    screen.line(out, f"{name} has this from now on, with the same token.")
    return 0


async def show_people(settings: Settings, url: str, out: screen.Console) -> int:
    """Print a line for each person."""
    rows = [obj(row) for row in arr(await request(settings, "GET", f"{url}/api/people"))]
    for row in rows:
        where = " ".join(map(str, arr(row.get("roots")))) or "all directories"
        where += ", own sessions" if row.get("ownSessions") else ""
        limits, usage = obj(row.get("limits")), obj(row.get("usage"))
        used = ", ".join(
            f"{usage.get(key, 0):.4g}{f' of {limit:g}' if (limit := limits.get(f'max_{key}')) else ''} {words}"
            for key, words in (("running", "at work"), ("queued", "waiting"), ("cost_day", "USD today"))
        )
        screen.line(out, f"{text(row.get('name'))}  {text(row.get('role'))}  until {_day(row.get('expires'))}  {where}  {used}")
    if not rows:
        screen.line(out, "There are no people beside you. `opencode-shim people add NAME` lets one in (docs/people.md).")
    return 0


async def remove_person(settings: Settings, url: str, name: str, out: screen.Console) -> int:
    """Remove a person. Raises ShimError if there is none of this name."""
    rows = [obj(row) for row in arr(await request(settings, "GET", f"{url}/api/people"))]
    ids = [text(row.get("id")) for row in rows if row.get("name") == name]
    if not ids:
        raise ShimError(f"There is nobody with the name {name}. `opencode-shim people list` shows all.")
    await request(settings, "DELETE", f"{url}/api/pair/{quote(ids[0], safe='')}")
    screen.line(out, f"{name} is refused from now on, and what was open is closed.")
    return 0


def _day(epoch_ms: object) -> str:
    return f"{datetime.fromtimestamp(epoch_ms / 1000, UTC):%Y-%m-%d}" if isinstance(epoch_ms, int | float) else "?"


async def invite(settings: Settings, url: str, out: screen.Console, at: str | None) -> int:
    """Print a link that lets one device in, as text and as a QR code. Raises ShimError if no device could reach it."""
    base = (at or settings.public_url or reachable(url)).rstrip("/")
    answer = obj(await request(settings, "POST", f"{url}/api/pair"))
    link = f"{base}/auth/connect/{text(answer.get('code'))}"
    for row in qr_rows(link):
        screen.line(out, row)
    screen.line(out, "")
    screen.line(out, link, "bold")
    seconds = answer.get("expires_in")
    minutes = int(seconds) // 60 if isinstance(seconds, int | float) else 0
    screen.line(
        out,
        f"Open it on the other device within {minutes} minutes. It works once. List the devices: opencode-shim pair list",
    )
    if base.startswith("http://"):
        screen.line(out, "Without HTTPS, anyone who listens in on the network can read everything (docs/install.md).", "yellow")
    return 0


def reachable(url: str, own_address: Callable[[], str] | None = None) -> str:
    """Return the server's URL for other machines. Raises ShimError for a server that only this machine reaches."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host in LOOPBACK or host.startswith("127."):
        raise ShimError(
            f"The server listens on {host}, which only this machine reaches. Give its address behind a proxy or tunnel"
            " (opencode-shim pair --at https://HOST, or the setting public_url), or serve with --hostname 0.0.0.0 and a password."
        )
    if host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not listened on
        host = (own_address or lan_address)()
    return urlunsplit((parts.scheme, f"[{host}]:{parts.port}" if ":" in host else f"{host}:{parts.port}", parts.path, "", ""))


def lan_address() -> str:
    """Return the address from which this machine's packets leave. It sends no packet. Raises ShimError."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(ELSEWHERE)
        except OSError as error:
            raise ShimError(f"This machine has no network: {error.strerror}. Give an address: --at http://HOST:PORT") from error
        return str(sock.getsockname()[0])


def qr_rows(link: str) -> list[str]:
    """Return a QR code with its quiet zone as lines of half blocks, two rows of modules in each line.

    Light terminals show it with dark and light reversed, which cameras read too.
    """
    import segno  # late: only this command needs it

    rows = [list(row) for row in segno.make(link, error="m", micro=False).matrix_iter(border=QUIET)]
    if len(rows) % 2:
        rows.append([0] * len(rows[0]))
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return ["".join(BLOCKS[bool(upper), bool(lower)] for upper, lower in zip(top, low, strict=True)) for top, low in pairs]
