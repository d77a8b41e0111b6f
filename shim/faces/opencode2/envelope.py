"""The envelope of answers about a directory: `{location: {directory}, data}`. Pure.

Older dialects have the directory's project in it too. So the value holds the project, which clients of `v2_0` do not get.
"""

from __future__ import annotations

from typing import Any, TypedDict


class ProjectPlace(TypedDict):
    """The project of a directory."""

    id: str
    directory: str


class LocatedAnswer(dict[str, Any]):
    """The envelope of `v2_0`. `project`: `{id, directory}`, not in the JSON."""

    def __init__(self, directory: str, project: ProjectPlace, data: object) -> None:
        super().__init__(location={"directory": directory}, data=data)
        self.project = project


def with_project(answer: Any) -> Any:
    """The envelope with the project, for older dialects. Any other answer is returned unchanged."""
    return (
        {**answer, "location": {**answer["location"], "project": answer.project}} if isinstance(answer, LocatedAnswer) else answer
    )
