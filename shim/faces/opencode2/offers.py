"""Renders what agents offer as OpenCode 2's providers, models, agents and commands. Pure.

Prices, release dates and other values that an agent does not tell are left out where the contract allows it, and are 0 elsewhere,
as in OpenCode itself for unknown models. Source: recording `endpoints` of `compat_fixtures/opencode2/v2-20260717`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from shim.agents.catalog import OfferedMode, default_models, models_of, takes_images, with_models
from shim.agents.offered_commands import Offer, OfferedCommand
from universal.codec import Model

if TYPE_CHECKING:
    from shim.faces.opencode2._generated import host_types, types

PACKAGE = "opencode-shim"
"""Beginning of a provider's `package`. An agent talks to the models, and no package of the AI SDK."""


def agent(mode: OfferedMode, permissions: list[types.PermissionRule]) -> host_types.AgentInfo:
    """The `AgentInfo` of a mode or of an agent of the configuration. In: the config's permission rules for it."""
    own = mode.own
    info: dict[str, Any] = {
        "id": mode.name,
        "name": mode.name.capitalize(),
        "mode": "subagent" if mode.is_subagent else "primary" if own is None else own.mode,
        "hidden": own is not None and own.is_hidden,
        "permissions": permissions,
        "request": {"settings": {}, "headers": {}, "body": {}},
    }
    more: dict[str, Any] = {"description": mode.words}
    if own is not None:
        more |= {"system": own.prompt, "color": own.color, "steps": own.steps}
    return cast("host_types.AgentInfo", info | {key: value for key, value in more.items() if value})


def command(command: OfferedCommand) -> host_types.CommandInfo:
    """The `CommandInfo` of a slash command. Its template is left out."""
    return {"name": command.name, "description": command.description} if command.description else {"name": command.name}


def provider(offer: Offer, *, keyed: bool) -> host_types.ProviderInfo:
    """The `ProviderInfo` of an agent. In: `keyed`, whether it takes a key, for which an integration of its name exists."""
    info: host_types.ProviderInfo = {
        "id": offer.spec.name,
        "name": offer.spec.title,
        "activation": "enabled",
        "package": f"{PACKAGE}:{offer.spec.name}",
    }
    if keyed:
        info["integrationID"] = offer.spec.name
    return info


def models(offers: Sequence[Offer]) -> list[host_types.ModelInfo]:
    """The `ModelInfo` objects of all agents."""
    return [_model(offer, model) for offer, model in _all_models(offers)]


def default_model(offers: Sequence[Offer], configured: str | None) -> host_types.ModelInfo | None:
    """The `ModelInfo` for sessions without a choice. In: `chosen`, the config's `provider/model`; it may not exist."""
    defaults = default_models(offers)
    matches = [(offer, model) for offer, model in _all_models(offers) if f"{offer.spec.name}/{model.id}" == configured]
    listed = [(offer, model) for offer, model in _all_models(offers) if defaults[offer.spec.name] == model.id]
    return next((_model(offer, model) for offer, model in [*matches, *listed]), None)


def _all_models(offers: Sequence[Offer]) -> list[tuple[Offer, Model]]:
    return [(offer, model) for offer in with_models(offers) for model in models_of(offer).values()]


def _model(offer: Offer, model: Model) -> host_types.ModelInfo:
    images, files = takes_images(offer, model), offer.spec.abilities.capabilities.files
    return {
        "id": model.id,
        "modelID": model.id,
        "providerID": offer.spec.name,
        "name": model.name,
        "package": f"{PACKAGE}:{offer.spec.name}",
        "capabilities": {
            "tools": True,
            "input": ["text", *(["image"] if images else []), *(["pdf"] if files else [])],
            "output": ["text"],
        },
        "variants": [{"id": level, "settings": {"reasoningEffort": level}} for level in model.variants],
        "time": {"released": 0},
        "cost": [],
        "status": "active",
        "enabled": True,
        "limit": {"context": model.context or 0, "output": model.output or 0},
    }
