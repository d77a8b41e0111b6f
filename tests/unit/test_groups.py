"""Which end-to-end tests share a worker."""

from __future__ import annotations

import pytest

from tests.e2e.support.groups import group

FILE = "tests/e2e/test_x.py"


@pytest.mark.parametrize(
    ("test", "shared"),
    [
        ("test_a[mock]", "mock"),
        ("test_b[once-None-mock]", "mock"),
        ("test_c[1.14.41-mock]", "1.14.41 mock"),
        ("test_d[claude-2.1.197-1.18.33]", "1.18.33 claude-2.1.197"),
        ("test_e[reject-use another name-claude-agent-acp]", "claude-agent-acp"),
        ("test_f[True-opencode-acp]", "opencode-acp"),
        ("test_g[opencode]", "opencode"),
        ("test_h[strict by Landlock]", "strict by Landlock"),
    ],
)
def test_tests_of_one_server_are_one_group(test: str, shared: str) -> None:
    assert group(f"{FILE}::{test}") == f"{FILE} {shared}"


@pytest.mark.parametrize("test", ["test_a", "test_b[mocking]", "test_c[once-completed]", "test_d[1.1.530]"])
def test_tests_without_an_agent_are_groups_of_one(test: str) -> None:
    assert group(f"{FILE}::{test}") == f"{FILE}::{test}"
