"""Open requests of an agent: each is told once as requested and once as resolved."""

from __future__ import annotations

from universal.agents.kit.asks import Ask, OpenAsks
from universal.events import EventType, PermissionData, Question, QuestionData, QuestionOption

QUESTION = Question(question="Which?", options=(QuestionOption(label="A"), QuestionOption(label="B")))


def permission(ask_id: str = "per_1") -> Ask:
    return Ask(ask_id=ask_id, action="bash", metadata={"tool": "bash"}, child="call_1")


def question(ask_id: str = "qst_1") -> Ask:
    return Ask(ask_id=ask_id, action="question", metadata={"tool": "question"}, questions=(QUESTION,))


def test_a_permission_is_requested_and_resolved_once() -> None:
    asks = OpenAsks[Ask]()
    ask = permission()
    fact = asks.begin(ask, {"native": 1})
    assert (fact.type, fact.child, fact.synthetic) == (EventType.PERMISSION_REQUESTED, "call_1", False)
    resolved = asks.resolve_permission(ask, "reject", "not now")
    assert resolved.type is EventType.PERMISSION_RESOLVED
    assert resolved.synthetic
    assert isinstance(resolved.data, PermissionData)
    assert (resolved.data.status, resolved.data.metadata) == ("reject", {"tool": "bash", "message": "not now"})
    assert asks.permission("per_1") is None
    assert list(asks.close()) == []


def test_an_answer_does_not_resolve_a_permission_nor_a_decision_a_question() -> None:
    asks = OpenAsks[Ask]()
    asks.begin(permission(), None)
    asks.begin(question(), None)
    assert asks.question("per_1") is None
    assert asks.permission("qst_1") is None


def test_answers_are_kept_with_the_labels_of_the_first_question_as_response() -> None:
    asks = OpenAsks[Ask]()
    ask = question()
    asks.begin(ask, None)
    data = asks.resolve_question(ask, [["A", "B"]]).data
    assert isinstance(data, QuestionData)
    assert (data.status, data.response, data.answers, data.options) == ("answered", "A, B", (("A", "B"),), ("A", "B"))


def test_an_ask_without_a_waiting_agent_is_rejected_as_withdrawn() -> None:
    asks = OpenAsks[Ask]()
    asks.begin(permission(), None)
    asks.begin(question(), None)
    facts = list(asks.close())
    assert [fact.type for fact in facts] == [EventType.PERMISSION_RESOLVED, EventType.QUESTION_RESOLVED]
    statuses = [fact.data.status for fact in facts if isinstance(fact.data, PermissionData | QuestionData)]
    assert statuses == ["reject", "rejected"]
    metadata = [fact.data.metadata for fact in facts if isinstance(fact.data, PermissionData | QuestionData)]
    assert [row and row["withdrawn"] for row in metadata] == [True, True]
    assert not asks


def test_a_dropped_check_makes_no_event() -> None:
    asks = OpenAsks[Ask]()
    ask = permission()
    asks.begin(ask, None)
    asks.drop(ask)
    assert list(asks.close()) == []


def test_a_question_without_questions_is_a_question() -> None:
    asks = OpenAsks[Ask]()
    ask = Ask(ask_id="qst_1", action="question", metadata={}, questions=())
    assert asks.begin(ask, None).type is EventType.QUESTION_REQUESTED
    assert asks.withdrawn(ask).type is EventType.QUESTION_RESOLVED
