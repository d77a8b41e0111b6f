"""The client of Jupyter AI (jupyter-ai-acp-client) without JupyterLab: prints what it saw as one line of JSON.

    python acp_jupyter.py COMMAND_AS_JSON DIRECTORY '{"text": ..., "permission": ..., "hang": ...}'

Runs alone, with the package on PYTHONPATH. What its chat would show is noted by a stand-in.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from typing import Any
from unittest.mock import MagicMock

from jupyter_ai_acp_client.default_acp_client import JaiAcpClient
from jupyter_ai_persona_manager.persona_events import PersonaSessionState

TURN_S, POLL_S = 60, 0.05
LINE_BYTES = 2**24


async def main(argv: list[str], directory: str, scenes: dict[str, str]) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    process = await asyncio.create_subprocess_exec(*argv, stdin=-1, stdout=-1, limit=LINE_BYTES)
    client = JaiAcpClient(agent_subprocess=process, event_loop=loop)
    persona = MagicMock(log=logging.getLogger("persona"))
    persona.get_chat_dir.return_value = directory
    persona.get_mcp_settings.return_value = None
    persona.session = PersonaSessionState(event_logger=None, chat_id="c", persona_id="p", log=persona.log)
    opened = await client.create_session(persona)
    session, out = opened.session_id, dict[str, Any](modes=[mode.id for mode in opened.modes.available_modes])
    begun = asyncio.Event()
    persona.chat.add_message.side_effect = lambda *_, **__: begun.set()

    async def allow() -> list[str]:
        pending = client._permission_manager._pending
        while not pending:
            await asyncio.sleep(POLL_S)
        [(of, call)] = pending
        options = [option.option_id for option in pending[of, call].options]
        client.resolve_permission(of, call, "once")
        return options

    async with asyncio.timeout(TURN_S):
        out["text"] = (await client.prompt_and_reply(session, scenes["text"])).stop_reason
        asked = asyncio.create_task(allow())
        out["permission"] = (await client.prompt_and_reply(session, scenes["permission"])).stop_reason
        out["options"] = await asked
        begun.clear()
        running = asyncio.create_task(client.prompt_and_reply(session, scenes["hang"]))
        await begun.wait()
        await client.stop_streaming(session)
        out["hang"] = (await running).stop_reason
        await client.load_session(persona, session)
    shown = str(persona.chat.update_message.call_args_list)
    assert process.stdin is not None
    process.stdin.close()
    return {**out, "is_shown": "Done!" in shown, "exit": await process.wait()}


sys.stdout.write(json.dumps(asyncio.run(main(json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])))) + "\n")
