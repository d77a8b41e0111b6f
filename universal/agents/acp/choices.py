"""The options of `session/request_permission`: which mean yes and no, and when they are answers to a question instead. Pure.

A permission has one option that allows the call once and one that rejects it. Agents also ask questions by such a request,
because
version 1 of the protocol has no other: pi-acp sends the answers of a dialog as options of kind `allow_once`, claude-agent-acp the
ways to go on after a plan. Then a person sees the labels and chooses one; a plain yes would choose one unseen.
Source: pi-acp 0.0.34, claude-agent-acp 0.101.0, Qwen Code 0.24.4, codex-acp 2.6.0.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from universal.agents import kit
from universal.agents.acp.context import Msg
from universal.agents.acp.tools import Call, block_text, input_of, rule_name
from universal.events import Question, QuestionOption
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj

_ONCE, _ALWAYS = "allow_once", "allow_always"
_REJECTIONS = ("reject_once", "reject_always")
_PLAIN_IDS = frozenset({"allow", "allow_once", "allow-once", "once", "yes", "approve", "approved", "accept", "proceed_once"})
"""Ids of an option that only allows, beside others of its kind that do more (Qwen Code: and switch the mode)."""
_PERMISSION_WORD = re.compile(
    r"(allow|always|yes|no|ok|okay|approve|accept|proceed|run|reject|deny|decline|cancel|never|stop)(?![a-z])", re.I
)
"""How the labels of a permission begin."""
_PLAN_KINDS = frozenset({"switch_mode"})
_UNCLEAR_KINDS = frozenset({"", "other", "think"})
_DIALOG_METHODS = frozenset({"select", "confirm", "input", "editor"})
"""`method` in the arguments of a dialog of an extension of Pi, as pi-acp sends it."""
_DIALOG_KEYS = frozenset(
    {"method", "title", "message", "question", "questions", "options", "choices", "placeholder", "prefill", "header"}
    | {"description", "multiple", "multiSelect", "default", "timeout"}
)
"""Arguments of a dialog."""
_HEADER_CHARS = 30
_HINTS = {_ALWAYS: "The agent remembers this.", "reject_always": "The agent remembers this."}


@dataclass(frozen=True, slots=True)
class Choices:
    """Options that are answers: the question, and label -> option.

    is_harmless  the request is about no call of a tool
    plan         what the question is about, if that is a plan
    """

    question: Question
    options: Mapping[str, Msg]
    is_harmless: bool
    plan: str = ""


def find_acceptance(options: Sequence[Msg]) -> Msg | None:
    """Return the option that allows a call once and does nothing else, or None."""
    once = [option for option in options if option.get("kind") == _ONCE]
    plain = [option for option in once if get_text(option, "optionId").lower() in _PLAIN_IDS]
    return once[0] if len(once) == 1 else plain[0] if len(plain) == 1 else None


def find_rejection(options: Sequence[Msg]) -> Msg | None:
    """Return the option that rejects a call, rather once than always, or None if it is not clear which."""
    for kind in _REJECTIONS:
        if rejections := [option for option in options if option.get("kind") == kind]:
            return rejections[0] if len(rejections) == 1 else None
    return None


def choices_of(call: Call | None, tool_call: Msg, options: Sequence[Msg]) -> Choices | None:
    """Return the question that a request is, or None for a permission. Options without an id cannot be chosen."""
    usable = [option for option in options if get_text(option, "optionId")]
    raw_input = {**(call.raw_input if call else {}), **input_of(tool_call.get("rawInput"))}
    kind = get_text(tool_call, "kind") or (call.kind if call else "")
    name, title = rule_name(call, tool_call), get_text(tool_call, "title") or (call.title if call else "")
    speaks = kind in _UNCLEAR_KINDS and name in (*_UNCLEAR_KINDS, title) and raw_input.keys() <= _DIALOG_KEYS
    is_plan = kind in _PLAN_KINDS or name == "ExitPlanMode"
    is_dialog = speaks and get_text(raw_input, "method") in _DIALOG_METHODS
    is_call = not speaks
    if not usable or not (is_plan or is_dialog or not _is_permission(usable, is_call=is_call)):
        return None
    labels = Counter(_label(option) for option in usable)
    named = {
        label if labels[label] == 1 else f"{label} ({get_text(option, 'optionId')})": option
        for option in usable
        for label in (_label(option),)
    }
    blocks = [obj(block.get("content")) for block in map(obj, arr(tool_call.get("content")))]
    texts = dict.fromkeys(text for block in blocks if (text := block_text(block).strip()))
    plan = (get_text(raw_input, "plan") or "\n\n".join(texts)) if is_plan else ""
    lines = [*texts, title.strip(), get_text(raw_input, "message", "question").strip()]
    labelled = [
        QuestionOption(label=label, description=_HINTS.get(get_text(option, "kind"), "")) for label, option in named.items()
    ]
    if plan:
        refusals = {label for label, option in named.items() if option.get("kind") in _REJECTIONS}
        words = title.strip() or kit.PLAN_QUESTION
        return Choices(kit.plan_question(plan, labelled, refusals, words=words, custom=False), named, is_harmless=True, plan=plan)
    question = Question(
        question="\n\n".join(dict.fromkeys(filter(None, lines))) or "Which one?",
        header="Plan" if is_plan else title[:_HEADER_CHARS],
        options=tuple(labelled),
        custom=False,
    )
    remembers = any(option.get("kind") == _ALWAYS for option in usable)  # then it is rather a permission than an answer
    return Choices(question, named, is_harmless=is_plan or is_dialog or not (is_call or remembers))


def _is_permission(options: Sequence[Msg], *, is_call: bool) -> bool:
    """Return whether the options allow or reject one call. `is_call`: the request says what the call does."""
    kinds = Counter(get_text(option, "kind") for option in options)
    if not kinds.keys() <= {_ONCE, _ALWAYS, *_REJECTIONS} or any(kinds[kind] > 1 for kind in _REJECTIONS):
        return False
    if is_call and list(kinds) == [_ONCE] and kinds[_ONCE] == 1:
        return True  # a client that sends no way to reject; then the request is cancelled
    if find_acceptance(options) is None or find_rejection(options) is None:
        return False
    return is_call or (max(kinds.values()) == 1 and all(_PERMISSION_WORD.match(_label(option)) for option in options))


def _label(option: Msg) -> str:
    return get_text(option, "name", "optionId")
