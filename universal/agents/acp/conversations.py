"""Reads conversations as an agent of the protocol tells them: `session/list`, and the history of `session/load`. Pure.

Source: claude-agent-acp 0.101.0, codex-acp 2.6.0, opencode 1.18.33. The protocol tells no times of messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from universal.agent_spec import Conversation, ConversationEvent, ConversationPrompt, Inquiry
from universal.agents.acp.profiles import Profile
from universal.agents.acp.speech import Transcript
from universal.agents.acp.tools import block_text
from universal.agents.acp.wire import CLIENT, Context, Msg
from universal.agents.kit.prompts import time_text
from universal.codec import Fact, IdFactory
from universal.lib.jsonline import get_text, objects, result_of
from universal.lib.jsonvalue import arr, obj

_LISTED = 2
"""Id of the request for the list, where the last request, of id 1, is another one."""


@dataclass(frozen=True, slots=True)
class Conversations:
    """The conversations of one agent."""

    profile: Profile

    def ask(self, directory: str, id_: str) -> Inquiry:
        """A run that lists them, or loads one. An agent that loads one may load the project's settings."""
        requests: list[tuple[int, str, Msg]] = [(_LISTED if id_ else 1, "session/list", {"cwd": directory})]
        if id_:
            requests.append((1, "session/load", {"sessionId": id_, "cwd": directory, "mcpServers": []}))
        return self._run(requests, loads=bool(id_))

    def removal(self, id_: str) -> Inquiry:
        return self._run([(1, "session/delete", {"sessionId": id_})], loads=False)

    def _run(self, requests: Sequence[tuple[int, str, Msg]], *, loads: bool) -> Inquiry:
        hello: Msg = {"protocolVersion": 1, "clientInfo": CLIENT["clientInfo"], "clientCapabilities": {}}
        rows: list[Msg] = [
            {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            for number, method, params in ((0, "initialize", hello), *requests)
        ]
        lines = tuple(json.dumps(row).encode() for row in rows)
        return Inquiry(self.profile.args, lines, loads=loads, variables=self.profile.env)

    def parse(self, text: str, id_: str) -> list[list[Msg]]:
        """The rows of each conversation: that of the list, then the updates of its history."""
        rows = [*objects(text.encode())]
        listed = [obj(row) for row in arr(obj(result_of(rows, _LISTED if id_ else 1)).get("sessions"))]
        if not id_:
            return [[row] for row in listed]
        told = [obj(row.get("params")) for row in rows if row.get("method") == "session/update"]
        updates = [obj(params.get("update")) for params in told if params.get("sessionId") == id_]
        return [[row, *updates] for row in listed if row.get("sessionId") == id_]

    def read(self, rows: Sequence[Msg]) -> Conversation | None:
        """The conversation of a row of the list."""
        row = rows[0]
        id_, updated_ms = get_text(row, "sessionId"), _ms(get_text(row, "updatedAt"))
        title = get_text(row, "title") or f"Conversation {id_[:8]}"
        return Conversation(id_, get_text(row, "cwd"), title, time_text(updated_ms), updated_ms) if id_ else None

    def events(self, rows: Sequence[Msg], ids: IdFactory) -> Iterator[ConversationEvent]:
        """What was said. A prompt may come in pieces."""
        at = time_text(_ms(get_text(rows[0], "updatedAt")))
        context = Context(self.profile.name, ids, lambda: None)
        talk = Transcript(context, untold_output=self.profile.untold_output, arguments_grow=self.profile.arguments_grow)
        prompt = list[str]()
        for update in rows[1:]:
            is_prompt = update.get("sessionUpdate") == "user_message_chunk"
            if is_prompt and not prompt:
                yield from ((at, fact) for fact in talk.close(None))
            if is_prompt:
                prompt.append(block_text(obj(update.get("content"))))
                continue
            facts = [*self._facts(talk, update)]
            if prompt and facts:
                yield at, ConversationPrompt("".join(prompt))
                prompt = []
            yield from ((at, fact) for fact in facts)
        if prompt:
            yield at, ConversationPrompt("".join(prompt))
        yield from ((at, fact) for fact in talk.close(None))

    def _facts(self, talk: Transcript, update: Msg) -> Iterator[Fact]:
        kind = get_text(update, "sessionUpdate")
        if kind == "agent_message_chunk":
            yield from talk.chunk("text", obj(update.get("content")), get_text(update, "messageId"), update)
        elif kind == "agent_thought_chunk":
            yield from talk.chunk("reasoning", obj(update.get("content")), get_text(update, "messageId"), update)
        elif kind in ("tool_call", "tool_call_update"):
            yield from talk.tool(talk.ids.address(update, begins=kind == "tool_call"), update)


def _ms(at: str) -> int:
    """Milliseconds since 1970 of a time of RFC3339; 0 if it is none."""
    try:
        return int(datetime.fromisoformat(at).timestamp() * 1000)
    except ValueError:
        return 0
