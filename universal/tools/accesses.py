"""Translates a tool call into the permissions that it needs, in OpenCode's terms. Pure except for `resolve`.

A call needs first `external_directory` for each folder outside of the project that it touches, then its own permission.
Source: OpenCode 1.18.33, recordings `perm_*`; docs/permissions.md.
"""

from __future__ import annotations

import posixpath
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast
from urllib.parse import unquote

from universal.events import PermissionData
from universal.lib.diffs import with_index_header
from universal.lib.jsonvalue import arr, obj, text
from universal.lib.paths import is_in, relative
from universal.opencode_metadata import access_of, tool_of
from universal.permissions import Access, served_name
from universal.shell import parse_shell_line
from universal.tools import Row, tools_of
from universal.tools.cards import JsonObject, permission_of, view_call

EDIT_TOOLS = frozenset({"edit", "write", "multiedit", "apply_patch"})
_OF_FILES = frozenset({"edit", "read", "list", "external_directory"})

_WORDS_OF = {
    "git": 2,
    "npm": 2,
    "npx": 2,
    "pnpm": 2,
    "yarn": 2,
    "bun": 2,
    "cargo": 2,
    "go": 2,
    "uv": 2,
    "pip": 2,
    "docker": 2,
    "kubectl": 2,
    "make": 1,
}
"""Program -> number of leading words that `always` covers. For other programs it is 1."""


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a call: the session's `directory`, and further `roots` that belong to the project (the repository's root).

    `resolve` follows links; without it paths are compared as they are written. `is_folder` tells folders from files, `folds_case`
    whether a path lies on a disk to which `.ENV` is `.env`.
    """

    directory: str
    roots: tuple[str, ...] = ()
    home: str = "~"
    resolve: Callable[[str], str] = posixpath.normpath
    is_folder: Callable[[str], bool] = lambda path: path.endswith("/")
    folds_case: Callable[[str], bool] = lambda path: False

    @property
    def looks_at_files(self) -> bool:
        """True if the place reads the file system, which may take long."""
        return self.resolve is not posixpath.normpath

    def absolute(self, path: str, base: str = "") -> str:
        """Return an agent's path as absolute and without `..`. It is relative to `base`, or else to the directory."""
        expanded = self.home + path[1:] if path == "~" or path.startswith("~/") else path
        return posixpath.normpath(posixpath.join(base or self.directory, expanded))

    def is_inside(self, path: str) -> bool:
        """Return True if an absolute path lies in the project, both as written and with links followed."""
        folders = (self.directory, *self.roots)
        resolved = tuple(map(self.resolve, folders))
        return is_in(path, folders) and is_in(self.resolve(path), resolved)

    def names(self, path: str) -> tuple[str, ...]:
        """Return the patterns of a path relative to the directory. If links lead elsewhere, their target is added."""
        absolute = self.absolute(path)
        target = self.resolve(absolute)
        if target == absolute or target == self.resolve(self.directory) + absolute.removeprefix(self.directory):
            return (relative(absolute, self.directory),)
        return relative(absolute, self.directory), relative(target, self.resolve(self.directory))


def accesses_of(agent: str, data: PermissionData, place: Place) -> tuple[Access, ...]:
    """Return the accesses of a permission request in the order of the questions. The call's own permission comes last."""
    meta = data.metadata or {}
    if (native := access_of(meta, data.action)) is not None:  # a request of OpenCode itself, or of the session
        return (native,)
    name = str(meta.get("tool") or data.action)
    arguments = obj(meta.get("input"))
    view = view_call(agent, name, arguments, [])
    cwd = text(meta.get("cwd"))
    cwd = "" if not cwd or place.resolve(cwd) == place.resolve(place.directory) else cwd
    meta = {**meta, "cwd": cwd, **_places_in(tools_of(agent).get(name) or Row(name), arguments, cwd)}
    tool = permission_of(agent, name) or view.tool
    opaque = meta.get("opaque") is True
    build = _BUILDERS.get(tool)
    if meta.get("shell") is True and build is not _bash:
        other_tool = replace(_by_identity(agent, tool, view.input, meta, opaque), implied=True, again=True)
        accesses = (other_tool, *_bash("bash", view.input, meta, place, opaque))
    elif build is None:
        files = dict.fromkeys((*meta["named"], *(posixpath.join(cwd, file) for file in _files_in(arguments))))
        accesses = (*_perhaps_opened(files, place, view.input), _by_identity(agent, tool, view.input, meta, opaque))
    else:
        accesses = build(tool, view.input, meta, place, opaque)
    if also := obj(meta.get("also")):  # its name is only a title, by which no call may be judged less strictly
        by_kind = _by_identity(agent, text(also["kind"]), view.input, {**meta, "identity": also["title"]}, opaque)
        served = (replace(accesses[-1], permission=name) for name in _served_names(tool))
        accesses = (*(replace(access, implied=True, again=True) for access in (*served, by_kind)), *accesses)
    if name.startswith("mcp__") or tool == "mcp_resource":
        raw, call = "_".join(name.split("__")[1:]), accesses[-1]  # Codex leaves the names as they are
        more = (replace(call, permission=raw, implied=True, again=True),) if raw != served_name(raw) else ()
        accesses = (*more, *accesses[:-1], replace(call, agent=agent, tool=tool_of({**meta, "tool": name})))
    folds_case, bases = place.folds_case(place.directory), (place.directory, *place.roots, *filter(None, (cwd,)))
    return tuple(
        replace(access, folds_case=folds_case, bases=bases, always=_grant_of(access))
        if access.permission in _OF_FILES
        else replace(access, always=_grant_of(access))
        for access in accesses
    )


def _served_names(title: str) -> Iterator[str]:
    """Return the names by which rules may mean a tool whose title is SERVER-TOOL, as Copilot writes it: `SERVER_TOOL`."""
    return (f"{title[:at]}_{title[at + 1 :]}" for at, letter in enumerate(title) if letter == "-")


def _by_identity(agent: str, tool: str, input_: JsonObject, meta: JsonObject, opaque: bool) -> Access:
    """The access of a tool that OpenCode does not have: by its name, or by a title (`identity`) if `tool` is a kind."""
    details = {**input_, **_description(meta)}
    if "identity" not in meta:
        return Access(tool, ("*",), ("*",), details, opaque=opaque, agent=agent)
    title = text(meta["identity"])
    return Access(tool, (title or "*",), _exactly(title), details, opaque=opaque, agent=agent)


def _exactly(subject: str) -> tuple[str, ...]:
    """The pattern that allows this subject only, or none if a rule would take one of its characters for a wildcard."""
    return (subject,) if subject and not _WILDCARDS & set(subject) else ()


def _grant_of(access: Access) -> tuple[str, ...]:
    """What the answer "always" allows: nothing for a call that nobody knows enough of to recognise it."""
    return () if access.opaque or _WILDCARDS & set(access.permission) else access.always


_WILDCARDS = frozenset("*?")


def primary_access(agent: str, data: PermissionData, directory: str) -> Access:
    """Return the call's own access of a recorded request."""
    return accesses_of(agent, data, Place(directory))[-1]


def _bash(tool: str, input_: JsonObject, meta: JsonObject, place: Place, opaque: bool) -> tuple[Access, ...]:
    """Return the accesses of a command: its own, and `external_directory`, `read`, `edit` for paths visible in its line."""
    texts = [str(line) for line in arr(meta.get("commands"))] or [str(input_.get("command", ""))]
    lines = [parse_shell_line(line) for line in texts]
    bases = [place.absolute(folder) for folder in meta["folders"]]
    paths = [
        place.absolute(path, base) + ("/" if path.endswith("/") else "")
        for base in bases
        for line in lines
        for path in line.paths
    ]
    reads = [place.absolute(str(path), base) for base in bases for path in arr(meta.get("reads"))]
    writes = [place.absolute(path, base) for base in bases for line in lines for path in line.writes]
    read_names = tuple(dict.fromkeys(name for path in (*reads, *paths) for name in place.names(path)))
    commands = tuple(
        dict.fromkeys(
            command for source, line in zip(texts, lines, strict=True) for command in line.commands or (source.strip(),)
        )
    )
    opaque = opaque or not any(texts)
    reasons = [line.reason for line in lines if line.reason]
    repositories = [place.absolute(folder, base) for base in bases for line in lines for folder in line.repositories]
    repositories += bases if any(command.split(" ", 1)[0] == "git" for command in commands) else []
    if any(repository not in (place.directory, *place.roots, meta["cwd"]) for repository in repositories):
        reasons.append("git in another repository, whose configuration may run programs")
    understood = not reasons and all(line.understood for line in lines)
    metadata: JsonObject = {"command": "\n".join(texts), **_description(meta)}
    if not understood:
        metadata |= {"understood": False, "reason": "; ".join(reasons)}
    always = tuple(dict.fromkeys(map(always_of, commands))) if understood else ()
    write_names = _names_of(writes, place)
    maybe_read = [place.absolute(path, base) for base in bases for line in lines for path in line.maybe_read]
    maybe_written = [place.absolute(path, base) for base in bases for line in lines for path in line.maybe_written]
    hidden = {
        "bash": tuple(dict.fromkeys(command for line in lines for command in line.hidden)),
        "read": _names_of(maybe_read, place),
        "edit": _names_of(maybe_written, place),
        "external_directory": _folders_outside((*maybe_read, *maybe_written), place),
    }
    walks = [place.absolute(path, base) for base in bases for line in lines for path in line.walks]
    unknown_paths = [] if all(line.paths_known for line in lines) else ["external_directory", "read"]
    unknown_writes = [] if all(line.writes_known for line in lines) else ["edit"]
    return (
        *external([*([] if meta.get("confined") is True else [base + "/" for base in bases]), *reads, *paths], place),
        *(Access(key, ("*",), (), metadata, understood=False, implied=True) for key in (*unknown_paths, *unknown_writes)),
        *((Access("read", read_names, ("*",), metadata, implied=True),) if read_names else ()),
        *((Access("edit", write_names, write_names, metadata, implied=True),) if write_names else ()),
        *_walk(walks, place, metadata),
        *(
            Access(key, names, (), metadata, implied=True, again=key == "bash", hidden=True)
            for key, names in hidden.items()
            if names
        ),
        Access("bash", commands, always, metadata, understood, opaque),
    )


def _walk(paths: Iterable[str], place: Place, details: JsonObject) -> tuple[Access, ...]:
    """The hidden access to all files below these folders. Which of them a rule forbids is looked up on the disk."""
    folders = tuple(dict.fromkeys(path for path in paths if place.is_folder(path)))
    return (Access("read", (), (), details, implied=True, hidden=True, walks=folders),) if folders else ()


def _perhaps_opened(paths: Iterable[str], place: Place, input_: JsonObject) -> tuple[Access, ...]:
    """The hidden accesses of files that a tool of which only the name is known (of an MCP server) perhaps reads and writes."""
    absolute = [place.absolute(path) for path in paths]
    names = _names_of(absolute, place)
    found = {"read": names, "edit": names, "external_directory": _folders_outside(absolute, place)}
    return tuple(Access(key, some, (), input_, implied=True, hidden=True) for key, some in found.items() if some)


def _folders_outside(paths: Iterable[str], place: Place) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for access in external(paths, place) for name in access.patterns))


def _names_of(paths: Iterable[str], place: Place) -> tuple[str, ...]:
    """The names that rules may have for absolute paths; of a folder also with a `/`, since what lies in it is changed with it."""
    names = ((name, f"{name}/") if place.is_folder(path) else (name,) for path in paths for name in place.names(path))
    return tuple(dict.fromkeys(name for forms in names for name in forms))


def _edit(tool: str, input_: JsonObject, meta: JsonObject, place: Place, opaque: bool) -> tuple[Access, ...]:
    paths = _paths(meta)
    absolute = place.absolute(paths[0]) if paths else ""
    metadata: JsonObject = {"filepath": absolute}
    if isinstance(meta.get("diff"), str):
        metadata["diff"] = with_index_header(absolute, meta["diff"])
    patterns = tuple(dict.fromkeys(name for item in paths for name in place.names(item))) or ("",)
    return (*_outside(paths, meta, place), Access("edit", patterns, ("*",), metadata, opaque=opaque or not paths))


def _read(tool: str, input_: JsonObject, meta: JsonObject, place: Place, opaque: bool) -> tuple[Access, ...]:
    paths = _paths(meta)
    metadata = {"filepath": place.absolute(paths[0]) if paths else ""}
    patterns = tuple(dict.fromkeys(name or "*" for item in paths for name in place.names(item))) or ("*",)
    unknown = opaque or (tool == "read" and not paths)
    return (*_outside(paths, meta, place), Access(tool, patterns, ("*",), metadata, opaque=unknown))


def _search(tool: str, input_: JsonObject, meta: JsonObject, place: Place, opaque: bool) -> tuple[Access, ...]:
    pattern = str(input_.get("pattern", "*"))
    folders = _paths(meta)
    reads = _search_reads(folders, text(input_.get("include")), place) if tool == "grep" else ()
    if tool == "glob" and pattern.startswith(("/", "~", "..")):
        folders.append(pattern.partition("*")[0])
    return (
        *external(folders, place, are_folders=True),
        *((Access("read", reads, ("*",), dict(input_), implied=True),) if reads else ()),
        *(_walk([place.absolute(folder) for folder in folders or [meta["cwd"]]], place, dict(input_)) if tool == "grep" else ()),
        _subject(tool, pattern, ("*",), meta, dict(input_), opaque),
    )


def _subject(
    permission: str, pattern: str, always: tuple[str, ...], meta: JsonObject, input_: JsonObject, opaque: bool
) -> Access:
    """The access of a call with one subject. Of a tool that only its kind tells, "always" allows just this subject."""
    always = _exactly(pattern) if "identity" in meta else always
    return Access(permission, (pattern,), always, input_, opaque=opaque)


def _search_reads(paths: Sequence[str], include: str, place: Place) -> tuple[str, ...]:
    """The names of the files whose lines a search shows, as far as its arguments tell them."""
    found: list[str] = []
    for path in paths or ([""] if include else []):
        is_folder = not path or path.endswith("/") or place.is_folder(place.absolute(path))
        found += place.names(posixpath.join(path, include or "*") if is_folder else path)
    return tuple(dict.fromkeys(name for name in found if name not in ("", "*")))


def _webfetch(tool: str, input_: JsonObject, meta: JsonObject, place: Place, opaque: bool) -> tuple[Access, ...]:
    url = str(input_.get("url", ""))
    access = _subject("webfetch", url, _origin(url), meta, dict(input_), opaque or not url)
    others = tuple(one for one in _addresses(url) if one != url)
    return (*((replace(access, patterns=others, implied=True, again=True),) if others else ()), access)


def _addresses(url: str) -> tuple[str, ...]:
    """The addresses that a program asks for when it gets this one, as browsers read it, and Claude Code: by https."""
    plain = re.sub(r"[\t\r\n]", "", url.strip()).replace("\\", "/")
    match = re.match(r"(https?):/*(?:[^/?#]*@)?([^/?#]*)/?(.*)", plain, re.IGNORECASE | re.DOTALL)
    if match is None or not match[2]:
        return ()
    host = unicodedata.normalize("NFKC", unquote(match[2])).casefold()
    name = re.sub(r"\.(?=$|:)", "", re.sub(r":(80|443)?$", "", host))
    return f"{match[1].lower()}://{name}/{match[3]}", f"https://{name}/{match[3]}"


def _monitor(tool: str, input_: JsonObject, meta: JsonObject, place: Place, opaque: bool) -> tuple[Access, ...]:
    """The accesses of Claude's Monitor: a command in the background whose lines the agent reads, or a WebSocket."""
    url = obj(input_.get("ws")).get("url")
    if url is not None:
        return _webfetch("webfetch", {**input_, "url": url}, meta, place, opaque)
    return _bash("bash", input_, meta, place, opaque)


def _mcp_resource(tool: str, input_: JsonObject, meta: JsonObject, place: Place, opaque: bool) -> tuple[Access, ...]:
    """The access `SERVER_resource`. A call without a server lists the resources of all servers, under its own name."""
    name = f"{input_['server']}_resource" if input_.get("server") else tool
    return (Access(name, (str(input_.get("uri") or "*"),), ("*",), dict(input_), opaque=opaque),)


def _access_by_key(key: str) -> _Builder:
    def build(tool: str, input_: JsonObject, meta: JsonObject, place: Place, opaque: bool) -> tuple[Access, ...]:
        return (Access(tool, (str(input_.get(key) or "*"),), ("*",), {**input_, **_description(meta)}, opaque=opaque),)

    return build


_Builder = Callable[[str, JsonObject, JsonObject, Place, bool], tuple[Access, ...]]

_BUILDERS: dict[str, _Builder] = {
    "bash": _bash,
    **dict.fromkeys(EDIT_TOOLS, _edit),
    "delete": _edit,
    "move": _edit,
    "read": _read,
    "list": _read,
    "glob": _search,
    "grep": _search,
    "webfetch": _webfetch,
    "websearch": _access_by_key("query"),
    "task": _access_by_key("subagent_type"),
    "skill": _access_by_key("name"),
    "monitor": _monitor,
    "mcp_resource": _mcp_resource,
}
"""OpenCode's tool, or the `permission` of an agent's row -> the function that finds the accesses of a call."""


def _outside(paths: Iterable[str], meta: JsonObject, place: Place) -> tuple[Access, ...]:
    """Return `external`, or nothing for a call that the server confines by itself."""
    return () if meta.get("confined") is True else external(paths, place)


def external(paths: Iterable[str], place: Place, *, are_folders: bool = False) -> tuple[Access, ...]:
    """The accesses `external_directory`, one for each folder outside of the project. A file stands for its folder."""
    accesses: dict[str, Access] = {}
    for path in paths:
        absolute = place.absolute(path)
        if place.is_inside(absolute):
            continue
        resolved = place.resolve(absolute)
        target = resolved if is_in(absolute, (place.directory, *place.roots)) else absolute
        is_folder = are_folders or path.endswith("/") or place.is_folder(target)
        folder = target if is_folder else posixpath.dirname(target)
        patterns = tuple(dict.fromkeys(f"{posixpath.join(name, '*')}" for name in (folder, place.resolve(folder))))
        metadata = {"filepath": absolute, "parentDir": folder}
        accesses.setdefault(patterns[0], Access("external_directory", patterns, patterns, metadata))
    return tuple(accesses.values())


def _paths(meta: JsonObject) -> list[str]:
    """The paths of a call that the codec has found, and those among its arguments."""
    return list(dict.fromkeys((*map(str, arr(meta.get("paths"))), *meta["named"])))


def _places_in(row: Row, arguments: JsonObject, cwd: str) -> JsonObject:
    """Find the files and folders that the arguments of a call name: `named`, and `folders` in which its command may run.

    A model may send arguments that the tool does not know. Nobody can say what comes of them, so all of them count.
    In: `cwd`, where the agent is, if that is not the session's directory (a worktree of Claude Code's).
    """
    own = [key for key, target in row.keys.items() if target == "filePath"] or ["filePath", "path"]
    keys = dict.fromkeys((*own, *filter(_names_a_path, arguments)))
    found = {key: _texts(arguments.get(key)) for key in keys if key != row.folder}
    named = [spelling for paths in found.values() for path in paths for spelling in row.spellings(path)]
    named = [path if path.startswith("~") else posixpath.join(cwd, path) for path in named]
    return {"named": named, "folders": [text(arguments.get(row.folder)) or cwd or ".", *named]}


def _files_in(value: Any, key: str = "") -> Iterator[str]:
    """Find what may be files at any depth of the arguments of a tool of which only the name is known."""
    if isinstance(value, Mapping):
        for name, inner in cast("Mapping[str, Any]", value).items():
            yield from _files_in(inner, name)
    elif isinstance(value, list):
        for inner in cast("list[Any]", value):
            yield from _files_in(inner, key)
    elif isinstance(value, str) and value.startswith("file://"):
        yield unquote(value.removeprefix("file://").removeprefix("localhost"))
    elif isinstance(value, str) and value and _names_a_path(key, _PATH_WORDS | _ENDS):
        yield value


def _names_a_path(key: str, names: Collection[str] | None = None) -> bool:
    words = _WORD.findall(key)
    return bool(words) and words[-1].lower() in (names or _PATH_WORDS)


_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_PATH_WORDS = frozenset(
    f"{word}{end}"
    for word in ("path", "file", "filename", "filepath", "dir", "folder", "cwd", "workdir", "root")
    for end in ("", "s")
) | {"directory", "directories"}
"""The last word of the name of an argument that is a path."""
_ENDS = frozenset({"source", "destination", "src", "dst", "dest", "target", "from", "to", "input", "output"})
"""Such words of tools of MCP servers, which copy and move."""


def _texts(value: Any) -> list[str]:
    return [item for item in (arr(value) or [value]) if isinstance(item, str) and item]


def _description(meta: dict[str, Any]) -> JsonObject:
    words = meta.get("description") or meta.get("title")
    return {"description": str(words)} if words else {}


def _origin(url: str) -> tuple[str, ...]:
    match = re.match(r"^(https?://[^/?#]+)", url)
    return tuple(f"{origin}/*" for origin in _exactly(match.group(1))) if match else _exactly(url)


def always_of(command: str) -> str:
    """Return the pattern that `always` allows for a command: `git status -s` -> `git status *`, `echo hi` -> `echo *`."""
    words = command.split()
    if not words:
        return "*"
    return " ".join(words[: min(_WORDS_OF.get(words[0], 1), len(words))]) + " *"
