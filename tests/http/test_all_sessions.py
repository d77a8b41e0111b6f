"""`GET /experimental/session`: sessions of all projects. Expectations from a live OpenCode 1.18.33."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Place


def session(letter: str, updated: int, directory: str, project: str, **more: Any) -> dict[str, Any]:
    """A session as the manager knows it."""
    time = {"created": 1, "updated": updated, **more.pop("time", {})}
    return {
        "id": f"ses_e002443f4ffeLOJ75TSClkenV{letter}",
        "slug": "silent-engine",
        "projectID": project,
        "directory": directory,
        "title": letter,
        "version": "1.18.33",
        "time": time,
        **more,
    }


@pytest.fixture
async def project_id(place: Place) -> str:
    """A is archived, C is its child, B is elsewhere."""
    id_ = (await place.services.projects.identity(place.directory)).id
    child = {"parentID": "ses_e002443f4ffeLOJ75TSClkenVA"}
    place.sessions.known = [
        session("A", 10, place.directory, id_, time={"archived": 99}),
        session("B", 20, "/elsewhere", "global"),
        session("C", 30, place.directory, id_, **child),
    ]
    return id_


@pytest.mark.parametrize(
    ("params", "titles"),
    [
        ({}, "CB"),
        ({"directory": "{}"}, "C"),
        ({"roots": "true"}, "B"),
        ({"roots": "false"}, "CB"),
        ({"archived": "true"}, "CBA"),
        ({"archived": "false"}, "CB"),
        ({"search": "b"}, "B"),
        ({"start": "30"}, "C"),
        ({"cursor": "30"}, "B"),
        ({"limit": "x"}, "CB"),
        ({"limit": "0"}, ""),
        ({"limit": "nan"}, "CB"),
    ],
)
async def test_list(place: Place, project_id: str, params: dict[str, str], titles: str) -> None:
    filled = {key: value.format(place.directory) for key, value in params.items()}
    answer = await place.api.get("/experimental/session", params=filled, status=200)
    assert "".join(row["title"] for row in answer.body) == titles
    assert "x-next-cursor" not in answer.headers


async def test_pages_and_projects(place: Place, project_id: str) -> None:
    first = await place.api.get("/experimental/session", params={"limit": "1"}, status=200)
    assert first.body[0]["project"] == {"id": project_id, "worktree": place.directory}
    params = {"cursor": first.headers["x-next-cursor"], "limit": "1"}
    second = await place.api.get("/experimental/session", params=params, status=200)
    assert [(row["title"], row["project"]) for row in second.body] == [("B", None)]
    assert "x-next-cursor" not in second.headers


async def test_bad_switch(place: Place) -> None:
    answer = await place.api.get("/experimental/session", params={"roots": "1"}, status=400)
    assert answer.body["data"]["message"] == 'Expected "true" | "false", got "1"\n  at ["roots"]'
