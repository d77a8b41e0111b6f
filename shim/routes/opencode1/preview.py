"""`/api/health`: what clients of the builds before 2.0 ask first, and the web UI of 1.18, which looks for its protocol.

Who asks here is noted (`shim.http.dialect`): a browser is that web UI, everybody else the build of 17 July. Clients of the preview
in 1.18 say by their User-Agent who they are, and are answered as its document says, without a `pid`: that key turns the web UI to
its second protocol, if `/global/health` has not answered it before.
"""

from __future__ import annotations

import os

from shim.http.dialect import BROWSER, PREVIEW, dialect_of, note
from shim.http.operation import Ctx, operation
from shim.opencode2.operations import OPENCODE2_VERSION


@operation("v2.health.get")
async def health(ctx: Ctx) -> object:
    """That we are alive, and which build we are for who asks."""
    if dialect_of(ctx.request).name == PREVIEW:
        return {"healthy": True}
    note(ctx.request, "W" if ctx.request.headers.get("User-Agent", "").startswith(BROWSER) else "J")
    return {"healthy": True, "version": OPENCODE2_VERSION, "pid": os.getpid()}
