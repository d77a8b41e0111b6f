"""Asks for pages that a person's configuration names, and for what they lead to. No project has this server ask for one."""

from __future__ import annotations

import socket
import time
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

URL_S = 1.5
"""Maximum seconds until a page begins to come; it has as many again until it is there."""
KEPT_S, AGAIN_S = 300.0, 30.0
"""Seconds until a page is asked for again, and one that did not come. Until then what came last counts."""


def fetch(url: str, limit: int) -> bytes:
    """What a page holds, at most `limit` bytes of it, in 2 * URL_S seconds. Blocking. Raises OSError, ValueError."""
    from http.client import HTTPConnection, HTTPException, HTTPSConnection  # late: most people name no page
    from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, build_opener

    others: set[str] = set()

    class Redirects(HTTPRedirectHandler):
        """A page that the person names may be anywhere. Where it leads to is not theirs: it must be its own host, or public."""

        def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
            before, after = urlsplit(str(req.full_url)), urlsplit(newurl)
            if after.netloc != before.netloc:
                others.add(after.hostname or "")
            addresses = [row[4][0] for row in socket.getaddrinfo(after.hostname, None)] if after.hostname in others else []
            if after.scheme not in ("http", "https") or not all(map(_is_public, addresses)):
                raise ValueError(f"it leads to {after.scheme}://{after.netloc}, which is not public")
            return super().redirect_request(req, fp, code, msg, headers, newurl)

    class Connection(HTTPConnection):
        """A name may have another address by now (DNS rebinding), so the one that was reached is looked at before the request."""

        def connect(self) -> None:
            super().connect()
            if self.host.lower() in others and not _is_public(self.sock.getpeername()[0]):
                self.close()
                raise ValueError(f"it leads to {self.host}, which is not public")

    class TlsConnection(Connection, HTTPSConnection): ...

    class Open(HTTPHandler, HTTPSHandler):
        def http_open(self, req: Any) -> Any:
            return self.do_open(Connection, req)

        def https_open(self, req: Any) -> Any:
            return self.do_open(TlsConnection, req)

    end, data = time.monotonic() + 2 * URL_S, b""
    try:
        with build_opener(Redirects, Open).open(url, timeout=URL_S) as page:
            while len(data) < limit and (chunk := page.read1(2**16)):
                data += chunk
                if time.monotonic() > end:
                    raise TimeoutError("it came too slowly")
    except HTTPException as error:
        raise ValueError(str(error) or type(error).__name__) from error
    return data[:limit]


def _is_public(address: str | int) -> bool:
    """Whether an address is neither of this machine, nor of its network or its provider."""
    return ip_address(address).is_global
