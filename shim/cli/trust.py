"""`opencode-shim trust`: shows what a project would run and stores whether it is trusted. It needs no server.

A server on the same data directory applies the decision at its next prompt in the project.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from shim.agents.setup import agents_of
from shim.cli import screen
from shim.host.files.roots import within
from shim.host.trust.project_settings import ProjectScanner, ProjectSettings
from shim.host.trust.trust_store import FILE, TrustFile, each_agents_settings
from shim.lib.clock import SystemClock
from shim.lib.errors import ShimError
from shim.lib.settings import Settings

LIST_LIMIT = 20
"""Maximum number of entries of one project that `--list` prints."""


def decisions(settings: Settings) -> TrustFile:
    """Return the file of decisions of the data directory."""
    return TrustFile(settings.data_dir / FILE, SystemClock())


def look(directory: Path) -> ProjectSettings:
    """Return the settings that the project of a directory brings. Raises ShimError if there is no such directory."""
    place = directory.expanduser().resolve()
    if not place.is_dir():
        raise ShimError(f"There is no directory {place}.")
    return ProjectScanner(str(Path.home())).look(str(place))


def parts(settings: Settings, project: ProjectSettings) -> list[ProjectSettings]:
    """Return, for each agent, the part of the settings that it would read."""
    return each_agents_settings(project, [spec.rules.project_settings.reads for spec in agents_of(settings).values()])


def trust(settings: Settings, directory: Path, out: screen.Console, confirm: Callable[[str], bool]) -> int:
    """Print what would run, ask, and store a yes. Returns 0 if trusted or if there is nothing to trust, else 1."""
    project = look(directory)
    several = parts(settings, project)
    if not several:
        screen.line(out, f"Nothing in {project.root} would run a program or allow a call: there is nothing to trust.")
        return 0
    file = decisions(settings)
    show(out, project)
    if all(file.decision(part) == "trusted" for part in several):
        screen.line(out, "It is trusted already.")
        return 0
    if not confirm("Trust this project? These settings then take effect until they change."):
        screen.line(out, "Not trusted.")
        return 1
    file.decide(several, trusted=True)
    screen.line(out, f"Trusted. To undo this: opencode-shim trust --remove {project.root}")
    return 0


def show(out: screen.Console, project: ProjectSettings) -> None:
    """Print one line for each entry. Agents that read the same file share a line."""
    screen.line(out, f"{project.root} brings settings that run programs or allow calls:")
    families: dict[tuple[str, str], list[str]] = {}
    for setting in project.settings:
        families.setdefault((setting.effect, setting.line), []).append(setting.family)
    for (effect, line), names in families.items():
        screen.line(out, f"  {effect:<6} {line}  ({', '.join(dict.fromkeys(names))})")


def show_all(settings: Settings, out: screen.Console) -> int:
    """Print all decisions, and the directories that are always trusted."""
    if settings.trust_all:
        screen.line(out, "Every project is trusted (trust_all).")
    for root in settings.trusted_roots:
        screen.line(out, f"trusted   {root} and everything in it (trusted_roots)")
    rows = decisions(settings).decisions()
    for row in rows:
        screen.line(out, f"{'trusted' if row.trusted else 'declined':<9} {row.directory}  since {row.at[:10]}")
        for line in row.settings[:LIST_LIMIT]:
            screen.line(out, f"            {line}")
    if not rows and not settings.trusted_roots and not settings.trust_all:
        screen.line(out, "No project is trusted or declined.")
    return 0


def remove(settings: Settings, directory: Path, out: screen.Console) -> int:
    """Forget the decisions about a directory, so that the next prompt there asks again. Returns 1 if there were none."""
    place = str(directory.expanduser().resolve())
    file = decisions(settings)
    count = file.remove(place) or file.remove(look(directory).root if Path(place).is_dir() else place)
    screen.line(out, "Forgotten: the next prompt there asks again." if count else f"There is no decision about {place}.")
    return 0 if count else 1


def state(settings: Settings, directory: Path) -> str:
    """Return `doctor`'s line about a directory: whether its project brings settings, and whether it is trusted."""
    if settings.trust_all:
        return "every project is trusted (trust_all)"
    if settings.trusted_roots and within(str(directory), settings.trusted_roots):
        return f"{directory} is always trusted (trusted_roots)"
    project = look(directory)
    several = parts(settings, project)
    if not several:
        return f"nothing in {project.root} would run or allow anything"
    file = decisions(settings)
    decided = [file.decision(part) for part in several]
    if all(decision == "trusted" for decision in decided):
        return f"{project.root} is trusted ({len(project.settings)} settings)"
    word = "declined" if "declined" in decided else "not trusted yet"
    count = len(project.settings)
    return f"{project.root} brings {count} settings that run or allow something, {word}: opencode-shim trust {project.root}"
