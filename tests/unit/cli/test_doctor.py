"""What `doctor` says of a set-up; what it says of agents is in test_diagnosis.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shim.cli import doctor
from shim.lib.settings import Settings


async def test_doctor_names_what_acts_with_opencode_alone_and_loads_no_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    folder = tmp_path / ".config" / "opencode"
    (folder / "plugin").mkdir(parents=True)
    (folder / "plugin" / "guard.ts").write_text("throw new Error('it was loaded')")
    (folder / "opencode.json").write_text(json.dumps({"lsp": True, "agent": {"scribe": {"mode": "primary", "top_p": 0.5}}}))
    (found,) = await doctor.examine(Settings(directory=tmp_path, data_dir=tmp_path / "data"), ["mock"], probing=False)
    hooks = doctor.OTHER_HOOKS.format(names="guard.ts")
    assert found.checked.setup_missing == ("`lsp`", "`agent.scribe.top_p`", hooks)
