"""Installing a version: what is tried when npm does not have all of it. npm is played by a table of answers."""

from __future__ import annotations

import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tools.adopt import install as module
from tools.adopt.install import InstallError, install, reason_of

PROGRAM = "#!/bin/sh\necho 1.5.2\n"


class Npm:
    """Packages that can be installed, by name; each is a program in node_modules/.bin."""

    def __init__(self, folder: Path, packages: dict[str, str], manifest: dict[str, Any], programs: dict[str, str]) -> None:
        self.folder, self.packages, self.manifest, self.programs = folder, packages, manifest, programs
        self.calls: list[tuple[str, ...]] = []

    def __call__(self, _place: Any, *arguments: str) -> str:
        self.calls.append(arguments)
        match arguments[0]:
            case "view":
                return json.dumps(self.manifest)
            case "pack":
                return self._pack()
            case "install" if "--prefix" in arguments:
                wanted = json.loads((Path(arguments[2]) / "package.json").read_text())["dependencies"]
                missing = next((name for name in wanted if name not in self.packages), None)
                if missing is not None:
                    raise InstallError(f"No matching version found for {missing}@{wanted[missing]}.")
            case "install":
                name = arguments[1].rpartition("@")[0]
                if name not in self.packages:
                    raise InstallError(f"No matching version found for {arguments[1]}.")
                self._write(self.folder / "node_modules" / self.packages[name])
                self._save(name, arguments[1].rpartition("@")[2])
        return ""

    def _save(self, name: str, version: str) -> None:
        """Note the dependency and its version, as npm does."""
        (self.folder / "package.json").write_text(json.dumps({"private": True, "dependencies": {name: f"^{version}"}}))
        manifest = self.folder / "node_modules" / name / "package.json"
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_text(json.dumps({"version": version}))

    def _write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PROGRAM)
        path.chmod(0o755)

    def _pack(self) -> str:
        with tarfile.open(self.folder / "agent.tgz", "w:gz") as tar:
            for name, text in {"package.json": json.dumps(self.manifest), "cli.sh": PROGRAM}.items():
                row = tarfile.TarInfo(f"package/{name}")
                row.size = len(text)
                tar.addfile(row, io.BytesIO(text.encode()))
        return json.dumps([{"filename": "agent.tgz"}])


def fake_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packages: dict[str, str], **manifest: Any) -> Npm:
    npm = Npm(tmp_path, packages, {"name": "@x/agent", "version": "1.5.2", "bin": {"agent": "cli.sh"}, **manifest}, {})
    monkeypatch.setattr(module._Folder, "npm", lambda place, *arguments: npm(place, *arguments))
    return npm


def test_package_is_tried_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path, monkeypatch, {"@x/agent": ".bin/agent"})
    found = install("pi", "@x/agent", "agent", "1.5.2", tmp_path, lambda _: None)
    assert (found.how, found.notes, found.program) == ("package", (), tmp_path / "node_modules" / ".bin" / "agent")


def test_a_version_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm = fake_npm(tmp_path, monkeypatch, {"@x/agent": ".bin/agent"})
    for _ in range(2):
        assert install("pi", "@x/agent", "agent", "1.5.2", tmp_path, lambda _: None).how == "package"
    assert [call[0] for call in npm.calls].count("install") == 1
    install("pi", "@x/agent", "agent", "1.5.3", tmp_path, lambda _: None)
    assert [call for call in npm.calls if call[0] == "install"][-1] == ("install", "@x/agent@1.5.3")


def test_a_tarball_is_not_taken_for_the_package_in_a_later_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_npm(tmp_path, monkeypatch, {"chalk": ""}, dependencies={"chalk": "6", "@x/missing": "1.5.2"})
    found = [install("pi", "@x/agent", "agent", "1.5.2", tmp_path, lambda _: None) for _ in range(2)]
    assert [one.how for one in found] == ["tarball", "tarball"]
    assert found[0].notes == found[1].notes


def test_package_of_the_platform_is_taken_when_the_agents_own_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PLATFORM", {"opencode": "agent-linux"})
    fake_npm(tmp_path, monkeypatch, {"agent-linux": "agent-linux/bin/agent"})
    said: list[str] = []
    found = install("opencode", "@x/agent", "agent", "1.5.2", tmp_path, said.append)
    assert found.how == "platform"
    assert said == ["The package of 1.5.2 cannot be installed: No matching version found for @x/agent@1.5.2."]
    assert list(found.notes) == said


def test_tarball_is_installed_without_the_dependencies_that_npm_does_not_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_npm(tmp_path, monkeypatch, {"there": "there"}, dependencies={"gone": "1.5.2", "there": "1.0.0"})
    found = install("pi", "@x/agent", "agent", "1.5.2", tmp_path, lambda _: None)
    assert found.how == "tarball"
    assert found.notes[-1] == "It was installed without these dependencies, which npm does not have: gone@1.5.2"
    manifest = json.loads((tmp_path / "node_modules" / "@x" / "agent" / "package.json").read_text())
    assert manifest["dependencies"] == {"gone": "1.5.2", "there": "1.0.0"}, "the package is as it was published"


def test_program_that_does_not_start_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.unit.adopt.test_install.PROGRAM", "#!/bin/sh\necho 'Error: no module x' >&2\nexit 1\n")
    fake_npm(tmp_path, monkeypatch, {"@x/agent": ".bin/agent"})
    with pytest.raises(InstallError, match=r"ends with code 1: Error: no module x.*The tarball"):
        install("pi", "@x/agent", "agent", "1.5.2", tmp_path, lambda _: None)


def test_node_that_the_package_wants_is_installed_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = module.NODE_PACKAGE
    npm = fake_npm(tmp_path, monkeypatch, {"@x/agent": ".bin/agent", node: f"{node}/bin/node"}, engines={"node": ">=999.1"})
    monkeypatch.setattr(module, "program", lambda _: "/bin/true")
    found = install("pi", "@x/agent", "agent", "1.5.2", tmp_path, lambda _: None)
    assert ("install", f"{node}@999") in npm.calls
    assert found.path.split(os.pathsep)[0] == str(tmp_path / "node_modules" / node / "bin")


def test_reason_is_the_first_sentence_of_npms_errors() -> None:
    stderr = (
        "npm error code ETARGET\nnpm error notarget No matching version found for a@1.\nnpm error notarget In most cases ...\n"
    )
    assert reason_of(stderr) == "No matching version found for a@1."


@pytest.mark.parametrize(("latest", "chosen"), [("echo 3.12.1", "3.12.1"), ("exit 1", "")])
def test_pyenv_is_led_to_the_python_that_the_package_wants(
    latest: str, chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv stops at a program of pyenv that fails, and such a program fails for each Python that is not chosen."""
    tools = tmp_path / "bin"
    tools.mkdir()
    makes = 'mkdir -p "$5/bin"; for name in python vibe; do printf "#!/bin/sh\\n" >"$5/bin/$name"; chmod +x "$5/bin/$name"; done'
    scripts = {"pyenv": latest, "uv": f'[ "$1" = venv ] || exit 0\nprintf "%s" "$PYENV_VERSION" >chosen\n{makes}'}
    for name, script in scripts.items():
        (tools / name).write_text(f"#!/bin/sh\n{script}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.delenv("PYENV_VERSION", raising=False)
    folder = tmp_path / "made"
    assert module.install_python("mistral-vibe", "vibe", "3.0.3", "3.12", folder).how == "package"
    assert (folder / "chosen").read_text() == chosen
