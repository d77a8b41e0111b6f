// Where it begins: the app, the page's views, and the one place that draws.

import { App } from "./app.js"
import { press } from "./keys.js"
import { render } from "./vendor/lit-html/lit-html.js"
import { page } from "./views/page.js"

const root = document.getElementById("app")
root.replaceChildren()
const app = new App(() => render(page(app), root))
addEventListener("hashchange", () => app.go())
document.addEventListener("keydown", (event) => press(app, event))
document.addEventListener("visibilitychange", () => app.poll())
app.go()
app.poll()
