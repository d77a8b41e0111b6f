// Loads the tools and plugins of a person's OpenCode set-up and serves them on a Unix socket, one JSON-RPC message a line:
// to agents as an MCP server (through bridge.py), to opencode-shim as `hook/...`. Started by plugin_hosts.py, whose first line
// on stdin is the configuration below. Ends with stdin. Runs on Bun (that of OpenCode too) and on Node.
import { spawnSync } from "node:child_process"
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs"
import net from "node:net"
import path from "node:path"
import { createInterface } from "node:readline"
import { pathToFileURL } from "node:url"

const CALLS = ["tool", "tool.execute.before", "tool.execute.after", "chat.message", "event", "config", "dispose", "shell.env"]
const INSTALL_MS = 60_000, RSS_LOOK_MS = 2_000, AGAIN_MS = 1_000, LINE_LIMIT = 4 * 2 ** 20, ERRORS_LIMIT = 5, IDS_LIMIT = 1_000
console.log = console.info = console.debug = console.error // stdout and stderr are one log

const lines = createInterface({ input: process.stdin })
const configuration = JSON.parse((await lines[Symbol.asyncIterator]().next()).value)
process.stdin.on("close", () => process.exit(0)).on("end", () => process.exit(0)).resume()
const { directory, worktree, socket, packages, version, rss_limit } = configuration
const tools = new Map(), plugins = [], problems = [], missing = [], sessions = new Map()
setInterval(() => {
  if (process.memoryUsage().rss > rss_limit) console.error(`more than ${rss_limit} bytes of memory`), process.exit(3)
}, RSS_LOOK_MS).unref()

/** Install packages beside this server's data, unless they are there. The names come from the person's configuration. */
function install(...names) {
  mkdirSync(packages, { recursive: true })
  const isBun = Boolean(process.versions.bun)
  const words = isBun ? ["add", "--ignore-scripts"] : ["install", "--ignore-scripts", "--no-audit", "--no-fund"]
  const done = spawnSync(isBun ? process.execPath : "npm", [...words, ...names], {
    cwd: packages, timeout: INSTALL_MS, encoding: "utf8", env: { ...process.env, BUN_BE_BUN: "1" },
  })
  if (done.status !== 0) throw new Error(`could not be installed: ${(done.stderr || String(done.error ?? "")).trim().slice(-500)}`)
}

/** What a package exports, installed if it is not there. */
async function load(spec) {
  const name = spec.replace(/(?<=.)@[^@/]*$/, "")
  if (!existsSync(path.join(packages, "node_modules", name, "package.json"))) install(spec)
  const importer = path.join(packages, "import.mjs")
  if (!existsSync(importer)) writeFileSync(importer, "export const load = (name) => import(name)\n")
  return await (await import(pathToFileURL(importer).href)).load(name)
}

/** Import a file. OpenCode's own packages, which it finds in no node_modules, are found in ours. */
async function importFile(file) {
  if (readFileSync(file, "utf8").includes("@opencode-ai/")) await load(`@opencode-ai/plugin@${version}`)
  return await import(pathToFileURL(file).href)
}

globalThis.Bun?.plugin({
  name: "packages of OpenCode",
  setup(build) {
    build.onLoad({ filter: /^(?!.*\/node_modules\/).*\.[cm]?[jt]s$/ }, ({ path: file }) => ({
      contents: readFileSync(file, "utf8").replace(/(["'])(@opencode-ai\/(?:plugin|sdk)[\w/-]*)\1/g, (text, quote, name) => {
        for (const from of [path.dirname(file), packages])
          try {
            return quote + Bun.resolveSync(name, from) + quote
          } catch {} // not there
        return text
      }),
      loader: file.endsWith("ts") ? "ts" : "js",
    }))
  },
})

async function attempt(what, action) {
  try {
    return await action()
  } catch (error) {
    problems.push(`${what}: ${error?.message ?? error}`)
    return error
  }
}

let sdk
/** The client of plugins (`client`): OpenCode's own SDK, which speaks to this server. It is loaded at its first call. */
const clientOf = (keys) =>
  new Proxy(() => {}, {
    get: (_, key) => (key === "then" ? undefined : clientOf([...keys, key])),
    async apply(_, self, args) {
      sdk ??= (await load(`@opencode-ai/sdk@${version}`)).createOpencodeClient({
        baseUrl: configuration.url, headers: configuration.headers, directory,
      })
      const owner = keys.slice(0, -1).reduce((value, key) => value[key], sdk)
      return await owner[keys.at(-1)](...args)
    },
  })

let z
async function addTool(name, tool) {
  if (typeof tool?.execute !== "function") return
  let inputSchema = { type: "object", properties: {} }
  const args = tool.args ?? {}
  if (Object.keys(args).length) {
    z ??= (await load(`@opencode-ai/plugin@${version}`)).tool.schema
    inputSchema = z.toJSONSchema(z.object(args), { io: "input" })
    delete inputSchema.$schema
  }
  tools.set(name, { tool, description: { name, description: tool.description ?? "", inputSchema } })
}

for (const file of configuration.tools)
  await attempt(file, async () => {
    const base = path.basename(file, path.extname(file))
    for (const [key, tool] of Object.entries(await importFile(file)))
      await addTool(key === "default" ? base : `${base}_${key}`, tool)
  })

for (const [spec, options] of configuration.plugins) {
  const failure = await attempt(spec, async () => {
    const module = path.isAbsolute(spec) ? await importFile(spec) : await load(spec)
    const input = {
      client: clientOf([]), directory, worktree, project: { id: "global", worktree, time: { created: Date.now() } },
      serverUrl: configuration.url ? new URL(configuration.url) : undefined, $: globalThis.Bun?.$,
    }
    const functions = new Set(Object.values(module).map((value) => (typeof value?.server === "function" ? value.server : value)))
    for (const make of functions) {
      if (typeof make !== "function") continue
      const hooks = (await make(input, options)) ?? {}
      plugins.push({ spec, hooks })
      for (const [name, tool] of Object.entries(hooks.tool ?? {})) await addTool(name, tool)
    }
  })
  if (failure) missing.push(spec)
}

const hookNames = () => {
  const names = plugins.flatMap(({ hooks }) => Object.keys(hooks)) // a package may export helpers, which are called too
  return [...new Set(names)].filter((name) => /\.|^(event|config|auth|tool|provider|dispose)$/.test(name)).sort()
}

async function trigger(name, input, output) {
  for (const { hooks } of plugins) await hooks[name]?.(input, output)
  return output
}

let errors = 0
/** Call a hook that only watches. An error is a toast, and stops nothing. */
async function tell(name, input, output) {
  for (const { spec, hooks } of plugins)
    try {
      await hooks[name]?.(input, output)
    } catch (error) {
      console.error(`${spec}, ${name}:`, error)
      if (errors++ >= ERRORS_LIMIT) continue
      const body = JSON.stringify({ title: "Tools and plugins", message: `${spec}, ${name}: ${error?.message ?? error}`, variant: "error" })
      await request("/tui/show-toast", { method: "POST", body, headers: { "Content-Type": "application/json" } }).catch(() => {})
    }
}

const request = (where, { headers, ...options } = {}) =>
  fetch(`${configuration.url}${where}${where.includes("?") ? "&" : "?"}directory=${encodeURIComponent(directory)}`, {
    ...options, headers: { ...configuration.headers, ...headers },
  })

const ids = new Set(), isNew = (id) => {
  if (ids.has(id)) return false
  if (ids.size >= IDS_LIMIT) ids.delete(ids.values().next().value)
  return ids.add(id)
}
let message // a prompt whose parts are still to come

/** Call the hooks for an event: `event` itself, and those that native OpenCode calls at its place. */
async function dispatch(event) {
  const { info, part } = event.properties ?? {}
  if (event.type === "message.part.updated" && part.messageID === message?.info.id) message.parts.push(part)
  else if (message) {
    const { info: prompt, parts } = message
    message = undefined
    const input = { sessionID: prompt.sessionID, messageID: prompt.id, agent: prompt.agent, model: prompt.model }
    await tell("chat.message", input, { message: prompt, parts })
  }
  if (event.type === "message.updated" && info.role === "user" && isNew(info.id)) message = { info, parts: [] }
  if (event.type === "message.part.updated" && part.type === "tool" && part.state.status === "completed" && isNew(part.id)) {
    const { input: args, title, output, metadata } = part.state
    await tell("tool.execute.after", { tool: part.tool, sessionID: part.sessionID, callID: part.callID, args }, { title, output, metadata })
  }
  await tell("event", { event })
}

/** Read this server's events, for as long as the host runs. */
async function listen() {
  for (;;) {
    try {
      let rest = ""
      const response = await request("/event?reader=plugins", { headers: { Accept: "text/event-stream" } })
      for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
        const frames = (rest + text).split("\n\n")
        rest = frames.pop()
        for (const frame of frames) {
          const data = frame.split("\n").filter((line) => line.startsWith("data:")).map((line) => line.slice(5)).join("\n")
          const event = data && JSON.parse(data)
          if (event && !event.type.startsWith("server.")) await dispatch(event)
        }
      }
    } catch (error) {
      console.error("events:", error)
    }
    await new Promise((done) => setTimeout(done, AGAIN_MS))
  }
}

if (configuration.url && plugins.length) {
  await attempt("config", async () => tell("config", await (await request("/config")).json()))
  listen()
}

async function callTool({ name, arguments: args = {} }) {
  const found = tools.get(name)
  if (!found) return { isError: true, content: [{ type: "text", text: `There is no tool ${name}.` }] }
  const { sessionID = "", callID = "" } = sessions.get(name + JSON.stringify(args)) ?? {}
  const context = {
    sessionID, callID, messageID: "", agent: "", directory, worktree, abort: new AbortController().signal,
    metadata() {}, async ask() {},
  }
  try {
    const result = await found.tool.execute(args, context)
    const text = typeof result === "string" ? result : result?.output ?? JSON.stringify(result) ?? ""
    return { content: [{ type: "text", text }] }
  } catch (error) {
    return { isError: true, content: [{ type: "text", text: String(error?.message ?? error) }] }
  }
}

const METHODS = {
  initialize: ({ protocolVersion }) => ({
    protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "opencode-plugins", version },
  }),
  ping: () => ({}),
  "tools/list": () => ({ tools: [...tools.values()].map((row) => row.description) }),
  "tools/call": callTool,
  "hook/state": () => ({
    tools: [...tools.keys()], problems, missing,
    hooks: hookNames(),
    unused: hookNames().filter((name) => !CALLS.includes(name)),
  }),
  async "hook/before"({ args, ...input }) {
    if (tools.has(input.tool)) {
      sessions.set(input.tool + JSON.stringify(args), input)
      if (sessions.size > 256) sessions.delete(sessions.keys().next().value)
    }
    return { args: (await trigger("tool.execute.before", input, { args })).args }
  },
  "hook/env": async (input) => await trigger("shell.env", input, { env: {} }),
}

async function answer(connection, line) {
  const { id, method, params } = JSON.parse(line)
  if (id === undefined) return
  let reply
  if (!METHODS[method]) reply = { error: { code: -32601, message: `Method not found: ${method}` } }
  else
    try {
      reply = { result: await METHODS[method](params ?? {}) }
    } catch (error) {
      reply = { error: { code: -32000, message: String(error?.message ?? error) } }
    }
  connection.write(JSON.stringify({ jsonrpc: "2.0", id, ...reply }) + "\n")
}

process.on("unhandledRejection", (error) => console.error("unhandled:", error))
net
  .createServer((connection) => {
    let rest = ""
    connection.setEncoding("utf8").on("error", () => {}).on("data", (text) => {
      const parts = (rest + text).split("\n")
      rest = parts.pop()
      if (rest.length > LINE_LIMIT) connection.destroy()
      for (const line of parts) if (line.trim()) answer(connection, line).catch(() => connection.destroy())
    })
  })
  .listen(socket, () => chmodSync(socket, 0o600))
