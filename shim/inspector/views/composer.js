// Where a person writes: a text, and pictures.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { icon } from "./pieces.js"
import { live } from "../vendor/lit-html/directives/live.js"

async function addImages(session, files) {
  for (const file of files) {
    const url = await new Promise((done, failed) => {
      const reader = new FileReader()
      reader.onload = () => done(reader.result)
      reader.onerror = () => failed(reader.error)
      reader.readAsDataURL(file)
    })
    session.images.push({ url, name: file.name, mime: file.type })
  }
  session.app.changed()
}

export function composer(session) {
  const send = (event) => {
    event?.preventDefault()
    session.send()
  }
  const key = (event) => event.key === "Enter" && !event.shiftKey && !event.isComposing && send(event)
  return html`<form class="composer" @submit=${send}>
    ${session.images.map((image, at) => html`<span class="chip">${image.name}
      <button type="button" class="bare" aria-label="Remove ${image.name}"
        @click=${() => { session.images.splice(at, 1); session.app.changed() }}>×</button></span>`)}
    <div class="line">
      <label class="button attach" title="Attach pictures">${icon("plus")}
        <input type="file" accept="image/*" multiple aria-label="Attach pictures"
          @change=${(event) => { addImages(session, [...event.target.files]); event.target.value = "" }}></label>
      <textarea rows="1" aria-label="Message" placeholder=${!session.busy ? "Message (Enter sends)" : "Message (sent when this turn ends)"}
        .value=${live(session.draft)} @keydown=${key} @input=${(event) => { session.draft = event.target.value }}></textarea>
      <button class="primary">Send</button>
      ${session.busy ? html`<button type="button" class="abort" @click=${() => session.abort()}>Abort</button>` : nothing}
    </div>
  </form>`
}
