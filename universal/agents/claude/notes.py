"""Makes status items: retries, compaction, mode, model, title, and warnings of the CLI.

Only a compaction has a start and an end.
Source: recordings `slash`, `overload`, `drop`, `plan`; the CLI's schema for what no recording shows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from universal.agents.claude.errors import retry_message
from universal.agents.claude.speech import Context
from universal.agents.claude.wire import MODE_ID, Msg, get_int, get_text
from universal.codec import Fact
from universal.events import EventType, ItemData
from universal.items import Item, ItemKind, ItemRole, ItemStatus, Json, StatusPart
from universal.lib.jsonvalue import arr, obj
from universal.limits import PlanLimits
from universal.limits import of_claude as limits_of_claude
from universal.mcp import McpServers, of_claude, summary


@dataclass(slots=True)
class Notes:
    """Makes status items of lines."""

    ctx: Context
    _compaction: Item | None = None
    _compacted: bool = False
    _auto: bool | None = None
    _servers: McpServers = field(default_factory=McpServers)
    limits: PlanLimits = field(default_factory=PlanLimits)
    _boundary: Msg | None = None
    """The last `compact_boundary`, until its summary has come."""

    def servers(self, rows: Json, raw: Json) -> Iterator[Fact]:
        """The rows of all MCP servers, in `system/init` or the answer to `mcp_status`, if they have changed."""
        report = self._servers.update(map(of_claude, arr(rows)), whole=True)
        if report is not None:
            yield self.ctx.status("mcp", summary(report), report, raw)

    def limit(self, msg: Msg) -> Iterator[Fact]:
        """`rate_limit_event`: how far the limits of the plan are used."""
        report = self.limits.update(limits_of_claude(obj(msg.get("rate_limit_info"))))
        if report is not None:
            yield self.ctx.status("limits", self.limits.summary, report, msg)

    def mode(self, native: str, raw: Msg) -> Iterator[Fact]:
        """The mode that the CLI has changed to, after an approved plan."""
        mode = MODE_ID.get(native, native)
        yield self.ctx.status("mode", f"The mode is now {mode}.", {"mode": mode}, raw)

    def retry(self, msg: Msg, raw: Msg, child: str | None = None) -> Iterator[Fact]:
        """`api_retry`, or what a subagent's `tool_progress` says of one in the same fields."""
        text = retry_message(msg)
        delay_ms = max(get_int(msg, "retry_delay_ms"), 0)
        metadata: dict[str, Json] = {"attempt": get_int(msg, "attempt"), "message": text, "delay_ms": delay_ms}
        yield self.ctx.status("retry", text, metadata, raw, child=child)

    def fallback(self, msg: Msg) -> Iterator[Fact]:
        """The CLI goes on with another model, because the present one is gone, overloaded, or refused to answer."""
        if get_text(msg, "fallback_model"):
            model = self.ctx.model_of(get_text(msg, "fallback_model"))
            yield self.ctx.status("model", get_text(msg, "content") or None, model, msg)

    def title(self, named: Msg, msg: Msg) -> Iterator[Fact]:
        """The name of the conversation: a person's (`session_title_changed`), or Claude's answer, which may have none."""
        if title := get_text(named, "title"):
            yield self.ctx.status("title", title, {"title": title}, msg)

    def informational(self, msg: Msg) -> Iterator[Fact]:
        """A note of the CLI. Only warnings are for the person, such as a hook that stopped the turn."""
        if get_text(msg, "level") != "warning" or not get_text(msg, "content"):
            self.ctx.ignore("system/informational")
            return
        yield self.ctx.note(get_text(msg, "content"), msg)

    # --- compaction -----------------------------------------------------------------------------------

    def on_compacting(self, msg: Msg) -> Iterator[Fact]:
        """`status: compacting`, which is repeated during an automatic compaction."""
        if self._compaction is not None:
            return
        self._compacted = False
        self._compaction = Item(
            item_id=self.ctx.ids("item"),
            kind=ItemKind.STATUS,
            role=ItemRole.SYSTEM,
            status=ItemStatus.IN_PROGRESS,
            content=(StatusPart(label="compaction", detail="Compacting the conversation"),),
            metadata={"phase": "started"},
        )
        yield Fact(EventType.ITEM_STARTED, ItemData(item=self._compaction), raw=msg)

    def compact_result(self, msg: Msg, *, is_stopping: bool) -> Iterator[Fact]:
        """`compact_result`: a failure, whose reason may be a code, ends the compaction. `compact_boundary` follows a success."""
        if get_text(msg, "compact_result") == "failed":
            why = get_text(msg, "compact_error")
            failure = why if " " in why else f"Claude Code could not compact the conversation ({why or 'without a reason'})."
            yield from self.end_compaction(msg, failure="" if is_stopping else failure)
        else:
            self._compacted = True

    def on_compact_boundary(self, msg: Msg) -> Iterator[Fact]:
        """`compact_boundary`: a summary replaces the earlier conversation."""
        yield from self.on_compacting(msg)
        self._compacted = True
        self._auto = get_text(obj(msg.get("compact_metadata")), "trigger") == "auto"
        self._boundary = msg

    @property
    def awaits_summary(self) -> bool:
        """True after `compact_boundary`: the next `user` text is the summary."""
        return self._boundary is not None

    def summary(self, text: str) -> Iterator[Fact]:
        if self._boundary is not None:
            yield from self.end_compaction(self._boundary, summary=_summary(text))

    def no_summary(self) -> Iterator[Fact]:
        """Claude goes on, so no summary will come."""
        if self._boundary is not None:
            yield from self.end_compaction(self._boundary)

    def end_compaction(self, msg: Json, *, failure: str = "", summary: str = "") -> Iterator[Fact]:
        """End an open compaction with its present result. `msg` is None at the end of the process."""
        item, self._compaction = self._compaction, None
        auto, self._auto, self._boundary = self._auto, None, None
        if item is None:
            return
        is_done = self._compacted and not failure
        metadata: dict[str, Json] = {"phase": "completed" if is_done else "failed"}
        if auto is not None:
            metadata["auto"] = auto
        if summary:
            metadata["summary"] = summary
        detail = "The conversation was compacted" if is_done else failure or "The compaction was interrupted"
        update: dict[str, Any] = {
            "status": ItemStatus.COMPLETED if is_done else ItemStatus.FAILED,
            "content": (StatusPart(label="compaction", detail=detail),),
            "metadata": metadata,
        }
        yield Fact(EventType.ITEM_COMPLETED, ItemData(item=item.model_copy(update=update)), raw=msg, synthetic=msg is None)


_BEFORE_SUMMARY = re.compile(
    r"\AThis session is being continued from a previous conversation[^\n]*\n+(?:<system-reminder>.*?</system-reminder>\n*)?", re.S
)
_AFTER_SUMMARY = re.compile(r"If you need specific details from before compaction .*\Z", re.S)


def _summary(text: str) -> str:
    """The summary without the CLI's text for the model around it (of 2.1.330; other versions' texts stay)."""
    return _AFTER_SUMMARY.sub("", _BEFORE_SUMMARY.sub("", text)).strip()
