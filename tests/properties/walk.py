"""Histories of one session, drawn as bytes: whatever agents may say, in whatever order, as far as the turn's laws allow it.

Each pair of bytes is an action and what it is done with. Turns begin and end by their laws (`universal.turn`), and what is asked
is withdrawn before the end (`SessionState`); all else may come in any order, twice, late, or of things that nobody knows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support.opencode2_story import Story
from universal.events import Question, QuestionOption
from universal.items import FileRefPart, ImagePart, ItemKind, ItemRole, ReasoningPart, TextPart

WORDS = ("Hi", " there", "", "\n", "é", "x" * 5)
TOOLS = ("bash", "read", "edit", "write", "task", "todowrite", "question", "mystery", "apply_patch")
REASONS = ("completed", "completed", "aborted", "error", "agent_exited")
LABELS = ("retry", "compaction", "todo", "child", "mode", "notice")


class Walk:
    """One history. `running`: a turn goes on."""

    def __init__(self, history: bytes, *, step_ms: int = 7) -> None:
        self.story = Story(step_ms=step_ms)
        self.running = False
        self.queue: list[str] = []
        self.answered: list[str] = []
        self.messages: list[str] = []
        self.said: dict[str, dict[int, str]] = {}
        self.calls: dict[str, tuple[str, str]] = {}
        self.outputs: list[str] = []
        self.asked: list[str] = []
        self.questions: list[str] = []
        self.count = 0
        for at in range(0, len(history) - 1, 2):
            ACTIONS[history[at] % len(ACTIONS)](self, history[at + 1])
        self.end(0)

    def name(self, kind: str) -> str:
        """A new name."""
        self.count += 1
        return f"{kind}_{self.count:04d}"

    @staticmethod
    def pick(of: list[str], arg: int) -> str | None:
        """One of them, the newest most often."""
        return of[-1 - arg // 3 % len(of)] if of else None

    # --- turns ---------------------------------------------------------------------------------------------

    def prompt(self, arg: int) -> None:
        given: dict[str, Any] = {"delivery": "queue"} if arg % 5 == 0 else {}
        if arg % 7 == 0:
            given |= {"agent": "plan", "model": {"providerID": "mock", "modelID": f"m{arg % 3}"}}
        if arg % 11 == 0:
            given["parts"] = [{"type": "compaction", "auto": False}]
        self.queue.append(self.story.accept(f"prompt {arg}", **given))
        if not self.running:
            self.running = True
            self.story.start()
            if arg % 3:
                self.hand(arg)

    def hand(self, arg: int) -> None:
        if self.running and self.queue:
            item_id = self.queue.pop(0)
            carried = [self.story.message_id(one) for one in self.answered[-2:]] if arg % 2 else []
            self.story.hand(item_id, carried=carried)
            self.answered.append(item_id)

    def wake(self, arg: int) -> None:
        if not self.running:
            self.running = True
            self.story.start("agent")

    def end(self, arg: int) -> None:
        if not self.running:
            return
        for id_ in self.asked:
            self.story.allow(id_, "reject", withdrawn=True)
        for id_ in self.questions:
            self.story.answer(id_)
        self.asked, self.questions = [], []
        reason = REASONS[arg % len(REASONS)]
        if reason == "aborted":
            for item_id in self.queue:
                self.story.status("prompt", state="cancelled", item_id=item_id)
                self.answered.append(item_id)
            self.queue = []
        self.running = False
        self.story.end(reason, **({"cost": 0.25} if arg % 2 else {}))

    def error(self, arg: int) -> None:
        codes = (None, "agent_exited", "authentication_failed", "aborted")
        details: dict[str, Any] = {"status_code": 400 + arg} if arg % 3 == 0 else {}
        self.story.error(f"error {arg}", codes[arg % 4], **details)

    # --- messages ------------------------------------------------------------------------------------------

    def message(self, arg: int) -> None:
        item_id = self.story.message()
        self.messages.append(item_id)
        self.said[item_id] = {}

    def delta(self, arg: int) -> None:
        item_id = self.pick(self.messages, arg) or "nobody"
        index = arg % 3
        words = WORDS[arg % len(WORDS)]
        self.said.setdefault(item_id, {})
        self.said[item_id][index] = self.said[item_id].get(index, "") + words
        self.story.delta(item_id, words, index, "reasoning" if index == 1 else "text")

    def whole(self, arg: int) -> None:
        item_id = self.pick(self.messages, arg)
        if item_id is None or arg % 13 == 0:
            item_id = self.story.item(ItemKind.MESSAGE, TextPart(text="at once"), role=ItemRole.ASSISTANT)
            self.messages.append(item_id)
            return
        said = self.said.get(item_id, {})
        texts = [said.get(index, "") for index in range(max(said, default=-1) + 1)]
        parts = [ReasoningPart(text=t) if index == 1 else TextPart(text=t) for index, t in enumerate(texts)]
        finish = ("stop", "tool-calls", "pause", "")[arg % 4]
        usage = {"input": arg, "output": 1}
        self.story.whole(item_id, *parts, failed=arg % 9 == 0, finish=finish, usage=usage, cost=arg / 100)

    # --- tools ---------------------------------------------------------------------------------------------

    def call(self, arg: int) -> None:
        call_id, tool = self.name("call"), TOOLS[arg % len(TOOLS)]
        item_id = self.story.call(tool, {}, parent=self.pick(self.messages, arg), call_id=call_id, done=False)
        self.calls[call_id] = (item_id, tool)

    def arguments(self, arg: int) -> None:
        call_id = self.pick(list(self.calls), arg)
        if call_id is not None:
            self.story.delta(self.calls[call_id][0], '{"a":', kind="tool_input")

    def set_tool_arguments(self, arg: int) -> None:
        call_id = self.pick(list(self.calls), arg) or "call_unknown"
        item_id, tool = self.calls.get(call_id, ("nobody", "bash"))
        given = {"command": f"echo {arg}", "filePath": "/home/user/project/a.txt", "content": "a\nb"}
        self.story.set_arguments(item_id, tool, given, parent=self.pick(self.messages, arg), call_id=call_id)

    def output(self, arg: int) -> None:
        call_id = self.pick(list(self.calls), arg)
        if call_id is not None:
            item_id = self.story.output(call_id)
            self.story.delta(item_id, WORDS[arg % len(WORDS)], kind="tool_output")

    def result(self, arg: int) -> None:
        call_id = self.pick(list(self.calls), arg) or "call_unknown"
        more: tuple[Any, ...] = ()
        if arg % 5 == 0:
            more = (FileRefPart(path="/home/user/project/a.txt", action="patch", diff="@@ -1 +1,2 @@\n a\n+b\n"),)
        elif arg % 5 == 1:
            more = (ImagePart(path="data:image/png;base64,AAAA", mime="image/png"),)
        metadata: dict[str, Any] = {"exit_code": arg % 2} if arg % 2 else {"interrupted": arg % 4 == 0}
        self.story.result(f"output {arg}", *more, call_id=call_id, failed=arg % 3 == 0, **metadata)

    # --- asks ----------------------------------------------------------------------------------------------

    def ask(self, arg: int) -> None:
        if arg % 2 and self.asked:
            decision = ("accept", "accept_for_session", "reject")[arg % 3]
            self.story.allow(self.asked.pop(), decision, **({"message": "no"} if arg % 4 else {}))
        else:
            id_ = self.name("per")
            self.story.ask(id_, tool=TOOLS[arg % len(TOOLS)], call_id=self.pick(list(self.calls), arg) or "")
            self.asked += [id_] if self.running else []

    def question(self, arg: int) -> None:
        if arg % 2 and self.questions:
            answers = ((), (("Red",), ("A", "B")), (("other",), ()))[arg % 3]
            self.story.answer(self.questions.pop(), *answers)
        else:
            id_ = self.name("que")
            options = (QuestionOption(label="Red"), QuestionOption(label="Blue"))
            two = (Question(question="Which?", options=options), Question(question="And?", options=options, multiple=True))
            self.story.question(id_, *two, call_id=self.pick(list(self.calls), arg) or "")
            self.questions += [id_] if self.running else []

    # --- statuses ------------------------------------------------------------------------------------------

    def status(self, arg: int) -> None:
        match LABELS[arg % len(LABELS)]:
            case "retry":
                self.story.status("retry", attempt=arg, message="busy", delay_ms=5)
            case "compaction":
                phase = ("started", "completed", "failed")[arg // 6 % 3]
                self.story.status("compaction", phase=phase, summary="all of it" if arg % 4 else "")
            case "todo":
                self.story.status("todo", todos=[{"content": "x", "status": "pending", "priority": "low"}])
            case "child":
                self.story.status("child", call_id=self.pick(list(self.calls), arg) or "", session_id=f"ses_{arg:026d}")
            case "mode":
                self.story.status("mode", mode=("build", "plan")[arg // 6 % 2])
            case _:
                self.story.status("notice", "Something happened.")

    def snapshot(self, arg: int) -> None:
        phase = ("start", "step", "end")[arg % 3]
        tree = {"tree": f"tree{arg}"} if arg % 5 else {"failed": "no disk"}
        self.story.status("snapshot", phase=phase, files=["a.txt"] if arg % 2 else [], diffs=[], session_diffs=[], **tree)

    def person(self, arg: int) -> None:
        """What a person does to an idle session."""
        if self.running:
            self.story.status("session", title=f"title {arg}")
            return
        messages = self.story.opencode1.messages
        match arg % 7:
            case 0:
                self.story.status("session", agent=f"a{arg % 3}", model={"id": f"m{arg % 2}", "providerID": "mock"})
            case 1:
                self.story.status("skill", id="demo", name="demo", text="Do it.")
            case 2:
                self.story.status("synthetic", text="a note")
            case 3:
                self.story.shell(f"echo {arg}", "out\n", code=None if arg % 2 else arg % 3)
            case 4:
                self.story.status("viewed", idle=arg)
            case 5:
                self.revert(arg)
            case _:
                told = [id_ for id_, m in self.story.now.messages.items() if m["type"] != "idle"]
                if arg % 2 and messages and told[-1:] == list(messages)[-1:]:  # of others, no event can say it
                    self.story.status("message.removed", message_id=told[-1])
                else:
                    self.story.status("session", metadata={"a": arg}, permission=[])

    def revert(self, arg: int) -> None:
        messages = list(self.story.opencode1.messages)
        users = [id_ for id_ in messages if self.story.opencode1.messages[id_].info["role"] == "user"]
        if "revert" in self.story.opencode1.info:
            point = self.story.opencode1.info["revert"]["messageID"]
            gone = messages[messages.index(point) :] if arg % 2 and point in messages else []
            self.story.status("revert", revert=None, messages=gone, parts=[])
        elif users:
            self.story.status("revert", revert={"messageID": users[-1 - arg % len(users)]}, diffs=[])


ACTIONS: tuple[Callable[[Walk, int], None], ...] = (
    *(
        Walk.delta,
        Walk.delta,
        Walk.message,
        Walk.prompt,
        Walk.prompt,
        Walk.hand,
        Walk.whole,
        Walk.whole,
        Walk.call,
        Walk.set_tool_arguments,
    ),
    *(
        Walk.set_tool_arguments,
        Walk.result,
        Walk.result,
        Walk.output,
        Walk.arguments,
        Walk.ask,
        Walk.question,
        Walk.status,
        Walk.snapshot,
    ),
    *(Walk.person, Walk.error, Walk.wake, Walk.end),
)
"""A delta first: the byte 0, to which hypothesis shrinks, should mean little."""
