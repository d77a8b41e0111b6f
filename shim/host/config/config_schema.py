"""OpenCode's `Config` schema: its own key names, all optional. Unknown keys are dropped, as native OpenCode drops them.

`admit` leaves out and reports faulty values, and keeps the rest. Native OpenCode refuses every request of the directory
instead, and its TUI does not start.
Source: openapi #/components/schemas/Config, PermissionConfig, AgentConfig, ProviderConfig, McpLocalConfig, McpRemoteConfig.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from shim.lib.complaints import Fault, Located, fault_of, located_errors


def _tuple_of(value: Any) -> Any:
    """Turn a JSON list into a tuple, which strict validation requires."""
    return tuple(cast("list[Any]", value)) if isinstance(value, list) else value


Number: TypeAlias = int | float
Positive: TypeAlias = Annotated[int, Field(gt=0)]
Natural: TypeAlias = Annotated[int, Field(ge=0)]
Color: TypeAlias = Annotated[str, Field(pattern=r"^(#[0-9a-fA-F]{6}|primary|secondary|accent|success|warning|error|info)$")]
Modality: TypeAlias = Literal["text", "audio", "image", "video", "pdf"]
Action: TypeAlias = Literal["ask", "allow", "deny"]
Permission: TypeAlias = Action | dict[str, Action | dict[str, Action]]

NAMED_ENTRIES = frozenset(
    {"command", "agent", "mode", "provider", "mcp", "permission", "formatter", "lsp", "reference", "references"}
)
"""Keys that hold named entries. A fault in one entry does not remove the others."""
DESCRIBED_LIMIT = 20
"""Maximum faults of one file that are described. The others are only counted."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)


class CommandConfig(_Part):
    """A slash command."""

    template: str
    description: str | None = None
    agent: str | None = None
    model: str | None = None
    variant: str | None = None
    subtask: bool | None = None


class AgentConfig(_Open):
    """A user-defined agent, or changes to a built-in one."""

    model: str | None = None
    variant: str | None = None
    temperature: Number | None = None
    top_p: Number | None = None
    prompt: str | None = None
    tools: dict[str, bool] | None = None
    disable: bool | None = None
    description: str | None = None
    mode: Literal["subagent", "primary", "all"] | None = None
    hidden: bool | None = None
    options: dict[str, Any] | None = None
    color: Color | None = None
    steps: Positive | None = None
    maxSteps: Positive | None = None
    permission: Permission | None = None


class ServerConfig(_Part):
    """The listen address of `opencode serve`. This server ignores it."""

    port: Positive | None = None
    hostname: str | None = None
    mdns: bool | None = None
    mdnsDomain: str | None = None
    cors: list[str] | None = None


class Skills(_Part):
    """Paths and URLs of skills."""

    paths: list[str] | None = None
    urls: list[str] | None = None


class Watcher(_Part):
    """Patterns that the file watcher ignores."""

    ignore: list[str] | None = None


class ReferenceGit(_Part):
    """A repository for agents to consult."""

    repository: str
    branch: str | None = None
    description: str | None = None
    hidden: bool | None = None


class ReferenceLocal(_Part):
    """A folder for agents to consult."""

    path: str
    description: str | None = None
    hidden: bool | None = None


class ProviderOptions(_Open):
    """Options of a model provider."""

    apiKey: str | None = None
    baseURL: str | None = None
    enterpriseUrl: str | None = None
    setCacheKey: bool | None = None
    timeout: Positive | Literal[False] | None = None
    headerTimeout: Positive | Literal[False] | None = None
    chunkTimeout: Positive | Literal[False] | None = None


class LongContextCost(_Part):
    """Prices in USD per million tokens above 200,000."""

    input: Number
    output: Number
    cache_read: Number | None = None
    cache_write: Number | None = None


class ModelCost(LongContextCost):
    """Prices in USD per million tokens."""

    context_over_200k: LongContextCost | None = None


class ModelLimit(_Part):
    """Limits of a model, in tokens."""

    context: Number
    input: Number | None = None
    output: Number


class Modalities(_Part):
    """Media that a model reads and writes."""

    input: list[Modality] | None = None
    output: list[Modality] | None = None


class ModelProvider(_Part):
    """The npm package that talks to the model."""

    npm: str | None = None
    api: str | None = None


class InterleavedReasoning(_Part):
    """The message field that holds reasoning."""

    field: str


class Variant(_Open):
    """Options of an effort level."""

    disabled: bool | None = None


class ModelConfig(_Part):
    """A model of a provider."""

    id: str | None = None
    name: str | None = None
    family: str | None = None
    release_date: str | None = None
    attachment: bool | None = None
    reasoning: bool | None = None
    temperature: bool | None = None
    tool_call: bool | None = None
    interleaved: bool | str | InterleavedReasoning | None = None
    cost: ModelCost | None = None
    limit: ModelLimit | None = None
    modalities: Modalities | None = None
    experimental: bool | None = None
    status: Literal["alpha", "beta", "deprecated", "active"] | None = None
    provider: ModelProvider | None = None
    options: dict[str, Any] | None = None
    headers: dict[str, str] | None = None
    variants: dict[str, Variant] | None = None


class ProviderConfig(_Part):
    """A model provider, for native OpenCode. Other agents have their own."""

    api: str | None = None
    name: str | None = None
    env: list[str] | None = None
    id: str | None = None
    npm: str | None = None
    whitelist: list[str] | None = None
    blacklist: list[str] | None = None
    options: ProviderOptions | None = None
    models: dict[str, ModelConfig] | None = None


class McpLocal(_Part):
    """An MCP server that runs as a local program."""

    type: Literal["local"]
    command: list[str]
    cwd: str | None = None
    environment: dict[str, str] | None = None
    enabled: bool | None = None
    timeout: Positive | None = None


class McpOAuth(_Part):
    """OAuth settings of an MCP server."""

    clientId: str | None = None
    clientSecret: str | None = None
    scope: str | None = None
    callbackPort: Positive | None = None
    redirectUri: str | None = None


class McpRemote(_Part):
    """An MCP server behind a URL."""

    type: Literal["remote"]
    url: str
    enabled: bool | None = None
    headers: dict[str, str] | None = None
    oauth: McpOAuth | Literal[False] | None = None
    timeout: Positive | None = None


class McpSwitch(_Part):
    """Turns an MCP server on or off that is configured elsewhere."""

    enabled: bool


class FormatterConfig(_Part):
    """A formatter."""

    disabled: bool | None = None
    command: list[str] | None = None
    environment: dict[str, str] | None = None
    extensions: list[str] | None = None


class LspConfig(_Part):
    """A language server."""

    command: list[str]
    extensions: list[str] | None = None
    disabled: bool | None = None
    env: dict[str, str] | None = None
    initialization: dict[str, Any] | None = None


class LspOff(_Part):
    """A disabled language server."""

    disabled: Literal[True]


class ImageAttachment(_Part):
    """Limits to which images are scaled down."""

    auto_resize: bool | None = None
    max_width: Positive | None = None
    max_height: Positive | None = None
    max_base64_bytes: Positive | None = None


class Attachment(_Part):
    """Settings for attachments of prompts."""

    image: ImageAttachment | None = None


class Enterprise(_Part):
    """The URL of a company's OpenCode."""

    url: str | None = None


class ToolOutput(_Part):
    """Limits for the tool output that is kept."""

    max_lines: Positive | None = None
    max_bytes: Positive | None = None


class Compaction(_Part):
    """Settings that decide when a session is compacted."""

    auto: bool | None = None
    prune: bool | None = None
    tail_turns: Natural | None = None
    preserve_recent_tokens: Natural | None = None
    reserved: Natural | None = None


class Policy(_Part):
    """A rule that allows or denies a provider."""

    action: Literal["provider.use"]
    effect: Literal["allow", "deny"]
    resource: str


class Experimental(_Part):
    """Experimental settings."""

    disable_paste_summary: bool | None = None
    batch_tool: bool | None = None
    openTelemetry: bool | None = None
    primary_tools: list[str] | None = None
    continue_loop_on_deny: bool | None = None
    mcp_timeout: Positive | None = None
    policies: list[Policy] | None = None


class Config(_Part):
    """The complete configuration. In a request body, null removes a key."""

    schema_: str | None = Field(default=None, alias="$schema")
    shell: str | None = None
    logLevel: Literal["DEBUG", "INFO", "WARN", "ERROR"] | None = None
    server: ServerConfig | None = None
    command: dict[str, CommandConfig | None] | None = None
    skills: Skills | None = None
    references: dict[str, str | ReferenceGit | ReferenceLocal | None] | None = None
    reference: dict[str, str | ReferenceGit | ReferenceLocal | None] | None = None
    watcher: Watcher | None = None
    snapshot: bool | None = None
    plugin: list[str | Annotated[tuple[str, dict[str, Any]], BeforeValidator(_tuple_of)]] | None = None
    share: Literal["manual", "auto", "disabled"] | None = None
    autoshare: bool | None = None
    autoupdate: bool | Literal["notify"] | None = None
    disabled_providers: list[str] | None = None
    enabled_providers: list[str] | None = None
    model: str | None = None
    small_model: str | None = None
    default_agent: str | None = None
    subagent_depth: Natural | None = None
    username: str | None = None
    mode: dict[str, AgentConfig | None] | None = None
    agent: dict[str, AgentConfig | None] | None = None
    provider: dict[str, ProviderConfig | None] | None = None
    mcp: dict[str, McpLocal | McpRemote | McpSwitch | None] | None = None
    formatter: bool | dict[str, FormatterConfig | None] | None = None
    lsp: bool | dict[str, LspConfig | LspOff | None] | None = None
    instructions: list[str] | None = None
    layout: Literal["auto", "stretch"] | None = None
    permission: Action | dict[str, Action | dict[str, Action | None] | None] | None = None
    tools: dict[str, bool | None] | None = None
    attachment: Attachment | None = None
    enterprise: Enterprise | None = None
    tool_output: ToolOutput | None = None
    compaction: Compaction | None = None
    experimental: Experimental | None = None


class ValidConfig(NamedTuple):
    """The valid values of a config, and its faults, each with its place in the values."""

    values: dict[str, Any]
    problems: tuple[Fault, ...]


def admit(values: Mapping[str, Any]) -> ValidConfig:
    """Return the valid part of a config. In the keys of `NAMED_ENTRIES`, only the faulty entry is dropped."""
    rest = json.loads(json.dumps(values))
    problems: list[Fault] = []
    undescribed = 0
    while True:
        try:
            admitted = wire(Config.model_validate_json(json.dumps(rest), strict=True))
        except ValidationError as error:
            for path, errors in _faulty(error, rest).items():
                if len(problems) < DESCRIBED_LIMIT:
                    problems.append(fault_of(errors))
                else:
                    undescribed += 1
                _drop(rest, path)
        else:
            more = [Fault(f"and {undescribed} more faults", [])] if undescribed else []
            return ValidConfig(admitted, (*problems, *more))


def _faulty(error: ValidationError, values: dict[str, Any]) -> dict[tuple[str | int, ...], list[Located]]:
    """Map each path to drop to its errors. One pass covers all faults, so that a file is not validated once per fault."""
    located = located_errors(error, values)
    inner = {path[0] for _, path in located if len(path) > 1 and path[0] in NAMED_ENTRIES}
    faults: dict[tuple[str | int, ...], list[Located]] = {}
    for fault in located:
        path = fault[1]
        if path and path[0] in inner:
            if len(path) > 1:  # shorter paths only say that another member of the union does not match
                faults.setdefault(tuple(path[:2]), []).append(fault)
        else:
            faults.setdefault(tuple(path[:1]), []).append(fault)
    return faults


def wire(config: Config) -> dict[str, Any]:
    """The explicitly set keys as JSON. A null stays only where the client sent it."""
    return config.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _drop(values: dict[str, Any], path: tuple[str | int, ...]) -> None:
    inner = values.get(cast("str", path[0])) if len(path) == 2 else None
    if isinstance(inner, dict):
        cast("dict[str | int, Any]", inner).pop(path[1], None)
    else:
        # An empty path cannot happen for a dict. Clearing all values ends the caller's loop even then.
        values.pop(cast("str", path[0]), None) if path else values.clear()
