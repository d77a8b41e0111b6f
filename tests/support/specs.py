"""Specs of agents with other values."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from universal.agent_spec import AgentSpec


def change(spec: AgentSpec, **values: Any) -> AgentSpec:
    """Return the spec with other values of its fields, or of those of its program, its abilities and its rules."""

    def take(part: Any) -> Any:
        return replace(part, **{field.name: values.pop(field.name) for field in fields(part) if field.name in values})

    changed = replace(spec, program=take(spec.program), abilities=take(spec.abilities), rules=take(spec.rules))
    return replace(changed, **values)
