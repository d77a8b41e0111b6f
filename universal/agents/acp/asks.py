"""The questions that an ACP agent asks a person: permissions, forms (`elicitation/create`), and Qwen Code's questions.

This module owns the open asks. Each gets exactly one `resolved`, and its request exactly one answer: by our reply, when the
agent withdraws it, at the end of the turn, or at the end of the process.
A request for a permission whose options are answers (`choices`) becomes a question, after the rules were applied to its call.
"For the session" is answered with `allow_once` if the agent offers it. The server keeps permanent permissions itself, by
OpenCode's rules, and nothing is written into the agent's own files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from universal.agents import kit
from universal.agents.acp.setup import Setup
from universal.agents.acp.tools import Call, arguments_of, block_text, input_of, pending_diff, rule_metadata, rule_name, title_of
from universal.agents.acp.wire import Context, Msg
from universal.codec import Output, PermissionReply, QuestionReply, ToolCheck, WriteLine
from universal.events import Question, QuestionOption
from universal.items import Json
from universal.lib.jsonline import get_text
from universal.lib.jsonrpc import Id, JsonRpc, Request
from universal.lib.jsonvalue import arr, obj
from universal.permissions import Rule

# --- options of `session/request_permission` --------------------------------------------------------------------

_ONCE, _ALWAYS = "allow_once", "allow_always"
_REJECTIONS = ("reject_once", "reject_always")
_PLAIN_IDS = frozenset({"allow", "allow_once", "allow-once", "once", "yes", "approve", "approved", "accept", "proceed_once"})
"""Ids of an option that only allows, beside others of its kind that do more (Qwen Code: and switch the mode)."""
_PERMISSION_WORD = re.compile(
    r"(allow|always|yes|no|ok|okay|approve|accept|proceed|run|reject|deny|decline|cancel|never|stop)(?![a-z])", re.I
)
"""How the labels of a permission begin."""
_REMEMBERED = re.compile(r"(always )?allow\b", re.I)
"""How the labels begin that allow more than this call."""
_PLAN_KINDS = frozenset({"switch_mode"})
_UNCLEAR_KINDS = frozenset({"", "other", "think"})
_DIALOG_METHODS = frozenset({"select", "confirm", "input", "editor"})
"""`method` in the arguments of a dialog of an extension of Pi, as pi-acp sends it."""
_DIALOG_KEYS = frozenset(
    {"method", "title", "message", "question", "questions", "options", "choices", "placeholder", "prefill", "header"}
    | {"description", "multiple", "multiSelect", "default", "timeout"}
)
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
    labels = {kind: [_label(option) for option in options if option.get("kind") == kind] for kind in kinds}
    # Several ways to remember are one permission when they say so (Gemini CLI: this tool, or all of its server).
    is_one = all(len(found) == 1 or (kind == _ALWAYS and all(map(_REMEMBERED.match, found))) for kind, found in labels.items())
    return is_call or (is_one and all(_PERMISSION_WORD.match(label) for found in labels.values() for label in found))


def _label(option: Msg) -> str:
    return get_text(option, "name", "optionId")


# --- questions --------------------------------------------------------------------------------------------------

_COMPANIONS = ("_custom", "_note")
"""Endings of fields for a person's own words beside a choice: claude-agent-acp, codex-acp."""
_NOTHING: Msg = {}
_YES, _NO = QuestionOption(label="Yes"), QuestionOption(label="No")


@dataclass(frozen=True, slots=True)
class _Field:
    """A property of the form that one question stands for."""

    name: str
    type: str
    values: dict[str, Json]
    """Label -> value."""
    multiple: bool
    companion: str
    """Field for other words; "" if there is none."""
    required: bool


_LINK = _Field("link", "link", {}, multiple=False, companion="", required=True)
"""Stands for a link that the person opens and whose page does the rest: nothing of it comes through here."""
_OPENED = QuestionOption(label="Done", description="I have opened the link and done what its page wants.")
_NOT_OPENED = QuestionOption(label="Decline")


@dataclass(slots=True, kw_only=True)
class _Ask(kit.Ask):
    request_id: Id
    options: list[Msg] = field(default_factory=list[Msg])
    """The options of `session/request_permission`; a question may come as such a request too. A form has none."""
    fields: tuple[_Field, ...] = ()
    choices: Choices | None = None
    """The question that the options are, of a request for a permission."""
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class AskAlways:
    """How an agent is made to ask for every call, and which of its questions a person is asked then.

    meta           rules -> `_meta` of the request that makes or continues a session; other values need another process
    since          the oldest version that was seen to keep to it
    is_for_person  (mode, tool, arguments) -> whether the agent would ask in this mode by itself; else only the rules are asked
    unchecked      tools that need no permission
    accessed       what a call does where its arguments do not tell it: fields of `PermissionData.metadata`
    """

    meta: Callable[[Sequence[Rule]], Mapping[str, Json]]
    since: str
    is_for_person: Callable[[str, str, Msg], bool]
    unchecked: frozenset[str]
    accessed: Callable[[str, Msg], Msg]


@dataclass(slots=True)
class Asks:
    """The open asks of one process."""

    ctx: Context
    rpc: JsonRpc
    setup: Setup
    approve: Callable[[str, Iterable[str]], None] = lambda _kind, _subjects: None
    """Called with each accepted path ("read", "write") and command ("execute")."""
    rejected: bool = False
    """Whether a permission was refused since this was last reset."""
    ask_always: AskAlways | None = None
    """Set when the agent asks for every call in this session."""
    _asks: kit.OpenAsks[_Ask] = field(default_factory=kit.OpenAsks[_Ask])

    def __bool__(self) -> bool:
        return bool(self._asks)

    def permission(self, request: Request, call: Call | None) -> Iterator[Output]:
        """Handle `session/request_permission`. `call` is the tool call that it concerns."""
        tool_call = obj(request.params.get("toolCall"))
        if questions := _questions_of(tool_call):
            yield self._begin_question(request, tool_call, call, questions)
            return
        tool = rule_name(call, tool_call)
        metadata: Msg = {
            "tool": tool,
            "call_id": call.call_id if call else get_text(tool_call, "toolCallId"),
            "input": arguments_of(call) if call else obj(tool_call.get("rawInput")),
            "title": get_text(tool_call, "title") or (title_of(call) if call else tool),
        }
        diff = get_text(obj(tool_call.get("rawInput")), "diff") or (pending_diff(call) if call else "")
        if diff:
            metadata["diff"] = diff
        metadata |= rule_metadata(call, tool_call)
        options = [obj(option) for option in arr(request.params.get("options"))]
        choices = choices_of(call, tool_call, options)
        if choices is not None and choices.is_harmless and "commands" not in metadata:
            yield self._begin_question(request, tool_call, call, (choices.question,), choices)
            return
        ask = _Ask(
            ask_id=self.ctx.ids("permission"),
            action=tool,
            metadata=metadata,
            request_id=request.id,
            options=options,
            choices=choices,
            call=call,
        )
        ask_always = self.ask_always
        if ask_always is not None and tool in ask_always.unchecked and choices is None:
            self.ctx.ignore("permission of a call that needs no check")
            yield self._select(ask, find_acceptance(options))
            return
        is_for_person = choices is None and not self.setup.lets_through(
            get_text(tool_call, "kind") or (call.kind if call else "")
        )
        if ask_always is not None:
            arguments: Msg = {**obj(metadata["input"]), **input_of(tool_call.get("rawInput"))}  # the request takes precedence
            metadata |= {"input": arguments, **ask_always.accessed(tool, arguments)}
            is_for_person = is_for_person and ask_always.is_for_person(self.setup.mode_id(), tool, arguments)
        fact = self._asks.begin(ask, request.raw)
        yield fact if is_for_person else ToolCheck(fact)

    def _begin_question(
        self,
        request: Request,
        tool_call: Msg,
        call: Call | None,
        questions: tuple[Question, ...],
        choices: Choices | None = None,
    ) -> Output:
        """Open a question that came as a request for a permission."""
        ask = _Ask(
            ask_id=self.ctx.ids("question"),
            action=call.name if call else "question",
            metadata={
                "tool": call.name if call else "question",
                "call_id": call.call_id if call else get_text(tool_call, "toolCallId"),
                "input": arguments_of(call) if call else obj(tool_call.get("rawInput")),
                "title": get_text(tool_call, "title"),
                **({"plan": choices.plan} if choices is not None and choices.plan else {}),
            },
            request_id=request.id,
            options=[obj(option) for option in arr(request.params.get("options"))],
            questions=questions,
            choices=choices,
            call=call,
        )
        return self._asks.begin(ask, request.raw)

    def _ask_for_choice(self, ask: _Ask, choices: Choices) -> Output:
        """Ask which option is meant, now that the call itself is allowed."""
        ask_id, questions = self.ctx.ids("question"), (choices.question,)
        return self._asks.begin(replace(ask, ask_id=ask_id, questions=questions), None)

    def form(self, request: Request, call: Call | None) -> Iterator[Output]:
        """Handle `elicitation/create`: a form, or a link that the person opens. One that asks nothing is declined."""
        schema, url = obj(request.params.get("requestedSchema")), get_text(request.params, "url")
        message, mode = get_text(request.params, "message"), get_text(request.params, "mode")
        call_questions = [get_text(obj(row), "question") for row in arr((call.raw_input if call else {}).get("questions"))]
        read = list(_read_form(schema, message, call_questions)) if mode in ("", "form") else []
        if mode == "url" and url.startswith(("https://", "http://")):
            read = [(_LINK, Question(question=f"{message}\n\n{url}".strip(), header="Link", options=(_OPENED, _NOT_OPENED)))]
        if not read:
            self.ctx.ignore("elicitation without fields")
            yield WriteLine(self.rpc.response(request.id, {"action": "decline"}))
            return
        tool = call.name if call else "question"
        metadata: Msg = {"tool": tool, "input": schema, "title": message}
        call_id = call.call_id if call else get_text(request.params, "toolCallId")
        if call_id:
            metadata["call_id"] = call_id
        ask = _Ask(
            ask_id=self.ctx.ids("question"),
            action=tool,
            metadata=metadata,
            request_id=request.id,
            fields=tuple(row for row, _ in read),
            questions=tuple(question for _, question in read),
            call=call,
        )
        yield self._asks.begin(ask, request.raw)

    # --- replies --------------------------------------------------------------------------------------

    def reply(self, command: PermissionReply) -> list[Output]:
        """Answer a permission. Returns [] if it is no longer open. ACP has no field for the message of a rejection."""
        ask = self._asks.permission(command.permission_id)
        if ask is None:
            return []
        resolved = self._asks.resolve_permission(ask, command.decision, command.message)
        if command.stops:
            kit.note_refusal(ask.call)
        if command.decision == "reject":
            self._note_rejection(ask)
            return [self._select(ask, find_rejection(ask.options)), resolved]
        if ask.choices is not None:
            return [resolved, self._ask_for_choice(ask, ask.choices)]
        self._approve(ask)
        return [self._select(ask, find_acceptance(ask.options)), resolved]

    def _approve(self, ask: _Ask) -> None:
        """Let the host do what the call was accepted for."""
        paths = [str(path) for path in arr(ask.metadata.get("paths"))]
        self.approve("read", paths)
        self.approve("write", paths if ask.call is None or ask.call.kind != "read" else ())
        arguments = obj(ask.metadata.get("input"))
        commands = arr(ask.metadata.get("commands")) or [arguments.get("command")]
        self.approve("execute", (command for command in commands if isinstance(command, str)))

    def _note_rejection(self, ask: _Ask) -> None:
        self.rejected = True
        if ask.call is not None:
            ask.call.rejected = True

    def proceed(self, permission_id: str) -> list[Output]:
        """Accept a checked call that the agent's mode allows. No event is recorded."""
        ask = self._asks.take_permission(permission_id)
        if ask is None:
            return []
        if ask.choices is not None:
            return [self._ask_for_choice(ask, ask.choices)]
        return [self._select(ask, find_acceptance(ask.options))]

    def _select(self, ask: _Ask, option: Msg | None, answers: Msg | None = None) -> WriteLine:
        """Answer with an option. Without one that fits, the request is cancelled: none is chosen in the person's name."""
        chosen = get_text(option or _NOTHING, "optionId")
        outcome: Msg = {"outcome": "selected", "optionId": chosen} if chosen else {"outcome": "cancelled"}
        result: Msg = {"outcome": outcome} if answers is None else {"outcome": outcome, "answers": answers}
        return WriteLine(self.rpc.response(ask.request_id, result))

    def answer(self, command: QuestionReply) -> list[Output]:
        """Answer a question. Returns [] if it is no longer open. ACP has no field for the message of a rejection."""
        ask = self._asks.question(command.question_id)
        if ask is None:
            return []
        if command.answers is None:
            if command.stops:
                kit.note_refusal(ask.call)
            if ask.call is not None:
                ask.call.dismissed = True
            refuse = WriteLine(self.rpc.response(ask.request_id, {"action": "decline"}))
            if ask.choices is not None:
                self._note_rejection(ask)
            decline = self._select(ask, find_rejection(ask.options)) if ask.options else refuse
            return [decline, self._asks.resolve_question(ask, None, command.message)]
        if ask.choices is not None:
            labels = [label for row in command.answers for label in row]
            chosen = ask.choices.options.get(labels[0]) if len(labels) == 1 else None
            if chosen is None or get_text(chosen, "kind").startswith("reject"):
                self._note_rejection(ask)
            else:
                self._approve(ask)
            return [self._select(ask, chosen), self._asks.resolve_question(ask, command.answers)]
        if ask.call is not None:
            ask.call.answers = [list(labels) for labels in command.answers]
        if ask.options:
            answers: Msg = {str(index): ", ".join(labels) for index, labels in enumerate(command.answers)}
            return [self._select(ask, find_acceptance(ask.options), answers), self._asks.resolve_question(ask, command.answers)]
        result: Msg = {"action": "accept", "content": _content(ask.fields, command.answers)}
        if ask.fields == (_LINK,):
            result = {"action": "accept" if command.answers[:1] == [[_OPENED.label]] else "decline"}
        return [WriteLine(self.rpc.response(ask.request_id, result)), self._asks.resolve_question(ask, command.answers)]

    # --- ends -----------------------------------------------------------------------------------------

    def cancel(self) -> list[Output]:
        """Answer every open ask as cancelled, because we interrupt the turn."""
        return [out for ask in self._asks for out in self._cancel(ask)]

    def withdraw(self, request_id: Json, raw: Json) -> list[Output]:
        """Handle `$/cancel_request`: the agent has withdrawn the request, but it must still be answered."""
        cancelled = [ask for ask in self._asks if ask.request_id == request_id]
        return [out for ask in cancelled for out in self._cancel(ask)]

    def withdraw_all(self) -> list[Output]:
        """Close all open asks, because the process or its turn has ended and nobody waits for an answer."""
        return list(self._asks.close())

    def _cancel(self, ask: _Ask) -> list[Output]:
        result: Msg = {"action": "cancel"} if ask.is_question and not ask.options else {"outcome": {"outcome": "cancelled"}}
        return [WriteLine(self.rpc.response(ask.request_id, result)), self._asks.withdrawn(ask)]


# --- questions in a request for a permission ----------------------------------------------------------------


def _questions_of(tool_call: Msg) -> tuple[Question, ...]:
    """Return the questions of Qwen Code's `ask_user_question`, which waits for their answers beside the chosen option.

    Its answer is `answers`: the number of a question -> labels, joined by commas (@qwen-code/qwen-code 0.24.4).
    """
    meta = obj(tool_call.get("_meta"))
    if get_text(meta, "qwenInteractionKind") != "user_question":
        return ()
    rows = arr(meta.get("qwenQuestions")) or arr(obj(tool_call.get("rawInput")).get("questions"))
    return tuple(kit.read_question(obj(row), multiple="multiSelect") for row in rows)


# --- forms ----------------------------------------------------------------------------------------------


def _read_form(schema: Msg, message: str, call_questions: list[str]) -> Iterator[tuple[_Field, Question]]:
    """Yield the fields of a form, each with its question. `call_questions` are those of the tool call itself."""
    properties = {name: obj(value) for name, value in obj(schema.get("properties")).items()}
    required = arr(schema.get("required"))
    names = [name for name in properties if not _companion_of(name, properties)]
    for index, name in enumerate(names):
        field_schema = properties[name]
        companion = next((name + end for end in _COMPANIONS if name + end in properties), "")
        options, values, multiple = _choices(field_schema)
        title, about = get_text(field_schema, "title"), get_text(field_schema, "description")
        if index < len(call_questions) and call_questions[index] and len(call_questions) == len(names):
            text, header = call_questions[index], title
        elif title.endswith("?"):
            text, header = title, about
        elif about.endswith("?"):
            text, header = about, title
        elif len(names) == 1 and message:
            text, header = message, title
        else:
            text, header = about or title or message or name, title
        free = get_text(field_schema, "type") in ("string", "number", "integer") and not options
        question = Question(question=text, header=header, options=options, multiple=multiple, custom=bool(companion) or free)
        yield _Field(name, get_text(field_schema, "type"), values, multiple, companion, name in required), question


def _companion_of(name: str, properties: Msg) -> bool:
    return any(name.endswith(end) and name.removesuffix(end) in properties for end in _COMPANIONS)


def _choices(field_schema: Msg) -> tuple[tuple[QuestionOption, ...], dict[str, Json], bool]:
    """Return (options, label -> value, whether several may be chosen) of a field."""
    multiple = get_text(field_schema, "type") == "array"
    source = obj(field_schema.get("items")) if multiple else field_schema
    if get_text(source, "type") == "boolean":
        return (_YES, _NO), {"Yes": True, "No": False}, multiple
    rows = [obj(row) for row in arr(source.get("oneOf")) or arr(source.get("anyOf"))]
    names = arr(source.get("enumNames"))
    for index, value in enumerate(arr(source.get("enum"))):
        rows.append({"const": value, "title": names[index] if index < len(names) else value})
    options: list[QuestionOption] = []
    values: dict[str, Json] = {}
    for row in rows:
        label = get_text(row, "title") or str(row.get("const", ""))
        if label and label not in values and "const" in row:
            values[label] = row["const"]
            options.append(QuestionOption(label=label, description=get_text(row, "description")))
    return tuple(options), values, multiple


def _content(fields: Sequence[_Field], answers: Sequence[Sequence[str]]) -> Msg:
    """Return the `content` of an accepted form: field -> value."""
    content: Msg = {}
    for row, labels in zip(fields, answers, strict=False):
        values = [row.values[label] for label in labels if label in row.values]
        words = ", ".join(label for label in labels if label not in row.values and label)
        if words and row.companion:
            content[row.companion] = words
            if not values and row.required and row.values:
                values = [row.values.get("None of the above", list(row.values.values())[-1])]
        elif words and not row.values:
            values = [_convert(row.type, words)]
        if row.multiple and values:
            content[row.name] = values
        elif values:
            content[row.name] = values[0]
    return content


def _convert(type_: str, words: str) -> Json:
    """Convert a person's text to the type that the form wants. Text that is not a number stays unchanged."""
    try:
        return int(words) if type_ == "integer" else float(words) if type_ == "number" else words
    except ValueError:
        return words
