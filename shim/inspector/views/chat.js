// The conversation: messages with their parts, in the way that OpenCode's clients have them.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { repeat } from "../vendor/lit-html/directives/repeat.js"
import { span } from "../format.js"
import { markdown } from "./markdown.js"
import { cut, icon, picture } from "./pieces.js"
import { toolCard } from "./tools.js"

const SHOWN_MESSAGES = 60
const AT_END_PX = 40
const WORKING = { running: "working …", retrying: "the model did not answer; trying again …" }

const jump = (session, part) => html`<button class="small jump" aria-label="Events that made this part" title="Events that made this part"
  @click=${() => session.showPart(part.id)}>${icon("aim")}</button>`

const PARTS = {
  text: (session, part) => (part.synthetic ? nothing : html`<div class="text">${markdown(part)}</div>`),
  reasoning: (session, part) => (part.text?.trim()
    ? html`<details class="reasoning" ?open=${!part.time?.end}><summary>Reasoning</summary><div class="text">${cut(part.text)}</div></details>`
    : nothing),
  file: (session, part) => picture(part.url, part.filename),
  tool: (session, part) => toolCard(session, part),
  subtask: (session, part) => html`<div class="text"><b>@${part.agent}</b> ${part.prompt}</div>`,
  compaction: () => html`<p class="rule"><span>Compaction: the conversation before is summed up</span></p>`,
  retry: (session, part) => html`<p class="notice">Attempt ${part.attempt}: ${part.error?.data?.message ?? ""}</p>`,
}
const QUIET = new Set(["step-start", "step-finish", "snapshot", "patch", "agent"])

function partView(session, part) {
  if (QUIET.has(part.type)) return nothing
  const made = PARTS[part.type] ? PARTS[part.type](session, part) : html`<span class="chip">${part.type}</span>`
  if (made === nothing) return nothing
  return html`<div class="part p-${part.type} ${session.partMark === part.id ? "mark" : ""}" id=${part.id}>${made}${jump(session, part)}</div>`
}

function foot({ info }) {
  const tokens = info.tokens ? info.tokens.input + info.tokens.output : 0
  const lasted = info.time?.completed ? span(info.time.completed - info.time.created) : null
  const facts = [info.modelID, lasted, tokens ? `${tokens} tokens` : null, info.cost ? `$${info.cost.toFixed(4)}` : null]
  return info.role === "assistant" && lasted ? html`<footer class="dim">${facts.filter(Boolean).join(" · ")}</footer>` : nothing
}

const errorText = (error) => error.data?.message || error.name

function messageView(session, message) {
  const { info, parts } = message
  const ordered = [...parts.values()].sort((a, b) => (a.id < b.id ? -1 : 1))
  return html`<article class="message ${info.role}" aria-label=${info.role === "user" ? "You" : "Agent"}>
    ${repeat(ordered, (part) => part.id, (part) => partView(session, part))}
    ${info.error ? html`<p class="notice error">${errorText(info.error)}</p>` : nothing}
    ${foot(message)}
  </article>`
}

const noteView = (note) => html`<p class="notice ${note.kind}">${note.text}</p>`

/** After drawing: the chat stays at its end, unless a person has scrolled up or jumped to a part. */
function settle(session) {
  const element = document.querySelector(".chat")
  if (!element) return
  if (session.partMark && !session.partShown) {
    session.partShown = session.partMark
    document.getElementById(session.partMark)?.scrollIntoView({ block: "center" })
    session.chatFollows = false
  } else if (session.chatFollows) element.scrollTop = element.scrollHeight
  session.chatTop = element.scrollTop
}

function scrolled(session, event) {
  const element = event.currentTarget
  const atEnd = element.scrollHeight - element.clientHeight - element.scrollTop < AT_END_PX
  if (atEnd) session.chatFollows = true
  else if (element.scrollTop < session.chatTop) session.chatFollows = false
  session.chatTop = element.scrollTop
}

export function view(app, session) {
  const { talk } = session
  const all = [...talk.messages.values()]
  const shown = session.whole ? all : all.slice(-SHOWN_MESSAGES)
  const first = all.length > shown.length ? shown[0].info.id : null
  const notes = Map.groupBy ? Map.groupBy(talk.notes, (note) => note.after) : groups(talk.notes)
  if (session.partShown !== session.partMark) session.partShown = null
  requestAnimationFrame(() => app.session === session && settle(session))
  return html`<div class="chat" tabindex="0" role="region" aria-label="Conversation" @scroll=${(event) => scrolled(session, event)}>
    ${first ? html`<p class="centre"><button @click=${() => { session.whole = true; session.chatFollows = false; app.changed() }}>
      Show ${all.length - shown.length} earlier messages</button></p>` : (notes.get(null) ?? []).map(noteView)}
    ${!all.length && session.link === "live" ? html`<p class="blank">Nothing was said yet.</p>` : nothing}
    ${repeat(shown, (message) => message.info.id, (message) => html`${messageView(session, message)}
      ${(notes.get(message.info.id) ?? []).map(noteView)}`)}
    ${WORKING[session.state] ? html`<p class="working dim"><span class="dot ${session.state}"></span> ${(session.state === "retrying" && talk.retry) || WORKING[session.state]}</p>` : nothing}
  </div>`
}

function groups(notes) {
  const found = new Map()
  for (const note of notes) found.set(note.after, [...(found.get(note.after) ?? []), note])
  return found
}
