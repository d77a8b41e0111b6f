// The rows of one session. It keeps a small summary of every row, and row texts up to a budget. It fetches dropped texts again, a
// page at a time, when the user looks at them. So memory is bounded, whatever the session's length. Rows arrive in order; rows of a
// long session that have not arrived yet are read from the journal (without state and OpenCode events).

import { call } from "./api.js"

const TEXT_BUDGET = 48 * 2 ** 20
const PARSED_KEPT = 400
export const PAGE = 100 // rows that are asked for at once
const PAGES_KEPT = 8
const AGAIN_MS = 2000 // after a page that did not come

const ITEM_KINDS = { message: "message", tool_call: "tool", tool_result: "tool", status: "status", system: "status", unknown: "unparsed" }
const HEADS = { session: "session", turn: "turn", permission: "ask", question: "ask", error: "error", agent: "unparsed" }
export const KINDS = ["message", "delta", "tool", "ask", "turn", "status", "session", "error", "unparsed"]

/** The kind of a universal event, one of KINDS. */
export function kindOf(event) {
  if (event.type === "item.delta") return "delta"
  if (event.type.startsWith("item.")) return ITEM_KINDS[event.data.item.kind] ?? "status"
  return HEADS[event.type.split(".")[0]] ?? "status"
}

/** The parts that OpenCode events speak of. */
function partsOf(opencode) {
  const found = []
  for (const { properties } of opencode) {
    const id = properties.part?.id ?? properties.partID
    if (id && !found.includes(id)) found.push(id)
  }
  return found
}

const escaped = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")

/** A search for a text, whatever its case, in the JSON of rows. */
export const searcher = (text) => new RegExp(escaped(JSON.stringify(text).slice(1, -1)), "i")

/** Segments by turn: a turn begins where the state leaves idle, and has the idle time after it. */
export function turns(segments) {
  const found = []
  for (const [place, segment] of segments.entries()) {
    if (place === 0 || (segment.state !== "idle" && segments[place - 1].state === "idle")) found.push([])
    found.at(-1).push(segment)
  }
  return found
}

export class Trace {
  /** `budget`: characters of texts that are kept. `load(after, bare)` gives PAGE rows after a sequence; bare: `event` alone. */
  constructor(session, { budget = TEXT_BUDGET, load = loader(session) } = {}) {
    this.session = session
    this.rows = [] // {sequence, at, gap, kind, state, text | null}
    this.byPart = new Map() // part -> indexes of rows
    this.segments = [] // {state, index, at}: where the turn's state changed
    this.counts = Object.fromEntries(KINDS.map((kind) => [kind, 0]))
    this.filter = { kinds: new Set(), text: "", part: null }
    this.found = null // indexes that pass the filter; null: all
    this.last = null // the last row, parsed
    this.dropped = 0 // rows whose text is not kept, from the first on
    this.kept = 0
    this.budget = budget
    this.load = load
    this.parsed = new Map() // index -> row
    this.pages = new Map() // page -> rows; null: asked for
    this.total = 0 // rows that there are, come or not
  }

  /** The session has so many events. One that goes on is nearly always a few ahead of us: that is no reason to ask for pages. */
  expect(total) {
    if (total > this.rows.length + PAGE) this.total = Math.max(this.total, total)
  }

  /** Rows that there are, as far as we know. */
  get count() {
    return Math.max(this.rows.length, this.total)
  }

  /** Whether rows of the past are still to come. */
  get behind() {
    return this.rows.length < this.total
  }

  get position() {
    return this.rows.length ? this.rows[this.rows.length - 1].sequence : 0
  }

  /** A row's text; gives the row. What was there already (a stream taken up again) gives null. */
  add(text) {
    const whole = JSON.parse(text)
    const { event, opencode, state } = whole
    if (event.sequence <= this.position) return null
    const index = this.rows.length
    const at = Date.parse(event.time)
    const gap = index ? at - this.rows[index - 1].at : 0
    const row = { sequence: event.sequence, at, gap, kind: kindOf(event), state, text }
    if (!index || this.rows[index - 1].state !== state) this.segments.push({ state, index, at })
    this.rows.push(row)
    this.counts[row.kind] += 1
    for (const part of partsOf(opencode)) {
      const known = this.byPart.get(part)
      if (known) known.push(index)
      else this.byPart.set(part, [index])
    }
    this.last = whole
    if (this.found !== null && this.passes(index)) this.found.push(index)
    this.kept += text.length
    while (this.kept > this.budget && this.dropped < index) {
      this.kept -= this.rows[this.dropped].text.length
      this.rows[this.dropped].text = null
      this.dropped += 1
    }
    return whole
  }

  /** What is shown: `at(position)` for 0 <= position < `length`. */
  get length() {
    return this.found === null ? this.count : this.found.length
  }

  at(position) {
    return this.found === null ? position : this.found[position]
  }

  /** Where a row stands in what is shown, or the place where it would stand. */
  positionOf(index) {
    if (this.found === null) return index
    let low = 0
    let high = this.found.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.found[middle] < index) low = middle + 1
      else high = middle
    }
    return low
  }

  indexOf(sequence) {
    const index = sequence - (this.rows[0]?.sequence ?? 1) // sequences have no gaps
    return index >= 0 && index < this.rows.length ? index : -1
  }

  select(change) {
    this.filter = { ...this.filter, ...change }
    const { kinds, text, part } = this.filter
    this.search = text ? searcher(text) : null
    if (!kinds.size && !text && !part) {
      this.found = null
      return
    }
    const among = part ? (this.byPart.get(part) ?? []) : this.rows.keys()
    this.found = []
    for (const index of among) if (this.passes(index)) this.found.push(index)
  }

  passes(index) {
    const { kinds, part } = this.filter
    const row = this.rows[index]
    if (kinds.size && !kinds.has(row.kind)) return false
    if (part && !this.byPart.get(part)?.includes(index)) return false
    return !this.search || (row.text !== null && this.search.test(row.text))
  }

  /** A row, parsed; null while it is fetched: `then` is called when it is there. One that has not come yet has no `opencode`. */
  whole(index, then) {
    const known = this.parsed.get(index)
    if (known !== undefined) return known
    const text = this.rows[index]?.text
    if (!text) return this.fetched(index, then)
    const row = JSON.parse(text)
    if (this.parsed.size > PARSED_KEPT) this.parsed.clear()
    this.parsed.set(index, row)
    return row
  }

  /** The same from a page that is asked for: whole rows where they have come and were dropped, else what the journal has. */
  fetched(index, then) {
    const bare = index >= this.rows.length
    const first = index - (index % PAGE)
    const key = `${bare ? "bare" : "whole"} ${first}`
    const page = this.pages.get(key)
    if (page === undefined) {
      this.pages.set(key, null)
      if (this.pages.size > PAGES_KEPT) this.pages.delete(this.pages.keys().next().value)
      const again = () => setTimeout(() => {
        this.pages.delete(key)
        then()
      }, AGAIN_MS)
      this.load(first, bare).then((rows) => {
        this.pages.set(key, rows)
        then()
      }, again)
    }
    return page?.[index - first] ?? null
  }

  /** What is known of a row in short; of one that has not come yet, what its page says. */
  brief(index, whole) {
    const known = this.rows[index]
    if (known) return known
    const event = whole?.event
    return { sequence: index + 1, at: event ? Date.parse(event.time) : null, gap: 0, kind: event ? kindOf(event) : "status", state: "unknown" }
  }
}

/** Pages of a session from the server. Bare ones are read from the journal as they are, at no cost. */
function loader(session) {
  const id = encodeURIComponent(session)
  return async (after, bare) => {
    if (!bare) return (await call("GET", `inspector/api/sessions/${id}/trace?after=${after}&limit=${PAGE}`)).rows
    const { events } = await call("GET", `v1/sessions/${id}/events?offset=${after}&limit=${PAGE}&include_raw=true`)
    return events.map((event) => ({ event, opencode: null }))
  }
}
