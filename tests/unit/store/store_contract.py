"""What every store must do: `CASES`, name -> test of a fresh, open store. Each backend's test file runs all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from shim.lib.errors import StoreError
from shim.store.base import Checkpoint, Store
from shim.store.rows import SessionRow, event_of
from universal.events import (
    ErrorData,
    EventData,
    EventType,
    ItemData,
    ItemDeltaData,
    Question,
    QuestionData,
    QuestionOption,
    Source,
    TurnData,
    UniversalEvent,
)
from universal.items import Item, ItemKind, ItemRole, ItemStatus, JsonPart, TextPart, ToolCallPart

CASES: dict[str, Callable[[Store], Awaitable[None]]] = {}

LONE = "\ud83d half a smile \udc00"
RAW: list[Any] = [
    None,
    {},
    [],
    0,
    "",
    False,
    {"text": LONE, LONE: [LONE]},
    {"big": 2**80, "small": -(2**70), "float": 1e300, "inf": float("inf")},
    {"nested": {"null": None, "list": [1, [2, {"three": 3}]]}},
    "ünïcödé \u2028 \x00 \x1f \U0001f600",
]


def case(check: Callable[[Store], Awaitable[None]]) -> Callable[[Store], Awaitable[None]]:
    """Adds a test to the contract."""
    CASES[check.__name__] = check
    return check


def event(sequence: int, session: str = "ses_a", *, data: EventData | None = None, raw: Any = None) -> UniversalEvent:
    """An event; without `data` a text delta that says its sequence."""
    data = data or ItemDeltaData(item_id="itm_1", delta=f"piece {sequence}")
    kind = {ItemDeltaData: EventType.ITEM_DELTA, ErrorData: EventType.ERROR, TurnData: EventType.TURN_STARTED}
    kind |= {ItemData: EventType.ITEM_COMPLETED, QuestionData: EventType.QUESTION_REQUESTED}
    return UniversalEvent(
        event_id=f"evt_{session}_{sequence}",
        sequence=sequence,
        time="2026-11-21T20:43:04.083Z",
        session_id=session,
        native_session_id="native" if sequence % 2 else None,
        source=Source.AGENT if sequence % 3 else Source.DAEMON,
        synthetic=sequence % 3 == 0,
        type=kind[type(data)],
        data=data,
        raw=raw,
    )


def journal(first: int, last: int, session: str = "ses_a") -> list[UniversalEvent]:
    """Events `first` to `last`, both included."""
    return [event(n, session) for n in range(first, last + 1)]


def row(id_: str = "ses_a", **changes: Any) -> SessionRow:
    """A session's row."""
    values: dict[str, Any] = {
        "id": id_,
        "directory": "/home/user/project",
        "project_id": "prj",
        "parent_id": None,
        "created_ms": 1_795_293_784_083,
        "updated_ms": 1_795_293_784_084,
        "data": {"title": "New session", "agent": "claude", "deep": {"list": [1, None, "x"]}},
    }
    return SessionRow(**(values | changes))


@case
async def an_empty_store_has_nothing(store: Store) -> None:
    assert await store.sessions() == []
    assert await store.events("ses_a") == []
    assert await store.values("models") == {}
    await store.flush()


@case
async def events_come_back_as_they_were(store: Store) -> None:
    item = Item(
        item_id="itm_1",
        kind=ItemKind.MESSAGE,
        role=ItemRole.ASSISTANT,
        status=ItemStatus.COMPLETED,
        content=(TextPart(text=LONE), JsonPart(json={"a": [None]}), ToolCallPart(name="x", arguments="{", call_id="c")),
        metadata={"usage": {"input": 1}, "none": None},
    )
    question = Question(question="which?", options=(QuestionOption(label="a"),), multiple=True)
    datas: list[EventData] = [
        ItemData(item=item),
        ErrorData(message=LONE, details={"k": LONE, "none": None}),
        TurnData(phase="started", turn_id="trn_1"),
        QuestionData(
            question_id="que_1", prompt="p", options=("a", "b"), status="answered", questions=(question,), answers=(("a",), ())
        ),
    ]
    events = [event(n, data=data, raw={"native": n}) for n, data in enumerate(datas, 1)]
    store.append(events)
    assert await store.events("ses_a") == events


@case
async def raw_payloads_survive(store: Store) -> None:
    events = [event(n, raw=raw) for n, raw in enumerate(RAW, 1)]
    store.append(events)
    assert [found.raw for found in await store.events("ses_a")] == RAW


@case
async def rows_are_the_events_as_texts(store: Store) -> None:
    events = [event(n, raw=raw) for n, raw in enumerate(RAW, 1)]
    store.append(events)
    assert [event_of(row) for row in await store.rows("ses_a")] == events
    assert await store.rows("ses_a", with_raw=False) == [row._replace(raw=None) for row in await store.rows("ses_a")]
    assert [row.sequence for row in await store.rows("ses_a", 2, 3)] == [3, 4, 5]
    assert await store.rows("ses_b") == []


@case
async def events_after_a_sequence(store: Store) -> None:
    store.append(journal(1, 10))
    for after, limit, expected in [
        (0, None, range(1, 11)),
        (-5, None, range(1, 11)),
        (7, None, range(8, 11)),
        (10, None, range(0)),
        (99, None, range(0)),
        (0, 3, range(1, 4)),
        (4, 3, range(5, 8)),
        (9, 3, range(10, 11)),
        (0, 0, range(0)),
        (0, -1, range(0)),
    ]:
        found = await store.events("ses_a", after, limit)
        assert [e.sequence for e in found] == list(expected), (after, limit)


@case
async def sessions_have_journals_of_their_own(store: Store) -> None:
    store.append([event(1, "ses_a"), event(1, "ses_b"), event(2, "ses_b"), event(2, "ses_a")])
    store.append([event(3, "ses_b")])
    assert [e.event_id for e in await store.events("ses_a")] == ["evt_ses_a_1", "evt_ses_a_2"]
    assert [e.event_id for e in await store.events("ses_b")] == ["evt_ses_b_1", "evt_ses_b_2", "evt_ses_b_3"]


@case
async def a_journal_has_no_holes_and_no_doubles(store: Store) -> None:
    store.append(journal(1, 3))
    for wrong in ([event(3)], [event(5)], [event(4), event(4)], [event(4), event(6)], [event(1, "ses_b"), event(3)]):
        with pytest.raises(StoreError, match="goes on with event"):
            store.append(wrong)
    with pytest.raises(StoreError, match="goes on with event 1, not 2"):
        store.append([event(2, "ses_new")])
    assert [e.sequence for e in await store.events("ses_a")] == [1, 2, 3]
    assert await store.events("ses_b") == []
    store.append([event(4)])
    store.append([])
    assert [e.sequence for e in await store.events("ses_a")] == [1, 2, 3, 4]


@case
async def rows_are_inserted_and_updated(store: Store) -> None:
    store.save_session(row("ses_a"))
    store.save_session(row("ses_b", parent_id="ses_a", data={}))
    changed = row("ses_a", directory="/elsewhere", updated_ms=1_795_293_799_999, data={"title": LONE})
    store.save_session(changed)
    found = {r.id: r for r in await store.sessions()}
    assert found == {"ses_a": changed, "ses_b": row("ses_b", parent_id="ses_a", data={})}


@case
async def any_directory_name_survives(store: Store) -> None:
    names = ["/srv/ünï", "/srv/\udcff\udce4 not utf-8", "/srv/with'quote\n", "C:\\x"]
    for number, name in enumerate(names):
        store.save_session(row(f"ses_{number}", directory=name))
    assert {r.directory for r in await store.sessions()} == set(names)


@case
async def stored_data_is_a_copy(store: Store) -> None:
    data = {"list": [1]}
    store.save_session(row("ses_a", data=data))
    store.set_value("models", "claude", data)
    data["list"].append(2)
    assert (await store.sessions())[0].data == {"list": [1]}
    assert await store.values("models") == {"claude": {"list": [1]}}
    (await store.values("models"))["claude"]["list"].append(3)
    assert await store.values("models") == {"claude": {"list": [1]}}


@case
async def a_deleted_session_takes_its_journal_along(store: Store) -> None:
    for id_ in ("ses_a", "ses_b"):
        store.save_session(row(id_))
        store.append(journal(1, 5, id_))
    store.delete_session("ses_a")
    store.delete_session("ses_unknown")
    assert [r.id for r in await store.sessions()] == ["ses_b"]
    assert await store.events("ses_a") == []
    assert len(await store.events("ses_b")) == 5
    with pytest.raises(StoreError, match="goes on with event 1, not 6"):
        store.append([event(6, "ses_a")])
    store.append([event(1, "ses_a")])
    assert len(await store.events("ses_a")) == 1


@case
async def values_are_set_replaced_and_removed(store: Store) -> None:
    store.set_value("models", "claude", [1, None, {"x": LONE}])
    store.set_value("models", "codex", {"a": 1})
    store.set_value("other", "claude", "text")
    store.set_value("models", "codex", {"a": 2})
    assert await store.values("models") == {"claude": [1, None, {"x": LONE}], "codex": {"a": 2}}
    store.set_value("models", "codex", None)
    store.set_value("models", "never", None)
    assert await store.values("models") == {"claude": [1, None, {"x": LONE}]}
    assert await store.values("other") == {"claude": "text"}
    assert set(await store.namespaces()) == {"models", "other"}
    store.set_value("other", "zero", 0)
    assert (await store.values("other"))["zero"] == 0


@case
async def non_json_data_is_refused_at_once(store: Store) -> None:
    with pytest.raises(StoreError, match=r"event 2 of session ses_a.*not JSON"):
        store.append([event(1), event(2, raw={"x": object()})])
    with pytest.raises(StoreError, match=r"session ses_a.*not JSON"):
        store.save_session(row(data={"x": {1, 2}}))
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(StoreError, match=r"value models/x.*not JSON"):
        store.set_value("models", "x", loop)
    assert await store.events("ses_a") == []
    assert await store.sessions() == []
    assert await store.values("models") == {}


@case
async def reads_see_what_was_queued_just_before(store: Store) -> None:
    for n in range(1, 300):
        store.append([event(n)])
        if n % 50 == 0:
            assert len(await store.events("ses_a")) == n
    store.save_session(row(updated_ms=7))
    assert (await store.sessions())[0].updated_ms == 7


@case
async def a_checkpoint_takes_the_place_of_the_one_before(store: Store) -> None:
    assert await store.checkpoint("ses_a") is None
    store.append(journal(1, 3))
    store.save_checkpoint("ses_a", Checkpoint(2, b"head"), {1: b"one", 2: b"\x00\xff", 3: b"three"})
    store.save_checkpoint("ses_b", Checkpoint(9, b"other"), {})
    store.save_checkpoint("ses_a", Checkpoint(3, b""), {2: b"two", 4: b"four"}, [3])
    assert await store.checkpoint("ses_a") == Checkpoint(3, b"", frozenset({1, 2, 4}))
    assert [store.checkpoint_page("ses_a", number) for number in (1, 2, 3, 4)] == [b"one", b"two", None, b"four"]
    assert store.checkpoint_page("ses_b", 1) is None
    assert await store.checkpoint("ses_b") == Checkpoint(9, b"other")


@case
async def a_deleted_session_takes_its_checkpoint_along(store: Store) -> None:
    for id_ in ("ses_a", "ses_b"):
        store.append(journal(1, 2, id_))
        store.save_checkpoint(id_, Checkpoint(2, b"head"), {1: b"one"})
    store.delete_session("ses_a")
    assert await store.checkpoint("ses_a") is None
    assert store.checkpoint_page("ses_a", 1) is None
    assert await store.checkpoint("ses_b") == Checkpoint(2, b"head", frozenset({1}))
    store.append(journal(1, 2))  # a new session of the same id
    store.save_checkpoint("ses_a", Checkpoint(1, b"new"), {})
    assert await store.checkpoint("ses_a") == Checkpoint(1, b"new")


@case
async def a_closed_store_refuses(store: Store) -> None:
    store.append([event(1)])
    await store.close()
    await store.close()
    for write in (
        lambda: store.append([event(2)]),
        lambda: store.save_session(row()),
        lambda: store.delete_session("ses_a"),
        lambda: store.set_value("a", "b", 1),
        lambda: store.save_checkpoint("ses_a", Checkpoint(1, b""), {}),
        lambda: store.checkpoint_page("ses_a", 1),
    ):
        with pytest.raises(StoreError, match="not open"):
            write()
    for read in (store.flush, store.sessions, lambda: store.events("ses_a"), lambda: store.values("a")):
        with pytest.raises(StoreError, match="not open"):
            await read()


@case
async def an_open_store_is_not_opened_twice(store: Store) -> None:
    with pytest.raises(StoreError, match="open already"):
        await store.open()
    store.append([event(1)])
    assert len(await store.events("ses_a")) == 1
