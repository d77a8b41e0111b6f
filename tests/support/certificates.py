"""X.509 certificates for tests, with Ed25519 keys of PyNaCl (a dependency of NATS's client): no program is needed.

The few fields that TLS looks at are written as DER by hand: names, times, what a key may do, and names of the host.
"""

from __future__ import annotations

import base64
import ipaddress
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from pathlib import Path

from nacl.signing import SigningKey

SEQUENCE, SET, INTEGER, BOOLEAN, BITS, OCTETS, OID, UTF8, TIME = 0x30, 0x31, 0x02, 0x01, 0x03, 0x04, 0x06, 0x0C, 0x17
ED25519, COMMON_NAME = bytes.fromhex("2b6570"), bytes.fromhex("550403")
BASIC, USAGE, NAMES, SUBJECT_KEY, AUTHORITY_KEY = (bytes.fromhex(f"551d{last}") for last in ("13", "0f", "11", "0e", "23"))
DAY = timedelta(days=1)


def der(tag: int, *parts: bytes) -> bytes:
    """A value with its length."""
    content = b"".join(parts)
    if len(content) < 0x80:
        return bytes([tag, len(content)]) + content
    length = len(content).to_bytes((len(content).bit_length() + 7) // 8)
    return bytes([tag, 0x80 | len(length)]) + length + content


ALGORITHM = der(SEQUENCE, der(OID, ED25519))


def pem(kind: str, content: bytes) -> str:
    return f"-----BEGIN {kind}-----\n{base64.encodebytes(content).decode()}-----END {kind}-----\n"


def name(common: str) -> bytes:
    return der(SEQUENCE, der(SET, der(SEQUENCE, der(OID, COMMON_NAME), der(UTF8, common.encode()))))


def extension(kind: bytes, value: bytes, *, critical: bool = False) -> bytes:
    return der(SEQUENCE, der(OID, kind), der(BOOLEAN, b"\xff") if critical else b"", der(OCTETS, value))


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, in files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates. In: `folder`, for its files; `common`, its name."""

    def __init__(self, folder: Path, common: str = "test authority") -> None:
        self._folder = folder
        self._key, self._common = SigningKey.generate(), common
        usage = extension(USAGE, der(BITS, b"\x02\x04"), critical=True)  # it signs certificates
        basic = extension(BASIC, der(SEQUENCE, der(BOOLEAN, b"\xff")), critical=True)
        self.file = self._issue(common, self._key, (basic, usage), age=DAY).cert

    def issue(self, common: str, *hosts: str, age: timedelta = DAY, lasts: timedelta = 30 * DAY) -> Certificate:
        """A certificate for names and addresses, `age` old and valid for `lasts`."""
        names = [
            der(0x87, ipaddress.ip_address(host).packed) if host[0].isdigit() else der(0x82, host.encode()) for host in hosts
        ]
        more = (extension(NAMES, der(SEQUENCE, *names)),) if names else ()
        return self._issue(common, SigningKey.generate(), more, age=age, lasts=lasts)

    def _issue(
        self, common: str, key: SigningKey, more: tuple[bytes, ...], *, age: timedelta, lasts: timedelta = 30 * DAY
    ) -> Certificate:
        begin = datetime.now(UTC) - age
        times = [der(TIME, f"{time:%y%m%d%H%M%S}Z".encode()) for time in (begin, begin + lasts)]
        digests = [sha1(bytes(each.verify_key)).digest() for each in (key, self._key)]
        body = der(
            SEQUENCE,
            der(0xA0, der(INTEGER, b"\x02")),  # version 3
            der(INTEGER, b"\x01" + secrets.token_bytes(8)),
            ALGORITHM,
            name(self._common),
            der(SEQUENCE, *times),
            name(common),
            der(SEQUENCE, ALGORITHM, der(BITS, b"\0", bytes(key.verify_key))),
            der(
                0xA3,
                der(
                    SEQUENCE,
                    *more,
                    extension(SUBJECT_KEY, der(OCTETS, digests[0])),
                    extension(AUTHORITY_KEY, der(SEQUENCE, der(0x80, digests[1]))),
                ),
            ),
        )
        signature = self._key.sign(body).signature
        stem = f"{common.replace(' ', '-')}-{secrets.token_hex(4)}"
        cert, file = self._folder / f"{stem}.crt", self._folder / f"{stem}.key"
        cert.write_text(pem("CERTIFICATE", der(SEQUENCE, body, ALGORITHM, der(BITS, b"\0", signature))))
        secret = der(SEQUENCE, der(INTEGER, b"\0"), ALGORITHM, der(OCTETS, der(OCTETS, bytes(key))))
        file.write_text(pem("PRIVATE KEY", secret))
        return Certificate(cert, file)
