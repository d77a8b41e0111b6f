"""Lists the modes and models that the installed agents offer. Pure. `offered_commands` has their slash commands.

To clients of OpenCode a coding agent is a provider, and its modes are agents that a person chooses next to the prompt. The faces
render both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from shim.agents.offered_commands import Offer
from universal.agent_spec import AgentSpec, modes_of
from universal.codec import Mode, Model
from universal.permissions import MODES
from universal.sandbox import TIGHTER, Level, strictest
from universal.setup import ConfigAgent

EMPTY: Mapping[str, ConfigAgent] = {}
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


@dataclass(frozen=True, slots=True)
class OfferedMode:
    """A mode or an agent of the configuration that a person can choose, and the coding agents that have it.

    `is_subagent`: a prompt names it, nobody chooses it; `own`: what the configuration says of it.
    """

    name: str
    description: str
    specs: tuple[AgentSpec, ...] = ()
    is_subagent: bool = False
    own: ConfigAgent | None = None

    @property
    def words(self) -> str:
        """Which agents run in a sandbox in it, as far as no rule decides that, and its description. The TUI cuts off its end."""
        of_mode: Level = self.own.sandbox if self.own is not None else "auto"
        levels = {spec.title: strictest(spec.rules.sandbox.level, of_mode) for spec in self.specs if spec.program.binaries}
        found = {level: [title for title, its in levels.items() if its == level] for level in TIGHTER}
        texts = [
            f"In a sandbox ({level}){'' if len(names) == len(levels) else ': ' + ', '.join(names)}."
            for level, names in found.items()
            if names
        ]
        return " ".join(filter(None, (*texts, self.description)))


GENERAL = OfferedMode(
    "general",
    "General-purpose agent for researching complex questions and executing multi-step tasks.",
    is_subagent=True,
)
"""The subagent that `@general` in a prompt names. Offered only if an agent has subagents."""

BUILD = Mode("build", "The default agent.", "build")
"""The mode that is offered without any installed agent. Without it, clients send no prompt and show no error."""


def with_models(offers: Iterable[Offer]) -> list[Offer]:
    """List the agents that offer models, in their order. Of the others none can be chosen."""
    return [offer for offer in offers if offer.catalogue.models]


def models_of(offer: Offer) -> Mapping[str, Model]:
    """Return id -> model."""
    return {model.id: model for model in offer.catalogue.models}


def default_models(offers: Iterable[Offer]) -> dict[str, str]:
    """Return agent -> its default model, of the agents that offer models."""
    return {offer.spec.name: offer.catalogue.default_model or offer.catalogue.models[0].id for offer in with_models(offers)}


def takes_images(offer: Offer, model: Model) -> bool:
    """Whether a prompt for this model may have images."""
    return offer.spec.abilities.capabilities.images and model.images


def modes(
    offers: Sequence[Offer],
    first: str | None = None,
    leave_out: Collection[str] = (),
    own: Mapping[str, ConfigAgent] = EMPTY,
) -> list[OfferedMode]:
    """List the union of all agents' modes without `leave_out` and the agents that are `own`, with `first` in front if it exists.

    Clients request the list without a session. So a mode that agents describe differently gets one description for all, and a
    mode that only some agents have names them.
    """
    offers_by_mode: dict[str, list[tuple[Offer, Mode]]] = {}
    for offer in offers:
        for mode in modes_of(offer.spec, offer.catalogue):
            offers_by_mode.setdefault(mode.id, []).append((offer, mode))
    described = {id_: _mode_description(id_, having, len(offers)) for id_, having in offers_by_mode.items()} or {
        BUILD.id: BUILD.description
    }
    everyone = tuple(offer.spec for offer in offers)
    specs = {id_: tuple(offer.spec for offer, _ in having) for id_, having in offers_by_mode.items()}
    for name, agent in own.items():
        if name not in MODES and agent.mode != "subagent":
            described[name], specs[name] = agent.description, everyone
        elif name in described:
            described[name] = agent.description or described[name]
    modes = [name for name in (first, *FIRST_MODES, *own) if name in described]
    listed = [
        OfferedMode(name, described[name], specs.get(name, ()), own=own.get(name)) for name in dict.fromkeys([*modes, *described])
    ]
    more = [GENERAL] if any(spec.abilities.capabilities.subagents for spec in everyone) else []
    takers = tuple(spec for spec in everyone if "subagents" in spec.abilities.setup.takes or spec.abilities.setup.reads_own)
    more += [OfferedMode(row.name, row.description, takers, True, row) for row in own.values() if row.mode == "subagent"]
    return [mode for mode in (*listed, *more) if mode.name not in leave_out]


def _mode_description(id_: str, having: Sequence[tuple[Offer, Mode]], agents: int) -> str:
    """Return a mode's description. `having` are the agents that have it, and `agents` is the number of all agents."""
    texts = dict.fromkeys(mode.description for _, mode in having if mode.description)
    words = next(iter(texts), "") if len(texts) < 2 else SHARED_MODES.get(id_, next(iter(texts)))
    owners = f"({', '.join(offer.spec.title for offer, _ in having)})" if len(having) < agents else ""
    return f"{words} {owners}".strip()
