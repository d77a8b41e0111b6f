"""The laws of a cluster are tested: each planted bug is found within the ordinary number of histories."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings

from tests.properties.cluster_bugs import BUGS, Bug
from tests.properties.cluster_plan import STEPS
from tests.properties.laws import LawBroken
from tests.properties.test_cluster_laws import HISTORIES, hold, quiet

pytestmark = pytest.mark.slow

__all__ = ["quiet"]
EXAMPLES = 62
"""A bug must be found within so many histories: those of the ordinary run of the laws."""
BOUNDED = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    deadline=None,
    report_multiple_bugs=False,
)


def try_all() -> None:
    """Try the histories that are always tried, then drawn ones."""
    for history in HISTORIES.values():
        hold(history)
    BOUNDED(given(STEPS)(lambda steps: hold(steps)))()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.__name__)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    with pytest.raises(LawBroken):
        try_all()
