// The whole page: head, list of sessions, and what was chosen.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { sessionView } from "./session.js"
import { sidebar } from "./sidebar.js"

const LINKS = [["home", "Sessions", "#/"], ["agents", "Agents", "#/agents"], ["nodes", "Nodes", "#/nodes"], ["counters", "Counters", "#/counters"]]
const LAZY = ["agents", "nodes", "counters", "new"]

const links = (app) => LINKS.filter(([name]) => name !== "nodes" || app.nodes?.cluster)

const here = (route, name) => route.name === name || (name === "home" && ["session", "new"].includes(route.name))

function main(app) {
  const { name } = app.route
  if (name === "session") return sessionView(app, app.session)
  if (LAZY.includes(name)) {
    const module = app.view(name)
    return module ? module.view(app) : html`<p class="blank">Loading …</p>`
  }
  return html`<div class="blank">
    <p>${app.list.waiting ? `Waiting for you: ${app.list.waiting}. The list begins with what waits.` : app.list.all === 0 ? "No sessions yet." : "Choose a session: its conversation, and each event of its agent."}</p>
    <p><a class="button primary" href="#/new">New session</a></p>
  </div>`
}

export function page(app) {
  const lost = app.reached !== null && app.reached !== true
  const skip = (event) => {
    event.preventDefault()
    document.getElementById("main").focus()
  }
  return html`
    <a class="skip button" href="#main" @click=${skip}>Skip to the content</a>
    <header class="top">
      <h1><a href="#/">Inspector</a> <small>opencode-shim</small></h1>
      <nav aria-label="Pages">
        ${links(app).map(([name, title, href]) => html`<a href=${href} aria-current=${here(app.route, name) ? "page" : "false"}>${title}</a>`)}
      </nav>
    </header>
    ${lost ? html`<p class="notice error" role="alert">The server is not reached: ${app.reached}</p>` : nothing}
    ${app.notice ? html`<p class="notice error" role="alert">${app.notice}
      <button class="small" @click=${() => { app.notice = null; app.changed() }}>Dismiss</button></p>` : nothing}
    <div class="body at-${app.route.name}">
      ${["home", "session", "new"].includes(app.route.name) ? sidebar(app) : nothing}
      <main id="main" tabindex="-1">${main(app)}</main>
    </div>`
}
