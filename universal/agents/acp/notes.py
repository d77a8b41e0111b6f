"""Status items for what an ACP agent reports about its session (plan, title, mode, commands), and its cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from universal.agents.acp.errors import usage_of
from universal.agents.acp.setup import Setup
from universal.agents.acp.wire import Context, Msg
from universal.codec import Fact
from universal.items import Json
from universal.lib.jsonline import get_text
from universal.lib.jsonvalue import arr, obj


@dataclass(slots=True)
class Notes:
    """The status items of one session. Each change is reported once."""

    ctx: Context
    setup: Setup
    _title: str = ""
    _mode: str = ""
    _compacting: bool = False

    def plan(self, update: Msg, raw: Json) -> Iterator[Fact]:
        """Report `plan`, which is the whole list, as todos."""
        rows = [obj(row) for row in arr(update.get("entries"))]
        todos = [
            {
                "content": get_text(row, "content"),
                "status": get_text(row, "status") or "pending",
                "priority": get_text(row, "priority") or "medium",
            }
            for row in rows
            if get_text(row, "content")
        ]
        yield self.ctx.status("todo", f"{len(todos)} todos", {"todos": todos}, raw)

    def on_compaction_start(self, *, is_wanted: bool) -> Iterator[Fact]:
        """Report a compaction if the prompt is the agent's command for it (`wanted`). The protocol has no request for it."""
        self._compacting = is_wanted
        if is_wanted:
            yield self.ctx.status("compaction", None, {"phase": "started", "auto": False}, None)

    def on_compaction_end(self, raw: Json, *, failed: bool) -> Iterator[Fact]:
        """Report the end of the compaction if the answered prompt was the command for it."""
        compacting, self._compacting = self._compacting, False
        if compacting:
            yield self.ctx.status("compaction", None, {"phase": "failed" if failed else "completed", "auto": False}, raw)

    def compaction(self, update: Msg, raw: Json) -> Iterator[Fact]:
        """Report a compaction that the agent tells of (`session.compaction`), also one that a prompt has asked for."""
        is_wanted, status = self._compacting, get_text(update, "status")
        if status == "in_progress" and not is_wanted:
            yield self.ctx.status("compaction", None, {"phase": "started", "auto": True}, raw)
        elif status in ("completed", "failed", "cancelled"):
            self._compacting = False
            phase = "completed" if status == "completed" else "failed"
            yield self.ctx.status("compaction", get_text(update, "error") or None, {"phase": phase, "auto": not is_wanted}, raw)

    def notice(self, update: Msg, raw: Json) -> Iterator[Fact]:
        """Report a notice of the agent (`session.notices`)."""
        text = "\n".join(filter(None, (get_text(update, "title"), get_text(update, "description"))))
        if text:
            yield self.ctx.status("notice", text, {}, raw)

    def title(self, title: str, raw: Json) -> Iterator[Fact]:
        """Report the agent's title of the conversation when it changes.

        claude-agent-acp 0.101 gives the prompt as it was sent, which may begin with the link to a file.
        """
        if title and title != self._title and not title.startswith("[@"):
            self._title = title
            yield self.ctx.status("title", title, {"title": title}, raw)

    def commands(self, update: Msg, raw: Json) -> Iterator[Fact]:
        count = self.setup.read_commands(update.get("availableCommands"))
        yield self.ctx.status("commands", f"{count} commands", {}, raw)

    def current_mode(self, update: Msg, raw: Json) -> Iterator[Fact]:
        self.setup.mode_now = get_text(update, "currentModeId") or self.setup.mode_now
        yield from self.mode(raw)

    def options(self, update: Msg, raw: Json) -> Iterator[Fact]:
        self.setup.read_options(update.get("configOptions"))
        yield from self.mode(raw)

    def mode(self, raw: Json) -> Iterator[Fact]:
        """Report the current mode when it has changed. The first `build` is not reported."""
        mode = self.setup.mode_id()
        if mode and mode != self._mode:
            first, self._mode = not self._mode, mode
            if not (first and mode == "build"):
                yield self.ctx.status("mode", mode, {"mode": mode}, raw)


@dataclass(slots=True)
class PromptCost:
    """The cost of each prompt. Agents report the sum since the session began; some, since their process began.

    In a resumed session the first sum is therefore only a baseline, and the prompt that reports it has no cost.
    """

    sums: bool = False
    """Whether the reported usage is a sum too."""
    _before: float | None = None
    _now: float | None = None
    _steps: Counter[str] = field(default_factory=Counter[str])
    """Tokens that the steps of this prompt have reported."""
    _last_sum: dict[str, int] = field(default_factory=dict[str, int])

    def begin(self, *, resumed: bool) -> None:
        """Begin a session. A resumed one has no known sum yet."""
        self._before = None if resumed else 0.0

    def add(self, update: Msg) -> bool:
        """Handle `usage_update`. Returns whether it contains a cost in USD."""
        cost = obj(update.get("cost"))
        amount = cost.get("amount")
        if isinstance(amount, bool) or not isinstance(amount, (int, float)) or get_text(cost, "currency") not in ("", "USD"):
            return False
        self._now = float(amount)
        return True

    def step(self, update: Msg) -> None:
        """Count the usage in a chunk. Qwen Code reports what a step has used in an empty chunk."""
        usage = obj(obj(update.get("_meta")).get("usage"))
        if usage:
            self._steps.update(usage_of(usage))

    def _usage(self, result: Msg) -> dict[str, int]:
        """Return the tokens of a prompt: `usage`, else the sum of its steps, else Gemini CLI's `_meta.quota.token_count`."""
        steps, self._steps = self._steps, Counter[str]()
        quota = obj(obj(obj(result.get("_meta")).get("quota")).get("token_count"))
        if usage := obj(result.get("usage")):
            tokens = usage_of(usage)
            before, self._last_sum = self._last_sum, tokens
            grown = self.sums and all(tokens[key] >= before.get(key, 0) for key in tokens)
            return {key: value - before.get(key, 0) for key, value in tokens.items()} if grown else tokens
        if steps:
            return dict(steps)
        return usage_of({"inputTokens": quota.get("input_tokens"), "outputTokens": quota.get("output_tokens")}) if quota else {}

    def take(self, result: Msg) -> Msg:
        """Return {usage?, cost?} since the last call. `result` is the answer to the prompt. A smaller sum counts from zero."""
        usage = self._usage(result)
        total: Msg = {"usage": usage} if usage else {}
        if self._now is not None:
            if self._before is not None:
                total["cost"] = self._now - self._before if self._now >= self._before else self._now
            self._before = self._now
        return total
