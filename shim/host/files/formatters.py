"""Runs the formatters of a person's OpenCode configuration (`formatter`) on a file that an agent has changed, as OpenCode does.

None runs unless `formatter` is set: `true`, or a table, which has the built-in ones too. A built-in one counts where its program
is on PATH and the project uses it. Source: `format` of OpenCode 1.18.33, read and run. It differs in this: no program is
installed, and a program of the project itself (`node_modules/.bin`, `vendor/bin`) runs only where the project's settings count.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from shim.host.config.opencode_config import OpenCodeConfig
from shim.host.files.roots import folders_down_to
from shim.lib.errors import ShimError
from shim.processes import child_process, command
from shim.processes.aliases import find_program
from shim.processes.child_environment import child_environment
from universal.lib.jsonvalue import arr, obj, text

FORMAT_S, HELP_S = 15.0, 5.0
"""Seconds for one formatter with one file, and for a program that is asked what it is."""
LIMIT_BYTES = 2**20
"""Maximum size of a file that is formatted: its texts before and after are compared."""
TOLD_LIMIT = 200
"""Maximum failures that are remembered, so that each is told once."""
log = structlog.get_logger()

_WEB = ".js .jsx .mjs .cjs .ts .tsx .mts .cts"
_TEXTS = f"{_WEB} .html .htm .css .scss .sass .less .vue .svelte .json .jsonc .yaml .yml .toml .xml .md .mdx .graphql .gql"
_BUILT_IN = {
    "zig": (".zig .zon", "zig fmt $FILE"),
    "uv": (".py .pyi", "uv format -- $FILE"),
    "terraform": (".tf .tfvars", "terraform fmt $FILE"),
    "standardrb": (".rb .rake .gemspec .ru", "standardrb --fix $FILE"),
    "shfmt": (".sh .bash", "shfmt -w $FILE"),
    "rustfmt": (".rs", "rustfmt $FILE"),
    "ruff": (".py .pyi", "ruff format $FILE"),
    "rubocop": (".rb .rake .gemspec .ru", "rubocop --autocorrect $FILE"),
    "air": (".R", "air format $FILE"),
    "prettier": (_TEXTS, "prettier --write $FILE"),
    "pint": (".php", "./vendor/bin/pint $FILE"),
    "oxfmt": (_WEB, "oxfmt $FILE"),
    "ormolu": (".hs", "ormolu -i $FILE"),
    "ocamlformat": (".ml .mli", "ocamlformat -i $FILE"),
    "nixfmt": (".nix", "nixfmt $FILE"),
    "mix": (".ex .exs .eex .heex .leex .neex .sface", "mix format $FILE"),
    "latexindent": (".tex", "latexindent -w -s $FILE"),
    "ktlint": (".kt .kts", "ktlint -F $FILE"),
    "htmlbeautifier": (".erb .html.erb", "htmlbeautifier $FILE"),
    "gofmt": (".go", "gofmt -w $FILE"),
    "gleam": (".gleam", "gleam format $FILE"),
    "dfmt": (".d", "dfmt -i $FILE"),
    "dart": (".dart", "dart format $FILE"),
    "cljfmt": (".clj .cljs .cljc .edn", "cljfmt fix --quiet $FILE"),
    "clang-format": (".c .cc .cpp .cxx .c++ .h .hh .hpp .hxx .h++ .ino .C .H", "clang-format -i $FILE"),
    "biome": (_TEXTS, "biome format --write $FILE"),
}
"""Name -> extensions and command, as OpenCode 1.18.33 lists them. `oxfmt` is experimental there, and off without its switch."""


class Formatter(NamedTuple):
    """A formatter of a directory. `argv` is empty if it is not enabled there; `$FILE` stands for the file."""

    name: str
    extensions: tuple[str, ...]
    argv: tuple[str, ...] = ()
    environment: Mapping[str, str] = {}


class FormattedFile(NamedTuple):
    """A file's text as the agent left it, and after its formatters."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Search:
    """Where the programs and settings of a directory are looked for: its folders up to the root of the repository."""

    folders: tuple[Path, ...]
    environ: Mapping[str, str]
    with_project: bool

    def programs(self, name: str) -> str:
        """The program of the project, if that counts, else that on PATH; "" if there is none."""
        near = [folder / "node_modules" / ".bin" / name for folder in self.folders] if self.with_project else []
        return next((str(path) for path in near if os.access(path, os.X_OK)), "") or self.on_path(name)

    def on_path(self, name: str) -> str:
        """The program on PATH; "" if there is none."""
        return find_program(name, self.environ.get("PATH", os.defpath)) or ""

    def files(self, *names: str) -> list[Path]:
        """The files with one of these names, nearest first."""
        return [folder / name for name in names for folder in self.folders if (folder / name).is_file()]

    def texts(self, *names: str) -> list[str]:
        texts: list[str] = []
        for path in self.files(*names):
            with suppress(OSError), path.open("rb") as file:
                texts.append(file.read(LIMIT_BYTES).decode("utf-8", "replace"))
        return texts

    def depends_on(self, file: str, keys: tuple[str, ...], package: str) -> bool:
        for source in self.texts(file):
            with suppress(ValueError, RecursionError):
                values = obj(json.loads(source))
                if any(obj(values.get(key)).get(package) for key in keys):
                    return True
        return False


def _uses_ruff(at: _Search) -> bool:
    names = ("pyproject.toml", "ruff.toml", ".ruff.toml")
    if any(path.name != "pyproject.toml" for path in at.files(*names)) or any("[tool.ruff]" in row for row in at.texts(names[0])):
        return bool(at.on_path("ruff"))
    return bool(at.on_path("ruff")) and any("ruff" in row for row in at.texts("requirements.txt", "pyproject.toml", "Pipfile"))


@cache
def _help(program: str, *words: str) -> str | None:
    """What a program says of itself; None if it fails. Blocking, at most HELP_S."""
    done = child_process.ask((program, *words), environment=child_environment(os.environ, {}), timeout_s=HELP_S)
    return done.stdout if done is not None and done.returncode == 0 else None


_PACKAGE = ("package.json", ("dependencies", "devDependencies"))
_WHERE: Mapping[str, Callable[[_Search], bool]] = {
    "prettier": lambda at: at.depends_on(*_PACKAGE, "prettier"),
    "oxfmt": lambda at: bool(at.environ.get("OPENCODE_EXPERIMENTAL_OXFMT")) and at.depends_on(*_PACKAGE, "oxfmt"),
    "biome": lambda at: bool(at.files("biome.json", "biome.jsonc")),
    "clang-format": lambda at: bool(at.files(".clang-format")),
    "ocamlformat": lambda at: bool(at.files(".ocamlformat")),
    "pint": lambda at: at.with_project and at.depends_on("composer.json", ("require", "require-dev"), "laravel/pint"),
    "ruff": _uses_ruff,
    "uv": lambda at: not _uses_ruff(at) and _help(at.on_path("uv"), "format", "--help") is not None,
    "air": lambda at: re.match(r".*R language.*formatter", _help(at.on_path("air"), "--help") or "") is not None,
}
"""Built-in formatter -> whether a directory uses it. The others are used wherever their program is."""


def _argv(name: str, words: str, at: _Search) -> tuple[str, ...]:
    """The command of a built-in formatter; () if it is not used, or not there."""
    program, *rest = words.split()
    found = program if "/" in program else at.programs(program)
    return (found, *rest) if found and (name not in _WHERE or _WHERE[name](at)) else ()


class Formatters:
    """The formatters of all directories.

    In: `current`, a directory's configuration as it was read last; `environ`, the person's environment; `notify`, which shows a
    warning to the clients of a directory.
    """

    def __init__(
        self,
        current: Callable[[str], OpenCodeConfig],
        environ: Mapping[str, str],
        notify: Callable[[str, str], None] = lambda _directory, _words: None,
    ) -> None:
        self._current, self._environ, self._notify = current, environ, notify
        self._told: set[tuple[str, str]] = set()

    def rows(self, directory: str, extension: str = "", *, with_project: bool) -> list[Formatter]:
        """The formatters of a directory, those for an extension if it is named. Blocking."""
        setting = self._setting(directory, with_project=with_project)
        if not setting:
            return []
        at = _Search(tuple(map(Path, reversed(folders_down_to(directory)))), self._environ, with_project)
        rows = {name: obj(row) for name, row in obj(setting).items()}
        names = [*_BUILT_IN, *(name for name in rows if name not in _BUILT_IN)]
        off = {name for name, row in rows.items() if row.get("disabled")}
        if off & {"ruff", "uv"} and {"ruff", "uv"} & rows.keys():
            off |= {"ruff", "uv"}
        found: list[Formatter] = []
        for name in (name for name in names if name not in off):
            row, (extensions, words) = rows.get(name, {}), _BUILT_IN.get(name, ("", ""))
            endings = tuple(map(text, arr(row["extensions"]))) if "extensions" in row else tuple(extensions.split())
            if extension and extension not in endings:
                continue
            argv = tuple(map(text, arr(row.get("command")))) or (_argv(name, words, at) if words else ())
            found.append(Formatter(name, endings, argv, {key: text(value) for key, value in obj(row.get("environment")).items()}))
        return found

    async def format(self, directory: str, path: str, *, with_project: bool) -> FormattedFile | None:
        """Run the formatters of a file one after the other. Out: None if none of them has changed it. Raises nothing."""
        file = Path(directory, path)
        rows = await asyncio.to_thread(self.rows, directory, file.suffix, with_project=with_project)
        rows = [row for row in rows if row.argv]
        before = await asyncio.to_thread(_text, file) if rows else None
        if before is None:
            return None
        for row in rows:
            argv = [word.replace("$FILE", str(file)) for word in row.argv]
            try:
                result = await command.run(argv, directory, environment=row.environment, timeout_s=FORMAT_S)
            except (OSError, ValueError, ShimError) as error:
                self._fail(directory, row.name, str(error))
                continue
            if not result.ok:
                why = "took too long" if result.timed_out else result.stderr.decode("utf-8", "replace").strip()[-500:]
                self._fail(directory, row.name, why or f"ended with {result.code}")
        after = await asyncio.to_thread(_text, file)
        return None if after is None or after == before else FormattedFile(before, after)

    def _setting(self, directory: str, *, with_project: bool) -> Any:
        config = self._current(directory)
        return (config.values if with_project else config.personal_values).get("formatter")

    def _fail(self, directory: str, name: str, why: str) -> None:
        log.warning("formatter.failed", directory=directory, formatter=name, why=why)
        if (directory, name) not in self._told and len(self._told) < TOLD_LIMIT:
            self._told.add((directory, name))
            self._notify(directory, f"The formatter {name} failed, and its file is as the agent left it: {why}")


def _text(path: Path) -> str | None:
    """The text of a file that is not too large; None if it is, or cannot be read."""
    with suppress(OSError, ValueError):
        if path.is_file() and path.stat().st_size <= LIMIT_BYTES:
            return path.read_bytes().decode()
    return None
