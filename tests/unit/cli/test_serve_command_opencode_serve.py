"""Which port `opencode serve` takes."""

from __future__ import annotations

from typing import cast

import pytest

from shim.cli import serve_command
from shim.cli.server import ListenError
from shim.lib.settings import Settings

TAKEN = 4096


@pytest.fixture
def port_requests(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ports that were asked for, where 4096 is taken."""
    ports: list[int] = []

    def listen(_hostname: str, port: int, *, protected: bool) -> int:
        ports.append(port)
        if port == TAKEN:
            raise ListenError("taken")
        return port

    monkeypatch.setattr(serve_command, "listen", listen)
    monkeypatch.delenv("SHIM_PORT", raising=False)
    return ports


def test_a_free_port_is_taken_without_a_chosen_one(port_requests: list[int]) -> None:
    assert cast("int", serve_command._listen_as_opencode(Settings.load({}))) == 0
    assert port_requests == [TAKEN, 0]


def test_a_chosen_port_that_is_taken_is_an_error(port_requests: list[int]) -> None:
    with pytest.raises(ListenError):
        serve_command._listen_as_opencode(Settings.load({"port": TAKEN}))
    assert port_requests == [TAKEN]
