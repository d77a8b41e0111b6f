"""The person's OpenCode configuration, read and written."""

from __future__ import annotations

import json

import pytest

from shim.faces.opencode1.routes import event
from tests.http.conftest import Place

DEFAULTS = {
    "$schema": "https://opencode.ai/config.json",
    "command": {},
    "plugin": [],
    "username": "someone",
    "mode": {},
    "agent": {},
}


async def test_without_files(place: Place) -> None:
    assert (await place.api.get("/config", status=200)).body == DEFAULTS
    assert (await place.api.get("/global/config", status=200)).body == {"$schema": DEFAULTS["$schema"]}


async def test_files_are_merged(place: Place) -> None:
    person = place.home / ".config" / "opencode"
    person.mkdir(parents=True)
    (person / "opencode.jsonc").write_text('{"share": "manual", "permission": {"bash": {"rm *": "deny"}}, // mine\n}')
    (place.project / "opencode.json").write_text('{"model": "claude/opus", "permission": {"bash": {"git *": "allow"}}}')
    (place.project / ".opencode").mkdir()
    (place.project / ".opencode" / "opencode.json").write_text('{"model": "claude/sonnet"}')
    body = (await place.api.get("/config", status=200)).body
    assert body == {
        **DEFAULTS,
        "share": "manual",
        "model": "claude/sonnet",
        "permission": {"bash": {"rm *": "deny", "git *": "allow"}},
    }
    assert (await place.api.get("/global/config", status=200)).body["share"] == "manual"


async def test_plugins_that_are_files_are_named(place: Place) -> None:
    """The TUI lists them in `/status`."""
    person, own = place.home / ".config" / "opencode", place.project / ".opencode" / "plugin" / "own.js"
    for file in (person / "plugins" / "mine.ts", own):
        file.parent.mkdir(parents=True)
        file.write_text("export default {}")
    (person / "opencode.json").write_text(json.dumps({"plugin": ["named", f"file://{own}"]}))
    plugins = (await place.api.get("/config", status=200)).body["plugin"]
    assert plugins == ["named", f"file://{own}", (person / "plugins" / "mine.ts").as_uri()]


async def test_language_servers_and_formatters_of_each_form_are_valid(place: Place) -> None:
    tools = {"off": {"disabled": True}, "own": {"command": ["x"], "extensions": [".x"], "disabled": False}}
    (place.project / "opencode.json").write_text(json.dumps({"lsp": tools, "formatter": tools}))
    body = (await place.api.get("/config", status=200)).body
    assert (body["lsp"], body["formatter"]) == (tools, tools)


async def test_a_broken_file_is_reported_and_left_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Native refuses every request of the directory then, and its TUI does not start."""
    monkeypatch.setattr(event, "NOTICE_AFTER_S", 0.0)
    (place.project / "opencode.json").write_text('{"model": \n')
    async with place.api.stream("/event") as events:
        assert (await place.api.get("/config", status=200)).body == DEFAULTS
        toast = (await events.until("tui.toast.show"))[-1]["properties"]
    assert f"{place.project}/opencode.json is no JSON: line 2, column 1" in toast["message"]
    async with place.api.stream("/event") as late:
        toast = (await late.until("tui.toast.show"))[-1]["properties"]
    assert f"{place.project}/opencode.json is no JSON" in toast["message"], "who connects later is told too"
    async with place.api.stream("/global/event") as tui:
        (toast,) = [event for event in await tui.until("tui.toast.show") if event["type"] == "tui.toast.show"]
    assert f"{place.project}/opencode.json is no JSON" in toast["properties"]["message"], "OpenCode's TUI reads this stream"


async def test_a_wrong_value_leaves_the_others(place: Place) -> None:
    (place.project / "opencode.json").write_text(
        '{"model": 5, "nosuch": 1, "share": "manual", "permission": {"bash": "maybe", "edit": "deny"}}'
    )
    body = (await place.api.get("/config", status=200)).body
    assert body == {**DEFAULTS, "share": "manual", "permission": {"edit": "deny"}}


async def test_update_writes_what_is_read_again(place: Place) -> None:
    """Native writes a `config.json` here, which it never reads; ours changes the file that counts, comments kept."""
    file = place.project / "opencode.jsonc"
    file.write_text('{\n  // why\n  "model": "claude/opus", // the big one\n  "share": "manual"\n}\n')
    async with place.api.stream("/event") as events:
        sent = {"model": "claude/haiku", "share": None, "permission": {"bash": "ask"}}
        answer = await place.api.patch("/config", sent, status=200)
        assert answer.body == {"model": "claude/haiku", "permission": {"bash": "ask"}}
        assert (await events.until("server.instance.disposed"))[-1]["properties"] == {"directory": place.directory}
    assert file.read_text() == (
        '{\n  // why\n  "model": "claude/haiku", // the big one\n  "permission": {\n    "bash": "ask"\n  }\n}\n'
    )
    body = (await place.api.get("/config", status=200)).body
    assert (body["model"], body["permission"], "share" in body) == ("claude/haiku", {"bash": "ask"}, False)
    assert not (place.project / "config.json").exists()
    assert place.sessions.disposed == [], "running turns go on"


async def test_update_makes_a_file(place: Place) -> None:
    await place.api.patch("/config", {"username": "other"}, status=200)
    assert json.loads((place.project / "opencode.json").read_text()) == {"$schema": DEFAULTS["$schema"], "username": "other"}
    assert (await place.api.get("/config", status=200)).body["username"] == "other"


async def test_update_of_a_broken_file_leaves_it(place: Place) -> None:
    file = place.project / "opencode.json"
    file.write_text('{"model": ')
    answer = await place.api.patch("/config", {"username": "other"}, status=400)
    assert "left as it is" in answer.body["data"]["message"]
    assert file.read_text() == '{"model": '


async def test_update_where_nothing_can_be_written(place: Place) -> None:
    answer = await place.api.patch("/config", {"username": "x"}, params={"directory": "/proc"}, status=400)
    assert "cannot be written" in answer.body["data"]["message"]


async def test_wrong_types(place: Place) -> None:
    answer = await place.api.patch("/config", {"model": 5}, status=400)
    assert answer.body["data"] == {"message": 'Expected string, got 5\n  at ["model"]', "kind": "Payload"}
    assert not (place.project / "opencode.json").exists()


async def test_global_update(place: Place) -> None:
    """The answer is the whole file; a link to it (dotfiles) stays a link."""
    folder = place.home / ".config" / "opencode"
    folder.mkdir(parents=True)
    real = place.home / "dotfiles.json"
    real.write_text('{"share": "manual", "permission": {"bash": {"rm *": "deny"}}}')
    (folder / "opencode.json").symlink_to(real)
    async with place.api.stream("/global/event") as events:
        answer = await place.api.patch("/global/config", {"permission": {"bash": {"ls *": "allow"}}, "share": None}, status=200)
        await events.until("global.disposed")
    assert answer.body == {
        "$schema": DEFAULTS["$schema"],
        "permission": {"bash": {"rm *": "deny", "ls *": "allow"}},
    }
    assert (folder / "opencode.json").is_symlink()
    assert json.loads(real.read_text())["permission"] == answer.body["permission"]


async def test_the_older_tui_gets_its_keys(place: Place) -> None:
    """It knows no others than these; to later ones they would be unknown."""
    body = (await place.api.get("/config", headers={"User-Agent": "opencode/1.1.53"}, status=200)).body
    keys = body.pop("keybinds")
    assert (keys["leader"], keys["session_interrupt"], len(keys)) == ("ctrl+x", "escape", 94)
    assert body == DEFAULTS
    assert "keybinds" not in (await place.api.get("/config", headers={"User-Agent": "opencode/1.18.33"}, status=200)).body
