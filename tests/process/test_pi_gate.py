"""The extension that Pi gets (`universal/agents/pi/gate.ts`), run by Node beside a stand-in for Pi's package."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from universal.agents.pi.codec import GATE

NODE = shutil.which("node")
RUN_S = 30.0
COMPAT = """
export const streamSimple = (model, context, options) => ({ result: async () => {
  const dropped = [];
  for (const name of ["onPayload", "fetch"]) {
    try { await options[name]({}, model); } catch { dropped.push(name); }
  }
  console.log(JSON.stringify({ model: model.id, key: options.apiKey, dropped }));
  throw new Error("built ahead");
} });
"""
RUN = """
import gate from "./gate.mjs";
const handlers = {};
gate({ on: (event, handler) => { handlers[event] = handler; }, registerTool: () => {} });
for (const model of [undefined, { id: "m" }]) handlers.session_start({}, { model });
"""

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node")


def run(folder: Path) -> list[dict[str, object]]:
    """Begin a session of the extension without a model, and one with; what its requests were. It must not fail."""
    shutil.copy(GATE, folder / "gate.mjs")
    (folder / "run.mjs").write_text(RUN)
    ended = subprocess.run([str(NODE), "run.mjs"], cwd=folder, capture_output=True, text=True, timeout=RUN_S, check=True)
    assert ended.stderr == ""
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_request_is_built_when_the_session_starts_and_never_sent(tmp_path: Path) -> None:
    package = tmp_path / "node_modules" / "@earendil-works" / "pi-ai"
    package.mkdir(parents=True)
    (package / "package.json").write_text(json.dumps({"type": "module", "exports": {"./compat": "./compat.js"}}))
    (package / "compat.js").write_text(COMPAT)
    assert run(tmp_path) == [{"model": "m", "key": "none", "dropped": ["onPayload", "fetch"]}]


def test_an_older_pi_without_the_package_starts_all_the_same(tmp_path: Path) -> None:
    assert run(tmp_path) == []
