"""Translates Claude Code's error results and last stderr lines to errors with hints for a person.

Source: recordings `error*`, `bad_start.*`, `max_tokens`, `resume.6_unknown`; kinds of errors in the CLI's schema.
"""

from __future__ import annotations

from universal.agents import kit
from universal.agents.claude.wire import Msg, get_int, get_text
from universal.items import Json
from universal.lib.jsonvalue import arr, obj
from universal.lib.jsonvalue import text as as_text

_LOGIN = (
    "Run `claude` in a terminal and log in with /login, or set ANTHROPIC_API_KEY in the environment "
    "of the server. Then try again."
)
_NETWORK = "Check the network, the proxy settings and ANTHROPIC_BASE_URL, then try again."

HINTS: dict[str, str] = {
    "authentication_failed": _LOGIN,
    "authentication_error": _LOGIN,
    "oauth_org_not_allowed": _LOGIN,
    "billing_error": "Check the plan and the credit of the account that `claude` is logged in with.",
    "rate_limit": "Wait until the limit resets, or choose another model.",
    "overloaded": "The model service is overloaded. Try again in a while, or choose another model.",
    "server_error": "The model service failed. Try again.",
    "connection_failed": _NETWORK,
    "model_not_found": "Choose another model: this one does not exist, or your account may not use it.",
    "max_output_tokens": "Ask for the work in smaller pieces, or set CLAUDE_CODE_MAX_OUTPUT_TOKENS higher.",
    "prompt_too_long": "Send /compact, or start a new session.",
    "session_not_found": "The conversation is no longer stored by Claude Code on this machine. Start a new session.",
    "error_max_turns": "Send another message to let Claude go on.",
}
"""Code of an error -> hint for the person."""

NOT_STRUCTURED = "error_max_structured_output_retries"
"""`subtype` of a result without an answer in the schema of the prompt. The server looks at each answer, and asks again."""

_RETRYABLE = frozenset({"rate_limit", "overloaded", "server_error", "connection_failed"})

STDERR_HINTS: tuple[tuple[str, str, str], ...] = (
    (
        "cannot be used with root/sudo privileges",
        "bypass_refused_as_root",
        "Claude Code refuses the mode `bypass` for root. Run the server as another user or choose another mode; in a "
        "container that is a sandbox, set IS_SANDBOX=1 in the environment of the server.",
    ),
    (
        "error: unknown option",
        "unknown_option",
        "This version of Claude Code does not know an option that is needed. Update it: npm install -g @anthropic-ai/claude-code",
    ),
)
"""(text on stderr before the CLI exits, code of the error, hint for the person)."""

INTERRUPTION: dict[str, Json] = {"message": "Interrupted", "code": "aborted"}
"""The error of a stopped turn. The `errors[]` of its result do not help a person."""

_DIAGNOSTIC = "[ede_diagnostic]"
"""Marks texts in `errors[]` that are for Anthropic's developers only."""


def reset_of(limit: Msg) -> int:
    """When the limit of a `rate_limit_event` that refuses work resets, in seconds since 1970; 0 if it refuses none.

    Paid usage goes on beyond a limit that is rejected.
    """
    info = obj(limit.get("rate_limit_info"))
    refuses = get_text(info, "status") == "rejected" and info.get("isUsingOverage") is not True
    return get_int(info, "resetsAt") if refuses else 0


def result_error(result: Msg, kind: str, resets_at: int = 0) -> dict[str, Json] | None:
    """The error of a `result`, {message, code, details {status_code?, is_retryable, hint?, resets_at?}}, or None for a success.

    `kind`: the `error` of the synthetic message before it, or "". `resets_at`: of `reset_of`. An API error has `subtype: success`
    with `is_error: true`, so both are checked.
    """
    subtype = get_text(result, "subtype")
    if (result.get("is_error") is not True and not subtype.startswith("error")) or subtype == NOT_STRUCTURED:
        return None
    errors = [text for text in map(as_text, arr(result.get("errors"))) if text and not text.startswith(_DIAGNOSTIC)]
    message = get_text(result, "result") or "\n".join(errors) or f"Claude Code ended the turn with {subtype or 'an error'}."
    code = kind if kind not in ("", "unknown") else get_text(result, "api_error", "api_error_type") or kind or subtype
    if message.startswith(("No conversation found", "No message found")):
        code = "session_not_found"
    status = get_int(result, "api_error_status")
    error = kit.make_error(message, code or "error", status, hint=HINTS.get(code, ""), is_retryable=code in _RETRYABLE)
    if resets_at and code == "rate_limit":  # trying again before has no use
        error["details"] |= {"resets_at": resets_at, "is_retryable": False}
    return error


def exit_error(stderr: str) -> dict[str, Json] | None:
    """The error of a process that gave up, by its stderr, if the person can do something about it."""
    for words, code, hint in STDERR_HINTS:
        line = next((line for line in stderr.splitlines() if words in line), "")
        if line:
            return kit.make_error(line.strip(), code, hint=hint)
    return None


def retry_message(msg: Msg) -> str:
    """A line for a person about an `api_retry`: the failure, the next try and its number."""
    status, kind = get_int(msg, "error_status"), get_text(msg, "error")
    cause = f"API error {status}" if status else "No connection to the API"
    why = f" ({kind.replace('_', ' ')})" if kind not in ("", "unknown") else ""
    seconds = max(get_int(msg, "retry_delay_ms"), 0) / 1000
    times = f"attempt {get_int(msg, 'attempt')} of {get_int(msg, 'max_retries')}"
    return f"{cause}{why}. Trying again in {seconds:.1f} s, {times}."
