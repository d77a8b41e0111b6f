"""Collects the messages that an agent has missed, as text for its next prompt. Pure.

An agent knows its own messages and the prompts that it got. It has not seen messages of a fork or of another agent of the
session, context-only prompts (`noReply`), prompts that were queued at an abort, and shell commands of the person. They are sent
along once, oldest first, before the prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import filterfalse
from typing import Any

from shim.lib.clock import rfc3339
from universal.session.messages import Message
from universal.session.model import Session
from universal.session.values import HANDOVER, File, StepInfo, Text, ToolCall
from universal.tools.cards import without_refusals

CONTEXT_LIMIT_CHARS = 200_000
"""Maximum characters of this text. The newest part is kept, and the text says that older text is missing."""


@dataclass(frozen=True, slots=True)
class MissedContext:
    """The missed messages. `text` is empty without any; the agent knows `message_ids` once the text was sent.

    `handover`: a sentence for the person if another agent's messages go along, else "".
    """

    text: str
    message_ids: tuple[str, ...]
    handover: str = ""

    def journal_entry(self) -> dict[str, Any]:
        """The journal's entry about the missed messages."""
        return {"carried": list(self.message_ids), **({"handover": self.handover} if self.handover else {})}


NOTHING = MissedContext("", ())


def missed_context(
    session: Session, agent: str, leave_out: Collection[str], title_of: Callable[[str], str] = str
) -> MissedContext:
    """The messages that `agent` has missed, without those of `leave_out` (the prompt itself, queued ones).

    `title_of`: what people call an agent.
    """
    ids = list(filterfalse(leave_out.__contains__, session.messages.unknown_to(agent)))
    excerpts: list[str] = []
    size = 0
    for id_ in reversed(ids):
        message = session.messages.peek(id_)
        assert message is not None
        block = _block(message)
        size += len(block)
        if size > CONTEXT_LIMIT_CHARS:
            excerpts.append("(older messages are left out)")
            break
        if block:
            excerpts.append(block)
    if not excerpts:
        return MissedContext("", tuple(ids))
    body = "\n\n".join(reversed(excerpts))
    text = f"<earlier-in-this-conversation>\n{body}\n</earlier-in-this-conversation>\n\n"
    return MissedContext(text, tuple(ids), _handover(session, agent, ids, title_of, cut=size > CONTEXT_LIMIT_CHARS))


def _handover(session: Session, agent: str, ids: Sequence[str], title_of: Callable[[str], str], *, cut: bool) -> str:
    """The sentence for the person. Empty if `agent` itself gave the last of these answers, as in a fork of its session."""
    infos = (message.info for id_ in reversed(ids) if (message := session.messages.peek(id_)) is not None)
    answered = next((info.model.provider_id for info in infos if isinstance(info, StepInfo)), None)
    if answered is None or answered == agent:
        return ""
    older = "; what is older did not fit and was left out" if cut else ""
    told = f"It is told what was said so far ({len(ids)} messages, as text{older})."
    return f"{title_of(agent)} takes over from {title_of(answered)}. {told}"


def _block(message: Message) -> str:
    role = "User" if message.is_user else "Assistant"
    lines: list[str] = []
    for part in message.all_parts():
        match part:
            case Text(text=words, metadata=metadata) if words.strip() and metadata != HANDOVER:
                lines.append(words)
            case ToolCall(status="completed"):
                lines.append(f"[{part.tool} {part.title}]\n{without_refusals(part.output)[:4000]}")
            case File():
                lines.append(f"[file {part.filename or part.url[:200]}]")
            case _:
                pass
    return f"{role}:\n" + "\n".join(lines) if lines else ""


def default_title(created_ms: int, *, child: bool) -> str:
    """The title of a session without a prompt."""
    return f"{'Child' if child else 'New'} session - {rfc3339(created_ms)}"
