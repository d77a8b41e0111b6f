"""Which build a client is of, by what it says and asked, and what of that outlives a restart."""

from __future__ import annotations

import pytest

from shim.faces.opencode2.probes import Probe, Probes, dialect_by_agent

JULY = "opencode2/2.0.0-v2.20260717"


@pytest.mark.parametrize(
    ("agent", "dialect"),
    [
        (JULY, "v2_july"),
        ("opencode/latest/2.0.26/cli", "v2_0"),
        ("opencode-python/0.2.3 python/3.11.7", "v2_0"),
        ("node", "v2_0"),
        ("", "v2_0"),
    ],
)
def test_a_user_agent_says_which_build_it_is(agent: str, dialect: str) -> None:
    assert dialect_by_agent(agent) == dialect


def test_only_what_a_user_agent_does_not_say_is_kept() -> None:
    probes = Probes()
    for agent, dialect in (("node", "v2_july"), (JULY, "v2_july"), ("curl", "v2_0"), (f"{JULY}-next", "v2_0")):
        probes.note(("::1", agent), dialect)
    assert probes.unusual() == [Probe("::1", "node", "v2_july"), Probe("::1", f"{JULY}-next", "v2_0")]
    probes.note(("::1", "node"), "v2_0")
    assert probes.unusual() == [Probe("::1", f"{JULY}-next", "v2_0")]


def test_a_change_is_published_once() -> None:
    probes, told = Probes(), list[str]()
    probes.changed = lambda: told.append("changed")
    for dialect in ("v2_july", "v2_july", "v2_0"):
        probes.note(("::1", "node"), dialect)
    assert probes.last(("::1", "node")) == "v2_0"
    assert told == ["changed", "changed"]


def test_probes_since_the_restart_outrank_stored_ones() -> None:
    probes = Probes(size=2)
    probes.note(("::1", "new"), "v2_0")
    probes.restore([Probe("::1", "oldest", "v2_july"), Probe("::1", "old", "v2_july"), Probe("::1", "new", "v2_july")])
    assert [probes.last(("::1", agent)) for agent in ("oldest", "old", "new")] == [None, "v2_july", "v2_0"]
