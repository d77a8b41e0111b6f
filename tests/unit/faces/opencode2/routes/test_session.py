"""`GET /api/session` stops when its page is full, and answers as if it had sorted and filtered all."""

from __future__ import annotations

from random import Random
from typing import Any

from shim.faces.opencode2.routes.session import ROOTS, ListQuery, listing
from shim.http.shapes import encode_cursor
from tests.support.listed_sessions import DIRECTORIES, context_of, some_records
from universal.session.values import SessionRecord

CHOICES: dict[str, tuple[Any, ...]] = {
    "order": ("asc", "desc", "desc"),
    "search": (None, "ONE", "words"),
    "parentID": (None, ROOTS, "ses_0"),
    "directory": (None, *DIRECTORIES),
    "project": (None, "prj"),
    "subpath": (None, "a"),
    "archived": (None, "true", "false"),
    "limit": (1, 7, 10**30),
}


def place_of(record: SessionRecord) -> tuple[int, str]:
    return record.updated_ms, record.id


def page_of(records: list[SessionRecord], query: ListQuery, anchor: dict[str, Any]) -> list[str]:
    """The ids of the page, of all sessions filtered and sorted."""
    matches = [
        record
        for record in sorted(records, key=place_of, reverse=query.order == "desc")
        if (query.search or "").lower() in record.title.lower()
        and query.parentID in (None, record.parent_id, None if record.parent_id else ROOTS)
        and query.directory in (None, record.directory)
        and (query.project in (None, record.project_id) or (query.project == "prj" and record.directory.startswith("/p")))
        and query.subpath in (None, record.path or "")
        and query.archived in (None, "true" if record.archived_ms is not None else "false")
    ]
    is_previous = anchor.get("direction") == "previous"
    if anchor:
        place = (anchor["time"], anchor["id"])
        is_up = (query.order == "asc") != is_previous
        matches = [record for record in matches if (place_of(record) > place if is_up else place_of(record) < place)]
    return [record.id for record in (matches[-query.limit :] if is_previous else matches[: query.limit])]


async def test_a_page_is_a_part_of_all_matches_in_order() -> None:
    random = Random(1)
    records = some_records(random, 200)
    lengths: set[int] = set()
    for _ in range(400):
        query = ListQuery(**{name: random.choice(values) for name, values in CHOICES.items()})
        anchor: dict[str, Any] = {}
        if random.randrange(3):
            record = random.choice(records)
            anchor = {"id": record.id, "time": record.updated_ms, "direction": random.choice(("next", "previous"))}
            filters = query.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
            query.cursor = encode_cursor({**filters, "anchor": anchor})
        answer: Any = await listing(context_of(records, "/p", "prj"), query)
        assert [session["id"] for session in answer["data"]] == page_of(records, query, anchor), query
        lengths.add(len(answer["data"]))
    assert lengths >= {0, 1, 7}
    assert max(lengths) > 30
