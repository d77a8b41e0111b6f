// What the server counts, every two seconds.

import { html, nothing, svg } from "../vendor/lit-html/lit-html.js"
import { bytes, span } from "../format.js"

const WIDE = 180
const HIGH = 36

/** A line of the last values. */
function spark(values, label) {
  const most = Math.max(1, ...values)
  const points = values.map((value, at) => `${(at / Math.max(1, values.length - 1)) * WIDE},${HIGH - 2 - (value / most) * (HIGH - 4)}`).join(" ")
  return html`<svg class="spark" viewBox="0 0 ${WIDE} ${HIGH}" preserveAspectRatio="none" role="img" aria-label=${label}>${svg`<polyline points=${points}></polyline>`}</svg>`
}

const tile = (title, value, about, values) => html`<li class="card tile"><h3>${title}</h3><p class="big">${value}</p>
  <p class="dim about">${about ?? ""}</p>${values ? spark(values, `${title}, the last ${values.length} values`) : nothing}</li>`

function table(title, counts, none) {
  const rows = Object.entries(counts).sort(([, a], [, b]) => b - a)
  return html`<section class="card" aria-label=${title}><h3>${title}</h3>${rows.length
    ? html`<table><tbody>${rows.map(([name, count]) => html`<tr><th scope="row">${name}</th><td class="a-right">${count.toLocaleString("en")}</td></tr>`)}</tbody></table>`
    : html`<p class="dim">${none}</p>`}</section>`
}

export function view(app) {
  const now = app.counters.at(-1)
  if (!now) return html`<p class="blank">Loading …</p>`
  const over = (key) => app.counters.map((one) => one[key] ?? 0)
  return html`<section class="page" aria-label="Counters"><h2>Counters</h2>
    <p class="dim">opencode-shim ${now.version}, up for ${span(now.uptimeMs)}, ${now.sessions} sessions. For Prometheus: <a href="../metrics">/metrics</a>.</p>
    <ul class="cards tiles">
      ${tile("Events per second", now.eventsPerSecond.toFixed(1), "over the last 10 s", over("eventsPerSecond"))}
      ${tile("Turns running", now.turnsRunning, null, over("turnsRunning"))}
      ${tile("Subscribers", now.subscribers.opencode + now.subscribers.universal, `${now.subscribers.opencode} OpenCode, ${now.subscribers.universal} universal`)}
      ${tile("Lag", now.lag, `events, of the slowest reader; ${now.cutOff} cut off`, over("lag"))}
      ${tile("Memory", bytes(now.memoryBytes), null, over("memoryBytes"))}
      ${tile("Event loop", `${now.loopLagMs.toFixed(1)} ms`, "from one step to the next", over("loopLagMs"))}
    </ul>
    <div class="cards tables">
      ${table("Events, by type", now.events, "None yet.")}
      ${table("Unparsed, by kind", now.unparsed, "None: every native event was understood.")}
      ${table("Turns, by end", now.turns, "None yet.")}
      ${table("Errors, by code", now.errors, "None.")}
    </div></section>`
}
