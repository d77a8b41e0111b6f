"""Distributes end-to-end tests over the workers of pytest-xdist: tests of a file that share a server stay together.

xdist's own `--dist loadgroup` writes the group into the test's id, where pytest 9.2 no longer looks for it (seen with xdist
3.8.0): nothing is said, and each test goes where there is room. So the same is read from the id that a test has anyway.
"""

from __future__ import annotations

import re

from xdist.scheduler import LoadScopeScheduling

from .agents import AGENTS
from .places import CURRENT, OLDER

VERSIONS = (*OLDER, "1.1.53", CURRENT)
SANDBOXES = ("off", *(f"{bounds}{kind}" for bounds in ("project", "strict") for kind in ("", " by Landlock")))
_SHARED = re.compile(
    r"(?:(?<=-)|^)(?:{})(?=-|$)".format("|".join(map(re.escape, sorted((*AGENTS, *VERSIONS, *SANDBOXES), key=len, reverse=True))))
)


def group(nodeid: str) -> str:
    """`file.py::test[once-mock-1.1.53]` -> `file.py mock 1.1.53`; a test that names none is its own group."""
    file, _, rest = nodeid.partition("::")
    _, _, params = rest.rstrip("]").partition("[")
    found = _SHARED.findall(params)
    return " ".join((file, *sorted(found))) if found else nodeid


class ByServer(LoadScopeScheduling):
    """Hands out whole groups, the largest first."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)
