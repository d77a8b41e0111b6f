// The turn machine's state over time: the last turn in pieces with words, each turn before it as one thin bar. A click leads to
// the event.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { span } from "../format.js"
import { turns } from "../trace.js"

const SHOWN = 40
const WIDEST = 12

/** How wide a piece is: long times are longer, but none hides the others. */
const weight = (ms) => Math.min(WIDEST, 1 + Math.log2(1 + ms / 50))

function piece(session, { state, index }, { words, what, grows, thin = false }) {
  return html`<li class=${thin ? "thin" : ""} .style=${thin ? "" : `flex-grow: ${grows}`}>
    <button class="piece ${state}" title=${what} aria-label=${what} @click=${() => session.jump(index, { open: false })}>
      <span>${words}</span></button></li>`
}

function earlier(session, segments, number, end) {
  const busy = segments.filter(({ state }) => state !== "idle")
  const shows = busy.find(({ state }) => state === "waiting") ?? busy.at(-1) ?? segments[0]
  const lasted = (segments.find(({ state, at }) => state === "idle" && at > segments[0].at)?.at ?? end) - segments[0].at
  return piece(session, { ...shows, index: segments[0].index }, { words: "", what: `turn ${number}, ${span(lasted)}`, thin: true })
}

export function strip(session) {
  const { segments, rows } = session.trace
  const end = rows.length ? rows[rows.length - 1].at : 0
  const all = turns(segments)
  const last = all.at(-1) ?? []
  const before = all.slice(0, -1)
  const shown = before.slice(-SHOWN)
  return html`<ol class="strip" aria-label="States of the turn machine">
    ${before.length > shown.length ? html`<li class="more dim">${before.length - shown.length} earlier</li>` : nothing}
    ${shown.map((turn, place) => earlier(session, turn, before.length - shown.length + place + 1, all[before.length - shown.length + place + 1][0].at))}
    ${last.map((segment, place) => {
      const isLast = place === last.length - 1
      const lasts = Math.max(0, (isLast ? end : last[place + 1].at) - segment.at)
      const words = isLast ? segment.state : `${segment.state} ${span(lasts)}`
      return piece(session, segment, { words, what: `${words}, from event ${rows[segment.index].sequence}`, grows: isLast ? 3 : weight(lasts) })
    })}
  </ol>`
}
