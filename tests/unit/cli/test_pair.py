"""`opencode-shim pair`: which address a device is given, and the QR code."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from shim.cli.commands import cli
from shim.cli.pair import lan_address, qr_rows, reachable
from shim.lib.errors import ShimError

LINK = "https://shim.example/auth/connect/AbCdEf0123456789AbCdEf"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://0.0.0.0:4096", "http://10.0.0.7:4096"),
        ("https://[::]:4096/base", "https://10.0.0.7:4096/base"),
        ("http://192.168.1.5:4096", "http://192.168.1.5:4096"),
        ("http://[fd00::2]:4096", "http://[fd00::2]:4096"),
    ],
)
def test_a_device_gets_an_address_that_it_reaches(url: str, expected: str) -> None:
    assert reachable(url, lambda: "10.0.0.7") == expected


@pytest.mark.parametrize("url", ["http://127.0.0.1:4096", "https://[::1]:4096", "http://localhost:4096"])
def test_a_server_that_only_this_machine_reaches_says_what_to_do(url: str) -> None:
    with pytest.raises(ShimError, match=r"--at https://HOST.*public_url.*--hostname 0\.0\.0\.0"):
        reachable(url)


def test_the_lines_are_the_modules_of_the_code() -> None:
    """Read back from the half blocks, the code is segno's, dark where the terminal is dark, with its quiet zone."""
    import segno

    rows = qr_rows(LINK)
    dark = {"█": (0, 0), "▀": (0, 1), "▄": (1, 0), " ": (1, 1)}
    read = [[dark[character][half] for character in row] for row in rows for half in (0, 1)]
    expected = [list(row) for row in segno.make(LINK, error="m", micro=False).matrix_iter(border=2)]
    assert read[: len(expected)] == expected
    assert len({len(row) for row in rows}) == 1
    assert len(rows[0]) <= 60, "it fits into a terminal"


def test_our_own_address_is_one() -> None:
    try:
        found = lan_address()
    except ShimError as error:
        assert "--at" in str(error)
    else:
        assert found.count(".") == 3


def test_without_a_server_nothing_can_be_paired(tmp_path: Path) -> None:
    result = CliRunner().invoke(cli, ["pair", "--data-dir", str(tmp_path)])
    assert isinstance(result.exception, ShimError)
    assert "Start one: opencode-shim serve" in str(result.exception)
