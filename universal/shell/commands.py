"""Reads simple commands of a shell line: what they run, which paths they name, how they change the shell. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from typing import TYPE_CHECKING

from universal.shell import tables
from universal.shell.source import CONTINUED
from universal.shell.statements import StatementReader
from universal.shell.values import (
    VALUES_LIMIT,
    Outcome,
    Piece,
    State,
    Values,
    Word,
    after_equals,
    is_number,
    reject,
    static_values,
)
from universal.shell.words import IDENTIFIER, NAME

if TYPE_CHECKING:
    from tree_sitter import Node

COMMANDS_LIMIT = 300
"""Maximum number of commands of a line, also of one that is not understood."""

_PLAIN = re.compile(r"[\w./:@%+,=-]+")
_TEST_UNARY = re.compile(r"-[bcdefghknprstuwxzGLNOS]")
_TEST_BINARY = re.compile(r"=|==|!=|-(nt|ot|ef)")
_TEST_NUMBER = re.compile(r"-(eq|ne|lt|le|gt|ge)")
_SEPARATOR = re.compile(r"&&|\|\||[;|\n`()]|(?<![<>&])&(?![>&])|\$\(")


def rough_commands(line: str) -> tuple[str, ...]:
    """Cut a line at everything that may separate commands. The line itself comes first."""
    pieces = (piece.strip() for piece in (line, *_SEPARATOR.split(line, COMMANDS_LIMIT)))
    return tuple(dict.fromkeys(piece for piece in pieces if piece)) or (line.strip(),)


class Reader(StatementReader):
    """Collects the commands and paths of a line, and of the texts that its commands evaluate."""

    def _command(self, node: Node, redirects: Iterable[Node], state: State) -> Outcome:
        self._place += 1
        place = self._place
        assignments: list[Node] = []
        words: list[Word] = []
        texts: list[str] = []
        before: Node | None = None
        nodes = self._flat(node)
        for child in nodes:
            gap = self._gap(before, child, CONTINUED, start=node.start_byte)
            if before is not None and not gap and before.type != "file_redirect" and child.type != "file_redirect":
                raise reject("two words without a blank between")
            before = child
            if child.type == "variable_assignment" and not words:
                assignments.append(child)
            elif child.type in ("file_redirect", "herestring_redirect", "heredoc_redirect"):
                text, behind = self._redirect(child, state)
                if behind and not words:
                    raise reject("words behind a redirection")
                texts.append(text)
                words += behind
            elif child.type == "variable_assignment":
                words.append(self._assignment_word(child, state))
            elif not child.is_named:
                words.append(Word(self._of(child), (Piece(self._literal(child), False),)))
            else:
                words.append(self._word(child, state))
        if node.id in self._dashes:
            words.append(Word("-", (Piece("-", False),)))
        closed = False
        for redirect in redirects:
            if closed and redirect.type != "file_redirect":
                raise reject("`&>` means another thing in another shell")
            text, behind = self._redirect(redirect, state)
            if behind and (not words or closed):
                raise reject("words behind a redirection")
            closed = closed or text.startswith("&")
            texts.append(text)
            words += behind
        return self._run(place, assignments, words, texts, state, declared=node.type == "declaration_command")

    def _flat(self, node: Node) -> list[Node]:
        """The words of a command in one list. The grammar builds a tree of the words of a test (`[ ... ]`)."""
        if node.type != "test_command":
            return node.children
        nodes: list[Node] = []
        stack = [node]
        while stack:
            child = stack.pop()
            self._visits += 1
            if child is node or child.type in ("binary_expression", "unary_expression", "negation_expression"):
                stack += reversed(child.children)
            else:
                nodes.append(child)
        return nodes

    def _run(
        self,
        place: int,
        assignments: Sequence[Node],
        words: list[Word],
        redirects: list[str],
        state: State,
        declared: bool = False,
    ) -> Outcome:
        """Read one simple command: its assignments, its words and its redirections."""
        if not words:
            for node in assignments:
                state = self._assignment(node, state)
            return Outcome(state, state)
        name = words[0].value
        prefix = ""
        for node in assignments:
            variable, value = self._parse_assignment(node, state)
            if variable == "IFS" and name == "read" and value is not None and value.value is not None:
                continue
            state = state.assign(self._harmless(variable), None)
            if not tables.HARMLESS_VARIABLES.fullmatch(variable):
                prefix += f"{self._of(node)} "
        return self._simple(place, prefix, words, redirects, state, declared)

    def _simple(
        self,
        place: int,
        prefix: str,
        words: Sequence[Word],
        redirects: Sequence[str],
        state: State,
        declared: bool = False,
    ) -> Outcome:
        first, *rest = words
        name = first.value
        if not name or name in tables.RESERVED - {"[["} or "=" in name or "\n" in name:
            raise reject("which command runs is not known")
        program = posixpath.basename(name) if "/" in name else name
        if name not in tables.FREE or prefix:
            self._add(place, prefix, words, redirects)
        if program in tables.OPAQUE or (program in tables.OTHER_SHELLS and rest):
            raise reject(f"what {name} runs is not followed")
        if program in ("[", "[[", "test"):
            self._test(program, rest)
        elif program in tables.DECLARING or program == "unset":
            return self._declare(program, rest, state, declared)
        self._running_options(program, rest)
        self._path_arguments(program, rest, state)
        return self._effect(program, rest, state)

    def _add(self, place: int, prefix: str, words: Sequence[Word], redirects: Sequence[str]) -> None:
        """Record the command's text as written, and with plain words in place of quoted ones at its start (`"git" push`)."""
        sources = [word.source for word in words]
        plain = [word.value if _PLAIN.fullmatch(word.value or "") else word.source for word in words[:3]]
        for texts in (sources, [*(text or "" for text in plain), *sources[3:]]):
            text = " ".join([*texts, *redirects])
            self._record(place, prefix + text)
            self._record(place, text)  # a deny holds whichever variables are set

    def _record(self, place: int, text: str) -> None:
        self.commands.append((place, text))
        if len(self.commands) > COMMANDS_LIMIT:
            raise reject("it has too many commands")

    def _effect(self, name: str, rest: Sequence[Word], state: State) -> Outcome:  # noqa: C901 - a table of node types
        match name:
            case "cd" | "pushd":
                return self._change_directory(name, rest, state)
            case "popd":
                unknown = replace(state, directories=None)
                return Outcome(unknown, unknown)
            case "eval":
                return self.read(" ".join(static_values(rest, "eval")), state)
            case "trap":
                return self._trap(rest, state)
            case "read":
                return self._read(rest, state)
            case "source" | ".":
                if not rest or rest[0].value is None:
                    raise reject("which file is evaluated is not known")
                after = State(None, tuple((variable, None) for variable, _ in state.variables))
                after = after if self._changes_directory else replace(after, directories=state.directories)
                return Outcome(after, after)
            case "printf":
                self._printf(rest)
            case "set" | "shopt":
                self._options(name, rest)
            case "hash" | "jobs" | "wait":
                if any(word.value is None or word.value.startswith(("-p", "-x")) for word in rest):
                    raise reject(f"what {name} does is not known")
            case "find":
                self._find(rest, state)
            case _ if name in tables.SHELLS:
                self._shell(rest, state)
            case _ if name in tables.WRAPPERS:
                return self._wrapped_command(name, tables.WRAPPERS[name], rest, state)
            case _:
                pass
        return Outcome(state, state)

    def _wrapped_command(self, name: str, wrapper: tables.Wrapper, rest: Sequence[Word], state: State) -> Outcome:
        words = list(rest)
        while words and (words[0].value is None or words[0].value.startswith("-")):
            option = words.pop(0).value
            if option is None:
                raise reject(f"what {name} runs is not known")
            if option == "--":
                break
            if _is_lookup(option, wrapper):
                return Outcome(state, state)
            words = words[_values_behind(name, option, wrapper) :]
        del words[: wrapper.operands]
        while wrapper.assignments and words and (match := re.match(rf"({NAME})=", words[0].start)):
            if not tables.HARMLESS_VARIABLES.fullmatch(match[1]):
                raise reject(f"{match[1]} may make programs run others")
            words.pop(0)
        if not words:
            return Outcome(state, state)
        if words[0].value is None or words[0].split:
            raise reject(f"what {name} runs is not known")
        if wrapper.stdin_arguments:
            self._xargs(words[0].value)
        in_shell = name in ("command", "builtin", "time")
        outcome = self._simple(self._place, "", words, (), state)
        return outcome if in_shell else Outcome(state, state)

    def _xargs(self, name: str) -> None:
        """Check a command that xargs runs: it gets arguments that are not in the line."""
        if name in tables.WRAPPERS or name in tables.SHELLS or name in tables.OTHER_SHELLS or name in tables.RUNNING_OPTIONS:
            raise reject(f"what {name} runs is not known")
        if name == "find":
            raise reject("what find runs is not known")
        if name in tables.PATH_COMMANDS:
            self.paths_known = False

    def _find(self, rest: Sequence[Word], state: State) -> None:
        words = list(rest)
        if any(word.split for word in words) or any(word.value is None and not word.start[:1] for word in words[1:]):
            raise reject("what find runs is not known")
        while words:
            if words.pop(0).value not in tables.FIND_RUNS:
                continue
            end = next((index for index, word in enumerate(words) if word.value in (";", "+")), None)
            if not end or words[0].value is None or "{}" in words[0].source:
                raise reject("what find runs is not known")
            if words[0].value in tables.SHELLS and any("{}" in word.source for word in words[1:3]):
                raise reject("what find runs is not known")
            self._simple(self._place, "", words[:end], (), state)
            words = words[end + 1 :]

    def _shell(self, rest: Sequence[Word], state: State) -> None:
        """Read the text of `sh -c TEXT` like the line. A script or standard input is not read: the pattern is the shell's."""
        for index, word in enumerate(rest):
            option = word.value
            if option is None and not word.start.startswith(("/", "./", "../")):
                raise reject("what the shell runs is not known")
            if option is None or not option.startswith(("-", "+")) or option in ("-", "--"):
                return
            if re.fullmatch(r"-[leuxi]*c[leuxi]*", option):
                text = rest[index + 1].value if index + 1 < len(rest) else None
                if text is None or text.startswith(("-", "+")):
                    raise reject("what the shell runs is not known")
                self._nested_text(text, State(state.directories))
                return
            if re.fullmatch(r"-[leuxnvis]+|--(login|norc|noprofile|posix|version|help)", option) is None:
                raise reject("what the shell runs is not known")

    def _nested_text(self, text: str, state: State) -> Outcome:
        self._enter()
        try:
            return self.read(text, state)
        finally:
            self._depth -= 1

    def _trap(self, rest: Sequence[Word], state: State) -> Outcome:
        words = static_values(rest, "trap")
        if words and words[0] == "--":
            words = words[1:]
        if words and words[0] not in ("-", "", "-p", "-l"):
            self._nested_text(words[0], State(None, tuple((variable, None) for variable, _ in state.variables)))
        return Outcome(state, state)

    def _read(self, rest: Sequence[Word], state: State) -> Outcome:
        words = list(rest)
        while words and words[0].start.startswith("-"):
            word = words.pop(0)
            option = word.value
            if option is None or re.fullmatch(r"-[rse]*([pdintNu].*|a)?", option) is None:
                raise reject("what read assigns is not known")
            if re.fullmatch(r"-[rse]*[pdintNu]", option) and words and words.pop(0).split:
                raise reject("what read assigns is not known")
        for word in words:
            state = state.assign(self._program_name(word), None)
        state = state.assign("REPLY", None)
        return Outcome(state, state)

    def _program_name(self, word: Word) -> str:
        if word.value is None or IDENTIFIER.fullmatch(word.value) is None:
            raise reject("which variable is set is not known")
        return self._harmless(word.value)

    def _declare(self, name: str, rest: Sequence[Word], state: State, declared: bool) -> Outcome:
        for word in rest:
            match = re.match(rf"({NAME})=", word.start)
            if match and declared:
                if word.split:
                    raise reject("a declaration that another shell splits")
                state = state.assign(self._harmless(match[1]), None)
            elif word.value is not None and word.value.startswith("-"):
                if re.fullmatch(r"-[xagprAfFvu]+" if name != "unset" else r"-[fv]", word.value) is None:
                    raise reject("a declaration that is not followed")
            else:
                state = state.assign(self._program_name(word), None)
        return Outcome(state, state)

    def _printf(self, rest: Sequence[Word]) -> None:
        if not rest:
            return
        first = rest[0]
        if first.value is not None and first.value.startswith("-v"):
            raise reject("printf -v may evaluate a subscript")
        if first.value is None and (not first.start or first.start.startswith("-")):
            raise reject("printf may evaluate a subscript")

    def _options(self, name: str, rest: Sequence[Word]) -> None:
        for word in rest:
            if name == "shopt" and word.value in ("-s", "-u", "-q", *tables.SHOPT_NAMES):
                continue
            if name == "set" and word.value is not None and tables.SET_FLAGS.fullmatch(word.value):
                continue
            raise reject(f"what {name} changes is not followed")

    def _test(self, name: str, rest: Sequence[Word]) -> None:
        """Accept only tests that evaluate no text as arithmetic and no subscript."""
        closing = {"[": "]", "[[": "]]"}.get(name)
        words = list(rest)
        if closing and (not words or words.pop().value != closing):
            raise reject("an unusual test")
        if name == "[[" and any(word.source in ("&&", "||", "<", ">", "=~", "(", ")") for word in words):
            raise reject("`[[` means another thing in another shell")
        while words and words[0].value == "!":
            words.pop(0)
        if name != "[[" and any(word.split for word in words):
            raise reject("a test whose words are not known")
        match words:
            case [] | [_]:
                return
            case [operator, _] if _TEST_UNARY.fullmatch(operator.value or ""):
                return
            case [_, operator, _] if _TEST_BINARY.fullmatch(operator.value or ""):
                return
            case [left, operator, right] if _TEST_NUMBER.fullmatch(operator.value or ""):
                if name != "[[" or all(is_number(word) for word in (left, right)):
                    return
            case _:
                pass
        if name == "[[" or not all(word.value is not None for word in words) or any(word.value in ("-v", "-R") for word in words):
            raise reject("a test that may evaluate text")

    def _running_options(self, name: str, rest: Sequence[Word]) -> None:
        pattern = tables.RUNNING_OPTIONS.get(name)
        if pattern is None:
            return
        if name == "git":
            self._git(rest, pattern)
            return
        if any(pattern.fullmatch(word.value if word.value is not None else word.start) for word in rest):
            raise reject(f"an option with which {name} runs others")

    def _git(self, rest: Sequence[Word], pattern: re.Pattern[str]) -> None:
        words = list(rest)
        while words and words[0].start.startswith("-"):
            option = words.pop(0)
            if option.value is None or tables.GIT_OPTIONS_BEFORE_SUBCOMMAND.fullmatch(option.value):
                raise reject("an option with which git runs others")
            if option.value in ("-C", "--git-dir", "--work-tree", "--namespace") and words:
                words.pop(0)
        if not words:
            return
        subcommand = words[0].value
        if subcommand is None or words[0].split:
            raise reject("which command of git runs is not known")
        static = [word.value or "" for word in words[:2]]
        if any(tuple(static[: len(running)]) == running for running in tables.GIT_RUNNING_SUBCOMMANDS):
            raise reject(f"git {subcommand} runs others")
        allowed = tables.GIT_SUBCOMMAND_ALLOWS.get(subcommand)
        for word in words[1:]:
            text = word.value if word.value is not None else word.start
            if text == "--":
                break
            if pattern.fullmatch(text) and not (allowed and allowed.fullmatch(text)):
                raise reject("an option with which git runs others")

    def _path(self, word: Word, state: State, *, directory: bool = False) -> None:
        """Report the paths that a word names. A directory ends with `/`."""
        values = word.values
        if values is None or (word.tilde and not re.match(r"~(/|\Z)", word.source)):
            self.paths_known = False
            return
        for value in values:
            if value == "" or tables.DEVICES.fullmatch(value):
                continue
            if value.startswith("~") and not word.tilde and word.pieces[0].text:
                value = f"./{value}"
            if directory:
                value = value.rstrip("/") + "/"
            if value.startswith(("/", "~")):
                self.paths.append(value)
            elif state.directories is None:
                self.paths_known = False
            else:
                self.paths += [posixpath.join(directory, value) for directory in state.directories]

    def _path_arguments(self, name: str, rest: Sequence[Word], state: State) -> None:
        options = tables.DIRECTORY_OPTIONS.get(name, ())
        skipped = tables.PATH_COMMANDS.get(name)
        if name == "find":
            rest = list(takewhile(lambda word: not word.start.startswith(("-", "(", "!")), rest))
        elif name in tables.SHELLS:
            rest = rest[:1]
        for index, word in enumerate(rest):
            head = word.start.split("=", 1)[0]
            if head in options and "=" not in word.start and index + 1 < len(rest):
                self._path(rest[index + 1], state, directory=head in ("-C", "--work-tree", "--prefix", "--directory", "--cwd"))
            elif (head in options or skipped is not None) and word.start.startswith("-") and "=" in word.start:
                self._path(after_equals(word), state)
            elif skipped is None or word.start.startswith("-"):
                continue
            elif skipped:
                skipped -= 1
            else:
                self._path(word, state, directory=name in tables.DIRECTORY_COMMANDS)

    def _change_directory(self, name: str, rest: Sequence[Word], state: State) -> Outcome:
        words = [word for word in rest if word.value not in ("-P", "-L", "-e", "--")]
        values: Values
        if not words:
            values = ("~",) if name == "cd" else None
            self.paths += ["~/"] if name == "cd" else []
        elif len(words) > 1 or words[0].value == "-" or words[0].has_glob or words[0].split:
            values = None
        else:
            values = words[0].values
        directories: Values = None
        if values is not None and (state.directories is not None or all(value.startswith(("/", "~")) for value in values)):
            bases = state.directories or ("",)
            paths = [value if value[:1] in ("/", "~") else posixpath.join(base, value) for base in bases for value in values]
            directories = tuple(dict.fromkeys(paths)) if len(paths) <= VALUES_LIMIT else None
        if directories is None:
            self.paths_known = False
        success = replace(state, directories=directories)
        return Outcome(success, state.merge(success))


def _is_lookup(option: str, wrapper: tables.Wrapper) -> bool:
    return bool(wrapper.lookup) and re.fullmatch(rf"-[{wrapper.lookup}p]+", option) is not None


def _values_behind(name: str, option: str, wrapper: tables.Wrapper) -> int:
    """Number of words after an option that belong to it."""
    if option.startswith("--"):
        head, equals, _ = option.partition("=")
        if head in wrapper.long_flags and not equals:
            return 0
        if head in wrapper.long_valued:
            return 0 if equals else 1
    elif wrapper.numbers and re.fullmatch(r"-[0-9]+", option):
        return 0
    else:
        for index, letter in enumerate(option[1:], 1):
            if letter in wrapper.valued:
                return 0 if option[index + 1 :] else 1
            if letter not in wrapper.flags:
                break
        else:
            return 0
    raise reject(f"an option of {name} that is not known")
