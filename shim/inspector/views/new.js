// A new session: which agent, where, and how.

import { html, nothing } from "../vendor/lit-html/lit-html.js"

export function view(app) {
  if (app.agents === null) return html`<p class="blank">Loading …</p>`
  const usable = app.agents.filter((agent) => agent.installed)
  const agent = app.newAgent ?? usable[0]?.id
  if (agent) app.loadModels(agent)
  const { models = [], modes = [], defaultModel } = app.models[agent] ?? {}
  const submit = (event) => {
    event.preventDefault()
    const fields = Object.fromEntries([...new FormData(event.target)].filter(([, value]) => value !== ""))
    app.create(fields)
  }
  return html`<section class="page" aria-label="New session"><a class="back" href="#/">← Sessions</a><h2>New session</h2>
    <form class="fields" @submit=${submit}>
      <label>Agent <select name="agent" @change=${(event) => { app.newAgent = event.target.value; app.changed() }}>
        ${usable.map((one) => html`<option value=${one.id} ?selected=${one.id === agent}>${one.title ?? one.id}</option>`)}</select></label>
      <label>Model <select name="model"><option value="">${defaultModel ? `default (${defaultModel})` : "default"}</option>
        ${models.map((model) => html`<option value=${model.id}>${model.name ?? model.id}</option>`)}</select></label>
      <label>Mode <select name="agentMode"><option value="">${modes.length ? `default (${modes[0].name})` : "default"}</option>
        ${modes.map((mode) => html`<option value=${mode.id}>${mode.name}</option>`)}</select></label>
      <label>Directory <input name="directory" placeholder=${app.directory ?? ""}></label>
      <label>Title <input name="title" placeholder="from the first message"></label>
      <button class="primary" ?disabled=${!agent}>Start session</button>
      ${usable.length < app.agents.length ? html`<p class="dim"><a href="#/agents">${app.agents.length - usable.length} more agents</a> are not installed.</p>` : nothing}
    </form></section>`
}
