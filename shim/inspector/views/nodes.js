// Nodes: the servers of the cluster, what each can run, its sessions, and whether it lives.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { span } from "../format.js"

const SHOWN = 5
const STATES = { busy: "running", retry: "retrying", idle: "idle" }
const LATE_MS = 6000 // two of three renewals of a lease are missing

const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`
const chips = (texts, none) => (texts.length ? texts.map((text) => html`<span class="chip">${text}</span> `) : html`<span class="dim">${none}</span>`)

function sessions(app, node) {
  const there = app.sessions.filter((info) => info.node === node.id)
  return html`${plural(node.sessions, "session")}
    <ul>${there.slice(0, SHOWN).map((info) => html`<li><span class="dot ${STATES[info.status]}" aria-hidden="true"></span>
      <a href="#/session/${encodeURIComponent(info.sessionId)}/chat">${info.title || info.sessionId}</a> <span class="dim">${STATES[info.status]}</span></li>`)}</ul>
    ${there.length > SHOWN ? html`<p class="dim">and ${there.length - SHOWN} more</p>` : nothing}`
}

function card(app, node) {
  const late = node.leaseAgeMs > LATE_MS
  const agents = node.agents.map((agent) => (agent.version ? `${agent.id} ${agent.version}` : agent.id))
  return html`<li class="card" aria-label=${node.name}>
    <h3><span class="dot ${late || node.draining || node.cordoned ? "waiting" : "running"}" aria-hidden="true"></span> ${node.name}
      <small class="dim">${[node.agents.length ? "" : "front", node.here ? "this server" : ""].filter(Boolean).join(", ")}</small></h3>
    <p class="dim">pid ${node.pid} on ${node.host}${node.url ? `, ${node.url}` : ""}</p>
    <dl class="facts-list columns">
      <dt>Lease</dt><dd>renewed ${span(node.leaseAgeMs)} ago${late ? ", late" : ""}</dd>
      <dt>Room</dt><dd>${node.cordoned ? `none: it is ${node.draining ? "drained" : "cordoned"}` : node.draining ? "none: it is about to stop" : node.agents.length ? `for ${plural(Math.max(0, node.room), "more agent")}` : "runs no agents"}</dd>
      <dt>Sessions</dt><dd>${sessions(app, node)}</dd>
      ${node.here ? nothing : html`<dt>Lag here</dt><dd>${plural(node.lagEvents, "event")}</dd>`}
      ${node.agents.length ? html`${node.labels.length ? html`<dt>Labels</dt><dd>${chips(node.labels)}</dd>` : nothing}
        <dt>Agents</dt><dd>${chips(agents)}</dd><dt>Roots</dt><dd>${chips(node.roots, "any directory")}</dd>` : nothing}
    </dl></li>`
}

export function view(app) {
  if (app.nodes === null) return html`<p class="blank">Loading …</p>`
  const { cluster, nodes } = app.nodes
  if (!cluster) return html`<p class="blank">This server is in no cluster.</p>`
  const nobodys = app.sessions.filter((info) => !info.node).length
  return html`<section class="page" aria-label="Nodes"><h2>Nodes</h2>
    <p class="dim">${plural(nodes.length, "server")} on NATS at ${cluster.servers}, prefix ${cluster.prefix}.
      ${cluster.waitingWrites ? `Writes of this server that wait for NATS: ${cluster.waitingWrites}.` : nothing}
      ${cluster.reconnects ? `It has lost and found NATS ${plural(cluster.reconnects, "time")}.` : nothing}
      ${nobodys ? `${plural(nobodys, "session")} at no server: one takes it with the next prompt.` : nothing}</p>
    ${cluster.connected ? nothing : html`<p class="notice error" role="alert">This server does not reach NATS. It refuses prompts until it does.</p>`}
    <ul class="cards">${nodes.map((node) => card(app, node))}</ul></section>`
}
