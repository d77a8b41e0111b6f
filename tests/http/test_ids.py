"""Ids of every kind are letters, digits, `_` and `-`: nothing that could be a path is taken, on any face."""

from __future__ import annotations

from typing import Any

import pytest

from tests.http.conftest import Place

PATHLIKE = "../../x"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/session", {"parentID": f"ses_{PATHLIKE}"}),
        ("POST", "/tui/select-session", {"sessionID": f"ses_{PATHLIKE}"}),
        (
            "POST",
            "/experimental/control-plane/move-session",
            {"sessionID": f"ses_{PATHLIKE}", "destination": {"directory": "."}},
        ),
        ("GET", "/pty/pty_..%2F..%2Fx", None),
        ("GET", "/api/shell/sh_..%2F..%2Fx", None),
    ],
)
async def test_an_id_that_could_be_a_path_is_refused(place: Place, method: str, path: str, body: Any) -> None:
    async with place.api.raw.request(method, path, **({"json": body} if body is not None else {})) as answer:
        told = await answer.text()
    assert answer.status == 400, told
    assert "an id of letters, digits, _ and -" in told


async def test_an_id_of_another_kind_is_refused_in_the_words_of_opencode(place: Place) -> None:
    answer = await place.api.post("/tui/select-session", {"sessionID": "msg_1"}, status=400)
    assert 'Expected a string starting with \\"ses\\", got \\"msg_1\\"' in str(answer.body).replace('"', '\\"')
