"""Prompts of OpenCode 2: what their files become, and in which order prompts wait."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from shim.faces.opencode2.routes import prompt
from shim.host.files.contents import sniff_type
from shim.lib.clock import ManualClock
from shim.lib.errors import InvalidRequest
from shim.lib.ids import Ids
from shim.sessions.permissions.grants import Grants
from universal.permissions import Access
from universal.session.values import File
from universal.turn import DispatchPrompt, Input, PromptsCancelled, TurnMachine


@pytest.mark.parametrize(
    ("content", "name", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n...", "x.txt", "image/png"),
        (b"\xff\xd8\xff\xe0", "", "image/jpeg"),
        (b"GIF89a", "", "image/gif"),
        (b"RIFF1234WEBPVP8 ", "", "image/webp"),
        (b"%PDF-1.7", "", "application/pdf"),
        (b"plain", "a.png", "text/plain"),
        (b"# head", "a.md", "text/markdown"),
        (b"{}", "a.json", "text/plain"),
        (b"PK\x03\x04\x00", "a.zip", "application/zip"),
        (b"\x80\x00", "a", "application/octet-stream"),
        (b"", "empty", "text/plain"),
    ],
)
def test_a_type_is_found_by_the_bytes(content: bytes, name: str, mime: str) -> None:
    assert sniff_type(content, name) == mime


async def test_files_as_they_are_kept(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("hello")
    uri = (tmp_path / "a b.txt").as_uri()
    parts, stored = await prompt.file_parts([{"uri": uri, "description": "d"}, {"uri": "data:text/plain,hi%20there"}], ())
    assert parts[0] == File("", "text/plain", uri, "a b.txt")
    assert stored[0] == {
        "data": base64.b64encode(b"hello").decode(),
        "mime": "text/plain",
        "source": {"type": "uri", "uri": uri},
        "description": "d",
    }
    assert base64.b64decode(stored[1]["data"]) == b"hi there"
    assert stored[1]["source"] == {"type": "inline"}
    folder, kept = await prompt.file_parts([{"uri": tmp_path.as_uri()}], ())
    assert (folder[0].mime, kept[0]["data"]) == ("application/x-directory", "")


@pytest.mark.parametrize(
    "uri", ["https://example.org", "file:relative", "file:///nowhere/at/all", "data:nothing", "data:;base64,%%", "nothing"]
)
async def test_a_refused_attachment_says_which_and_why(uri: str) -> None:
    with pytest.raises(InvalidRequest, match=r'\["files"\]\[1\]\["uri"\]'):
        await prompt.file_parts([{"uri": "data:,ok"}, {"uri": uri}], ())


async def test_files_outside_of_the_roots(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out.txt").write_text("x")
    with pytest.raises(InvalidRequest, match="outside"):
        await prompt.file_parts([{"uri": (tmp_path / "out.txt").as_uri()}], (str(tmp_path / "in"),))


async def test_too_large_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prompt, "BINARY_LIMIT_BYTES", 3)
    (tmp_path / "x").write_bytes(b"1234")
    for uri in ((tmp_path / "x").as_uri(), "data:,1234"):
        with pytest.raises(InvalidRequest, match="4 bytes, at most 3"):
            await prompt.file_parts([{"uri": uri}], ())


def machine_with_prompts(*queued: str) -> TurnMachine:
    machine = TurnMachine()
    machine.apply(Input.PROMPT, "first")
    for key in queued:
        machine.apply(Input.PROMPT, key)
    return machine


@pytest.mark.parametrize(
    ("key", "others", "queue"),
    [
        ("c", ["a"], ["c", "a", "b"]),
        ("c", ["b"], ["a", "c", "b"]),
        ("c", [], ["a", "b", "c"]),
        ("a", ["b", "c"], ["a", "b", "c"]),
        ("x", ["a"], ["a", "b", "c"]),
        ("first", ["a"], ["a", "b", "c"]),
    ],
)
def test_a_prompt_goes_before_others(key: str, others: list[str], queue: list[str]) -> None:
    machine = machine_with_prompts("a", "b", "c")
    machine.advance(key, others)
    assert machine.queue == queue


def test_a_withdrawn_prompt_is_neither_dispatched_nor_cancelled() -> None:
    machine = machine_with_prompts("a", "b")
    assert machine.withdraw("a")
    assert not machine.withdraw("a")
    assert not machine.withdraw("first")
    assert DispatchPrompt("b") in machine.apply(Input.DONE)
    assert not any(isinstance(effect, PromptsCancelled) for effect in machine.apply(Input.ABORT))


def test_a_lasting_grant_is_of_one_directory() -> None:
    clock = ManualClock()
    grants = Grants(clock, Ids(clock))
    grants.allow(
        "/a",
        Access(
            "bash",
            (),
            (
                "git *",
                "ls *",
            ),
        ),
    )
    grants.allow("/b", Access("edit", (), ("*",)))
    assert [rule.pattern for rule in grants.rules("/a", "claude")] == ["git *", "ls *"]
    first = grants.list_grants()[0]
    assert first.id.startswith("psv_")
    grants.revoke(first.id)
    grants.revoke("psv_nobody")
    assert [rule.pattern for rule in grants.rules("/a", "claude")] == ["ls *"]
    grants.clear("/a")
    assert [grant.directory for grant in grants.list_grants()] == ["/b"]
    grants.clear()
    assert grants.list_grants() == ()
