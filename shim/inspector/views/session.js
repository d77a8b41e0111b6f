// One session: its head, the strip of its turns' states, chat or events, what it asks, and the prompt.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { address } from "../api.js"
import { bytes } from "../format.js"
import { asksView } from "./asks.js"
import { composer } from "./composer.js"
import { strip } from "./strip.js"

const TABS = [["chat", "Chat"], ["events", "Events"]]

/** Whether it takes no more prompts. One whose agent has crashed takes them: the agent is started again. */
const isOver = (session, info) => (session.trace.behind || session.link === "loading" ? info?.state === "ended" : session.talk.ended)

function head(app, session, info) {
  const ended = isOver(session, info)
  const state = ended ? "ended" : session.state
  const facts = [info?.outlives ? "outlives the server" : null, info?.storedBytes ? `${bytes(info.storedBytes)} in NATS` : null, info?.agent, info?.model, info?.agentMode, info?.permissionMode === "default" ? null : info?.permissionMode]
  return html`<div class="head">
    <a class="back" href="#/" aria-label="All sessions">←</a>
    <h2>${session.talk.info?.title || info?.title || session.id}</h2>
    <span class="badge ${state}" role="status">${state}${session.queued ? `, ${session.queued} queued` : ""}</span>
    <span class="facts dim" title=${info?.directory ?? ""}>${facts.filter(Boolean).join(" · ")}</span>
    <span class="actions">
      <details class="menu" @focusout=${(event) => { if (!event.currentTarget.contains(event.relatedTarget)) event.currentTarget.open = false }}>
        <summary class="button small">More</summary>
        <div class="choices">
          ${info?.resumeCommand ? html`<code title="Goes on with this conversation in the agent's own program">${info.resumeCommand}</code>` : nothing}
          <a class="button" download href=${address(`inspector/api/sessions/${encodeURIComponent(session.id)}/export`)}
            title="A zip archive of its native, universal and OpenCode events, without paths and secrets, for bug reports">Export</a>
          <button class="danger" ?disabled=${ended}
            @click=${() => confirm("Stop this session's agent for good? The session can still be read.") && session.terminate()}>End</button>
        </div>
      </details>
    </span>
  </div>`
}

function tabs(app, session) {
  return html`<nav class="tabs" aria-label="Views of the session">${TABS.map(([name, title]) => html`
    <a href="#/session/${encodeURIComponent(session.id)}/${name}" aria-current=${app.route.tab === name ? "page" : "false"}>
      ${title}${name === "events" ? html` <small>${session.trace.count}</small>` : nothing}</a>`)}
    <span class="link dim">${link(session)}</span>
  </nav>`
}

function link({ link, why, trace }) {
  if (link === "lost") return `connection lost, trying again (${why})`
  if (link !== "live") return "loading …"
  return trace.behind ? `loading … ${Math.floor((100 * trace.rows.length) / trace.total)} %` : "● live"
}

export function sessionView(app, session) {
  if (session.link === "gone") return html`<div class="blank"><p>${session.why}</p><p><a class="button" href="#/">All sessions</a></p></div>`
  const info = app.info(session.id)
  const module = app.view(app.route.tab)
  return html`<section class="session ${session.waiting.length ? "asked" : ""}" aria-label="Session">
    ${head(app, session, info)} ${strip(session)} ${tabs(app, session)}
    ${module ? module.view(app, session) : html`<div class="blank">Loading …</div>`}
    ${asksView(session)}
    ${isOver(session, info) ? nothing : composer(session)}
  </section>`
}
