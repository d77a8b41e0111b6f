// The `v2.*` operations of the official JS SDK: what they answer and what the stream says, as one JSON line, or a reason why not.
//   node sdk_v2.mjs MODULES URL DIRECTORY SIGN('directory' | 'header') '{"text":..,"permission":..,"question":..,"hang":..}'
import { pathToFileURL } from "node:url"
import { join } from "node:path"

const [modules, baseUrl, directory, sign, given] = process.argv.slice(2)
const scenes = JSON.parse(given)
const entry = join(modules, "@opencode-ai", "sdk", "dist", "v2", "index.js")
const { createOpencodeClient } = await import(pathToFileURL(entry).href)
// With a directory the SDK names it twice, by which it is known; without one it has to say what it is.
const more = sign === "directory" ? { directory } : { headers: { "x-opencode-dialect": "preview" } }
const { v2 } = createOpencodeClient({ baseUrl, throwOnError: true, ...more })
const location = { directory }

const controller = new AbortController()
const { stream } = await v2.event.subscribe({ signal: controller.signal })
const seen = []
const waiting = []
const reader = (async () => {
  for await (const event of stream) {
    seen.push(event)
    for (const one of [...waiting]) if (one.want(event)) waiting.splice(waiting.indexOf(one), 1), one.done(event)
  }
})().catch(() => {})
/** The first event from now on that is wanted. */
const next = (want, what) =>
  new Promise((done, failed) => {
    const timer = setTimeout(() => failed(new Error(`no ${what} within 40 s; seen: ${seen.map((e) => e.type).join(" ")}`)), 40_000)
    waiting.push({ want, done: (event) => (clearTimeout(timer), done(event)) })
  })
const of = (id, type) => (event) => event.type === type && event.data.sessionID === id
await next((event) => event.type === "server.connected", "server.connected")

const create = async () => (await v2.session.create({ location })).data.data
const prompt = (sessionID, text) => v2.session.prompt({ sessionID, prompt: { text } })
const messages = async (sessionID) => (await v2.session.messages({ sessionID, order: "asc" })).data.data
const result = { events: [], answers: {} }
const keep = (name, { data }) => (result.answers[name] = data)

{
  const session = await create()
  result.answers["v2.session.create"] = { data: session }
  keep("v2.session.prompt", await prompt(session.id, scenes.text))
  await v2.session.wait({ sessionID: session.id })
  keep("v2.session.active", await v2.session.active())
  keep("v2.session.messages", await v2.session.messages({ sessionID: session.id }))
  keep("v2.session.get", await v2.session.get({ sessionID: session.id }))
  keep("v2.session.list", await v2.session.list({ directory, limit: 5 }))
  keep("v2.session.context", await v2.session.context({ sessionID: session.id }))
  result.text = (await messages(session.id)).filter((m) => m.type === "assistant").flatMap((m) => m.content.map((c) => c.text))
  result.deltas = seen.filter(of(session.id, "session.next.text.delta")).map((e) => e.data.delta).join("")
}
{
  const session = await create()
  const asked = next(of(session.id, "permission.v2.asked"), "permission")
  const done = next(of(session.id, "session.next.tool.success"), "tool.success")
  await prompt(session.id, scenes.permission)
  const { data } = await asked
  keep("v2.session.permission.list", await v2.session.permission.list({ sessionID: session.id }))
  keep("v2.permission.request.list", await v2.permission.request.list({ location }))
  await v2.session.permission.reply({ sessionID: session.id, requestID: data.id, reply: "once" })
  await done
  await v2.session.wait({ sessionID: session.id })
  result.permission = data.action
  keep("v2.session.messages", await v2.session.messages({ sessionID: session.id }))
}
{
  const session = await create()
  const asked = next(of(session.id, "question.v2.asked"), "question")
  const replied = next(of(session.id, "question.v2.replied"), "question.v2.replied")
  await prompt(session.id, scenes.question)
  const { data } = await asked
  keep("v2.session.question.list", await v2.session.question.list({ sessionID: session.id }))
  keep("v2.question.request.list", await v2.question.request.list({ location }))
  const answers = data.questions.map((q) => [q.options.at(-1).label])
  await v2.session.question.reply({ sessionID: session.id, requestID: data.id, questionV2Reply: { answers } })
  result.answered = JSON.stringify((await replied).data.answers) === JSON.stringify(answers)
  await v2.session.wait({ sessionID: session.id })
}
{
  const session = await create()
  const begun = next(of(session.id, "session.next.text.delta"), "delta")
  const failed = next(of(session.id, "session.next.step.failed"), "step.failed")
  await prompt(session.id, scenes.hang)
  await begun
  await v2.session.interrupt({ sessionID: session.id })
  result.interrupted = (await failed).data.error.type
  await v2.session.wait({ sessionID: session.id })
}
for (const name of ["agent", "model", "provider", "command", "skill", "reference", "integration"])
  keep(`v2.${name}.list`, await v2[name].list({ location }))
keep("v2.location.get", await v2.location.get({ location }))
keep("v2.health.get", await v2.health.get())
keep("v2.fs.find", await v2.fs.find({ location, query: "READ" }))
keep("v2.fs.list", await v2.fs.list({ location }))
result.events = seen
controller.abort()
await Promise.race([reader, new Promise((done) => setTimeout(done, 1000))])
process.stdout.write(JSON.stringify(result), () => process.exit(0)) // a pipe takes it in pieces
