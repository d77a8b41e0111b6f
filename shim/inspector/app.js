// The state and actions of the page. Views read and call it. Every change calls `changed()`, which draws once per frame.

import { call } from "./api.js"
import { Session } from "./session.js"

const POLL_MS = 2000
const CROWD_MS = 120
const COUNTERS_KEPT = 90
const TABS = ["chat", "events"]

export class App {
  constructor(draw) {
    this.draw = draw
    this.drawing = false
    this.route = { name: "home" }
    this.sessions = []
    this.wanted = "" // filter of the list
    this.reached = null // null: no answer yet; true, or the text of the error
    this.agents = null
    this.models = {} // agent -> {models, defaultModel} | {error}
    this.nodes = null // null: no answer yet; {cluster, nodes}, without a cluster if the server is in none
    this.counters = []
    this.session = null
    this.modules = {} // views that are loaded at their first use
    this.polling = null
    this.soon = null
    this.notice = null
  }

  changed() {
    if (this.drawing) return
    this.drawing = true
    requestAnimationFrame(() => {
      this.drawing = false
      this.draw()
    })
  }

  /** Draws a few times a second, for frequent changes. */
  changedSoon() {
    this.soon ??= setTimeout(() => {
      this.soon = null
      this.changed()
    }, CROWD_MS)
  }

  /** Reads the route from the URL: #/session/ID/chat|events, #/agents, #/nodes, #/counters, #/new. */
  go() {
    const [name = "", id = "", tab = "chat"] = location.hash.replace(/^#\/?/, "").split("/")
    this.route = { name: name || "home", id: decodeURIComponent(id), tab: TABS.includes(tab) ? tab : "chat" }
    const wanted = this.route.name === "session" ? this.route.id : null
    if (this.session?.id !== wanted) {
      this.session?.close()
      this.session = wanted ? new Session(wanted, this) : null
    }
    if (name === "agents" || name === "new") this.loadAgents()
    if (name === "counters" || name === "nodes") this.tick()
    this.changed()
  }

  open(id, tab = "chat") {
    location.hash = `#/session/${encodeURIComponent(id)}/${tab}`
  }

  /** Returns a lazily loaded view; null until it is loaded. */
  view(name) {
    if (this.modules[name] === undefined) {
      this.modules[name] = null
      import(`./views/${name}.js`).then((module) => {
        this.modules[name] = module
        this.changed()
      })
    }
    return this.modules[name]
  }

  /** Polls the server while the page is visible. */
  async poll() {
    clearTimeout(this.polling)
    if (document.hidden) return
    await this.tick()
    clearTimeout(this.polling)
    this.polling = setTimeout(() => this.poll(), POLL_MS)
  }

  async tick() {
    try {
      const { name } = this.route
      const [{ sessions }, counters, nodes] = await Promise.all([
        call("GET", "v1/sessions"),
        name === "counters" ? call("GET", "inspector/api/counters") : null,
        name === "nodes" || this.nodes === null ? call("GET", "v1/x-nodes") : null,
      ])
      this.sessions = sessions
      this.session?.expect()
      this.reached = true
      if (nodes) this.nodes = nodes
      if (counters) this.counters = [...this.counters.slice(1 - COUNTERS_KEPT), counters]
      if (this.route.name === "agents" && this.agents?.some((agent) => agent.install?.state === "running")) await this.loadAgents()
    } catch (error) {
      this.reached = error.message
    }
    this.changed()
  }

  info(id) {
    return this.sessions.find((one) => one.sessionId === id || one.openCodeSessionId === id)
  }

  /** Runs a user's action, and shows its error. Returns whether it succeeded. */
  async act(doing) {
    try {
      await doing()
      this.notice = null
      return true
    } catch (error) {
      this.notice = error.message
      return false
    } finally {
      this.changed()
    }
  }

  async loadAgents() {
    await this.act(async () => {
      this.agents = (await call("GET", "v1/agents")).agents
    })
  }

  async loadModels(agent) {
    if (this.models[agent]) return
    this.models[agent] = {}
    try {
      const [{ models, defaultModel }, { modes }] = await Promise.all([
        call("GET", `v1/agents/${agent}/models`), call("GET", `v1/agents/${agent}/modes`),
      ])
      this.models[agent] = { models, defaultModel, modes }
    } catch (error) {
      this.models[agent] = { error: error.message }
    }
    this.changed()
  }

  install(agent) {
    const doing = this.act(() => call("POST", `v1/agents/${agent}/install`, {})).then(() => this.loadAgents())
    setTimeout(() => this.loadAgents(), POLL_MS / 4) // shows the progress
    return doing
  }

  async create(fields) {
    const id = `i-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`
    if (await this.act(() => call("POST", `v1/sessions/${id}`, fields))) this.open(id)
  }
}
