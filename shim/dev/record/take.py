"""Records all scenes of one agent into a folder and compares them with the version before."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shim.dev.record.driver import TURN_S, Driver, SceneFailed, is_own, recorded_rows, text_of
from shim.dev.record.homes import Place, Target, target
from shim.dev.record.packs import recordings_in
from shim.dev.record.report import Difference, Kinds, compare, kinds_of
from shim.dev.record.scenes import SCENES, Scene
from shim.dev.record.scrub import leaks, scrub
from shim.dev.scripted.server import ScriptedModel, serve
from shim.lib.errors import AgentError, AgentNotFound, ShimError
from shim.processes.locate import locate
from universal.agent_spec import AgentSpec
from universal.lib.jsonvalue import obj, text

SAME_FAILURES = 2
"""Number of equal failures at the start after which the other scenes are skipped, because the agent does not run at all."""
AGAIN = "-again"
"""Ending of the folder beside one of an earlier recorder, for the scenes of this recorder."""
AT_ONCE = 4
"""Maximum scenes that run at the same time, each in its own home."""
ATTEMPT_S = 30.0
"""Timeout in seconds of a step in a scene whose feature the agent is known to lack."""


@dataclass(frozen=True, slots=True)
class RecordingResult:
    """The recordings of one version and their report.

    `skipped` and `failed`: scene -> reason. `possible`: feature that the agent was known to lack -> its scenes, all successful.
    `before`: the folder of the version to compare with.
    """

    agent: str
    version: str
    folder: Path
    scenes: list[str] = field(default_factory=list[str])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    possible: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    unparsed: list[str] = field(default_factory=list[str])
    before: str | None = None
    difference: Difference | None = None


def choose_scenes(names: Sequence[str], to: Target) -> tuple[dict[str, Scene], dict[str, str]]:
    """Return the scenes to play, and the unsupported ones with the reason. Raises ShimError for unknown names."""
    unknown = [name for name in names if name not in SCENES]
    if unknown:
        raise ShimError(f"There is no scene {', '.join(unknown)}. Scenes: {', '.join(SCENES)}.")
    scenes = {name: SCENES[name] for name in names or SCENES}
    skipped = {name: to.lacks[scene.needs] for name, scene in scenes.items() if scene.needs in to.lacks}
    return {name: scene for name, scene in scenes.items() if name not in skipped}, skipped


async def take(
    spec: AgentSpec,
    out: Path,
    environ: dict[str, str],
    *,
    names: Sequence[str] = (),
    version: str | None = None,
    to: Target | None = None,
    secrets: Collection[str] = (),
    say: Callable[[str], None] = lambda _: None,
) -> RecordingResult:
    """Play the scenes (all, or those of `names`) and write OUT/AGENT/VERSION/SCENE.jsonl. A scene that fails writes nothing.

    In: `environ` to look for the agent's program in; `version`, if the program cannot tell it; `to`, for an agent that is not in
    the table; `secrets` that no recording may hold. Raises: AgentNotFound, ShimError.
    """
    to = to or target(spec.name)
    scenes, skipped = choose_scenes(names, to)
    located = await locate(spec, environ)
    if located.path is None:
        raise AgentNotFound(f"{spec.title} cannot be recorded: {located.why}")
    actual_version = version or located.version or packaged_version(Path(located.path))
    if actual_version is None:
        raise ShimError(f"{located.path} does not tell its version. Name it with --version.")
    result = RecordingResult(spec.name, actual_version, folder_of(out, spec.name, to, actual_version))
    async with serve(ScriptedModel()) as port:
        stage = _Stage(spec, located.path, to, f"http://127.0.0.1:{port}", frozenset(secrets))
        order = list(scenes)
        await stage.play_all(result, {name: scenes[name] for name in order[:SAME_FAILURES]}, say)
        _sort(result)
        if has_failed_at_start(result):
            say(f"The first {SAME_FAILURES} scenes failed alike; the other {len(scenes) - SAME_FAILURES} were not played.")
            return result
        rest = {name: scenes[name] for name in order[SAME_FAILURES:]}
        lacking = {need: [name for name in skipped if SCENES[name].needs == need] for need in map(_need, skipped)}
        async with asyncio.TaskGroup() as group:
            group.create_task(stage.play_all(result, rest, say))
            for need, names in lacking.items():
                group.create_task(stage.attempt(result, need, names, skipped[names[0]], say))
        _sort(result)
    return with_difference(result)


def folder_of(out: Path, agent: str, to: Target, version: str) -> Path:
    """The folder for the recordings of a version."""
    folder = out / f"{to.folder}{version}" if to.folder else out / agent / version
    if not all(map(is_own, recordings_in(folder))):
        return folder.with_name(folder.name + AGAIN)  # tests read those of an earlier recorder by their names
    return folder


def _sort(result: RecordingResult) -> None:
    """Put the scenes into their order, since they end in any."""
    order = list(SCENES).index
    result.scenes.sort(key=order)
    failed = sorted(result.failed.items(), key=lambda row: order(row[0]))
    result.failed.clear()
    result.failed.update(failed)


def _need(scene: str) -> str:
    return SCENES[scene].needs


def has_failed_at_start(result: RecordingResult) -> bool:
    """Whether the first scenes failed in the same way, so that the others are skipped."""
    reasons = list(result.failed.values())
    return not result.scenes and len(reasons) >= SAME_FAILURES and len(set(reasons)) == 1


@dataclass(frozen=True, slots=True)
class _Stage:
    """One agent and the scripted model at `url`."""

    spec: AgentSpec
    binary: str
    to: Target
    url: str
    secrets: frozenset[str]
    gate: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def play(
        self, result: RecordingResult, name: str, scene: Scene, say: Callable[[str], None], *, turn_s: float = TURN_S
    ) -> None:
        """Play a scene in a fresh home, when it is its turn, and write its recordings if it goes well."""
        async with self.gate:
            await self._play(result, name, scene, say, turn_s)

    async def _play(self, result: RecordingResult, name: str, scene: Scene, say: Callable[[str], None], turn_s: float) -> None:
        place = await Place.make()
        driver = Driver(self.spec, self.binary, result.version, name, scene, place, turn_s=turn_s)
        try:
            plan: Mapping[str, str] = self.to.plan if scene.needs == "plan" else {}
            await driver.play({**self.to.prepare(place, self.url), **plan}, self.to.model, self.to.mode)
            files: dict[str, str] = {}
            for number, part in enumerate(driver.parts, 1):
                file = name if len(driver.parts) == 1 else f"{name}.{number}"
                files[file] = scrub(text_of(part), place, self.url, self.binary, self.secrets)
                if leftovers := leaks(files[file], place):
                    raise SceneFailed(f"The recording still holds {', '.join(leftovers)}.")
        except (SceneFailed, AgentError) as error:
            result.failed[name] = str(error)
            say(f"{name}: failed: {error}")
        else:
            result.folder.mkdir(parents=True, exist_ok=True)
            for file, words in files.items():
                (result.folder / f"{file}.jsonl").write_text(words, "utf-8")
            result.scenes.append(name)
            say(f"{name}: {sum(len(part.rows) for part in driver.parts)} rows")
        finally:
            result.unparsed.extend(driver.unparsed)
            place.remove()

    async def play_all(self, result: RecordingResult, scenes: Mapping[str, Scene], say: Callable[[str], None]) -> None:
        """Play scenes concurrently, because they mostly wait."""
        async with asyncio.TaskGroup() as group:
            for name, scene in scenes.items():
                group.create_task(self.play(result, name, scene, say, turn_s=self.to.turn_s or TURN_S))

    async def attempt(
        self, result: RecordingResult, need: str, names: Sequence[str], why: str, say: Callable[[str], None]
    ) -> None:
        """Play the scenes of a feature that the agent is known to lack. If all succeed, a newer version has it."""
        attempt = RecordingResult(result.agent, result.version, result.folder)
        for name in names:
            await self.play(attempt, name, SCENES[name], lambda _: None, turn_s=ATTEMPT_S)
            if attempt.failed:
                break
        else:
            say(f"now possible: {need}, although: {why}")
            result.scenes.extend(names)
            result.unparsed.extend(attempt.unparsed)
            result.possible[need] = list(names)
            return
        for path in [path for name in attempt.scenes for path in scene_files(result.folder, name)]:
            path.unlink(missing_ok=True)
        result.skipped.update(dict.fromkeys(names, why))


def packaged_version(binary: Path) -> str | None:
    """Return the version of the npm package that a program belongs to."""
    for folder in binary.resolve().parents:
        file = folder / "package.json"
        if file.exists():
            try:
                version = text(obj(json.loads(file.read_text("utf-8"))).get("version"))
            except ValueError:
                return None
            if version:
                return version
    return None


def order(folder: Path) -> tuple[str, list[int]]:
    """Return the sort key of a folder of recordings: `codex-acp-2.5.0` gives ("codex-acp-", [2, 5, 0])."""
    return re.sub(r"\d.*", "", folder.name), [int(number) for number in re.findall(r"\d+", folder.name)]


def version_before(folder: Path) -> Path | None:
    """The folder of the next lower version, else of any other version of the agent, or None.

    Only recordings of this recorder count, because others have other scenes.
    """
    candidates = [p for p in folder.parent.glob("*") if p != folder and order(p)[0] == order(folder)[0] and is_own_folder(p)]
    ordered = sorted(candidates, key=order)
    below = [path for path in ordered if order(path) < order(folder)]
    return below[-1] if below else ordered[0] if ordered else None


def is_own_folder(folder: Path) -> bool:
    """Whether this recorder wrote all recordings of a folder."""
    files = recordings_in(folder)
    return bool(files) and all(map(is_own, files))


def scene_of(path: Path) -> str:
    """The scene of a recording. A scene with more than one process has more than one file: `resume.1`, `resume.2`."""
    return re.sub(r"\.\d+$", "", path.stem)


def scene_files(folder: Path, scene: str) -> list[Path]:
    """The recordings of a scene, one for each process."""
    return [path for path in recordings_in(folder) if scene_of(path) == scene]


def scenes_in(folder: Path) -> set[str]:
    """Names of the scenes of a folder."""
    return {scene_of(path) for path in recordings_in(folder)}


def kinds_in(folder: Path, scenes: Collection[str]) -> Kinds:
    """Kinds and fields of the recordings of some scenes of a folder."""
    return kinds_of(recorded_rows(path) for path in recordings_in(folder) if scene_of(path) in scenes)


def difference_of(before: Path, now: Path) -> Difference:
    """Kinds and fields that are new or gone in the scenes that both folders have."""
    common = scenes_in(before) & scenes_in(now)
    return compare(kinds_in(before, common), kinds_in(now, common))


def with_difference(result: RecordingResult) -> RecordingResult:
    """Add the difference to the version before."""
    before = version_before(result.folder)
    if before is None or not result.scenes:
        return result
    return replace(result, before=before.name, difference=difference_of(before, result.folder))
