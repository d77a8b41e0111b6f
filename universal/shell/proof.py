"""Proves what a shell line runs, or refuses it. Pure.

The subset: simple commands, joined by `|`, `&&`, `||`, `;` and new lines (`universal.shell.words`). A command is proved if its
program is given by a plain word, if that is no built-in of bash, dash or zsh but one in a proved form, and if no argument can be
an option with which the program runs others. Wrappers (`timeout`, `xargs` ...) are proved in the forms that are written out here.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import ClassVar, TypeAlias

from universal.shell import tables
from universal.shell.git import refuse_running_git
from universal.shell.words import NotProvedError, Redirection, Word, tokens_of

COMMANDS_LIMIT = 100
DIRECTORIES_LIMIT = 8
"""Maximum directories that the line may be in at one place."""
NESTING_LIMIT = 5
"""Maximum depth of `bash -c` and of wrappers."""
HIDDEN_LIMIT = 300
"""Maximum texts of each kind that the programs of a line perhaps run, read or write."""

TOO_MANY = "it has too many words that may be commands or files"

_NAME = re.compile(r"[\w./@%+:,][\w./@%+:,-]*")
_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=")
_PLAIN = re.compile(r"[\w./:@%+,=-]+")
_SEPARATOR = re.compile(r"[;&|\n'\"`(){}]+")
_LITERAL = re.compile(r"""["']([^"'\n]+)["']""")
"""A text in code that is an argument: `python -c 'open(".env")'`."""
_NUMBER = re.compile(r"-?[0-9]{1,9}")
_TIMEOUT_OPTION = re.compile(
    r"-k[0-9.]+[smhd]?|-s[A-Z0-9]+|--signal=[A-Z0-9]+|--kill-after=[0-9.]+[smhd]?|--foreground|--preserve-status"
)
_DURATION = re.compile(r"[0-9]+(\.[0-9]+)?[smhd]?")


_Form: TypeAlias = "Callable[[Proof, Sequence[Word]], None]"


class Proof:
    """The commands and paths of a line that is proved. `directories`: where the shell may be; None: not known."""

    def __init__(self, depth: int = 0, directories: tuple[str, ...] | None = ("",)) -> None:
        self.commands: list[str] = []
        self.paths: list[str] = []
        self.paths_known = True
        self.writes: list[str] = []
        self.repositories: list[str] = []
        self.hidden: list[str] = []
        self.writes_known = True
        self.maybe_read: list[str] = []
        self.maybe_written: list[str] = []
        self.walks: list[str] = []
        self.directories: tuple[str, ...] | None = directories
        self._depth = depth
        self._count = 0

    def read(self, line: str) -> None:
        """Read a line. Raises NotProvedError."""
        words: list[Word] = []
        redirections: list[Redirection] = []
        in_pipeline, before = False, ";"
        for part in (*tokens_of(line), ";"):
            if isinstance(part, Word):
                words.append(part)
            elif isinstance(part, Redirection):
                redirections.append(part)
            elif not words:
                if redirections or before in ("|", "&&", "||") or part not in (";", "\n"):
                    if not (part == "\n" and before in ("|", "&&", "||") and not redirections):
                        raise NotProvedError("a command without a name")
                    continue  # the command stands on the next line
                before = part
            else:
                directories = self.directories
                self._command(words, redirections)
                in_pipeline = in_pipeline or part == "|"
                self._leave(directories, certain=before != "||" and part == "&&", in_pipeline=in_pipeline)
                in_pipeline = part == "|"
                words, redirections, before = [], [], part
        if before in ("|", "&&", "||"):
            raise NotProvedError("a command without a name")

    def _leave(self, before: tuple[str, ...] | None, *, certain: bool, in_pipeline: bool) -> None:
        """Note where the shell may be after a command: it may have failed, or had a shell of its own."""
        after = self.directories
        if after == before or in_pipeline:
            self.directories = before
        elif not certain:
            union = None if before is None or after is None else tuple(dict.fromkeys((*before, *after)))
            self.directories = union if union is None or len(union) <= DIRECTORIES_LIMIT else None

    # --- a command ------------------------------------------------------------------------------------------------

    def _command(self, words: Sequence[Word], redirections: Sequence[Redirection], *, in_wrapper: bool = False) -> None:
        self._count += 1
        if self._count > COMMANDS_LIMIT:
            raise NotProvedError("it has too many commands")
        for redirection in redirections:
            self._redirect(redirection)
        rest = list(words)
        while not in_wrapper and rest and (match := _ASSIGNMENT.match(rest[0].source)):
            self._harmless(match[1], rest.pop(0))
        if not rest:
            raise NotProvedError("a command without a name")
        first, *arguments = rest
        name = first.value
        if name != "[" and (first.is_glob or not _NAME.fullmatch(name) or name in tables.RESERVED):
            raise NotProvedError("which command runs is not known")
        program = posixpath.basename(name)
        if name in tables.BUILT_INS and name not in Proof.BUILT_INS:
            raise NotProvedError(f"what the built-in {name} does is not followed")
        if program in tables.RUNNERS:
            raise NotProvedError(f"what {name} runs is not followed")
        if name not in tables.FREE or redirections:
            self._record(rest, redirections)
        self._path_arguments(program, arguments)
        if name in Proof.BUILT_INS:
            Proof.BUILT_INS[name](self, arguments)
        if program in Proof.WRAPPERS:
            Proof.WRAPPERS[program](self, arguments)
        else:
            refuse_running_options(program, arguments)
            self._hide(name, arguments)
        self._touch(program, arguments)
        if program == "git":
            self._git(arguments)

    def _harmless(self, name: str, word: Word) -> None:
        if word.is_glob or not tables.HARMLESS_VARIABLES.fullmatch(name):
            raise NotProvedError(f"{name} may make programs run others")

    def _record(self, words: Sequence[Word], redirections: Sequence[Redirection]) -> None:
        """Record the text as written, and with plain words in place of quoted ones at its start (`"git" push`)."""
        written = [word.source for word in words]
        plain = [word.value if _PLAIN.fullmatch(word.value) else word.source for word in words[:3]]
        for texts in (written, [*plain, *written[3:]]):
            self.commands.append(" ".join([*texts, *(redirection.source for redirection in redirections)]))

    def _hide(self, name: str, arguments: Sequence[Word]) -> None:
        """Note the commands that a program perhaps runs: itself without its path, all that stands behind it, and quoted lines."""
        program = posixpath.basename(name)
        if program != name:
            self.hidden.append(" ".join([program, *(word.source for word in arguments)]))
        self.hidden += [" ".join([program, *texts]) for texts in _without_options([word.source for word in arguments])]
        if program in tables.SAFE_WITH_ANY_ARGUMENT or program in tables.RUN_NO_ARGUMENT or name in tables.BUILT_INS:
            return
        if len(self.hidden) + len(arguments) > HIDDEN_LIMIT:
            raise NotProvedError(TOO_MANY)
        words = [word.value if _PLAIN.fullmatch(word.value) else word.source for word in arguments]
        for start in range(1 if program in tables.SUBCOMMANDS else 0, len(words)):
            command, *rest = words[start:]
            self.hidden.append(" ".join([posixpath.basename(command), *rest]))
        for word in arguments:
            if " " in word.value and word.is_quoted:
                lines = _SEPARATOR.split(word.value)
                self.hidden += [one.strip() for line in lines for one in (line, line.partition("=")[2]) if one.strip()]
        if len(self.hidden) > HIDDEN_LIMIT:
            raise NotProvedError(TOO_MANY)

    def _touch(self, program: str, arguments: Sequence[Word]) -> None:
        """Note the files that a program writes, and those that one of which less is known perhaps reads or writes."""
        self._walk(program, arguments)
        if program in tables.WRITERS:
            for word in arguments:
                if not word.value.startswith("-"):
                    located = self._locate(word)
                    self.writes += located
                    self.writes_known = self.writes_known and bool(located) and not word.is_glob
            return
        if program in tables.BUILT_INS or (program in Proof.WRAPPERS and program not in (*tables.SHELLS, "find")):
            return
        is_deleting = program == "find" and any(word.value == "-delete" for word in arguments)
        unpacks = tables.UNPACKERS.get(program)
        words = [word.value for at, word in enumerate(arguments) if not at or word.value.startswith("-")] or [""]
        is_unpacking = unpacks is not None and any(unpacks.fullmatch(word) or not unpacks.pattern for word in words)
        self.writes_known = self.writes_known and not is_deleting and not is_unpacking
        programs = {posixpath.basename(name).rstrip("0123456789.") for name in (program, *(word.value for word in arguments))}
        runs_code = not programs.isdisjoint(tables.INTERPRETERS)
        is_reading_git = program == "git" and bool(arguments) and arguments[0].value in tables.GIT_READERS
        for word in arguments:
            names = {re.split("[=@:]", word.value)[-1], word.value} if "://" not in word.value else set[str]()
            literals = _LITERAL.findall(word.value) if runs_code and word.is_quoted else []
            in_code = [path for name in literals for path in self._locate(Word(name, name))]
            located = [path for name in sorted(names) if name and name[0] != "-" for path in self._locate(Word(name, name))]
            self.maybe_read += in_code if program in tables.PATH_COMMANDS else (*located, *in_code)
            self.maybe_written += () if program in tables.READERS or is_reading_git else (*located, *in_code)
        if max(len(self.maybe_read), len(self.maybe_written)) > HIDDEN_LIMIT:
            raise NotProvedError(TOO_MANY)

    def _walk(self, program: str, arguments: Sequence[Word]) -> None:
        """Note what may be a folder of which a program shows or copies all files."""
        letters = tables.WALKERS.get(program)
        options = [word.value for word in arguments if word.value.startswith("-")]
        is_walking = any(
            word in tables.WALKING_OPTIONS or (word[1:2] != "-" and set(word) & set(letters or "")) for word in options
        )
        if letters is None or (letters and not is_walking):
            return
        operands = [word for word in arguments if not word.value.startswith("-")]
        self.walks += [path for word in operands for path in self._locate(word)]
        if len(operands) < 2:
            self.walks += [directory or "." for directory in self.directories or ()]

    def _redirect(self, redirection: Redirection) -> None:
        target = redirection.target
        if target is None or tables.DEVICES.fullmatch(target.value):
            return
        if redirection.writes and self.directories is None:
            raise NotProvedError("which file is written is not known")
        self._path(target)
        if redirection.writes:
            self.writes += self._locate(target)

    def _inner(self, words: Sequence[Word]) -> None:
        """A command that another one runs."""
        if not words:
            raise NotProvedError("which command runs is not known")
        self._deeper()
        directories = self.directories
        self._command(words, (), in_wrapper=True)
        self.directories = directories
        self._depth -= 1

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > NESTING_LIMIT:
            raise NotProvedError("it is nested too deeply")

    # --- paths ----------------------------------------------------------------------------------------------------

    def _locate(self, word: Word) -> list[str]:
        """A path from each directory that the shell may be in."""
        value = word.value if not word.value.startswith("~") or word.source.startswith("~") else f"./{word.value}"
        if value.startswith(("/", "~")):
            return [value]
        return [posixpath.join(directory, value) for directory in self.directories or ()]

    def _path(self, word: Word, *, directory: bool = False) -> None:
        if not word.value or tables.DEVICES.fullmatch(word.value):
            return
        if word.is_glob:  # a link may lead anywhere
            self.paths_known = False
        paths = self._locate(word)
        if not paths:
            self.paths_known = False
        self.paths += [path.rstrip("/") + "/" if directory else path for path in paths]

    def _path_arguments(self, program: str, arguments: Sequence[Word]) -> None:
        options = tables.DIRECTORY_OPTIONS.get(program, ())
        skipped = tables.PATH_COMMANDS.get(program)
        rest = list(arguments)
        if program == "find":
            rest = list(takewhile(lambda word: not word.value.startswith(("-", "(", "!")), rest))
        elif program in tables.SHELLS:
            rest = rest[:1]
        for index, word in enumerate(rest):
            head, equals, value = word.value.partition("=")
            if head in options and not equals and index + 1 < len(rest):
                self._path(rest[index + 1], directory=head in ("-C", "--work-tree", "--prefix", "--directory", "--cwd"))
            elif (head in options or skipped is not None) and word.value.startswith("-") and equals:
                self._path(Word(value, value, word.is_glob, word.is_quoted))
            elif skipped is None or word.value.startswith("-"):
                continue
            elif skipped:
                skipped -= 1
            else:
                self._path(word, directory=program in tables.DIRECTORY_COMMANDS)

    def _git(self, arguments: Sequence[Word]) -> None:
        """Refuse what makes git run others, and note the repositories that it works in."""
        refuse_running_git(arguments)
        moved = self.directories is None or self.directories != ("",)
        if self.directories is None:
            raise NotProvedError("which repository git works in is not known")
        if moved:
            self.repositories += [directory or "." for directory in self.directories]
        for index, word in enumerate(arguments):
            if word.value == "-C" and index + 1 < len(arguments):
                self.repositories += self._locate(arguments[index + 1])
            elif not word.value.startswith("-"):
                break

    # --- built-ins ------------------------------------------------------------------------------------------------

    def _cd(self, arguments: Sequence[Word]) -> None:
        words = [word for word in arguments if word.value != "--"]
        if len(words) > 1 or any(word.is_glob or word.value.startswith(("-", "+")) or not word.value for word in words):
            raise NotProvedError("which directory cd enters is not known")
        if not words:
            self.paths.append("~/")
            self.directories = ("~",)
        else:
            located = self._locate(words[0])
            self.directories = tuple(dict.fromkeys(located)) if located else None

    def _number(self, arguments: Sequence[Word]) -> None:
        if len(arguments) > 1 or any(not _NUMBER.fullmatch(word.source) for word in arguments):
            raise NotProvedError("a number that the shell evaluates")

    def _set(self, arguments: Sequence[Word]) -> None:
        if not arguments or any(not tables.SET_OPTIONS.fullmatch(word.source) for word in arguments):
            raise NotProvedError("what set changes is not followed")

    def _accept_all(self, arguments: Sequence[Word]) -> None:
        """Accept all arguments: the built-in evaluates none."""

    def _check_pwd(self, arguments: Sequence[Word]) -> None:
        if any(word.source not in ("-P", "-L") for word in arguments):
            raise NotProvedError("what the built-in does with an argument is not followed")

    def _plain(self, arguments: Sequence[Word]) -> None:
        """Accept names, numbers and one-letter options that zsh and bash print or send."""
        if any(
            not re.fullmatch(r"-?[\w./+-]+", word.source) or re.match(r"-[^0-9]*[A-Za-z]{4}", word.source) for word in arguments
        ):
            raise NotProvedError("what the built-in does with an argument is not followed")

    def _printf(self, arguments: Sequence[Word]) -> None:
        """Accept what is no assignment and has no subscript: some shells evaluate the arguments of `%d` and `%n`."""
        if (
            not arguments
            or arguments[0].may_be_option
            or re.search(r"%[^A-Za-z%]*n", arguments[0].value)
            or "*" in arguments[0].value
        ):
            raise NotProvedError("printf may evaluate an argument")
        if any(word.is_glob or not re.fullmatch(r"[^\[\]$`()]*", word.value) for word in arguments[1:]):
            raise NotProvedError("printf may evaluate an argument")

    def _test(self, arguments: Sequence[Word]) -> None:
        words = list(arguments)
        while words and words[0].source == "!":
            words.pop(0)
        sources = [word.source for word in words]
        if any(word.is_glob for word in words):
            raise NotProvedError("a test whose words are not known")
        match sources:
            case [operator, operand] if re.fullmatch(r"-[bcdefghkprsuwxLSnz]", operator) and not operand.startswith("("):
                return
            case [left, operator, right] if operator in ("=", "!=", "-nt", "-ot", "-ef"):
                if not {left, right} & {"!", "(", ")", "-a", "-o"}:
                    return
            case [left, operator, right] if re.fullmatch(r"-(eq|ne|lt|le|gt|ge)", operator):
                if _NUMBER.fullmatch(left) and _NUMBER.fullmatch(right):
                    return
            case _:
                pass
        raise NotProvedError("a test that may evaluate text")

    def _bracket(self, arguments: Sequence[Word]) -> None:
        if not arguments or arguments[-1].source != "]":
            raise NotProvedError("an unusual test")
        self._test(arguments[:-1])

    # --- programs that run others -----------------------------------------------------------------------------------

    def _env(self, arguments: Sequence[Word]) -> None:
        words = list(arguments)
        while words and (match := _ASSIGNMENT.match(words[0].source)):
            self._harmless(match[1], words.pop(0))
        if words:
            self._inner_plain(words)

    def _inner_plain(self, words: Sequence[Word]) -> None:
        """A command behind a wrapper's options, none of which is left."""
        if words and words[0].value.startswith("-"):
            raise NotProvedError("an option of a program that runs others")
        self._inner(words)

    def _lookup_or_run(self, arguments: Sequence[Word]) -> None:
        """`command NAME`, and `command -v NAME`, which only looks it up."""
        if arguments and arguments[0].source in ("-v", "-V"):
            self._plain(arguments[1:])
        else:
            self._inner_plain(arguments)

    def _nice(self, arguments: Sequence[Word]) -> None:
        words = list(arguments)
        if words and words[0].source == "-n" and len(words) > 1 and _NUMBER.fullmatch(words[1].source):
            words = words[2:]
        elif words and re.fullmatch(r"-n-?[0-9]+|--adjustment=-?[0-9]+|-[0-9]+", words[0].source):
            words = words[1:]
        self._inner_plain(words)

    def _timeout(self, arguments: Sequence[Word]) -> None:
        words = list(arguments)
        while words and words[0].value.startswith("-"):
            option = words.pop(0).source
            if option in ("-k", "-s") and words:
                option += words.pop(0).source
            if not re.fullmatch(
                _TIMEOUT_OPTION,
                option,
            ):
                raise NotProvedError("an option of timeout that is not known")
        if not words or not _DURATION.fullmatch(words.pop(0).source):
            raise NotProvedError("a duration that is not known")
        self._inner_plain(words)

    def _xargs(self, arguments: Sequence[Word]) -> None:
        """A program that gets further arguments, which may be options: only one that runs no other with any."""
        words = list(arguments)
        while words and words[0].value.startswith("-"):
            option = words.pop(0).source
            if option in ("-n", "-P", "-I", "-L", "-d") and words:
                option += words.pop(0).source
            if not re.fullmatch(
                r"-[0rtx]+|-[nPL][0-9]+|-I(\{\}|[\w%@]+)|-d\\?.|--null|--no-run-if-empty|--max-args=[0-9]+|--max-procs=[0-9]+",
                option,
            ):
                raise NotProvedError("an option of xargs that is not known")
        if not words or words[0].value not in tables.SAFE_WITH_ANY_ARGUMENT:
            raise NotProvedError("what xargs runs gets arguments that are not known")
        self._inner(words)
        self.paths_known = False
        self.writes_known = self.writes_known and words[0].value in tables.READERS

    def _find(self, arguments: Sequence[Word]) -> None:
        words = list(arguments)
        if any(word.may_be_option and word.is_glob for word in words) or any(word.is_glob for word in words[1:]):
            raise NotProvedError("what find does is not known")
        while words:
            word = words.pop(0).value
            if word in ("-fprint", "-fprint0", "-fprintf", "-fls", "-files0-from"):
                raise NotProvedError("find writes a file")
            if word not in tables.FIND_RUNS:
                continue
            end = next((index for index, word in enumerate(words) if word.value in (";", "+")), None)
            if not end or words[0].value not in tables.SAFE_WITH_ANY_ARGUMENT:
                raise NotProvedError("what find runs gets arguments that are not known")
            self._inner(words[:end])
            self.writes_known = self.writes_known and words[0].value in tables.READERS
            words = words[end + 1 :]

    def _shell(self, arguments: Sequence[Word]) -> None:
        """`sh -c TEXT`: the text is read like the line. A script is the pattern's matter."""
        if not arguments:
            raise NotProvedError("what the shell reads is not known")
        option, *rest = arguments
        if option.value.startswith(("-", "+")):
            if (
                not re.fullmatch(r"-[leux]*c", option.source)
                or not rest
                or rest[0].is_glob
                or rest[0].value.startswith(("-", "+"))
            ):
                raise NotProvedError("what the shell runs is not known")
            self._deeper()
            inner = Proof(self._depth, self.directories)
            inner.read(rest[0].value)
            self._depth -= 1
            self.commands += inner.commands
            self.paths += inner.paths
            self.writes += inner.writes
            self.repositories += inner.repositories
            self.hidden += inner.hidden
            self.maybe_read += inner.maybe_read
            self.maybe_written += inner.maybe_written
            self.walks += inner.walks
            self.writes_known = self.writes_known and inner.writes_known
            self.paths_known = self.paths_known and inner.paths_known
        elif option.is_glob:
            raise NotProvedError("which script the shell runs is not known")

    BUILT_INS: ClassVar[dict[str, _Form]] = {
        ":": _accept_all,
        "true": _accept_all,
        "false": _accept_all,
        "echo": _accept_all,
        "pwd": _check_pwd,
        "cd": _cd,
        "exit": _number,
        "set": _set,
        "printf": _printf,
        "test": _test,
        "[": _bracket,
        "type": _plain,
        "which": _plain,
        "kill": _plain,
        "command": _lookup_or_run,
    }
    """Built-in -> the form in which it is proved."""
    WRAPPERS: ClassVar[dict[str, _Form]] = {
        "env": _env,
        "nohup": _inner_plain,
        "time": _inner_plain,
        "nice": _nice,
        "timeout": _timeout,
        "xargs": _xargs,
        "find": _find,
        "sh": _shell,
        "bash": _shell,
        "dash": _shell,
    }
    """Program that runs others -> the form in which it is proved."""


def _without_options(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """The words of a call that has options, and without these, so that a rule for `git push` sees `git -C sub push`.

    Nobody knows which options take the next word: each of those before the subcommand is tried both ways, the others alike.
    """
    starts = {0}
    for index, word in enumerate(words):
        if index in starts and word.startswith("-"):
            starts |= {index + 1, index + 2}
    yield from (words[start:] for start in sorted(starts - {0}) if start < len(words))
    if any(word.startswith("-") for word in words):
        yield words
        yield [word for word in words if not word.startswith("-")]
        yield [word for before, word in pairwise(("", *words)) if not word.startswith("-") and not before.startswith("-")]


def refuse_running_options(program: str, arguments: Sequence[Word]) -> None:
    """Refuse words that may be options with which a program runs others, shortened ones included. Raises NotProvedError."""
    if program in tables.SAFE_WITH_ANY_ARGUMENT or program in Proof.BUILT_INS or program in Proof.WRAPPERS:
        return
    running = tables.RUNNING_OPTIONS.get(program)
    for index, word in enumerate(arguments):
        if word.value == "--" and running is None:
            return
        if word.is_glob and word.may_be_option:
            raise NotProvedError("the name of a file may be an option")
        if running is not None and (word.value.startswith("-") or (program == "tar" and index == 0)):
            name = word.value[2:].partition("=")[0] if word.value.startswith("--") else ""
            letters = word.value.lstrip("-") if not name else ""
            if any(name and option.startswith(name) for option in running.options) or set(letters) & set(running.letters):
                raise NotProvedError(f"an option with which {program} runs others")
