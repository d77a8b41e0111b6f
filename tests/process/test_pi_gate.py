"""The extensions that Pi gets (`universal/agents/pi/gate.ts`, `mcp.ts`), run by Node beside a stand-in for Pi."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shim.dev.record.homes import MCP_SERVER
from universal.agents.pi.codec import GATE, SERVERS_EXTENSION

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
const branch = ["a", "b"].map((id) => ({ id, type: "message", message: { role: "user" } }));
const ctx = { sessionManager: { getBranch: () => branch }, ui: { setStatus: (_, text) => console.log(JSON.stringify(text)) } };
for (const model of [undefined, { id: "m" }]) handlers.session_start({}, { ...ctx, model });
handlers.agent_end({}, ctx);
"""
TOLD = ["a b", "a b", "b"]
"""The prompts after which it goes on, of two starts, and the one that was answered."""

pytestmark = pytest.mark.skipif(NODE is None, reason="needs Node")


def run(folder: Path) -> list[object]:
    """Begin a session of the extension without a model, and one with; what it told and what its requests were."""
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
    assert run(tmp_path) == [*TOLD, {"model": "m", "key": "none", "dropped": ["onPayload", "fetch"]}]


def test_an_older_pi_without_the_package_starts_all_the_same(tmp_path: Path) -> None:
    assert run(tmp_path) == TOLD


SERVERS = """
import { createServer } from "node:http";
import mcp from "./mcp.mjs";
const handlers = {}, tools = {};
const at = (server) => `http://127.0.0.1:${server.address().port}`;
const listen = (handler) => new Promise((done) => { const s = createServer(handler).listen(0, "127.0.0.1", () => done(s)); });
const elsewhere = await listen((request) => console.log(JSON.stringify("LEAK " + request.headers["x-secret"])));
const moved = await listen((_, response) => response.writeHead(307, { Location: at(elsewhere) }).end());
const closed = await listen((_, response) => response.writeHead(401).end());
const servers = [
  { name: "near", argv: JSON.parse(process.argv[2]) },
  { name: "gone", argv: ["/no/such/program"] },
  { name: "mute", argv: ["sleep", "60"], timeout_ms: 300 },
  { name: "moved", url: at(moved), headers: { "X-Secret": "s" } },
  { name: "closed", url: at(closed) },
];
let rows = [];
const ui = { input: async () => JSON.stringify(servers), setStatus: (_, text) => { rows = JSON.parse(text); } };
mcp({ on: (event, handler) => { handlers[event] = handler; }, registerTool: (tool) => { tools[tool.name] = tool; } });
handlers.session_start({}, { ui });
await handlers.before_agent_start();
const result = await tools.mcp__near__echo.execute("1", { text: "hi" });
for (const row of rows) delete row.error;
console.log(JSON.stringify([rows.sort((a, b) => (a.name < b.name ? -1 : 1)), result.content, Object.keys(tools)]));
handlers.session_shutdown();
for (const server of [elsewhere, moved, closed]) server.close(), server.closeAllConnections();
"""


def test_mcp_servers_are_offered_and_one_that_fails_holds_nothing_up(tmp_path: Path) -> None:
    """Neither one that is not there nor one that says nothing; no header goes where a server sends it to."""
    shutil.copy(SERVERS_EXTENSION, tmp_path / "mcp.mjs")
    (tmp_path / "run.mjs").write_text(SERVERS)
    argv = [str(NODE), "run.mjs", json.dumps([sys.executable, str(MCP_SERVER)])]
    ended = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S, check=True)
    assert ended.stderr == ""
    (line,) = ended.stdout.splitlines()
    states = {"closed": "needs-auth", "gone": "failed", "moved": "failed", "mute": "failed", "near": "connected"}
    rows = [{"name": name, "status": status} for name, status in states.items()]
    assert json.loads(line) == [rows, [{"type": "text", "text": "echo: hi"}], ["mcp__near__echo"]]
