"""Streams with gzip: who gets it, and that nothing waits in the compressor."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shim.stream.response import GZIP, Gzip, When, wants_gzip

AWAY, HERE = "192.0.2.7", "127.0.0.1"


@given(st.lists(st.binary(min_size=1)))
def test_each_write_can_be_read_at_once(pieces: list[bytes]) -> None:
    gzip, client = Gzip(), zlib.decompressobj(GZIP + zlib.MAX_WBITS)
    for piece in pieces:
        assert client.decompress(gzip.write(piece)) == piece
    assert client.decompress(gzip.end()) == b""
    assert client.eof


@pytest.mark.parametrize(
    ("accepts", "peer", "when", "expected"),
    [
        ("gzip, deflate, br", AWAY, "auto", True),
        ("gzip, deflate, br", HERE, "auto", False),
        ("gzip, deflate, br", "::1", "auto", False),
        ("gzip, deflate, br", None, "auto", False),
        ("gzip", HERE, "always", True),
        ("gzip", AWAY, "never", False),
        ("", AWAY, "always", False),
        ("br, deflate", AWAY, "always", False),
        ("GZIP;q=0.5", AWAY, "always", True),
        ("gzip;q=0", AWAY, "always", False),
        ("gzip; q=0.0, br", AWAY, "always", False),
    ],
)
def test_clients_that_get_compressed_streams(accepts: str, peer: str | None, when: When, expected: bool) -> None:
    assert wants_gzip(accepts, peer, when) is expected
