// A tool call as a card: what was called, how it went, what came out; diffs and lists of tasks as such.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { span } from "../format.js"
import { copyButton, cut, diffView, jsonText, near, picture } from "./pieces.js"

const MARKS = { pending: "…", running: "…", completed: "✓", error: "✗" }
const TODO = { completed: "☑", in_progress: "◐", cancelled: "☒" }
const OUTPUT_SHOWN = 20_000
const ABOUT = ["description", "command", "filePath", "pattern", "url", "query", "prompt"]

const about = (input) => ABOUT.map((key) => input[key]).find((value) => typeof value === "string" && value) ?? ""

const pre = (text, label) => (text ? html`<div class="code">${copyButton(text)}<pre class="wrap" tabindex="0" aria-label=${label}>${cut(text, OUTPUT_SHOWN)}</pre></div>` : nothing)

function diffs({ metadata = {} }) {
  if (typeof metadata.diff === "string" && metadata.diff) return [metadata.diff]
  return Array.isArray(metadata.files) ? metadata.files.map((file) => file.diff ?? file.patch).filter((diff) => typeof diff === "string" && diff) : []
}

const answers = (questions, given) => html`<dl class="answers">${questions.map((one, at) => html`<dt>${one.question}</dt>
  <dd>${given?.[at]?.join(", ") || "…"}</dd>`)}</dl>`

/** What a pending edit is about to change, in the form of a diff; "" for any other call. */
function pendingEdit({ patchText, oldString, newString }) {
  if (typeof patchText === "string") return patchText.replace(/^\*\*\* (Begin|End) Patch\n?/gm, "")
  if (typeof oldString !== "string" || typeof newString !== "string") return ""
  const marked = (text, mark) => (text ? text.split("\n").map((line) => mark + line) : [])
  return ["@@", ...marked(oldString, "-"), ...marked(newString, "+")].join("\n")
}

function body(session, tool, state) {
  const input = state.input ?? {}
  const output = typeof state.output === "string" ? state.output : state.metadata?.output
  const changes = diffs(state)
  const waits = (what) => MARKS[state.status] === "…" && session.waiting.some(what)
  if (changes.length) return changes.map((diff) => diffView(session, diff))
  const edit = pendingEdit(input)
  if (edit && waits(({ data }) => data.metadata?.diff)) return nothing // it stands in the question
  if (edit) return html`${diffView(session, edit)}${pre(output, "Output")}`
  if (tool === "todowrite" && Array.isArray(input.todos))
    return html`<ul class="todos">${input.todos.map((todo) => html`<li class=${todo.status}>${TODO[todo.status] ?? "☐"} ${todo.content}</li>`)}</ul>`
  if (tool === "question" && waits(({ kind }) => kind === "question")) return nothing // it is asked below
  if (tool === "question" && Array.isArray(input.questions)) return answers(input.questions, state.metadata?.answers)
  if (tool === "bash") return pre(`$ ${input.command ?? ""}\n${output ?? ""}`, "Command and output")
  if (tool === "write" && typeof input.content === "string") return pre(input.content, "Content")
  return html`${Object.keys(input).length ? pre(jsonText(input), "Input") : nothing}${pre(output, "Output")}`
}

export function toolCard(session, { tool, state, callID }) {
  const { status, input = {}, metadata = {}, time } = state
  const title = state.title || about(input) || (typeof input.path === "string" ? input.path : "")
  const child = metadata.sessionId ?? metadata.sessionID
  const unfolded = status === "running" || status === "error" || tool === "todowrite" || diffs(state).length > 0 || (state.attachments ?? []).length > 0
  const lasted = time?.end ? span(time.end - time.start) : ""
  return html`<details class="tool ${status}" ?open=${unfolded} data-call=${callID}>
    <summary><b>${tool}</b> <span class="title">${tool === "bash" ? title : near(session, title)}</span>
      <span class="mark-of" title=${status}>${MARKS[status] ?? status} ${lasted}</span></summary>
    ${body(session, tool, state)}
    ${status === "error" ? html`<p class="notice error">${cut(state.error, OUTPUT_SHOWN)}</p>` : nothing}
    ${(state.attachments ?? []).map((file) => picture(file.url, file.filename))}
    ${child ? html`<p><a href="#/session/${encodeURIComponent(child)}/${session.app.route.tab}">The subagent's session</a></p>` : nothing}
  </details>`
}
