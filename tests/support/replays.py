"""Finds the replay engine for a recording, by its agent and its form, and plays it."""

from __future__ import annotations

from collections.abc import Callable

from tests.support import opencode2_agent_replay, recordings
from tests.support.acp_replay import AcpReplay
from tests.support.codex_replay import CodexReplay
from tests.support.command_replay import CommandReplay
from tests.support.opencode2_agent_replay import OpenCode2Replay
from tests.support.opencode_replay import OpenCodeReplay
from tests.support.pi_replay import PiReplay
from tests.support.recordings import Recording
from tests.support.replay import Replay, codec_of

FORMS: dict[str, Callable[[Recording], Replay]] = {
    "acp": lambda recording: AcpReplay.of(recording.version),
    "codex": lambda _: CodexReplay(),
    "opencode": lambda _: OpenCodeReplay(),
    "opencode2": lambda _: OpenCode2Replay(),
    "pi": lambda _: PiReplay(),
}
"""Folder of recordings without our commands -> a replay for one of them."""


OPENCODE2 = "opencode2/"
"""Beginning of the names of recordings of OpenCode 2's server, which stand beside those of agents: `opencode2/BUILD/SCENE`."""


def recording_of(name: str) -> Recording:
    """A recording by its name, wherever it stands."""
    if name.startswith(OPENCODE2):
        _, build, scene = name.split("/")
        return opencode2_agent_replay.read(build, scene)
    return recordings.read(name)


def replay_of(name: str, recording: Recording) -> Replay:
    """A replay that can play this recording."""
    if not name.startswith(OPENCODE2) and recordings.has_commands(name):
        return CommandReplay(recording.agent, codec_of(recording.agent))
    return FORMS[name.partition("/")[0]](recording)


def play(name: str) -> Replay:
    """One recording, played to its end. `name`: its path below compat_fixtures/agents without the ending."""
    recording = recording_of(name)
    return replay_of(name, recording).play(recording)
