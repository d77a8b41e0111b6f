"""Reads the cards of agents: `cards/NAME.toml`, one for each. To add an agent is to add a card and its recordings.

A card has the fields of `Profile` and of its three values, all in one table. `modes` has a row for each: id = [description,
native name]. `record` is not of the profile: it says how the recorder and the end-to-end tests lead the agent
to the scripted model (`shim.dev.record.homes`).
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from universal.agent_spec import AgentAbilities, AgentProgram, AgentRules, Capabilities, LoginRun, LoginSigns, ProjectSettingsUse
from universal.agents.acp.profiles import ABILITIES, CAPABILITIES, RULES, WRITTEN, Profile
from universal.codec import Mode
from universal.lib.jsonvalue import arr, obj
from universal.sandbox import SandboxUse

FOLDER = Path(__file__).with_name("cards")
RECORD = "record"


def _value(value: Any) -> Any:
    """A list as a tuple, since profiles do not change."""
    return tuple(arr(value)) if isinstance(value, list) else value


def _fields(table: Any) -> dict[str, Any]:
    return {key: _value(value) for key, value in obj(table).items()}


_TABLES: Mapping[str, Callable[[Any], Any]] = {
    "modes": lambda table: tuple(Mode(name, *words) for name, words in obj(table).items()),
    "login_run": lambda words: LoginRun(tuple(arr(words))),
    "login_signs": lambda table: LoginSigns(**_fields(table)),
    "sandbox": lambda table: SandboxUse(**_fields(table)),
    "project_settings": lambda table: ProjectSettingsUse(**_fields(table)),
}


def read_card(name: str) -> dict[str, Any]:
    """Return the card of an agent. Raises OSError if there is none."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))


def profile_of(name: str, card: Mapping[str, Any]) -> Profile:
    """Return the profile that a card describes. Raises TypeError for a field that no profile has."""
    values = {key: _TABLES.get(key, _value)(value) for key, value in card.items() if key != RECORD}

    def take(type_: type[Any]) -> dict[str, Any]:
        return {field.name: values.pop(field.name) for field in fields(type_) if field.name in values}

    program = AgentProgram(**take(AgentProgram))
    capabilities = replace(CAPABILITIES, **take(Capabilities))
    abilities = replace(ABILITIES, capabilities=capabilities, **take(AgentAbilities))
    return Profile(name, program=program, abilities=abilities, rules=replace(RULES, **take(AgentRules)), **values)


CARDS: Mapping[str, Mapping[str, Any]] = {path.stem: read_card(path.stem) for path in sorted(FOLDER.glob("*.toml"))}
"""Agent -> its card."""
PROFILES: tuple[Profile, ...] = (*WRITTEN, *(profile_of(name, card) for name, card in CARDS.items()))
"""All known agents of the protocol."""
