"""The tables among the settings: agents and hooks."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, model_validator

from universal.sandbox import Level


def _web_address(value: SecretStr) -> SecretStr:
    if not re.match(r"https?://[^/]", value.get_secret_value()):
        raise ValueError("it has to begin with http:// or https:// and a host")
    return value


class CustomAgent(BaseModel):
    """`[agents.NAME]` in a file: a program that speaks the Agent Client Protocol on stdio, or the sandbox of a known agent.

    `env` may contain keys, so it is never shown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    command: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = ()
    title: str | None = None
    env: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    sandbox: Level = "auto"
    sandbox_paths: tuple[Annotated[str, Field(pattern="^(~|/|\\$[A-Za-z_])")], ...] = ()

    @model_validator(mode="after")
    def _need_a_purpose(self) -> Self:
        if not self.command and (self.title or self.env or not self.model_fields_set & {"sandbox", "sandbox_paths"}):
            raise ValueError("it needs a command, or sandbox or sandbox_paths of a supported agent")
        return self


class Hook(BaseModel):
    """A command or a POST for a session that becomes idle, asks or fails (`[[hooks]]` in a file).

    Webhook URLs may contain keys (in the path, the query, before the host), so `url` and `headers` are never shown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    on: Annotated[tuple[Literal["idle", "permission", "question", "error"], ...], Field(min_length=1)]
    command: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    url: Annotated[SecretStr, AfterValidator(_web_address)] | None = None
    headers: dict[str, SecretStr] = Field(default_factory=dict[str, SecretStr])
    timeout_s: Annotated[float, Field(gt=0, le=300)] = 10.0
    reply: bool = False

    @model_validator(mode="after")
    def _need_one_source(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("a hook has either a command or a url")
        return self

    @property
    def name(self) -> str:
        """The program or the host, for logs."""
        return self.command[0] if self.url is None else self.url.get_secret_value().split("/")[2].rpartition("@")[2]

    def __str__(self) -> str:
        """Describe the hook without its secrets."""
        return f"{'/'.join(self.on)}: {self.name}"
