// The sessions, each with how it is now; those that wait for a person first. Only what is seen is in the page.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { repeat } from "../vendor/lit-html/directives/repeat.js"
import { ago } from "../format.js"
import { KEYS_TEXT } from "../keys.js"

/** The session on display knows more than the list, which is two seconds old. */
function status(info, app) {
  const shows = app.session && [info.sessionId, info.openCodeSessionId].includes(app.session.id)
  return shows && app.session.trace.last && ["queued", "running", "waiting"].includes(app.session.state) ? app.session.state : info.state
}

const project = (info) => info.directory?.split("/").filter(Boolean).at(-1) ?? ""

function entry(app, position, now) {
  const { list } = app
  const info = list.at(position)
  const place = `transform: translateY(${list.heights.top(position)}px)`
  if (!info) return html`<li .style=${place} aria-setsize=${list.total} aria-posinset=${position + 1}><p class="coming dim">…</p></li>`
  const state = status(info, app)
  const chosen = app.session && [info.sessionId, info.openCodeSessionId].includes(app.session.id)
  const tab = app.route.name === "session" ? app.route.tab : "chat"
  return html`<li class=${info.parentSessionId ? "child" : ""} .style=${place} aria-setsize=${list.total} aria-posinset=${position + 1}>
    <a href="#/session/${encodeURIComponent(info.sessionId)}/${tab}" aria-current=${chosen ? "true" : "false"} data-position=${position}
      tabindex=${position === list.cursor ? 0 : -1} title=${info.directory ?? ""} @focus=${() => { list.cursor = position }}>
      <span class="dot ${state}" aria-hidden="true"></span>
      <span class="name">${info.title || info.sessionId}</span>
      <span class="about"><b class="state ${state}">${state}</b> · ${info.agent} · ${project(info)}${info.owner ? ` · ${info.owner}` : ""} · ${ago(info.updatedAt, now)}</span>
    </a></li>`
}

/** After drawing: the window over the list is as high as the screen lets it be. */
function settle(app) {
  const element = document.querySelector(".sessions .window")
  if (!element || element.clientHeight === app.list.scroll.height) return
  app.list.scroll = { top: element.scrollTop, height: element.clientHeight }
  app.listMoved()
}

function scrolled(app, event) {
  app.list.scroll = { ...app.list.scroll, top: event.currentTarget.scrollTop }
  app.listMoved()
}

function arrows(app, event) {
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10, Home: -app.list.total, End: app.list.total }[event.key]
  if (steps === undefined) return
  event.preventDefault()
  app.moveCursor(steps)
}

function emptyText(app) {
  const { list } = app
  if (list.all === null || list.total) return nothing
  if (list.search) return html`<p class="dim pad">No session has “${list.search}”. <button class="small" @click=${() => app.search("")}>Show all</button></p>`
  return html`<p class="dim pad">No sessions yet. <a href="#/new">Start one</a>; those of OpenCode's clients appear here too.</p>`
}

export function sidebar(app) {
  const { list } = app
  const [first, last] = list.seen
  const positions = Array.from({ length: last - first }, (_, step) => first + step)
  const now = Date.now()
  requestAnimationFrame(() => settle(app))
  return html`<aside class="sessions" aria-label="Sessions">
    <div class="bar">
      <input type="search" placeholder=${!list.all ? "Search" : `Search ${list.all} session${list.all === 1 ? "" : "s"}`} aria-label="Search sessions"
        .value=${list.search} @input=${(event) => app.search(event.target.value)}>
      <a class="button" href="#/new">New</a>
    </div>
    ${list.waiting ? html`<button class="waits" aria-pressed=${list.search === "waiting"} @click=${() => app.search(list.search === "waiting" ? "" : "waiting")}>
      <span class="dot waiting" aria-hidden="true"></span> Waiting for you: ${list.waiting}</button>` : nothing}
    ${emptyText(app)}
    <div class="window" @scroll=${(event) => scrolled(app, event)} @keydown=${(event) => arrows(app, event)}>
      <ul aria-label="Sessions of this server" .style=${`height: ${list.heights.top(list.total)}px`}>
        ${repeat(positions, (position) => list.at(position)?.sessionId ?? position, (position) => entry(app, position, now))}</ul>
    </div>
    <p class="keys dim">${KEYS_TEXT}</p>
  </aside>`
}
