"""Removes paths, names and secrets of this machine from a recording's text. `leaks` reports what is left.

A recording looks as if it was made in /home/user/project with a model on port 8900. Paths are replaced in the whole text, in each
spelling of agents. Streamed pieces of JSON are cut so that no path is split (`shim.dev.scripted.wire`).
"""

from __future__ import annotations

import getpass
import json
import re
import socket
import sys
import tempfile
from collections.abc import Collection, Iterator
from pathlib import Path

from shim.dev.record.homes import Place
from universal.items import Json
from universal.lib.jsonvalue import arr, obj

HOME, PROJECT, MODEL = "/home/user", "/home/user/project", "http://127.0.0.1:8900"
PACKAGES = "/usr/lib/node_modules"
SECRET = re.compile(
    r'("(?:[a-z_]*(?:api_?key|auth_?token|access_?token|refresh_?token|secret|password|authorization))"\s*:\s*")[^"]{6,}(")', re.I
)
KEY = re.compile(r"\b(?:sk|pk|sgamp|ghp|xox[bp])[-_][A-Za-z0-9_-]{6,}|Bearer [A-Za-z0-9._-]{8,}")
MAIL = re.compile(r"\b[\w.+-]+@(?!localhost|example)[\w-]+\.[a-z]{2,}\b(?!/)")


SKILLS = "availableSkillDetails"
"""Where Qwen Code tells with each session the whole texts of its skills, 500 KB, which nobody reads here."""


def without_skill_texts(value: Json) -> Json:
    """A message without the texts of the agent's skills. Their names stay."""
    if isinstance(value, list):
        return [without_skill_texts(element) for element in arr(value)]
    if not isinstance(value, dict):
        return value
    kept: dict[str, Json] = {key: without_skill_texts(inner) for key, inner in obj(value).items()}
    if SKILLS in kept:
        kept[SKILLS] = [{"name": obj(skill).get("name")} for skill in arr(kept[SKILLS])]
    return kept


LOGICAL = ("/root/look_around",)
"""Matches Codex's names of subagents, which only look like paths of this machine."""


def spellings(path: str, neutral: str) -> Iterator[tuple[str, str]]:
    """Yield a path with its neutral form in the spellings of agents: plain, and as names of folders."""
    yield path, neutral
    for keep in ("A-Za-z0-9", "A-Za-z0-9_", "A-Za-z0-9_."):
        pattern = f"[^{keep}]"
        yield re.sub(pattern, "-", path), re.sub(pattern, "-", neutral)
    yield path.strip("/").replace("/", "-"), neutral.strip("/").replace("/", "-")


SECRET_CHARS = 6
"""Minimum length of a secret. Shorter values of the environment are none: `1`, `true` ..."""


def scrub(text: str, place: Place, model_url: str, binary: str, secrets: Collection[str] = ()) -> str:
    """Remove everything of this machine, and these secrets, from a text."""
    for secret in sorted((value for value in secrets if len(value) >= SECRET_CHARS), key=len, reverse=True):
        text = text.replace(json.dumps(secret, ensure_ascii=False)[1:-1], "<secret>").replace(secret, "<secret>")
    for path, neutral in ((place.project, PROJECT), (place.home, HOME), (place.root, HOME)):
        for spelling, replacement in spellings(str(path), neutral):
            text = text.replace(spelling, replacement)
    text = text.replace(model_url, MODEL)
    package = str(Path(__file__).resolve().parents[3])
    text = text.replace(sys.executable, "/usr/bin/python3").replace(package, "/usr/lib/opencode-shim")
    text = text.replace(binary, Path(binary).name)
    text = re.sub(r"/[A-Za-z0-9_./-]*?/node_modules", PACKAGES, text)
    temporary = re.escape(tempfile.gettempdir())
    text = re.sub(rf"(?<![A-Za-z0-9]){temporary}(?![A-Za-z0-9])", f"{HOME}/temp", text)
    text = re.sub(r"/\$bunfs/r[o]ot/", "/$bunfs/", text)  # a virtual folder inside of programs built with Bun
    for home in _homes():
        logical = "|".join(re.escape(name.removeprefix(home)) for name in LOGICAL if name.startswith(home))
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(home)}(?![A-Za-z0-9]{f'|{logical}' if logical else ''})", HOME, text)
    text = re.sub(rf"(?<![A-Za-z0-9_.-]){re.escape(socket.gethostname())}(?![A-Za-z0-9_-])", "host", text)
    text = SECRET.sub(r"\1<secret>\2", text)
    text = KEY.sub("<secret>", text)
    return MAIL.sub("user@example.com", text)


def leaks(text: str, place: Place) -> list[str]:
    """Return the details of this machine that are left in a text, or [] if it may be published."""
    words = [str(place.root), place.root.name]
    if getpass.getuser() not in ("user", "root"):
        words.append(f"/{getpass.getuser()}/")
    for name in LOGICAL:
        text = text.replace(name, "")
    homes = [home for home in _homes() if re.search(rf"(?<![A-Za-z0-9]){re.escape(home)}(?![A-Za-z0-9])", text)]
    return [word for word in words if word in text] + homes


def _homes() -> list[str]:
    """Return the person's homes except the neutral one."""
    return [path for path in {str(Path.home())} if path not in ("/", HOME)]
