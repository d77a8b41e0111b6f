"""Decides who may use the server, by Host, Origin and credentials. Pure, except for the middleware.

    Host         loopback names, IP addresses, the setting `hostname`, this machine's name, `allowed_hosts`; else 403. This stops
                 a page whose name resolves to us (DNS rebinding), even without a password
    Origin       our own, and those of `shim.http.cors`; else 403, for reads too, and for embedded requests of other sites
                 (Sec-Fetch-Site). A request without both headers does not come from a page of another site
    password     Basic (user and password), Bearer (the password), or `?auth_token=` with base64 of `user:password`; else 401
                 with the challenge that makes browsers ask. Clients of 2.x always send the user `opencode`, so it is always
                 accepted. A token of `shim.http.pairing` counts like the password, and our own pages may send it as a cookie.
                 Preflights, `PUBLIC`, pairing links and WebSockets with a ticket need no password

Source: native OpenCode 1.18.33, tested with and without each: it prefers `auth_token` to the header, does not know Bearer, checks
neither Host nor Origin, and lets a terminal's WebSocket with `?ticket=` pass, for the terminal's route to check.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import ipaddress
import re
import socket
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from typing import TypeVar
from urllib.parse import urlsplit

import structlog
from aiohttp import web
from aiohttp.typedefs import Handler

from shim.http import cors
from shim.http.pairing import Pairing
from shim.http.people import OWNER, Person, keeps_to_roots, needed_role
from shim.lib.clock import Clock
from shim.lib.errors import (
    AgentTokenRefused,
    EmbeddingNotAllowed,
    HostNotAllowed,
    NotForOnesRoots,
    OriginNotAllowed,
    PairingLinkSpent,
    PasswordRefused,
    PersonUnknown,
    RoleTooLow,
    TooManyLogins,
)
from shim.lib.ids import AGENT_TOKEN
from shim.lib.settings import Settings
from shim.lib.tasks import work_for

# --- wrong passwords --------------------------------------------------------------------------------------------

BURST = 20
"""Different wrong passwords that an address may try in a row."""
REFILL_S = 5.0
"""Seconds until an address gets one more try: some 17,000 a day."""
ADDRESSES = 4096
"""Maximum addresses in memory; the one with the oldest failure is dropped."""
IPV6_NETWORK_BITS = 64
"""Bits of an IPv6 network that count as one address, because a client usually owns the whole network."""


@dataclass(slots=True)
class _Bucket:
    tries: float
    at_s: float
    last: bytes


class Throttle:
    """The failed logins of one server. Times are seconds of any monotonic clock."""

    def __init__(self, *, burst: int = BURST, refill_s: float = REFILL_S, addresses: int = ADDRESSES) -> None:
        self._burst = burst
        self._refill_s = refill_s
        self._addresses = addresses
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __len__(self) -> int:
        return len(self._buckets)

    def wait_s(self, address: str, now_s: float) -> float:
        """Return the seconds that this address must wait before its next try; 0 if it may try now."""
        bucket = self._buckets.get(network(address))
        if bucket is None:
            return 0.0
        tries = self._tries(bucket, now_s)
        return 0.0 if tries >= 1 else (1 - tries) * self._refill_s

    def note_failure(self, address: str, guess: bytes, now_s: float) -> None:
        """Count a wrong password. `guess`: its digest."""
        key = network(address)
        bucket = self._buckets.pop(key, None) or _Bucket(float(self._burst), now_s, b"")
        cost = 0 if bucket.last == guess else 1
        self._buckets[key] = _Bucket(self._tries(bucket, now_s) - cost, now_s, guess)
        while len(self._buckets) > self._addresses:
            self._buckets.popitem(last=False)

    def _tries(self, bucket: _Bucket, now_s: float) -> float:
        return min(float(self._burst), bucket.tries + max(0.0, now_s - bucket.at_s) / self._refill_s)


def network(address: str) -> str:
    """Return the key under which an address is counted: itself, or its IPv6 network."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address[:100]
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((int(parsed), IPV6_NETWORK_BITS), strict=False))
    return str(parsed)


log = structlog.get_logger(__name__)
HandlerT = TypeVar("HandlerT", bound=Handler)

# --- who may use the server -------------------------------------------------------------------------------------

TOKEN_QUERY = "auth_token"  # noqa: S105 - a name
TICKET_QUERY = "ticket"
HEALTH = frozenset({"/health", "/global/health"})
"""Health routes for monitors, which have no password. They only say that the server runs. `/api/health` needs the password,
because a TUI of 2.x learns from its 401 that it must ask the user for one."""
PUBLIC = HEALTH | {"/site.webmanifest", "/web-app-manifest-192x192.png", "/web-app-manifest-512x512.png"}
"""Paths that anyone may read. Browsers request the files without credentials, so native OpenCode serves them openly too."""
TICKET_PATH = re.compile(r"(/api)?/pty/[^/]+/connect")
"""A terminal's WebSocket, which browsers cannot open with a header. Its query may carry a ticket from `connect-token`, which
needs the password. The route must check the ticket unless `is_authorized`."""
LINK = re.compile(r"/auth/connect/[^/]+|/x-reply/[^/]+(/[^/]+)?")
"""A pairing link, or one that answers an ask. Its code is the credential, which the route checks."""
REPLY = re.compile(r"/x-reply/[^/]+/[^/]+")
USER = "opencode"
"""The user of every client of 2.x, and our default."""
COOKIE = "opencode_session"
"""The cookie's name, before its port: browsers share cookies between all ports of a host."""
READING = frozenset({"GET", "HEAD", "OPTIONS"})
LOOPBACK_NAMES = re.compile(r"(.*\.)?localhost\.?|ip6-localhost|ip6-loopback")
DEFAULT_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}

AUTHORIZED: web.RequestKey[bool] = web.RequestKey("authorized", bool)
AGENT: web.RequestKey[str] = web.RequestKey("agent", str)
"""The session whose agent makes a request; "" for a person."""
TOKEN_ID: web.RequestKey[str] = web.RequestKey("token_id", str)
"""The id of the pairing token of a request; "" for the password, and without a password."""


PERSON: web.RequestKey[Person] = web.RequestKey("person", Person)
"""The named person who makes a request; absent for OWNER."""


class Connection:
    """The connection of a request. It does not hold the request, which holds it: a cycle would wait for the collector."""

    def __init__(self, request: web.Request) -> None:
        self._protocol = request.protocol

    def cut_off(self) -> None:
        """Close the connection at once, even in the middle of an answer."""
        if self._protocol.transport is not None:
            self._protocol.transport.abort()


@dataclass(frozen=True, slots=True)
class RelayedClient:
    """The client of another server of the cluster, which has checked it. `token_id`: as `check_credentials` returns it."""

    token_id: str | None
    person: Person = OWNER


RELAYED: web.RequestKey[RelayedClient] = web.RequestKey("relayed", RelayedClient)
"""Marks a request of a client of another server of the cluster (`shim.cluster.relay`)."""
CONNECTION: web.RequestKey[Connection] = web.RequestKey("connection", Connection)


@dataclass(frozen=True, slots=True)
class Secrets:
    """Digests of the password, which is not kept itself. A comparison takes constant time."""

    pairs: tuple[bytes, ...]
    bearer: bytes

    @classmethod
    def of(cls, username: str, password: str) -> Secrets:
        users = dict.fromkeys((username, USER))
        return cls(tuple(_digest(f"{user}:{password}".encode()) for user in users), _digest(password.encode()))

    def admits(self, attempt: Credentials) -> bool:
        digest = _digest(attempt.value)
        # A list, not a generator: every comparison runs, so that the time tells nothing.
        matches = [hmac.compare_digest(digest, expected) for expected in ((self.bearer,) if attempt.is_bearer else self.pairs)]
        return any(matches)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The credentials of a request: `user:password`, or with Bearer the password."""

    value: bytes = field(repr=False)
    is_bearer: bool = False

    def digest(self) -> bytes:
        """Hash the credentials, to recognise them again without keeping them."""
        return _digest(self.value)

    def secret(self) -> str:
        """Return the password part, which may also be a pairing token."""
        text = self.value.decode("utf-8", "replace")
        return text if self.is_bearer else text.partition(":")[2]


def _digest(value: bytes) -> bytes:
    return blake2b(value, digest_size=32).digest()


def credentials(query: Mapping[str, str], headers: Mapping[str, str]) -> Credentials | None:
    """Return the credentials of a request; None if it has none. Unreadable ones count as wrong credentials."""
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
    """Decode base64 in any form that clients send: padded or not, in either alphabet, with `+` decoded to a blank."""
    plain = text.replace(" ", "+").replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return b""


# --- names ---------------------------------------------------------------------------------------------


def host_allowed(host: str, names: Iterable[str]) -> bool:
    """Whether a Host header (with or without a port) names this server. All IP addresses do, as DNS cannot rebind them."""
    name = _split(host)[0]
    if name is None:
        return False
    return "*" in names or name in names or _is_loopback_or_address(name)


@lru_cache(maxsize=64)
def _is_loopback_or_address(name: str) -> bool:
    if LOOPBACK_NAMES.fullmatch(name):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address or a name."""
    if LOOPBACK_NAMES.fullmatch(host):
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def same_origin(origin: str, host: str) -> bool:
    """Whether an origin and a Host header name the same server. Default ports may be absent."""
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


@lru_cache(maxsize=64)
def _split(host: str) -> tuple[str | None, int | None]:
    """Split `NAME[:PORT]`, in lower case and without brackets; (None, None) if it is no host."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+))(?::(\d{1,5}))?", host)
    if match is None:
        return None, None
    return (match[1] or match[2]).lower(), int(match[3]) if match[3] else None


# --- the door --------------------------------------------------------------------------------------------


class AgentDoor:
    """Tells whose an agent's token is. In: `is_on`, whether agents have any. `session_of` is set before an agent starts."""

    def __init__(self, *, is_on: bool) -> None:
        self.is_on = is_on
        self.session_of: Callable[[str], str | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Access:
    """The access rules of one server, from its settings. `secrets` is None without a password."""

    secrets: Secrets | None
    names: frozenset[str]
    origins: tuple[str, ...]
    trust_proxy: bool
    base_path: str
    throttle: Throttle
    pairing: Pairing
    clock: Clock
    agents: AgentDoor
    user_header: str = ""
    """Header in which a proxy names who has signed in; "" without such a proxy."""

    @classmethod
    def of(cls, settings: Settings, clock: Clock) -> Access:
        """Build the rules from the settings. This machine's name is allowed where others reach it.

        On a loopback address it is not: a router may give it, and redirect it to us.
        """
        names = {settings.hostname.lower().replace("*", ""), *(name.lower() for name in settings.allowed_hosts)}
        if not is_loopback(settings.hostname):
            machine = socket.gethostname().lower()
            names |= {machine, f"{machine}.local"}
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
            AgentDoor(is_on=settings.mcp),
            settings.trusted_user_header if settings.trust_proxy else "",
        )

    def epoch_s(self) -> float:
        """Return the wall time in epoch seconds, as tokens use it."""
        return self.clock.now_ms() / 1000

    def path(self, request: web.Request) -> str:
        """Return the path without base path and trailing `/`. `%2F` stays encoded, as routes do not treat it as `/`."""
        raw = request.rel_url.raw_path
        return self.route_of(raw if "%2f" in raw.lower() else request.path)

    def route_of(self, canonical: str) -> str:
        """Return a route without the base path and a `/` at its end."""
        if self.base_path and (canonical + "/").startswith(self.base_path + "/"):
            canonical = canonical[len(self.base_path) :]
        return canonical.rstrip("/") or "/"

    def host(self, request: web.Request) -> str:
        """Return the Host that the client used; with `trust_proxy`, the one that the proxy reports."""
        host = self._forwarded_value(request, "X-Forwarded-Host") if self.trust_proxy else ""
        return host or request.headers.get("Host", "")

    def _forwarded_value(self, request: web.Request, name: str) -> str:
        """Return the last entry of a forwarding header, the only one that the proxy itself wrote."""
        lines = request.headers.getall(name, ()) if self.trust_proxy else ()
        return ",".join(lines).rpartition(",")[2].strip()

    def address(self, request: web.Request) -> str:
        """Return the client's address; with `trust_proxy`, the one that the proxy reports.

        A reported port is removed, because each connection has another one.
        """
        forwarded = self._forwarded_value(request, "X-Forwarded-For")
        return _split(forwarded)[0] or forwarded or request.remote or ""

    def check_host(self, request: web.Request) -> None:
        """Raise HostNotAllowed for a foreign Host. A request without the header passes: it does not come from a browser."""
        host = self.host(request)
        if host and not host_allowed(host, self.names):
            raise HostNotAllowed(host, _split(host)[0] or "NAME")

    def check_origin(self, request: web.Request) -> None:
        """Raise Forbidden for a page that is neither ours nor allowed. Preflights pass, and grant nothing.

        Reads are refused too: the browser would hide the answer from the page, but a search would have run, a wrong password
        would be counted, and an embedded script would execute. Embedded requests have no Origin, but browsers mark their site.
        """
        if request.method == "OPTIONS":
            return
        for origin in request.headers.getall("Origin", ()):
            if not (cors.is_allowed_origin(origin, self.origins) or same_origin(origin, self.host(request))):
                raise OriginNotAllowed(origin)
        if "Origin" not in request.headers and request.headers.get("Sec-Fetch-Site") == "cross-site" and not _is_link(request):
            raise EmbeddingNotAllowed

    def check_credentials(self, request: web.Request, now_s: float) -> str | None:
        """Return the id of the request's pairing token, or "" for the password; None if the request needs neither.

        Raises Unauthorized, TooManyLogins.
        """
        if self.secrets is None:
            return ""
        attempt = credentials(request.query, request.headers)
        path = self.path(request)
        # Only public paths and WebSockets with a ticket pass without credentials. Wrong credentials are refused there too.
        if attempt is None:
            if self.user_header and (name := self._forwarded_value(request, self.user_header)):
                return self._token_of_person(name)
            if (cookie := self._token_of_cookie(request)) is not None:
                return cookie
            if request.method == "OPTIONS" or (request.method in READING and (path in PUBLIC or LINK.fullmatch(path))):
                return None
            if request.method == "POST" and REPLY.fullmatch(path):
                return None
            if has_ticket(request):
                return None
            raise PasswordRefused("This server wants a password")
        self.check_tries(request, now_s)
        if self.secrets.admits(attempt):
            return ""
        if (token_id := self.pairing.identify(attempt.secret(), self.epoch_s())) is not None:
            return token_id
        address = self.address(request)
        self.throttle.note_failure(address, attempt.digest(), now_s)
        log.warning("login.failed", address=address[:100], why="wrong user or password")
        raise PasswordRefused("The user or password is wrong")

    def _token_of_person(self, name: str) -> str:
        """Return the id of the token of a person whom a proxy has signed in. Raises PersonUnknown."""
        tokens = self.pairing.tokens(self.epoch_s())
        found = next((token.id for token in tokens if not token.is_device and token.person.name == name), None)
        if found is None:
            raise PersonUnknown(name)
        return found

    def agent_of(self, request: web.Request) -> str:
        """Return the session whose agent makes a request, by its token; "" for a person, who shows none.

        Raises AgentTokenRefused for the token of a process that has ended, and for one that is shown elsewhere than at `/mcp`.
        """
        attempt = credentials(request.query, request.headers)
        secret = attempt.secret() if attempt is not None else ""
        if not secret.startswith(AGENT_TOKEN):
            return ""
        session_id = self.agents.session_of(secret)
        if session_id is None or not getattr(request.match_info.handler, _FOR_AGENTS, False):
            raise AgentTokenRefused
        return session_id

    def _token_of_cookie(self, request: web.Request) -> str | None:
        """Return the id of the token in our page's cookie. Requests of other pages carry the cookie too, and do not count."""
        token = request.cookies.get(self.cookie_name(request))
        if token is None:
            return None
        origin = request.headers.get("Origin")
        site, mode = request.headers.get("Sec-Fetch-Site", "none"), request.headers.get("Sec-Fetch-Mode", "")
        ours = origin is None or same_origin(origin, self.host(request))
        opened = request.method == "GET" and mode == "navigate"  # a link from another page, which cannot read the answer
        may_show = ours and (site in ("same-origin", "none") or opened)
        return self.pairing.identify(token, self.epoch_s()) if may_show else None

    def is_good(self, token_id: str) -> bool:
        """Whether a pairing token is still valid. "" stands for the password, which always is."""
        return not token_id or self.pairing.is_good(token_id)

    def cookie_name(self, request: web.Request) -> str:
        """Return the name of this server's cookie, which contains the port that the client uses."""
        scheme = "https" if self.secure(request) else "http"
        return f"{COOKIE}_{_split(self.host(request))[1] or DEFAULT_PORTS[scheme]}"

    def secure(self, request: web.Request) -> bool:
        """Whether the client uses HTTPS; with `trust_proxy`, as the proxy reports."""
        return (self._forwarded_value(request, "X-Forwarded-Proto") or request.scheme) == "https"

    def redeem(self, request: web.Request, code: str, now_s: float) -> str:
        """Exchange a pairing code for a token. Raises PairingLinkSpent, and TooManyLogins after too many wrong codes."""
        self.check_tries(request, now_s)
        token = self.pairing.redeem(code, now_s, self.epoch_s(), request.headers.get("User-Agent", ""))
        if token is None:
            self.note_wrong(request, code, now_s)
            raise PairingLinkSpent
        return token

    def check_tries(self, request: web.Request, now_s: float) -> None:
        """Raise TooManyLogins if the request's address has tried too many wrong passwords or codes."""
        if (wait_s := self.throttle.wait_s(self.address(request), now_s)) > 0:
            raise TooManyLogins(wait_s)

    def note_wrong(self, request: web.Request, code: str, now_s: float) -> None:
        """Count a wrong code of the request's address."""
        self.throttle.note_failure(self.address(request), _digest(code.encode("utf-8", "surrogateescape")), now_s)


ACCESS: web.AppKey[Access] = web.AppKey("access", Access)
_ACCESS: web.RequestKey[Access] = web.RequestKey("access", Access)


def access_of(request: web.Request) -> Access:
    """Return the access rules of a request. They hold for the whole server, also for the sub-application at the base path."""
    return request[_ACCESS]


def _is_link(request: web.Request) -> bool:
    """Whether the request follows a link to a page of ours, as opposed to a frame in another page."""
    headers = request.headers
    return headers.get("Sec-Fetch-Mode") == "navigate" and headers.get("Sec-Fetch-Dest", "document") == "document"


def is_authorized(request: web.Request) -> bool:
    """Whether the request has valid credentials, or needs none because no password is set.

    False only for requests that pass without credentials (`PUBLIC`, a ticket).
    """
    return request.get(AUTHORIZED, False)


def has_ticket(request: web.Request) -> bool:
    """Whether the request opens a terminal's WebSocket and shows a ticket, which may be wrong."""
    path = access_of(request).path(request)
    return request.method == "GET" and TICKET_PATH.fullmatch(path) is not None and bool(request.query.get(TICKET_QUERY))


def token_of(request: web.Request) -> str:
    """Return the id of a request's pairing token; "" if it has none."""
    return request.get(TOKEN_ID, "")


def may_use(request: web.Request, token_id: str | None) -> bool:
    """Whether a ticket of this pairing token ("" if none) is good; None is no ticket. The client's server asks again."""
    return token_id is not None and (RELAYED in request or access_of(request).is_good(token_id))


@contextmanager
def while_good(request: web.Request, token_id: str) -> Generator[None]:
    """Close the connection of a request at once when its pairing token is revoked. "" is no token.

    The token of a relayed request is watched by the client's server.
    """
    if not token_id or RELAYED in request:
        yield
        return
    with access_of(request).pairing.used(token_id, request[CONNECTION]):
        yield


_FOR_AGENTS = "__for_agents__"


def for_agents(handler: HandlerT) -> HandlerT:
    """Mark a route's handler as one that takes the tokens of agents (`AGENT`). All others refuse them."""
    setattr(handler, _FOR_AGENTS, True)
    return handler


@web.middleware
def gate(request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
    """Check access before any other work on a request."""
    access = request[_ACCESS] = request.app[ACCESS]
    if RELAYED in request:
        token_id, person = request[RELAYED].token_id, request[RELAYED].person
    else:
        access.check_host(request)
        access.check_origin(request)
        agent = request[AGENT] = access.agent_of(request) if access.agents.is_on else ""
        token_id = "" if agent else access.check_credentials(request, asyncio.get_running_loop().time())
        person = access.pairing.person(token_id) if token_id else OWNER
        if person is None:  # revoked at this moment
            raise PasswordRefused("The token was revoked")
    request[AUTHORIZED], request[TOKEN_ID] = token_id is not None, token_id or ""
    if person is not OWNER:
        request[PERSON] = person
        if RELAYED not in request:
            _check_role(request, person)
    request[CONNECTION] = Connection(request)
    return handler(request) if not token_id and person is OWNER else _serve_while_good(request, handler, token_id or "")


def _check_role(request: web.Request, person: Person) -> None:
    """Raise RoleTooLow or NotForOnesRoots for a route that a person may not use. A path without one may be of the web UI."""
    resource = request.match_info.route.resource
    if resource is None:
        return
    path = request.app[ACCESS].route_of(resource.canonical)
    needed = needed_role(request.method, path)
    if needed is None or request.method == "OPTIONS":
        return
    if not person.may(needed):
        raise RoleTooLow(person.name, person.role, needed)
    if not person.sees_all and not keeps_to_roots(path):
        raise NotForOnesRoots(person.name)


async def _serve_while_good(request: web.Request, handler: Handler, token_id: str) -> web.StreamResponse:
    with while_good(request, token_id), work_for(request.get(PERSON, OWNER).name or None):
        return await handler(request)
