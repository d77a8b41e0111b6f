"""What an agent has missed of a conversation, as text for its next prompt. Pure.

An agent knows what it said itself and the prompts that it was handed. It has not seen: the messages of a fork, of
another agent in the same session, context-only prompts (`noReply`), prompts that were queued when the turn was
aborted, and shell commands that the person ran. They are sent along once, oldest first, before the prompt.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from shim.clock import rfc3339
from universal.session.model import HANDOVER, File, Message, Session, StepInfo, Text, ToolCall

CONTEXT_LIMIT_CHARS = 200_000
"""The newest part is kept; older text is left out, and the text says so."""


@dataclass(frozen=True, slots=True)
class MissedContext:
    """`text` is empty when nothing was missed; `message_ids` are known to the agent once it was sent.

    `handover`: a sentence for the person when another agent's words go along; empty when none do.
    """

    text: str
    message_ids: tuple[str, ...]
    handover: str = ""

    def journal_entry(self) -> dict[str, Any]:
        """What the session's journal keeps of it."""
        return {"carried": list(self.message_ids), **({"handover": self.handover} if self.handover else {})}


NOTHING = MissedContext("", ())


def missed_context(session: Session, agent: str, leave_out: Collection[str]) -> MissedContext:
    """What `agent` does not know yet, except the messages in `leave_out` (the prompt itself, queued ones)."""
    ids = [id_ for id_ in session.messages.unknown_to(agent) if id_ not in leave_out]
    kept: list[str] = []
    size = 0
    for id_ in reversed(ids):
        message = session.messages.peek(id_)
        assert message is not None
        block = _block(message)
        size += len(block)
        if size > CONTEXT_LIMIT_CHARS:
            kept.append("(older messages are left out)")
            break
        if block:
            kept.append(block)
    if not kept:
        return MissedContext("", tuple(ids))
    body = "\n\n".join(reversed(kept))
    text = f"<earlier-in-this-conversation>\n{body}\n</earlier-in-this-conversation>\n\n"
    return MissedContext(text, tuple(ids), _handover(session, agent, ids, cut=size > CONTEXT_LIMIT_CHARS))


def forget(session: Session, agent: str) -> None:
    """A new native conversation begins: the agent knows nothing of what was said before."""
    session.messages.forget(agent)


def _handover(session: Session, agent: str, ids: Sequence[str], *, cut: bool) -> str:
    """The sentence for the person; empty if `agent` itself gave the last of these answers, as in a fork of its own session."""
    infos = (message.info for id_ in reversed(ids) if (message := session.messages.peek(id_)) is not None)
    answered = next((info.model.provider_id for info in infos if isinstance(info, StepInfo)), None)
    if answered is None or answered == agent:
        return ""
    older = "; what is older did not fit and was left out" if cut else ""
    return f"{agent} takes over from {answered}. It is told what was said so far ({len(ids)} messages, as text{older})."


def _block(message: Message) -> str:
    role = "User" if message.is_user else "Assistant"
    lines: list[str] = []
    for part in message.all_parts():
        match part:
            case Text(text=words, metadata=metadata) if words.strip() and metadata != HANDOVER:
                lines.append(words)
            case ToolCall(status="completed"):
                lines.append(f"[{part.tool} {part.title}]\n{part.output[:4000]}")
            case File():
                lines.append(f"[file {part.filename or part.url[:200]}]")
            case _:
                pass
    return f"{role}:\n" + "\n".join(lines) if lines else ""


def title_of(text: str) -> str:
    """A session's title from its first prompt: its first line, at most 50 characters, cut at a word."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    if len(line) <= 50:
        return line
    cut = line[:50].rsplit(" ", 1)[0]
    return (cut if len(cut) > 20 else line[:49]).rstrip(" ,.;:") + "…"


def default_title(created_ms: int, *, child: bool) -> str:
    """What a session is called before anything is known of it."""
    return f"{'Child' if child else 'New'} session - {rfc3339(created_ms)}"


def is_default_title(title: str) -> bool:
    """Whether nobody has named the session yet."""
    return title.startswith(("New session - ", "Child session - "))
