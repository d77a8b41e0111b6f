// Agents: what is installed, what each can do, and installing.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { copyButton } from "./pieces.js"

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
  return html`${state === "failed" ? html`<p class="notice error">${agent.install.error}</p>` : nothing}
    <button class="small" @click=${() => app.install(agent.id)}>Install with npm</button>`
}

/** The command that installs an agent, as its hint has it between backticks. */
const command = (hint) => /`([^`]+)`/.exec(hint ?? "")?.[1]

function absent(app, agent) {
  const line = command(agent.installHint)
  return html`<li><h4>${agent.title ?? agent.id} <small class="dim">${agent.id}</small></h4>
    ${line ? html`<p class="row-of-buttons"><code>${line}</code> ${copyButton(line, `Copy the command for ${agent.id}`)}</p>`
      : html`<p class="dim">${agent.installHint ?? agent.trouble}</p>`}
    ${installing(app, agent)}</li>`
}

/** What holds the agent to permission rules: its protocol, the kernel, or nothing. */
function rules(agent) {
  if (!agent.rules) return nothing
  const { by, missing, kernel, kernelBy } = agent.rules
  const open = Object.entries(missing)
  return html`<details><summary>Permission rules</summary><dl class="facts-list">
    <dt>Held by</dt><dd>${by}</dd>
    ${kernel.length ? html`<dt>Denies held by the kernel (${kernelBy})</dt><dd>${kernel.join(", ")}</dd>` : nothing}
    ${open.map(([key, why]) => html`<dt>Not held: ${key === "*" ? "every key" : key}</dt><dd>${why}</dd>`)}
    ${agent.sandbox ? html`<dt>Sandbox</dt><dd>${agent.sandbox}</dd>` : nothing}</dl></details>`
}

const card = (app, agent) => html`<li class="card" aria-label=${agent.title ?? agent.id}>
  <h3><span class="dot running" aria-hidden="true"></span> ${agent.title ?? agent.id}
    <small class="dim">${agent.id}${agent.version ? ` ${agent.version}` : ""}</small></h3>
  <p class="dim">${agent.path ?? "built in"}${agent.credentialsAvailable ? " · credentials are there" : ""}</p>
  ${agent.trouble ? html`<p class="notice">${agent.trouble}</p>` : nothing}
  ${agent.install?.state === "running" ? installing(app, agent) : nothing} ${capabilities(agent.capabilities)} ${rules(agent)} ${models(app, agent)}
</li>`

const holder = (held) => html`<li><code>${held.id}</code>
  ${held.session ? html`<a href="#/session/${held.session}/chat">${held.session}</a>` : held.terminal ? `terminal ${held.terminal}` : "nobody takes it up"}
  · ${held.isAlive ? held.pids.length ? `pid ${held.pids.join(", ")}` : "its program has ended" : "killed: the next start of the server removes it"}</li>`

export function view(app) {
  if (app.agents === null) return html`<p class="blank">Loading …</p>`
  const missing = app.agents.filter((agent) => !agent.installed)
  return html`<section class="page" aria-label="Agents"><h2>Agents</h2>
    <ul class="cards">${app.agents.filter((agent) => agent.installed).map((agent) => card(app, agent))}</ul>
    ${missing.length ? html`<section class="card absent" aria-label="Not installed"><h3>Not installed</h3>
      <ul>${missing.map((agent) => absent(app, agent))}</ul></section>` : nothing}
    ${app.holders.length ? html`<section class="card" aria-label="Holders"><h3>What outlives the server</h3>
      <ul>${app.holders.map(holder)}</ul></section>` : nothing}</section>`
}
