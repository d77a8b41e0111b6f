"""What a person chooses from in a session: mode, model and effort, as modes and `configOptions`; and slash commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shim.agents import catalog, offered_commands
from shim.agents.directory import Agent
from shim.faces.acp.updates import OWN_EFFORT
from shim.http.services import Services, list_offers
from shim.lib.errors import InvalidRequest
from shim.sessions.prompts.command import with_commands
from shim.sessions.prompts.prompt_request import Choice, PromptRequest, UnknownChoice, choose
from shim.sessions.prompts.server_commands import templates
from universal.lib.jsonvalue import JsonObject
from universal.session.model import Session
from universal.session.record_json import RecordChanges
from universal.session.values import ModelRef
from universal.slash_commands import ConfigCommand

MODE, MODEL, EFFORT = "mode", "model", "effort"


@dataclass(frozen=True, slots=True)
class Choices:
    """What can be chosen, and what is: `choice` is None while no agent can answer."""

    modes: Sequence[catalog.OfferedMode]
    agents: Sequence[Agent]
    choice: Choice | None

    @property
    def efforts(self) -> Sequence[str]:
        """The levels of effort of the chosen model."""
        if self.choice is None:
            return ()
        model = catalog.models_of(self.choice.agent).get(self.choice.model_ref.model_id)
        return model.variants if model is not None else ()

    def to_json(self) -> JsonObject:
        """`modes` and `configOptions` of an answer. Options repeat the modes, as clients with options read no modes."""
        if self.choice is None:
            return {"configOptions": []}
        modes = [{"id": mode.name, "name": mode.name, "description": mode.words} for mode in self.modes]
        options = [
            _option(MODE, "Mode", MODE, self.choice.mode, [_row(mode.name, mode.name, mode.words) for mode in self.modes]),
            _option(MODEL, "Model", MODEL, _name(self.choice.model_ref), self._models()),
        ]
        if self.efforts:
            rows = [_row(level, level.capitalize()) for level in (OWN_EFFORT, *self.efforts)]
            options.append(_option(EFFORT, "Effort", "thought_level", self.choice.variant or OWN_EFFORT, rows))
        return {"modes": {"currentModeId": self.choice.mode, "availableModes": modes}, "configOptions": options}

    def _models(self) -> list[JsonObject]:
        """The models in a group for each agent. One that its agent has not told is listed too if it is chosen."""
        groups: list[JsonObject] = [
            {
                "group": agent.spec.name,
                "name": agent.spec.title,
                "options": [_row(f"{agent.spec.name}/{model.id}", model.name) for model in agent.catalogue.models],
            }
            for agent in catalog.with_models(self.agents)
        ]
        chosen = _name(self.choice.model_ref) if self.choice is not None else ""
        if not any(option["value"] == chosen for group in groups for option in group["options"]):
            groups.append({"group": "other", "name": "Other", "options": [_row(chosen, chosen)]})
        return groups

    def change(self, option: str, value: str) -> RecordChanges:
        """The change of the session's record that sets an option. Raises InvalidRequest for an unknown option or value."""
        options = {row["id"]: row["options"] for row in self.to_json()["configOptions"]}
        if self.choice is None or option not in options:
            raise InvalidRequest(f"There is no option {option[:100]!r}. There are: {', '.join(options) or 'none yet'}.")
        values = [row["value"] for group in options[option] for row in group.get("options", (group,))]
        if value not in values:
            raise InvalidRequest(f"The option {option} has no value {value[:100]!r}. It has: {', '.join(values)}.")
        if option == MODE:
            return {"mode": value}
        agent, _, model = value.partition("/")
        ref = self.choice.model_ref
        variant = None if value == OWN_EFFORT else value
        return {"model": ModelRef(agent, model) if option == MODEL else replace(ref, variant=variant)}


def _option(id_: str, name: str, category: str, value: str, options: Sequence[JsonObject]) -> JsonObject:
    row = {"id": id_, "name": name, "category": category, "type": "select", "currentValue": value}
    return {**row, "options": list(options)}


def _row(value: str, name: str, description: str = "") -> JsonObject:
    return {"value": value, "name": name, **({"description": description} if description else {})}


def _name(model: ModelRef) -> str:
    return f"{model.provider_id}/{model.model_id}"


async def choices_of(services: Services, session: Session) -> Choices:
    """What can be chosen in a session. The first call on a machine waits until the agents have listed their models."""
    config, agents = await list_offers(services, session.record.directory)
    try:
        choice = await choose(services.sessions.deps, session, PromptRequest(()))
    except UnknownChoice:  # no agent is installed, or the chosen one is gone: a prompt says so
        return Choices((), agents, None)
    listed = catalog.modes(agents, config.default_agent, config.disabled_agents, config.agents)
    modes = [mode for mode in listed if not mode.is_subagent and choice.agent.spec.name in {spec.name for spec in mode.specs}]
    return Choices(modes, agents, choice)


async def commands_of(
    services: Services, directory: str
) -> tuple[tuple[ConfigCommand, ...], list[offered_commands.OfferedCommand]]:
    """The templates of a directory, and all slash commands that it offers."""
    config, agents = await list_offers(services, directory)
    local = templates(directory, config.commands)
    agents = await with_commands(services.sessions, agents, directory)
    return local, offered_commands.commands(agents, local, config.model, has_internal=services.settings.all_commands)


def command(row: offered_commands.OfferedCommand) -> JsonObject:
    """A slash command, for `available_commands_update`."""
    words = {"input": {"hint": " ".join(row.hints)}} if row.hints else {}
    return {"name": row.name, "description": row.description or row.name, **words}
