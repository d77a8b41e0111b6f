"""Answers in a JSON schema (`format` of a prompt): what the agent is told, and what its answer is worth.

Claude Code and Codex get the schema (`AgentAbilities.structured`), other agents are told it. Whatever an agent does, its answer
is checked here, and asked for again, within the same turn, as often as the prompt says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from shim.lib.errors import InvalidRequest
from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.prompts.prompt_dispatch import PromptDispatcher
from shim.sessions.prompts.prompt_queue import PromptQueue
from shim.sessions.session.session_state import SessionState
from universal.lib.json_schema import mismatch, schema_fault, validator
from universal.lib.jsonvalue import obj, whole
from universal.session.values import Text

RETRIES = 2
"""How often the agent is asked again if the prompt does not say it, as in OpenCode."""
MOST_RETRIES = 20
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)\n```", re.S)


def check_format(value: object, *above: str) -> None:
    """Raise InvalidRequest, with the place, if `format` of a prompt cannot be served. In: the names above it in the body."""
    format_, place = obj(value), (*above, "format")
    if value is None or format_.get("type") == "text":
        return
    if format_.get("type") != "json_schema":
        raise InvalidRequest('Expected "text" | "json_schema"', path=(*place, "type"))
    if (fault := schema_fault(format_.get("schema"))) is not None:
        raise InvalidRequest(f"This is no JSON schema: {fault[0]}", path=(*place, "schema", *fault[1]))
    retries = format_.get("retryCount", RETRIES)
    if type(retries) is not int or not 0 <= retries <= MOST_RETRIES:
        raise InvalidRequest(f"Expected a whole number from 0 to {MOST_RETRIES}", path=(*place, "retryCount"))


def must_ask_again(
    state: SessionState, queue: PromptQueue, dispatcher: PromptDispatcher, metadata: dict[str, Any] | None, *, is_done: bool
) -> bool:
    """Take the answer to a prompt with a schema: keep its value, or ask again, or keep the error. True if it was asked again.

    In: `metadata` of the signal, of which `structured` is taken out; `is_done`, whether the agent has answered.
    """
    pending = dispatcher.current
    if pending is None or pending.prompt.schema is None or not is_done:
        return False
    message_id, words = _answer(state)
    values = [metadata.pop("structured")] if metadata and "structured" in metadata else [*_values(words)]
    whys = [mismatch(value, validator(pending.prompt.schema)) for value in values]
    if "" in whys:
        state.status("structured", message_id=message_id, value=values[whys.index("")])
        return False
    why = whys[0] if whys else "it is no JSON"
    if pending.retries < whole(obj(pending.user_prompt.format).get("retryCount"), RETRIES):
        _ask_again(queue, pending, why)
        dispatcher.dispatch_again()
        return True
    error = {"message": f"The answer does not match the schema: {why}.", "retries": pending.retries}
    state.status("structured", message_id=message_id, error=error)
    return False


def _ask_again(queue: PromptQueue, pending: PendingPrompt, why: str) -> None:
    text = f"Your answer does not match the JSON schema: {why}. Answer again, in that schema and with nothing else."
    prompt = replace(pending.prompt, text=text, attachments=())
    queue.pending[prompt.key] = replace(pending, prompt=prompt, retries=pending.retries + 1)


def _answer(state: SessionState) -> tuple[str, str]:
    last = next((message for message in state.session.newest_first() if not message.is_user), None)
    if last is None:
        return "", ""
    return last.info.id, "".join(part.text for part in last.all_parts() if isinstance(part, Text))


def _values(words: str) -> Iterator[Any]:
    """The JSON values that a text may mean: all of it, or what stands in fences."""
    for text in (words, *reversed(_FENCED.findall(words))):
        try:
            yield json.loads(text)
        except (ValueError, RecursionError):
            continue
