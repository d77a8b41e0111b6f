// The state and actions of the page. Views read and call it. Every change calls `changed()`, which draws once per frame.

import { call } from "./api.js"
import { List } from "./list.js"
import { Session } from "./session.js"

const POLL_MS = 2000
const CROWD_MS = 120
const COUNTERS_KEPT = 90
const TYPING_MS = 150
const TITLE = "Inspector · opencode-shim"
const TABS = ["chat", "events"]

export class App {
  constructor(draw) {
    this.draw = draw
    this.drawing = false
    this.route = { name: "home" }
    this.list = new List()
    this.sessions = [] // all of them, for the page of nodes alone
    this.directory = null // the server's
    this.reached = null // null: no answer yet; true, or the text of the error
    this.agents = null
    this.holders = []
    this.models = {} // agent -> {models, defaultModel} | {error}
    this.nodes = null // null: no answer yet; {cluster, nodes}, without a cluster if the server is in none
    this.counters = []
    this.session = null
    this.modules = {} // views that are loaded at their first use
    this.polling = null
    this.soon = null
    this.typing = null
    this.notice = null
  }

  changed() {
    if (this.drawing) return
    this.drawing = true
    requestAnimationFrame(() => {
      this.drawing = false
      document.title = this.list.waiting ? `(${this.list.waiting}) ${TITLE}` : TITLE // here, so that it never says less than the page
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
    if (name === "new") this.loadDirectory()
    if (wanted && !this.list.info(wanted)) this.refreshList()
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
      const [, counters, nodes, all] = await Promise.all([
        this.list.refresh(this.session?.id),
        name === "counters" ? call("GET", "inspector/api/counters") : null,
        name === "nodes" || this.nodes === null ? call("GET", "v1/x-nodes") : null,
        name === "nodes" ? call("GET", "v1/sessions") : null,
      ])
      this.listed()
      this.reached = true
      if (nodes) this.nodes = nodes
      this.sessions = all?.sessions ?? []
      if (counters) this.counters = [...this.counters.slice(1 - COUNTERS_KEPT), counters]
      if (this.route.name === "agents" && this.agents?.some((agent) => agent.install?.state === "running")) await this.loadAgents()
    } catch (error) {
      this.reached = error.message
    }
    this.changed()
  }

  // --- the list ---

  info(id) {
    return this.list.info(id)
  }

  listed() {
    this.session?.expect()
  }

  refreshList() {
    return this.act(async () => {
      await this.list.refresh(this.session?.id)
      this.listed()
    })
  }

  /** The window over the list has moved: what it lacks is asked for. */
  listMoved() {
    if (this.list.lacks) this.refreshList()
    else this.changed()
  }

  search(text) {
    this.list.find(text)
    document.querySelector(".sessions .window")?.scrollTo({ top: 0 })
    clearTimeout(this.typing)
    this.typing = setTimeout(() => this.refreshList(), TYPING_MS)
    this.changed()
  }

  /** Moves the keyboard's focus in the list. */
  moveCursor(steps) {
    const top = this.list.move(steps)
    if (top !== null) document.querySelector(".sessions .window")?.scrollTo({ top })
    this.listMoved()
    const focus = () => document.querySelector(`.sessions [data-position="${this.list.cursor}"]`)?.focus()
    requestAnimationFrame(() => requestAnimationFrame(focus))
  }

  // --- actions ---

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
      const none = { holders: [] } // who is no admin is refused
      const [agents, held] = await Promise.all([call("GET", "v1/agents"), call("GET", "v1/x-holders").catch(() => none)])
      this.agents = agents.agents
      this.holders = held.holders
    })
  }

  async loadDirectory() {
    if (this.directory === null) await this.act(async () => { this.directory = (await call("GET", "path")).directory })
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
