"""The floor: a bare aiohttp server that writes encoded bytes to its readers, and nothing else.

Nothing is translated, stored or checked; what our server costs above this is what it does. Arguments: PORT FRAMES, a file
with one answer's frames as our server wrote them, separated by blank lines. `POST /session/ID/pipe` instead starts the
agent of `agent.py` and writes each of its lines to the readers: the shortest way from a pipe to a reader.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web

AGENT = Path(__file__).with_name("agent.py")
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}


class Floor:
    def __init__(self, frames: list[bytes]) -> None:
        self.frames = frames
        self.readers: list[asyncio.Queue[bytes]] = []
        self.sessions: list[dict[str, str]] = []
        self.tasks: set[asyncio.Task[None]] = set()

    def give(self, frame: bytes) -> None:
        for reader in self.readers:
            reader.put_nowait(frame)

    async def health(self, request: web.Request) -> web.Response:
        return web.json_response({"healthy": True})

    async def create(self, request: web.Request) -> web.Response:
        await request.read()
        self.sessions.append({"id": f"ses_{len(self.sessions)}"})
        return web.json_response(self.sessions[-1])

    async def prompt(self, request: web.Request) -> web.Response:
        await request.read()
        self._run(self._write())
        return web.Response(status=204)

    async def pipe(self, request: web.Request) -> web.Response:
        self._run(self._pipe(await request.read()))
        return web.Response(status=204)

    def _run(self, coroutine) -> None:
        task = asyncio.ensure_future(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _write(self) -> None:
        for at, frame in enumerate(self.frames):
            self.give(frame)
            if at % 64 == 63:
                await asyncio.sleep(0)

    async def _pipe(self, line: bytes) -> None:
        pipe = asyncio.subprocess.PIPE
        agent = await asyncio.create_subprocess_exec(sys.executable, str(AGENT), stdin=pipe, stdout=pipe, limit=2**24)
        agent.stdin.write(line + b"\n")
        async for got in agent.stdout:
            self.give(b"data: " + got + b"\n")
            if got.startswith(b'{"type": "result"'):
                break
        agent.terminate()
        await agent.wait()

    async def events(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers=HEADERS)
        await response.prepare(request)
        mine: asyncio.Queue[bytes] = asyncio.Queue()
        self.readers.append(mine)
        try:
            await response.write(b'data: {"type":"server.connected"}\n\n')
            while True:
                await response.write(await mine.get())
        finally:
            self.readers.remove(mine)


def main() -> None:
    port, path = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    frames = [frame + b"\n\n" for frame in Path(path).read_bytes().split(b"\n\n") if frame] if path else []
    floor = Floor(frames)
    app = web.Application()
    app.router.add_get("/global/health", floor.health)
    app.router.add_post("/session", floor.create)
    app.router.add_post("/session/{id}/prompt_async", floor.prompt)
    app.router.add_post("/session/{id}/pipe", floor.pipe)
    app.router.add_get("/event", floor.events)
    web.run_app(app, host="127.0.0.1", port=port, print=None, handle_signals=True)


if __name__ == "__main__":
    main()
