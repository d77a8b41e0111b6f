"""Which clients get the wire of 1.1, and of 1.0."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request

from shim.errors import InvalidRequest
from shim.stream.wire import wire_of, wire_of_agent


@pytest.mark.parametrize(
    ("user_agent", "wire"),
    [
        ("opencode/1.1.53", "v1.1"),
        ("opencode/1.0.98", "v1.0"),
        ("opencode/1.1.0", "v1.1"),
        ("opencode/latest/1.1.53/cli", "v1.1"),
        ("opencode/1.2.0", "v1.18"),
        ("opencode/1.10.3", "v1.18"),
        ("opencode/1.18.33", "v1.18"),
        ("opencode/1.18.33 (attach)", "v1.18"),
        ("opencode/2.0.1", "v1.18"),
        ("opencode/0.0.0-main-202611210000", "v1.18"),
        ("opencode/local", "v1.18"),
        ("Opencode/Python 0.1.0-alpha.36", "v1.18"),
        ("node", "v1.18"),
        ("Bun/1.3.5", "v1.18"),
        ("Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "v1.18"),
        ("my-tool opencode/1.1.53", "v1.18"),
        ("", "v1.18"),
    ],
)
def test_by_user_agent(user_agent: str, wire: str) -> None:
    assert wire_of_agent(user_agent) == wire
    assert wire_of(make_mocked_request("GET", "/event", {"User-Agent": user_agent})) == wire


def test_no_user_agent_is_modern() -> None:
    assert wire_of(make_mocked_request("GET", "/event")) == "v1.18"


@pytest.mark.parametrize(
    ("named", "wire"), [("1.0", "v1.0"), ("1.1", "v1.1"), ("v1.1", "v1.1"), ("1.18", "v1.18"), ("v1.18", "v1.18")]
)
@pytest.mark.parametrize("user_agent", ["opencode/1.1.53", "node"])
def test_the_query_decides(named: str, wire: str, user_agent: str) -> None:
    assert wire_of(make_mocked_request("GET", f"/event?directory=/p&wire={named}", {"User-Agent": user_agent})) == wire


@pytest.mark.parametrize("named", ["", "2", "1.2"])
def test_an_unknown_wire_is_an_error(named: str) -> None:
    with pytest.raises(InvalidRequest, match=r"Unknown wire .* Give one of 1\.0, v1\.0, 1\.1, v1\.1, 1\.18, v1\.18"):
        wire_of(make_mocked_request("GET", f"/event?wire={named}"))
