"""Plays any recording of any agent: which replay knows the form of which recording."""

from __future__ import annotations

from collections.abc import Callable

from tests.support import recordings
from tests.support.acp_replay import AcpReplay
from tests.support.amp_replay import AmpReplay
from tests.support.claude_replay import ClaudeReplay
from tests.support.codex_replay import CodexReplay
from tests.support.command_replay import CommandReplay
from tests.support.mock_replay import MockReplay
from tests.support.opencode_replay import OpenCodeReplay
from tests.support.pi_replay import PiReplay
from tests.support.recordings import Recording
from tests.support.replay import Replay, codec_of

FORMS: dict[str, Callable[[Recording], Replay]] = {
    "acp": lambda recording: AcpReplay.of(recording.version),
    "amp": lambda _: AmpReplay(),
    "claude": lambda _: ClaudeReplay(),
    "codex": lambda _: CodexReplay(),
    "mock": lambda _: MockReplay(),
    "opencode": lambda _: OpenCodeReplay(),
    "pi": lambda _: PiReplay(),
}
"""Folder of recordings without our commands -> a replay for one of them."""


def replay_of(name: str, recording: Recording) -> Replay:
    """A replay that can play this recording."""
    if not name.startswith("mock/") and recordings.has_commands(name):
        return CommandReplay(recording.agent, codec_of(recording.agent))
    return FORMS[name.partition("/")[0]](recording)


def play(name: str) -> Replay:
    """One recording, played to its end. `name`: its path below compat_fixtures/agents without the ending."""
    recording = recordings.read(name)
    return replay_of(name, recording).play(recording)
