"""The base of all codecs: stamping, counts, and reading lines that are JSON objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeAlias, cast

from universal.agents.kit.context import ContextT, make_error
from universal.codec import (
    Codec,
    Command,
    Fact,
    Interrupt,
    Output,
    PermissionReply,
    Prompt,
    QuestionReply,
    SetTimer,
    Stop,
    WriteLine,
    of_session,
)
from universal.items import Json
from universal.launch import Exit
from universal.lib.jsonline import digest, parse

HANDSHAKE_S = 60.0
"""Seconds for an agent to answer its handshake, or to begin or resume its conversation, after the first prompt is there."""
HANDSHAKE = "handshake"
"""Key of the timer for it."""

Handlers: TypeAlias = Mapping[str, Callable[[Any, dict[str, Any]], Iterable[Output]]]
"""Kind of line -> a method of the codec."""


def write(message: Mapping[str, Json]) -> WriteLine:
    """Write a message as a line in ASCII, which keeps U+2028 and lone surrogates from breaking the framing."""
    return WriteLine(json.dumps(message, separators=(",", ":")).encode())


def by_reason(kinds: Mapping[str, str]) -> dict[str, str]:
    """Kind of message -> why it is not used. In: reason -> the kinds that have it, with spaces between them."""
    return {kind: why for why, names in kinds.items() for kind in names.split()}


def await_handshake(after_s: float = HANDSHAKE_S) -> SetTimer:
    """Begin to wait for an agent that has a prompt and is not ready for it."""
    return SetTimer(HANDSHAKE, after_s)


def end_handshake() -> SetTimer:
    """End the wait, because the agent has answered."""
    return SetTimer(HANDSHAKE, None)


def handshake_failed(title: str, missing: str, *, resumes: bool, after_s: float = HANDSHAKE_S) -> Stop:
    """Give up an agent that does not answer. In: the request that it has `missing`; whether it was to resume a conversation."""
    message = f"{title} did not answer `{missing}` within {after_s:g} seconds, so it cannot take the prompt."
    hint = f"Run {title} in a terminal to see what it waits for, or `opencode-shim doctor`; then send the prompt again."
    code = "session_not_found" if resumes else "handshake_timeout"
    return Stop(f"no answer to {missing}", error=make_error(message, code, hint=hint, is_retryable=True))


class BaseCodec(Codec, Generic[ContextT]):
    """State and methods of every codec. See `universal.codec.Codec` for the methods' contract."""

    INTERRUPTS_FIRST: ClassVar[bool] = False
    """Whether the interrupt goes before an answer that ends the turn: agents that read the answer first would go on."""

    def __init__(self, context: ContextT) -> None:
        self.catalogue = None
        self.native_session_id = None
        self._ctx = context

    def send(self, command: Command) -> list[Output]:
        match command:
            case Prompt():
                return self._stamp(self._on_prompt(command))
            case Interrupt():
                return self._stamp(self._interrupt())
            case PermissionReply():
                return self._stamp(self._with_interrupt(self._on_permission_reply(command), stops=command.stops))
            case QuestionReply():
                return self._stamp(self._with_interrupt(self._on_question_reply(command), stops=command.stops))

    def _on_prompt(self, prompt: Prompt) -> Iterable[Output]:
        raise NotImplementedError

    def _interrupt(self) -> Iterable[Output]:
        raise NotImplementedError

    def _on_permission_reply(self, reply: PermissionReply) -> Iterable[Output]:
        return ()

    def _on_question_reply(self, reply: QuestionReply) -> Iterable[Output]:
        return ()

    def _interrupt_by_answer(self) -> Iterable[Output]:
        """Stop the running turn, whose person has refused a call. Empty for agents that end it by themselves."""
        return ()

    def _with_interrupt(self, outputs: Iterable[Output], *, stops: bool) -> Iterable[Output]:
        """A person's answer, with an interrupt if it ends the turn (`stops`). It is made first, since that changes the state."""
        answer = list(outputs)
        interrupt = list(self._interrupt_by_answer()) if answer and stops else []
        return (*interrupt, *answer) if self.INTERRUPTS_FIRST else (*answer, *interrupt)

    def eof(self, exit_: Exit) -> list[Output]:
        return self._stamp(self._on_eof(exit_))

    def _on_eof(self, exit_: Exit) -> Iterable[Output]:
        """The rest of open messages, calls and requests."""
        raise NotImplementedError

    def counters(self) -> Mapping[str, int]:
        return self._ctx.counters

    def _stamp(self, outputs: Iterable[Output]) -> list[Output]:
        """Return the outputs, and set the agent's id of the conversation in each fact.

        All outputs are made before the id is read, because one of them may set it.
        """
        results = list(outputs)
        if native := self.native_session_id:
            for place, output in enumerate(results):
                results[place] = of_session(output, native)
        return results

    _parse: Callable[[bytes], Json] = staticmethod(parse)
    """Parses a line. Raises ValueError or RecursionError."""

    def _object(self, line: bytes) -> dict[str, Any] | Fact:
        """The JSON object of a line, or an `agent.unparsed` fact."""
        try:
            value = self._parse(line)
        except (ValueError, RecursionError) as error:
            text = line.decode("utf-8", errors="replace")
            return self._ctx.report_unparsed("not JSON", f"not JSON: {error}", text, digest(line))
        if not isinstance(value, dict):
            return self._ctx.report_unparsed("no object", "a line that is no JSON object", value, digest(line))
        return cast("dict[str, Any]", value)


class LineCodec(BaseCodec[ContextT]):
    """A codec for lines of JSON objects. Each line has a kind, and each kind a handler."""

    HANDLERS: ClassVar[Handlers] = {}
    """Kind of line -> the method that handles it."""
    IGNORED: ClassVar[Mapping[str, str] | frozenset[str]] = frozenset()
    """Known kinds that are not used."""

    def receive(self, line: bytes) -> list[Output]:
        """Handle one line. A line that is no JSON object, or of an unknown kind, becomes `agent.unparsed`."""
        message = self._object(line)
        if isinstance(message, Fact):
            return self._stamp((message,))
        return self._handle(self._kind_of(message), message, line)

    def _kind_of(self, message: dict[str, Any]) -> str:
        """The kind of a line, a key of `HANDLERS` or `IGNORED`."""
        raise NotImplementedError

    def _handle(self, kind: str, message: dict[str, Any], line: bytes) -> list[Output]:
        handler = self.HANDLERS.get(kind)
        if handler is not None:
            return self._stamp(handler(self, message))
        if kind in self.IGNORED:
            self._ctx.ignore(kind)
            return []
        unparsed = self._ctx.report_unparsed(kind, "unknown kind of message", message, digest(line))
        return self._stamp((*self._refusal(kind, message), unparsed))

    def _refusal(self, kind: str, message: dict[str, Any]) -> Iterable[Output]:
        """The lines that refuse an unknown request, so that the agent does not wait for an answer."""
        return ()
