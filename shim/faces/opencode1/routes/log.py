"""Writes clients' entries to the server's log. Source: recording `endpoints`."""

from __future__ import annotations

from typing import Any, Literal

import structlog
from pydantic import BaseModel

from shim.faces.opencode1.endpoint import operation
from shim.http.operation import Ctx

log = structlog.get_logger(__name__)

LEVELS: dict[str, str] = {"debug": "debug", "info": "info", "warn": "warning", "error": "error"}
MESSAGE_LENGTH = 10_000


class Entry(BaseModel):
    """`POST /log`."""

    service: str
    level: Literal["debug", "info", "error", "warn"]
    message: str
    extra: dict[str, Any] | None = None


@operation("app.log")
async def write(ctx: Ctx, body: Entry) -> object:
    """Log an entry as `client.log`. The client's fields are nested, so that they cannot pass for ours."""
    getattr(log, LEVELS[body.level])(
        "client.log", service=body.service[:MESSAGE_LENGTH], message=body.message[:MESSAGE_LENGTH], extra=body.extra or {}
    )
    return True
