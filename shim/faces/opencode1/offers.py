"""Renders what agents offer as OpenCode 1's providers, models, agents and commands. Pure.

    coding agent (claude)             provider; its models are the provider's models, effort levels their variants
    mode of it (build, plan, ...)     agent of mode `primary`, which a person chooses next to the prompt

Unknown prices and limits are 0, and clients then leave them out. Web UIs request providers three to five times a page, so the
answer holds only fields that a client reads.
Source: openapi Provider, Model, Agent, Command; recordings `endpoints` of 1.18.33.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, cast

from shim.agents.catalog import OfferedMode, models_of, takes_images, with_models
from shim.agents.offered_commands import Offer, OfferedCommand
from universal.agent_spec import AgentSpec
from universal.codec import Model
from universal.permissions import MODES
from universal.sandbox import TIGHTER
from universal.setup import NO_SETUP, PARTS, DirectorySetup

if TYPE_CHECKING:
    from shim.faces.opencode1._generated import host_types


def providers(offers: Iterable[Offer]) -> list[host_types.Provider]:
    """The agents that offer models."""
    return [
        {
            "id": offer.spec.name,
            "name": offer.spec.title,
            "source": "custom",
            "env": [],
            "options": {},
            "models": {id_: _model(offer, model) for id_, model in models_of(offer).items()},
        }
        for offer in with_models(offers)
    ]


def _model(offer: Offer, model: Model) -> host_types.Model:
    images, files = takes_images(offer, model), offer.spec.abilities.capabilities.files
    fresh, output, cache_read, cache_write = model.price or (0, 0, 0, 0)
    return {
        "id": model.id,
        "providerID": offer.spec.name,
        "api": {"id": model.id, "url": "", "npm": ""},
        "name": model.name,
        "capabilities": {
            "temperature": False,
            "reasoning": model.reasoning,
            "attachment": images or files,
            "toolcall": True,
            "input": {"text": True, "audio": False, "image": images, "video": False, "pdf": files},
            "output": {"text": True, "audio": False, "image": False, "video": False, "pdf": False},
            "interleaved": False,
        },
        "cost": {"input": fresh, "output": output, "cache": {"read": cache_read, "write": cache_write}},
        "limit": {"context": model.context or 0, "output": model.output or 0},
        "status": "active",
        "options": {},
        "headers": {},
        "release_date": "",
        "variants": {level: {"reasoningEffort": level} for level in model.variants},
    }


def agent(
    mode: OfferedMode, offers: Sequence[Offer] = (), setup: DirectorySetup = NO_SETUP, idle: Sequence[str] = ()
) -> host_types.Agent:
    """A mode, or an agent of the configuration.

    Its options tell of each coding agent that has it who enforces the rules, when a prompt during a turn reaches it, and what of
    the directory's set-up (`setup`, `idle`) has no effect. A model that none of `offers` has is left out.
    """
    enforced = {spec.name: _enforcement(spec) for spec in mode.specs}
    own = mode.own
    rules = own.rules if own is not None else ()
    row: host_types.Agent = {
        "name": mode.name,
        "description": mode.words,
        "mode": "subagent" if mode.is_subagent else "primary" if own is None else own.mode,
        "native": (own is None or mode.name in MODES) and mode.words == mode.description,  # else the TUI hides the sandbox
        # Without rules of its own: those of the configuration apply in all modes.
        "permission": [{"permission": rule.permission, "pattern": rule.pattern, "action": rule.action} for rule in rules],
        "options": {"enforcement": enforced, "delivery": _delivery(mode)} if enforced and not mode.is_subagent else {},
    }
    gaps: dict[str, list[str]] = {spec.name: [PARTS[part] for part in spec.abilities.setup.gaps(setup)] for spec in mode.specs}
    for spec in mode.specs:
        if not spec.abilities.setup.reads_own:
            gaps[spec.name] += [*idle, *(f"`{key}`" for key in (own.idle if own is not None else ()))]
    if missing := {name: parts for name, parts in gaps.items() if parts}:
        row["options"] = {**row["options"], "setup": {"withoutEffect": missing}}
    if own is not None:
        provider, _, model = own.model.partition("/")
        if any(offer.spec.name == provider and model in models_of(offer) for offer in offers):
            row["model"] = {"providerID": provider, "modelID": model}
        more = {"prompt": own.prompt, "variant": own.variant, "color": own.color, "steps": own.steps, "hidden": own.is_hidden}
        row = cast("host_types.Agent", {**row, **{key: value for key, value in more.items() if value}})
    return row


def _delivery(mode: OfferedMode) -> dict[str, object]:
    """What each agent does with a prompt that comes during a turn: takes it in at its next step, or lets it wait, and why."""
    return {spec.name: {"queue": spec.abilities.no_steering} if spec.abilities.no_steering else "steer" for spec in mode.specs}


def _enforcement(spec: AgentSpec) -> dict[str, object]:
    """Who enforces rules, which rules do not hold as written, and what the kernel holds in the agent's sandbox."""
    enforcement, level = spec.rules.enforcement, spec.rules.sandbox.level
    more = {"partial": enforcement.partial, "noAsks": enforcement.no_asks}
    reasons = {key: words for key, words in more.items() if words}
    denies = spec.rules.kernel_denies
    kernel = {"sandbox": {"level": level, "denies": list(denies)}} if level in TIGHTER or denies else {}
    return {"by": enforcement.by, "missing": dict(enforcement.missing), **reasons, **kernel}


def command(command: OfferedCommand) -> host_types.Command:
    """A slash command."""
    row = {"name": command.name, "source": "command", "template": command.template, "hints": list(command.hints)}
    more = {"description": command.description, "agent": command.agent, "model": command.model, "subtask": command.subtask}
    return cast("host_types.Command", {**row, **{key: value for key, value in more.items() if value}})
