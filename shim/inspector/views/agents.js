// Agents: what is installed, what each can do, and installing.

import { html, nothing } from "../vendor/lit-html/lit-html.js"

const WORDS = {
  planMode: "plan mode", permissions: "permissions", questions: "questions", images: "images", fileAttachments: "files",
  reasoning: "reasoning", commandExecution: "commands run", fileChanges: "file changes", mcpTools: "MCP tools",
  streamingDeltas: "streamed text", interrupt: "interrupt", resume: "resume", subagents: "subagents", todos: "todo lists",
  usage: "usage", commands: "slash commands",
}

function capabilities(can) {
  return html`<ul class="can">${Object.entries(WORDS).map(([key, words]) => html`
    <li class=${can[key] ? "yes" : "no"}><span aria-hidden="true">${can[key] ? "✓" : "–"}</span> ${words}${can[key] ? nothing : html`<span class="hidden"> (not)</span>`}</li>`)}</ul>`
}

function models(app, agent) {
  const known = app.models[agent.id]
  if (!agent.installed) return nothing
  if (!known) return html`<button class="small" @click=${() => app.loadModels(agent.id)}>Models and modes</button>`
  if (known.error) return html`<p class="notice error">${known.error}</p>`
  if (!known.models) return html`<p class="dim">asking …</p>`
  return html`<dl class="facts-list">
    <dt>Models</dt><dd>${known.models.map((model) => html`<span class="chip">${model.id}${model.id === known.defaultModel ? " (default)" : ""}</span> `)}</dd>
    <dt>Modes</dt><dd>${known.modes.map((mode) => html`<span class="chip" title=${mode.description}>${mode.id}</span> `)}</dd></dl>`
}

function installing(app, agent) {
  const state = agent.install?.state ?? "none"
  if (state === "running") return html`<p>Installing ${agent.install.packages.join(", ")} …</p>
    <pre class="log" tabindex="0" aria-label="Progress">${agent.install.log.slice(-6).join("\n")}</pre>`
  if (agent.installed) return nothing
  return html`${state === "failed" ? html`<p class="notice error">${agent.install.error}</p>` : nothing}
    <p class="dim">${agent.trouble ?? agent.installHint}</p>
    <button class="small" @click=${() => app.install(agent.id)}>Install with npm</button>`
}

const card = (app, agent) => html`<li class="card" aria-label=${agent.title ?? agent.id}>
  <h3><span class="dot ${agent.installed ? "running" : "ended"}" aria-hidden="true"></span> ${agent.title ?? agent.id}
    <small class="dim">${agent.id}${agent.version ? ` ${agent.version}` : ""}</small></h3>
  <p class="dim">${agent.installed ? (agent.path ?? "built in") : "not installed"} ·
    ${agent.credentialsAvailable ? "credentials are there" : "no credentials seen"}</p>
  ${agent.installed && agent.trouble ? html`<p class="notice">${agent.trouble}</p>` : nothing}
  ${installing(app, agent)} ${capabilities(agent.capabilities)} ${models(app, agent)}
</li>`

export function view(app) {
  if (app.agents === null) return html`<p class="blank">Loading …</p>`
  const sorted = [...app.agents].sort((a, b) => Number(b.installed) - Number(a.installed))
  return html`<section class="page" aria-label="Agents"><h2>Agents</h2><ul class="cards">${sorted.map((agent) => card(app, agent))}</ul></section>`
}
