// Three columns in step: what the agent sent, the universal event, and the OpenCode events made from it. Only what is seen is
// in the page (windowed.js). Narrow screens show one column at a time.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { repeat } from "../vendor/lit-html/directives/repeat.js"
import { clock, nativeLine, opencodeLine, span, universalLine } from "../format.js"
import { KINDS } from "../trace.js"
import { copyButton, json } from "./pieces.js"

const COLUMNS = [["native", "Native"], ["universal", "Universal"], ["opencode", "OpenCode"]]
const TYPING_MS = 150
const AT_END_PX = 40

// --- what is shown ---

function filters(session) {
  const { trace } = session
  const { kinds, part, text } = trace.filter
  const flip = (kind) => () => {
    const next = new Set(kinds)
    if (!next.delete(kind)) next.add(kind)
    session.select({ kinds: next })
  }
  const type = (event) => {
    clearTimeout(session.typing)
    const wanted = event.target.value
    session.typing = setTimeout(() => session.select({ text: wanted }), TYPING_MS)
  }
  return html`<div class="filters">
    <input type="search" placeholder="Find in all three" aria-label="Find text in events" @input=${type}>
    <span class="kinds" role="group" aria-label="Kinds of events">${KINDS.filter((kind) => trace.counts[kind]).map((kind) => html`
      <button class="kind k-${kind}" aria-pressed=${kinds.has(kind)} @click=${flip(kind)}>${kind} <small>${trace.counts[kind]}</small></button>`)}
    </span>
    ${part ? html`<span class="chip">events of ${part} <button class="bare" aria-label="Show all events" @click=${() => session.select({ part: null })}>×</button></span>` : nothing}
    ${trace.found !== null ? html`<span class="dim">${trace.length} of ${trace.rows.length}</span>` : nothing}
    ${text && trace.dropped ? html`<span class="dim">the first ${trace.dropped} are not searched for text: they are no longer held here</span>` : nothing}
    <span class="columns" role="group" aria-label="Column">${COLUMNS.map(([name, title]) => html`
      <button aria-pressed=${session.column === name} @click=${() => { session.column = name; session.app.changed() }}>${title}</button>`)}</span>
    <button class="follow" aria-pressed=${session.follows} @click=${() => { session.follows = !session.follows; session.app.changed() }}>Follow</button>
  </div>`
}

// --- a row ---

const native = (session, { event }) => event.raw === null
  ? html`<span class="dim">${event.source === "daemon" ? "— (made here)" : "—"}</span>`
  : nativeLine(event.raw)

const COMING = html`<span class="dim">…</span>`

const universal = (session, { event }) => html`<b>${event.type}</b> ${universalLine(event)}
  ${event.by ? html`<span class="chip">by ${event.by}</span>` : nothing}`

const opencode = (session, { opencode }) => !opencode ? COMING : opencode.length
  ? html`${opencode.length > 1 ? html`<span class="count">${opencode.length}</span>` : nothing}<b>${opencode[0].type}</b> ${opencodeLine(opencode[0])}`
  : html`<span class="dim">—</span>`

const LINES = { native, universal, opencode }

const block = (value, label, extra = nothing) => html`<div class="block">
  <div class="row-of-buttons">${extra}${copyButton(() => JSON.stringify(value, null, 2), `Copy ${label}`)}</div>
  <pre tabindex="0" aria-label=${label}>${json(value)}</pre></div>`

function partButtons(session, { properties }) {
  const part = properties.part?.id ?? properties.partID
  if (!part) return nothing
  return html`<button class="small" @click=${() => session.showPart(part)}>All of this part</button>
    <button class="small" @click=${() => session.showInChat(part)}>In chat</button>`
}

const WHOLES = {
  native: (session, { event }) => (event.raw === null
    ? html`<p class="dim">${event.source === "daemon" ? "The agent sent nothing here: we made this event." : "Nothing was kept."}</p>`
    : block(event.raw, "native payload")),
  universal: (session, { event }) => block({ ...event, raw: undefined }, "universal event"),
  opencode: (session, { opencode }) => (!opencode ? COMING : opencode.length
    ? opencode.map((one) => block(one, one.type, partButtons(session, one)))
    : html`<p class="dim">OpenCode's clients are sent nothing for this.</p>`),
}

function row(session, position) {
  const { trace, heights, opened } = session
  const index = trace.at(position)
  const whole = trace.whole(index, () => session.app.changed())
  const { sequence, at, gap, kind, state } = trace.brief(index, whole)
  const isOpen = opened.has(index)
  const cells = whole === null
    ? COLUMNS.map(([name]) => html`<div role="cell" class="cell ${name}">${COMING}</div>`)
    : COLUMNS.map(([name]) => html`<div role="cell" class="cell ${name}">${(isOpen ? WHOLES : LINES)[name](session, whole)}</div>`)
  return html`<div role="row" class="event k-${kind} ${isOpen ? "open" : ""} ${session.mark === index ? "mark" : ""}" data-position=${position}
    aria-rowindex=${position + 2} .style=${`transform: translateY(${heights.top(position)}px)`}>
    <div role="cell" class="cell when s-${state}" title=${at === null ? nothing : `${state}, ${clock(at)}`}>
      <button class="bare" aria-expanded=${isOpen} aria-label="Event ${sequence}" @click=${() => session.toggle(index)}>
        <span class="twist" aria-hidden="true">${isOpen ? "▾" : "▸"}</span>${sequence}</button>
      <span class="gap">${index === 0 && at !== null ? clock(at).slice(0, 8) : gap > 0 ? `+${span(gap)}` : ""}</span>
    </div>${cells}</div>`
}

// --- the list ---

/** After drawing: opened rows are measured, and the list stands where it is to stand. */
function settle(session, element) {
  const { heights, trace } = session
  let changed = false
  for (const open of element.querySelectorAll(".event.open")) {
    const position = Number(open.dataset.position)
    const height = Math.ceil(open.getBoundingClientRect().height)
    if (heights.opened.get(position) !== height) {
      heights.opened.set(position, height)
      changed = true
    }
  }
  const headHeight = element.querySelector(".event.heads").offsetHeight
  if (session.goal !== null && trace.count > session.goal) {
    element.scrollTop = Math.max(0, heights.top(trace.positionOf(session.goal)) - 2 * heights.row)
    session.goal = null
    changed = true
  } else if (session.follows && element.scrollHeight - element.clientHeight - element.scrollTop > 1) {
    element.scrollTop = element.scrollHeight
  }
  const scroll = { top: element.scrollTop, height: element.clientHeight - headHeight }
  if (changed || scroll.top !== session.scroll.top || scroll.height !== session.scroll.height) {
    session.scroll = scroll
    session.app.changed()
  }
}

function scrolled(session, event) {
  const element = event.currentTarget
  const up = element.scrollTop < session.scroll.top
  session.scroll = { ...session.scroll, top: element.scrollTop }
  const atEnd = element.scrollHeight - element.clientHeight - element.scrollTop < AT_END_PX
  if (up && !atEnd) session.follows = false
  session.app.changed()
}

export function view(app, session) {
  const { trace, heights } = session
  const [first, last] = heights.seen(session.scroll.top, session.scroll.height, trace.length)
  const positions = Array.from({ length: last - first }, (_, at) => first + at)
  requestAnimationFrame(() => {
    const element = document.querySelector(".list")
    if (element && app.session === session) settle(session, element)
  })
  return html`<div class="events show-${session.column}">
    ${filters(session)}
    <div class="list" role="table" tabindex="0" aria-label="Events" aria-rowcount=${trace.length + 1} @scroll=${(event) => scrolled(session, event)}>
      <div role="row" class="event heads" aria-rowindex="1"><div role="columnheader" class="cell when">#, time</div>
        ${COLUMNS.map(([name, title]) => html`<div role="columnheader" class="cell ${name}">${title}</div>`)}</div>
      <div role="rowgroup" class="space" .style=${`height: ${heights.top(trace.length)}px`}>
        ${repeat(positions, (position) => trace.at(position), (position) => row(session, position))}
      </div>
    </div></div>`
}
