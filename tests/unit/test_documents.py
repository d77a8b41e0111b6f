"""The documents: links, paths and names of code exist, every page is in the index, and the README stays short."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_group

from shim.cli.commands import cli

REPO = Path(__file__).resolve().parents[2]
DOCS = REPO / "docs"
PAGES = sorted([*REPO.glob("*.md"), *DOCS.rglob("*.md")])
README_LINES = 150
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)
PATH = re.compile(r"`((?:shim|universal|tests|tools|scripts|compat_fixtures)/[^`\s:]*)")
FILE_NAME = re.compile(r"`((?:[\w*]+/)*[\w*]+\.py)[`:]")
"""A file's name without its first folder, such as `routes/prompt.py`."""
MODULE = re.compile(r"`((?:shim|universal|tests|tools)(?:\.[a-z_]\w*)+(?:\.[A-Z]\w*)?)[`(]")
OTHER_SUFFIXES = ("toml", "jsonl", "example")
"""What follows `shim.` or `universal.` in names of files and hosts."""
MEMBER = re.compile(r"`([A-Z]\w+)\.(?!md\b)(\w+)[`(]")
"""`Class.member`."""
PLACEHOLDER = re.compile(r"/x/|[A-Z]{4,}|<")
"""Marks a path that stands for many, such as `compat_fixtures/agents/AGENT/VERSION`."""


def anchor(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def dead_links(page: Path) -> list[str]:
    """The links of a page that lead to no file of the repository, or to no heading of it."""
    return [link for link in LINK.findall(page.read_text("utf-8")) if "://" not in link and not leads_somewhere(page, link)]


def leads_somewhere(page: Path, link: str) -> bool:
    """Whether a link of a page names a file of the repository, and a heading of it if it names one."""
    path, _, name = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not name or target.suffix != ".md":
        return target.exists()
    return name in map(anchor, HEADING.findall(target.read_text("utf-8")))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_links_lead_somewhere(page: Path) -> None:
    assert dead_links(page) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](#a-heading) [b](page.md#another) [c](nowhere.md) [d](https://example.org)\n")
    assert dead_links(page) == ["page.md#another", "nowhere.md"]


def missing_files(page: Path) -> list[str]:
    """The paths that a page names and that the repository does not have. `*` is a pattern."""
    return [path for path in PATH.findall(page.read_text("utf-8")) if not PLACEHOLDER.search(path) and not any(REPO.glob(path))]


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent.name != "adr"], ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    assert missing_files(page) == []


def test_a_missing_file_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("`shim/nowhere.py` `shim/main/app.py` `shim/faces/*/routes/` `tests/unit/x/test_y.py`\n")
    assert missing_files(page) == ["shim/nowhere.py"]


@cache
def sources() -> dict[str, str]:
    """Path -> text of each Python file of the repository."""
    folders = ("shim", "universal", "tests", "tools", "scripts")
    return {str(path.relative_to(REPO)): path.read_text("utf-8") for name in folders for path in (REPO / name).rglob("*.py")}


def has_module(name: str) -> bool:
    """Whether a dotted name is a module or package, or one with a name of its text behind it."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        path = "/".join(parts[:length])
        text = sources().get(f"{path}.py", sources().get(f"{path}/__init__.py"))
        if text is not None or (REPO / path).is_dir():
            return all(re.search(rf"\b{part}\b", text or "") for part in parts[length:])
    return False


def has_member(class_: str, member: str) -> bool:
    """Whether a file defines the class, and holds the name of the member."""
    texts = [text for text in sources().values() if re.search(rf"^class {class_}\b", text, re.M)]
    return any(re.search(rf"\b{member}\b", text) for text in texts)


def missing_names(page: Path) -> list[str]:
    """The files, modules and members of classes that a page names and that the code does not have."""
    text = page.read_text("utf-8")
    files = [name for name in FILE_NAME.findall(text) if not any(f"/{path}".endswith(f"/{name}") for path in sources())]
    modules = [name for name in MODULE.findall(text) if not name.endswith(OTHER_SUFFIXES) and not has_module(name)]
    members = [f"{class_}.{member}" for class_, member in MEMBER.findall(text) if not has_member(class_, member)]
    return [name for name in (*files, *modules, *members) if "*" not in name and name not in EXAMPLES]


EXAMPLES = frozenset({"shim/x/y.py", "tests/unit/x/test_y.py", "amp_sdk/types.py"})
"""Files of other programs, and names that stand for many."""
WRITTEN_ONCE = ("adr", "CHANGELOG.md")
"""Pages about what was: they keep the names of their day."""


@pytest.mark.parametrize(
    "page", [page for page in PAGES if not {page.name, page.parent.name} & set(WRITTEN_ONCE)], ids=lambda page: page.name
)
def test_code_that_a_page_names_exists(page: Path) -> None:
    assert missing_names(page) == []


def test_missing_code_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "`nowhere.py` `session/actor.py` `shim.sessions.session.actor.SessionActor` `shim.sessions.nowhere` "
        "`universal.turn.NoClass` `SessionActor.prompt` `SessionActor.no_method()` `NoClass.member` `AGENTS.md` `shim.toml`\n"
    )
    missing = ["nowhere.py", "shim.sessions.nowhere", "universal.turn.NoClass", "SessionActor.no_method", "NoClass.member"]
    assert missing_names(page) == missing


def test_every_page_is_in_the_index() -> None:
    links = LINK.findall((DOCS / "index.md").read_text("utf-8"))
    assert {page.name for page in DOCS.glob("*.md")} - set(links) == {"index.md"}


def test_every_decision_is_in_its_index_by_its_title() -> None:
    index = (DOCS / "adr" / "README.md").read_text("utf-8")
    titles = {page.name: page.read_text("utf-8").partition("\n")[0] for page in (DOCS / "adr").glob("[0-9]*.md")}
    rows = {
        name: f"| {int(title[2:].partition('.')[0])} | [{title.partition('. ')[2]}]({name}) |" for name, title in titles.items()
    }
    assert [name for name, row in rows.items() if row not in index] == []
    assert len(LINK.findall(index)) >= len(titles)


def test_the_readme_is_short() -> None:
    assert len((REPO / "README.md").read_text("utf-8").splitlines()) < README_LINES


def test_every_command_is_in_the_table_of_commands() -> None:
    table = (DOCS / "using.md").read_text("utf-8").partition("## Which commands are there?")[2]
    cells = [row.partition(" | ")[0] for row in table.splitlines() if row.startswith("| `opencode-shim ")]
    named = {name.removeprefix("opencode-shim ").split()[0] for cell in cells for name in cell.split("`")[1::2]}
    assert named == set(get_group(cli).commands)
