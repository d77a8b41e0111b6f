"""The signs of a turn's end in the Agent Client Protocol, and how long more of the turn is waited for after each.

    sign                                                        more may come for
    the answer to `session/prompt`                              LATE_S after it, and after each update
      with calls that have no result                            CALLS_S
      without a word, a call or an error                        SILENT_S
    of work that the agent began without a prompt:
      a usage with its cost, a title, `_qwencode/end_turn`      LATE_S, CALLS_S with open calls
      nothing, for a while                                      OWN_S, OWN_CALLS_S with open calls
    an interrupt of ours, after its answer                      LATE_S
    the end of the process                                      nothing: the turn ends with what the agent has said
    an error that the agent could not read a request            nothing, if one request waits: it is answered by this
    an answer of the handshake that does not come               `Profile.handshake_s`, then the process is given up
    the answer to `session/load`, which ends a history          LATE_S after it, and after each update

Only the answer ends a prompt, and there is no request with which the agent could be asked.
"""

from __future__ import annotations

from dataclasses import dataclass

from universal.agents.acp.wire import Msg
from universal.agents.kit import END as END
from universal.items import Json

HISTORY = "history"
"""Key of the timer for the end of a history that `session/load` replays."""
STEADY = "steady"
"""Key of the timer after which an open call is known to run."""
STEADY_S = 1.0
"""Seconds. A prompt that claude-agent-acp gets within 0.65 s of a call's beginning stops the call."""
LATE_S = 0.25
"""Seconds for updates after the end. `opencode acp` sends text 50 ms late, codex-acp 2.6.0 a result 205 ms after an interrupt."""
CALLS_S = 1.0
"""Seconds for the result of a call that the agent has left open."""
SILENT_S = 2.0
"""Seconds for an answer of which nothing has come."""
OWN_S = 2.0
"""Seconds of silence that end work of the agent's own, of which no end is told."""
OWN_CALLS_S = 30.0
"""The same while one of its calls has no result."""


@dataclass(frozen=True, slots=True)
class End:
    """The end of a turn, as the agent has told it. In: `result`, {stopReason, usage?}."""

    result: Msg
    error: Msg | None
    raw: Json
    is_for_prompt: bool = True
    """False for work that the agent began."""
