"""Answers in a JSON schema (`format` of a prompt): what the agent is told, and what its answer is worth.

Claude Code and Codex get the schema (`AgentAbilities.structured`), other agents are told it. Whatever an agent does, its answer
is checked here, and asked for again, within the same turn, as often as the prompt says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from shim.lib.errors import InvalidRequest
from shim.sessions.prompts.pending_prompt import PendingPrompt
from shim.sessions.prompts.prompt_queue import PromptQueue
from shim.sessions.session.session_state import SessionState
from universal.codec import Prompt
from universal.lib.json_schema import mismatch, schema_fault, validator
from universal.lib.jsonvalue import arr, obj, whole
from universal.session.values import Text

RETRIES = 2
"""How often the agent is asked again if the prompt does not say it, as in OpenCode."""
MOST_RETRIES = 20
INSTRUCTION = "Answer with one JSON value and nothing else: no fences, no words around it. Its JSON schema:\n{schema}"
"""What agents are told that do not take the schema itself."""
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


def with_schema(prompt: Prompt, takes: Literal["", "any", "strict"]) -> Prompt:
    """The prompt with its schema, or with the instruction in its place. In: which schemas the agent takes (`AgentSpec`)."""
    if takes == "any" or (takes == "strict" and _is_strict(prompt.schema)):
        return prompt
    words = INSTRUCTION.format(schema=json.dumps(prompt.schema))
    return replace(prompt, schema=None, system="\n\n".join(filter(None, (prompt.system, words))))


def _is_strict(schema: Any) -> bool:
    """Whether each object names all its properties and requires them: the model's API of Codex refuses others."""
    rules, properties = obj(schema), obj(obj(schema).get("properties"))
    is_object = rules.get("type") == "object" or "properties" in rules
    is_whole = rules.get("additionalProperties") is False and set(properties) == set(arr(rules.get("required")))
    inner = [
        *properties.values(),
        *(obj(rules.get("$defs")).values()),
        *arr(rules.get("anyOf")),
        *(rules[key] for key in ("items",) if key in rules),
    ]
    return (is_whole or not is_object) and "allOf" not in rules and "oneOf" not in rules and all(map(_is_strict, inner))


def must_ask_again(
    state: SessionState, queue: PromptQueue, pending: PendingPrompt | None, metadata: dict[str, Any] | None, *, is_done: bool
) -> bool:
    """Take the answer to a prompt with a schema: keep its value, or its error, or queue the prompt once more (True).

    In: `pending`, the prompt that is answered; `metadata` of the signal, of which `structured` is taken out; `is_done`, whether
    the agent has answered.
    """
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
        words = f"Your answer does not match the JSON schema: {why}. Answer again, in that schema and with nothing else."
        queue.pending[pending.prompt.key] = pending.with_text(words, pending.retries + 1)
        return True
    error = {"message": f"The answer does not match the schema: {why}.", "retries": pending.retries}
    state.status("structured", message_id=message_id, error=error)
    return False


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
