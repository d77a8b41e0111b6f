"""Announces the server on the local network (mDNS, Bonjour), as OpenCode's `--mdns` does.

    service  opencode-PORT._http._tcp.local.   port PORT   TXT path=/   host opencode.local (`mdns_domain`)

Source: `opencode serve --mdns` 1.18.33. Needs the extra `mdns` (zeroconf).
"""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import structlog

from shim.lib.errors import ShimError
from shim.lib.settings import Settings

log = structlog.get_logger(__name__)

TYPE = "_http._tcp.local."
EVERY = frozenset({"0.0.0.0", "::"})  # noqa: S104 - compared, not listened on
CLOSE_S = 2.0
"""Seconds for the goodbye message to be sent."""


class MdnsError(ShimError):
    """The server cannot be announced. The text says why and what to do."""


def require_zeroconf() -> None:
    """Raise MdnsError if zeroconf is not installed."""
    if importlib.util.find_spec("zeroconf") is None:
        raise MdnsError("--mdns needs the package zeroconf: uv tool install 'opencode-shim[mdns]', or leave --mdns out.")


def addresses(hostname: str) -> list[str]:
    """Return the IP addresses at which other machines reach a server on `hostname`, or [] for a loopback address."""
    import ifaddr  # part of the extra `mdns`: zeroconf depends on it

    if hostname not in EVERY:
        try:
            return [] if ipaddress.ip_address(hostname).is_loopback else [hostname]
        except ValueError:
            return []
    reachable: list[str] = []
    for adapter in ifaddr.get_adapters():
        for ip in adapter.ips:
            address = ipaddress.ip_address(ip.ip if isinstance(ip.ip, str) else ip.ip[0])
            if not address.is_loopback and not address.is_link_local and (address.version == 4 or hostname == "::"):
                reachable.append(str(address))
    return reachable


@asynccontextmanager
async def announce(settings: Settings, host: str, port: int) -> AsyncGenerator[None]:
    """Announce the server at this address until the context ends. Failures are only logged: the server works without it."""
    where = addresses(host) if settings.mdns else []
    if settings.mdns and not where:
        log.warning("mdns.skipped", why=f"only this machine reaches {host}; use --hostname 0.0.0.0 and a password")
    if not where:
        yield
        return
    from zeroconf import Error, IPVersion
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

    name = f"opencode-{port}"
    info = AsyncServiceInfo(
        TYPE, f"{name}.{TYPE}", port=port, properties={"path": "/"}, server=f"{settings.mdns_domain}.", parsed_addresses=where
    )
    zeroconf: AsyncZeroconf | None = None
    try:
        try:
            zeroconf = AsyncZeroconf(ip_version=IPVersion.All if host == "::" else IPVersion.V4Only)
            await _register(zeroconf, info)
            log.info("mdns.announced", name=name, host=settings.mdns_domain, addresses=where)
        except (Error, OSError) as error:
            log.warning("mdns.failed", why=str(error) or type(error).__name__, name=name)
        yield
    finally:
        if zeroconf is not None:
            try:
                async with asyncio.timeout(CLOSE_S):
                    await zeroconf.async_unregister_all_services()
                    await zeroconf.async_close()
            except (TimeoutError, Error, OSError) as error:
                log.debug("mdns.not_closed", why=str(error))


async def _register(zeroconf: Any, info: object) -> None:
    """Check that the name is free and announce it. Takes half a second."""
    await (await zeroconf.async_register_service(info))
