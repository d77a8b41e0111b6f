// The session on display: its rows, the conversation built from them, and the user's actions.

import { call, follow } from "./api.js"
import { Talk } from "./talk.js"
import { Trace } from "./trace.js"
import { Heights } from "./windowed.js"

export const ROW_PX = 32

export class Session {
  constructor(id, app) {
    this.id = id
    this.app = app
    this.trace = new Trace(id)
    this.talk = new Talk()
    this.heights = new Heights(ROW_PX)
    this.opened = new Set() // indexes of rows that are opened
    this.column = "universal" // the one that narrow screens show
    this.scroll = { top: 0, height: 600 }
    this.follows = true // the list stays at its end
    this.goal = null // an index that is to be scrolled to
    this.mark = null // an index that was jumped to
    this.partMark = null // a part that was jumped to
    this.partShown = null // the one that was scrolled to
    this.chatFollows = true // the chat stays at its end
    this.chatTop = 0
    this.whole = false // the chat shows all messages
    this.draft = ""
    this.images = []
    this.replies = {} // question id -> what is chosen so far
    this.shown = new Map() // ask id -> when it was first on the screen, in ms
    this.link = "loading"
    this.why = ""
    this.ending = new AbortController()
    this.expect()
    follow(id, {
      signal: this.ending.signal,
      position: () => this.trace.position,
      onRows: (texts) => this.add(texts),
      onState: (state, why = "") => {
        this.link = state
        this.why = why
        app.changed()
      },
    })
  }

  close() {
    this.ending.abort()
  }

  /** The list of sessions says how many events there are, before they come. */
  expect() {
    this.trace.expect(this.app.info(this.id)?.eventCount ?? 0)
  }

  /** Rows of a long past are drawn a few times a second, new ones at once. */
  add(texts) {
    for (const text of texts) {
      const row = this.trace.add(text)
      if (row) this.talk.feed(row)
    }
    if (this.trace.behind) this.app.changedSoon()
    else this.app.changed()
  }

  /** Of the turn, now: while the past comes, what the list of sessions says. */
  get state() {
    const told = this.app.info(this.id)?.state ?? "idle"
    if (this.trace.behind) return told
    const state = this.trace.last?.state ?? "idle"
    return (state === "running" && told === "retrying") || (state === "idle" && told === "failed") ? told : state
  }

  get queued() {
    return this.trace.behind ? 0 : (this.trace.last?.queued ?? 0)
  }

  /** What waits for a person. What waited in the past does so no more. */
  get waiting() {
    return this.trace.behind ? [] : this.talk.waiting
  }

  shownSince(ask) {
    if (!this.shown.has(ask)) this.shown.set(ask, performance.now())
    return this.shown.get(ask)
  }

  /** Whether a turn runs, which can be aborted. */
  get busy() {
    return ["queued", "running", "waiting", "retrying"].includes(this.state)
  }

  // --- the list of events ---

  select(change) {
    const top = this.trace.length ? this.trace.at(Math.min(this.heights.find(this.scroll.top, this.trace.length), this.trace.length - 1)) : 0
    this.trace.select(change)
    this.remeasure()
    if (!this.follows) this.goal = this.mark ?? top
    this.app.changed()
  }

  /** Heights belong to places in what is shown; these have changed. */
  remeasure() {
    this.heights.opened.clear()
    const { trace } = this
    for (const index of this.opened) {
      const position = trace.positionOf(index)
      if (trace.length > position && trace.at(position) === index) this.heights.opened.set(position, ROW_PX * 8)
    }
  }

  toggle(index) {
    if (this.opened.delete(index)) this.heights.opened.delete(this.trace.positionOf(index))
    else this.opened.add(index)
    this.follows = false
    this.app.changed()
  }

  /** Shows a row of the list, opened. */
  jump(index, { open = true, part = null } = {}) {
    this.trace.select({ kinds: new Set(), text: "", part })
    if (open) this.opened.add(index)
    this.remeasure()
    this.mark = index
    this.goal = index
    this.follows = false
    this.app.open(this.id, "events")
    this.app.changed()
  }

  /** From a part to the events that made it. */
  showPart(part) {
    const rows = this.trace.byPart.get(part)
    if (rows?.length) this.jump(rows[0], { part })
  }

  /** From an event to the part in the conversation. */
  showInChat(part) {
    this.partMark = part
    this.whole = true
    this.app.open(this.id, "chat")
    this.app.changed()
  }

  // --- what a person does ---

  path(rest) {
    return `v1/sessions/${encodeURIComponent(this.id)}/${rest}`
  }

  async send() {
    const message = this.draft
    const images = this.images
    const attachments = images.map(({ url, name, mime }) => ({ path: url, filename: name, mime }))
    if (!message.trim() && !attachments.length) return
    this.draft = ""
    this.images = []
    this.app.changed()
    if (!(await this.app.act(() => call("POST", this.path("messages"), { message, attachments })))) {
      this.draft ||= message
      this.images = [...images, ...this.images]
      this.app.changed()
    }
    this.app.tick()
  }

  abort() {
    return this.app.act(() => call("POST", `v1/x-sessions/${encodeURIComponent(this.id)}/abort`))
  }

  async terminate() {
    await this.app.act(() => call("POST", this.path("terminate")))
    this.app.tick()
  }

  permit(id, reply, message) {
    const body = message ? { reply, message } : { reply }
    return this.app.act(() => call("POST", this.path(`permissions/${encodeURIComponent(id)}/reply`), body))
  }

  answer(id, answers) {
    return this.app.act(() => call("POST", this.path(`questions/${encodeURIComponent(id)}/reply`), { answers }))
  }

  refuse(id) {
    return this.app.act(() => call("POST", this.path(`questions/${encodeURIComponent(id)}/reject`)))
  }
}
