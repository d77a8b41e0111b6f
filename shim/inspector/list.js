// The list of sessions: the server has it, sorted and searched; here are the pages that are on the screen. Pure but for `load`.

import { call } from "./api.js"
import { Heights } from "./windowed.js"

export const ROW_PX = 54
export const PAGE = 50 // sessions that are asked for at once
const PAGES_KEPT = 8

const fetchPage = (search, offset, open) =>
  call("GET", `inspector/api/sessions?${new URLSearchParams({ search, offset, limit: PAGE, open })}`)

export class List {
  /** `load(search, offset, open)` gives {sessions, total, all, waiting, open}. */
  constructor({ load = fetchPage } = {}) {
    this.load = load
    this.heights = new Heights(ROW_PX)
    this.scroll = { top: 0, height: 800 }
    this.search = ""
    this.cursor = 0 // the position that has the keyboard's focus
    this.pages = new Map() // number of a page -> its sessions
    this.total = 0
    this.all = null // null: no answer yet
    this.waiting = 0
    this.open = null // the session on display, wherever it is in the list
  }

  /** [first, after the last): the positions that are drawn. */
  get seen() {
    return this.heights.seen(this.scroll.top, this.scroll.height, this.total)
  }

  at(position) {
    return this.pages.get(Math.floor(position / PAGE))?.[position % PAGE] ?? null
  }

  info(id) {
    const is = (one) => one?.sessionId === id || one?.openCodeSessionId === id
    return is(this.open) ? this.open : ([...this.pages.values()].flat().find(is) ?? null)
  }

  /** Asks for the pages on the screen again; `open` is the id of the session on display, or "". */
  async refresh(open = "") {
    const { search } = this
    const [first, last] = this.seen
    const begin = Math.floor(first / PAGE)
    const numbers = Array.from({ length: Math.max(1, Math.ceil(last / PAGE) - begin) }, (_, step) => begin + step)
    const answers = await Promise.all(numbers.map((number) => this.load(search, number * PAGE, open)))
    if (search !== this.search) return // another search has begun
    for (const [step, { sessions }] of answers.entries()) {
      this.pages.delete(numbers[step])
      this.pages.set(numbers[step], sessions)
    }
    while (this.pages.size > PAGES_KEPT) this.pages.delete(this.pages.keys().next().value)
    const answer = answers.at(-1)
    this.total = answer.total
    this.all = answer.all
    this.waiting = answer.waiting
    this.open = answer.open ?? null
    this.cursor = Math.max(0, Math.min(this.cursor, this.total - 1))
  }

  /** Whether a position on the screen has not come yet. */
  get lacks() {
    const [first, last] = this.seen
    for (let position = first; position < last; position++) if (!this.pages.has(Math.floor(position / PAGE))) return true
    return false
  }

  find(search) {
    this.search = search
    this.pages.clear()
    this.scroll = { ...this.scroll, top: 0 }
    this.cursor = 0
  }

  /** Moves the cursor by so many positions, and returns where the list must scroll to show it; null: nowhere. */
  move(steps) {
    this.cursor = Math.max(0, Math.min(this.cursor + steps, this.total - 1))
    const top = this.heights.top(this.cursor)
    if (top < this.scroll.top) return top
    const over = top + ROW_PX - this.scroll.height
    return over > this.scroll.top ? over : null
  }
}
