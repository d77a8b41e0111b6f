"""What turns changed in files: from the snapshot before the first one's prompt to the one after the last one's answer.

Without snapshots (switched off, or too old) what the agents' tools told of each prompt is all that is known.
"""

from __future__ import annotations

from collections.abc import Sequence

from shim.errors import ShimError
from shim.opencode.build import Wire
from shim.projection.opencode1.state import Conversation, Message
from shim.sessions.steps import Trees, diffs_between
from shim.sessions.undo_plan import changed_in


async def changes(
    conversation: Conversation, trees: Trees | None, first: str | None, last: str | None, context: int
) -> list[Wire]:
    """`FileDiffInfo[]` of the turns of these prompts: `first` None is the newest, `last` None the same as `first`."""
    messages, later = turn_messages(conversation, first, last)
    before = next((tree for m in messages if (tree := _tree(m))), None)
    # What is so after a turn is told with the next one's first step: the snapshot at its end comes after its last part.
    after = next((tree for m in later if (tree := _tree(m))), conversation.trees.last)
    names = sorted(changed_in(conversation, messages))
    here = not any(m.info["id"] in conversation.elsewhere for m in messages)
    if here and trees is not None and before is not None and after is not None:
        try:
            found = await diffs_between(trees, conversation.info["directory"], before, after, names, context)
        except ShimError:  # they are kept for a limited time
            found = None
        if found is not None:
            return [_info(one) for one in found]
    return [_info(one) for m in messages for one in m.info.get("summary", {}).get("diffs", []) if m.info["role"] == "user"]


def turn_messages(conversation: Conversation, first: str | None, last: str | None) -> tuple[Sequence[Message], Sequence[Message]]:
    """From the prompt `first` to the end of the answers to `last`; and what came later."""
    messages = list(conversation.messages.values())
    begin = first or conversation.last_user()
    if begin is None:
        return (), ()
    ids = [m.info["id"] for m in messages]
    end = last or begin
    start, stop = ids.index(begin), ids.index(end) + 1
    while stop < len(messages) and messages[stop].info["role"] != "user":
        stop += 1
    return messages[start:stop], messages[stop:]


def _tree(message: Message) -> str | None:
    """The files as they were when this step began."""
    parts = message.parts.values()
    return next((str(part["snapshot"]) for part in parts if part["type"] == "step-start" and part.get("snapshot")), None)


def _info(diff: Wire) -> Wire:
    kept = {key: diff[key] for key in ("file", "patch", "additions", "deletions")}
    return {**kept, "status": diff.get("status") or "modified"}
