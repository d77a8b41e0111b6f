"""Files of NAME=VALUE lines, as service managers and containers have them: read into the environment, and written for a service.

A service starts without what a login shell sets. `service install` writes PATH and other names that hold no secret (`COPIED`)
into one file; keys stand in a second one, which the person writes. The values of keys are never copied.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from shim.errors import ShimError
from shim.redaction import clean, secrets_of

LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)")
LIMIT_BYTES = 2**20
COPIED = re.compile(
    r"PATH|LANG|LC_\w+|TZ|SHELL|XDG_(CONFIG|DATA|CACHE|STATE)_HOME|SSL_CERT_(FILE|DIR)|NODE_EXTRA_CA_CERTS|CLAUDE_CONFIG_DIR|CODEX_HOME"
    r"|\w+_BASE_URL|(?:https?|all|no)_proxy|(?:HTTPS?|ALL|NO)_PROXY|SHIM_\w+_BIN"
)
"""Names of variables that a service gets as they are at the time of the installation, unless their value holds a secret."""
KEY = re.compile(
    r"\w+_(API_KEY|AUTH_TOKEN|OAUTH_TOKEN|ACCESS_TOKEN)|OPENCODE(_SERVER)?_PASSWORD|SHIM_PASSWORD|G[HL]_TOKEN|GITHUB_TOKEN"
)
"""Names of variables that agents and this server want, and that hold secrets."""


class EnvFileError(ShimError):
    """A file of variables cannot be used; the text says which line and why."""


def read(path: Path) -> dict[str, str]:
    """Name -> value; {} if there is no such file. Raises EnvFileError for other lines, and for a file that others can read."""
    try:
        state = path.stat()
        if state.st_uid == os.geteuid() and state.st_mode & 0o077:
            raise EnvFileError(
                f"Others can read {path} (mode {state.st_mode & 0o777:o}), and it is made for keys: chmod 600 {path}"
            )
        if state.st_size > LIMIT_BYTES:
            raise EnvFileError(f"{path} has {state.st_size} bytes; a file of variables has at most {LIMIT_BYTES}.")
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise EnvFileError(f"Cannot read {path}: {error}.") from error
    found: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if not line or line.startswith("#"):
            continue
        match = LINE.fullmatch(line)
        if match is None:
            raise EnvFileError(f"{path}, line {number}: NAME=VALUE is expected.")
        value = match[2].strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[match[1]] = value
    return found


def service_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What a service gets of this environment. Values with a secret in them (a proxy with a password) are left out."""
    secrets = secrets_of(environ)
    return {
        name: value
        for name, value in sorted(environ.items())
        if COPIED.fullmatch(name) and value and "\n" not in value and clean(value, secrets) == value
    }


def keys(environ: Mapping[str, str]) -> list[str]:
    """Names of keys that are set here and that a service would miss."""
    return sorted(name for name, value in environ.items() if KEY.fullmatch(name) and value)


def text_of(values: Mapping[str, str], note: str) -> str:
    """A file of variables with a comment at its top."""
    return f"# {note}\n" + "".join(f"{name}={value}\n" for name, value in values.items())
