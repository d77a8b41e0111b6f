// The sessions, each with how it is now.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { repeat } from "../vendor/lit-html/directives/repeat.js"
import { ago, toldState } from "../format.js"

const SHOWN = 200

function status(info, app) {
  if (app.session && (app.session.id === info.sessionId || app.session.id === info.openCodeSessionId) && app.session.trace.last && !info.ended)
    return app.session.state
  if (info.ended) return "ended"
  return toldState(info)
}

const matches = (info, wanted) =>
  [info.title, info.sessionId, info.openCodeSessionId, info.agent, info.directory, info.model].some((text) => text?.toLowerCase().includes(wanted))

function entry(app, info, now) {
  const state = status(info, app)
  const chosen = app.session && [info.sessionId, info.openCodeSessionId].includes(app.session.id)
  const tab = app.route.name === "session" ? app.route.tab : "chat"
  return html`<li class=${info.parentSessionId ? "child" : ""}>
    <a href="#/session/${encodeURIComponent(info.sessionId)}/${tab}" aria-current=${chosen ? "true" : "false"}>
      <span class="dot ${state}" aria-hidden="true"></span>
      <span class="name">${info.title || info.sessionId}</span>
      <span class="about">${info.agent} · ${state} · ${info.eventCount} events · ${ago(info.updatedAt, now)}</span>
    </a></li>`
}

export function sidebar(app) {
  const wanted = app.wanted.toLowerCase()
  const found = wanted ? app.sessions.filter((info) => matches(info, wanted)) : app.sessions
  const now = Date.now()
  return html`<aside class="sessions" aria-label="Sessions">
    <div class="bar">
      <input type="search" placeholder="Filter ${app.sessions.length} sessions" aria-label="Filter sessions" .value=${app.wanted}
        @input=${(event) => { app.wanted = event.target.value; app.changed() }}>
      <a class="button" href="#/new">New</a>
    </div>
    <ul tabindex="0" aria-label="Sessions of this server">${repeat(found.slice(0, SHOWN), (info) => info.sessionId, (info) => entry(app, info, now))}</ul>
    ${found.length > SHOWN ? html`<p class="dim pad">${found.length - SHOWN} more: filter to find them.</p>` : nothing}
    ${app.reached === true && !app.sessions.length ? html`<p class="dim pad">No sessions yet. Those of OpenCode's clients appear here too.</p>` : nothing}
  </aside>`
}
