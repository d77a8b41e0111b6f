"""The program `opencode`: what is done here, what is handed over, and what is refused with a sentence."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shim.cli import opencode, opencode_run, transfer
from shim.cli.opencode_client import file_part
from shim.lib.errors import ShimError
from shim.processes import child_process


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in opencode.VARIABLE_NOTES:
        monkeypatch.delenv(name, raising=False)


class CommandRecorder:
    """A command in the place of a real one, and the options that it got."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
        self.options: list[argparse.Namespace] = []
        commands = [
            opencode.Command(one.words, one.add, self._run) if one.words == words else one
            for one in (*opencode.COMMANDS, opencode.TUI)
        ]
        monkeypatch.setattr(opencode, "COMMANDS", tuple(one for one in commands if one.words))
        monkeypatch.setattr(opencode, "TUI", next(one for one in commands if not one.words))

    def _run(self, options: argparse.Namespace) -> int:
        self.options.append(options)
        return 0


@pytest.mark.parametrize(("name", "version"), [("opencode", "1.18.33"), ("opencode2", "2.1.2")])
@pytest.mark.parametrize("flag", ["--version", "-v"])
def test_the_version_is_that_of_the_wire(name: str, version: str, flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert opencode.call(name, [flag]) == 0
    assert capsys.readouterr().out == f"{version}\n"


def test_serve_takes_all_that_clients_start_it_with(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    called = CommandRecorder(monkeypatch, "serve")
    given = "serve --hostname=127.0.0.1 --port 0 --print-logs --log-level=DEBUG --cors a b --mdns --mdns-domain x.local --stdio"
    assert opencode.call("opencode", given.split()) == 0
    [options] = called.options
    assert (options.hostname, options.port, options.print_logs, options.log_level) == ("127.0.0.1", 0, True, "DEBUG")
    assert (options.cors, options.stdio) == (["a", "b"], True)
    assert (options.mdns, options.mdns_domain) == (True, "x.local")
    assert capsys.readouterr().err == ""


def test_an_unknown_option_is_ignored_and_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    called = CommandRecorder(monkeypatch, "serve")
    assert opencode.call("opencode", ["serve", "--newer=1", "--port=5"]) == 0
    assert called.options[0].port == 5
    assert "--newer is ignored" in capsys.readouterr().err


def test_a_variable_with_less_effect_than_in_opencode_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    CommandRecorder(monkeypatch, "serve")
    monkeypatch.setenv("OPENCODE_DISABLE_CLAUDE_CODE", "1")
    opencode.call("opencode", ["serve"])
    assert "OPENCODE_DISABLE_CLAUDE_CODE reaches the agent OpenCode only" in capsys.readouterr().err


def test_a_folder_or_nothing_opens_the_tui(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    called = CommandRecorder(monkeypatch)
    opencode.call("opencode", [])
    opencode.call("opencode", [str(tmp_path), "--continue"])
    opencode.call("opencode", ["--session", "ses_1"])
    assert [(one.project, one.session, one.last) for one in called.options] == [
        (None, None, False),
        (str(tmp_path), None, True),
        (None, "ses_1", False),
    ]


def test_the_rest_goes_to_the_real_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen: list[tuple[Sequence[str], str | None]] = []
    real = tmp_path / "opencode"
    real.write_text("#!/bin/sh\n")
    real.chmod(0o755)

    def replace(argv: Sequence[str], *, environment: Any) -> None:
        seen.append((argv, environment.get("OPENCODE_SERVER_PASSWORD")))

    monkeypatch.setattr(child_process, "replace", replace)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("OPENCODE_SERVER_PASSWORD", "secret")
    opencode.call("opencode", ["attach", "http://127.0.0.1:1", "--dir", "x"])
    assert seen == [([str(real), "attach", "http://127.0.0.1:1", "--dir", "x"], "secret")]


def test_without_a_real_program_the_rest_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ShimError, match="Only OpenCode itself has the command `stats --days 3`"):
        opencode.call("opencode", ["stats", "--days", "3"])


def test_words_with_blanks_are_quoted_and_piped_text_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    opencode._add_run(parser)
    monkeypatch.setattr("sys.stdin", __import__("io").StringIO("piped"))
    message = opencode_run.read(parser.parse_args(["say", "two words", "-m", "mock/mock"]))
    assert message == 'say "two words"\npiped'


def test_a_folder_and_a_picture_are_attached_as_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "a b.png").touch()
    assert file_part("a b.png", tmp_path)["mime"] == "image/png"
    assert file_part("a b.png", tmp_path)["url"] == f"file://{tmp_path}/a%20b.png"
    assert file_part(".", tmp_path)["mime"] == "application/x-directory"
    with pytest.raises(ShimError, match="There is no file"):
        file_part("missing", tmp_path)


def test_a_part_is_written_once_when_it_is_whole(capsys: pytest.CaptureFixture[str]) -> None:
    printer = opencode_run.Printer("ses_1")
    text: dict[str, Any] = {"id": "prt_1", "messageID": "msg_2", "type": "text", "text": "hel"}
    update = {"type": "message.part.updated", "properties": {"sessionID": "ses_1", "part": text}}
    printer.show({"type": "message.updated", "properties": {"info": {"id": "msg_1", "role": "user"}}})
    printer.show({**update, "properties": {"part": {**text, "messageID": "msg_1", "time": {"end": 1}}}})
    printer.show(update)
    whole = {**update, "properties": {"part": {**text, "text": "hello", "time": {"start": 1, "end": 2}}}}
    printer.show(whole)
    printer.show(whole)
    assert capsys.readouterr().out == "hello\n"


def test_run_does_not_wait_for_a_silent_pipe_and_reads_one_that_speaks_to_its_end(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A supervisor never closes its pipe. A test run is silent for seconds, and then goes on."""
    reading, writing = os.pipe()
    monkeypatch.setattr(opencode_run, "STDIN_WAIT_S", 0.05)
    with open(reading, encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        assert opencode_run._read_pipe(is_needed=False) == ""  # pyright: ignore[reportPrivateUsage]
        assert "Nothing came on stdin" in capsys.readouterr().err
        os.write(writing, b"some ")
        later = threading.Timer(0.2, lambda: (os.write(writing, b"text"), os.close(writing)))
        later.start()
        assert opencode_run._read_pipe(is_needed=False) == "some text"  # pyright: ignore[reportPrivateUsage]
        later.join(5)


@pytest.mark.parametrize(
    "raw",
    [
        '\ufeff{"a":\r\n 1}'.encode(),
        '{"a": 1}'.encode("utf-16"),
        b'Exporting session: ses_x\n{"a": 1}',
        b'\n {"a": 1}',
    ],
)
def test_a_document_is_read_as_editors_and_shells_save_it(tmp_path: Path, raw: bytes) -> None:
    file = tmp_path / "export.json"
    file.write_bytes(raw)
    assert transfer.read(str(file)) == {"a": 1}


def test_an_unreadable_document_is_named(tmp_path: Path) -> None:
    file = tmp_path / "export.json"
    for raw in (b"no JSON", b"\xff\xfe\x00", b"\x80{}"):
        file.write_bytes(raw)
        with pytest.raises(ShimError, match="is no JSON"):
            transfer.read(str(file))
