"""Renders the offers of agents as OpenCode's providers and agents. Pure. `offered_commands` has their slash commands.

    coding agent (claude)             provider; its models are the provider's models, effort levels their variants
    mode of it (build, plan, ...)     agent of mode `primary`, which a person chooses next to the prompt

Unknown prices and limits are 0, and clients then leave them out. Web UIs request providers three to five times a page, so the
answer holds only fields that a client reads.
Source: openapi Provider, Model, Agent; recordings `endpoints` of 1.18.33.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from shim.agents.offered_commands import Offer
from universal.codec import AgentSpec, Capabilities, Enforcement, Mode, Model, modes_of

Wire: TypeAlias = dict[str, Any]
FIRST_MODES = ("build", "plan")
"""The first modes of the list, where every OpenCode client expects them."""

SHARED_MODES = {
    "build": "Asks before it edits files or runs commands, as far as its agent does so by itself.",
    "plan": "Only reads and thinks, then proposes a plan.",
    "accept-edits": "Edits files in the project without asking; what goes beyond that is asked.",
    "auto": "A model decides what is safe to do without asking, and holds back the rest.",
    "bypass": "Does everything without asking. Only for sandboxes: nothing is held back.",
}
"""Mode -> its description for all agents that have it."""

GENERAL: Wire = {
    "name": "general",
    "description": "General-purpose agent for researching complex questions and executing multi-step tasks.",
    "mode": "subagent",
    "native": True,
    "permission": [],
    "options": {},
}
"""The subagent that `@general` in a prompt names. Offered only if an agent has subagents."""

BUILD = Mode("build", "The default agent.", "build")
"""The mode that is offered without any installed agent. Without it, clients send no prompt and show no error."""


def providers(offers: Iterable[Offer]) -> list[Wire]:
    """Return `Provider` objects in the agents' order. An agent without models is left out, since none can be chosen."""
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
    """Return provider -> its default model."""
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
    """Return `Agent` objects: the union of all agents' modes, with `first` in front if it exists.

    Clients request the list without a session. So a mode that agents describe differently gets one description for all, and a
    mode that only some agents have names them.
    """
    found: dict[str, list[tuple[Offer, Mode]]] = {}
    for offer in offers:
        for mode in modes_of(offer.spec, offer.catalogue):
            found.setdefault(mode.id, []).append((offer, mode))
    described = {id_: _mode_description(id_, having, len(offers)) for id_, having in found.items()} or {
        BUILD.id: BUILD.description
    }
    wanted = [name for name in (first, *FIRST_MODES) if name in described]
    specs = {id_: [offer.spec for offer, _ in having] for id_, having in found.items()}
    listed = [_mode(name, described[name], specs.get(name, ())) for name in dict.fromkeys([*wanted, *described])]
    return [*listed, GENERAL] if any(offer.spec.capabilities.subagents for offer in offers) else listed


def _mode_description(id_: str, having: Sequence[tuple[Offer, Mode]], agents: int) -> str:
    """Return a mode's description. `having` are the agents that have it, and `agents` is the number of all agents."""
    texts = dict.fromkeys(mode.description for _, mode in having if mode.description)
    words = next(iter(texts), "") if len(texts) < 2 else SHARED_MODES.get(id_, next(iter(texts)))
    owners = f"({', '.join(offer.spec.title for offer, _ in having)})" if len(having) < agents else ""
    return f"{words} {owners}".strip()


def _enforcement(enforcement: Enforcement) -> Wire:
    """Return who enforces rules, and which rules do not hold as written."""
    more = {"partial": enforcement.partial, "noAsks": enforcement.no_asks}
    reasons = {key: words for key, words in more.items() if words}
    return {"by": enforcement.by, "missing": dict(enforcement.missing), **reasons}


def _mode(name: str, description: str, specs: Sequence[AgentSpec]) -> Wire:
    enforced = {spec.name: _enforcement(spec.enforcement) for spec in specs}
    return {
        "name": name,
        "description": description,
        "mode": "primary",
        "native": True,
        # Empty: rules of the configuration apply in all modes.
        "permission": [],
        "options": {"enforcement": enforced} if enforced else {},
    }
