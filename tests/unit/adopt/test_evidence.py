"""What a session shows of two versions' recordings."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.support.recordings import ROOT
from tools.adopt import evidence
from tools.adopt.evidence import changes

OLD = ROOT / "pi" / "1.5.2"


def test_the_same_recordings_do_not_differ() -> None:
    assert changes(OLD, OLD) == []


def test_changed_text_tool_and_turn_end_are_reported() -> None:
    [text] = [line for line in changes(OLD, ROOT / "codex" / "0.166.0") if line.startswith("tools of write:")]
    assert text == "tools of write: write completed is now apply_patch completed"


def test_ids_in_texts_are_no_change() -> None:
    assert evidence.ID.sub("ID", "see msg_1f and 12345678901") == "see ID and ID"
    assert evidence.ID.sub("ID", "7 files") == "7 files"


def test_an_empty_text_is_no_change() -> None:
    """codex-acp sends one between two calls, or does not."""

    def evidence_of(*texts: str) -> Any:
        nothing: Any = lambda *_: []  # noqa: E731
        played: Any = SimpleNamespace(texts=lambda: texts, facts=nothing, cards=nothing, turns=nothing)
        return evidence._evidence_of(played)

    assert evidence_of("Reading.", "", "Done!") == evidence_of("Reading.", "Done!")
    assert evidence_of("Reading.", "Done!") != evidence_of("Done!")
