"""Builds journals by hand for what no recording has: undo, shell commands, compaction requests, skills, imports.

story = Story()
story.prompt("hello"); story.say("Hi."); story.end()
story.told          # what OpenCode 2 told, as it came
story.now           # what can be read there
"""

from __future__ import annotations

import json
from typing import Any

from shim.faces.opencode1.events import render
from shim.faces.opencode1.wire_event import OpenCodeEvent
from shim.faces.opencode2.events import session_deleted
from shim.faces.opencode2.wire_event import Event
from shim.lib.clock import from_rfc3339, rfc3339
from tests.support.opencode1_views import view
from tests.support.opencode2_views import OpenCode2View
from tests.support.two_faces import SHELL, log_events
from universal.events import (
    ErrorData,
    EventData,
    EventType,
    ItemData,
    ItemDeltaData,
    PermissionData,
    QuestionData,
    SessionStartedData,
    Source,
    TurnData,
    UniversalEvent,
)
from universal.items import (
    ContentPart,
    Item,
    ItemKind,
    ItemRole,
    ItemStatus,
    StatusPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
)
from universal.session.reducer import Reducer

Wire = dict[str, Any]
START_MS = 1_795_293_784_000
STEP_MS = 7
DIRECTORY = "/home/user/project"
ZERO = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


class Story:
    """One session, event by event. Both faces are fed; `step_ms` 0 stops the clock."""

    def __init__(self, session_id: str = f"ses_{0:026d}", *, agent: str = "mock", step_ms: int = STEP_MS, **info: Any) -> None:
        self.id = session_id
        self.agent = agent
        self.journal: list[UniversalEvent] = []
        self.told: list[Event] = []
        self.told_first: list[OpenCodeEvent] = []
        self.batches: list[list[str]] = []
        """Types of what each event made."""
        self.reducer = Reducer(session_id, agent)
        self.opencode1 = view(self.reducer.session)
        """What a client of OpenCode 1 can read."""
        self._step_ms = step_ms
        self._items = 0
        self._turns = 0
        fork = info.pop("fork", None)
        made = {
            **{"id": session_id, "slug": "quiet-fox", "version": "1.18.33", "projectID": "global", "directory": DIRECTORY},
            **{"title": "t", "time": {"created": START_MS, "updated": START_MS}, "cost": 0, "tokens": ZERO},
            **info,
        }
        metadata = {"opencode": made, "agent": agent, **({"fork": fork} if fork else {})}
        self.record(EventType.SESSION_STARTED, SessionStartedData(metadata=metadata))

    @property
    def now(self) -> OpenCode2View:
        """What can be read."""
        return OpenCode2View(self.reducer.session)

    def record(self, type_: EventType, data: EventData) -> list[Event]:
        """Applies one event; gives the events that OpenCode 2 makes of it."""
        at = START_MS + len(self.journal) * self._step_ms
        number = len(self.journal) + 1
        event = UniversalEvent(
            event_id=f"evt_{number}",
            sequence=number,
            time=rfc3339(at),
            session_id=self.id,
            source=Source.DAEMON,
            synthetic=True,
            type=type_,
            data=data,
        )
        self.journal.append(event)
        at = from_rfc3339(event.time)
        changes, session = self.reducer.apply(event, at), self.reducer.session
        self.told_first += render(changes, session, at)
        made = log_events(changes, session, at)
        self.told += made
        self.batches.append([one.type for one in made])
        return made

    def item(
        self,
        kind: ItemKind,
        *content: ContentPart,
        role: ItemRole | None = None,
        item_id: str = "",
        parent: str | None = None,
        started: bool = False,
        failed: bool = False,
        **metadata: Any,
    ) -> str:
        """One item; its id."""
        self._items += not item_id
        made = item_id or f"item_{self._items}"
        status = ItemStatus.IN_PROGRESS if started else ItemStatus.FAILED if failed else ItemStatus.COMPLETED
        item = Item(
            item_id=made, parent_id=parent, kind=kind, role=role, status=status, content=content, metadata=metadata or None
        )
        self.record(EventType.ITEM_STARTED if started else EventType.ITEM_COMPLETED, ItemData(item=item))
        return made

    def status(self, label: str, detail: str | None = None, **metadata: Any) -> None:
        """A status item."""
        self._items += 1
        item = Item(
            item_id=f"item_{self._items}",
            kind=ItemKind.STATUS,
            status=ItemStatus.COMPLETED,
            content=(StatusPart(label=label, detail=detail),),
            metadata=metadata,
        )
        self.record(EventType.ITEM_COMPLETED, ItemData(item=item))

    # --- turns ---------------------------------------------------------------------------------------------

    def accept(self, words: str, *, parts: list[Wire] | None = None, origin: str | None = None, **given: Any) -> str:
        """A prompt is accepted; its item's id."""
        more = {"origin": origin} if origin else {}
        told = {"opencode": {"parts": parts or [{"type": "text", "text": words}], **given}}
        return self.item(ItemKind.MESSAGE, TextPart(text=words), role=ItemRole.USER, **told, **more)

    def message_id(self, item_id: str) -> str:
        """What a prompt's message is called."""
        return self.reducer.transcript.prompt_of_item.get(item_id, "")

    def start(self, origin: str = "user") -> None:
        """A turn begins."""
        self._turns += 1
        data = TurnData(phase="started", turn_id=f"turn_{self._turns}", metadata={"origin": origin})
        self.record(EventType.TURN_STARTED, data)

    def hand(self, item_id: str, **more: Any) -> None:
        """The prompt is the agent's."""
        self.status("prompt", state="handed", item_id=item_id, agent=self.agent, **{"carried": [], **more})

    def prompt(self, words: str, **given: Any) -> str:
        """A prompt is accepted, and answered in a turn of its own from now on."""
        item_id = self.accept(words, **given)
        self.start()
        self.hand(item_id)
        return item_id

    def end(self, reason: str = "completed", **metadata: Any) -> None:
        """The turn ends."""
        data = TurnData(phase="ended", turn_id=f"turn_{self._turns}", metadata={"reason": reason, **metadata})
        self.record(EventType.TURN_ENDED, data)

    def turn(self, words: str = "hello", answer: str = "Hi.") -> str:
        """A whole turn; its prompt's item."""
        item_id = self.prompt(words)
        self.say(answer)
        self.end()
        return item_id

    def error(self, message: str, code: str | None = None, **details: Any) -> None:
        """The agent fails."""
        self.record(EventType.ERROR, ErrorData(message=message, code=code, details=details or None))

    # --- what is said --------------------------------------------------------------------------------------

    def message(self, **metadata: Any) -> str:
        """An answer begins."""
        return self.item(ItemKind.MESSAGE, role=ItemRole.ASSISTANT, started=True, **metadata)

    def delta(self, item_id: str, words: str, index: int = 0, kind: Any = "text") -> None:
        """A piece of it."""
        self.record(EventType.ITEM_DELTA, ItemDeltaData(item_id=item_id, delta=words, part_index=index, part_type=kind))

    def whole(self, item_id: str, *parts: ContentPart, failed: bool = False, **metadata: Any) -> None:
        """It is complete."""
        self.item(ItemKind.MESSAGE, *parts, role=ItemRole.ASSISTANT, item_id=item_id, failed=failed, **metadata)

    def say(self, words: str, **metadata: Any) -> str:
        """An answer, in two pieces."""
        item_id = self.message()
        self.delta(item_id, words[:2])
        self.delta(item_id, words[2:])
        usage = {"input": 12, "output": 3}
        self.whole(item_id, TextPart(text=words), **{"finish": "stop", "usage": usage, **metadata})
        return item_id

    def call(self, name: str, arguments: Wire, *, parent: str | None = None, call_id: str = "call_1", done: bool = True) -> str:
        """A call; its item. `done`: its arguments are there."""
        begun = ToolCallPart(name=name, arguments="", call_id=call_id)
        item_id = self.item(ItemKind.TOOL_CALL, begun, role=ItemRole.TOOL, parent=parent, started=True)
        if done:
            self.set_arguments(item_id, name, arguments, parent=parent, call_id=call_id)
        return item_id

    def set_arguments(
        self, item_id: str, name: str, arguments: Wire, *, parent: str | None = None, call_id: str = "call_1"
    ) -> None:
        """Gives a tool call its arguments."""
        part = ToolCallPart(name=name, arguments=json.dumps(arguments), call_id=call_id)
        self.item(ItemKind.TOOL_CALL, part, role=ItemRole.TOOL, parent=parent, item_id=item_id)

    def output(self, call_id: str = "call_1") -> str:
        """It begins to give output; the item."""
        part = ToolResultPart(call_id=call_id, output="")
        return self.item(ItemKind.TOOL_RESULT, part, role=ItemRole.TOOL, started=True)

    def result(self, output: str, *more: ContentPart, call_id: str = "call_1", failed: bool = False, **metadata: Any) -> None:
        """What it gave."""
        part = ToolResultPart(call_id=call_id, output=output)
        self.item(ItemKind.TOOL_RESULT, part, *more, role=ItemRole.TOOL, failed=failed, **metadata)

    # --- asks ----------------------------------------------------------------------------------------------

    def ask(self, permission_id: str = "per_1", *, tool: str = "bash", call_id: str = "call_1", **given: Any) -> None:
        """The agent asks whether it may."""
        meta = {"tool": tool, "call_id": call_id, "input": given or {"command": "ls"}}
        data = PermissionData(permission_id=permission_id, action=tool, status="requested", metadata=meta)
        self.record(EventType.PERMISSION_REQUESTED, data)

    def allow(self, permission_id: str = "per_1", status: Any = "accept", **metadata: Any) -> None:
        """The answer."""
        data = PermissionData(permission_id=permission_id, action="", status=status, metadata=metadata or None)
        self.record(EventType.PERMISSION_RESOLVED, data)

    def question(self, question_id: str, *questions: Any, call_id: str = "call_1") -> None:
        """The agent asks."""
        data = QuestionData(
            question_id=question_id,
            prompt=questions[0].question,
            options=tuple(o.label for o in questions[0].options),
            status="requested",
            questions=questions,
            metadata={"call_id": call_id},
        )
        self.record(EventType.QUESTION_REQUESTED, data)

    def answer(self, question_id: str, *answers: tuple[str, ...]) -> None:
        """The person answers; without answers, it does not want to."""
        status: Any = "answered" if answers else "rejected"
        data = QuestionData(question_id=question_id, prompt="", options=(), status=status, answers=answers or None)
        self.record(EventType.QUESTION_RESOLVED, data)

    # --- what people do ------------------------------------------------------------------------------------

    def shell(self, command: str, output: str, *, code: int | None = 0) -> None:
        """A person's command, in a turn of its own."""
        parts = [{"type": "text", "text": "The following tool was executed by the user", "synthetic": True}]
        item_id = self.accept("The following tool was executed by the user", parts=parts, origin="shell")
        self.start("agent")
        self.status("prompt", state="own", item_id=item_id)
        message = self.message(origin="shell")
        self.call("bash", {"command": command}, parent=message, call_id=f"{SHELL}{item_id}")
        result = self.output(f"{SHELL}{item_id}")
        self.delta(result, output, kind="tool_output")
        if code is not None:
            self.result(output, call_id=f"{SHELL}{item_id}", exit_code=code)
            self.whole(message, origin="shell")
        self.end("completed" if code is not None else "aborted")

    def compact(self, summary: str, *, wish: bool = True, fails: bool = False) -> None:
        """A compaction, in a turn of its own."""
        if wish:
            self.prompt("", parts=[{"type": "compaction", "auto": False}])
        else:
            self.prompt("hello")
        self.status("compaction", phase="started", auto=not wish)
        if not fails:
            message = self.message()
            self.delta(message, summary)
            self.whole(message, TextPart(text=summary), usage={"input": 5, "output": 6})
        self.status("compaction", "too long" if fails else None, phase="failed" if fails else "completed", auto=not wish)
        self.end()

    def import_message(self, role: str, *parts: Wire, message_id: str, created: int, **info: Any) -> None:
        """A message that was made elsewhere."""
        named = [{**p, "id": f"prt_{n}", "messageID": message_id, "sessionID": self.id} for n, p in enumerate(parts)]
        model = {"modelID": "m", "providerID": "p"}
        told = {"model": model} if role == "user" else {**model, "cost": 0.1, "tokens": {**ZERO, "input": 1}, "parentID": "msg_0"}
        time = {"created": created, **({"completed": created + 5} if role == "assistant" else {})}
        wire = {"id": message_id, "role": role, "sessionID": self.id, "agent": "build", "time": time, **told, **info}
        self.item(ItemKind.MESSAGE, role=ItemRole(role), imported={"info": wire, "parts": named})


def synthetic_stories() -> list[Story]:
    """Two sessions in which all happens that no recording has."""
    story = Story()
    story.turn()
    story.status("session", title="A short title", metadata={"a": 1}, permission=[])
    story.status("session", permission=[{"permission": "bash", "pattern": "*", "action": "ask"}])
    story.status("session", agent="plan", model={"id": "other", "providerID": "mock"})
    story.status("skill", id="demo", name="demo", text="Do the demo.")
    story.status("synthetic", text="a note", description="of nobody")
    story.status("viewed", idle=START_MS)
    story.shell("echo hi", "hi\n")
    story.compact("All that was said.")
    story.compact("", fails=True)
    story.compact("Unasked.", wish=False)
    hidden = story.accept("hidden", kind="synthetic", description="a note")
    story.start()
    story.hand(hidden)
    queued = story.accept("later", delivery="queue")
    story.status("prompt", state="delivery", item_id=queued, delivery="steer")
    story.say("Yes.")
    story.hand(queued)
    story.say("Later.")
    dropped = story.accept("never")
    story.status("prompt", state="withdrawn", item_id=dropped)
    story.status("message.removed", message_id=story.message_id(dropped))
    story.end()
    undone = story.turn("undo me")
    staged = {"messageID": story.message_id(undone), "snapshot": "abc"}
    diffs = [{"file": "a.txt", "patch": "@@ -1 +1,2 @@\n a\n+b\n", "additions": 1, "deletions": 0, "status": "modified"}]
    story.status("revert", revert=staged, diffs=diffs)
    story.status("revert", revert=None)
    story.status("revert", revert=staged, diffs=diffs)
    messages = list(story.opencode1.messages)
    gone = messages[messages.index(staged["messageID"]) :]
    story.status("revert", revert=None, messages=gone, parts=[], diffs=[])
    story.told.append(session_deleted(story.reducer.session, START_MS + 1_000_000))
    forked = Story(f"ses_{1:026d}", fork={"sessionID": story.id, "boundary": {"type": "before", "messageID": gone[0]}})
    return [story, forked]
