"""Compares what a session shows of the recordings of two versions of an agent: texts, tools, requests and ends of turns.

A recording is played to the agent's codec, as in the tests. So two versions that say the same in other messages do not differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from shim.dev.record.take import scene_files, scenes_in
from tests.support.recordings import ROOT
from tests.support.replay import Replay, play
from universal.events import EventType, PermissionData, QuestionData

SHOWN_CHARS = 160
"""Maximum characters that are shown of a text that differs."""
ID = re.compile(r"\b(?:msg|prt|call|toolu|item|req|ses|chatcmpl)[_-][A-Za-z0-9_-]+|\b[0-9a-f]{8}-[0-9a-f-]{27}\b|\d{10,}")


@dataclass(frozen=True, slots=True)
class SceneEvidence:
    """What a session shows of one scene, over all processes of its recording."""

    texts: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()

    def __add__(self, other: SceneEvidence) -> SceneEvidence:
        return SceneEvidence(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class AgentOffers:
    """Models, modes and commands that the agent offers before a prompt."""

    models: frozenset[str] = frozenset()
    modes: frozenset[str] = frozenset()
    commands: frozenset[str] = frozenset()


def scene_evidence(folder: Path, scene: str) -> tuple[SceneEvidence, AgentOffers]:
    """The evidence of a scene in a folder of recordings."""
    total, offered = SceneEvidence(), AgentOffers()
    for path in scene_files(folder, scene):
        played = play(str(path.relative_to(ROOT))[: -len(".jsonl")])
        total = total + _evidence_of(played)
        catalogue = played.codec.catalogue
        if catalogue is not None:
            models, modes, commands = catalogue.models, catalogue.modes, catalogue.commands
            offered = AgentOffers(
                frozenset(model.id for model in models),
                frozenset(mode.id for mode in modes),
                frozenset(command.name for command in commands),
            )
    return total, offered


def _evidence_of(played: Replay) -> SceneEvidence:
    asked = [fact.data for fact in played.facts(EventType.PERMISSION_REQUESTED)]
    questions = [fact.data for fact in played.facts(EventType.QUESTION_REQUESTED)]
    return SceneEvidence(
        tuple(ID.sub("ID", text) for text in played.texts() if text.strip()),  # how a text is cut into parts varies
        tuple(" ".join(card) for card in played.cards()),
        tuple(_ask(data) for data in asked if isinstance(data, PermissionData)),
        tuple(data.prompt for data in questions if isinstance(data, QuestionData)),
        tuple(" ".join(turn) for turn in played.turns()),
    )


def _ask(data: PermissionData) -> str:
    return f"{data.action} {(data.metadata or {}).get('tool', '')}".strip()


def changes(before: Path, now: Path) -> list[str]:
    """A line for each difference in the scenes that both folders have."""
    out: list[str] = []
    for scene in sorted(scenes_in(before) & scenes_in(now)):
        (old, old_offers), (new, new_offers) = scene_evidence(before, scene), scene_evidence(now, scene)
        for name in SceneEvidence.__slots__:
            out += _difference(f"{name} of {scene}", getattr(old, name), getattr(new, name))
        if scene == "text":
            for name in AgentOffers.__slots__:
                out += _sets(name, getattr(old_offers, name), getattr(new_offers, name))
    return out


def _difference(what: str, old: Sequence[str], new: Sequence[str]) -> Iterator[str]:
    if tuple(old) != tuple(new):
        yield f"{what}: {_short(old)} is now {_short(new)}"


def _sets(what: str, old: frozenset[str], new: frozenset[str]) -> Iterator[str]:
    if not old or not new:
        return  # the recording does not hold the offers
    if new - old:
        yield f"{what} new: {', '.join(sorted(new - old))}"
    if old - new:
        yield f"{what} gone: {', '.join(sorted(old - new))}"


def _short(words: Sequence[str]) -> str:
    text = " | ".join(words) or "nothing"
    return text if len(text) <= SHOWN_CHARS else text[: SHOWN_CHARS - 3] + "..."
