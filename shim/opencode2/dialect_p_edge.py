"""P, the preview in 1.18: requests and answers that differ from R's, as rows. Pure. Clients of 1.x ask for a few of them.

Source: OpenCode's own document of 1.18.33; recording `endpoints` of 1.18.33.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shim.opencode2.envelope import with_project
from shim.opencode2.rewriting import Answer

ANSWERS: Mapping[str, Answer] = {
    "location.get": lambda said: {**said, "project": {key: said["project"][key] for key in ("id", "directory")}},
}


def answer(operation: str, said: Any) -> Any:
    """What R answers, as P does."""
    row = ANSWERS.get(operation)
    said = with_project(said)
    return said if row is None else row(said)
