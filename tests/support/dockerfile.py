"""Reads a Dockerfile: stages with their instructions, continuation lines joined, `${NAME}` of ARG and ENV filled in."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

KNOWN = {"ARG", "COPY", "CMD", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "RUN", "USER", "VOLUME", "WORKDIR"}


@dataclass
class Stage:
    """One image: `base`, and what is done in it, in order. `variables` are those of ARG and ENV at its end."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


def substitute(text: str, variables: dict[str, str]) -> str:
    """`${NAME}` replaced; unknown names stay for the shell."""
    return re.sub(r"\$\{(\w+)\}", lambda match: variables.get(match[1], match[0]), text)


def parse(path: Path, arguments: dict[str, str]) -> list[Stage]:
    """The stages. In: `arguments`, as `docker build --build-arg` takes them. Raises ValueError for an unknown instruction."""
    lines = [line for line in path.read_text("utf-8").splitlines() if not re.match(r"\s*#", line)]
    joined = re.sub(r"\\\n", "", "\n".join(lines))
    stages: list[Stage] = []
    outer: dict[str, str] = {}
    for line in filter(None, map(str.strip, joined.splitlines())):
        word, _, rest = line.partition(" ")
        if word not in KNOWN:
            raise ValueError(f"{word} is no instruction that is known here")
        if word == "FROM":
            base, _, name = substitute(rest, outer).partition(" AS ")
            stages.append(Stage(name, base))
            continue
        variables = stages[-1].variables if stages else outer
        if word == "ARG":
            name, _, default = rest.partition("=")
            variables[name] = arguments.get(name, default.strip('"'))
        elif word == "ENV":
            for name, value in re.findall(r"(\w+)=(\S+)", rest):
                variables[name] = value
                stages[-1].steps.append(("ENV", f"{name}={value}"))
        else:
            stages[-1].steps.append((word, rest))
    return stages


def words(rest: str) -> list[str]:
    """The JSON form of CMD, ENTRYPOINT, VOLUME; else the words."""
    return list(json.loads(rest)) if rest.startswith("[") else rest.split()


def last(stage: Stage, instruction: str) -> str:
    """The last of an instruction, which counts."""
    return next(rest for word, rest in reversed(stage.steps) if word == instruction)
