// The turn machine's state over time: a piece for each time that it was in a state. A click leads to the event.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { span } from "../format.js"

const SHOWN = 40
const WIDEST = 12

/** How wide a piece is: long times are longer, but none hides the others. */
const weight = (ms) => Math.min(WIDEST, 1 + Math.log2(1 + ms / 50))

export function strip(session) {
  const { segments, rows } = session.trace
  const shown = segments.slice(-SHOWN)
  const end = rows.length ? rows[rows.length - 1].at : 0
  return html`<ol class="strip" aria-label="States of the turn machine">
    ${segments.length > SHOWN ? html`<li class="earlier dim">${segments.length - SHOWN} earlier</li>` : nothing}
    ${shown.map(({ state, index, at }, place) => {
      const last = place === shown.length - 1
      const lasts = Math.max(0, (last ? end : shown[place + 1].at) - at)
      const shows = last ? state : `${state} ${span(lasts)}`
      const what = `${shows}, from event ${rows[index].sequence}`
      return html`<li .style=${`flex-grow: ${last ? 3 : weight(lasts)}`}>
        <button class="piece ${state}" title=${what} aria-label=${what} @click=${() => session.jump(index, { open: false })}>
          <span>${shows}</span></button></li>`
    })}
  </ol>`
}
