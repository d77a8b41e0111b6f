"""Export and import of sessions. `all_parts.json` is what `opencode export` of 1.18.33 wrote of one with all kinds of parts."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from shim.cli import transfer
from shim.lib.clock import SystemClock
from shim.lib.settings import Settings
from shim.store.memory import MemoryStore
from tests.support.live import TURN_S, Live, live

EXPORTED = Path(__file__).parents[2] / "compat_fixtures" / "opencode" / "1.18.33" / "export" / "all_parts.json"
PLACE = ("directory", "projectID", "path")
"""What an import changes of a session, in native OpenCode too: it belongs to where it is imported."""


@pytest.fixture
def document() -> Any:
    return json.loads(EXPORTED.read_text())


def without_place(info: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in info.items() if k not in PLACE}


async def export_session(server: Live, session: str) -> Any:
    return (await server.api.get(f"/session/{session}/export", status=200)).body


async def test_a_native_session_comes_in_field_by_field(server: Live, document: Any) -> None:
    kinds = {p["type"] for m in document["messages"] for p in m["parts"]}
    wanted = {"text", "reasoning", "tool", "file", "patch", "compaction", "subtask", "step-start", "step-finish"}
    assert wanted <= kinds, "the fixture has all kinds of parts"
    info = (await server.api.post("/session/import", document, status=200)).body
    session = document["info"]["id"]
    # Rules that allow are left out: whoever wrote the document must not answer this person's questions.
    assert document["info"]["permission"] == [{"permission": "*", "pattern": "*", "action": "allow"}]
    assert without_place(info) == without_place({**document["info"], "permission": []})
    assert info["directory"] == str(server.directory)
    assert await server.messages(session) == document["messages"]
    assert (await export_session(server, session))["messages"] == document["messages"]
    assert [t["status"] for t in (await server.api.get(f"/session/{session}/todo", status=200)).body] != []
    assert session in [s["id"] for s in (await server.api.get("/session", status=200)).body]


def floats(value: Any) -> Any:
    """The same JSON value as a client writes it whose language has no integers."""
    if isinstance(value, dict):
        return {key: floats(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [floats(inner) for inner in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def json_text(value: Any) -> str:
    """As JSON, where `5` and `5.0` are two texts."""
    return json.dumps(value, sort_keys=True)


async def test_whole_numbers_are_integers_however_they_are_written(server: Live, document: Any) -> None:
    info = (await server.api.post("/session/import", floats(document), status=200)).body
    assert json_text(without_place(info)) == json_text(without_place({**document["info"], "permission": []}))
    assert json_text(await server.messages(document["info"]["id"])) == json_text(document["messages"])


async def test_an_imported_session_is_announced_once(server: Live, document: Any) -> None:
    async with server.api.stream("/event") as events:
        await server.api.post("/session/import", document, status=200)
        await server.api.post("/session/import", document, status=200)
        await server.api.patch(f"/session/{document['info']['id']}", {"title": "over"}, status=200)
        seen: list[Any] = []
        async with asyncio.timeout(TURN_S):
            while not seen or seen[-1]["properties"].get("info", {}).get("title") != "over":
                seen.append(await events.next())
    told = [e["properties"]["info"]["id"] for e in seen if e["type"] == "message.updated"]
    assert told == [m["info"]["id"] for m in document["messages"]]


async def test_an_imported_session_is_rebuilt_from_the_journal(tmp_path: Path, document: Any) -> None:
    store = MemoryStore()
    session = document["info"]["id"]
    async with live(tmp_path, store=store) as first:
        await first.api.post("/session/import", document, status=200)
        before = await export_session(first, session)
    async with live(tmp_path, store=store) as second:
        assert await export_session(second, session) == before


async def test_the_agent_gets_the_imported_conversation(server: Live, document: Any) -> None:
    await server.api.post("/session/import", document, status=200)
    session = document["info"]["id"]
    # no model is named: the session's own is unknown here, so the default agent takes it
    parts = [{"type": "text", "text": "remember"}]
    answer = (await server.api.post(f"/session/{session}/message", {"parts": parts}, status=200)).body
    said = "".join(p["text"] for p in answer["parts"] if p["type"] == "text")
    assert "I was also told what others said" in said
    after = await server.messages(session)
    assert after[: len(document["messages"])] == document["messages"]
    assert [m["info"]["role"] for m in after[len(document["messages"]) :]] == ["user", "assistant"]


async def test_a_fork_of_an_import_has_ids_of_its_own(server: Live, document: Any) -> None:
    await server.api.post("/session/import", document, status=200)
    session, messages = document["info"]["id"], document["messages"]
    fork = (await server.api.post(f"/session/{session}/fork", {"messageID": messages[4]["info"]["id"]}, status=200)).body
    copied = await server.messages(fork["id"])
    assert len(copied) == 4
    assert not {m["info"]["id"] for m in copied} & {m["info"]["id"] for m in messages}
    assert {p["sessionID"] for m in copied for p in m["parts"]} == {fork["id"]}
    users = [m["info"]["id"] for m in copied if m["info"]["role"] == "user"]
    assert all(m["info"]["parentID"] in users for m in copied if m["info"]["role"] == "assistant")
    texts = [[p.get("text") for p in m["parts"]] for m in copied]
    assert texts == [[p.get("text") for p in m["parts"]] for m in messages[:4]]


@pytest.mark.parametrize(("scene", "reply"), [("permission", {"reply": "once"}), ("question", {"answers": [["Red"], []]})])
async def test_a_request_of_a_session_stays_open_when_it_is_forked(server: Live, scene: str, reply: dict[str, Any]) -> None:
    session = await server.session()
    async with server.api.stream("/event") as events:
        await server.prompt(session, scene)
        request = (await events.until(f"{scene}.asked"))[-1]["properties"]["id"]
        fork = (await server.api.post(f"/session/{session}/fork", {}, status=200)).body["id"]
        await server.api.post(f"/{scene}/{request}/reply", reply, status=200)
        seen = await events.until(lambda event: event["type"] == "session.idle" and event["properties"]["sessionID"] == session)
    closed = [event["properties"]["sessionID"] for event in seen if event["type"] == f"{scene}.replied"]
    assert closed == [session]
    assert fork not in (await server.api.get("/session/status", status=200)).body


async def test_our_own_session_comes_back_as_it_was(server: Live, tmp_path: Path) -> None:
    session = await server.session()
    for prompt in ("think", "tool", "edit", "todo", "compact", "failtool"):
        await server.ask(session, prompt)
    document = await export_session(server, session)
    (tmp_path / "other").mkdir()
    async with live(tmp_path / "other") as other:
        info = (await other.api.post("/session/import", document, status=200)).body
        assert without_place(info) == without_place(document["info"])
        assert await other.messages(session) == document["messages"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({}, "no exported session"),
        ({"info": {"id": "ses_1"}, "messages": 5}, "no exported session"),
        ({"info": {"id": "nope", "time": {"created": 1, "updated": 1}}, "messages": []}, "info.id"),
        ({"info": {"id": "ses_1", "time": {}}, "messages": []}, 'info/time: "created" is a required property'),
    ],
)
async def test_a_malformed_export_is_refused_with_the_reason(server: Live, body: Any, why: str) -> None:
    answer = await server.api.post("/session/import", body, status=400)
    assert why in answer.body["data"]["message"]
    assert (await server.api.get("/session", status=200)).body == []


async def test_a_broken_part_is_refused_whole(server: Live, document: Any) -> None:
    document["messages"][1]["parts"][0] = {**document["messages"][1]["parts"][0], "type": "text", "text": 5}
    answer = await server.api.post("/session/import", document, status=400)
    assert 'messages/1/parts/0/text: 5 is not of type "string"' in answer.body["data"]["message"]
    assert (await server.api.get("/session", status=200)).body == []


async def prune(
    server: Live, tmp_path: Path, archive: Path | None = None, before_ms: int | None = None, *, asked: Any = None
) -> int:
    """`opencode-shim prune` on this server, of what is not newer than now, unless `before_ms` is another time."""
    settings = Settings(directory=tmp_path, data_dir=tmp_path / "data")
    url = str(server.api.raw.make_url("")).rstrip("/")
    before_ms = SystemClock().now_ms() + 1 if before_ms is None else before_ms
    return await transfer.prune(settings, url, archive, asked or (lambda _: True), days=30, before_ms=before_ms)


async def test_sessions_that_were_idle_for_long_are_removed_and_come_back(server: Live, tmp_path: Path) -> None:
    (old, _), (busy, asked) = await server.turn("subagent"), (await server.session(), list[str]())
    await server.prompt(busy, "hang")
    (child,) = (await server.api.get(f"/session/{old}/children", status=200)).body
    kept = {id_: await export_session(server, id_) for id_ in (old, child["id"])}
    archive = tmp_path / "old" / "sessions"
    assert await prune(server, tmp_path, archive, 1) == 0
    assert await prune(server, tmp_path, archive, asked=lambda text: asked.append(text)) == 0
    assert (len(asked), archive.exists()) == (1, False)
    assert await prune(server, tmp_path, archive) == 0
    assert [row["id"] for row in (await server.api.get("/session", status=200)).body] == [busy]
    files = {file.stem: json.loads(file.read_text()) for file in archive.iterdir()}
    assert files == kept
    assert {file.stat().st_mode & 0o777 for file in archive.iterdir()} == {0o600}
    for document in files.values():
        await server.api.post("/session/import", document, status=200)
    assert await server.messages(old) == kept[old]["messages"]
    assert [row["id"] for row in (await server.api.get(f"/session/{old}/children", status=200)).body] == [child["id"]]


async def test_a_session_that_is_used_meanwhile_or_cannot_be_copied_stays_and_is_named(
    server: Live, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    used = await server.session()
    loop = asyncio.get_running_loop()

    def use(_: str) -> bool:
        asyncio.run_coroutine_threadsafe(server.ask(used, "echo again"), loop).result(TURN_S)
        return True

    assert await prune(server, tmp_path, asked=use) == 1
    assert f"Left as it is: {used} was used meanwhile" in capsys.readouterr().out
    (tmp_path / "file").touch()
    assert await prune(server, tmp_path, tmp_path / "file") == 1
    assert f"Left as it is: {used}: " in capsys.readouterr().out
    assert [row["id"] for row in (await server.api.get("/session", status=200)).body] == [used]
