// The official JS SDK, both of its clients, on one server: prints what it saw as one JSON line, or fails with a reason.
//   node sdk.mjs MODULES URL DIRECTORY VERSION(v1|v2) '{"text":..,"permission":..,"question":..,"hang":..,"model":..}'
import { pathToFileURL } from "node:url"
import { join } from "node:path"

const [modules, baseUrl, directory, version, given] = process.argv.slice(2)
const scenes = JSON.parse(given)
const entry = join(modules, "@opencode-ai", "sdk", "dist", version === "v2" ? "v2" : "", "index.js")
const { createOpencodeClient } = await import(pathToFileURL(entry).href)
const client = createOpencodeClient({ baseUrl, directory, throwOnError: true })
const v2 = version === "v2"

/** The same calls in the form of each client. */
const calls = {
  create: () => (v2 ? client.session.create({}) : client.session.create({ body: {} })),
  prompt: (id, text) => {
    const body = { parts: [{ type: "text", text }], model: scenes.model }
    return v2 ? client.session.prompt({ sessionID: id, ...body }) : client.session.prompt({ path: { id }, body })
  },
  promptAsync: (id, text) => {
    const body = { parts: [{ type: "text", text }], model: scenes.model }
    return v2 ? client.session.promptAsync({ sessionID: id, ...body }) : client.session.promptAsync({ path: { id }, body })
  },
  abort: (id) => (v2 ? client.session.abort({ sessionID: id }) : client.session.abort({ path: { id } })),
  messages: (id) => (v2 ? client.session.messages({ sessionID: id }) : client.session.messages({ path: { id } })),
  allow: (id, request) =>
    v2
      ? client.permission.reply({ requestID: request, reply: "once" })
      : client.postSessionIdPermissionsPermissionId({ path: { id, permissionID: request }, body: { response: "once" } }),
  answer: async (request, answers) => {
    if (v2) return client.question.reply({ requestID: request, answers })
    // the v1 client has no questions: over the wire
    const answer = await fetch(`${baseUrl}/question/${request}/reply`, { method: "POST", body: JSON.stringify({ answers }) })
    if (!answer.ok) throw new Error(`question reply: ${answer.status}`)
  },
}

const controller = new AbortController()
const { stream } = await (v2
  ? client.event.subscribe({}, { signal: controller.signal })
  : client.event.subscribe({ signal: controller.signal }))
const seen = []
const waiting = []
const reader = (async () => {
  for await (const event of stream) {
    seen.push(event)
    for (const one of [...waiting]) {
      if (one.want(event)) {
        waiting.splice(waiting.indexOf(one), 1)
        one.done(event)
      }
    }
  }
})().catch(() => {})

/** The first event from now on that is wanted. */
const next = (want, what) =>
  new Promise((done, failed) => {
    const timer = setTimeout(() => failed(new Error(`no ${what} within 40 s`)), 40_000)
    waiting.push({ want, done: (event) => (clearTimeout(timer), done(event)) })
  })
const of = (id, type) => (event) => event.type === type && (event.properties.sessionID ?? event.properties.info?.id) === id
const said = (messages) =>
  messages.filter((m) => m.info.role === "assistant").map((m) => m.parts.filter((p) => p.type === "text").map((p) => p.text).join(""))

await new Promise((done) => setTimeout(done, 300)) // the stream's headers are read lazily by the SDK
const result = {}

{
  const { data: session } = await calls.create()
  const idle = next(of(session.id, "session.idle"), "idle")
  const { data: answer } = await calls.prompt(session.id, scenes.text)
  await idle
  const { data: messages } = await calls.messages(session.id)
  result.text = said(messages)
  result.same = JSON.stringify(messages.at(-1)) === JSON.stringify(answer)
  result.deltas = seen.filter((e) => e.type === "message.part.delta").map((e) => e.properties.delta).join("")
}
{
  const { data: session } = await calls.create()
  const asked = next(of(session.id, "permission.asked"), "permission")
  const idle = next(of(session.id, "session.idle"), "idle")
  await calls.promptAsync(session.id, scenes.permission)
  const request = await asked
  await calls.allow(session.id, request.properties.id)
  await idle
  result.permission = request.properties.permission
  const { data: messages } = await calls.messages(session.id)
  result.tools = messages.flatMap((m) => m.parts).filter((p) => p.type === "tool").map((p) => p.state.status)
}
{
  const { data: session } = await calls.create()
  const asked = next(of(session.id, "question.asked"), "question")
  const idle = next(of(session.id, "session.idle"), "idle")
  await calls.promptAsync(session.id, scenes.question)
  const request = await asked
  await calls.answer(request.properties.id, request.properties.questions.map((q) => [q.options.at(-1).label]))
  await idle
  result.question = request.properties.questions.length
}
{
  const { data: session } = await calls.create()
  const begun = next(of(session.id, "message.part.delta"), "delta")
  const idle = next(of(session.id, "session.idle"), "idle")
  await calls.promptAsync(session.id, scenes.hang)
  await begun
  await calls.abort(session.id)
  await idle
  const { data: messages } = await calls.messages(session.id)
  result.aborted = messages.at(-1).info.error?.name
  result.idles = seen.filter(of(session.id, "session.idle")).length
}
controller.abort()
await Promise.race([reader, new Promise((done) => setTimeout(done, 1000))])
console.log(JSON.stringify(result))
process.exit(0)
