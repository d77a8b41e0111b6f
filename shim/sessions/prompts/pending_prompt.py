"""A prompt that a session has accepted and its agent has not answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pydantic import TypeAdapter

from shim.sessions.permissions.unattended_policy import Caps
from shim.sessions.session.native_sessions import NativeSession
from universal.codec import Prompt
from universal.items import Item
from universal.launch import LaunchOptions
from universal.lib.jsonvalue import JsonObject
from universal.session.user_prompt import Delivery, UserPrompt, model_json, with_prompt
from universal.session.values import ModelRef
from universal.unattended_policy import UnattendedPolicy


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The mode and the model that answer a prompt. `base`: the agent's mode, if `mode` is an agent of the configuration."""

    mode: str
    model: ModelRef
    base: str = ""


@dataclass(frozen=True, slots=True)
class PendingPrompt:
    """An accepted prompt: the user message's item, its stored prompt, and the prompt for the agent.

    `choice`: the choice for its message, if it was changed after the prompt was accepted.
    `refused`: why no agent can get it (unknown model or agent); it fails when its turn comes. Empty if it is valid.
    `unattended_policy`, `caps`: the prompt's policy for unanswered requests and its caps, or None.
    `retries`: how often the agent was asked again for an answer in the prompt's schema.
    `other_text`: what the agent is told in place of the prompt, which it has. Empty if it gets the prompt.
    `account`: the named person for whom it counts (`shim.sessions.index.accounts`), or "".
    """

    item: Item
    user_prompt: UserPrompt
    prompt: Prompt
    agent: str
    message_id: str = ""
    refused: str = ""
    choice: ModelChoice | None = None
    unattended_policy: UnattendedPolicy | None = None
    caps: Caps | None = None
    retries: int = 0
    account: str = ""
    other_text: str = ""

    @property
    def waits_for_all(self) -> bool:
        """True if it waits for all others (`delivery` "queue" of OpenCode 2). Others go before such prompts."""
        return self.user_prompt.details.delivery == "queue"

    def with_choice(self, agent: str, model: str | None, choice: ModelChoice) -> PendingPrompt:
        """The prompt for another agent or model. `model`: for the agent; `choice`: for the message."""
        prompt = replace(self.prompt, model=model, variant=choice.model.variant, mode=choice.base or choice.mode)
        return replace(self, agent=agent, refused="", prompt=prompt, choice=choice)

    def with_text(self, text: str, retries: int = 0) -> PendingPrompt:
        """The prompt with another text, for an agent that has it already."""
        return replace(self, prompt=replace(self.prompt, text=text, attachments=()), other_text=text, retries=retries)

    @property
    def changes(self) -> JsonObject:
        """What its item does not say, for the next server. Empty if there is nothing."""
        if not (self.account or self.other_text or self.choice):
            return {}
        choice = self.choice and (self.agent, self.prompt.model, self.choice)
        return _CHANGES.dump_python(Changes(self.account, self.other_text, self.retries, choice or None), mode="json")

    def with_changes(self, said: JsonObject) -> PendingPrompt:
        """The prompt of an item, with what `changes` said."""
        changes = _CHANGES.validate_python(said)
        pending = self if changes.choice is None else self.with_choice(*changes.choice)
        pending = pending.with_text(changes.other_text, changes.retries) if changes.other_text else pending
        return replace(pending, account=changes.account)

    @property
    def expects_answer(self) -> bool:
        """True if its client knows no inbox: it learns from an answer or an error alone what became of the prompt."""
        return self.user_prompt.details.delivery is None

    def journal_entry(self) -> JsonObject:
        entry: JsonObject = {"item_id": self.item.item_id, "agent": self.agent}
        if self.choice is not None and (self.choice.mode, self.choice.model) != (self.user_prompt.mode, self.user_prompt.model):
            entry["chosen"] = {"agent": self.choice.mode, "model": model_json(self.choice.model)}
        return entry

    def with_delivery(self, delivery: Delivery) -> PendingPrompt:
        user_prompt = self.user_prompt.with_delivery(delivery)
        return replace(self, item=with_prompt(self.item, user_prompt), user_prompt=user_prompt)

    def launch_options(
        self, binary: str, directory: str, native: NativeSession | None, variables: Mapping[str, str]
    ) -> LaunchOptions:
        """The launch options of its agent, which resume the agent's conversation if there is one."""
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
            schema=self.prompt.schema,
        )


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed of a prompt since its item was made. `choice`: the agent, the model for it, and the choice."""

    account: str = ""
    other_text: str = ""
    retries: int = 0
    choice: tuple[str, str | None, ModelChoice] | None = None


_CHANGES = TypeAdapter(Changes)
