"""What is taken out of texts before anybody sees them: keys, tokens, passwords. Pure.

Two ways: by their looks (`SECRET_VALUES`), and exactly, where it is known which they are (`secrets_of` an environment). Used on
logs and on what agents write to stderr, which ends up in errors, events and the journal. What an agent says in its answer
or a tool prints is not touched: it is the person's conversation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

SECRET_NAME = re.compile(
    r"pass(word|wd|phrase)|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|authori[sz]ation|cookie|credential", re.I
)
"""Names whose values are secrets. Numbers pass: `input_tokens=12` is a count."""

SECRET_VALUES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b(sk|pk|rk)-[A-Za-z0-9_-]{8,}"), r"\1-<redacted>"),
    (re.compile(r"\b(gh[pousr]_|github_pat_|glpat-|xox[abprs]-|hf_|sgp_|AKIA|AIza)[A-Za-z0-9_-]{8,}"), r"\1<redacted>"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+"), "<redacted token>"),
    (re.compile(r"\b(Bearer|Basic)\s+[A-Za-z0-9+/=._~-]{6,}", re.I), r"\1 <redacted>"),
    (re.compile(r"(://[^/\s:@]*):[^/\s@]+@"), r"\1:<redacted>@"),
    (re.compile(r"((?:token|password|passwd|secret|api_?key)[\"']?\s*[=:]\s*[\"']?)[^\s\"'&,;]+", re.I), r"\1<redacted>"),
)
"""Secrets inside of other texts: provider keys, tokens, credentials in headers and URLs. Time grows with the text, no faster."""

QUOTED, BEHIND = "input_value=", ", input_type="
"""pydantic quotes the input that did not fit, which may be a whole prompt, between these."""

SECRET_VARIABLE = re.compile(r"(^|_)(KEY|PASS|PAT|AUTH)S?(_|$)", re.I)
"""More names of environment variables: there, unlike in logs, `KEY` alone is no ordinary word."""

LEAST_LENGTH = 8
"""Shorter values of variables are no secrets that could be found again: `1`, `true`."""


def secrets_of(environ: Mapping[str, str]) -> frozenset[str]:
    """The values of the variables whose names say that they are secrets. Files and addresses (`.../agent.sock`) are none."""
    return frozenset(
        value
        for name, value in environ.items()
        if len(value) >= LEAST_LENGTH
        and (SECRET_NAME.search(name) or SECRET_VARIABLE.search(name))
        and not value.startswith(("/", "http://", "https://"))
    )


def clean(text: str, known: Collection[str] = ()) -> str:
    """The text without secrets; `known` are taken out wherever they stand, the longest first."""
    for value in sorted(known, key=len, reverse=True):
        if value in text:
            text = text.replace(value, "<redacted>")
    text = _without_inputs(text)
    for pattern, replacement in SECRET_VALUES:
        text = pattern.sub(replacement, text)
    return text


def _without_inputs(text: str) -> str:
    kept: list[str] = []
    at = 0
    while (start := text.find(QUOTED, at)) >= 0 and (end := text.find(BEHIND, start)) >= 0:
        kept += (text[at:start], f"{QUOTED}<redacted>")
        at = end
    return "".join((*kept, text[at:]))
