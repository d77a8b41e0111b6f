// The page of a shared session: its texts become elements, as in the chat. Without this script they are Markdown as written.

import { render } from "./vendor/lit-html/lit-html.js"
import { elements } from "./views/markdown.js"

for (const place of document.querySelectorAll(".prose")) {
  const text = place.textContent
  place.replaceChildren()
  place.classList.add("drawn")
  render(elements(text), place)
}
