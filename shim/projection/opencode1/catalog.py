"""What agents offer, as OpenCode's providers, agents and commands. Pure.

    coding agent (claude)             provider; its models are the provider's models, effort levels their variants
    mode of it (build, plan, ...)     agent of mode `primary`: what a person chooses beside the prompt
    slash command of it, of config    command

Prices and limits that an agent does not tell are 0: clients leave such numbers out. Web UIs ask for providers three to
five times a page, so nothing is said that no client reads.
Source: openapi Provider, Model, Agent, Command; recordings `endpoints` of 1.18.33.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeAlias

from universal.codec import COMPACT, AgentSpec, Capabilities, Catalogue, Mode, Model, modes_of

Wire: TypeAlias = dict[str, Any]
FIRST_MODES = ("build", "plan")
"""Where every OpenCode client expects them; what else there is follows."""

GENERAL: Wire = {
    "name": "general",
    "description": "General-purpose agent for researching complex questions and executing multi-step tasks.",
    "mode": "subagent",
    "native": True,
    "permission": [],
    "options": {},
}
"""The subagent that `@general` in a prompt means; only where an agent has subagents."""

BUILD = Mode("build", "The default agent.", "build")
"""Offered even when no agent is installed: without one, clients send nothing, and nobody learns what is missing."""

NUMBERED = re.compile(r"\$\d+")


class Offer(Protocol):
    """An installed agent and what it offers."""

    @property
    def spec(self) -> AgentSpec:
        """Its row of the registry."""
        ...

    @property
    def catalogue(self) -> Catalogue:
        """Models and commands, as it says itself."""
        ...


class Template(Protocol):
    """A slash command of the person's own."""

    @property
    def name(self) -> str:
        """Without the slash."""
        ...

    @property
    def template(self) -> str:
        """With `$1`, `$ARGUMENTS`, `@file` and !`shell` in it."""
        ...

    @property
    def description(self) -> str:
        """What it does; may be empty."""
        ...

    @property
    def agent(self) -> str | None:
        """Mode to run in."""
        ...

    @property
    def model(self) -> str | None:
        """`provider/model`."""
        ...

    @property
    def subtask(self) -> bool:
        """Whether a subagent is to do it."""
        ...


def providers(offers: Iterable[Offer]) -> list[Wire]:
    """`Provider` objects, in the agents' order; an agent that has told no model yet is left out, since none can be chosen."""
    return [
        {
            "id": offer.spec.name,
            "name": offer.spec.title,
            "source": "custom",
            "env": [],
            "options": {},
            "models": {model.id: _model(offer.spec, model) for model in offer.catalogue.models},
        }
        for offer in offers
        if offer.catalogue.models
    ]


def default_models(offers: Iterable[Offer]) -> dict[str, str]:
    """Provider -> the model that is taken when a person has chosen none."""
    return {
        offer.spec.name: offer.catalogue.default_model or offer.catalogue.models[0].id
        for offer in offers
        if offer.catalogue.models
    }


def _model(spec: AgentSpec, model: Model) -> Wire:
    can: Capabilities = spec.capabilities
    images = can.images and model.images
    return {
        "id": model.id,
        "providerID": spec.name,
        "api": {"id": model.id, "url": "", "npm": ""},
        "name": model.name,
        "capabilities": {
            "temperature": False,
            "reasoning": model.reasoning,
            "attachment": images or can.files,
            "toolcall": True,
            "input": {"text": True, "audio": False, "image": images, "video": False, "pdf": can.files},
            "output": {"text": True, "audio": False, "image": False, "video": False, "pdf": False},
            "interleaved": False,
        },
        "cost": {"input": 0, "output": 0, "cache": {"read": 0, "write": 0}},
        "limit": {"context": model.context or 0, "output": model.output or 0},
        "status": "active",
        "options": {},
        "headers": {},
        "release_date": "",
        "variants": {level: {"reasoningEffort": level} for level in model.variants},
    }


def modes(offers: Sequence[Offer], first: str | None = None) -> list[Wire]:
    """`Agent` objects: the union of all agents' modes, described by the first that has it; `first` leads if it exists."""
    found: dict[str, Mode] = {}
    for offer in offers:
        for mode in modes_of(offer.spec, offer.catalogue):
            found.setdefault(mode.id, mode)
    if not found:
        found[BUILD.id] = BUILD
    wanted = [name for name in (first, *FIRST_MODES) if name in found]
    ordered = dict.fromkeys([*wanted, *found])
    listed = [_mode(found[name]) for name in ordered]
    return [*listed, GENERAL] if any(offer.spec.capabilities.subagents for offer in offers) else listed


def _mode(mode: Mode) -> Wire:
    return {
        "name": mode.id,
        "description": mode.description,
        "mode": "primary",
        "native": True,
        # The agents' own; rules of the config come on top of them and are not tied to a mode.
        "permission": [],
        "options": {},
    }


def commands(offers: Sequence[Offer], own: Iterable[Template]) -> list[Wire]:
    """`Command` objects: the person's own first; of the agents' commands those whose name is still free.

    A command that not every agent has says whose it is: with another one's model it is refused. An agent's `compact` is left out:
    clients have a command of that name, which asks for the same (`session.summarize`), and would show two.
    """
    found: dict[str, Wire] = {command.name: _own(command) for command in own}
    for offer in offers:
        for command in offer.catalogue.commands:
            if command.name == COMPACT.removeprefix("/"):
                continue
            everywhere = all(any(c.name == command.name for c in other.catalogue.commands) for other in offers)
            whose = "" if everywhere else f" ({offer.spec.title})"
            row: Wire = {"name": command.name, "source": "command", "template": f"/{command.name} $ARGUMENTS"}
            row["hints"] = [command.hint or "$ARGUMENTS"]
            if command.description:
                row["description"] = f"{command.description}{whose}"
            found.setdefault(command.name, row)
    return list(found.values())


def _own(command: Template) -> Wire:
    row: Wire = {"name": command.name, "source": "command", "template": command.template, "hints": hints(command.template)}
    given = {"description": command.description, "agent": command.agent, "model": command.model, "subtask": command.subtask}
    return row | {key: value for key, value in given.items() if value}


def hints(template: str) -> list[str]:
    """The arguments that a template takes: `$1` and so on, ascending, then `$ARGUMENTS`."""
    numbered = sorted(set(NUMBERED.findall(template)), key=lambda name: int(name[1:]))
    return [*numbered, "$ARGUMENTS"] if "$ARGUMENTS" in template else numbered
