// The inspector's modules that need no page: rows, conversation, the window over a list, streams. `node --test` runs them.
import assert from "node:assert/strict"
import { test } from "node:test"

const at = (name) => import(new URL(`../../../shim/inspector/${name}.js`, import.meta.url))
const { cutter } = await at("api")
const { Talk } = await at("talk")
const { PAGE, Trace, turns } = await at("trace")
const { Heights } = await at("windowed")
const { List, PAGE: LIST_PAGE, ROW_PX } = await at("list")
const { press } = await at("keys")
const { nativeLine, span } = await at("format")

const row = (sequence, { type = "item.delta", data = { delta: "x", part_type: "text" }, opencode = [], state = "running", open = [] } = {}) =>
  ({ event: { sequence, time: new Date(sequence * 10).toISOString(), type, data, raw: { n: sequence } }, opencode, state, queued: 0, open })
const part = (id, extra = {}) => ({ type: "message.part.updated", properties: { part: { id, messageID: "m", type: "text", text: "", ...extra } } })
const filled = (rows, options) => {
  const trace = new Trace("s", options)
  for (const one of rows) trace.add(JSON.stringify(one))
  return trace
}

test("a stream is cut into events wherever its pieces end", () => {
  const text = ': connected\n\nid: 1\ndata: {"a":1}\n\n: keep-alive\n\nid: 2\ndata: {"b":"\\n\\n"}\n\ndata: 3\n\n'
  for (let size = 1; size < text.length; size++) {
    const cut = cutter()
    const got = []
    for (let from = 0; from < text.length; from += size) got.push(...cut(text.slice(from, from + size)))
    assert.deepEqual(got, ['{"a":1}', '{"b":"\\n\\n"}', "3"])
  }
})

test("rows: order, gaps, segments, and nothing twice", () => {
  const trace = filled([row(1, { state: "idle" }), row(2), row(2), row(3), row(4, { state: "waiting" })])
  assert.deepEqual(trace.rows.map((one) => [one.sequence, one.gap]), [[1, 0], [2, 10], [3, 10], [4, 10]])
  assert.deepEqual(trace.segments.map((one) => [one.state, one.index]), [["idle", 0], ["running", 1], ["waiting", 3]])
  assert.equal(trace.indexOf(3), 2)
  assert.equal(trace.indexOf(9), -1)
})

test("filters by kind, text and part, also for rows that come later", () => {
  const trace = filled([row(1), row(2, { type: "error", data: { message: 'a "quoted" Text' } }), row(3, { opencode: [part("p1")] })])
  trace.select({ kinds: new Set(["error"]) })
  assert.deepEqual(trace.found, [1])
  trace.add(JSON.stringify(row(4, { type: "error", data: { message: "b" } })))
  assert.deepEqual(trace.found, [1, 3])
  trace.select({ kinds: new Set(), text: '"QUOTED" text' })
  assert.deepEqual(trace.found, [1])
  trace.select({ text: ".*" })
  assert.deepEqual(trace.found, [])
  trace.select({ text: "", part: "p1" })
  assert.deepEqual(trace.found, [2])
  assert.equal(trace.positionOf(2), 0)
  trace.select({ part: null })
  assert.equal(trace.length, 4)
})

/** `count` rows, and a loader of their pages that notes what it was asked. */
function served(count) {
  const rows = Array.from({ length: count }, (_, index) => row(index + 1))
  const asked = []
  const load = async (after, bare) => {
    asked.push([after, bare])
    return rows.slice(after, after + PAGE).map((one) => (bare ? { event: one.event, opencode: null } : one))
  }
  return { rows, asked, load }
}

test("texts beyond the budget are dropped, oldest first, and asked for again a page at a time", async () => {
  const { rows, asked, load } = served(200)
  const trace = filled(rows, { budget: 5000, load })
  const kept = trace.rows.reduce((sum, one) => sum + (one.text?.length ?? 0), 0)
  assert.ok(kept <= 5000 && trace.dropped > 100)
  assert.equal(trace.rows[0].text, null)
  assert.equal(trace.whole(199).event.sequence, 200)
  await new Promise((done) => assert.equal(trace.whole(3, done), null))
  assert.equal(trace.whole(3).event.sequence, 4)
  assert.equal(trace.whole(PAGE - 1).opencode.length, 0)
  assert.deepEqual(asked, [[0, false]])
})

test("what has not come yet is there as far as the journal has it, and becomes whole when it comes", async () => {
  const { rows, asked, load } = served(950)
  const trace = filled(rows.slice(0, 20), { load })
  trace.expect(100) // as good as here
  assert.deepEqual([trace.behind, trace.length], [false, 20])
  trace.expect(950)
  assert.deepEqual([trace.behind, trace.length], [true, 950])
  await new Promise((done) => assert.equal(trace.whole(949, done), null))
  const last = trace.whole(949)
  assert.deepEqual([last.event.sequence, last.opencode], [950, null])
  assert.deepEqual(trace.brief(949, last), { sequence: 950, at: 9500, gap: 0, kind: "delta", state: "unknown" })
  assert.deepEqual(trace.brief(700, null), { sequence: 701, at: null, gap: 0, kind: "status", state: "unknown" })
  assert.deepEqual(asked, [[900, true]])
  for (const one of rows.slice(20)) trace.add(JSON.stringify(one))
  assert.deepEqual([trace.behind, trace.length], [false, 950])
  assert.deepEqual([trace.whole(949).opencode, trace.brief(949).state], [[], "running"])
})

test("of pages that were asked for, few are kept; one that did not come is asked for again, later", async (context) => {
  const { asked, load } = served(5000)
  const trace = new Trace("s", { load })
  trace.expect(5000)
  for (let index = 0; index < 5000; index += PAGE) await new Promise((done) => trace.whole(index, done))
  assert.ok(trace.pages.size <= 8)
  assert.equal(asked.length, 5000 / PAGE)
  context.mock.timers.enable({ apis: ["setTimeout"] })
  let tries = 0
  const lost = new Trace("s", { load: async () => (tries++, Promise.reject(new Error("lost"))) })
  lost.expect(5000)
  const again = new Promise((done) => assert.equal(lost.whole(0, done), null))
  assert.equal(lost.whole(0), null)
  for (let turn = 0; turn < 5; turn++) await Promise.resolve()
  assert.equal(tries, 1)
  context.mock.timers.tick(2000)
  await again
  assert.equal(lost.whole(0), null)
  assert.equal(tries, 2)
})

test("the conversation: parts grow, go and are replaced; asks come and go; ends and errors are told", () => {
  const talk = new Talk()
  const feed = (type, properties) => talk.feed(row(1, { opencode: [{ type, properties }] }))
  feed("message.updated", { info: { id: "m", role: "assistant", time: {} } })
  feed("message.part.updated", part("p").properties)
  feed("message.part.delta", { messageID: "m", partID: "p", field: "text", delta: "Hel" })
  feed("message.part.delta", { messageID: "m", partID: "p", field: "text", delta: "lo" })
  assert.equal(talk.messages.get("m").parts.get("p").text, "Hello")
  feed("message.part.removed", { messageID: "m", partID: "p" })
  assert.equal(talk.messages.get("m").parts.size, 0)
  feed("session.status", { status: { type: "retry", attempt: 2, message: "API error 401", next: 0 } })
  assert.equal(talk.retry, "API error 401")
  feed("session.status", { status: { type: "busy" } })
  assert.equal(talk.retry, "")
  talk.feed(row(2, { type: "permission.requested", data: { permission_id: "q" }, open: ["q"] }))
  assert.deepEqual(talk.waiting.map((ask) => ask.kind), ["permission"])
  talk.feed(row(3, { type: "permission.resolved", data: { permission_id: "q" }, open: [] }))
  assert.deepEqual(talk.waiting, [])
  feed("session.error", { error: { data: { message: "broken" } } })
  talk.feed(row(4, { type: "session.ended", data: { reason: "terminated", terminated_by: "daemon" } }))
  assert.equal(talk.ended, true)
  assert.deepEqual(talk.notes.map((note) => [note.kind, note.after]), [["error", "m"], ["ended", "m"]])
  feed("message.removed", { messageID: "m" })
  assert.equal(talk.messages.size, 0)
})

test("the window: what is seen of a list with opened rows", () => {
  const heights = new Heights(10)
  assert.deepEqual(heights.seen(0, 100, 1000, 0), [0, 11])
  heights.opened.set(5, 200)
  assert.equal(heights.top(6), 250)
  assert.equal(heights.find(249, 1000), 5)
  assert.equal(heights.find(250, 1000), 6)
  assert.deepEqual(heights.seen(1e9, 100, 1000, 3), [997, 1000])
  assert.deepEqual(heights.seen(0, 100, 0), [0, 0])
})

test("lines", () => {
  assert.equal(nativeLine({ method: "turn/started", params: {} }), "turn/started")
  assert.equal(nativeLine({ type: "stream_event", event: { type: "content_block_delta" } }), "stream_event · content_block_delta")
  assert.equal(nativeLine("no JSON"), "no JSON")
  assert.deepEqual([span(3), span(1250), span(61_000)], ["3 ms", "1.3 s", "1 min"])
})

/** A list over `count` sessions of a server, which notes what it was asked. */
function listOf(count) {
  const asked = []
  const load = async (search, offset, open) => {
    asked.push([search, offset, open])
    const all = Array.from({ length: count }, (_, at) => ({ sessionId: `s${at}` })).filter((one) => one.sessionId.includes(search))
    return { sessions: all.slice(offset, offset + LIST_PAGE), total: all.length, all: count, waiting: 0, open: { sessionId: open } }
  }
  return { asked, list: new List({ load }) }
}

test("the list asks for the pages on the screen alone, and keeps few", async () => {
  const { asked, list } = listOf(5000)
  assert.equal(list.all, null)
  await list.refresh("s4999")
  assert.deepEqual(asked, [["", 0, "s4999"]])
  assert.deepEqual([list.total, list.at(3).sessionId, list.at(4000)], [5000, "s3", null])
  assert.equal(list.info("s4999"), list.open)
  for (let page = 0; page < 60; page++) {
    list.scroll = { top: page * LIST_PAGE * ROW_PX, height: 600 }
    if (list.lacks) await list.refresh()
    assert.equal(list.lacks, false)
    assert.equal(list.at(page * LIST_PAGE).sessionId, `s${page * LIST_PAGE}`)
  }
  assert.ok(list.pages.size <= 8)
})

test("a search begins at the top, and an answer to an earlier one is dropped", async () => {
  const { list } = listOf(200)
  list.scroll = { top: 9000, height: 600 }
  const early = list.refresh()
  list.find("s19")
  await early
  assert.deepEqual([list.all, list.scroll.top, list.pages.size], [null, 0, 0])
  await list.refresh()
  assert.deepEqual([list.total, list.all, list.at(1).sessionId], [11, 200, "s190"])
})

test("the cursor stays in the list, and says where the list must scroll to", async () => {
  const { list } = listOf(100)
  list.scroll = { top: 0, height: 5 * ROW_PX }
  await list.refresh()
  assert.equal(list.move(-1), null)
  assert.deepEqual([list.move(4), list.cursor], [null, 4])
  assert.deepEqual([list.move(1), list.cursor], [ROW_PX, 5])
  assert.deepEqual([list.move(1000), list.cursor], [95 * ROW_PX, 99])
})

test("the strip: segments by turn, each with the idle time after it", () => {
  const segments = ["idle", "queued", "running", "idle", "queued", "waiting"].map((state, at) => ({ state, at }))
  assert.deepEqual(turns(segments).map((turn) => turn.map((one) => one.state)), [["idle"], ["queued", "running", "idle"], ["queued", "waiting"]])
  assert.deepEqual(turns([]), [])
})

/** An app with one ask, and a page with the button that answers it; `now` is the page's clock. */
function asked() {
  const page = { now: 0, clicks: 0 }
  const shown = 0
  globalThis.document = { querySelector: () => ({ click: () => (page.clicks += 1) }) }
  globalThis.performance = { now: () => page.now }
  page.app = { session: { waiting: [{ id: "p" }], shownSince: () => shown } }
  page.press = (key) => press(page.app, { key, target: null, preventDefault: () => {} })
  return page
}

test("a key replies only to what a person has had time to read", () => {
  const kept = globalThis.performance
  try {
    const page = asked()
    for (const [now, clicks] of [[0, 0], [799, 0], [800, 1]]) {
      page.now = now
      page.press("a")
      assert.equal(page.clicks, clicks, `after ${now} ms`)
    }
  } finally {
    globalThis.performance = kept
    delete globalThis.document
  }
})

test("the title says how many wait at each draw, also while another answer is out", async () => {
  const frames = []
  const answer = { sessions: [], total: 1, all: 1, waiting: 1, open: null }
  const kept = globalThis.fetch
  Object.assign(globalThis, { document: { title: "", hidden: false }, location: { hash: "" }, requestAnimationFrame: (draw) => frames.push(draw) })
  globalThis.fetch = (url) => (url.includes("x-nodes") ? new Promise(() => {}) : Promise.resolve({ ok: true, status: 200, json: async () => answer }))
  try {
    const { App } = await at("app")
    const titles = []
    const app = new App(() => titles.push([app.list.waiting, globalThis.document.title.slice(0, 4)]))
    app.tick()
    await new Promise((done) => setImmediate(done))
    app.changed()
    for (const draw of frames.splice(0)) draw()
    assert.deepEqual(titles, [[1, "(1) "]])
  } finally {
    globalThis.fetch = kept
    for (const name of ["document", "location", "requestAnimationFrame"]) delete globalThis[name]
  }
})
