// What waits for a person: permissions and questions, with their answers.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { repeat } from "../vendor/lit-html/directives/repeat.js"
import { diffView, jsonText, near } from "./pieces.js"

function permission(session, { id, data }) {
  const meta = data.metadata ?? {}
  const about = meta.title ?? meta.description ?? meta.tool
  const reply = (kind) => () => {
    const why = session.replies[id]
    session.permit(id, kind, kind === "reject" ? why : undefined)
  }
  return html`<section class="ask" aria-label="Permission">
    <h3>Permission: ${data.action}</h3>
    ${about && about !== data.action ? html`<p>${meta.diff ? near(session, about) : about}</p>` : nothing}
    ${meta.diff ? diffView(session, meta.diff) : meta.input ? html`<pre tabindex="0" aria-label="Input">${jsonText(meta.input)}</pre>` : nothing}
    <div class="row-of-buttons">
      <button class="primary" data-reply="once" @click=${reply("once")}>Allow once</button>
      <button @click=${reply("always")}>Always</button>
      <button class="danger" data-reply="reject" @click=${reply("reject")}>Reject</button>
      <input aria-label="Why not (told to the agent)" placeholder="why not (optional)" .value=${session.replies[id] ?? ""}
        @input=${(event) => { session.replies[id] = event.target.value }}>
    </div>
  </section>`
}

function oneQuestion(session, id, question, number) {
  const chosen = session.replies[id][number]
  const choose = (label, on) => {
    if (!question.multiple) chosen.labels.clear()
    if (on) chosen.labels.add(label)
    else chosen.labels.delete(label)
    session.app.changed()
  }
  return html`<fieldset>
    <legend>${question.question}</legend>
    ${question.options.map(({ label, description }) => html`<label>
      <input type=${question.multiple ? "checkbox" : "radio"} name="${id}-${number}" .checked=${chosen.labels.has(label)}
        @change=${(event) => choose(label, event.target.checked)}>
      <span>${label} <span class="dim">${description}</span></span></label>`)}
    ${question.custom !== false ? html`<input class="wide" aria-label="Your own answer: ${question.question}" placeholder="or your own answer"
      .value=${chosen.text} @input=${(event) => { chosen.text = event.target.value }}>` : nothing}
  </fieldset>`
}

function question(session, { id, data }) {
  const questions = data.questions.length
    ? data.questions
    : [{ question: data.prompt, options: data.options.map((label) => ({ label, description: "" })), multiple: false, custom: true }]
  session.replies[id] ??= questions.map(() => ({ labels: new Set(), text: "" }))
  const answers = () => session.replies[id].map(({ labels, text }) => [...labels, ...(text.trim() ? [text.trim()] : [])])
  return html`<section class="ask" aria-label="Question">
    <h3>Question</h3>
    ${questions.map((one, number) => oneQuestion(session, id, one, number))}
    <div class="row-of-buttons">
      <button class="primary" @click=${() => session.answer(id, answers())}>Answer</button>
      <button @click=${() => session.refuse(id)}>Do not answer</button>
    </div>
  </section>`
}

export function asksView(session) {
  const { waiting } = session
  if (!waiting.length) return nothing
  for (const { id } of waiting) session.shownSince(id)
  return html`<div class="asks" tabindex="0" role="region" aria-label="Waits for you">
    ${repeat(waiting, (ask) => ask.id, (ask) => (ask.kind === "permission" ? permission(session, ask) : question(session, ask)))}
  </div>`
}
