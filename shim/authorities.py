"""The certificate authorities that HTTPS of ours is checked against: read when it is first needed.

aiohttp's client reads all of the system's when it is imported, twice, which is a tenth of a start; a server asks somebody by
HTTPS only if it has a webhook or takes the web UI from elsewhere. Whoever does passes `authorities()`: without it a client
session in a process that was started by `serve` knows none, and refuses to connect.
"""

from __future__ import annotations

import importlib
import os
import ssl
import sys
from functools import cache

_WHERE = ("SSL_CERT_FILE", "SSL_CERT_DIR")
"""The variables by which OpenSSL is told where they are."""


@cache
def authorities() -> ssl.SSLContext:
    """For `TCPConnector(ssl=)`. Blocking: some 25 ms, the first time."""
    return ssl.create_default_context()


def import_aiohttp_without() -> None:
    """Import aiohttp, and let it find no authorities. Before other threads run: the environment is changed meanwhile."""
    if "aiohttp" in sys.modules:
        return
    before = {name: os.environ.get(name) for name in _WHERE}
    os.environ.update(dict.fromkeys(_WHERE, os.devnull))
    try:
        importlib.import_module("aiohttp")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
