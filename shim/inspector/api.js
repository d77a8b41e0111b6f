// Calls the server's JSON API, and reads the stream of a session's rows. URLs are relative to the page, so that a base path or a
// proxy changes nothing. The browser handles cookies and passwords.

const ROOT = new URL("..", globalThis.document?.baseURI ?? "http://127.0.0.1/inspector/")
ROOT.username = ROOT.password = "" // `fetch` refuses URLs with credentials; the browser sends them itself
const FIRST_WAIT_MS = 500
const LONGEST_WAIT_MS = 10_000

/** The server refused a call. `message` is its text, written for people. */
export class Refused extends Error {
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

export const address = (path) => new URL(path, ROOT).href

/** The text of a refusal: from problem details, from OpenCode's errors, or the status. */
async function reason(answer) {
  const text = await answer.text()
  try {
    const body = JSON.parse(text)
    return body.detail ?? body.data?.message ?? body.message ?? body.title ?? text
  } catch {
    return text.slice(0, 300) || `${answer.status} ${answer.statusText}`
  }
}

/** Calls the server with JSON, and returns its JSON, or null without content. Throws Refused, or TypeError without a connection. */
export async function call(method, path, body) {
  const answer = await fetch(address(path), {
    method,
    headers: body === undefined ? {} : { "Content-Type": "application/json" },
    body: body === undefined ? undefined : JSON.stringify(body),
  })
  if (!answer.ok) throw new Refused(answer.status, await reason(answer))
  return answer.status === 204 ? null : answer.json()
}

/** Returns a function that takes pieces of a stream's text, and returns the `data:` of the events that are complete. */
export function cutter() {
  let kept = ""
  return (piece) => {
    const text = kept + piece
    const out = []
    let at = 0
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n", at)) {
      const data = text.startsWith("data: ", at) ? at : text.indexOf("\ndata: ", at) + 1
      if (data >= at && data < end && text.startsWith("data: ", data)) out.push(text.slice(data + 6, end))
      at = end + 2
    }
    kept = text.slice(at)
    return out
  }
}

/**
 * Reads the rows of a session after `position()`, then live rows until `signal` aborts. It reconnects a lost stream.
 * `onRows` gets a batch of JSON texts; `onState` gets "live", "lost" or "gone" (with a text).
 */
export async function follow(session, { position, onRows, onState, signal }) {
  let wait = FIRST_WAIT_MS
  while (!signal.aborted) {
    try {
      const path = `inspector/api/sessions/${encodeURIComponent(session)}/trace/sse?after=${position()}`
      const answer = await fetch(address(path), { signal, headers: { Accept: "text/event-stream" } })
      if (answer.status === 404) return onState("gone", await reason(answer))
      if (!answer.ok) throw new Refused(answer.status, await reason(answer))
      onState("live")
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader()
      const cut = cutter()
      for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
        wait = FIRST_WAIT_MS
        const rows = cut(piece.value)
        if (rows.length) onRows(rows)
      }
    } catch (error) {
      if (signal.aborted) return
      onState("lost", error.message)
    }
    await new Promise((done) => setTimeout(done, wait))
    wait = Math.min(wait * 2, LONGEST_WAIT_MS)
  }
}
