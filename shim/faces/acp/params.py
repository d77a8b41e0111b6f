"""The parameters of a client's requests, and the answers to ours. Unknown fields are ignored, as the protocol demands. Pure.

Source: JSON Schema of protocol version 1 (@agentclientprotocol/sdk 2.4.0, compat_fixtures/acp).
"""

from __future__ import annotations

import mimetypes
from pathlib import PurePosixPath
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from shim.lib.errors import InvalidRequest
from universal.lib.jsonvalue import obj
from universal.session.values import File, Part, Text

JsonObject = dict[str, Any]
Dict = Annotated[JsonObject, BeforeValidator(obj)]
"""An object; anything else counts as an empty one."""


class Params(BaseModel):
    """The base class."""

    model_config = ConfigDict(extra="ignore", defer_build=True)


class Initialize(Params):
    """`initialize`. Early clients gave the version as a text, and the protocol's Rust library still takes one."""

    protocolVersion: int | str
    clientCapabilities: Dict = Field(default_factory=JsonObject)


class Authenticate(Params):
    """`authenticate`."""

    methodId: str


class NamedValue(Params):
    """A variable of the environment, or a header."""

    name: str
    value: str


class McpServer(Params):
    """An MCP server of the client: a program, or `http` with a URL."""

    name: Annotated[str, Field(min_length=1)]
    type: str = "stdio"
    command: str = ""
    args: list[str] = Field(default_factory=list[str])
    env: list[NamedValue] = Field(default_factory=list[NamedValue])
    url: str = ""
    headers: list[NamedValue] = Field(default_factory=list[NamedValue])

    def row(self) -> JsonObject:
        """The server as OpenCode's configuration has it. Raises InvalidRequest for one that agents cannot use."""
        if self.type in ("http", "sse") and self.url:
            return {"type": "remote", "url": self.url, "headers": {pair.name: pair.value for pair in self.headers}}
        if self.type == "stdio" and self.command:
            environment = {pair.name: pair.value for pair in self.env}
            return {"type": "local", "command": [self.command, *self.args], "environment": environment}
        raise InvalidRequest(f"The MCP server {self.name[:100]!r} needs a `command`, or a `url` with the type http or sse.")


class NewSession(Params):
    """`session/new`."""

    cwd: str
    mcpServers: list[McpServer] | None = None


class SessionParams(Params):
    """Requests that name a session and nothing else."""

    sessionId: str


class OpenSession(NewSession, SessionParams):
    """`session/load` and `session/resume`."""


class ListSessions(Params):
    """`session/list`."""

    cwd: str | None = None
    cursor: str | None = None


class SetMode(SessionParams):
    """`session/set_mode`."""

    modeId: str


class SetOption(SessionParams):
    """`session/set_config_option`. All our options have texts as values."""

    configId: str
    value: str


class Block(Params):
    """A piece of a prompt: text, image, resource_link or resource."""

    type: str
    text: str = ""
    data: str = ""
    mimeType: str | None = None
    uri: str | None = None
    name: str | None = None
    resource: Dict = Field(default_factory=JsonObject)

    def part(self) -> Part:
        """The block as a part of a prompt. Raises InvalidRequest for a kind that is not taken."""
        match self.type:
            case "text":
                return Text("", self.text)
            case "image":
                mime = self.mimeType or "image/png"
                return File("", mime, f"data:{mime};base64,{self.data}", _file_name(self.uri) or "image")
            case "resource_link":
                name = self.name or _file_name(self.uri)
                return File("", self.mimeType or mimetypes.guess_type(name)[0] or "text/plain", self.uri or "", name)
            case "resource":
                return _resource(self.resource)
            case _:
                raise InvalidRequest(f"A prompt takes text, images, resource links and resources, not {self.type[:40]!r}.")


def _resource(resource: JsonObject) -> Part:
    """An embedded resource: a text with its address, or a file with its bytes."""
    uri, text, blob = (value if isinstance(value := resource.get(key), str) else None for key in ("uri", "text", "blob"))
    if text is not None:
        return Text("", f'<resource uri="{uri or ""}">\n{text}\n</resource>', synthetic=True)
    mime = resource.get("mimeType")
    kind = mime if isinstance(mime, str) and mime else "application/octet-stream"
    return File("", kind, f"data:{kind};base64,{blob or ''}", _file_name(uri) or "resource")


def _file_name(uri: str | None) -> str:
    try:
        return PurePosixPath(unquote(urlsplit(uri or "").path)).name
    except ValueError:
        return ""


class Prompt(SessionParams):
    """`session/prompt`."""

    prompt: Annotated[list[Block], Field(max_length=1000)]
