"""The documents: links and paths lead somewhere, every page is in the index, and the README stays short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
DOCS = REPO / "docs"
PAGES = sorted([*REPO.glob("*.md"), *DOCS.rglob("*.md")])
README_LINES = 150
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.M)
PATH = re.compile(r"`((?:shim|universal|tests|tools|scripts|compat_fixtures)/[^`\s:]*)")
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
    page.write_text("`shim/nowhere.py` `shim/app.py` `shim/faces/*/routes/` `tests/unit/x/test_y.py`\n")
    assert missing_files(page) == ["shim/nowhere.py"]


def test_every_page_is_in_the_index() -> None:
    links = LINK.findall((DOCS / "index.md").read_text("utf-8"))
    assert {page.name for page in DOCS.glob("*.md")} - set(links) == {"index.md"}


def test_the_readme_is_short() -> None:
    assert len((REPO / "README.md").read_text("utf-8").splitlines()) < README_LINES
