"""Files of variables: what is read, what a service gets, and that keys are never copied."""

from __future__ import annotations

from pathlib import Path

import pytest

from shim.cli.env_file import EnvFileError, keys, read, service_environment, text_of


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_lines_comments_and_quotes_are_read(tmp_path: Path) -> None:
    text = "# keys\n\nexport A=1\nB='two words'\nC=\"x=y\"\nD=\n"
    assert read(private(tmp_path / "x.env", text)) == {"A": "1", "B": "two words", "C": "x=y", "D": ""}
    assert read(tmp_path / "absent") == {}


def test_a_wrong_line_is_named_without_what_it_says(tmp_path: Path) -> None:
    with pytest.raises(EnvFileError, match=r"x\.env, line 2: NAME=VALUE is expected\.$"):
        read(private(tmp_path / "x.env", "A=1\nsk-secret\n"))


def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = private(tmp_path / "x.env", "A=1\n")
    path.chmod(0o640)
    with pytest.raises(EnvFileError, match="chmod 600"):
        read(path)


ENVIRONMENT = {
    "PATH": "/a:/b",
    "LANG": "C.UTF-8",
    "https_proxy": "http://proxy:3128",
    "HTTP_PROXY": "http://me:pass-word@proxy:3128",
    "ANTHROPIC_BASE_URL": "https://gateway.example",
    "ANTHROPIC_API_KEY": "sk-ant-0123456789",
    "OPENCODE_SERVER_PASSWORD": "open-sesame",
    "SHIM_CLAUDE_BIN": "/opt/claude",
    "SSH_AUTH_SOCK": "/run/agent",
    "EDITOR": "vi",
}


def test_a_service_gets_what_agents_are_found_by_and_no_secret(tmp_path: Path) -> None:
    assert service_environment(ENVIRONMENT) == {
        "ANTHROPIC_BASE_URL": "https://gateway.example",
        "LANG": "C.UTF-8",
        "PATH": "/a:/b",
        "SHIM_CLAUDE_BIN": "/opt/claude",
        "https_proxy": "http://proxy:3128",
    }
    assert keys(ENVIRONMENT) == ["ANTHROPIC_API_KEY", "OPENCODE_SERVER_PASSWORD"]
    file = private(tmp_path / "service.env", text_of(service_environment(ENVIRONMENT), "note"))
    assert read(file) == service_environment(ENVIRONMENT)
