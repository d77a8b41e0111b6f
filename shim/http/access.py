"""Who may use the server: credentials, names that it is called by, pages that may call it. Pure, but for the middleware.

    Host         loopback names, IP addresses, the setting `hostname`, this machine's name, `allowed_hosts`; else 403. A page
                 whose name was made to point at us (DNS rebinding) is stopped by this, also where no password is set
    Origin       our own, and those of `shim.http.cors`; else 403, also for reading, and for what other sites embed
                 (Sec-Fetch-Site). Requests without both do not come from a page of another site
    password     Basic (user and password), Bearer (the password), or `?auth_token=` with base64 of `user:password`; else 401
                 with the challenge that makes browsers ask. Clients of 2.x know no other user than `opencode`, so that one is
                 always right too. A token of `shim.http.pairing` is as good as the password, and our own pages may show it as
                 a cookie. Preflights, `PUBLIC`, pairing links and WebSockets with a ticket pass

Source: native OpenCode 1.18.33, asked with and without each: `auth_token` goes before the header, Bearer is unknown to it, it
checks neither Host nor Origin, and a terminal's WebSocket with `?ticket=` passes, for the terminal's own route to check.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import re
import socket
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from urllib.parse import urlsplit

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from shim.clock import Clock
from shim.errors import EmbeddingNotAllowed, HostNotAllowed, OriginNotAllowed, PairingLinkSpent, TooManyLogins, Unauthorized
from shim.http import cors
from shim.http.pairing import Pairing
from shim.http.throttle import Throttle
from shim.settings import Settings

log = structlog.get_logger(__name__)

TOKEN_QUERY = "auth_token"  # noqa: S105 - a name
TICKET_QUERY = "ticket"
HEALTH = frozenset({"/health", "/global/health"})
"""That we live, and no more: what watches servers has no password. `/api/health` wants it: by its 401 a TUI of 2.x learns that
there is one, and asks the person for it."""
PUBLIC = HEALTH | {"/site.webmanifest", "/web-app-manifest-192x192.png", "/web-app-manifest-512x512.png"}
"""Reading these needs no password. The others are asked for by browsers without credentials, as native knows too."""
TICKETED = re.compile(r"(/api)?/pty/[^/]+/connect")
"""A terminal's WebSocket, which browsers cannot open with a header. A ticket in its query was made by `connect-token`, which
needs the password; the route must take nothing but a ticket that is good (`authorized` tells it whether one is needed)."""
LINK = re.compile(r"/auth/connect/[^/]+")
"""A pairing link: its code is the credential, and the route looks at it."""
USER = "opencode"
"""The user of every client of 2.x, and ours if nothing else is set."""
COOKIE = "opencode_session"
"""With the port after it: cookies are the same for all ports of a name."""
READING = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = re.compile(r"(.*\.)?localhost\.?|ip6-localhost|ip6-loopback")
DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}

AUTHORIZED: web.RequestKey[bool] = web.RequestKey("authorized", bool)
TOKEN_ID: web.RequestKey[str] = web.RequestKey("token_id", str)
"""The pairing token that a request was admitted by; "" for the password, and where none is set."""


class Connection:
    """The connection that a request came by."""

    def __init__(self, request: web.Request) -> None:
        self._request = request

    def cut_off(self) -> None:
        """Close it at once, also in the middle of an answer."""
        if self._request.transport is not None:
            self._request.transport.abort()


CONNECTION: web.RequestKey[Connection] = web.RequestKey("connection", Connection)


@dataclass(frozen=True, slots=True)
class Secrets:
    """The password's digests; the password itself is not kept. Comparing takes the same time whatever is wrong."""

    pairs: tuple[bytes, ...]
    bearer: bytes

    @classmethod
    def of(cls, username: str, password: str) -> Secrets:
        """In: the settings' values."""
        users = dict.fromkeys((username, USER))
        return cls(tuple(_digest(f"{user}:{password}".encode()) for user in users), _digest(password.encode()))

    def admits(self, given: Credentials) -> bool:
        """Whether these are the right ones."""
        shown = _digest(given.value)
        right = [hmac.compare_digest(shown, one) for one in ((self.bearer,) if given.is_bearer else self.pairs)]
        return any(right)


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a request shows: `user:password`, or with Bearer the password."""

    value: bytes = field(repr=False)
    is_bearer: bool = False

    def digest(self) -> bytes:
        """To know them again without keeping them."""
        return _digest(self.value)

    def secret(self) -> str:
        """The password's place in them, where a token may stand."""
        text = self.value.decode("utf-8", "replace")
        return text if self.is_bearer else text.partition(":")[2]


def _digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=32).digest()


def credentials(query: Mapping[str, str], headers: Mapping[str, str]) -> Credentials | None:
    """What a request shows; None if it shows nothing. Unreadable ones are credentials too: wrong ones."""
    token = query.get(TOKEN_QUERY)
    if token:
        return Credentials(_decode(token))
    scheme, _, value = headers.get("Authorization", "").strip().partition(" ")
    if scheme.lower() == "basic":
        return Credentials(_decode(value.strip()))
    if scheme.lower() == "bearer":
        return Credentials(value.strip().encode("utf-8", "surrogateescape"), is_bearer=True)
    return None


def _decode(text: str) -> bytes:
    """base64 as clients write it: padded or not, in either alphabet, `+` turned to a blank by a query."""
    plain = text.replace(" ", "+").replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


# --- names ---------------------------------------------------------------------------------------------


def host_allowed(host: str, names: Iterable[str]) -> bool:
    """Whether a Host header (with or without a port) is one of ours. IP addresses all are: no name points at them."""
    name = _split(host)[0]
    if name is None:
        return False
    if LOOPBACK_NAMES.fullmatch(name) or "*" in names or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def same_origin(origin: str, host: str) -> bool:
    """Whether a page of this origin was served under this Host header. Ports that the scheme implies may be left out."""
    try:
        split = urlsplit(origin)
        port = split.port
    except ValueError:
        return False
    if not split.hostname:
        return False
    name, host_port = _split(host)
    implied = DEFAULT_PORTS.get(split.scheme)
    return name == split.hostname and (port or implied) == (host_port or implied)


def _split(host: str) -> tuple[str | None, int | None]:
    """`NAME[:PORT]`, lower-cased, brackets off; (None, None) for what is no host."""
    found = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::(\d{1,5}))?", host)
    if found is None:
        return None, None
    return (found[1] or found[2]).lower(), int(found[3]) if found[3] else None


# --- the door --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of one server, from its settings. `secrets` is None where no password is set."""

    secrets: Secrets | None
    names: frozenset[str]
    origins: tuple[str, ...]
    trust_proxy: bool
    base_path: str
    throttle: Throttle
    pairing: Pairing
    clock: Clock

    @classmethod
    def of(cls, settings: Settings, clock: Clock) -> Access:
        """In: the settings. This machine's name counts as ours: others cannot make it point elsewhere in its own network."""
        machine = socket.gethostname().lower()
        names = {
            settings.hostname.lower().replace("*", ""),
            machine,
            f"{machine}.local",
            *(name.lower() for name in settings.allowed_hosts),
        }
        password = settings.password.get_secret_value() if settings.password is not None else ""
        secrets = Secrets.of(settings.username, password) if password else None
        return cls(
            secrets,
            frozenset(names),
            settings.cors,
            settings.trust_proxy,
            settings.base_path,
            Throttle(),
            Pairing(secrets.bearer if secrets is not None else b""),
            clock,
        )

    def epoch_s(self) -> float:
        """The time of day, as tokens have it."""
        return self.clock.now_ms() / 1000

    def path(self, request: web.Request) -> str:
        """The path without the base path and without a `/` at its end. `%2F` stays: for routes it is no `/` either."""
        raw = request.rel_url.raw_path
        path = raw if "%2f" in raw.lower() else request.path
        if self.base_path and (path + "/").startswith(self.base_path + "/"):
            path = path[len(self.base_path) :]
        return path.rstrip("/") or "/"

    def host(self, request: web.Request) -> str:
        """The name that the client used: with `trust_proxy` what the proxy says it was."""
        return self._forwarded_value(request, "X-Forwarded-Host") or request.headers.get("Host", "")

    def _forwarded_value(self, request: web.Request, name: str) -> str:
        """The last entry of such a header, which the proxy itself wrote: behind those that came, or in a line of its own."""
        lines = request.headers.getall(name, ()) if self.trust_proxy else ()
        return ",".join(lines).rpartition(",")[2].strip()

    def address(self, request: web.Request) -> str:
        """Where the client is: with `trust_proxy` as the proxy says. A port that it tells too is left out: each connection has
        another one."""
        forwarded = self._forwarded_value(request, "X-Forwarded-For")
        return _split(forwarded)[0] or forwarded or request.remote or ""

    def check_host(self, request: web.Request) -> None:
        """Raises HostNotAllowed. A request without the header does not come from a browser."""
        host = self.host(request)
        if host and not host_allowed(host, self.names):
            raise HostNotAllowed(host, _split(host)[0] or "NAME")

    def check_origin(self, request: web.Request) -> None:
        """Raises Forbidden for a page that is neither ours nor allowed. Preflights are answered to all, without a permission.

        Reading too: its browser would hide the answer from the page, but a search has run, a wrong password was counted, and a
        script that it names is run by it. What a page has embedded comes without Origin; browsers then say whose it is.
        """
        if request.method == "OPTIONS":
            return
        for origin in request.headers.getall("Origin", ()):
            if not (cors.is_allowed_origin(origin, self.origins) or same_origin(origin, self.host(request))):
                raise OriginNotAllowed(origin)
        if "Origin" not in request.headers and request.headers.get("Sec-Fetch-Site") == "cross-site" and not _is_link(request):
            raise EmbeddingNotAllowed

    def check_credentials(self, request: web.Request, now_s: float) -> str | None:
        """What the owner has shown: the id of a pairing token, or "" for the password. None if the request may pass without.

        Raises Unauthorized, TooManyLogins.
        """
        if self.secrets is None:
            return ""
        given = credentials(request.query, request.headers)
        path = self.path(request)
        # Only a WebSocket by ticket, or what is public, may pass without; wrong credentials are wrong there too.
        if given is None:
            if (cookie := self._token_of_cookie(request)) is not None:
                return cookie
            if request.method == "OPTIONS" or (request.method in READING and (path in PUBLIC or LINK.fullmatch(path))):
                return None
            if request.method == "GET" and TICKETED.fullmatch(path) and request.query.get(TICKET_QUERY):
                return None
            raise Unauthorized("This server wants a password")
        address = self.address(request)
        wait_s = self.throttle.wait_s(address, now_s)
        if wait_s > 0:
            raise TooManyLogins(wait_s)
        if self.secrets.admits(given):
            return ""
        if (token_id := self.pairing.identify(given.secret(), self.epoch_s())) is not None:
            return token_id
        self.throttle.note_failure(address, given.digest(), now_s)
        log.warning("login.failed", address=address[:100])
        raise Unauthorized("The user or password is wrong")

    def _token_of_cookie(self, request: web.Request) -> str | None:
        """The id of the token that one of our own pages shows. Other pages' requests carry the cookie too, and do not count."""
        token = request.cookies.get(self.cookie_name(request))
        if token is None:
            return None
        origin = request.headers.get("Origin")
        site, mode = request.headers.get("Sec-Fetch-Site", "none"), request.headers.get("Sec-Fetch-Mode", "")
        ours = origin is None or same_origin(origin, self.host(request))
        opened = request.method == "GET" and mode == "navigate"  # a link elsewhere to us: that page cannot read the answer
        may_show = ours and (site in ("same-origin", "none") or opened)
        return self.pairing.identify(token, self.epoch_s()) if may_show else None

    def is_good(self, token_id: str) -> bool:
        """Whether a pairing token was not taken back; "" is none, and stands for the password."""
        return not token_id or self.pairing.is_good(token_id)

    def cookie_name(self, request: web.Request) -> str:
        """The cookie of this server, as its pages are reached."""
        scheme = "https" if self.secure(request) else "http"
        return f"{COOKIE}_{_split(self.host(request))[1] or DEFAULT_PORTS[scheme]}"

    def secure(self, request: web.Request) -> bool:
        """Whether the client came by HTTPS: with `trust_proxy`, as the proxy says."""
        return (self._forwarded_value(request, "X-Forwarded-Proto") or request.scheme) == "https"

    def redeem(self, request: web.Request, code: str, now_s: float) -> str:
        """The token for a pairing code. Raises PairingLinkSpent, and TooManyLogins after too many wrong ones."""
        address = self.address(request)
        wait_s = self.throttle.wait_s(address, now_s)
        if wait_s > 0:
            raise TooManyLogins(wait_s)
        token = self.pairing.redeem(code, now_s, self.epoch_s(), request.headers.get("User-Agent", ""))
        if token is None:
            self.throttle.note_failure(address, _digest(code.encode("utf-8", "surrogateescape")), now_s)
            raise PairingLinkSpent
        return token


ACCESS: web.AppKey[Access] = web.AppKey("access", Access)
_OURS: web.RequestKey[Access] = web.RequestKey("access", Access)


def access_of(request: web.Request) -> Access:
    """The rules that a request came in by: of the whole server, also below the base path, whose application is another."""
    return request[_OURS]


def _is_link(request: web.Request) -> bool:
    """Whether somebody has followed a link to us: a page of its own, no frame in another one."""
    headers = request.headers
    return headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest", "document") == "document"


def is_authorized(request: web.Request) -> bool:
    """Whether the request showed the password, or none is set. False only where it could pass without (`PUBLIC`, a ticket)."""
    return request.get(AUTHORIZED, False)


def token_of(request: web.Request) -> str:
    """The id of the pairing token that a request was admitted by; "" if it was none."""
    return request.get(TOKEN_ID, "")


@contextmanager
def while_good(request: web.Request, token_id: str) -> Generator[None]:
    """Close the connection of a request at once when this pairing token is taken back. "" is no token."""
    if not token_id:
        yield
        return
    with access_of(request).pairing.used(token_id, request[CONNECTION]):
        yield


@web.middleware
async def gate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Nothing is done, looked up or said before a request has come through here."""
    access = request[_OURS] = request.app[ACCESS]
    access.check_host(request)
    access.check_origin(request)
    token_id = access.check_credentials(request, asyncio.get_running_loop().time())
    request[AUTHORIZED], request[TOKEN_ID] = token_id is not None, token_id or ""
    request[CONNECTION] = Connection(request)
    with while_good(request, token_id or ""):
        return await handler(request)
