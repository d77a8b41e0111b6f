"""Limits wrong passwords by address with a token bucket. Pure; memory is bounded.

Repeating the same wrong password costs nothing, because an attacker learns nothing from it. So a misconfigured client that
asks every second does not lock its owner out.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from dataclasses import dataclass

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
