// The official JS SDK starts `opencode` itself, with its default timeout of 5 s: prints what it saw as one JSON line.
//   node starters.mjs MODULES VERSION(v1|v2) PORT
import { pathToFileURL } from "node:url"
import { join } from "node:path"

const [modules, version, port] = process.argv.slice(2)
const entry = join(modules, "@opencode-ai", "sdk", "dist", version === "v2" ? "v2" : "", "index.js")
const { createOpencode } = await import(pathToFileURL(entry).href)
const { client, server } = await createOpencode({ port: Number(port), config: { username: "sdk", logLevel: "DEBUG" } })

const model = { providerID: "mock", modelID: "mock" }
const parts = [{ type: "text", text: "echo hello from the SDK" }]
const { data: config } = await client.config.get()
const { data: session } = await (version === "v2" ? client.session.create({}) : client.session.create({ body: {} }))
const { data: answer } = await (version === "v2"
  ? client.session.prompt({ sessionID: session.id, parts, model })
  : client.session.prompt({ path: { id: session.id }, body: { parts, model } }))
const text = answer.parts.filter((part) => part.type === "text").map((part) => part.text).join("")
server.close()
console.log(JSON.stringify({ url: server.url, username: config.username, text }))
