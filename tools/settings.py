"""Writes docs/settings.md from `shim.lib.settings` and the command's own help. `--check` exits with 1 if it is not current."""

from __future__ import annotations

import sys

from tools.generated_files import ROOT, settle

TARGET = ROOT / "docs" / "settings.md"
COMPUTED_DEFAULTS = {
    "agents": "none",
    "directory": "the current directory",
    "data_dir": "`$XDG_DATA_HOME/opencode-shim`, or `~/.local/share/opencode-shim`",
}

TEXT = """<!-- Written by tools/settings.py (`make gen`); do not edit. -->
# Settings

Each setting can be given in four ways; the first that has it wins:

1. a flag of `opencode-shim serve` or `web`, where the table names one
2. an environment variable
3. a TOML file, with the names below at its top level: `shim.toml` in the current directory, then
   `$XDG_CONFIG_HOME/opencode-shim/config.toml` (`~/.config` if unset)
4. the default

`shim.toml` may have come with a repository, so it may only set {of_a_project}. With any
other setting in it the server does not start, and says where to put it.

`opencode-shim config` prints what is set and where it came from; `--all` prints the defaults too, and `--json` is for programs.

A running server reads its files again at SIGHUP (`opencode-shim service` and `systemctl reload` send it) and when one of them has
changed. It takes over {live}, and
logs which other changes need a restart. The certificate is read again too. Settings that cannot be used change nothing.
`opencode-shim config set KEY VALUE` and `config unset KEY` write the file, and say when it holds.

| name | flag | environment | default | what it is |
|---|---|---|---|---|
{rows}

An agent of your own, in `config.toml` (any program that speaks the Agent Client Protocol on its stdin and stdout):

    [agents.my-agent]
    command = ["my-agent", "--acp"]
    title = "My agent"
    env = {{ MY_AGENT_KEY = "..." }}

Binaries of agents are looked up on PATH, or taken from `SHIM_CLAUDE_BIN` and the like ({binaries}); the `opencode` of
`tui` and `web` from `SHIM_OPENCODE_BIN`.
"""


def render() -> str:
    """Text of docs/settings.md."""
    from typer.main import get_group

    from shim.cli.commands import cli
    from shim.lib.settings import LIVE, OF_A_PROJECT, Settings, env_name
    from universal.registry import agents

    flags = {option.name for option in get_group(cli).commands["serve"].params}
    rows: list[str] = []
    for name, field in Settings.model_fields.items():
        default = COMPUTED_DEFAULTS.get(name) or (
            f"`{str(field.default).lower()}`" if field.default not in (None, ()) else "unset"
        )
        flag = f"`--{name.replace('_', '-')}`" if name in flags else ""
        rows.append(f"| `{name}` | {flag} | `{env_name(name)}` | {default} | {' '.join((field.description or '').split())} |")
    binaries = ", ".join(
        f"`{spec.program.env_override}`" for spec in agents().values() if spec.program.env_override and spec.program.binaries
    )
    of_a_project = ", ".join(f"`{name}`" for name in Settings.model_fields if name in OF_A_PROJECT)
    live = ", ".join(f"`{name}`" for name in Settings.model_fields if name in LIVE)
    return TEXT.format(rows="\n".join(rows), binaries=binaries, of_a_project=of_a_project, live=live)


def main(arguments: list[str]) -> int:
    """Write, or with `--check` compare. Returns the exit code."""
    return settle({TARGET: render()}, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
