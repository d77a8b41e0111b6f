"""`python -m shim.dev.scripted [PORT] [REQUEST_LOG]`: prints "listening on PORT" and serves until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from shim.dev.scripted.server import ScriptedModel, serve


async def main(port: int, log: Path | None) -> None:
    """Serve until the process is ended."""
    async with serve(ScriptedModel(log), port) as real_port:
        sys.stdout.write(f"listening on {real_port}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 0, Path(sys.argv[2]) if len(sys.argv) > 2 else None))
