"""A prompt that a session has accepted and that its agent has not answered yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from shim.errors import AgentError
from shim.sessions.session_entry import NativeSession
from universal.codec import LaunchOptions, Prompt
from universal.items import Item
from universal.jsonvalue import obj, text
from universal.unattended_policy import UnattendedPolicy, parse


@dataclass(frozen=True, slots=True)
class PendingPrompt:
    """A prompt that was accepted: the user message's item and what the agent is to get.

    `choice`: {agent, model} of its message, if they were chosen again after it was accepted.
    `refused`: why nobody can be given it (an unknown model, agent); it fails when its turn comes. Empty: nothing is wrong.
    """

    item: Item
    prompt: Prompt
    agent: str
    message_id: str = ""
    refused: str = ""
    choice: Mapping[str, Any] | None = None

    @property
    def waits_for_all(self) -> bool:
        """It waits for all others (`delivery` "queue" of OpenCode 2); else it goes before those that do."""
        return obj(obj(self.item.metadata).get("opencode")).get("delivery") == "queue"

    @property
    def unattended_policy(self) -> UnattendedPolicy | None:
        """What the prompt says of asks that nobody answers, None if it says nothing."""
        value = text(obj(obj(self.item.metadata).get("prompt")).get("unattended"))
        return parse(value) if value else None

    def require_choice(self) -> None:
        """Raises AgentError if nobody can be given it."""
        if self.refused:
            raise AgentError(self.refused)

    def with_message_id(self, message_id: str) -> PendingPrompt:
        """The same as the message that clients see."""
        return replace(self, message_id=message_id)

    def with_choice(self, agent: str, model: str | None, wire: Mapping[str, Any], mode: str) -> PendingPrompt:
        """The same for another agent or model; `wire` as in a user message's `model`."""
        prompt = replace(self.prompt, model=model, variant=text(wire.get("variant")) or None, mode=mode)
        return replace(self, agent=agent, refused="", prompt=prompt, choice={"agent": mode, "model": wire})

    def journal_entry(self) -> dict[str, Any]:
        """What the journal keeps of its dispatch."""
        shown = obj(obj(self.item.metadata).get("opencode"))
        is_another = any(shown.get(key) != value for key, value in (self.choice or {}).items())
        return {"item_id": self.item.item_id, "agent": self.agent, **({"chosen": self.choice} if is_another else {})}

    def with_metadata(self, more: Mapping[str, Any]) -> PendingPrompt:
        """The same with more said of it in `metadata.opencode`."""
        metadata = obj(self.item.metadata)
        metadata = {**metadata, "opencode": {**obj(metadata.get("opencode")), **more}}
        return replace(self, item=self.item.model_copy(update={"metadata": metadata}))

    def launch_options(
        self, binary: str, directory: str, native: NativeSession | None, variables: Mapping[str, str]
    ) -> LaunchOptions:
        """How its agent is started for it, in the conversation that it has answered in before if there is one."""
        resume = native is not None and native.started
        return LaunchOptions(
            binary=binary,
            directory=directory,
            native_session_id=native.id if native is not None and resume else None,
            resume_at=native.resume_at if native is not None else None,
            resume=resume,
            model=self.prompt.model,
            variant=self.prompt.variant,
            mode=self.prompt.mode,
            variables=variables,
        )
