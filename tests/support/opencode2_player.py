"""Plays a recording of OpenCode 2 through our server: repeats its requests, and a puppet plays its agent.

    played = await Player("v2_july", rows, server, puppet, events).play()
    played.native, played.ours      # events
    played.answers                  # each request, native's answer and ours

The recording is the order of things: a request is sent where native got it, what the model or a tool did is said where native
told of it, and each event of native is waited for (a short while: what never comes is a difference, and not this module's
business). Ids of native's are ours from the moment on that ours are known.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from tests.support import opencode2_script as script
from tests.support.api import Answer, EventStream
from tests.support.july_dialect import part_of
from tests.support.live import Live
from tests.support.puppet import Puppet, PuppetPrompt

Wire = dict[str, Any]

HOME = "/home/user/project"
EVENT_S = 5.0
"""For one of native's events to come from us. What takes longer is told as a difference."""
ANSWERED_S = 0.3
"""For an answer that native has given. What takes longer is waited for later (`Player._response`)."""
ANSWER_S = 10.0
"""The longest that one answer may take."""
MARK = "tui.prompt.append"
"""An event that we cause when all is over; it comes after all others."""
GENERATE = "/api/generate"
"""The one request that asks the model beside all sessions."""
ID = re.compile(r"(ses|msg|per|frm|que|psv|sh|evt)_[0-9A-Za-z]+")


@dataclass(frozen=True)
class Request:
    """One request: what native answered, and what we did."""

    method: str
    path: str
    status: int
    body: Any
    ours: Answer


@dataclass
class Player:
    """Plays one recording; see the module. `lacks`: types of events that are known not to come."""

    dialect: str
    rows: Sequence[Wire]
    live: Live
    puppet: Puppet
    events: EventStream
    lacks: Collection[str] = ()
    login: dict[str, str] = field(default_factory=dict[str, str])
    """Headers of requests that say who asks."""
    ids: dict[str, str] = field(default_factory=dict[str, str])
    cursors: dict[str, str] = field(default_factory=dict[str, str])
    ours: list[Wire] = field(default_factory=list[Wire])
    native: list[Wire] = field(default_factory=list[Wire])
    answers: list[Request] = field(default_factory=list[Request])
    logs: list[tuple[list[Wire], list[Wire]]] = field(default_factory=list[tuple[list[Wire], list[Wire]]])
    """The log of each session, in `v2_july`."""
    late: list[str] = field(default_factory=list[str])
    """Types of native's events that did not come in time."""
    _later: list[Wire] = field(default_factory=list[Wire])
    _due: list[tuple[str, Wire]] = field(default_factory=list[tuple[str, Wire]])
    _open: dict[int, tuple[Wire, asyncio.Task[Answer]]] = field(default_factory=dict[int, "tuple[Wire, asyncio.Task[Answer]]"])
    _runs: dict[str, PuppetPrompt] = field(default_factory=dict[str, PuppetPrompt])
    """What the agent of a session is at."""
    _children: dict[str, str] = field(default_factory=dict[str, str])
    """Child session of native's -> the call that it is."""
    _calls: dict[str, Wire] = field(default_factory=dict[str, Wire])
    _waiting: defaultdict[str, bool] = field(default_factory=lambda: defaultdict[str, bool](bool))
    """Sessions in which a prompt waits for the end of the one before."""
    _said: defaultdict[str, str] = field(default_factory=lambda: defaultdict[str, str](str))
    _finished: set[str] = field(default_factory=set[str])
    _seen: Counter[tuple[str | None, str]] = field(default_factory=Counter)
    _bodies: dict[int, Wire] = field(default_factory=dict[int, Wire])
    _ends: dict[int, tuple[str, bool]] = field(default_factory=dict[int, tuple[str, bool]])
    _came: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def play(self) -> Player:
        """From the first row to the last."""
        self._bodies = script.bodies(self.rows)
        self._ends = script.ends(self.rows)
        reading = asyncio.create_task(self._read())
        try:
            async with asyncio.timeout(EVENT_S), self._came:
                await self._came.wait_for(lambda: bool(self.ours))  # connected
            for place, row in enumerate(self.rows):
                if row["dir"] == "http":
                    await (self._request(row) if row["phase"] == "request" else self._response(row))
                elif row["dir"] == "sse" and row.get("stream") == script.STREAM and isinstance(row.get("data"), dict):
                    await self._event(row["data"], place)
            await self._settle()
            await self._check_late_answers()
            if self.dialect == "v2_july":
                await self._read_logs()
            await self._wait_until_idle()
        finally:
            reading.cancel()
            for _, task in self._open.values():
                task.cancel()
            await asyncio.gather(reading, *(task for _, task in self._open.values()), return_exceptions=True)
        return self

    async def _read(self) -> None:
        with suppress(EOFError):
            while True:
                event = await self.events.next(timeout_s=60)
                async with self._came:
                    self.ours.append(event)
                    self._came.notify_all()

    async def _wait_until_idle(self) -> None:
        """Wait until nothing runs, and for all that was told of it: what a further request causes comes after it.

        Prompts that native's agent was never given are answered without a word.
        """
        answering = asyncio.create_task(self.puppet.answer())
        for session in {script.session_of(event) for event in self.ours} - {None}:
            await self._idle(session)
        answering.cancel()
        await self.ask("POST", "/tui/append-prompt", {"json": {"text": "the end"}})
        async with asyncio.timeout(ANSWER_S), self._came:
            await self._came.wait_for(lambda: self.ours[-1]["type"] == MARK)
        del self.ours[-1]

    async def _idle(self, session: str) -> None:
        """One of our sessions is idle."""
        await self.ask("POST", f"/api/experimental/session/{session}/wait", {})

    async def _read_logs(self) -> None:
        """What native's log of each session told, and what ours has."""
        gone = {event["data"]["sessionID"] for event in self.native if event["type"] == "session.deleted"}
        told: dict[str, list[Wire]] = {}
        for row in self.rows:
            if row["dir"] == "sse" and row["stream"] != script.STREAM and isinstance(row.get("data"), dict):
                told.setdefault(row["stream"].partition("?")[0], []).append(row["data"])
        for path, native in told.items():
            if path.split("/")[4] not in gone:
                options = {"params": {"dialect": self.dialect}, "headers": self.login}
                async with self.live.api.stream(self.with_our_ids(path), **options) as log:
                    self.logs.append((native, await log.until("log.synced")))

    # --- requests ------------------------------------------------------------------------------------------

    def with_our_ids(self, value: Any) -> Any:
        """The same in our ids and our directory."""
        return script.strings(
            self.with_our_directory(value), lambda said: ID.sub(lambda match: self.ids.get(match[0], match[0]), said)
        )

    def with_our_directory(self, value: Any) -> Any:
        """The same in our directory."""
        place = str(self.live.directory)
        return script.strings(value, lambda said: said.replace(quote(HOME, safe=""), quote(place, safe="")).replace(HOME, place))

    def learn(self, native: Any, ours: Any) -> None:
        """Ids at the same places are the same."""
        if isinstance(native, str) and isinstance(ours, str):
            if ID.fullmatch(native) and ID.fullmatch(ours):
                self.ids.setdefault(native, ours)
        elif isinstance(native, dict) and isinstance(ours, dict):
            for key in native.keys() & ours.keys():
                self.learn(native[key], ours[key])
                if key == "cursor" and isinstance(native[key], dict) and isinstance(ours[key], dict):
                    self.cursors |= {native[key][way]: ours[key][way] for way in native[key].keys() & ours[key].keys()}
        elif isinstance(native, list) and isinstance(ours, list):
            for one, other in zip(native, ours, strict=False):
                self.learn(one, other)

    async def _request(self, row: Wire) -> None:
        await self._settle()
        await self._check_late_answers()
        options: Wire = {"headers": {**(row.get("headers") or {}), **(self.login if row.get("auth", True) else {})}}
        if isinstance(row.get("body"), str):  # none that JSON knows
            options |= {"data": row["body"], "headers": {**options["headers"], "content-type": "application/json"}}
        elif "body" in row:
            options["json"] = self.with_our_ids(row["body"])
        path = self.with_our_ids(row["path"])
        for native, ours in self.cursors.items():
            path = path.replace(quote(native), quote(ours))
        asked = asyncio.create_task(self.ask(row["method"], path, options))
        self._open[row["n"]] = (row, asked)
        if path.endswith("/interrupt") and self._runs:
            await self.puppet.wait_for_line("interrupt")

    async def ask(self, method: str, path: str, options: Wire) -> Answer:
        """As `ApiClient.request`, in a dialect that the path cannot say."""
        options["headers"] = {"x-opencode-dialect": self.dialect, **options.get("headers", self.login)}
        async with asyncio.timeout(ANSWER_S), self.live.api.raw.request(method, path, **options) as response:
            if response.content_type == "text/event-stream":
                return Answer(response.status, None, response.headers)
            text = await response.text(errors="replace")
            body = await response.json() if response.content_type == "application/json" and text else text
        if self.dialect == "v2_july" and response.status == 200:
            body = part_of(path.partition("?")[0], body)
        return Answer(response.status, body, response.headers)

    async def _response(self, row: Wire) -> None:
        """Native has answered. What we answer when more has happened (an interrupt: the agent has stopped) is waited for then."""
        asked, task = self._open[row["n"]]
        if asked["path"] == GENERATE and row["status"] == 200:
            await self._generate(row["body"]["data"]["text"])
        await asyncio.wait({task}, timeout=ANSWERED_S)
        if not task.done():
            self._later.append(row)
            return
        del self._open[row["n"]]
        answer = task.result()
        self.learn(row.get("body"), answer.body)
        self.answers.append(Request(asked["method"], asked["path"], row["status"], row.get("body"), answer))

    async def _generate(self, words: str) -> None:
        """What the model said beside all sessions."""
        heard = await self.puppet.next_prompt()
        await self.puppet.say(heard, type="step_start", step="generated", model="scripted")
        await self.puppet.say(heard, type="text", step="generated", part="t0", delta=words)
        await self.puppet.say(heard, type="step_finish", step="generated", finish="stop")
        await self.puppet.say(heard, type="done", run=heard.run, status="completed")

    async def _check_late_answers(self) -> None:
        """What was asked and is answered only now."""
        later, self._later = self._later, []
        for row in later:
            await self._response(row)

    # --- events --------------------------------------------------------------------------------------------

    async def _event(self, event: Wire, place: int) -> None:
        self.native.append(event)
        data = event["data"]
        session = data.get("sessionID") or data.get("form", {}).get("sessionID")
        if session is None:
            return
        kind = event["type"].replace("session.next.", "session.")
        act = self._ACTS.get(kind)
        if act is not None:
            await act(self, session, data)
        await self._over(place)
        if place in self._ends:
            status, idle = self._ends[place]
            await self._end_run(session, "aborted" if self._has_interrupt() else status)
            if idle:
                await self._idle(self.ids[session])
        if kind.endswith(script.BY_THE_WAY):
            return
        self._due.append((session, event))
        if not kind.startswith(script.AGENTS):
            await self._settle()

    async def _settle(self) -> None:
        """What native has told so far, we have told too."""
        due, self._due = self._due, []
        for session, event in due:
            await self._wait(session, event)

    def _count(self, session: str | None, kind: str) -> list[Wire]:
        return [e for e in self.ours if e["type"] == kind and session in (None, script.session_of(e))]

    async def _wait(self, session: str, event: Wire) -> None:
        kind = event["type"]
        mapped = self.ids.get(session)
        self._seen[(session, kind)] += 1
        number = self._seen[(session, kind)]
        if mapped is None:  # its first event
            known = set(self.ids.values())
            number = 1

            def matching_events() -> list[Wire]:
                return [e for e in self._count(None, kind) if script.session_of(e) not in known]
        else:

            def matching_events() -> list[Wire]:
                return self._count(mapped, kind)

        if kind in self.lacks:
            return
        try:
            async with asyncio.timeout(EVENT_S), self._came:
                await self._came.wait_for(lambda: len(matching_events()) >= number)
        except TimeoutError:
            self.late.append(kind)
            return
        self.learn(event["data"], matching_events()[number - 1]["data"])

    # --- what the agent does -------------------------------------------------------------------------------

    async def _run(self, session: str) -> PuppetPrompt:
        """What the agent of a session is at; the next prompt that it is handed, if it is at nothing."""
        root = self._root(session)
        if root not in self._runs:
            self._runs[root] = await self.puppet.next_prompt()
        return self._runs[root]

    def _root(self, session: str) -> str:
        while session in self._children:
            session = self._calls[self._children[session]]["session"]
        return session

    async def _say(self, session: str, **frame: Any) -> None:
        run = await self._run(session)
        child = self._children.get(session)
        await self.puppet.say(run, **self.with_our_directory(frame), child=child)

    async def _give_prompt(self, session: str, data: Wire) -> None:
        """A prompt is the agent's: if it is at another one, that is answered now."""
        kind = "session.input.promoted" if self.dialect == "v2_july" else "session.next.prompted"
        mine = self.ids.get(session)
        if session in self._children or kind in self.lacks or len(self._count(mine, kind)) > self._seen[(session, kind)]:
            return
        if session in self._runs:
            self._waiting[session] = True
            await self._end_run(session, "completed")
            self._waiting[session] = False
        with suppress(TimeoutError):  # then nothing was handed over, and what follows does not come either
            await self._run(session)

    async def _end_run(self, session: str, status: str) -> None:
        if session in self._children:
            call = self._children[session]
            run = self._runs.get(self._root(session))
            if run is not None:
                await self.puppet.say(run, type="subagent_end", tool=call, status=status)
            return
        run = self._runs.pop(session, None)
        if run is not None:
            await self.puppet.say(run, type="done", run=run.run, status=status)
            if self.dialect == "v2_july" and not self._waiting[session]:
                await self._idle(self.ids[session])

    async def _end_completed(self, session: str, data: Wire) -> None:
        await self._end_run(session, "completed")

    async def _end_failed(self, session: str, data: Wire) -> None:
        await self._end_run(session, "failed")

    async def _end_interrupted(self, session: str, data: Wire) -> None:
        """By a person; or native gave up after a refusal, which is no more than the end of an agent's answer."""
        await self._end_run(session, "aborted" if self._has_interrupt() else "completed")

    def _has_interrupt(self) -> bool:
        """The agent was told to stop what it is at."""
        runs = {run.run for run in self._runs.values()}
        return any(line["type"] == "interrupt" and line["run"] in runs for line in self.puppet.lines)

    async def _begin_subagent(self, session: str, data: Wire) -> None:
        """A subagent's session: it begins with the call that runs."""
        parent = data["info"].get("parentID")
        call = next((id_ for id_, c in self._calls.items() if c["session"] == parent and c["name"] == "subagent"), None)
        if call is None:
            return
        given = self._calls[call]["input"]
        self._children[session] = call
        run = await self._run(parent)
        frame = {"title": given["description"], "agent": given["agent"], "prompt": given["prompt"]}
        await self.puppet.say(run, type="subagent_start", tool=call, **frame)

    async def _step_started(self, session: str, data: Wire) -> None:
        await self._say(session, type="step_start", step=data["assistantMessageID"], model=data["model"]["id"])

    async def _text(self, session: str, data: Wire) -> None:
        part = data.get("textID", data.get("ordinal"))
        await self._say(session, type="text", step=data["assistantMessageID"], part=f"t{part}", delta=data["delta"])

    async def _reasoning(self, session: str, data: Wire) -> None:
        part = data.get("reasoningID", data.get("ordinal"))
        await self._say(session, type="thinking", step=data["assistantMessageID"], part=f"r{part}", delta=data["delta"])

    async def _tool_started(self, session: str, data: Wire) -> None:
        self._calls[data["callID"]] = {"session": session, "name": data["name"], "input": {}}
        step, name = data["assistantMessageID"], script.first_name(data["name"])
        await self._say(session, type="tool_start", tool=data["callID"], step=step, name=name)

    async def _tool_delta(self, session: str, data: Wire) -> None:
        await self._say(session, type="tool_input", tool=data["callID"], delta=data["delta"])

    async def _tool_called(self, session: str, data: Wire) -> None:
        call = self._calls[data["callID"]]
        call["input"] = data["input"]
        await self._say(session, type="tool_run", tool=data["callID"], input=script.first_arguments(call["name"], data["input"]))

    async def _tool_progress(self, session: str, data: Wire) -> None:
        said = "".join(one.get("text", "") for one in data["content"])
        before = self._said[data["callID"]]
        if self._calls[data["callID"]]["name"] != "subagent":
            await self._say(session, type="tool_output", tool=data["callID"], delta=said.removeprefix(before))
            self._said[data["callID"]] = said

    async def _tool_success(self, session: str, data: Wire) -> None:
        id_, call, structured = data["callID"], self._calls[data["callID"]], data["structured"]
        meta: Wire = {"exit_code": structured["exit"]} if "exit" in structured else {}
        if "answers" in structured:
            meta["answers"] = structured["answers"]
        files: list[Wire] = []
        if call["name"] == "edit":
            files = [{"path": self.with_our_ids(call["input"].get("path", call["input"].get("filePath"))), "action": "patch"}]
            self._edit(Path(files[0]["path"]), call["input"])
            files[0]["diff"] = structured["files"][0]["patch"] if "files" in structured else None
        output = data["content"][0]["text"] if data["content"] else ""
        await self._say(session, type="tool_result", tool=id_, ok=True, output=output, files=files or None, meta=meta)

    def _edit(self, path: Path, given: Wire) -> None:
        """What native's tool did to the file."""
        path.write_text(path.read_text().replace(given["oldString"], given["newString"]))

    async def _tool_failed(self, session: str, data: Wire) -> None:
        error = data["error"]
        meta = {"interrupted": True} if "interrupted" in error["message"] and self._has_interrupt() else {}
        await self._say(session, type="tool_result", tool=data["callID"], ok=False, output=error["message"], meta=meta)

    async def _over(self, place: int) -> None:
        """The model has said all of a step, which may go on with its tools: agents tell it here."""
        ended = self._bodies.get(place)
        if ended is not None:
            self._finished.add(ended["assistantMessageID"])
            session, step = ended["sessionID"], ended["assistantMessageID"]
            await self._say(
                session, type="step_finish", step=step, finish=ended.get("finish", "tool-calls"), **script.step_usage(ended)
            )

    async def _step_ended(self, session: str, data: Wire) -> None:
        step = data["assistantMessageID"]
        if step not in self._finished:
            await self._say(session, type="step_finish", step=step, finish=data["finish"], **script.step_usage(data))

    async def _step_failed(self, session: str, data: Wire) -> None:
        error = data["error"]
        aborted = "interrupted" in error["message"]
        if not aborted:
            await self._say(session, type="error", message=error["message"], status=script.STATUS.get(error["type"]))
        finish = "aborted" if aborted else "error"
        if data["assistantMessageID"] not in self._finished:
            usage = script.step_usage(data)
            await self._say(session, type="step_finish", step=data["assistantMessageID"], finish=finish, **usage)

    async def _permission(self, session: str, data: Wire) -> None:
        call = data["source"]["callID"]
        about = {"title": data["action"], "patterns": data["resources"], "always": data["save"]}
        await self._say(session, type="permission", id=data["id"], tool=call, **about)

    async def _form(self, session: str, data: Wire) -> None:
        call = data["form"]["metadata"]["tool"]["callID"]
        await self._say(session, type="question", id=data["form"]["id"], tool=call, **self._calls[call]["input"])

    async def _question(self, session: str, data: Wire) -> None:
        call = data["tool"]["callID"]
        await self._say(session, type="question", id=data["id"], tool=call, questions=data["questions"])

    async def _todo(self, session: str, data: Wire) -> None:
        await self._say(session, type="todo", todos=data["todos"])

    async def _compaction(self, session: str, data: Wire) -> None:
        await self._say(session, type="compaction", phase="started", auto=data["reason"] == "auto")
        await self._say(session, type="step_start", step="summary", model="scripted")

    async def _summary(self, session: str, data: Wire) -> None:
        await self._say(session, type="text", step="summary", part="t0", delta=data["text"])

    async def _end_compaction(self, session: str, data: Wire) -> None:
        await self._say(session, type="step_finish", step="summary", finish="stop", usage={"input": 120, "output": 20})
        await self._say(session, type="compaction", phase="completed", auto=data["reason"] == "auto")

    _ACTS: ClassVar[dict[str, Callable[[Player, str, Wire], Awaitable[None]]]] = {
        "session.created": _begin_subagent,
        "session.input.promoted": _give_prompt,
        "session.prompted": _give_prompt,
        "session.execution.succeeded": _end_completed,
        "session.execution.failed": _end_failed,
        "session.execution.interrupted": _end_interrupted,
        "session.step.started": _step_started,
        "session.step.ended": _step_ended,
        "session.step.failed": _step_failed,
        "session.text.delta": _text,
        "session.reasoning.delta": _reasoning,
        "session.tool.input.started": _tool_started,
        "session.tool.input.delta": _tool_delta,
        "session.tool.called": _tool_called,
        "session.tool.progress": _tool_progress,
        "session.tool.success": _tool_success,
        "session.tool.failed": _tool_failed,
        "session.compaction.started": _compaction,
        "session.compaction.delta": _summary,
        "session.compaction.ended": _end_compaction,
        "todo.updated": _todo,
        "permission.v2.asked": _permission,
        "form.created": _form,
        "question.v2.asked": _question,
    }
    """Event of native's -> what the agent says for it. Those without a row are the server's own."""
