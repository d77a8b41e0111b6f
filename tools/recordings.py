"""Writes docs/recordings.md: the recorded versions of each agent, and what changed from one version to the next.

`--check` compares (exit 1 if the page is not current). The comparison looks at kinds and fields of the agents' own messages
(`shim.dev.record.report`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.generated_files import ROOT, settle

TARGET = ROOT / "docs" / "recordings.md"
AGENTS = ROOT / "compat_fixtures" / "agents"
HEAD = """<!-- Written by tools/recordings.py (`make gen`); do not edit. -->
# What changed from version to version of an agent?

A recording is one process of a real agent: what we wrote, what it said, how it ended. `scripts/recordings show
agents/AGENT/VERSION/SCENE` prints one of those in `compat_fixtures/agents`. Each run of the tests plays all of them to our code. No line may be unparsed, and the laws of turns, items and
requests hold (`tests/translate`).

## Is there a newer version than the tested one?

    make outdated

asks npm and PyPI for all agents, clients, SDKs and programs of a platform, in about 3 seconds, a line each. The exit code is
1 when something is behind and 2 when a registry does not answer. `make nightly` writes the lines into
`build/outdated-DATE.txt`; `.github/workflows/outdated.yml` does the same each night and keeps one issue up to date.
`opencode-shim doctor` tells on your machine which agents are newer than tested.

On 2026-11-23 at noon, in 2.9 seconds (20 more lines were "current", "held" or "not tested"). In the evening, after the
adoptions below, the last line was "Nothing is behind."

```
$ make outdated
kind      name                 package                                tested          newest                  verdict
agent     pi                   @earendil-works/pi-coding-agent        0.87.1          1.5.2                   behind      make adopt AGENT=pi VERSION=1.5.2
agent     claude-agent-acp     @agentclientprotocol/claude-agent-acp  0.100.0         0.101.0                 behind      make adopt AGENT=claude-agent-acp VERSION=0.101.0
platform  opencode             opencode-linux-x64                     1.18.33         1.18.34                 behind      make adopt AGENT=opencode VERSION=1.18.34

3 of 23 packages are behind.
```

## How do I adopt a new version of an agent?

    make adopt AGENT=pi VERSION=1.5.2

1. It installs the version from npm or PyPI into `.record/`, with the Node or the Python that it wants. When npm does not have
   all of it, the package of the program for this machine is tried, then the tarball with those dependencies that npm has.
2. It plays the scenes of `shim/dev/record/scenes.py` to it against the scripted model, in an empty home without network. After
   two equal failures at the start it stops. Scenes that the agent was known to have nothing for are tried too: "now
   possible".
3. It plays the new recordings to our code, and writes their goldens.
4. It compares them with the newest version below that the same recorder has made: kinds and fields of messages, and what a
   session shows (texts, tools, asks, questions, ends).
5. It drives the program over HTTP through `tests/e2e/test_agents.py`: idles, order, tools, permissions, a rule that denies,
   aborts, the agent killed, the server killed and started again.
6. It sets the tested version in the agent's row of the registry, the only place where it stands, pins it for the end-to-end
   tests where npm can install the package, and writes the tables.

The report tells the verdict first: adopt, nothing to do, needs code, or cannot install. It is kept beside the recordings
(`adoption.txt`), and the last ones are below. A version that was adopted and shows nothing new leaves all files as they were.
`ARGS=--dry` leaves the registry and the pins alone. Exit code: 0 adopt or nothing to do, 1 needs code, 2 cannot install.

| Pi 0.87.1 to 1.5.2 | by hand | `make adopt` |
|---|---|---|
| install | npm refuses in 5 seconds: a dependency is not published; find another way | falls back to the tarball, and says so |
| steps by hand | install, name the program and the Node, record, read the differences, run all tests, edit the version, write the tables | one command |
| files with the tested version to edit | 16 | none |
| differences told | 54 lines, most of them of other scenes | 19 lines |
| tests | all: 7 minutes | those of the new recordings, and the program over HTTP |
| time in all | not measured as a whole | 3.7 minutes one step after the other, 1.7 with steps side by side; two cores with a load of 8 |

Four scenes at a time run side by side, then the new recordings beside the driven program; a version is installed once.
Run again so on 2026-11-23, on the same machine with a load of 7 to 11: Pi 1.7 minutes (3.7 before), claude-agent-acp 2.1
(4.6 before), codex-acp 1.8, Qwen Code 3.2, and OpenCode 5.8 with a load of 12 (8.7 before). The reports below that name other
times were written before. Steps by hand: none.

First adoptions on 2026-11-29, two cores with a load of 7 to 12 by other work: Kimi Code 5.1 minutes, Gemini CLI 6.1, fast-agent 7.0,
Mistral Vibe 9.1, Copilot CLI 9.5, Kilo 23.4. Each said "needs code" at first: most of it was names
of tools, and what a card must say that its agent lacks. After that 21 tests over HTTP held with Kimi Code in 2.0 minutes, with
Mistral Vibe in 3.2 and with fast-agent in 3.1.

Again on 2026-11-30, beside other work at a load of 15 to 25. Gemini CLI (5.2 minutes) and Kilo (17.1) were adopted by a second
run. A run of a version that is adopted says "nothing to do" and leaves all files: Kimi Code 6.7 minutes, Copilot CLI 6.8, Qwen
Code 7.0, Gemini CLI 7.4, fast-agent 8.2, Mistral Vibe 12.7, Kilo 21.0. None wanted a step by hand.

## How do I adopt a new version of OpenCode as a client?

    make adopt-client VERSION=1.18.34

compares the document of that version's server with the one that is served (operations, schemas), and runs its `run --attach`,
TUI and web UI on our server. With `ARGS=--write` a document that differs is put beside the others; `make gen` takes the
newest.

```
$ make adopt-client VERSION=1.18.34
OpenCode 1.18.34 as a client: adopt

The package of 1.18.34 cannot be installed: No matching version found for opencode-ai@1.18.34.
Installed: the platform.

document, against 1.18.33:
  - no difference
clients: 8 tests of run --attach, TUI and web UI

2.0 minutes.
```

## How do I record only?

    make record AGENT=claude VERSION=2.1.329

does steps 1 and 2 (without a version: the newest). Paths and secrets are removed. A recording that still holds one is not
written. Beside a folder that an earlier recorder made, whose recordings tests read by their names, a folder `VERSION-again`
is written. `opencode-shim record AGENT` does it with the installed agent, into a folder of yours.

## How do I record an agent of my own?

    opencode-shim record cline --command "cline --acp" --env OPENAI_BASE_URL={{url}}/v1 --one-file

records any program that speaks ACP; an agent of `[agents.NAME]` in your settings needs no `--command`. The scripted model
reads names and schemas of the tools from the agent's requests, so it can call them. `{{url}}` is the model's address, in
`--env` and in the files of `--home DIR`, which are put into the agent's empty home. `--one-file` packs the recordings,
without paths, names and keys, to be sent.

{cannot}

## What was recorded?

"New" and "gone" compare kinds of messages and fields with the version before, in the scenes that both have. Folders of an earlier
recorder hold other scenes (wrong flags, broken pipes, slash commands ...) and are not compared.

| agent | version | scenes | recorded by |
|---|---|---:|---|
{table}

{adoptions}
"""  # noqa: E501 - a row of a table is one line
ADOPTION = """## What did the adoption of {agent} {version} tell?

```
$ make adopt AGENT={name} VERSION={version}
{report}
```
"""


def folders() -> list[Path]:
    """The folders of recordings, one for each agent and version. The mock has none."""
    from shim.dev.record.take import order

    paths = [path for path in AGENTS.glob("*/*") if path.is_dir() and path.parent.name != "mock"]
    return sorted(paths, key=lambda path: (path.parent.name, *order(path)))


def _name(folder: Path) -> tuple[str, str]:
    """The names of the agent and the version, as a person reads them."""
    if folder.parent.name == "acp":
        kind = re.sub(r"-\d.*", "", folder.name)
        return f"{kind} (ACP)", folder.name.removeprefix(f"{kind}-")
    return folder.parent.name, folder.name


def _reports() -> Iterator[str]:
    from shim.dev.record.report import lines
    from shim.dev.record.take import difference_of, is_own_folder, version_before

    for folder in folders():
        before = version_before(folder) if is_own_folder(folder) else None
        if before is not None and folders().index(before) < folders().index(folder):
            agent, version = _name(folder)
            yield f"## {agent} {version}, against {_name(before)[1]}\n"
            yield "\n".join(lines(difference_of(before, folder))) + "\n"


def _adoptions() -> Iterator[str]:
    from shim.dev.record.take import AGAIN

    for path in [folder / "adoption.txt" for folder in folders() if (folder / "adoption.txt").exists()]:
        report = path.read_text("utf-8").rstrip()
        agent, version = _name(path.parent)
        version = version.removesuffix(AGAIN)
        yield ADOPTION.format(agent=agent, version=version, name=report.split()[0], report=report)


def render() -> str:
    """Text of docs/recordings.md."""
    from shim.dev.record.driver import is_own
    from shim.dev.record.homes import CANNOT
    from shim.dev.record.packs import recordings_in

    rows: list[str] = []
    for folder in folders():
        files = recordings_in(folder)
        scenes = {re.sub(r"\.\d+.*$", "", path.stem) for path in files}
        how = "`opencode-shim record`" if all(map(is_own, files)) else "an earlier recorder"
        agent, version = _name(folder)
        rows.append(f"| {agent} | {version} | {len(scenes)} | {how} |")
    cannot = "\n".join(f"- {name} cannot be recorded: {why}" for name, why in CANNOT.items())
    head = HEAD.format(cannot=cannot, table="\n".join(rows), adoptions="\n".join(_adoptions()))
    return head + "\n".join(_reports()).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    """Write, or with `--check` compare. Returns the exit code."""
    return settle({TARGET: render()}, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
