"""Reads words, expansions and assignments of a shell line. Pure."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

from universal.shell import tables
from universal.shell.source import BLANK, OPERATORS, VISITS_LIMIT, Source
from universal.shell.values import Outcome, Piece, State, Word, are_numbers, reject

if TYPE_CHECKING:
    from tree_sitter import Node

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
IDENTIFIER = re.compile(NAME)
_WORD = re.compile(r"(?:[^\s\\'\"`$<>|&;()#\x00-\x20\x7f]|\\[^\n\s\x00-\x20]|\\ |(?<!\A)#)+")
_STRING = re.compile(r"(?:[^\"\\`$]|\\[^\r]|\$(?=[\s.,:;/%=)\]}|&+~^-]|\Z))*", re.DOTALL)
_ANSI = re.compile(r"\$'(?:[^'\\]|\\[^'])*'", re.DOTALL)
_SIMPLE = re.compile(rf"\$(?:{NAME}|[0-9@*#?$!-])")
_OPERAND = rf"(?:[\w./ :*?,@%+~=\[\]^!-]|\$(?:{NAME}|[0-9])|\\[./])*"
_EXPANSION = re.compile(
    rf"\$\{{(?:#(?:{NAME}|[@*])(?:\[[@*0-9]+\])?"
    rf"|(?:{NAME}|[0-9]+|[@*#?$!-])(?:\[(?:[@*]|-?[0-9]+)\])?"
    rf"(?:(?::?[-+?]|[#%]{{1,2}}|//?[#%]?|\^\^?|,,?){_OPERAND}|: ?-?[0-9]+(?::-?[0-9]+)?)?)\}}"
)
_ARITHMETIC_LEAF = re.compile(r"[0-9]+|[-+*/%<>=!?:&|^~()]{1,2}|<<|>>|\$\(\(|\)\)")


class WordReader(Source):
    """Reads words. The substitutions inside of them are statements."""

    def _word(self, node: Node, state: State) -> Word:
        self._enter()
        try:
            return Word(self._of(node), tuple(self._pieces(node, state, quoted=False)))
        finally:
            self._depth -= 1

    def _pieces(self, node: Node, state: State, quoted: bool) -> list[Piece]:  # noqa: C901 - a table of node types
        self._visits += 1
        text = self._of(node)
        match node.type:
            case "word" | "number" | "variable_name" | "test_operator" | "command_name" if not node.children:
                if _WORD.fullmatch(text) is None:
                    raise reject("an unusual word")
                return [Piece(part[1:] if part[0] == "\\" else part, part[0] == "\\") for part in re.findall(r"\\.|[^\\]+", text)]
            case "command_name" if len(node.children) == 1:
                return self._pieces(node.children[0], state, quoted)
            case "raw_string":
                if re.fullmatch(r"'[^']*'", text) is None:
                    raise reject("an unusual string")
                return [Piece(text[1:-1], True)]
            case "ansi_c_string":
                if _ANSI.fullmatch(text) is None:
                    raise reject("`$'` means another thing in another shell")
                return [Piece(None, True)]
            case "string":
                return self._string(node, state)
            case "concatenation" | "brace_expression":
                return self._pieces_of(node, state, quoted)
            case "simple_expansion":
                return [self._variable_piece(text.lstrip(), state, quoted)]
            case "expansion":
                if _EXPANSION.fullmatch(text.lstrip()) is None:
                    raise reject("an expansion that may evaluate text")
                inner = re.fullmatch(rf"\$\{{({NAME})\}}", text.lstrip())
                number = text.lstrip().startswith("${#")
                return [self._variable_piece(f"${inner[1]}", state, quoted) if inner else Piece(None, quoted, None, number)]
            case "command_substitution" | "process_substitution":
                self._substitution(node, state, quoted)
                return [Piece(None, quoted)]
            case "arithmetic_expansion":
                self._arithmetic(node, state)
                return [Piece(None, quoted, ("0", "1"), True)]
            case _:
                raise reject(f"{node.type.replace('_', ' ')} is not followed")

    def _pieces_of(self, node: Node, state: State, quoted: bool) -> list[Piece]:
        pieces: list[Piece] = []
        position = node.start_byte
        for child in node.children:
            if child.start_byte != position:
                raise reject("blanks inside of a word")
            position = child.end_byte
            if not child.is_named:
                if child.type not in ("{", "}", "..", "==", "=", "="):
                    raise reject("an unusual word")
                pieces.append(Piece(child.type, False))
            else:
                if self._text(child.start_byte, child.start_byte + 1) in (" ", "\t", "\n"):
                    raise reject("blanks inside of a word")
                pieces += self._pieces(child, state, quoted)
        if position != node.end_byte:
            raise reject("blanks inside of a word")
        return pieces

    def _string(self, node: Node, state: State) -> list[Piece]:
        """Read a double-quoted string. Its text is what lies between the expansions, because the grammar leaves out blanks."""
        children = node.children
        if len(children) < 2 or children[0].type != '"' or children[-1].type != '"':
            raise reject("an unusual string")
        pieces = [Piece("", True)]
        position = children[0].end_byte
        for child in [*children[1:-1], children[-1]]:
            if child.type in ("string_content", "$"):
                continue
            raw = self._of(child)
            begin = child.start_byte + len(raw) - len(raw.lstrip())
            literal = self._text(position, begin)
            if _STRING.fullmatch(literal) is None:
                raise reject("an unusual string")
            pieces.append(Piece(re.sub(r"\\(\n|[\\$`\"])", lambda match: match[1].strip("\n"), literal), True))
            if child.is_named:
                pieces += self._pieces(child, state, quoted=True)
            elif child is not children[-1]:
                raise reject("an unusual string")
            position = child.end_byte
        return pieces

    def _variable_piece(self, text: str, state: State, quoted: bool) -> Piece:
        if _SIMPLE.fullmatch(text) is None:
            raise reject("an unusual expansion")
        name = text[1:]
        if name == "HOME":
            return Piece(None, quoted, ("~",))
        if name == "PWD":
            return Piece(
                None, quoted, None if state.directories is None else tuple(directory or "." for directory in state.directories)
            )
        values = state.value(name)
        number = name in ("?", "#", "$", "!") or are_numbers(values)
        return Piece(None, quoted, values, number)

    def _substitution(self, node: Node, state: State, quoted: bool) -> None:
        text = self._of(node).lstrip()
        opening, closing = self._of(node.children[0]).strip(), self._of(node.children[-1])
        if opening == "`":
            body = text[1:-1]
            if closing != "`" or re.search(r"[`\\#]", body) or (quoted and '"' in body):
                raise reject("unusual backticks")
        elif opening not in ("$(", "<(", ">(") or closing != ")" or text.startswith("$((") or (quoted and opening != "$("):
            raise reject("an unusual substitution")
        self._enter()
        try:
            before: Node | None = None
            current = state
            for child in node.children:
                self._gap(before, child, start=node.start_byte)
                if child.type == "comment":
                    self._comment(child)
                elif child.type == "file_redirect":  # `$(<file)`
                    if self._redirect(child, current)[1]:
                        raise reject("words behind a redirection")
                elif child.is_named:
                    current = self._statement(child, current).end
                elif before is not None and child.type not in OPERATORS and child.id != node.children[-1].id:
                    raise reject("an unusual substitution")
                before = child
        finally:
            self._depth -= 1

    def _arithmetic(self, node: Node, state: State) -> None:
        """Accept arithmetic of numbers only. Bash evaluates the text of variables, and a subscript in it runs commands."""
        before: Node | None = None
        if not node.children or self._of(node.children[0]).strip() != "$((" or self._of(node.children[-1]) != "))":
            raise reject("arithmetic that is not followed")
        stack = [node]
        leaves: list[Node] = []
        while stack:
            child = stack.pop()
            self._visits += 1
            if child.type in ("simple_expansion", "expansion", "variable_name") or not child.children:
                leaves.append(child)
            else:
                stack += reversed(child.children)
        if self._visits > VISITS_LIMIT:
            raise reject("it is too long")
        for leaf in leaves:
            self._gap(before, leaf, BLANK, start=node.start_byte)
            before = leaf
            text = self._of(leaf).strip()
            if leaf.type == "variable_name" and IDENTIFIER.fullmatch(text):
                piece = self._variable_piece(f"${text}", state, False)
            elif leaf.type in ("simple_expansion", "expansion"):
                (piece,) = self._pieces(leaf, state, False)
            elif _ARITHMETIC_LEAF.fullmatch(text) is not None:
                continue
            else:
                raise reject("arithmetic that is not followed")
            if not piece.number:
                raise reject("arithmetic with a variable that may not be a number")

    def _variable(self, node: Node) -> str:
        name = self._of(node)
        if IDENTIFIER.fullmatch(name) is None:
            raise reject("an unusual variable")
        return self._harmless(name)

    def _harmless(self, name: str) -> str:
        if tables.RUNNING_VARIABLES.fullmatch(name) and not tables.HARMLESS_VARIABLES.fullmatch(name):
            raise reject(f"{name} may make programs run others")
        return name

    def _parse_assignment(self, node: Node, state: State) -> tuple[str, Word | None]:
        """Read the name and value of an assignment, without changing the state."""
        children = node.children
        if node.type != "variable_assignment" or not children or children[0].type != "variable_name":
            raise reject("an unusual assignment")
        name = self._of(children[0])
        if IDENTIFIER.fullmatch(name) is None:
            raise reject("an unusual assignment")
        for before, two in pairwise(children):
            if before.end_byte != two.start_byte:
                raise reject("an unusual assignment")
        if len(children) < 2 or children[1].type not in ("=", "+=") or len(children) > 3:
            raise reject("an unusual assignment")
        if len(children) == 2:
            return name, Word("", (Piece("", True),))
        value = children[2]
        if value.type == "array":
            for word in self._array(value, state):
                if word.source.startswith("["):
                    raise reject("an array with subscripts")
            return name, None
        word = self._word(value, state)
        return name, None if children[1].type == "+=" else word

    def _array(self, node: Node, state: State) -> list[Word]:
        words: list[Word] = []
        before: Node | None = None
        for child in node.children:
            gap = self._gap(before, child, start=node.start_byte)
            if child.is_named:
                if before is not None and before.is_named and not gap:
                    raise reject("two words without a blank between")
                words.append(self._word(child, state))
            elif child.type not in "()":
                raise reject("an unusual array")
            before = child
        return words

    def _assignment(self, node: Node, state: State) -> State:
        name, word = self._parse_assignment(node, state)
        self._harmless(name)
        if word is None:
            return state.assign(name, None)
        if (
            any(piece.number and piece.text is None for piece in word.pieces)
            and len([p for p in word.pieces if p.text != ""]) == 1
        ):
            return state.assign(name, ("0", "1"))
        return state.assign(name, word.values)

    def _literal(self, node: Node) -> str:
        text = self._of(node)
        if _WORD.fullmatch(text) is None and text not in ("==", "=~"):
            raise reject("an unusual word")
        return text

    def _assignment_word(self, node: Node, state: State) -> Word:
        name, word = self._parse_assignment(node, state)
        self._harmless(name)
        pieces = (Piece(None, True),) if word is None else word.pieces
        return Word(self._of(node), (Piece(f"{name}=", False), *pieces))

    def _statement(self, node: Node, state: State) -> Outcome:
        raise NotImplementedError

    def _redirect(self, node: Node, state: State) -> tuple[str, list[Word]]:
        raise NotImplementedError
