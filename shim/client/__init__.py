"""A typed, asynchronous client of the universal API (`/v1`) of opencode-shim.

    async with Client("http://127.0.0.1:4096") as client:
        session = await client.create_session(agent="mock")
        print(await session.ask("echo Hello"))

Its values are the pydantic models of `shim.faces.v1.models`, and `UniversalEvent`. See docs/client.md.
"""

from shim.client.api import Client, Problem
from shim.client.session import AnswerTimeout, Session
from shim.faces.v1.models import AgentInfo, AgentModelsResponse, SessionInfo
from universal.events import EventType, UniversalEvent

__all__ = [
    "AgentInfo",
    "AgentModelsResponse",
    "AnswerTimeout",
    "Client",
    "EventType",
    "Problem",
    "Session",
    "SessionInfo",
    "UniversalEvent",
]
