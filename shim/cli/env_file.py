"""Reads files of NAME=VALUE lines into the environment, and writes one for a service.

A service starts without the variables of a login shell. `service install` writes PATH and other variables without secrets
(`COPIED_NAMES`) into one file. The person writes the keys into a second file. Values of keys are never copied.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from shim.lib.errors import ShimError
from shim.lib.redaction import clean, secrets_of

LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")
LIMIT_BYTES = 2**20
COPIED_NAMES = re.compile(
    r"PATH|LANG|LC_\w+|TZ|SHELL|XDG_(CONFIG|DATA|CACHE|STATE)_HOME|SSL_CERT_(FILE|DIR)|NODE_EXTRA_CA_CERTS|CLAUDE_CONFIG_DIR|CODEX_HOME"
    r"|\w+_BASE_URL|(?:https?|all|no)_proxy|(?:HTTPS?|ALL|NO)_PROXY|SHIM_\w+_BIN"
)
"""Names of variables that `service install` copies for the service, unless their value holds a secret."""
KEY = re.compile(
    r"\w+_(API_KEY|AUTH_TOKEN|OAUTH_TOKEN|ACCESS_TOKEN)|OPENCODE(_SERVER)?_PASSWORD|SHIM_PASSWORD|G[HL]_TOKEN|GITHUB_TOKEN"
)
"""Names of variables with secrets that agents and this server use."""


class EnvFileError(ShimError):
    """A file of variables cannot be used. The text says which line and why."""


def read(path: Path) -> dict[str, str]:
    """Return name -> value, or {} if there is no such file. Raises EnvFileError for other lines and a file others can read."""
    try:
        state = path.stat()
        if state.st_uid == os.geteuid() and state.st_mode & 0o077:
            raise EnvFileError(
                f"Other users can read {path} (mode {state.st_mode & 0o777:o}), and it may hold keys. Run: chmod 600 {path}"
            )
        if state.st_size > LIMIT_BYTES:
            raise EnvFileError(
                f"{path} has {state.st_size} bytes; the limit for a file of variables is {LIMIT_BYTES}. Is it the right file?"
            )
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise EnvFileError(f"Cannot read {path}: {error}.") from error
    variables: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise EnvFileError(f"{path}, line {number}: NAME=VALUE is expected.")
        value = match[2].strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        variables[match[1]] = value
    return variables


def service_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a service gets. A value that holds a secret (a proxy with a password) is left out."""
    secrets = secrets_of(environ)
    return {
        name: value
        for name, value in sorted(environ.items())
        if COPIED_NAMES.fullmatch(name) and value and "\n" not in value and clean(value, secrets) == value
    }


def keys(environ: Mapping[str, str]) -> list[str]:
    """Return the names of keys that are set here and that a service would miss."""
    return sorted(name for name, value in environ.items() if KEY.fullmatch(name) and value)


def text_of(values: Mapping[str, str], note: str) -> str:
    """Return the text of a file of variables, with a comment at its top."""
    return f"# {note}\n" + "".join(f"{name}={value}\n" for name, value in values.items())
