"""Checks the names of modules, classes, functions and tests: nouns and verbs, no participles and pronouns.

    python -m tools.naming          prints each name that breaks a rule; exit code 1 if there is one

The rules:

* A name is no participle and no pronoun (`handed`, `known`, `other`, `Own`).
* A name does not begin with a pronoun (`own_file`), nor with a participle and a preposition (`found_in`, `named_by`).
  A participle before a noun is an adjective and may stay (`stored_record`), but not one that is true of everything and so
  says nothing (`made_error`, `KnownModel`): those in `EMPTY_ADJECTIVES`.
* The words in `VAGUE` stand in no name: a reader cannot see who gives what to whom.
* OpenCode 1 and OpenCode 2 are called `opencode1` and `opencode2`, not `first` and `second`, and not by a number at the end.
* A test's name has a subject: it does not begin with a pronoun (`test_what_is_refused`).
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FOLDERS = ("universal", "shim", "tools", "tests")


def words_of(text: str) -> frozenset[str]:
    """The words of a list below."""
    return frozenset(text.split())


VAGUE = words_of("told tell teller handed given said anew nobody somebody")
PRONOUNS = words_of("""
    all anybody anything both each everybody everything it its many mine more much nobody none nothing one ones other others ours
    own same somebody someone something that their theirs them these they this those what which who whom whose yours
""")
LEADING_PRONOUNS = PRONOUNS - words_of("all both each many more one other same")
"""Before a noun, the words that are taken out here count or compare: `all_sessions`, `same_origin`."""
PARTICIPLES = words_of("""
    asked begun bought broken brought built caught chosen done drawn driven felt forgotten found gone got grown heard held hidden
    kept known laid led lost made meant met paid seen sent shown shut sold spent spoken stood taken taught thought thrown torn
    understood woken won worn written
""")
"""Those that end neither in -ed nor in -ing, which `is_participle` knows by their end."""
EMPTY_ADJECTIVES = words_of("asked found got known made meant said seen taken")
NOUNS = words_of("""
    binding embed encoding exceed feed framing greeting heading indexing listing logging mapping naming need pairing pending ping
    proceed reading reasoning recording rendering ring routing scheduling seed setting spacing speed string succeed thing timing
    warning
""")
"""Nouns and verbs of the field that end like a participle."""
PREPOSITIONS = words_of("at by for from in into now of on out over to up")
SUBJECTLESS = re.compile(
    r"test_(what|whatever|who|whoever|whose|it|its|they|these|this|that|those|such|others|one_(that|who|alone))(_|$)"
)
OPENCODE = re.compile(
    r"(first|second)_(wire|face|generation|protocol)|(event|fold|projector|render|reducer|wire|tui|face|view|story)2"
)
EXCEPTIONS = {
    "outdated": "the command `make outdated`, called as npm's and pip's",
    "known_by": "a field of the messages in stored checkpoints",
    "_known_by": "its value, by which pages of messages keep it",
    "shim/host/files/file_actions.py:tell": "a method of Python's file objects",
}
"""Names that break a rule and stay, or one of them as `FILE:NAME`, each with the reason."""

Kind = Literal["module", "class", "function", "test"]


@dataclass(frozen=True, slots=True)
class Name:
    """A name and where it is defined."""

    place: str
    kind: Kind
    text: str

    @property
    def words(self) -> list[str]:
        """The words of the name in lower case."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", self.text).strip("_").lower().split("_")


def names_in(path: Path) -> Iterator[Name]:
    """The name of a file, and all that it defines."""
    yield Name(str(path), "module", path.stem)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ClassDef):
            yield Name(f"{path}:{node.lineno}", "class", node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Name(f"{path}:{node.lineno}", "test" if node.name.startswith("test_") else "function", node.name)


def is_participle(word: str) -> bool:
    """Whether an English word is a participle, by `PARTICIPLES` or by its end."""
    if word in NOUNS:
        return False
    return word in PARTICIPLES or (len(word) > 4 and word.endswith("ed")) or (len(word) > 5 and word.endswith("ing"))


def broken_rule(name: Name) -> str | None:
    """The rule that a name breaks, as advice; None for a good name."""
    words = name.words
    if name.text in EXCEPTIONS or name.text.startswith("__") or f"{name.place.partition(':')[0]}:{name.text}" in EXCEPTIONS:
        return None
    if vague := VAGUE.intersection(words):
        return f"say who does what instead of {'/'.join(sorted(vague))}"
    if OPENCODE.search("_".join(words)):
        return "say opencode1 or opencode2"
    if name.kind == "test":
        return "name the subject" if SUBJECTLESS.match(name.text) else None
    if len(words) == 1 and (words[0] in PRONOUNS or is_participle(words[0])):
        return "use a noun or a verb"
    if len(words) > 1 and words[0] in LEADING_PRONOUNS:
        return "do not begin with a pronoun"
    if len(words) > 1 and is_participle(words[0]) and words[1] in PREPOSITIONS:
        return "use a noun or a verb instead of a participle"
    if len(words) > 1 and words[0] in EMPTY_ADJECTIVES:
        return "an adjective that is true of everything says nothing"
    return None


def findings(files: Iterable[Path]) -> list[str]:
    """One line for each name in these files that breaks a rule."""
    named = ((name, broken_rule(name)) for path in files for name in names_in(path))
    return [f"{name.place}: {name.kind} {name.text}: {rule}" for name, rule in named if rule is not None]


def source_files() -> list[Path]:
    """All Python files of the repository."""
    return sorted(path for folder in FOLDERS for path in Path(folder).rglob("*.py") if "node_modules" not in path.parts)


def main() -> int:
    """Prints the findings of the repository."""
    lines = findings(source_files())
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
