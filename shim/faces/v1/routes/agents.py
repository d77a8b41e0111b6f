"""Lists agents with their capabilities, models and modes, and installs them. Source: the universal API's document."""

from __future__ import annotations

import asyncio

from pydantic import BaseModel, Field

from shim.agents.directory import Agent
from shim.agents.install import Installation, InstallFailed
from shim.agents.keys import is_logged_in
from shim.agents.sandboxes import tool
from shim.faces.v1.errors import AgentInstallFailed, AgentNotServed
from shim.faces.v1.models import (
    AgentCapabilities,
    AgentInfo,
    AgentInstallRequest,
    AgentListResponse,
    AgentModeInfo,
    AgentModelInfo,
    AgentModelsResponse,
    AgentModesResponse,
    AgentUsage,
    InstallState,
    OpenedSession,
    PlanWindowInfo,
    RulesInfo,
    StoredSessionInfo,
    StoredSessionList,
)
from shim.faces.v1.routes.endpoint import universal, v1
from shim.http.operation import Ctx
from shim.sessions.transfer.conversations import stored_sessions
from universal.agent_spec import AgentRules, modes_of


class AgentPath(BaseModel):
    """`{agent}`: its name, as `GET /v1/agents` has it."""

    agent: str


def _agent(ctx: Ctx, name: str) -> Agent:
    agent = ctx.services.agents.get(name)
    if agent is None:
        names = ", ".join(listed.spec.name for listed in ctx.services.agents.list_agents())
        raise AgentNotServed(name, names)
    return agent


def capabilities(agent: Agent) -> AgentCapabilities:
    """Convert a codec's capabilities. Those that every codec has (docs/contract.md) are always true."""
    can = agent.spec.abilities.capabilities
    return AgentCapabilities(
        planMode=any(mode.id == "plan" for mode in modes_of(agent.spec, agent.catalogue)),
        permissions=can.permissions,
        questions=can.questions,
        toolCalls=True,
        toolResults=True,
        textMessages=True,
        images=can.images,
        fileAttachments=can.files,
        sessionLifecycle=True,
        errorEvents=True,
        reasoning=can.reasoning,
        status=True,
        commandExecution=True,
        fileChanges=True,
        mcpTools=can.mcp,
        streamingDeltas=can.deltas,
        itemStarted=True,
        sharedProcess=False,
        interrupt=can.interrupt,
        resume=can.resume,
        subagents=can.subagents,
        todos=can.todos,
        usage=can.usage,
        commands=can.commands,
    )


def _install_state(installation: Installation | None) -> InstallState:
    if installation is None:
        return InstallState(state="none")
    return InstallState.model_validate(
        {
            "state": installation.state,
            "packages": list(installation.packages),
            "startedAt": installation.started_ms,
            "endedAt": installation.ended_ms,
            "log": list(installation.lines),
            "error": installation.error,
        }
    )


def _info(ctx: Ctx, agent: Agent) -> AgentInfo:
    spec = agent.spec
    installation = universal(ctx).installs.state(spec.name)
    tells = agent.usable and not agent.trouble
    return AgentInfo(
        id=spec.name,
        installed=agent.usable,
        credentialsAvailable=is_logged_in(spec, ctx.services.agents.environment(), tells=tells),
        capabilities=capabilities(agent),
        path=agent.located.path,
        version=agent.located.version,
        title=spec.title,
        installHint=spec.program.install_hint,
        trouble=agent.located.why or agent.trouble or None,
        install=_install_state(installation) if installation is not None else None,
        sandbox=spec.rules.sandbox.level if spec.rules.sandbox.level != "auto" else None,
        rules=_rules(ctx, spec.rules),
    )


def _rules(ctx: Ctx, rules: AgentRules) -> RulesInfo:
    made_by = tool(ctx.services.agents.environment())
    kernel = [] if made_by.why else list(rules.kernel_denies)
    return RulesInfo(
        by=rules.enforcement.by,
        missing=dict(rules.enforcement.missing),
        kernel=kernel,
        kernelBy=made_by.kind if kernel else None,
    )


@v1("GET", "/v1/agents", tag="agents", answer=AgentListResponse)
async def list_agents(ctx: Ctx) -> object:
    """All supported agents, installed or not, with their capabilities."""
    agents = ctx.services.agents.list_agents()
    return AgentListResponse(agents=await asyncio.to_thread(lambda: [_info(ctx, agent) for agent in agents]))


@v1("GET", "/v1/agents/{agent}/models", tag="agents", answer=AgentModelsResponse, errors=(404,))
async def get_agent_models(ctx: Ctx, path: AgentPath) -> object:
    """The models that an agent offers. The first call on a machine waits until the agent has listed them."""
    _agent(ctx, path.agent)
    await ctx.services.agents.offer(path.agent)
    catalogue = _agent(ctx, path.agent).catalogue
    models = [AgentModelInfo(id=m.id, name=m.name, variants=list(m.variants) or None) for m in catalogue.models]
    return AgentModelsResponse(models=models, defaultModel=catalogue.default_model)


@v1("GET", "/v1/agents/{agent}/modes", tag="agents", answer=AgentModesResponse, errors=(404,))
async def get_agent_modes(ctx: Ctx, path: AgentPath) -> object:
    """The modes of an agent, for `agentMode` of a session."""
    _agent(ctx, path.agent)
    await ctx.services.agents.offer(path.agent)
    agent = _agent(ctx, path.agent)
    modes = modes_of(agent.spec, agent.catalogue)
    return AgentModesResponse(modes=[AgentModeInfo(id=m.id, name=m.id, description=m.description) for m in modes])


@v1("GET", "/v1/agents/{agent}/x-usage", tag="agents", answer=AgentUsage, errors=(404,))
async def get_agent_usage(ctx: Ctx, path: AgentPath) -> object:
    """How far the limits of the person's plan are used, as the agent's sessions have told last."""
    _agent(ctx, path.agent)
    report = universal(ctx).plans.agents.get(path.agent)
    if report is None:
        return AgentUsage()
    windows = [PlanWindowInfo(id=w.name, used=w.used, resetsAt=w.resets_at * 1000 or None) for w in report.windows]
    return AgentUsage(windows=windows, toldAt=report.at_ms)


class StoredQuery(BaseModel):
    """`days`: how far back the list goes."""

    days: int = Field(default=30, ge=1, le=10_000)


class StoredPath(BaseModel):
    """`{agent}`, and the `{id}` of one of its own conversations."""

    agent: str
    id: str


@v1("GET", "/v1/agents/{agent}/x-sessions", tag="agents", answer=StoredSessionList, errors=(404,))
async def list_stored(ctx: Ctx, path: AgentPath, query: StoredQuery) -> object:
    """The conversations that an agent's own program has stored of this directory."""
    agent = _agent(ctx, path.agent)
    found = await stored_sessions(ctx.services.sessions, agent, ctx.directory, query.days)
    command = agent.spec.abilities.conversations.command if agent.spec.abilities.conversations is not None else ""
    rows = [
        StoredSessionInfo(
            id=one.own.id,
            title=one.own.title,
            createdAt=one.own.created,
            updatedAt=one.updated_ms,
            command=command.format(id=one.own.id) or None,
            sessionId=one.session_id or None,
        )
        for one in found
    ]
    return StoredSessionList(sessions=rows)


@v1("POST", "/v1/agents/{agent}/x-sessions/{id}", tag="agents", answer=OpenedSession, errors=(400, 404))
async def open_stored(ctx: Ctx, path: StoredPath) -> object:
    """Make a session of a conversation of the agent's own program, with its history. A prompt goes on in it."""
    record = await ctx.services.native_sessions.open(_agent(ctx, path.agent), path.id, ctx.directory)
    return OpenedSession(sessionId=record.id, title=record.title)


@v1("POST", "/v1/agents/{agent}/install", tag="agents", form="none", errors=(400, 404, 500))
async def install_agent(ctx: Ctx, path: AgentPath, body: AgentInstallRequest | None) -> None:
    """Install an agent with npm; 204 when it is installed. `GET /v1/x-agents/{agent}/install` shows the progress."""
    agent = _agent(ctx, path.agent)
    if agent.usable and not (body is not None and body.reinstall):
        return
    if not agent.spec.program.binaries:
        return
    try:
        await universal(ctx).installs.install(path.agent)
    except InstallFailed as error:
        raise AgentInstallFailed(path.agent, str(error)) from error


@v1("GET", "/v1/x-agents/{agent}/install", tag="agents", answer=InstallState, errors=(404,))
async def get_agent_install(ctx: Ctx, path: AgentPath) -> object:
    """The state of the running or last installation of an agent."""
    _agent(ctx, path.agent)
    return _install_state(universal(ctx).installs.state(path.agent))
