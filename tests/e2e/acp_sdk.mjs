// The official TypeScript SDK of the Agent Client Protocol as a client of ours: prints what it saw as one JSON line.
//   node acp_sdk.mjs MODULES stdio|ws|http TARGET DIRECTORY '{"text":..,"permission":..,"question":..,"hang":..,"model":..}'
// TARGET: the command as JSON, or the URL of /acp
import { spawn } from "node:child_process"
import { join } from "node:path"
import { Readable, Writable } from "node:stream"
import { pathToFileURL } from "node:url"

const [modules, kind, target, directory, given] = process.argv.slice(2)
const scenes = JSON.parse(given)
const load = (...path) => import(pathToFileURL(join(modules, "@agentclientprotocol", "sdk", "dist", ...path)).href)
const acp = await load("v1", "stable", "acp.js")
const { createWebSocketStream } = await load("transports", "ws-stream.js")
const { createHttpStream } = await load("transports", "http-stream.js")

let child
let stream
if (kind === "stdio") {
  const [program, ...args] = JSON.parse(target)
  child = spawn(program, args, { cwd: directory, stdio: ["pipe", "pipe", "inherit"] })
  stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout))
} else {
  stream = kind === "ws" ? createWebSocketStream(target) : createHttpStream(target)
}

const updates = []
const permissions = []
const questions = []
const words = (name) =>
  updates.filter((u) => u.sessionUpdate === name && u.content.type === "text").map((u) => u.content.text).join("")
const { agent, client } = acp.methods
const out = await acp
  .client({ name: "e2e" })
  .onNotification(client.session.update, ({ params }) => void updates.push(params.update))
  .onRequest(client.session.requestPermission, ({ params }) => {
    permissions.push(params.toolCall.title)
    return { outcome: { outcome: "selected", optionId: params.options[0].optionId } }
  })
  .onRequest(client.elicitation.create, ({ params }) => {
    questions.push(params.message)
    return { action: "decline" }
  })
  .connectWith(stream, async (ctx) => {
    const clientCapabilities = { elicitation: { form: {} } }
    const began = await ctx.request(agent.initialize, { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities })
    const made = await ctx.request(agent.session.new, { cwd: directory, mcpServers: [] })
    const { sessionId } = made
    if (scenes.model) {
      await ctx.request(agent.session.setConfigOption, { sessionId, configId: "model", value: scenes.model })
    }
    const say = async (text) =>
      (await ctx.request(agent.session.prompt, { sessionId, prompt: [{ type: "text", text }] })).stopReason
    const seen = { agent: began.agentInfo.name, modes: made.modes.availableModes.map((mode) => mode.id) }
    seen.text = [await say(scenes.text), words("agent_message_chunk")]
    seen.permission = [await say(scenes.permission), permissions]
    seen.calls = updates.filter((u) => u.sessionUpdate === "tool_call_update").at(-1).status
    seen.question = [await say(scenes.question), questions.length]
    const before = updates.length
    const hang = say(scenes.hang)
    while (updates.length === before) await new Promise((resolve) => setTimeout(resolve, 50))
    await ctx.notify(agent.session.cancel, { sessionId })
    seen.hang = await hang
    updates.length = 0
    await ctx.request(agent.session.load, { sessionId, cwd: directory, mcpServers: [] })
    seen.history = words("user_message_chunk")
    seen.listed = (await ctx.request(agent.session.list, {})).sessions.some((row) => row.sessionId === sessionId)
    seen.kinds = [...new Set(updates.map((u) => u.sessionUpdate))].sort()
    return seen
  })
console.log(JSON.stringify(out))
child?.kill()
process.exit(0)
