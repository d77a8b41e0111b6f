"""Each recording of OpenCode 2 played through our own server: what it was asked, and what its agent did, in the same order.

Compared are the order of each session's events and of its log, the status of each answer, the shapes of both, and the values of
events. `v2_july` is the build of July 2026 (v2-20260717), `preview` that of 1.18 (lildax 1.18.18). Differences are rows of
`compat_fixtures/opencode2/played.toml`, each with its reason; a scene's rows are those that it needs, no more and no less.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import tomllib
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from difflib import SequenceMatcher
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from shim.dev.record.packs import read_rows, recordings_in
from shim.faces.opencode2.stream import HEARTBEAT_S
from tests.http.conftest import repository
from tests.support.live import live
from tests.support.opencode2_player import Player, Request
from tests.support.opencode2_replay import SECOND
from tests.support.opencode2_script import STREAM, session_of
from tests.support.puppet import Puppet
from tests.support.recordings import older_is_slow
from tests.support.shapes import differences, merge, shape

pytestmark = pytest.mark.usefixtures("july")
Wire = dict[str, Any]
Found = set[tuple[str, ...]]

BUILDS = {"v2_july": "v2-20260717", "preview": "lildax-1.18.18"}
QUICK = ("preview/text", "preview/permission_once", "preview/read_edit")
"""Of the older wire, what `make test` plays; `make test-slow` has all."""
SCENES = [f"{dialect}/{path.stem}" for dialect, build in BUILDS.items() for path in recordings_in(SECOND / build)]
FILES = {"README.md": "Hello\n", "notes.txt": "one\ntwo\nthree\n"}
MORE_FILES = {"extras": {".opencode/skill/demo/SKILL.md": "---\nname: demo\ndescription: a demo skill\n---\nDo the demo.\n"}}
"""What scenes found beside `FILES`. That of `extras` had a command, too, which native did not know yet when it was asked."""
PASSWORD = "secret"
"""Of the recorded servers; ours has it in the scenes that try others."""
LOCKED = frozenset({"errors"})
COMMENT = ": heartbeat"
PLAY_S = 50.0
"""The longest that a scene may take, with all that never comes."""
BESIDE = (
    *("session.usage.updated", "session.renamed"),  # native's model thinks of titles beside the turn, and pays for them
    *("session.instructions.updated", "session.next.context.updated"),
)
"""Their place says nothing."""
LOG = ("session.created", "session.usage.recorded", "log.synced", "session.tool.progress")
"""Only in one log, or at another place: native's begins behind the first event; the mark is where it was read; progress has no
number in `v2_0`."""


@cache
def table(name: str) -> tuple[Wire, ...]:
    """Differences on purpose."""
    return tuple(tomllib.loads((SECOND / "played.toml").read_text("utf-8")).get(name, ()))


def rows(scene: str) -> list[Wire]:
    """The recording of `v2_july/text`, say."""
    dialect, name = scene.split("/")
    return read_rows(SECOND / BUILDS[dialect] / f"{name}.jsonl")


@asynccontextmanager
async def play_scene(scene: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Player]:
    """A scene, played to its end."""
    dialect, name = scene.split("/")
    for variable in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(variable, os.devnull)
    puppet = Puppet()
    puppet.install(monkeypatch)
    (folder / "home").mkdir()
    recording = rows(scene)
    config = {"opencode.json": json.dumps(recording[0].get("config", {}))}
    repository(folder / "project", {**FILES, **config, **MORE_FILES.get(name, {})})
    login = {"authorization": f"Basic {base64.b64encode(f'opencode:{PASSWORD}'.encode()).decode()}"} if name in LOCKED else {}
    settings = {"password": SecretStr(PASSWORD)} if login else {}
    never = {kind for row in table("order") if scene in row["scenes"] for kind in row.get("lacks", ())}
    async with (
        live(folder, **settings) as server,
        asyncio.timeout(PLAY_S),
        server.api.stream("/api/event", params={"dialect": dialect}, headers=login) as events,
    ):
        yield await Player(dialect, recording, server, puppet, events, never, login).play()


# --- what is compared -------------------------------------------------------------------------------------------


def sequences(events: Iterable[Wire]) -> list[list[str]]:
    """The types of the events of each session, in the order of the sessions; `.delta*` for any pieces of one text."""
    found: dict[str, list[str]] = {}
    for event in events:
        session, kind = session_of(event), event["type"]
        if session is None or kind in BESIDE:
            continue
        told = found.setdefault(session, [])
        kind = f"{kind}*" if kind.endswith(".delta") else kind
        if not (kind.endswith("*") and told and told[-1] == kind):
            told.append(kind)
    return list(found.values())


def apart(native: list[str], ours: list[str]) -> Iterator[tuple[str, str]]:
    """What we lack, and what we have more, at its place."""
    for tag, a, b, c, d in SequenceMatcher(None, native, ours, autojunk=False).get_opcodes():
        if tag != "equal":
            yield from (("lacks", kind) for kind in native[a:b])
            yield from (("more", kind) for kind in ours[c:d])


def order(player: Player) -> Found:
    """Events of ours that have no place in native's order, and the other way round."""
    native, ours = sequences(player.native), sequences(player.ours)
    assert len(native) == len(ours), "another number of sessions"
    return {pair for one, other in zip(native, ours, strict=True) for pair in apart(one, other)}


def logs(player: Player) -> Found:
    """The same of the sessions' logs."""
    found: Found = set()
    for told in player.logs:
        native, ours = ([one["type"] for one in log if one["type"] not in (*BESIDE, *LOG)] for log in told)
        found |= set(apart(native, ours))
    return found


NAME = re.compile(r"\b(ses|msg|per|frm|que|psv|sh|evt)_[0-9A-Za-z]+")


def path_of(asked: Request) -> str:
    """`POST /api/session/*/prompt`."""
    return f"{asked.method} {NAME.sub('*', asked.path.partition('?')[0])}"


def statuses(player: Player) -> Found:
    """Answers with another status."""
    return {(path_of(a), str(a.status), str(a.ours.status)) for a in player.answers if a.status != a.ours.status}


def shapes(player: Player) -> Found:
    """Where events, and answers with the same status, have other keys or types; and what lists of messages hold."""
    told: dict[str, list[Any]] = {}
    for side, events in enumerate((player.native, player.ours)):
        for event in events:
            pair = told.setdefault(event["type"], [None, None])
            made = shape({key: value for key, value in event.items() if key != "metadata"})
            pair[side] = made if pair[side] is None else merge(pair[side], made)
    found = {
        (kind, listed_differences)
        for kind, (a, b) in told.items()
        if a is not None and b is not None
        for listed_differences in differences(a, b)
    }
    found |= {(kind, "untold") for kind, (_, b) in told.items() if b is None and is_aside(kind)}
    found |= {(kind, "untold by native") for kind, (a, _) in told.items() if a is None and is_aside(kind)}
    for asked in player.answers:
        if asked.status == asked.ours.status and not isinstance(asked.body, str) and "__cut" not in asked.body:
            path = path_of(asked)
            found |= {(path, listed_differences) for listed_differences in differences(shape(asked.body), shape(asked.ours.body))}
            found |= {(path, f"{how} {kind}") for how, kind in apart(kinds(asked.body), kinds(asked.ours.body))}
    return found


MOMENTS = frozenset({"created", "updated", "started", "completed", "ran", "at", "timestamp"})
OWN = frozenset({"snapshot", "slug", "title", "version", "projectID", "parentSeq", "pid"})
"""Values that are each server's own."""


def values(player: Player) -> Found:
    """Where events that stand at the same place say something else, our ids and our directory taken for native's."""
    found: Found = set()
    native, ours = (by_session(events) for events in (player.native, player.ours))
    for one, other in zip(native, ours, strict=True):
        types = [[event["type"] for event in told] for told in (one, other)]
        for a, b, size in SequenceMatcher(None, *types, autojunk=False).get_matching_blocks():
            for event, made in zip(one[a : a + size], other[b : b + size], strict=True):
                found |= {(event["type"], where) for where in unlike(player.with_our_ids(event["data"]), made["data"])}
    return found


def by_session(events: Iterable[Wire]) -> list[list[Wire]]:
    """The events of each session, but pieces of texts, which may come in other pieces, and what is beside."""
    found: dict[str, list[Wire]] = {}
    for event in events:
        session = session_of(event)
        if session is not None:
            left_out = event["type"] in BESIDE or event["type"].endswith(".delta")
            found.setdefault(session, []).extend([] if left_out else [event])
    return list(found.values())


def unlike(native: Any, ours: Any, at: str = "") -> Iterator[str]:
    """Where two values have the same key, and something else there."""
    if isinstance(native, dict) and isinstance(ours, dict):
        for key in (native.keys() & ours.keys()) - MOMENTS - OWN:
            yield from unlike(native[key], ours[key], f"{at}/{key}")
    elif isinstance(native, list) and isinstance(ours, list) and len(native) == len(ours):
        for one, other in zip(native, ours, strict=True):
            yield from unlike(one, other, f"{at}/*")
    elif native != ours:
        yield at


def is_aside(kind: str) -> bool:
    """Whether the order says nothing of it, and it is not something that only one of the two has to say."""
    return not kind.startswith(("session.", "permission.", "form.", "question."))


def kinds(body: Any) -> list[str]:
    """The types of what a list holds."""
    data = body.get("data") if isinstance(body, dict) else None
    return [one["type"] for one in data if isinstance(one, dict) and "type" in one] if isinstance(data, list) else []


# --- tests ------------------------------------------------------------------------------------------------------


def listed_differences(name: str, scene: str) -> Found:
    """The rows of a scene."""
    found: Found = set()
    for row in table(name):
        if scene not in row["scenes"]:
            continue
        if name == "order":
            found |= {(how, kind) for how in ("lacks", "more") for kind in row.get(how, ())}
        else:
            found |= {(asks, str(row["native"]), str(row["ours"])) for asks in row["asks"]}
    return found


@pytest.mark.parametrize("scene", [older_is_slow(scene, scene.startswith("preview/") and scene not in QUICK) for scene in SCENES])
async def test_a_scene_makes_the_events_of_native(scene: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with play_scene(scene, tmp_path, monkeypatch) as player:
        assert order(player) == listed_differences("order", scene)
        assert logs(player) <= listed_differences("order", scene)
        assert statuses(player) == listed_differences("answer", scene)
        for name, key, found in (("shape", "says", shapes(player)), ("value", "at", values(player))):
            known = [row for row in table(name) if scene.partition("/")[0] in row["dialects"]]
            assert found - pairs(known, key) == set(), name
            assert pairs([row for row in known if scene in row["seen"]], key) - found == set(), "rows that are not needed"


def pairs(rows_: Iterable[Wire], key: str) -> Found:
    """What rows speak of."""
    return {(of, one) for row in rows_ for of in row["of"] for one in row[key]}


STREAM_HEADERS = ("content-type", "cache-control", "x-accel-buffering", "x-content-type-options")


@pytest.mark.parametrize("scene", ["v2_july/heartbeat", "preview/fork"])
async def test_a_stream_begins_and_is_kept_alive_as_natives(scene: str, tmp_path: Path) -> None:
    """Its headers, its first frame and comment; and how long it is silent after that."""
    stream = [row for row in rows(scene) if row["dir"] == "sse" and row.get("stream") == STREAM]
    opened, first = stream[0], next(row["data"] for row in stream if "data" in row)
    beats = [row["t"] for row in stream if "comment" in row]
    assert {row["comment"] for row in stream if "comment" in row} == {COMMENT}
    assert all(round(later - earlier) == HEARTBEAT_S for earlier, later in pairwise(beats))
    async with (
        live(tmp_path) as server,
        server.api.raw.get("/api/event", params={"dialect": scene.partition("/")[0]}) as response,
    ):
        ours = {name: response.headers[name].lower() for name in STREAM_HEADERS if name in opened["headers"]}
        assert ours == {name: opened["headers"][name].lower() for name in ours}
        async with asyncio.timeout(PLAY_S):
            lines = [(await response.content.readline()).decode().rstrip("\n") for _ in range(4)]
    told = json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: "))
    assert (told["type"], told.keys()) == (first["type"], first.keys())
    assert lines[-1] == COMMENT


def test_each_row_says_why_and_where() -> None:
    for name in ("order", "answer", "shape", "value"):
        for row in table(name):
            assert row["why"].endswith(".")
            assert set(row.get("seen", row.get("scenes"))) <= set(SCENES)
    located = (*table("shape"), *table("value"))
    assert all({one.partition("/")[0] for one in row["seen"]} == set(row["dialects"]) for row in located)
