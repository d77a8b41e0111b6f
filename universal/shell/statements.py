"""Reads lists, loops, functions and other statements of a shell line. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from universal.shell import tables
from universal.shell.redirections import RedirectionReader
from universal.shell.source import BLANK, CONTINUED, OPERATORS, SPACE
from universal.shell.values import Outcome, State, Values, Word, reject

if TYPE_CHECKING:
    from tree_sitter import Node

_DASH = re.compile(r"(?:\\\n)*[ \t](?:[ \t]|\\\n)*|[ \t]+-[ \t]+")
_COMMANDS = ("command", "test_command", "declaration_command", "unset_command")


class StatementReader(RedirectionReader):
    """Tracks the known state of the shell through all statements."""

    def _statements(self, node: Node, state: State, words: frozenset[str] = frozenset()) -> Outcome:
        """Read statements one after the other. `words` are the keywords that may stand between them."""
        outcome = Outcome(state, state)
        before: Node | None = None
        children = node.children
        for index, child in enumerate(children):
            self._gap(before, child, start=node.start_byte)
            before = child
            if child.type == "comment":
                self._comment(child)
            elif child.is_named:
                background = index + 1 < len(children) and children[index + 1].type == "&"
                after = self._statement(child, outcome.end)
                outcome = Outcome(outcome.end, outcome.end) if background else after
            elif child.type not in OPERATORS and child.type not in words:
                raise reject(f"`{child.type}` in an unusual place")
        return outcome

    def _statement(self, node: Node, state: State) -> Outcome:
        self._enter()
        try:
            return self._dispatch(node, state)
        finally:
            self._depth -= 1

    def _dispatch(self, node: Node, state: State) -> Outcome:  # noqa: C901 - a table of node types
        match node.type:
            case "command" | "test_command" | "declaration_command" | "unset_command":
                return self._command(node, self._pending.pop(node.id, ()), state)
            case "variable_assignment":
                after = self._assignment(node, state)
                return Outcome(after, after)
            case "variable_assignments":
                for child in self._with_blanks(node):
                    state = self._assignment(child, state)
                return Outcome(state, state)
            case "redirected_statement":
                return self._redirected_statement(node, state)
            case "list":
                return self._list(node, state)
            case "pipeline":
                return self._pipeline(node, state)
            case "negated_command":
                first, *rest = node.children
                if first.type != "!" or len(rest) != 1 or not self._gap(first, rest[0], BLANK):
                    raise reject("`!` in an unusual place")
                end = self._statement(rest[0], state).end
                return Outcome(end, end)
            case "subshell":
                self._statements(node, state, frozenset("()"))
                return Outcome(state, state)
            case "compound_statement":
                if node.children[0].type != "{":
                    raise reject("`((` means another thing in another shell")
                return self._statements(node, state, frozenset("{}"))
            case "if_statement" | "elif_clause" | "else_clause":
                words = frozenset({"if", "then", "elif", "else", "fi"})
                end = self._branches(node, state, words)
                return Outcome(end, end)
            case "while_statement":
                return self._loop(node, state, frozenset({"while", "until"}))
            case "for_statement":
                return self._for(node, state)
            case "do_group":
                return self._statements(node, state, frozenset({"do", "done"}))
            case "case_statement":
                return self._case(node, state)
            case "function_definition":
                return self._function(node, state)
            case _:
                raise reject(f"{node.type.replace('_', ' ')} is not followed")

    def _branches(self, node: Node, state: State, words: frozenset[str]) -> State:
        """Read statements of which any part may run, and merge the states that they leave."""
        before: Node | None = None
        merged = state
        for child in node.children:
            self._gap(before, child, start=node.start_byte)
            before = child
            if child.type == "comment":
                self._comment(child)
            elif child.is_named:
                state = self._statement(child, state).end
                merged = state = merged.merge(state)
            elif child.type not in words and child.type not in OPERATORS:
                raise reject(f"`{child.type}` in an unusual place")
        return merged

    def _loop(self, node: Node, state: State, words: frozenset[str]) -> Outcome:
        """Read the body of a loop again in the state that it leaves, because the loop may run any number of times."""
        once = self._branches(node, state, words)
        end = once if once == state else self._branches(node, state.merge(once), words)
        if end != once:
            end = State(None, tuple((name, None) for name, _ in end.variables))
            self._branches(node, end, words)
        return Outcome(end, end)

    def _for(self, node: Node, state: State) -> Outcome:
        before: Node | None = None
        name, body, in_header = "", None, True
        values: list[Word] | None = None
        for child in node.children:
            header = in_header and values is not None and child.type not in (";", "\n", "do_group")
            self._gap(before, child, CONTINUED if header else SPACE, start=node.start_byte)
            before = child
            match child.type:
                case "for":
                    pass
                case "variable_name" if not name:
                    name = self._variable(child)
                case "in":
                    values = []
                case ";" | "\n":
                    in_header = False
                case "do_group":
                    body = child
                case _ if header and values is not None:
                    values.append(self._word(child, state))
                case _:
                    raise reject("an unusual `for`")
        if not name or body is None or node.children[0].type != "for":
            raise reject("an unusual `for`")
        choices = self._choices(values)
        inside = state.assign(name, choices)
        once = self._statement(body, inside).end
        if once != inside:
            inside = inside.merge(once).assign(name, choices)
            again = self._statement(body, inside).end
            if again != inside:
                inside = State(None, tuple((n, None) for n, _ in again.variables)).assign(name, choices)
                self._statement(body, inside)
        end = state.merge(inside).assign(name, choices if values else None)
        return Outcome(end, end)

    def _choices(self, words: list[Word] | None) -> Values:
        if not words:
            return None
        values: list[str] = []
        for word in words:
            if word.values is None or word.split:
                return None
            values += word.values
        return tuple(dict.fromkeys(values))

    def _case(self, node: Node, state: State) -> Outcome:
        before: Node | None = None
        merged = state
        for child in node.children:
            self._gap(before, child, start=node.start_byte)
            if child.type == "case_item":
                merged = merged.merge(self._case_item(child, state))
            elif child.type == "comment":
                self._comment(child)
            elif child.is_named:
                if before is None or before.type != "case":
                    raise reject("an unusual `case`")
                self._word(child, state)
            elif child.type not in ("case", "in", "esac", "\n"):
                raise reject("an unusual `case`")
            before = child
        return Outcome(merged, merged)

    def _case_item(self, node: Node, state: State) -> State:
        before: Node | None = None
        patterns = True
        for child in node.children:
            self._gap(before, child, BLANK if patterns and before is not None else SPACE, start=node.start_byte)
            if child.type == ")" and patterns:
                patterns = False
            elif patterns and child.is_named:
                if before is not None and before.type != "|" and before.type != "(":
                    raise reject("an unusual `case`")
                self._pattern(child, state)
            elif patterns and child.type not in ("|", "("):
                raise reject("an unusual `case`")
            elif child.type == "comment":
                self._comment(child)
            elif child.is_named:
                state = self._statement(child, state).end
            elif not patterns and child.type not in (";;", *OPERATORS):
                raise reject("an unusual `case`")
            before = child
        return state

    def _pattern(self, node: Node, state: State) -> None:
        text = self._of(node)
        if node.type in ("extglob_pattern", "regex"):
            if re.fullmatch(r"[\w.*?/:@%+,=\[\]~-]+", text) is None or text in tables.RESERVED:
                raise reject("an unusual pattern")
        elif self._word(node, state).source in tables.RESERVED:
            raise reject("an unusual pattern")

    def _function(self, node: Node, state: State) -> Outcome:
        first, *rest = node.children
        name = self._of(first)
        if first.type != "word" or re.fullmatch(r"[A-Za-z_][\w-]*", name) is None or name in tables.RESERVED:
            raise reject("an unusual function")
        before = first
        for child in rest[:-1]:
            self._gap(before, child)
            if child.type not in ("(", ")"):
                raise reject("an unusual function")
            before = child
        body = rest[-1]
        self._gap(before, body)
        if body.type != "compound_statement" or len(rest) != 3:
            raise reject("an unusual function")
        unknown = State(None if self._changes_directory else state.directories)
        after = self._statement(body, unknown).end
        changed = {**dict(state.variables), **{variable: None for variable, _ in after.variables}}
        keeps_directory = after.directories == unknown.directories
        end = State(state.directories if keeps_directory else None, tuple(sorted(changed.items())))
        return Outcome(end, end)

    def _list(self, node: Node, state: State) -> Outcome:
        chain: list[Node] = []
        while node.type == "list":
            if len(node.children) != 3:
                raise reject("an unusual list")
            left, operator, right = node.children
            self._gap(left, operator)
            self._gap(operator, right)
            chain += [right, operator]
            node = left
        outcome = self._statement(node, state)
        while chain:
            operator, right = chain.pop(), chain.pop()
            if operator.type == "&&":
                after = self._statement(right, outcome.success)
                outcome = Outcome(after.success, outcome.end.merge(after.end))
            elif operator.type == "||":
                after = self._statement(right, outcome.end)
                leaves = right.type == "command" and self._of(right).split()[0] in tables.ENDS
                success = outcome.success if leaves else outcome.success.merge(after.success)
                outcome = Outcome(success, success if leaves else outcome.end.merge(after.end))
            else:
                raise reject("an unusual list")
        return outcome

    def _pipeline(self, node: Node, state: State, start: int | None = None) -> Outcome:
        before: Node | None = None
        for child in node.children:
            self._gap(before, child, start=node.start_byte if start is None else start)
            before = child
            if child.is_named:
                self._statement(child, state)
            elif child.type not in ("|", "|&"):
                raise reject("an unusual pipeline")
        return Outcome(state, state)

    def _redirected_statement(self, node: Node, state: State) -> Outcome:
        body = node.child_by_field_name("body")
        redirects: list[Node] = []
        before: Node | None = None
        for child in node.children:
            dash = child.type == "heredoc_redirect" and None not in (before, body) and before == body
            gap = self._gap(before, child, _DASH if dash else CONTINUED, start=node.start_byte)
            if body is not None and "-" in gap:  # the grammar loses the `-` of `python - <<EOF`
                self._dashes.add(body.id)
            before = child
            if body is None or child.id != body.id:
                redirects.append(child)
        redirects += self._pending.pop(node.id, [])
        target = body
        while target is not None and target.type in ("pipeline", "list", "negated_command"):
            target = target.children[
                -1
            ]  # the grammar attaches it to the whole pipeline; the shell attaches it to the last command
        if body is not None and target is not None and target.type in (*_COMMANDS, "redirected_statement"):
            self._pending[target.id] = redirects
            return self._statement(body, state)
        for redirect in redirects:
            if self._redirect(redirect, state)[1]:
                raise reject("words behind a redirection")
        return Outcome(state, state) if body is None else self._statement(body, state)

    def _command(self, node: Node, redirects: Iterable[Node], state: State) -> Outcome:
        raise NotImplementedError
