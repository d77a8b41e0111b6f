// Builds the conversation from the OpenCode events of rows, as OpenCode's clients do. Open requests come from the universal events,
// and the row's `open` tells which of them still wait.

export class Talk {
  constructor() {
    this.messages = new Map() // id -> {info, parts: Map(id -> part)}
    this.notes = [] // {after: message id | null, kind: "error" | "ended", text}
    this.asks = new Map() // id -> {kind: "permission" | "question", data}
    this.open = []
    this.info = null
    this.retry = "" // why the model is asked again, and when
    this.ended = false
    this.version = 0
  }

  feed({ event, opencode, open }) {
    for (const one of opencode) this.fold(one.type, one.properties)
    const data = event.data
    switch (event.type) {
      case "permission.requested":
        this.asks.set(data.permission_id, { kind: "permission", data })
        break
      case "question.requested":
        this.asks.set(data.question_id, { kind: "question", data })
        break
      case "permission.resolved":
        this.asks.delete(data.permission_id)
        break
      case "question.resolved":
        this.asks.delete(data.question_id)
        break
      case "session.started":
        this.ended = false
        break
      case "session.ended":
        this.ended = data.terminated_by === "daemon"
        this.note("ended", endText(data))
        break
      case "error":
        if (!opencode.length) this.note("error", data.message)
        break
    }
    this.open = open
    this.version += 1
  }

  get waiting() {
    return this.open.filter((id) => this.asks.has(id)).map((id) => ({ id, ...this.asks.get(id) }))
  }

  get lastMessage() {
    let last = null
    for (const message of this.messages.values()) last = message
    return last
  }

  note(kind, text) {
    this.notes.push({ after: this.lastMessage?.info.id ?? null, kind, text })
  }

  message(id) {
    let found = this.messages.get(id)
    if (!found) {
      found = { info: { id, role: "assistant", time: {} }, parts: new Map() }
      this.messages.set(id, found)
    }
    return found
  }

  fold(type, properties) {
    switch (type) {
      case "session.created":
      case "session.updated":
        this.info = properties.info
        break
      case "session.status":
        this.retry = properties.status.type === "retry" ? properties.status.message : ""
        break
      case "message.updated":
        this.message(properties.info.id).info = properties.info
        break
      case "message.removed":
        this.messages.delete(properties.messageID)
        break
      case "message.part.updated":
        this.message(properties.part.messageID).parts.set(properties.part.id, properties.part)
        break
      case "message.part.delta":
        this.grow(properties)
        break
      case "message.part.removed":
        this.messages.get(properties.messageID)?.parts.delete(properties.partID)
        break
      case "session.error":
        this.failed(properties.error)
        break
    }
  }

  grow({ messageID, partID, field, delta }) {
    const parts = this.message(messageID).parts
    const part = parts.get(partID)
    if (part) parts.set(partID, { ...part, [field]: (part[field] ?? "") + delta })
  }

  failed(error) {
    const text = error?.data?.message ?? error?.name ?? "It failed."
    const last = this.lastMessage
    if (!last?.info.error) this.note("error", text)
  }
}

/** How an agent's process came to its end, in a line. */
function endText({ reason, terminated_by, message, exit_code }) {
  if (terminated_by === "daemon") return "The session was terminated. It can be read, and takes no more messages."
  const code = exit_code === null || exit_code === undefined ? "" : ` (exit code ${exit_code})`
  return `The agent's process ended: ${message || reason}${code}`
}
