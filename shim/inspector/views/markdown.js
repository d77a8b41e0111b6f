// Markdown as elements. `marked` cuts a text into tokens; what is put into the page is made here, token by token, so that
// nothing that an agent says is ever read as HTML. Links lead to web pages only, pictures are data of known kinds.

import { html, nothing } from "../vendor/lit-html/lit-html.js"
import { lexer } from "../vendor/marked/marked.esm.js"
import { copyButton, cut, picture } from "./pieces.js"

const LONGEST = 100_000
const made = new WeakMap() // part -> its elements; a part that grows is a new value

const inner = (token) => (token.tokens ? tokens(token.tokens) : token.text)

const HEADINGS = {
  1: (content) => html`<h3>${content}</h3>`,
  2: (content) => html`<h4>${content}</h4>`,
  3: (content) => html`<h5>${content}</h5>`,
}

export function safeLink(href) {
  try {
    const url = new URL(href)
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null
  } catch {
    return null
  }
}

function link(token) {
  const href = safeLink(token.href)
  return href ? html`<a href=${href} target="_blank" rel="noopener noreferrer nofollow">${inner(token)}</a>` : html`${inner(token)} (${token.href})`
}

function list(token) {
  const items = token.items.map((item) => html`<li class=${item.task ? "task" : ""}>${
    item.task && !item.tokens.some((one) => one.type === "checkbox") ? (item.checked ? "☑ " : "☐ ") : nothing}${tokens(item.tokens)}</li>`)
  return token.ordered ? html`<ol start=${token.start || 1}>${items}</ol>` : html`<ul>${items}</ul>`
}

function table(token) {
  const cell = (name) => (one, column) => name === "th"
    ? html`<th class="a-${token.align[column] ?? "left"}">${tokens(one.tokens)}</th>`
    : html`<td class="a-${token.align[column] ?? "left"}">${tokens(one.tokens)}</td>`
  return html`<div class="scrolls" tabindex="0" role="region" aria-label="Table"><table><thead><tr>${token.header.map(cell("th"))}</tr></thead>
    <tbody>${token.rows.map((row) => html`<tr>${row.map(cell("td"))}</tr>`)}</tbody></table></div>`
}

const TOKENS = {
  space: () => nothing,
  def: () => nothing,
  heading: (token) => (HEADINGS[token.depth] ?? HEADINGS[3])(inner(token)),
  paragraph: (token) => html`<p>${inner(token)}</p>`,
  text: (token) => inner(token),
  escape: (token) => token.text,
  code: (token) => html`<div class="code">${copyButton(token.text, "Copy code")}<pre tabindex="0" aria-label=${token.lang || "code"}>${token.text}</pre></div>`,
  blockquote: (token) => html`<blockquote>${inner(token)}</blockquote>`,
  list,
  table,
  hr: () => html`<hr>`,
  html: (token) => token.raw,
  strong: (token) => html`<strong>${inner(token)}</strong>`,
  em: (token) => html`<em>${inner(token)}</em>`,
  del: (token) => html`<del>${inner(token)}</del>`,
  codespan: (token) => html`<code>${token.text}</code>`,
  checkbox: (token) => (token.checked ? "☑ " : "☐ "),
  br: () => html`<br>`,
  link,
  image: (token) => (token.href?.startsWith("data:") ? picture(token.href, token.text) : html`<span class="chip">picture: ${token.text} (${token.href})</span>`),
}

const tokens = (all) => all.map((token) => (TOKENS[token.type] ?? ((one) => one.raw))(token))

/** A text part as elements. What is too long or cannot be read is shown as it is. */
export function markdown(part) {
  let found = made.get(part)
  if (found === undefined) {
    found = elements(part.text ?? "")
    made.set(part, found)
  }
  return found
}

export function elements(text) {
  if (text.length > LONGEST) return html`<pre class="wrap" tabindex="0" aria-label="Text">${cut(text)}</pre>`
  try {
    return tokens(lexer(text))
  } catch {
    return text
  }
}
