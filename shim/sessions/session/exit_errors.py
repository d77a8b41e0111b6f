"""Makes the errors of turns whose agent has exited or did not start, and the data of `session.ended`. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shim.processes.tail import parse_tail
from shim.sessions.prompts.pending_prompt import PendingPrompt
from universal.events import ErrorData, SessionEndedData
from universal.items import Json
from universal.launch import Exit
from universal.session.values import NOT_BEGUN, START_FAILED

SESSION_NOT_FOUND = "session_not_found"
"""Error code of a codec whose agent does not know the conversation to resume."""
SERVER_STOPPED = (
    "The server was stopped while this turn ran. What the agent had done until then is kept; send the prompt again to go on."
)
SERVER_LOST = (
    "The server {name} was lost while this turn ran. What the agent had done until then is kept; send the prompt again to go on."
)
PROMPT_LOST = (
    "The server was stopped before the agent got this prompt. The agent reads it together with your next prompt; "
    "send it again to have it answered by itself."
)
SERVER_DRAINED = (
    "The server {name} was stopped while this turn ran, and the turn did not end within {seconds:g} seconds (drain_seconds). "
    "What the agent had done until then is kept; send the prompt again to go on."
)
LOST = "The agent could not resume its conversation, so a new one was begun and told what was said. The reason: {why}"
WORK_SHOWN = 5
"""Maximum commands and subagents that a notice names."""
CANNOT_RESUME = (
    "Before that, the agent could not resume its conversation ({why}), and a new one has failed too. Run `opencode-shim doctor`, "
    "try the agent in a terminal, and send the prompt again: the conversation is kept."
)
STDERR_SHOWN_CHARS = 2_000
"""Maximum characters of a dead agent's stderr in the error."""


def exit_error(agent: str, exit_: Exit) -> ErrorData:
    """The error of a turn whose agent exited."""
    message = (
        f"{agent} exited in the middle of the turn ({_how(exit_)}). Send the prompt again to go on: the conversation is kept."
    )
    stderr = exit_.stderr.strip()[-STDERR_SHOWN_CHARS:]
    if stderr:
        message += f"\n{stderr}"
    return ErrorData(message=message, code="agent_exited", details={"exit_code": exit_.code, "signal": exit_.signal})


def failed_start(error: Mapping[str, Json], stderr: str) -> ErrorData:
    """The error of a prompt whose process the codec gives up. In: the end of the process's stderr."""
    words = stderr.strip()[-STDERR_SHOWN_CHARS:]
    message = "\n".join(filter(None, (str(error["message"]), words)))
    return ErrorData(message=message, code=error["code"], details=error.get("details"))


def after_loss(data: ErrorData, why: str) -> ErrorData:
    """The error of a new conversation, which was begun because the agent could not resume its own. In: `why` it could not."""
    return data.model_copy(update={"message": f"{data.message}\n{CANNOT_RESUME.format(why=why)}"}) if why else data


def work_ended(work: Sequence[str]) -> str:
    """The notice for a process that is ended while its agent works in the background. In: what it does."""
    names = ", ".join(work[:WORK_SHOWN]) + (" ..." if len(work) > WORK_SHOWN else "")
    return f"The agent's process was ended, and with it what it did in the background: {names}. Start it again if you need it."


def drain_error(name: str, seconds: float) -> ErrorData:
    """The error of a turn that a server gives up because it stops. In: the server's name, how long it has waited."""
    return ErrorData(message=SERVER_DRAINED.format(name=name, seconds=seconds), code="agent_exited")


def start_error(accepted: PendingPrompt, message: str) -> ErrorData:
    """The error of a turn whose agent could not be started, or whose agent or model does not exist."""
    return ErrorData(message=message, code=NOT_BEGUN if accepted.refused else START_FAILED)


def agent_exit_data(agent: str, exit_: Exit, *, in_turn: bool) -> SessionEndedData:
    """The data of `session.ended` for a process that ended by itself. The next prompt resumes its conversation."""
    if exit_.code == 0 and not in_turn:
        return SessionEndedData(reason="completed", terminated_by="agent", exit_code=0)
    return SessionEndedData(
        reason="error",
        terminated_by="agent",
        message=f"{agent} exited ({_how(exit_)}).",
        exit_code=exit_.code,
        stderr=parse_tail(exit_.stderr),
    )


def termination_data(message: str | None = None) -> SessionEndedData:
    """The data of `session.ended` for a terminated session."""
    return SessionEndedData(reason="terminated", terminated_by="daemon", message=message)


def _how(exit_: Exit) -> str:
    return f"signal {exit_.signal}" if exit_.signal is not None else f"exit code {exit_.code}"
