"""Records all scenes of one agent into a folder and compares them with the version before."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from shim.errors import AgentError, AgentNotFound, ShimError
from shim.record.driver import Driver, SceneFailed, is_own, spoken, text_of
from shim.record.homes import Place, Target, target
from shim.record.report import Difference, Kinds, compare, kinds_of
from shim.record.scenes import SCENES, Scene
from shim.record.scrub import leaks, scrub
from shim.runtime.locate import locate
from shim.scripted.server import ScriptedModel, serve
from universal.codec import AgentSpec
from universal.jsonvalue import obj, text


@dataclass(frozen=True, slots=True)
class Taken:
    """The result. `skipped` and `failed` map a scene to the reason; `before` is the version to compare with."""

    agent: str
    version: str
    folder: Path
    scenes: list[str] = field(default_factory=list[str])
    skipped: dict[str, str] = field(default_factory=dict[str, str])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    unparsed: list[str] = field(default_factory=list[str])
    before: str | None = None
    difference: Difference | None = None


def chosen(names: Sequence[str], to: Target) -> tuple[dict[str, Scene], dict[str, str]]:
    """Return the scenes to play, and the unsupported ones with the reason. Raises ShimError for unknown names."""
    unknown = [name for name in names if name not in SCENES]
    if unknown:
        raise ShimError(f"There is no scene {', '.join(unknown)}. Scenes: {', '.join(SCENES)}.")
    wanted = {name: SCENES[name] for name in names or SCENES}
    skipped = {name: to.lacks[scene.needs] for name, scene in wanted.items() if scene.needs in to.lacks}
    return {name: scene for name, scene in wanted.items() if name not in skipped}, skipped


async def take(
    spec: AgentSpec,
    out: Path,
    environ: dict[str, str],
    *,
    names: Sequence[str] = (),
    version: str | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Taken:
    """Play the scenes (all, or those of `names`) and write OUT/AGENT/VERSION/SCENE.jsonl. A scene that fails writes nothing.

    In: `environ` to look for the agent's program in; `version`, if the program cannot tell it. Raises: AgentNotFound; ShimError,
    also for a folder that holds recordings of another recorder.
    """
    to = target(spec.name)
    scenes, skipped = chosen(names, to)
    located = await locate(spec, environ)
    if located.path is None:
        raise AgentNotFound(f"{spec.title} cannot be recorded: {located.why}")
    known = version or located.version or packaged_version(Path(located.path))
    if known is None:
        raise ShimError(f"{located.path} does not tell its version. Name it with --version.")
    folder = out / f"{to.folder}{known}" if to.folder else out / spec.name / known
    if others := [path.name for path in sorted(folder.glob("*.jsonl")) if not is_own(path)]:
        raise ShimError(
            f"{folder} has {len(others)} recordings of an earlier recorder ({others[0]} ...), which tests read by their names; "
            "they are not mixed with new ones. Record another version, or name another folder with --out."
        )
    taken = Taken(spec.name, known, folder, skipped=skipped)
    async with serve(ScriptedModel()) as port:
        for name, scene in scenes.items():
            await _scene(taken, spec, located.path, name, scene, to, f"http://127.0.0.1:{port}", say)
    return compared(taken)


async def _scene(
    taken: Taken, spec: AgentSpec, binary: str, name: str, scene: Scene, to: Target, url: str, say: Callable[[str], None]
) -> None:
    place = await Place.make()
    driver = Driver(spec, binary, taken.version, name, scene, place)
    try:
        await driver.play(to.prepare(place, url), to.model, to.mode)
        files: dict[str, str] = {}
        for number, part in enumerate(driver.parts, 1):
            file = name if len(driver.parts) == 1 else f"{name}.{number}"
            files[file] = scrub(text_of(part), place, url, binary)
            if left := leaks(files[file], place):
                raise SceneFailed(f"The recording still holds {', '.join(left)}.")
    except (SceneFailed, AgentError) as error:
        taken.failed[name] = str(error)
        say(f"{name}: failed: {error}")
    else:
        taken.folder.mkdir(parents=True, exist_ok=True)
        for file, words in files.items():
            (taken.folder / f"{file}.jsonl").write_text(words, "utf-8")
        taken.scenes.append(name)
        say(f"{name}: {sum(len(part.rows) for part in driver.parts)} rows")
    finally:
        taken.unparsed.extend(driver.unparsed)
        place.remove()


def packaged_version(binary: Path) -> str | None:
    """Return the version of the npm package that a program belongs to."""
    for folder in binary.resolve().parents:
        file = folder / "package.json"
        if file.exists():
            try:
                found = text(obj(json.loads(file.read_text("utf-8"))).get("version"))
            except ValueError:
                return None
            if found:
                return found
    return None


def order(folder: Path) -> tuple[str, list[int]]:
    """Return the sort key of a folder of recordings: `codex-acp-2.5.0` gives ("codex-acp-", [2, 5, 0])."""
    return re.sub(r"\d.*", "", folder.name), [int(number) for number in re.findall(r"\d+", folder.name)]


def version_before(folder: Path) -> Path | None:
    """Return the folder of the next lower version, else of another one of the same agent, or None."""
    others = [p for p in folder.parent.glob("*") if p.is_dir() and p != folder and order(p)[0] == order(folder)[0]]
    ordered = sorted(others, key=order)
    below = [path for path in ordered if order(path) < order(folder)]
    return below[-1] if below else ordered[0] if ordered else None


def kinds_in(folder: Path) -> Kinds:
    """Return the kinds and fields of all recordings of a folder."""
    return kinds_of(map(spoken, sorted(folder.glob("*.jsonl"))))


def compared(taken: Taken) -> Taken:
    """Add the difference to the version before."""
    before = version_before(taken.folder)
    if before is None or not taken.scenes:
        return taken
    return replace(taken, before=before.name, difference=compare(kinds_in(before), kinds_in(taken.folder)))
