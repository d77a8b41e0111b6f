"""The client of one server: its agents and sessions."""

from __future__ import annotations

import secrets
from types import TracebackType

import aiohttp

from shim.client.session import Session
from shim.client.transport import Problem, Transport, segment
from shim.faces.v1.models import (
    AgentInfo,
    AgentListResponse,
    AgentModeInfo,
    AgentModelsResponse,
    AgentModesResponse,
    CreateSessionRequest,
    HealthResponse,
    SessionInfo,
    SessionListResponse,
)

__all__ = ["Client", "Problem"]


class Client:
    """A client of one server. Use it as an async context manager, or `close` it.

    `password` is the server's, if it has one. `http` is an aiohttp session to use instead of a new one. All methods raise Problem
    if the server refuses, and aiohttp.ClientError if it cannot be reached.
    """

    def __init__(
        self, url: str = "http://127.0.0.1:4096", *, password: str | None = None, http: aiohttp.ClientSession | None = None
    ) -> None:
        self._transport = Transport(url, password=password, session=http)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._transport.close()

    async def health(self) -> HealthResponse:
        """Return the server's health. Raises if it does not answer."""
        return HealthResponse.model_validate(await self._transport.request("GET", "/v1/health"))

    async def agents(self) -> list[AgentInfo]:
        """Return all agents that the server knows, installed or not."""
        return AgentListResponse.model_validate(await self._transport.request("GET", "/v1/agents")).agents

    async def models(self, agent: str) -> AgentModelsResponse:
        """Return an agent's models."""
        return AgentModelsResponse.model_validate(await self._transport.request("GET", f"/v1/agents/{segment(agent)}/models"))

    async def modes(self, agent: str) -> list[AgentModeInfo]:
        """Return an agent's modes."""
        answer = await self._transport.request("GET", f"/v1/agents/{segment(agent)}/modes")
        return AgentModesResponse.model_validate(answer).modes

    async def install(self, agent: str, *, reinstall: bool = False) -> None:
        """Install an agent with npm on the server's machine. Takes minutes."""
        await self._transport.request("POST", f"/v1/agents/{segment(agent)}/install", body={"reinstall": reinstall})

    async def sessions(self) -> list[SessionInfo]:
        """Return all sessions, also those of OpenCode's clients, the last changed first."""
        return SessionListResponse.model_validate(await self._transport.request("GET", "/v1/sessions")).sessions

    def session(self, name: str) -> Session:
        """Return an existing session by its name or its OpenCode id. It sends no request."""
        return Session(self._transport, name)

    async def create_session(
        self,
        name: str | None = None,
        *,
        agent: str,
        directory: str | None = None,
        mode: str | None = None,
        permission_mode: str | None = None,
        model: str | None = None,
        variant: str | None = None,
        title: str | None = None,
        unattended: str | None = None,
    ) -> Session:
        """Create a session with this name, or with a new one. Raises Problem (409: the name is taken).

        `unattended` says what happens to permissions and questions that nobody answers: `wait`, `reject:SECONDS` or `rules`;
        default: as the server is set.
        """
        body = CreateSessionRequest(
            agent=agent,
            directory=directory,
            agentMode=mode,
            permissionMode=permission_mode,
            model=model,
            variant=variant,
            title=title,
            unattended=unattended,
        )
        session = self.session(name if name is not None else f"python-{secrets.token_hex(8)}")
        await self._transport.request("POST", f"/v1/sessions/{segment(session.id)}", body=body.model_dump(exclude_none=True))
        return session
