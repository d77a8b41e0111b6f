"""What happens to asks that nobody answers: when they are rejected, by which value, and what is told of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from shim.lib.errors import InvalidRequest
from shim.lib.settings import Settings
from shim.sessions.index.manager import SessionManager
from shim.sessions.permissions.unattended_policy import terms_of_headers
from shim.sessions.prompts.submit import submit
from tests.support.opencode1_views import children, permissions, questions
from tests.support.scripted_model import Project, World, ask, body
from universal.codec import Fact, PermissionReply, QuestionReply, Signal
from universal.events import EventType, QuestionData
from universal.permissions import Rule
from universal.turn import Input
from universal.unattended_policy import MAX_REJECT_S, NO_QUESTIONS, NOT_ALLOWED, WAIT, UnattendedPolicy, parse


@dataclass(eq=False)
class ManualTimer:
    """A call that a test makes when it wants."""

    delay_s: float
    callback: Callable[[], None]
    timers: ManualTimers

    def cancel(self) -> None:
        if self in self.timers.pending:
            self.timers.pending.remove(self)

    def fire(self) -> None:
        self.cancel()
        self.callback()


@dataclass
class ManualTimers:
    """The timers that are neither cancelled nor fired."""

    pending: list[ManualTimer] = field(default_factory=list)

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(delay_s, callback, self)
        self.pending.append(timer)
        return timer


@pytest.fixture
def timers(w: World) -> ManualTimers:
    made = ManualTimers()
    w.manager.deps = replace(w.manager.deps, call_later=made.call_later)
    return made


def server(w: World, value: str) -> None:
    """What the server's setting says."""
    w.manager.deps = replace(w.manager.deps, settings=Settings(unattended=value))


def session(w: World, value: str) -> str:
    return w.session(metadata={"unattended": value})


def permission_replies(w: World) -> list[PermissionReply]:
    return [command for command in w.agent.commands if isinstance(command, PermissionReply)]


def counts(manager: SessionManager) -> dict[str, int]:
    return dict(manager.deps.unattended_counts)


@pytest.mark.parametrize("value", ["wait", "rules", "reject:30", "reject:0.5"])
def test_a_value_is_written_as_it_is_read(value: str) -> None:
    assert str(parse(value)) == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "never",
        "reject",
        "reject:",
        "reject:0",
        "reject:-1",
        "reject:nan",
        "reject:inf",
        f"reject:{MAX_REJECT_S + 1}",
        "wait:3",
    ],
)
def test_a_value_without_meaning_is_refused_with_a_sentence(value: str) -> None:
    with pytest.raises(ValueError, match='use "wait", "reject:SECONDS"'):
        parse(value)
    with pytest.raises(InvalidRequest, match="X-OpenCode-Shim-Unattended cannot be used: use"):
        terms_of_headers({"X-OpenCode-Shim-Unattended": value})


async def test_an_ask_waits_by_default(w: World, timers: ManualTimers) -> None:
    id_ = w.session()
    await ask(w, id_)
    request = w.agent.ask("c1", "bash", command="make")
    assert timers.pending == []
    assert w.manager.requests.unattended_policy(id_) == WAIT
    assert [p["id"] for p in permissions(w.manager)] == [request]
    w.agent.end_turn()


async def test_an_unanswered_permission_is_rejected_with_the_reason(w: World, timers: ManualTimers) -> None:
    server(w, "reject:30")
    id_ = w.session()
    await ask(w, id_)
    message = w.agent.begin()
    w.agent.call(message, "c1")
    request = w.agent.ask("c1", "bash", command="make")
    other = w.agent.ask("c2", "bash", command="ls")
    assert [timer.delay_s for timer in timers.pending] == [30.0, 30.0]
    timers.pending[0].fire()
    [reply] = permission_replies(w)
    assert (reply.permission_id, reply.decision) == (request, "reject")
    assert "Nobody answered within 30 s" in (reply.message or "")
    assert '"wait"' in (reply.message or "")
    assert [p["id"] for p in permissions(w.manager)] == [other]
    assert counts(w.manager) == {"timeout": 1, "rules": 0}
    w.agent.result("c1", failed=True)
    w.agent.complete(message, "")
    w.agent.end_turn()
    assert timers.pending == []
    assert w.hub.folds[id_].idles == 1


@pytest.mark.parametrize(("waited_s", "left_s"), [(0, 30.0), (20, 10.0), (40, 0.0), (-5, 30.0)])
async def test_a_rejection_counts_the_time_before_a_restart(w: World, timers: ManualTimers, waited_s: int, left_s: float) -> None:
    """Also if the clock was set back meanwhile."""
    server(w, "reject:30")
    id_ = w.session()
    await ask(w, id_)
    actor = w.manager.index.get(id_).actor
    assert actor is not None
    actor.requests.restore_counts({"since": {"per_1": w.clock.now_ms() - 1000 * waited_s}})
    for request, expected in (("per_1", left_s), ("per_2", 30.0)):
        actor.requests.wait(request, actor.main)
        assert timers.pending[-1].delay_s == pytest.approx(expected, abs=1.0)
    w.agent.end_turn()


async def test_a_question_about_a_cap_counts_the_time_before_a_restart(w: World, timers: ManualTimers) -> None:
    server(w, "reject:30")
    id_ = w.session()
    await ask(w, id_)
    actor = w.manager.index.get(id_).actor
    assert actor is not None
    asked = QuestionData(question_id="que_1", prompt="Go on?", options=(), status="requested")
    actor.main.record(EventType.QUESTION_REQUESTED, asked)
    for waited_s, is_open in ((20, True), (40, False)):
        said = {"open": asked.model_dump(mode="json"), "since_ms": w.clock.now_ms() - 1000 * waited_s}
        actor.cap.restore(None, said)
        assert ("que_1" in actor.main.session.questions) is is_open
    w.agent.end_turn()


async def test_an_unanswered_question_is_rejected_with_the_reason(w: World, timers: ManualTimers) -> None:
    server(w, "reject:30")
    id_ = w.session()
    await ask(w, id_)
    request = w.agent.question()
    [timer] = timers.pending
    timer.fire()
    assert QuestionReply(request, None, parse("reject:30").rejection) in w.agent.commands
    assert questions(w.manager) == []
    assert w.hub.kinds(id_).count("question.rejected") == 1
    w.agent.end_turn()


async def test_an_answer_cancels_the_rejection(w: World, timers: ManualTimers) -> None:
    server(w, "reject:30")
    await ask(w, w.session())
    w.manager.requests.reply_permission(w.agent.ask("c1", "bash", command="make"), "once")
    w.manager.requests.reply_question(w.agent.question(), [["Blue"]])
    assert timers.pending == []
    assert w.manager.requests.open_asks() == (0, None)
    w.agent.end_turn()
    assert counts(w.manager) == {"timeout": 0, "rules": 0}


async def test_a_question_that_the_agent_withdraws_is_not_rejected(w: World, timers: ManualTimers) -> None:
    server(w, "reject:30")
    await ask(w, w.session())
    request = w.agent.question()
    withdrawn = QuestionData(question_id=request, prompt="", options=(), status="rejected")
    w.agent.says(Fact(EventType.QUESTION_RESOLVED, withdrawn))
    assert timers.pending == []
    assert w.manager.requests.open_asks() == (0, None)
    w.agent.end_turn()


@pytest.mark.parametrize("how", ["abort", "crash", "terminate"])
async def test_no_rejection_comes_after_the_turn(w: World, timers: ManualTimers, how: str) -> None:
    server(w, "reject:30")
    id_ = w.session()
    await ask(w, id_)
    message = w.agent.begin()
    w.agent.call(message, "t1", "task")
    w.agent.child("t1")
    w.agent.ask("c1", "bash", child="t1", command="make")
    w.agent.ask("c2", "bash", command="make")
    w.agent.question()
    assert len(timers.pending) == 3
    match how:
        case "abort":
            w.manager.index.get(id_).actor.abort()  # type: ignore[union-attr]
            w.agent.abort_turn()
        case "crash":
            w.agent.exits(1)
        case _:
            await w.manager.terminate(id_)
    assert timers.pending == []


async def test_every_request_of_a_call_has_its_own_time(w: World, timers: ManualTimers) -> None:
    server(w, "reject:30")
    w.rules.append(Rule("edit", "*", "ask"))
    id_ = w.session()
    await ask(w, id_)
    w.agent.ask("c1", "edit", filePath="/elsewhere/a.txt")
    [outside] = permissions(w.manager)
    assert outside["permission"] == "external_directory"
    [first] = timers.pending
    w.manager.requests.reply_permission(outside["id"], "once")
    [edit] = permissions(w.manager)
    [second] = timers.pending
    assert (edit["permission"], second is first) == ("edit", False)
    second.fire()
    assert [reply.decision for reply in permission_replies(w)] == ["reject"]
    w.agent.end_turn()


async def test_in_rules_mode_only_rules_allow_and_no_question_is_asked(w: World, timers: ManualTimers) -> None:
    id_ = session(w, "rules")
    w.rules.append(Rule("bash", "ls *", "allow"))
    await ask(w, id_)
    allowed = w.agent.ask("c1", "bash", command="ls -l")
    held = w.agent.ask("c2", "bash", command="make")
    question = w.agent.question()
    assert permission_replies(w) == [PermissionReply(allowed, "accept"), PermissionReply(held, "reject", NOT_ALLOWED)]
    assert QuestionReply(question, None, NO_QUESTIONS) in w.agent.commands
    assert not {"permission.asked", "question.asked"} & set(w.hub.kinds(id_))
    assert timers.pending == []
    assert counts(w.manager) == {"timeout": 0, "rules": 2}
    w.agent.end_turn()


async def test_by_rules_a_checked_call_is_held_only_if_a_rule_asks_for_it(w: World) -> None:
    id_ = session(w, "rules")
    w.rules.append(Rule("bash", "make *", "ask"))
    await ask(w, id_)
    free = w.agent.check("c1", command="ls")
    held = w.agent.check("c2", command="make all")
    assert w.agent.proceeded == [free]
    assert permission_replies(w) == [PermissionReply(held, "reject", NOT_ALLOWED)]
    w.agent.end_turn()


async def test_a_prompt_counts_before_the_session_and_the_session_before_the_server(w: World, timers: ManualTimers) -> None:
    server(w, "reject:1")
    plain, own = w.session(), session(w, "reject:2")
    await ask(w, plain)
    w.agent.ask("c1", "bash", command="make")
    w.agent.end_turn()
    await ask(w, own)
    w.agent.ask("c1", "bash", command="make")
    w.agent.end_turn()
    await ask(w, own, unattended=parse("reject:3"))
    w.agent.ask("c1", "bash", command="make")
    assert w.manager.requests.unattended_policy(own) == parse("reject:3")
    assert [timer.delay_s for timer in timers.pending] == [3.0]
    w.agent.end_turn()
    await ask(w, own)
    assert w.manager.requests.unattended_policy(own) == parse("reject:2")
    assert w.manager.requests.unattended_policy(plain) == parse("reject:1")
    w.agent.end_turn()


async def test_a_prompt_that_waits_keeps_its_value(w: World) -> None:
    id_ = w.session()
    await ask(w, id_)
    await submit(w.manager, id_, body("next", unattended=parse("rules")))
    assert w.manager.requests.unattended_policy(id_) == WAIT
    w.agent.end_turn()
    await w.settle()
    assert w.manager.requests.unattended_policy(id_) == UnattendedPolicy("rules")
    w.agent.end_turn()


async def test_a_subagents_ask_is_rejected_when_the_main_turn_is_idle(w: World, timers: ManualTimers) -> None:
    id_ = session(w, "reject:30")
    await ask(w, id_)
    message = w.agent.begin()
    w.agent.call(message, "t1", "task")
    w.agent.child("t1")
    w.agent.result("t1", "started")
    w.agent.complete(message, "")
    w.agent.end_turn()
    [child] = children(w.manager, id_)
    assert w.hub.folds[id_].idles == 1
    inner = w.agent.begin(child="t1")
    w.agent.call(inner, "c1", child="t1")
    request = w.agent.ask("c1", "bash", child="t1", command="make")
    assert [(p["id"], p["sessionID"]) for p in permissions(w.manager)] == [(request, child["id"])]
    assert w.manager.requests.waiting_since_ms(id_) == w.manager.requests.waiting_since_ms(child["id"]) is not None
    [timer] = timers.pending
    assert timer.delay_s == 30.0
    timer.fire()
    assert [(reply.permission_id, reply.decision) for reply in permission_replies(w)] == [(request, "reject")]
    assert permissions(w.manager) == []
    w.agent.result("c1", child="t1", failed=True)
    w.agent.complete(inner, "", child="t1")
    w.agent.says(Signal(Input.DONE, child="t1"))
    assert (w.hub.folds[id_].idles, w.hub.folds[child["id"]].idles) == (1, 1)


async def test_the_end_of_a_subagents_turn_cancels_its_rejections(w: World, timers: ManualTimers) -> None:
    id_ = session(w, "reject:30")
    await ask(w, id_)
    message = w.agent.begin()
    w.agent.call(message, "t1", "task")
    w.agent.child("t1")
    w.agent.ask("c1", "bash", child="t1", command="make")
    w.agent.says(Signal(Input.DONE, child="t1"))
    assert timers.pending == []
    assert w.manager.requests.open_asks() == (0, None)
    w.agent.result("t1", "x")
    w.agent.complete(message, "")
    w.agent.end_turn()


async def test_open_asks_are_counted_from_the_oldest(w: World) -> None:
    id_ = w.session()
    await ask(w, id_)
    before = w.clock.value_ms
    w.agent.ask("c1", "bash", command="make")
    between = w.clock.value_ms
    w.agent.question()
    number, since = w.manager.requests.open_asks()
    assert number == 2
    assert since is not None
    assert before <= since < between
    assert w.manager.requests.waiting_since_ms(id_) == since
    w.agent.end_turn()
    assert w.manager.requests.waiting_since_ms(id_) is None


async def test_metadata_of_a_session_is_checked(w: World) -> None:
    with pytest.raises(InvalidRequest, match=r"metadata\.unattended cannot be used: use"):
        w.manager.create("/p", Project(), metadata={"unattended": "later"})
    id_ = w.session()
    with pytest.raises(InvalidRequest, match=r"metadata\.unattended cannot be used: use a string, not '5'"):
        await w.manager.patch(id_, metadata={"unattended": 5})
    await w.manager.patch(id_, metadata={"unattended": "rules"})
    assert w.manager.requests.unattended_policy(id_) == UnattendedPolicy("rules")
