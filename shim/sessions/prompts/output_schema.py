"""Gives an agent the JSON schema of an answer, in the form that it takes. Pure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, Literal

from universal.codec import Prompt
from universal.lib.jsonvalue import arr, obj

INSTRUCTION = "Answer with one JSON value and nothing else: no fences, no words around it. Its JSON schema:\n{schema}"
"""What agents are told that do not take the schema itself."""


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
