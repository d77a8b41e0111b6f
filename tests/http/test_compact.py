"""`POST /session/{id}/summarize` and `/init`, and compactions that an agent does by itself. Source: recordings of 1.18.33."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.live import TURN_S, Live
from tests.support.opencode1_fold import Fold

MODEL = {"providerID": "mock", "modelID": "mock"}


async def summarize(server: Live, session: str) -> tuple[Any, Fold, list[str]]:
    """The answer, the fold of the stream, and the types of events up to its idle."""
    fold = Fold(session)
    kinds: list[str] = []
    async with server.api.stream("/event") as events:
        asking = asyncio.create_task(server.api.post(f"/session/{session}/summarize", MODEL, status=200))
        async with asyncio.timeout(TURN_S):
            while fold.idles == 0:
                event = await events.next()
                kinds.append(event["type"])
                fold.feed(event["type"], event["properties"])
            answer = await asking
    return answer.body, fold, kinds


async def test_the_agent_compacts_as_native_shows_it(server: Live) -> None:
    session = await server.session()
    await server.ask(session, "echo one")
    answer, fold, kinds = await summarize(server, session)
    assert answer is True
    assert kinds.count("session.idle") == 1
    assert kinds.index("session.compacted") < kinds.index("session.idle")
    user, summary = (await server.messages(session))[-2:]
    assert [(p["type"], p["auto"]) for p in user["parts"]] == [("compaction", False)]
    assert user["info"]["agent"] == "build"
    info = summary["info"]
    assert (info["mode"], info["agent"], info["summary"], info["finish"]) == ("compaction", "compaction", True, "stop")
    assert info["parentID"] == user["info"]["id"]
    assert [p["type"] for p in summary["parts"]] == ["step-start", "text", "step-finish"]
    assert "1 prompt was answered before" in summary["parts"][1]["text"]
    assert fold.errors == []


async def test_a_compaction_in_the_middle_of_a_turn(server: Live) -> None:
    _, fold = await server.turn("compact auto")
    shown = [(m["info"]["role"], m["info"].get("summary"), [p["type"] for p in m["parts"]]) for m in fold.wire()]
    assert [kind for _, _, kind in shown] == [
        ["text"],
        ["compaction"],
        ["step-start", "text", "step-finish"],
        ["step-start", "text", "step-finish"],
    ]
    assert [summary for role, summary, _ in shown if role == "assistant"] == [True, None]
    first, auto, summary, last = (m["info"] for m in fold.wire())
    assert summary["parentID"] == auto["id"]
    assert last["parentID"] == first["id"]
    assert last["agent"] == "build"


async def test_compaction_waits_for_the_running_turn(server: Live) -> None:
    session = await server.session()
    await server.prompt(session, "slow 1")
    answer, _, kinds = await summarize(server, session)
    assert answer is True
    assert kinds.count("session.idle") == 1


async def test_a_refused_compaction_says_why(server: Live) -> None:
    session = await server.session()
    empty = await server.api.post(f"/session/{session}/summarize", MODEL, status=400)
    assert "nothing to compact" in empty.body["data"]["message"]
    await server.ask(session, "echo one")
    before = await server.messages(session)
    unknown = await server.api.post(f"/session/{session}/summarize", {"providerID": "mock", "modelID": "x"}, status=400)
    assert "Model not found" in unknown.body["data"]["message"]
    missing = await server.api.post(f"/session/{session}/summarize", {}, status=400)
    assert missing.body["data"]["message"] == 'Missing key\n  at ["providerID"]'
    await server.api.post("/session/ses_none/summarize", MODEL, status=404)
    assert await server.messages(session) == before


async def test_init_asks_the_agent_for_agents_md(server: Live) -> None:
    session = await server.session()
    body = {**MODEL, "messageID": "msg_20000000000100000000000000"}
    async with server.api.stream("/event") as events:
        assert (await server.api.post(f"/session/{session}/init", body, status=200)).body is True
        seen = await events.until("session.idle")
    run = next(e["properties"] for e in seen if e["type"] == "command.executed")
    assert (run["name"], run["arguments"]) == ("init", "")
    user, answer = await server.messages(session)
    assert user["info"]["id"] == body["messageID"]
    assert "AGENTS.md" in user["parts"][0]["text"]
    assert answer["info"]["parentID"] == user["info"]["id"]
    await server.api.post(f"/session/{session}/init", MODEL, status=400)


async def test_a_failed_compaction_and_its_prompt_have_an_error_each(server: Live) -> None:
    _, fold = await server.turn("compact fail")
    assert len(fold.errors) == 1
    prompt, mark, summary, answer = [message["info"] for message in fold.wire()]
    assert (summary["summary"], summary["parentID"], answer["parentID"]) == (True, mark["id"], prompt["id"])
    assert "error" in summary
    assert answer["error"] == fold.errors[0], "a client that reads later knows why, too"


async def test_the_agents_command_is_the_same_and_not_offered_twice(server: Live) -> None:
    _, fold = await server.turn("/compact")
    assert [m["info"].get("summary") for m in fold.wire() if m["info"]["role"] == "assistant"] == [True]
    offered = [c["name"] for c in (await server.api.get("/command", status=200)).body]
    assert "compact" not in offered
    assert "mock:help" in offered
