"""What is a message of its own kind on the OpenCode 2 face, and an assistant message on the first: compactions, and a person's
shell commands. Pure.

Both are told by their own events, and shown as one message, whose id is that of the inbox item that asked for it (compactions),
else that of the event that began it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from shim.opencode2.events import Wire
from shim.projection.opencode1.state import Message
from shim.projection.opencode2 import names
from shim.projection.opencode2.state import Conversation2
from shim.projection.opencode2.teller import Teller, message_id
from universal.jsonvalue import obj, text

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
    """Compactions and shell commands of one session. `names` is that of the steps: ids that differ from the first face's."""

    def __init__(self, conversation: Conversation2, teller: Teller, names: dict[str, str]) -> None:
        self._conversation = conversation
        self._teller = teller
        self._names = names
        self._compactions: dict[str, _Compaction] = {}
        self._shells: dict[str, _Shell | None] = {}
        self.wishes: set[str] = set()
        """Inbox items that ask for a compaction."""

    def knows(self, first_id: str) -> bool:
        """Whether this message of the first face is one of them."""
        return first_id in self._compactions or first_id in self._shells

    # --- compactions ---------------------------------------------------------------------------------------

    def compaction(self, info: Wire, *, auto: bool) -> None:
        """The agent begins to compact: `info` of the message that will have the summary."""
        wish = info["parentID"] if info["parentID"] in self.wishes else None
        reason = "auto" if auto else "manual"
        told: Wire = {"reason": reason, "recent": "", **({"inputID": wish} if wish else {})}
        event = self._teller.tell("session.compaction.started", told)
        id_ = wish or message_id(event)
        self._compactions[info["id"]] = _Compaction(id_, reason, wish)
        self._names[info["id"]] = id_
        if auto:
            self._names[info["parentID"]] = id_
        time = {"created": self._teller.at}
        self._conversation.messages.pop(id_, None)
        self._conversation.messages[id_] = {
            **{"id": id_, "time": time, "type": "compaction", "reason": reason},
            **{"status": "running", "summary": "", "recent": ""},
        }

    def delta(self, properties: Wire) -> None:
        """A piece of the summary."""
        found = self._compactions.get(properties["messageID"])
        if found is not None and properties["partID"] in found.texts:
            self._teller.tell("session.compaction.delta", {"text": properties["delta"]}, beside={"messageID": found.id})

    def compacted(self, info: Wire, message: Message | None) -> Wire | None:
        """It is over: what the conversation is now, or why not. Out: its message."""
        found = self._compactions.get(info["id"])
        shown = self._conversation.messages.get(found.id) if found is not None else None
        if found is None or shown is None or shown["status"] != "running":
            return None
        kept = {key: shown[key] for key in ("id", "time", "type", "reason")}
        if info.get("error"):
            error = names.error(obj(info["error"]))
            data: Wire = {"reason": found.reason, "error": error, **({"inputID": found.input_id} if found.input_id else {})}
            self._teller.tell("session.compaction.failed", data)
            shown = {**kept, "status": "failed", "error": error}
        else:
            said = [message.part(id_)["text"] for id_, p in message.parts.items() if p["type"] == "text"] if message else []
            summary = "\n".join(str(words) for words in said)
            ended: Wire = {"reason": found.reason, "text": summary, "recent": ""}
            self._teller.tell("session.compaction.ended", ended, beside={"messageID": found.id})
            shown = {**kept, "status": "completed", "summary": summary, "recent": ""}
        self._conversation.messages[found.id] = shown
        return shown

    # --- shell commands ------------------------------------------------------------------------------------

    def shell(self, info: Wire) -> None:
        """A person's command will be in this message."""
        self._shells[info["id"]] = None

    def part(self, part: Wire, parent_id: str) -> None:
        """A part of one of them is new, or has changed."""
        first_id = part["messageID"]
        if (compaction := self._compactions.get(first_id)) is not None and part["type"] == "text":
            compaction.texts.add(part["id"])
        if part["type"] == "tool" and first_id in self._shells:
            state = obj(part["state"])
            shell = self._shells[first_id]
            if shell is None and state["status"] != "pending":
                shell = self._begin(first_id, parent_id, text(obj(state["input"]).get("command")))
            if shell is not None and state["status"] in ("completed", "error"):
                self._end(shell, state)

    def _begin(self, first_id: str, parent_id: str, command: str) -> _Shell:
        at = self._teller.at
        info: Wire = {
            **{"id": "", "status": "running", "command": command, "cwd": self._conversation.info["location"]["directory"]},
            **{"shell": SHELL, "file": "", "metadata": {}, "time": {"started": at}},
        }
        event = self._teller.tell("session.shell.started", {"shell": info})
        info["id"] = f"sh_{event.id.removeprefix('evt_')}"
        shell = _Shell(message_id(event), info)
        self._shells[first_id] = shell
        self._names[first_id] = self._names[parent_id] = shell.id
        self._conversation.messages[shell.id] = {
            **{"id": shell.id, "time": {"created": at}, "type": "shell", "shellID": info["id"]},
            **{"command": command, "status": "running"},
        }
        return shell

    def _end(self, shell: _Shell, state: Wire) -> None:
        shown = self._conversation.messages.get(shell.id)
        if shown is None or shown["status"] != "running":
            return
        meta = obj(state.get("metadata"))
        exit_ = meta.get("exit")
        said = text(state.get("output")) or text(meta.get("output"))
        size = len(said.encode())
        output = {"output": said, "cursor": size, "size": size, "truncated": bool(meta.get("truncated"))}
        killed = not isinstance(exit_, int) or exit_ < 0
        told: Wire = {"status": "killed" if killed else "exited", **({} if not isinstance(exit_, int) else {"exit": exit_})}
        time = {"completed": self._teller.at}
        info = {**shell.info, **told, "time": {**shell.info["time"], **time}}
        self._teller.tell("session.shell.ended", {"shell": info, "output": output})
        self._conversation.messages[shell.id] = {**shown, **told, "output": output, "time": {**shown["time"], **time}}
