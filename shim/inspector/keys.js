// The page's keys. They act where no text is written, and a reply to the agent only what a person has had time to read.

const READ_MS = 800

const writes = (element) => element?.closest("input, textarea, select, [contenteditable]")

/** A key replies by pressing the button that is on the screen, once it has been there for READ_MS. */
function reply(app, kind) {
  const button = document.querySelector(`.asks [data-reply="${kind}"]`)
  const ask = app.session?.waiting[0]
  if (button && ask && performance.now() - app.session.shownSince(ask.id) >= READ_MS) button.click()
}

const KEYS = {
  j: (app) => app.moveCursor(1),
  k: (app) => app.moveCursor(-1),
  "/": () => document.querySelector(".sessions input[type=search], .filters input[type=search]")?.focus(),
  a: (app) => reply(app, "once"),
  r: (app) => reply(app, "reject"),
}

export const KEYS_TEXT = "j k move · Enter open · / search · a allow once · r reject"

export function press(app, event) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.repeat && "ar".includes(event.key)) return
  if (!Object.hasOwn(KEYS, event.key) || writes(event.target)) return
  event.preventDefault()
  KEYS[event.key](app)
}
