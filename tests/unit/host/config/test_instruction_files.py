"""Instructions: which files a configuration names, and what a project may not read."""

from __future__ import annotations

import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from shim.host.config import instruction_files
from shim.host.config.config_reader import Origin, Source, merge
from shim.host.config.instruction_files import InstructionFiles, InstructionTexts
from shim.host.config.opencode_config import OpenCodeConfig
from shim.host.config.skills import SkillFolders


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / ".config" / "opencode").mkdir(parents=True)
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "project" / "inner").mkdir()
    return tmp_path / "project"


def files_of(home: Path) -> InstructionFiles:
    folder = home / ".config" / "opencode"
    return InstructionFiles(home, folder, SkillFolders(home, (folder,)))


def read(home: Path, directory: Path, *, mine: list[str], projects: list[str]) -> InstructionTexts:
    def source(name: str, origin: Any, entries: list[str]) -> Source:
        return Source(name, origin, {"instructions": entries})

    sources = (source("mine", "personal", mine), source("project", "project", projects))
    config = OpenCodeConfig(merge(sources), sources=sources)
    return files_of(home).read(str(directory), config)


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_persons_own_file_comes_first(home: Path, project: Path) -> None:
    put(home / ".config" / "opencode" / "AGENTS.md", "MINE")
    put(home / "rules.md", "RULES")
    texts = read(home, project, mine=["~/rules.md", "https://x.invalid/a.md", "none.md"], projects=[])
    assert texts.personal == (
        f"Instructions from: {home}/.config/opencode/AGENTS.md\nMINE",
        f"Instructions from: {home}/rules.md\nRULES",
    )


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("docs/a.md", ["a"]),
        ("docs/*.md", ["a", "b"]),
        ("docs/**/*.md", ["a", "b", "deep"]),
        ("*.md", ["near", "top"]),
        ("none/*.md", []),
    ],
)
def test_entries_count_from_the_directory_up_to_the_root(home: Path, project: Path, entry: str, found: list[str]) -> None:
    for path in ("docs/a.md", "docs/b.md", "docs/c.txt", "docs/x/deep.md", "top.md", "inner/near.md"):
        put(project / path, Path(path).stem)
    texts = read(home, project / "inner", mine=[], projects=[entry])
    assert [text.rpartition("\n")[2] for text in texts.project] == found


def test_a_project_reads_nothing_outside_of_itself(home: Path, project: Path) -> None:
    put(home / "secret.md", "SECRET")
    (project / "link.md").symlink_to(home / "secret.md")
    entries = ["~/secret.md", str(home / "secret.md"), "../home/secret.md", "link.md", "*.md"]
    assert read(home, project, mine=[], projects=entries) == InstructionTexts()


def test_reading_is_bounded(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(instruction_files, "LIMIT_BYTES", 10)
    monkeypatch.setattr(instruction_files, "ENTRIES_LIMIT", 2)
    for name in ("a", "b", "c"):
        put(project / "docs" / f"{name}.md", "12345")
    assert len(read(home, project, mine=[], projects=["docs/a.md", "docs/b.md", "docs/c.md"]).project) == 2
    assert len(read(home, project, mine=[], projects=["docs/*.md"]).project) == 2


def test_a_page_is_asked_for_once_and_its_last_text_counts_while_it_is_gone(home: Path, project: Path) -> None:
    asked: list[str] = []
    answers: list[str | None] = ["ONE", None, "TWO"]

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

        def do_GET(self) -> None:
            asked.append(self.path)
            answer = answers.pop(0)
            self.send_response(503 if answer is None else 200)
            self.end_headers()
            self.wfile.write((answer or "").encode())

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        origins: tuple[Origin, ...] = ("personal", "project")
        sources = tuple(Source(name, name, {"instructions": [f"{url}/{name}"]}) for name in origins)
        config = OpenCodeConfig(merge(sources), sources=sources)
        files = files_of(home)
        texts = [files.read(str(project), config).personal for _ in range(2)]
        for _ in range(2):
            files.pages.update({page: (0.0, text) for page, (_, text) in files.pages.items()})
            texts.append(files.read(str(project), config).personal)
        server.shutdown()
    assert [text[-3:] for row in texts for text in row] == ["ONE", "ONE", "ONE", "TWO"]
    assert asked == ["/personal"] * 3


@pytest.mark.parametrize(
    ("place", "text"),
    [("/here", "HERE"), ("http://localhost:{port}/here", ""), ("http://169.254.169.254/latest", ""), ("ftp://127.0.0.1/x", "")],
)
def test_a_page_leads_to_its_own_host_or_to_a_public_one(place: str, text: str, home: Path, project: Path) -> None:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/here" else 302)
            self.send_header("Location", place.format(port=self.server.server_address[1]))
            self.end_headers()
            self.wfile.write(b"HERE")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        source = Source("personal", "personal", {"instructions": [f"http://127.0.0.1:{server.server_port}/start"]})
        files = files_of(home)
        texts = files.read(str(project), OpenCodeConfig(merge((source,)), sources=(source,))).personal
        server.shutdown()
    assert "".join(texts)[-4:] == text


def test_a_name_that_leads_elsewhere_by_the_time_of_the_request_gets_none(
    home: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the name has a public address when it is looked at, and this machine's when it is connected to."""
    asked: list[str] = []
    answers = iter(["93.184.216.34"])
    resolve = socket.getaddrinfo

    def rebind(host: Any, port: Any, *more: Any, **options: Any) -> Any:
        return resolve(next(answers, "127.0.0.1") if str(host).lower() == "rebind.test" else host, port, *more, **options)

    port = 0

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None: ...

        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if self.path == "/here" else 302)
            self.send_header("Location", f"http://Rebind.Test:{port}/here")
            self.end_headers()
            self.wfile.write(b"HERE")

    monkeypatch.setattr(socket, "getaddrinfo", rebind)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        port = server.server_port
        threading.Thread(target=server.serve_forever, daemon=True).start()
        texts = read(home, project, mine=[f"http://127.0.0.1:{port}/start"], projects=[]).personal
        server.shutdown()
    assert (texts, asked, next(answers, None)) == ((), ["/start"], None)


def test_skills_are_read_without_their_texts(home: Path, project: Path) -> None:
    head = "---\nname: {0}\ndescription: d\n---\nText."
    put(home / ".config/opencode/skills/mine/SKILL.md", head.format("mine"))
    put(project / ".opencode/skills/theirs/SKILL.md", head.format("theirs"))
    rows = read(home, project, mine=[], projects=[]).skills
    assert [(row.name, row.is_of_project, row.content) for row in rows] == [("mine", False, ""), ("theirs", True, "")]
