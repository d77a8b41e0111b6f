"""The official Python SDK of the Agent Client Protocol as a client of ours: prints what it saw as one line of JSON.

    python acp_sdk.py stdio|ws|http TARGET DIRECTORY '{"text": ..., "permission": ..., "question": ..., "hang": ..., "model": ..}'

TARGET: the command as JSON, or the URL of `/acp`. Runs alone, with the SDK on PYTHONPATH (tests/e2e/python-packages.txt).
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from contextlib import AsyncExitStack
from typing import Any

import acp
from acp.http import create_http_stream
from acp.schema import ClientCapabilities, ElicitationCapabilities, ElicitationFormCapabilities, RequestPermissionResponse
from acp.ws import create_websocket_stream


class Editor(acp.Client):
    """A client that allows what is asked, and notes what it is shown."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.permissions: list[str] = []
        self.questions: list[str] = []

    async def session_update(self, session_id: str, update: Any, **kwargs: Any) -> None:
        self.updates.append(update)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **kwargs: Any) -> Any:
        self.permissions.append(tool_call.title)
        return RequestPermissionResponse.model_validate({"outcome": {"outcome": "selected", "optionId": options[0].option_id}})

    async def create_elicitation(self, message: str, mode: Any = None, **kwargs: Any) -> Any:
        self.questions.append(message)
        return {"action": "decline"}

    def words(self, kind: str) -> str:
        return "".join(u.content.text for u in self.updates if u.session_update == kind and u.content.type == "text")


async def main(kind: str, target: str, directory: str, scenes: dict[str, Any]) -> dict[str, Any]:
    client = Editor()
    async with AsyncExitStack() as stack:
        if kind == "stdio":
            spawned = acp.spawn_agent_process(client, *json.loads(target), cwd=directory, use_unstable_protocol=True)
            connection, _ = await stack.enter_async_context(spawned)
        else:
            stream = await create_websocket_stream(target) if kind == "ws" else create_http_stream(target)
            connection = acp.connect_to_agent(client, stream, use_unstable_protocol=True)
            stack.push_async_callback(connection.close)
        forms = ElicitationCapabilities(form=ElicitationFormCapabilities())
        began = await connection.initialize(
            protocol_version=acp.PROTOCOL_VERSION, client_capabilities=ClientCapabilities(elicitation=forms)
        )
        made = await connection.new_session(cwd=directory, mcp_servers=[])
        session = made.session_id
        if scenes["model"]:
            await connection.set_config_option(session_id=session, config_id="model", value=scenes["model"])

        async def say(text: str) -> str:
            return (await connection.prompt(session_id=session, prompt=[acp.text_block(text)])).stop_reason

        out: dict[str, Any] = {"agent": began.agent_info.name, "modes": [mode.id for mode in made.modes.available_modes]}
        out["text"] = await say(scenes["text"]), client.words("agent_message_chunk")
        out["permission"] = await say(scenes["permission"]), client.permissions
        out["calls"] = [u.status for u in client.updates if u.session_update == "tool_call_update"][-1]
        out["question"] = await say(scenes["question"]), len(client.questions)
        hang = asyncio.create_task(say(scenes["hang"]))
        before = len(client.updates)
        while len(client.updates) == before:
            await asyncio.sleep(0.05)
        await connection.cancel(session_id=session)
        out["hang"] = await hang
        client.updates.clear()
        await connection.load_session(session_id=session, cwd=directory, mcp_servers=[])
        out["history"] = client.words("user_message_chunk")
        out["listed"] = session in [row.session_id for row in (await connection.list_sessions()).sessions]
        out["kinds"] = sorted({u.session_update for u in client.updates})
        return out


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING)  # an update that the SDK does not understand is an error in its log
    seen = asyncio.run(asyncio.wait_for(main(*sys.argv[1:4], json.loads(sys.argv[4])), 120))
    sys.stdout.write(json.dumps(seen) + "\n")
