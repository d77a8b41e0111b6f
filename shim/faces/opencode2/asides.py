"""What is an assistant's message in the core, and a message of its own kind on the OpenCode 2 face: compactions, and a person's
shell commands. Pure.

Both are told by their own events, and shown as one message, whose id is that of the inbox item that asked for it (compactions),
else that of the event that began it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shim.faces.opencode2 import names
from shim.faces.opencode2.events import Wire
from shim.faces.opencode2.state import Conversation2
from shim.faces.opencode2.teller import Teller, message_id
from universal.jsonvalue import obj, text
from universal.session.changes import TextGrew
from universal.session.model import Message, Part, StepInfo, Text, ToolCall

SHELL = "/bin/sh"
"""What runs the commands, as far as the journal tells: the person's `$SHELL` is the server's business."""


@dataclass(slots=True)
class _Compaction:
    id: str
    reason: str
    input_id: str | None
    texts: set[str] = field(default_factory=set[str])


@dataclass(slots=True)
class _Shell:
    id: str
    info: Wire


class Asides:
    """Compactions and shell commands of one session. `names` is that of the steps: ids that differ from the core's."""

    def __init__(self, conversation: Conversation2, teller: Teller, names: dict[str, str]) -> None:
        self._conversation = conversation
        self._teller = teller
        self._names = names
        self._compactions: dict[str, _Compaction] = {}
        self._shells: dict[str, _Shell | None] = {}
        self.wishes: set[str] = set()
        """Inbox items that ask for a compaction."""

    def knows(self, core_id: str) -> bool:
        """Whether this message of the core is one of them."""
        return core_id in self._compactions or core_id in self._shells

    # --- compactions ---------------------------------------------------------------------------------------

    def compaction(self, info: StepInfo, *, auto: bool) -> None:
        """The agent begins to compact: `info` of the message that will have the summary."""
        wish = info.parent_id if info.parent_id in self.wishes else None
        reason = "auto" if auto else "manual"
        told: Wire = {"reason": reason, "recent": "", **({"inputID": wish} if wish else {})}
        event = self._teller.tell("session.compaction.started", told)
        id_ = wish or message_id(event)
        self._compactions[info.id] = _Compaction(id_, reason, wish)
        self._names[info.id] = id_
        if auto:
            self._names[info.parent_id] = id_
        time = {"created": self._teller.at}
        self._conversation.messages.pop(id_, None)
        self._conversation.messages[id_] = {
            **{"id": id_, "time": time, "type": "compaction", "reason": reason},
            **{"status": "running", "summary": "", "recent": ""},
        }

    def delta(self, change: TextGrew) -> None:
        """A piece of the summary."""
        found = self._compactions.get(change.message_id)
        if found is not None and change.part_id in found.texts:
            self._teller.tell("session.compaction.delta", {"text": change.delta}, beside={"messageID": found.id})

    def compacted(self, info: StepInfo, message: Message | None) -> Wire | None:
        """It is over: what the conversation is now, or why not. Out: its message."""
        found = self._compactions.get(info.id)
        shown = self._conversation.messages.get(found.id) if found is not None else None
        if found is None or shown is None or shown["status"] != "running":
            return None
        kept = {key: shown[key] for key in ("id", "time", "type", "reason")}
        if info.error is not None:
            error = names.error(info.error)
            data: Wire = {"reason": found.reason, "error": error, **({"inputID": found.input_id} if found.input_id else {})}
            self._teller.tell("session.compaction.failed", data)
            shown = {**kept, "status": "failed", "error": error}
        else:
            texts = [part.text for part in message.all_parts() if isinstance(part, Text)] if message is not None else []
            summary = "\n".join(texts)
            ended: Wire = {"reason": found.reason, "text": summary, "recent": ""}
            self._teller.tell("session.compaction.ended", ended, beside={"messageID": found.id})
            shown = {**kept, "status": "completed", "summary": summary, "recent": ""}
        self._conversation.messages[found.id] = shown
        return shown

    # --- shell commands ------------------------------------------------------------------------------------

    def shell(self, info: StepInfo) -> None:
        """A person's command will be in this message."""
        self._shells[info.id] = None

    def part(self, info: StepInfo, part: Part) -> None:
        """A part of one of them is new, or has changed."""
        if (compaction := self._compactions.get(info.id)) is not None and isinstance(part, Text):
            compaction.texts.add(part.id)
        if isinstance(part, ToolCall) and info.id in self._shells:
            shell = self._shells[info.id]
            if shell is None and part.status != "pending":
                shell = self._begin(info, text(part.input.get("command")))
            if shell is not None and part.status in ("completed", "error"):
                self._end(shell, part)

    def _begin(self, message: StepInfo, command: str) -> _Shell:
        at = self._teller.at
        info: Wire = {
            **{"id": "", "status": "running", "command": command, "cwd": self._conversation.info["location"]["directory"]},
            **{"shell": SHELL, "file": "", "metadata": {}, "time": {"started": at}},
        }
        event = self._teller.tell("session.shell.started", {"shell": info})
        info["id"] = f"sh_{event.id.removeprefix('evt_')}"
        shell = _Shell(message_id(event), info)
        self._shells[message.id] = shell
        self._names[message.id] = self._names[message.parent_id] = shell.id
        self._conversation.messages[shell.id] = {
            **{"id": shell.id, "time": {"created": at}, "type": "shell", "shellID": info["id"]},
            **{"command": command, "status": "running"},
        }
        return shell

    def _end(self, shell: _Shell, call: ToolCall) -> None:
        shown = self._conversation.messages.get(shell.id)
        if shown is None or shown["status"] != "running":
            return
        meta = obj(call.metadata)
        exit_ = meta.get("exit")
        said = (call.output if call.status == "completed" else "") or text(meta.get("output"))
        size = len(said.encode())
        output = {"output": said, "cursor": size, "size": size, "truncated": bool(meta.get("truncated"))}
        killed = not isinstance(exit_, int) or exit_ < 0
        told: Wire = {"status": "killed" if killed else "exited", **({} if not isinstance(exit_, int) else {"exit": exit_})}
        time = {"completed": self._teller.at}
        info = {**shell.info, **told, "time": {**shell.info["time"], **time}}
        self._teller.tell("session.shell.ended", {"shell": info, "output": output})
        self._conversation.messages[shell.id] = {**shown, **told, "output": output, "time": {**shown["time"], **time}}
