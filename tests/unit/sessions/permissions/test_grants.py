"""Grants of a person: changed, and never two of the same in one directory."""

from __future__ import annotations

import pytest

from shim.lib.clock import ManualClock
from shim.lib.ids import Ids
from shim.sessions.permissions.grants import Grants
from universal.permissions import Access


@pytest.fixture
def grants() -> Grants:
    clock = ManualClock()
    return Grants(clock, Ids(clock))


def test_a_change_that_would_double_a_rule_is_refused(grants: Grants) -> None:
    grants.allow(
        "/here",
        Access(
            "bash",
            (),
            (
                "git push *",
                "git fetch *",
            ),
        ),
    )
    grants.allow("/there", Access("bash", (), ("git pull *",)))
    push, fetch, pull = grants.list_grants()
    with pytest.raises(ValueError):
        grants.change(push.id, None, "git fetch *")
    assert grants.list_grants() == (push, fetch, pull)
    assert grants.change(pull.id, None, "git push *").directory == "/there"


def test_a_change_to_what_it_says_already_is_fine(grants: Grants) -> None:
    grants.allow("/here", Access("bash", (), ("git push *",)))
    [rule] = grants.list_grants()
    assert grants.change(rule.id, "bash", "git push *").place == rule.place


def test_an_unknown_rule_cannot_be_changed(grants: Grants) -> None:
    with pytest.raises(KeyError):
        grants.change("psv_none", None, "x")


def test_a_grant_of_one_agent_is_none_of_another(grants: Grants) -> None:
    grants.allow("/here", Access("other", (), ("Deploy",), agent="goose"))
    grants.allow("/here", Access("bash", (), ("ls *",)))
    assert [rule.permission for rule in grants.rules("/here", "goose")] == ["other", "bash"]
    assert [rule.permission for rule in grants.rules("/here", "gemini")] == ["bash"]
