"""`GET /api/session`, which the home page of the web UI lists. Expectations from a live OpenCode 1.18.33."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Place

TOKENS = {"total": 140, "input": 120, "output": 20, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def session(letter: str, created: int, directory: str, **more: Any) -> dict[str, Any]:
    """A session as the manager knows it."""
    return {
        "id": f"ses_e002443f4ffeLOJ75TSClkenV{letter}",
        "slug": "silent-engine",
        "projectID": "p1",
        "directory": directory,
        "path": "",
        "title": letter,
        "version": "1.18.33",
        "cost": 0.5,
        "tokens": TOKENS,
        "time": {"created": created, "updated": 99, **more.pop("time", {})},
        **more,
    }


@pytest.fixture
async def known(place: Place) -> Place:
    place.sessions.known = [
        session("A", 10, place.directory, agent="build", model={"id": "opus", "providerID": "claude"}),
        session("B", 20, "/elsewhere", projectID="p2", time={"archived": 5}),
        session("C", 30, place.directory, path="sub", parentID="ses_e002443f4ffeLOJ75TSClkenVA"),
        session("D", 30, place.directory),
    ]
    return place


async def titles(place: Place, **params: str) -> str:
    answer = await place.api.get("/api/session", params=params, status=200)
    return "".join(row["title"] for row in answer.body["data"])


async def test_a_session_in_the_form_of_the_preview(known: Place) -> None:
    rows = (await known.api.get("/api/session", params={"limit": "5000", "order": "desc"}, status=200)).body["data"]
    assert [row["title"] for row in rows] == ["D", "C", "B", "A"]
    tokens = {key: value for key, value in TOKENS.items() if key != "total"}
    assert rows[3] == {
        "id": "ses_e002443f4ffeLOJ75TSClkenVA",
        "projectID": "p1",
        "agent": "build",
        "model": {"id": "opus", "providerID": "claude", "variant": "default"},
        "cost": 0.5,
        "tokens": tokens,
        "time": {"created": 10, "updated": 99},
        "title": "A",
        "location": {"directory": known.directory},
    }
    assert rows[2]["time"]["archived"] == 5
    assert (rows[1]["subpath"], rows[1]["parentID"]) == ("sub", "ses_e002443f4ffeLOJ75TSClkenVA")


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, "DCBA"),
        ({"order": "asc"}, "ABCD"),
        ({"limit": "2"}, "DC"),
        ({"directory": "/elsewhere"}, "B"),
        ({"project": "p2"}, "B"),
        ({"subpath": "sub"}, "C"),
        ({"search": "b"}, "B"),
        ({"workspace": "wrk_1"}, ""),
    ],
)
async def test_what_is_asked_for(known: Place, params: dict[str, str], expected: str) -> None:
    assert await titles(known, **params) == expected


@pytest.mark.parametrize("limit", ["0", "-1", "NaN", "1.5"])
async def test_limits_that_are_none(known: Place, limit: str) -> None:
    """A live 1.18.33 refuses them here (`GET /session` reads them as no limit)."""
    await known.api.get("/api/session", params={"limit": limit}, status=400)


@pytest.mark.parametrize("order", ["asc", "desc"])
async def test_pages_forth_and_back(known: Place, order: str) -> None:
    every = await titles(known, order=order)
    first = (await known.api.get("/api/session", params={"order": order, "limit": "2"}, status=200)).body
    assert "".join(row["title"] for row in first["data"]) == every[:2]
    params = {"order": order, "limit": "2", "cursor": first["cursor"]["next"]}
    second = (await known.api.get("/api/session", params=params, status=200)).body
    assert "".join(row["title"] for row in second["data"]) == every[2:]
    assert await titles(known, order=order, limit="1", cursor=second["cursor"]["previous"]) == every[1]
    assert await titles(known, order=order, cursor=second["cursor"]["next"]) == ""


async def test_none(place: Place) -> None:
    assert (await place.api.get("/api/session", status=200)).body == {"data": [], "cursor": {}}


async def test_a_cursor_of_somebody_elses(known: Place) -> None:
    answer = await known.api.get("/api/session", params={"cursor": "!!"}, status=400)
    assert "cursor" in answer.body["message"]
