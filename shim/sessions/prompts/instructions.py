"""Keeps the instructions that clients of OpenCode 2 set for a session: entries by key, sent with each prompt. Pure.

Agents take instructions only with a prompt, and may forget them (a new conversation, a compaction). So all instructions go along
with each prompt, as its `system` text. Clients get an event if they have changed since the last prompt. The state comes from
these status items of the journal:

    instructions  key; json (the value, as text, so that a null stays one; absent: removed)
    prompt        state "handed" with instructions: {delta: {key: hash | "removed"}, text?}
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from universal.lib.jsonvalue import JsonObject, obj, text

LABEL = "instructions"
MAX_VALUE_BYTES = 64 * 2**10
"""Maximum bytes of one value, as JSON."""
MAX_ENTRIES = 100
REMOVED = "removed"
HEAD = (
    "These instructions were set for this session from outside. They hold now, and no others that were given in this way before:"
)
GONE = "The instructions that were set for this session from outside hold no longer."


@dataclass(frozen=True, slots=True)
class DueInstructions:
    """The instructions for the next prompt. `journal_entry`: the journal's entry; empty without a change."""

    text: str
    journal_entry: JsonObject

    def with_system(self, system: str | None) -> str | None:
        """The `system` text with the prompt's own."""
        return "\n\n".join(filter(None, (self.text, system))) or None


NO_INSTRUCTIONS = DueInstructions("", {})


class Instructions:
    """The instructions of one session.

    entries    key -> value, in the order in which keys were first set
    announced  key -> hash of the value that the agent got last
    """

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}
        self.announced: dict[str, str] = {}

    def note(self, label: str, meta: JsonObject) -> None:
        if label == LABEL:
            key = text(meta.get("key"))
            if "json" in meta:
                self.entries[key] = json.loads(text(meta["json"]))
            else:
                self.entries.pop(key, None)
        elif label == "prompt":
            for key, digest in obj(obj(meta.get("instructions")).get("delta")).items():
                if digest == REMOVED:
                    self.announced.pop(key, None)
                else:
                    self.announced[key] = text(digest)

    def due(self) -> DueInstructions:
        """The instructions for the prompt that is dispatched now."""
        if not (self.entries or self.announced):
            return NO_INSTRUCTIONS
        now = {key: hash_of(value) for key, value in self.entries.items()}
        delta = {key: digest for key, digest in now.items() if self.announced.get(key) != digest}
        delta |= {key: REMOVED for key in self.announced if key not in now}
        words = self._text() if now else GONE if delta else ""
        if not delta:
            return DueInstructions(words, {})
        update = {"text": words} if self.announced else {}
        return DueInstructions(words, {"instructions": {"delta": delta, **update}})

    def _text(self) -> str:
        blocks = [f"[{key}]\n{value if isinstance(value, str) else canonical_json(value)}" for key, value in self.entries.items()]
        return "\n\n".join([HEAD, *blocks])


def canonical_json(value: Any) -> str:
    """A value as canonical JSON."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def hash_of(value: Any) -> str:
    """The hash that clients get instead of a value."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
