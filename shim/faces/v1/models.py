"""Models of the bodies and answers of `/v1`, with the names of the universal API's document.

Docstrings mark our additions, which are optional. Times that are numbers are epoch milliseconds.
Source: compat_fixtures/universal/openapi.json; docs/contract.md (our additions).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from universal.sandbox import Level


class Model(BaseModel):
    """The base class. It ignores unknown fields of requests, which the document allows."""

    model_config = ConfigDict(extra="ignore", defer_build=True)


class ProblemDetails(BaseModel):
    """An error (RFC 9457). `type` is a URN that names the error; it may have further members."""

    model_config = ConfigDict(extra="allow", defer_build=True)

    type: str
    title: str
    status: int
    detail: str | None = None
    instance: str | None = None


class HealthResponse(Model):
    """The state of the server. Our addition: `version`, that of opencode-shim."""

    status: str
    version: str | None = None


class UnservedRequest(Model):
    """Our addition: requests of a client (its User-Agent) that no route of this server answers. Ids in the path are `*`."""

    client: str
    method: str
    path: str
    status: int
    count: int


class UnservedList(Model):
    """Our addition: what clients have asked in vain since the server's start. `version` is that of opencode-shim."""

    version: str
    asked: list[UnservedRequest]


# --- agents ------------------------------------------------------------------------------------------


class AgentCapabilities(Model):
    """What universal events show of an agent's work. Our additions: `interrupt` and the fields after it."""

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
    """The state of an agent with one process for many sessions. Agents here have a process for each session, so it is absent."""

    status: Literal["running", "stopped", "error"]
    restartCount: Annotated[int, Field(ge=0)]
    baseUrl: str | None = None
    lastError: str | None = None
    uptimeMs: Annotated[int, Field(ge=0)] | None = None


class InstallState(Model):
    """Our addition: the state of an installation. `log`: the last lines of npm's output."""

    state: Literal["none", "running", "done", "failed"]
    packages: list[str] = Field(default_factory=list[str])
    startedAt: int | None = None
    endedAt: int | None = None
    log: list[str] = Field(default_factory=list[str])
    error: str | None = None


class RulesInfo(Model):
    """Our addition: what holds an agent to permission rules.

    `by`: its protocol, or its own engine. `missing`: key ("*": each) -> why `by` does not hold it. `kernel`: keys whose denies a
    sandbox holds, and `kernelBy`: what makes one on this machine.
    """

    by: str
    missing: dict[str, str]
    kernel: list[str]
    kernelBy: str | None = None


class AgentInfo(Model):
    """An agent. `credentialsAvailable`: its key is in the environment, or its login file exists; the agent is not asked.

    Our additions: `title`, `installHint`, `trouble` (why it does not list its models), `install`, `rules`, and `sandbox` (of the
    settings).
    """

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
    sandbox: Level | None = None
    rules: RulesInfo | None = None


class AgentListResponse(Model):
    """All supported agents, installed or not, in order of preference."""

    agents: list[AgentInfo]


class AgentInstallRequest(Model):
    """`reinstall`: install also if the agent is installed already."""

    reinstall: bool | None = None


class PlanWindowInfo(Model):
    """Our addition: a limit of the person's plan. `used`: from 0 to 1; `resetsAt`: ms since 1970."""

    id: str
    used: float
    resetsAt: int | None = None


class AgentUsage(Model):
    """Our addition: how far the limits of the person's plan are used, as the agent has told last (`toldAt`, ms since 1970).

    Without `toldAt`, no session of this server has heard of any since its start: an API key has none.
    """

    windows: list[PlanWindowInfo] = Field(default_factory=list[PlanWindowInfo])
    toldAt: int | None = None


class StoredSessionInfo(Model):
    """Our addition: a conversation of an agent's program, in which `command` goes on. `sessionId`: the session that has it."""

    id: str
    title: str
    createdAt: str
    updatedAt: int
    command: str | None = None
    sessionId: str | None = None


class StoredSessionList(Model):
    """Our addition: the conversations of an agent's own program in a directory, the newest first."""

    sessions: list[StoredSessionInfo]


class OpenedSession(Model):
    """Our addition: the session that was made of such a conversation."""

    sessionId: str
    title: str


class AgentModelInfo(Model):
    """A model of an agent. `variants` are its levels of effort."""

    id: str
    name: str | None = None
    variants: list[str] | None = None
    defaultVariant: str | None = None


class AgentModelsResponse(Model):
    """The models that an agent offers."""

    models: list[AgentModelInfo]
    defaultModel: str | None = None


class AgentModeInfo(Model):
    """A mode of an agent, for `agentMode` of a session."""

    id: str
    name: str
    description: str


class AgentModesResponse(Model):
    """All modes of an agent."""

    modes: list[AgentModeInfo]


# --- sessions ----------------------------------------------------------------------------------------


class CreateSessionRequest(Model):
    """The session to create. `skills` is refused, because it belongs to the agents' own settings.

    `mcp`: MCP servers of this session alone, by name, besides those of the person's set-up, until this server stops. `oauth`,
    `bearerTokenEnvVar`, `envHeaders` and `transport` are refused; only an admin may give some.
    Our additions: `unattended`, what happens to requests that nobody answers: `wait`, `reject:SECONDS` or `rules`;
    `maxCost` (USD) and `maxTurnSeconds`, after which a person is asked whether it goes on;
    `serverLabels`, labels that the server must have, which runs the session: `KEY=VALUE[,...]`.
    """

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
    maxCost: float | None = None
    maxTurnSeconds: float | None = None
    serverLabels: str | None = None


class SessionServers(Model):
    """MCP servers of one session, in place of those it was given before, as in `CreateSessionRequest`."""

    mcp: dict[str, Any]


class AgentError(Model):
    """Why a session is not healthy."""

    type: str
    message: str
    agent: str | None = None
    session_id: str | None = None
    details: Any = None


class CreateSessionResponse(Model):
    """`healthy`: the agent is installed and can start. Our addition: `openCodeSessionId`, for OpenCode's clients."""

    healthy: bool
    error: AgentError | None = None
    nativeSessionId: str | None = None
    openCodeSessionId: str | None = None


class SessionInfo(Model):
    """A session. Our additions: `openCodeSessionId` and the fields after it.

    `status`: as in OpenCode. `unattended`: what happens now to requests that nobody answers. `waitingSince`: when the oldest open
    request, also of a subagent, was made; absent if none is open. `node`: the server of the cluster that has the session, as in
    `GET /v1/x-nodes`; absent without a cluster, or if none has it at present. `outlives`: whether the running turn goes on when
    the server restarts or dies; absent without a turn. `resumeCommand`: goes on with the conversation in the agent's own program.
    `owner`: the named person who has begun it; absent for the owner of the server's password.
    `storedBytes`: about what the session's journal takes in NATS; absent without a cluster.
    """

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
    resumeCommand: str | None = None
    waitingSince: int | None = None
    node: str | None = None
    outlives: bool | None = None
    owner: str | None = None
    storedBytes: int | None = None


class SessionListResponse(Model):
    """All sessions of the server, the last changed first."""

    sessions: list[SessionInfo]


# --- nodes -------------------------------------------------------------------------------------------


class NodeAgent(Model):
    """Our addition: an agent that a server can start."""

    id: str
    version: str | None = None


Duty: TypeAlias = Literal["open", "cordoned", "drained"]
"""What a person wants of a server. cordoned: it takes no more sessions; drained: it gives up those that it has, too."""


class NodeChange(Model):
    """Our addition: what a server of the cluster is to take until its end, `open` at its start."""

    duty: Duty


class NodeInfo(Model):
    """Our addition: a server of the cluster that lives.

    `here`: the one that answers. `agents`: none for a front. `roots`: directories of its projects; empty: anywhere. `room`: how
    many more agents it can start. `labels`: what it says of itself, as KEY=VALUE. `draining`: it gives its sessions up, and takes
    no others. `cordoned`: a person has said that it takes no sessions (`PATCH /v1/x-nodes/{node}`). `sessions`: how many it has.
    `leaseAgeMs`: since the answering server saw the last renewal of its lease. `lagEvents`: how many stored events the answering
    server has not yet read, in the worst of the sessions that somebody watches there.
    """

    id: str
    name: str
    here: bool
    pid: int
    host: str
    url: str | None = None
    agents: list[NodeAgent]
    roots: list[str]
    labels: list[str]
    draining: bool
    cordoned: bool = False
    room: int
    sessions: Annotated[int, Field(ge=0)]
    leaseAgeMs: Annotated[int, Field(ge=0)]
    lagEvents: Annotated[int, Field(ge=0)]


class ClusterInfo(Model):
    """Our addition: the cluster. `servers`: those of NATS. `waitingWrites`: rows that NATS has not acknowledged."""

    servers: str
    prefix: str
    connected: bool
    waitingWrites: Annotated[int, Field(ge=0)]
    reconnects: Annotated[int, Field(ge=0)]


class NodeListResponse(Model):
    """Our addition: the servers of the cluster. `cluster` is absent for a server that is in none."""

    cluster: ClusterInfo | None = None
    nodes: list[NodeInfo]


class HolderInfo(Model):
    """Our addition: what holds an agent or a terminal, so that it outlives the server. `pids`: its processes, its own first.

    `session` or `terminal` says whose it is; neither, if nobody takes it up any more. `isAlive`: false for one that was killed.
    """

    id: str
    is_alive: bool = Field(alias="isAlive")
    pids: list[int]
    session: str | None = None
    terminal: str | None = None


class HolderListResponse(Model):
    """Our addition: the holders of this machine in this server's data directory; none without the setting `outlive`."""

    holders: list[HolderInfo]


# --- messages ----------------------------------------------------------------------------------------


class MessageAttachment(Model):
    """A file. `path` is absolute, relative to the session's directory, or a data URL."""

    path: str
    filename: str | None = None
    mime: str | None = None


class MessageRequest(Model):
    """A prompt. Our additions: `unattended`, as of a session; it wins over the session's until the next prompt.

    `format`: {type: "json_schema", schema, retryCount?}. The answer's value is in a status item with the label `structured`.
    """

    message: str
    attachments: list[MessageAttachment] = Field(default_factory=list[MessageAttachment])
    unattended: str | None = None
    format: dict[str, Any] | None = None


class PermissionReplyRequest(Model):
    """A person's answer. Our addition: `message`, which tells the agent why a call is rejected."""

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
    """The file or folder that was created or removed."""

    path: str


class FsWriteResponse(Model):
    """The file that was written."""

    path: str
    bytesWritten: Annotated[int, Field(ge=0)]


class FsMoveRequest(Model):
    """The file or folder to move. `overwrite`: replace what is at `to`."""

    model_config = ConfigDict(extra="ignore", defer_build=True, populate_by_name=True)

    from_: Annotated[str, Field(alias="from")]
    to: str
    overwrite: bool | None = None


class FsMoveResponse(Model):
    """The old and the new path of what was moved."""

    model_config = ConfigDict(extra="ignore", defer_build=True, populate_by_name=True)

    from_: Annotated[str, Field(alias="from")]
    to: str


class FsUploadBatchResponse(Model):
    """The files that were unpacked. `truncated`: the list is cut off; all files were written."""

    paths: list[str]
    truncated: bool
