"""Bodies and answers of `/v1`, with the names of the universal API's document. Our additions are optional and marked.

Times that are numbers are epoch milliseconds. Source: compat_fixtures/universal/openapi.json; docs/contract.md (our additions).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Model(BaseModel):
    """The base class. It ignores unknown fields of requests, which the document allows."""

    model_config = ConfigDict(extra="ignore", defer_build=True)


class ProblemDetails(BaseModel):
    """An error (RFC 9457). `type` is a URN that says which; more members may follow."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    type: str
    title: str
    status: int
    detail: str | None = None
    instance: str | None = None


class HealthResponse(Model):
    """`version` is ours: that of opencode-shim."""

    status: str
    version: str | None = None


# --- agents ------------------------------------------------------------------------------------------


class AgentCapabilities(Model):
    """What can be seen of an agent's work in universal events. From `interrupt` on: ours."""

    planMode: bool
    permissions: bool
    questions: bool
    toolCalls: bool
    toolResults: bool
    textMessages: bool
    images: bool
    fileAttachments: bool
    sessionLifecycle: bool
    errorEvents: bool
    reasoning: bool
    status: bool
    commandExecution: bool
    fileChanges: bool
    mcpTools: bool
    streamingDeltas: bool
    itemStarted: bool
    sharedProcess: bool
    interrupt: bool | None = None
    resume: bool | None = None
    subagents: bool | None = None
    todos: bool | None = None
    usage: bool | None = None
    commands: bool | None = None


class ServerStatusInfo(Model):
    """Of agents that are one process for many sessions; ours have one each, so it is not given."""

    status: Literal["running", "stopped", "error"]
    restartCount: Annotated[int, Field(ge=0)]
    baseUrl: str | None = None
    lastError: str | None = None
    uptimeMs: Annotated[int, Field(ge=0)] | None = None


class InstallState(Model):
    """Ours: how an installation goes. `log`: the last lines that npm has said."""

    state: Literal["none", "running", "done", "failed"]
    packages: list[str] = Field(default_factory=list[str])
    startedAt: int | None = None
    endedAt: int | None = None
    log: list[str] = Field(default_factory=list[str])
    error: str | None = None


class AgentInfo(Model):
    """An agent. `credentialsAvailable`: as far as can be seen without asking it: its key is in the environment, or its login
    file is there. Ours: `title`, `installHint`, `trouble` (why it does not tell its models), `install`."""

    id: str
    installed: bool
    credentialsAvailable: bool
    capabilities: AgentCapabilities
    path: str | None = None
    version: str | None = None
    serverStatus: ServerStatusInfo | None = None
    title: str | None = None
    installHint: str | None = None
    trouble: str | None = None
    install: InstallState | None = None


class AgentListResponse(Model):
    """All agents that are known, installed or not, in order of preference."""

    agents: list[AgentInfo]


class AgentInstallRequest(Model):
    """`reinstall`: also if it is there already."""

    reinstall: bool | None = None


class AgentModelInfo(Model):
    """A model of an agent; variants are levels of effort."""

    id: str
    name: str | None = None
    variants: list[str] | None = None
    defaultVariant: str | None = None


class AgentModelsResponse(Model):
    """What the agent itself offers."""

    models: list[AgentModelInfo]
    defaultModel: str | None = None


class AgentModeInfo(Model):
    """A way of working: `agentMode` of a session."""

    id: str
    name: str
    description: str


class AgentModesResponse(Model):
    """All ways of working of an agent."""

    modes: list[AgentModeInfo]


# --- sessions ----------------------------------------------------------------------------------------


class CreateSessionRequest(Model):
    """A session to be made. `mcp` and `skills` belong to the agents' own settings here: given, they are refused.

    Ours: `unattended`, what happens to asks that nobody answers: `wait`, `reject:SECONDS` or `rules`."""

    agent: str
    agentMode: str | None = None
    agentVersion: str | None = None
    directory: str | None = None
    mcp: dict[str, Any] | None = None
    model: str | None = None
    permissionMode: str | None = None
    skills: dict[str, Any] | None = None
    title: str | None = None
    variant: str | None = None
    unattended: str | None = None


class AgentError(Model):
    """Why a session is not healthy."""

    type: str
    message: str
    agent: str | None = None
    session_id: str | None = None
    details: Any = None


class CreateSessionResponse(Model):
    """`healthy`: the agent is there; it is started with the first message. Ours: `openCodeSessionId`, for OpenCode's clients."""

    healthy: bool
    error: AgentError | None = None
    nativeSessionId: str | None = None
    openCodeSessionId: str | None = None


class SessionInfo(Model):
    """A session. From `openCodeSessionId` on: ours; `status` as in OpenCode. `unattended`: what happens now to asks that nobody
    answers. `waitingSince`: when the oldest open ask (a subagent's too) was asked; absent if none waits."""

    sessionId: str
    agent: str
    agentMode: str
    permissionMode: str
    ended: bool
    eventCount: Annotated[int, Field(ge=0)]
    createdAt: int
    updatedAt: int
    directory: str | None = None
    model: str | None = None
    variant: str | None = None
    title: str | None = None
    nativeSessionId: str | None = None
    openCodeSessionId: str | None = None
    parentSessionId: str | None = None
    status: Literal["idle", "busy", "retry"] | None = None
    unattended: str | None = None
    waitingSince: int | None = None


class SessionListResponse(Model):
    """All sessions of the server, the newest first."""

    sessions: list[SessionInfo]


class MessageAttachment(Model):
    """A file: `path` absolute or relative to the session's directory, or a data URL."""

    path: str
    filename: str | None = None
    mime: str | None = None


class MessageRequest(Model):
    """A prompt. Ours: `unattended`, as of a session; until the next prompt it counts before the session's."""

    message: str
    attachments: list[MessageAttachment] = Field(default_factory=list[MessageAttachment])
    unattended: str | None = None


class PermissionReplyRequest(Model):
    """A person's answer. `message` is ours: it tells the agent why not."""

    reply: Literal["once", "always", "reject"]
    message: str | None = None


class QuestionReplyRequest(Model):
    """Chosen labels (or typed texts), a list for each question."""

    answers: list[list[str]]


# --- files -------------------------------------------------------------------------------------------


class FsEntry(Model):
    """An entry of a folder. `path` is absolute; `modified` RFC 3339."""

    name: str
    path: str
    entryType: Literal["file", "directory"]
    size: Annotated[int, Field(ge=0)]
    modified: str | None = None


class FsStat(Model):
    """A file or folder."""

    path: str
    entryType: Literal["file", "directory"]
    size: Annotated[int, Field(ge=0)]
    modified: str | None = None


class FsActionResponse(Model):
    """What was made or removed."""

    path: str


class FsWriteResponse(Model):
    """What was written."""

    path: str
    bytesWritten: Annotated[int, Field(ge=0)]


class FsMoveRequest(Model):
    """From where to where."""

    model_config = ConfigDict(extra="ignore", defer_build=True, populate_by_name=True)

    from_: Annotated[str, Field(alias="from")]
    to: str
    overwrite: bool | None = None


class FsMoveResponse(Model):
    """From where to where."""

    model_config = ConfigDict(extra="ignore", defer_build=True, populate_by_name=True)

    from_: Annotated[str, Field(alias="from")]
    to: str


class FsUploadBatchResponse(Model):
    """What was unpacked; `truncated`: the list is cut, not the files."""

    paths: list[str]
    truncated: bool
