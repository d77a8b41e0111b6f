"""Folds OpenCode 2's events (`v2_0`) into the state that a client shows, to compare it with GET and with OpenCode 1.

`tests.support.two_faces` holds it against everything else.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from shim.faces.opencode2._generated.operations import VERSIONS
from shim.faces.opencode2.wire_event import Event
from tests.support.opencode2_views import OpenCode2View

Wire = dict[str, Any]
ENDS = ("session.execution.succeeded", "session.execution.failed", "session.execution.interrupted")
TALK = {"session.step.", "session.text.", "session.reasoning.", "session.tool.", "session.retry.", "session.compaction."}
"""What only happens in an execution, unless it was made elsewhere (an import)."""


@dataclass
class OpenCode2Fold:
    """One session as its events tell it; `violations` lists what a client could not make sense of."""

    session_id: str
    imported: bool = False
    info: Wire = field(default_factory=dict)
    messages: dict[str, Wire] = field(default_factory=dict)
    inbox: dict[str, Wire] = field(default_factory=dict)
    permissions: dict[str, Wire] = field(default_factory=dict)
    forms: dict[str, Wire] = field(default_factory=dict)
    running: bool = False
    starts: int = 0
    ends: int = 0
    violations: list[str] = field(default_factory=list)
    streams: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """Text so far of (message, kind, ordinal) that has not ended."""
    seqs: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    idles: int = 0
    status: str = "idle"
    owed: list[str] = field(default_factory=list)
    """Events that must come next: what accompanies the start and the end of an execution."""
    _event: Event | None = None

    def feed(self, event: Event) -> None:
        """One event."""
        self._event = event
        self.ids.append(event.id)
        if (event.seq is None) != (event.type not in VERSIONS):
            self.violations.append(f"{event.type} has seq {event.seq}")
        if event.seq is not None:
            self.seqs.append(event.seq)
        if not self.running and not self.imported and any(event.type.startswith(kind) for kind in TALK):
            self.violations.append(f"{event.type} while nothing runs")
        if self.owed and self.owed.pop(0) != event.type:
            self.violations.append(f"{event.type} comes before {self.owed} of an execution")
        handler = getattr(self, "on_" + event.type.replace(".", "_"), None)
        if handler is None:
            self.violations.append(f"no client knows {event.type}")
        else:
            handler(event.data)

    @property
    def at(self) -> int:
        assert self._event is not None
        return self._event.created

    def message_id(self) -> str:
        """The id of the message that this event makes."""
        assert self._event is not None
        return self._event.id.replace("evt_", "msg_", 1)

    def show(self, id_: str, kind: str, **told: Any) -> None:
        if id_ in self.messages:
            self.violations.append(f"a second message {id_}")
        self.messages[id_] = {"id": id_, "time": {"created": self.at}, "type": kind, **told}

    # --- session -------------------------------------------------------------------------------------------

    def on_session_created(self, d: Wire) -> None:
        self.info = {k: v for k, v in d.items() if k not in ("sessionID", "slug", "version")}
        zero = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
        self.info |= {"id": d["sessionID"], "cost": 0, "tokens": zero}

    def on_session_forked(self, d: Wire) -> None:
        self.info = {"id": d["sessionID"], "fork": {"sessionID": d["parentID"], "boundary": d["boundary"]}}

    def on_session_renamed(self, d: Wire) -> None:
        self.info["title"] = d["title"]

    def on_session_metadata_updated(self, d: Wire) -> None:
        self.info["metadata"] = d["metadata"]

    def on_session_permissions(self, d: Wire) -> None:
        self.info["permissions"] = d["permissions"]

    def on_session_usage_updated(self, d: Wire) -> None:
        self.info |= {"cost": d["cost"], "tokens": d["tokens"]}

    def on_session_viewed(self, d: Wire) -> None:
        self.info["viewed"] = d["idle"]

    def on_session_deleted(self, d: Wire) -> None:
        self.info = {}

    def _show_selection(self, key: str, d: Wire) -> None:
        if d.get("previous") != self.info.get(key):
            self.violations.append(f"{key} was {self.info.get(key)}, not {d.get('previous')}")
        self.info[key] = d[key]
        self.show(self.message_id(), f"{key}-switched", **{k: v for k, v in d.items() if k != "sessionID"})

    def on_session_agent_selected(self, d: Wire) -> None:
        self._show_selection("agent", d)

    def on_session_model_selected(self, d: Wire) -> None:
        self._show_selection("model", d)

    def on_session_skill_activated(self, d: Wire) -> None:
        self.show(self.message_id(), "skill", skill=d["id"], name=d["name"], text=d["text"])

    def on_session_synthetic(self, d: Wire) -> None:
        self.show(self.message_id(), "synthetic", **{k: v for k, v in d.items() if k != "sessionID"})

    # --- inbox ---------------------------------------------------------------------------------------------

    def on_session_inbox_enqueued(self, d: Wire) -> None:
        if d["inboxID"] in self.inbox or d["inboxID"] in self.messages:
            self.violations.append(f"{d['inboxID']} is enqueued twice")
        self.inbox[d["inboxID"]] = d["item"]

    def on_session_inbox_delivered(self, d: Wire) -> None:
        item = self.inbox.pop(d["inboxID"], None)
        if item is None:
            self.violations.append(f"{d['inboxID']} is delivered, but was not in the inbox")
        elif item["type"] in ("user", "synthetic"):
            self.show(d["inboxID"], item["type"], **item["payload"])

    def on_session_inbox_cancelled(self, d: Wire) -> None:
        if self.inbox.pop(d["inboxID"], None) is None:
            self.violations.append(f"{d['inboxID']} is cancelled, but was not in the inbox")

    def on_session_inbox_delivery_changed(self, d: Wire) -> None:
        self.inbox[d["inboxID"]] = {**self.inbox[d["inboxID"]], "delivery": d["delivery"]}

    # --- executions ----------------------------------------------------------------------------------------

    def on_session_execution_started(self, d: Wire) -> None:
        if self.running:
            self.violations.append("an execution starts while one runs")
        self.running = True
        self.starts += 1
        self.info.pop("outcome", None)
        self.owed = ["session.status"]

    def _end(self, d: Wire, outcome: str) -> None:
        if not self.running:
            self.violations.append("an end without a start")
        self._check_settled()
        self.running = False
        self.ends += 1
        self.info["outcome"] = outcome
        self.show(self.message_id(), "idle", outcome=outcome, **({"error": d["error"]} if "error" in d else {}))
        self.owed = ["session.status", "session.idle"]

    def on_session_status(self, d: Wire) -> None:
        status = d["status"]["type"]
        if (status == "idle") == self.running or (status == self.status == "busy"):
            self.violations.append(f"status {status} after {self.status}, running: {self.running}")
        self.status = status

    def on_session_idle(self, d: Wire) -> None:
        self.idles += 1
        if self.running or self.status != "idle" or self.idles != self.ends:
            self.violations.append(f"idle number {self.idles} after {self.ends} ends, status {self.status}")

    def on_session_execution_succeeded(self, d: Wire) -> None:
        self._end(d, "succeeded")

    def on_session_execution_failed(self, d: Wire) -> None:
        self._end(d, "failed")

    def on_session_execution_interrupted(self, d: Wire) -> None:
        self._end(d, "interrupted")

    def _check_settled(self) -> None:
        for message in self.messages.values():
            if message["type"] == "assistant":
                if "completed" not in message["time"]:
                    self.violations.append(f"step {message['id']} has not ended at idle")
                for part in message["content"]:
                    if part["type"] == "tool" and part["state"]["status"] in ("streaming", "running"):
                        self.violations.append(f"tool {part['id']} is {part['state']['status']} at idle")
            elif message.get("status") == "running":
                self.violations.append(f"{message['type']} {message['id']} is running at idle")
        if self.permissions or self.forms or self.streams:
            self.violations.append(f"open at idle: {[*self.permissions, *self.forms, *self.streams]}")

    # --- steps ---------------------------------------------------------------------------------------------

    def on_session_step_started(self, d: Wire) -> None:
        self.info.setdefault("agent", d["agent"])
        self.info.setdefault("model", d["model"])
        snapshot = {"snapshot": {"start": d["snapshot"]}} if "snapshot" in d else {}
        old = self.messages.get(d["assistantMessageID"])
        if old is not None:
            if "retry" not in old:
                self.violations.append(f"step {old['id']} is opened again without a retry")
            self.messages[old["id"]] = {k: v for k, v in old.items() if k != "retry"} | snapshot
        else:
            told = {"agent": d["agent"], "model": d["model"], **snapshot, "content": []}
            self.show(d["assistantMessageID"], "assistant", **told)

    def _step(self, d: Wire, *, open_: bool = True) -> Wire:
        step = self.messages.get(d["assistantMessageID"])
        if step is None:
            self.violations.append(f"of an unknown step: {d}")
            step = self.messages[d["assistantMessageID"]] = {"id": "", "time": {"created": 0}, "content": []}
        if open_ and "completed" in step["time"]:
            self.violations.append(f"of a step that has ended: {d}")
        return step

    def _time(self, d: Wire, **moments: int) -> None:
        step = self._step(d)
        step["time"] = {**step["time"], **moments}

    def on_session_step_streamed(self, d: Wire) -> None:
        self._time(d, streamed=self.at)

    def on_session_step_ended(self, d: Wire) -> None:
        step = self._step(d)
        self._time(d, completed=self.at)
        step.pop("retry", None)
        step |= {k: d[k] for k in ("finish", "rawFinish", "cost", "tokens") if k in d}
        if "snapshot" in d:
            step["snapshot"] = {**step.get("snapshot", {}), "end": d["snapshot"], "files": d["files"]}

    def on_session_step_failed(self, d: Wire) -> None:
        step = self._step(d, open_=False)
        step["time"] = {**step["time"], "completed": self.at}
        step.pop("retry", None)
        step |= {"finish": "error"} | {k: d[k] for k in ("error", "cost", "tokens") if k in d}

    def on_session_retry_scheduled(self, d: Wire) -> None:
        self._step(d)["retry"] = {k: d[k] for k in ("attempt", "at", "error")}

    def on_session_message_content_updated(self, d: Wire) -> None:
        self.messages[d["messageID"]]["content"] = list(d["content"])

    # --- texts ---------------------------------------------------------------------------------------------

    def _talk(self, d: Wire, kind: str) -> Wire:
        found = [part for part in self._step(d)["content"] if part["type"] == kind]
        if d["ordinal"] >= len(found):
            self.violations.append(f"of an unknown {kind}: {d}")
            return {}
        return found[d["ordinal"]]

    def _start(self, d: Wire, kind: str, **more: Any) -> None:
        content = self._step(d)["content"]
        if d["ordinal"] != sum(part["type"] == kind for part in content):
            self.violations.append(f"not the next {kind}: {d}")
        content.append({"type": kind, "text": "", **more})
        self.streams[(d["assistantMessageID"], kind, d["ordinal"])] = ""

    def _delta(self, d: Wire, kind: str) -> None:
        key = (d["assistantMessageID"], kind, d["ordinal"])
        self._talk(d, kind)
        if key not in self.streams:
            self.violations.append(f"a delta of a text that does not grow: {d}")
        self.streams[key] = self.streams.get(key, "") + d["delta"]

    def _finish(self, d: Wire, kind: str) -> None:
        said = self.streams.pop((d["assistantMessageID"], kind, d["ordinal"]), None)
        if said and not d["text"].startswith(said):
            self.violations.append(f"deltas said {said!r}, the end says {d['text']!r}")
        self._talk(d, kind)["text"] = d["text"]

    def on_session_text_started(self, d: Wire) -> None:
        self._start(d, "text")

    def on_session_text_delta(self, d: Wire) -> None:
        self._delta(d, "text")

    def on_session_text_ended(self, d: Wire) -> None:
        self._finish(d, "text")

    def on_session_reasoning_started(self, d: Wire) -> None:
        self._start(d, "reasoning", time={"created": self.at})

    def on_session_reasoning_delta(self, d: Wire) -> None:
        self._delta(d, "reasoning")

    def on_session_reasoning_ended(self, d: Wire) -> None:
        self._finish(d, "reasoning")
        part = self._talk(d, "reasoning")
        part["time"] = {**part["time"], "completed": self.at}

    # --- tools ---------------------------------------------------------------------------------------------

    def _tool(self, d: Wire, *expected: str) -> Wire:
        content = self._step(d, open_=False)["content"]
        found = next((p for p in content if p["type"] == "tool" and p["id"] == d["id"]), None)
        if found is None or found["state"]["status"] not in expected:
            self.violations.append(f"{self._event.type if self._event else ''} of {found}: {d}")
        return found or {"state": {"input": {}}, "time": {}}

    def on_session_tool_input_started(self, d: Wire) -> None:
        begun = {"type": "tool", "id": d["id"], "name": d["name"], "executed": False}
        self._step(d)["content"].append({**begun, "state": {"status": "streaming", "input": ""}, "time": {"created": self.at}})

    def on_session_tool_input_delta(self, d: Wire) -> None:
        self._tool(d, "streaming")

    def on_session_tool_input_ended(self, d: Wire) -> None:
        self._tool(d, "streaming")
        json.loads(d["text"])

    def on_session_tool_called(self, d: Wire) -> None:
        tool = self._tool(d, "streaming")
        tool["state"] = {"status": "running", "input": d["input"], "metadata": {}}
        tool["time"] = {**tool["time"], "ran": self.at}

    def on_session_tool_progress(self, d: Wire) -> None:
        tool = self._tool(d, "running")
        tool["state"] = {**tool["state"], "metadata": d["metadata"]}

    def _result(self, d: Wire, status: str) -> None:
        tool = self._tool(d, "running")
        told = {key: d[key] for key in ("content", "metadata", "error") if key in d}
        tool["state"] = {"status": status, "input": tool["state"]["input"], **told}
        tool["time"] = {**tool["time"], "completed": self.at}

    def on_session_tool_success(self, d: Wire) -> None:
        self._result(d, "completed")

    def on_session_tool_failed(self, d: Wire) -> None:
        self._result(d, "error")

    # --- compactions, commands, undo -----------------------------------------------------------------------

    def on_session_compaction_started(self, d: Wire) -> None:
        told = {"reason": d["reason"], "status": "running", "summary": "", "recent": d["recent"]}
        self.show(d.get("inputID") or self.message_id(), "compaction", **told)

    def _compaction(self) -> Wire:
        found = [m for m in self.messages.values() if m["type"] == "compaction" and m["status"] == "running"]
        if len(found) != 1:
            self.violations.append(f"{len(found)} compactions run")
        return found[-1] if found else {}

    def on_session_compaction_delta(self, d: Wire) -> None:
        self._compaction()

    def on_session_compaction_ended(self, d: Wire) -> None:
        self._compaction().update({"status": "completed", "summary": d["text"], "recent": d["recent"]})

    def on_session_compaction_failed(self, d: Wire) -> None:
        message = self._compaction()
        message.update({"status": "failed", "error": d["error"]})
        message.pop("summary", None)
        message.pop("recent", None)

    def on_session_shell_started(self, d: Wire) -> None:
        told = {"shellID": d["shell"]["id"], "command": d["shell"]["command"], "status": d["shell"]["status"]}
        self.show(self.message_id(), "shell", **told)

    def on_session_shell_ended(self, d: Wire) -> None:
        message = next(m for m in self.messages.values() if m.get("shellID") == d["shell"]["id"])
        message |= {k: d["shell"][k] for k in ("status", "exit") if k in d["shell"]} | {"output": d["output"]}
        message["time"] = {**message["time"], "completed": d["shell"]["time"]["completed"]}

    def on_session_revert_staged(self, d: Wire) -> None:
        self.info["revert"] = d["revert"]

    def on_session_revert_cleared(self, d: Wire) -> None:
        self.info.pop("revert", None)

    def on_session_revert_committed(self, d: Wire) -> None:
        self.info.pop("revert", None)
        known = list(self.messages)
        for id_ in known[known.index(d["to"]) :]:
            del self.messages[id_]

    # --- asks ----------------------------------------------------------------------------------------------

    def on_permission_asked(self, d: Wire) -> None:
        self.permissions[d["id"]] = d

    def on_permission_replied(self, d: Wire) -> None:
        if self.permissions.pop(d["requestID"], None) is None:
            self.violations.append(f"a reply to an unknown permission {d['requestID']}")

    def on_form_created(self, d: Wire) -> None:
        self.forms[d["form"]["id"]] = d["form"]

    def on_form_replied(self, d: Wire) -> None:
        if self.forms.pop(d["id"], None) is None:
            self.violations.append(f"a reply to an unknown form {d['id']}")

    on_form_cancelled = on_form_replied

    # --- in the end ----------------------------------------------------------------------------------------

    def check(self, live: OpenCode2View) -> None:
        """Fails with everything that was wrong, and where it is not what GET says."""
        if self.ends != self.starts - self.running:
            self.violations.append(f"{self.starts} starts, {self.ends} ends")
        if self.owed or self.idles != self.ends:
            self.violations.append(f"{self.ends} ends, {self.idles} idles, still to come: {self.owed}")
        if self.seqs != list(range(len(self.seqs))):
            self.violations.append(f"seqs have holes: {self.seqs}")
        if len(set(self.ids)) != len(self.ids):
            self.violations.append("an id is used twice")
        assert not self.violations, "\n".join(self.violations)
        assert self.running == live.is_running
        assert self.messages == live.messages
        assert list(self.messages) == list(live.messages)
        shown = {id_: {k: e[k] for k in ("type", "payload", "delivery")} for id_, e in live.inbox.items()}
        assert self.inbox == shown
        assert (self.permissions, self.forms) == (live.permissions, live.forms)
        if "fork" in self.info:  # what a fork has from its source, clients read
            return
        keys = ("id", "title", "agent", "model", "cost", "tokens", "outcome", "revert", "metadata", "permissions", "parentID")
        assert {k: self.info.get(k) for k in keys} == {k: live.info.get(k) for k in keys}
