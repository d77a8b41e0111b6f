"""The spec of Amp: how to find, start and offer it. The codec is imported when it is first needed."""

from __future__ import annotations

from universal.agent_spec import (
    AgentAbilities,
    AgentProgram,
    AgentRules,
    AgentSpec,
    Capabilities,
    LoginRun,
    LoginSigns,
    ProjectSettingsUse,
)
from universal.agents.amp.wire import CATALOGUE, MODES, NAME
from universal.codec import Codec, IdFactory
from universal.permissions import Enforcement


def _make(ids: IdFactory) -> Codec:
    from universal.agents.amp.codec import AmpCodec  # imported late: a server without Amp never loads it

    return AmpCodec(ids)


# Amp reveals its login only by asking its server.
AMP = AgentSpec(
    name=NAME,
    title="Amp",
    make=_make,
    program=AgentProgram(
        binaries=("amp",),
        version_args=("--version",),
        env_override="SHIM_AMP_BIN",
        tested=("0.0.1774569934",),
        unrecorded="Current versions of Amp run the conversation on Amp's own server, with an account: it cannot be led to the "
        "scripted model. What there is was recorded with version 0.0.1774569934 (March 2026), the last one that could.",
        npm=("@ampcode/cli",),
        install_hint="Install Amp with `npm install -g @ampcode/cli`, then run `amp login`.",
        login_hint="Run `amp login` in a terminal, or set AMP_API_KEY.",
        login_run=LoginRun(("login",), takes_code=True),
        login_signs=LoginSigns(("AMP_API_KEY",), ("~/.local/share/amp/secrets.json",)),
        key_variables=("AMP_API_KEY",),
    ),
    abilities=AgentAbilities(
        capabilities=Capabilities(reasoning=True, interrupt=True, resume=True, usage=True, mcp=True),
        modes=MODES,
        catalogue=CATALOGUE,
        lacks={
            "deltas": "Amp's stream has whole messages only; each text is told as one piece.",
            "permissions": "Its stream has no channel for approvals: a tool that is not allowed ends the run.",
            "questions": "Its stream has no channel for questions.",
            "model_switch": "Amp chooses its models itself.",
            "plan": "Its stream tells no limits.",
            "cost": "Amp tells credits on its server, not in its stream.",
        },
    ),
    rules=AgentRules(
        enforcement=Enforcement(
            "Amp's own engine, which gets them as `amp.permissions` and `amp.tools.disable` of its settings",
            {
                "read": "Amp's own reading is held; files that a command reads are not seen.",
                "external_directory": "Paths are held as they are written; links, and what a command opens by itself, are not "
                "seen.",
                "doom_loop": "Amp does not look for loops.",
            },
            partial="A pattern is compared with the words of a call: a link, a file that it names from the "
            "repository's root where the session runs in a folder below, or an `allow` in the project's `.amp/settings.json`, "
            "goes past it.",
            no_asks="Amp cannot ask you here: what a rule asks about is refused.",
        ),
        project_settings=ProjectSettingsUse(
            ("amp",), rule_files=(".amp/settings.json", ".amp/settings.jsonc", ".config/amp/settings.json")
        ),
    ),
)
