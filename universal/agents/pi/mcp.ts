// An extension that opencode-shim gives to Pi where the person's set-up has MCP servers, which Pi has none of itself. It asks for
// them by a dialog (`asks.py` answers), so that their secrets are in no argument. It offers their tools as `mcp__SERVER__TOOL`, and
// tells their states. The first prompt waits for the servers, for at most WAIT_MS.
import { spawn } from "node:child_process";

const DIALOG = "opencode-shim.mcp";
const WAIT_MS = 15_000, LIMIT_MS = 30_000, LINE_LIMIT = 8 * 2 ** 20, TOOLS_LIMIT = 500, NAME_LIMIT = 64;

// A way to send a message returns its answer, and nothing for a notification.
function local({ argv, environment }) {
  const child = spawn(argv[0], argv.slice(1), { env: { ...process.env, ...environment }, stdio: ["pipe", "pipe", "ignore"] });
  const waiting = new Map();
  let rest = "", ended;
  const end = (why) => {
    ended ??= new Error(why);
    for (const { reject } of waiting.values()) reject(ended);
    waiting.clear();
    child.kill();
  };
  const write = (message) => child.stdin.write(JSON.stringify(message) + "\n");
  const receive = (line) => {
    const message = JSON.parse(line);
    if (message.method === undefined) waiting.get(message.id)?.resolve(message);
    else if (message.id !== undefined) {
      const answer = message.method === "ping" ? { result: {} } : { error: { code: -32601, message: "Method not found" } };
      write({ jsonrpc: "2.0", id: message.id, ...answer });
    }
  };
  child.on("error", (error) => end(error.message)).on("exit", (code, signal) => end(`it has ended (${signal ?? code})`));
  child.stdin.on("error", () => {});
  child.stdout.setEncoding("utf8").on("data", (text) => {
    const lines = (rest + text).split("\n");
    rest = lines.pop();
    if (rest.length > LINE_LIMIT) return end("it has sent a line that is too long");
    for (const line of lines)
      try {
        if (line.trim()) receive(line);
      } catch {} // no message
  });
  const send = (message, signal) =>
    new Promise((resolve, reject) => {
      if (ended) return reject(ended);
      write(message);
      if (message.id === undefined) return resolve();
      waiting.set(message.id, { resolve, reject });
      signal.addEventListener("abort", () => reject(signal.reason), { once: true });
    }).finally(() => waiting.delete(message.id));
  return { send, end: () => end("it was switched off") };
}

function remote({ url, headers }) {
  let session;
  async function send(message, signal) {
    const response = await fetch(url, {
      method: "POST", redirect: "error", signal, body: JSON.stringify(message),
      headers: {
        ...headers, "Content-Type": "application/json", Accept: "application/json, text/event-stream",
        ...(session ? { "Mcp-Session-Id": session } : {}),
      },
    });
    session = response.headers.get("mcp-session-id") ?? session;
    if (!response.ok) throw Object.assign(new Error(`${response.status} ${response.statusText}`), { status: response.status });
    if (message.id === undefined) return void (await response.body?.cancel());
    if (!response.headers.get("content-type")?.includes("event-stream")) return await response.json();
    let rest = "";
    for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
      const frames = (rest + text.replaceAll("\r", "")).split("\n\n");
      rest = frames.pop();
      if (rest.length > LINE_LIMIT) break;
      for (const frame of frames) {
        const data = frame.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n");
        const answer = data.trim() ? JSON.parse(data) : {};
        if (answer.id === message.id && answer.method === undefined) return answer;
      }
    }
    throw new Error("it gave no answer");
  }
  return { send, end() {} };
}

const content = ({ type, text, data, mimeType, ...rest }) =>
  type === "text" ? { type, text } : type === "image" ? { type, data, mimeType } : { type: "text", text: JSON.stringify({ type, text, ...rest }) };

async function connect(pi, server, ends) {
  const { send, end } = server.url ? remote(server) : local(server);
  ends.push(end);
  let id = 0;
  async function request(method, params, signal) {
    const limit = AbortSignal.timeout(server.timeout_ms ?? LIMIT_MS);
    const message = { jsonrpc: "2.0", id: ++id, method, params };
    const reply = await send(message, signal ? AbortSignal.any([limit, signal]) : limit);
    if (reply.error) throw new Error(reply.error.message);
    return reply.result;
  }
  const clientInfo = { name: "opencode-shim", version: "1" };
  await request("initialize", { protocolVersion: "2025-06-18", capabilities: {}, clientInfo });
  await send({ jsonrpc: "2.0", method: "notifications/initialized" }, AbortSignal.timeout(LIMIT_MS));
  const tools = [];
  for (let cursor; ; ) {
    const page = await request("tools/list", cursor ? { cursor } : {});
    tools.push(...page.tools);
    cursor = page.nextCursor;
    if (!cursor || tools.length > TOOLS_LIMIT) break;
  }
  for (const tool of tools.slice(0, TOOLS_LIMIT))
    pi.registerTool({
      name: ["mcp", server.name, tool.name].map((word) => word.replace(/[^\w-]/g, "_")).join("__").slice(0, NAME_LIMIT),
      label: tool.title ?? tool.name,
      description: tool.description ?? "",
      parameters: tool.inputSchema ?? { type: "object", properties: {} },
      async execute(_id, params, signal) {
        const result = await request("tools/call", { name: tool.name, arguments: params }, signal);
        const parts = (result.content ?? []).map(content);
        if (result.isError) throw new Error(parts.map((part) => part.text ?? "").join("\n") || "The tool has failed.");
        return { content: parts, details: {} };
      },
    });
}

export default function (pi) {
  let ready = Promise.resolve(), ends = [];

  async function start(ctx) {
    const servers = JSON.parse((await ctx.ui.input(DIALOG)) ?? "[]");
    const rows = [];
    const tell = (name, status, error) => {
      rows.push({ name, status, error });
      ctx.ui.setStatus(DIALOG, JSON.stringify(rows));
    };
    await Promise.all(
      servers.map((server) =>
        connect(pi, server, ends).then(
          () => tell(server.name, "connected"),
          (error) => tell(server.name, error?.status === 401 ? "needs-auth" : "failed", String(error?.message ?? error)),
        ),
      ),
    );
  }

  pi.on("session_start", (_event, ctx) => {
    ready = start(ctx).catch(() => undefined);
  });
  pi.on("before_agent_start", async () => {
    let timer;
    await Promise.race([ready, new Promise((done) => (timer = setTimeout(done, WAIT_MS)))]);
    clearTimeout(timer);
  });
  pi.on("session_shutdown", () => {
    for (const end of ends) end();
    ends = [];
  });
}
