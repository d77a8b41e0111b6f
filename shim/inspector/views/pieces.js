// Small pieces of several views: JSON, diffs, copying, long texts.

import { html, nothing, svg } from "../vendor/lit-html/lit-html.js"

const COLOURED = 20_000
const SHOWN = 200_000
const TOKENS = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g

const SHAPES = {
  aim: svg`<circle cx="8" cy="8" r="4.2"></circle><path d="M8 1.2v3.2M8 11.6v3.2M1.2 8h3.2M11.6 8h3.2"></path>`,
  plus: svg`<path d="M8 2.5v11M2.5 8h11"></path>`,
}

/** A small drawing: fonts do not have all signs everywhere. */
export const icon = (name) => html`<svg class="icon" viewBox="0 0 16 16" aria-hidden="true">${SHAPES[name]}</svg>`

export const jsonText = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2) ?? "")

/** A long text is cut, and says so. */
export function cut(text, limit = SHOWN) {
  const whole = String(text ?? "")
  return whole.length <= limit ? whole : `${whole.slice(0, limit)}\n… ${whole.length - limit} more characters`
}

/** JSON with colours, as pieces of text. */
export function json(value) {
  const text = cut(JSON.stringify(value, null, 2))
  if (text.length > COLOURED) return text
  const out = []
  let at = 0
  for (const found of text.matchAll(TOKENS)) {
    const kind = found[1] ? (found[2] ? "key" : "string") : "literal"
    out.push(text.slice(at, found.index), html`<span class=${kind}>${found[1] ?? found[0]}</span>`, found[2] ?? "")
    at = found.index + found[0].length
  }
  return [...out, text.slice(at)]
}

/** The clipboard; pages that are not served securely have none, so they select and copy. */
export async function copy(text) {
  if (navigator.clipboard) return navigator.clipboard.writeText(text)
  const area = document.createElement("textarea")
  area.value = text
  document.body.append(area)
  area.select()
  document.execCommand("copy")
  area.remove()
}

export function copyButton(text, what = "Copy") {
  const done = async (event) => {
    const button = event.currentTarget
    await copy(typeof text === "function" ? text() : text)
    button.classList.add("done")
    setTimeout(() => button.classList.remove("done"), 1200)
  }
  return html`<button class="small copy" @click=${done} aria-label=${what}>Copy</button>`
}

const DIFF = { "+": "add", "-": "del", "@": "hunk" }

/** A text whose paths are those of the session's directory. */
export const near = (session, text) => {
  const directory = session.app.info(session.id)?.directory
  return directory ? text.replaceAll(`${directory}/`, "") : text
}

/** A diff; its heads name the files as the session's directory has them. */
export function diffView(session, diff) {
  let inHunk = false
  const lines = cut(diff, 40_000).split("\n")
  if (lines.at(-1) === "") lines.pop()
  return html`<pre class="diff" tabindex="0" aria-label="Diff">${lines.map((line) => {
    if (!inHunk && /^(Index:|=====|diff |index )/.test(line)) return nothing
    inHunk ||= line.startsWith("@@")
    const kind = inHunk ? (DIFF[line[0]] ?? "same") : "file"
    return html`<span class=${kind}>${(kind === "file" ? near(session, line) : line) || " "}</span>`
  })}</pre>`
}

export const DATA_IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/

export function picture(url, name) {
  return DATA_IMAGE.test(url ?? "") ? html`<img src=${url} alt=${name || "picture"}>` : html`<span class="chip">file: ${name || "file"}</span>`
}
