"""Finds file changes of turns: from the snapshot before the first prompt to the snapshot after the last answer.

Without snapshots (switched off, or too old) only the changes that the agents' tools reported are known.
"""

from __future__ import annotations

from collections.abc import Sequence

from shim.host.git.trees import Trees, diffs_between
from shim.lib.errors import ShimError
from shim.sessions.undo.undo_plan import files_changed_in
from universal.lib.diffs import FileDiff
from universal.session.model import Message, Session, StepStart, UserInfo


async def changes(session: Session, trees: Trees | None, first: str | None, last: str | None, context: int) -> list[FileDiff]:
    """The changes of the turns from prompt `first` (None: the newest) to `last` (None: the same)."""
    messages, later = turn_messages(session, first, last)
    before = next((tree for m in messages if (tree := _tree(m))), None)
    # The tree after a turn stands in the next turn's first step, because the last snapshot comes after the last part.
    after = next((tree for m in later if (tree := _tree(m))), session.snapshots.last)
    names = sorted(files_changed_in(session, messages))
    here = not any(m.info.id in session.elsewhere for m in messages)
    if here and trees is not None and before is not None and after is not None:
        try:
            diffs = await diffs_between(trees, session.record.directory, before, after, names, context)
        except ShimError:  # they are kept for a limited time
            diffs = None
        if diffs is not None:
            return diffs
    prompts = (message.info for message in messages if isinstance(message.info, UserInfo))
    return [diff for info in prompts for diff in info.diffs or ()]


def turn_messages(session: Session, first: str | None, last: str | None) -> tuple[Sequence[Message], Sequence[Message]]:
    """The messages from the prompt `first` to the end of the answers to `last`, and the later messages."""
    begin = first or session.last_user()
    if begin is None:
        return (), ()
    messages = list(session.messages.since(begin))
    end = last or begin
    ids = [m.info.id for m in messages]
    if end not in ids:
        return (), ()
    stop = ids.index(end) + 1
    while stop < len(messages) and not messages[stop].is_user:
        stop += 1
    return messages[:stop], messages[stop:]


def _tree(message: Message) -> str | None:
    """The tree at the begin of a step."""
    starts = (part for part in message.parts.values() if isinstance(part, StepStart))
    return next((start.snapshot for start in starts if start.snapshot), None)
