"""Removes keys, tokens and passwords from texts. Pure.

It finds secrets by their form (`SECRET_VALUES`), and known ones by their value (`secrets_of` an environment). It is used on logs
and on agents' stderr, which ends up in errors, events and the journal. Answers of agents and output of tools stay unchanged,
because they are the user's conversation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|authori[sz]ation|cookie|credential", re.I
)
"""Names whose values are secrets. Numbers are no secrets: `input_tokens=12` is a count."""

SECRET_VALUES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(sk|pk|rk)-[A-Za-z0-9_-]{8,}"), r"\1-<redacted>"),
    (re.compile(r"\b(gh[pousr]_|github_pat_|glpat-|xox[abprs]-|hf_|sgp_|AKIA|AIza)[A-Za-z0-9_-]{8,}"), r"\1<redacted>"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+"), "<redacted token>"),
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9+/=._~-]{6,}", re.I), r"\1 <redacted>"),
    (re.compile(r"(://[^/\s:@]*):[^/\s@]+@"), r"\1:<redacted>@"),
    (re.compile(r"((?:token|password|passwd|secret|api_?key)[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,;]+", re.I), r"\1<redacted>"),
)
"""Patterns of secrets in texts: provider keys, tokens, credentials in headers and URLs. They match in linear time."""

INPUT_START, INPUT_END = "input_value=", ", input_type="
"""pydantic quotes the invalid input between these, which may be a whole prompt."""

SECRET_VARIABLE = re.compile(r"(^|_)(KEY|PASS|PAT|AUTH)S?(_|$)", re.I)
"""More names of secret environment variables. There, unlike in logs, `KEY` alone means a secret."""

LEAST_LENGTH = 8
"""Minimum characters of a secret value. Shorter values such as `1` or `true` would match everywhere."""


def secrets_of(environ: Mapping[str, str]) -> frozenset[str]:
    """Return the values of variables with secret names, except paths and URLs (`.../agent.sock`)."""
    return frozenset(
        value
        for name, value in environ.items()
        if len(value) >= LEAST_LENGTH
        and (SECRET_NAME.search(name) or SECRET_VARIABLE.search(name))
        and not value.startswith(("/", "http://", "https://"))
    )


def clean(text: str, secrets: Collection[str] = ()) -> str:
    """Remove secrets from a text. In: `secrets`, values to remove wherever they occur, the longest first."""
    for value in sorted(secrets, key=len, reverse=True):
        if value in text:
            text = text.replace(value, "<redacted>")
    text = _without_inputs(text)
    for pattern, replacement in SECRET_VALUES:
        text = pattern.sub(replacement, text)
    return text


def _without_inputs(text: str) -> str:
    pieces: list[str] = []
    at = 0
    while (start := text.find(INPUT_START, at)) >= 0 and (end := text.find(INPUT_END, start)) >= 0:
        pieces += (text[at:start], f"{INPUT_START}<redacted>")
        at = end
    return "".join((*pieces, text[at:]))
