// One turn through the official JS SDK (its v2 client): prints what it saw as one JSON line, or fails with a reason.
//   node sdk_turn.mjs MODULES URL DIRECTORY '{"providerID":..,"modelID":..}'
import { pathToFileURL } from "node:url"
import { join } from "node:path"

const [modules, baseUrl, directory, model] = process.argv.slice(2)
const entry = join(modules, "@opencode-ai", "sdk", "dist", "v2", "index.js")
const { createOpencodeClient } = await import(pathToFileURL(entry).href)
const client = createOpencodeClient({ baseUrl, directory, throwOnError: true })

const controller = new AbortController()
const { stream } = await client.event.subscribe({}, { signal: controller.signal })
const seen = []
let connected, idle
const begun = new Promise((done) => (connected = done))
const over = new Promise((done) => (idle = done))
const reader = (async () => {
  for await (const event of stream) {
    seen.push(event)
    if (event.type === "server.connected") connected()
    if (event.type === "session.idle") idle()
  }
})().catch(() => {})
setTimeout(() => { console.error("no end of the turn within 90 s"); process.exit(1) }, 90_000).unref()

await begun
const { data: session } = await client.session.create({})
const parts = [{ type: "text", text: "[scene:read_edit] edit" }]
const { data: answer } = await client.session.prompt({ sessionID: session.id, parts, model: JSON.parse(model) })
await over
const { data: messages } = await client.session.messages({ sessionID: session.id })
const tools = messages.flatMap((m) => m.parts).filter((p) => p.type === "tool")
console.log(
  JSON.stringify({
    last: answer.parts.filter((p) => p.type === "text").map((p) => p.text).join(""),
    tools: tools.map((p) => p.state.status),
    diff: tools.at(-1).state.metadata.diff ?? "",
    deltas: seen.filter((e) => e.type === "message.part.delta").map((e) => e.properties.delta).join(""),
    idles: seen.filter((e) => e.type === "session.idle" && e.properties.sessionID === session.id).length,
  }),
)
controller.abort()
await Promise.race([reader, new Promise((done) => setTimeout(done, 500))])
process.exit(0)
