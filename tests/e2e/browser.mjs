// A browser that Python drives: one JSON command a line on stdin, one JSON answer a line on stdout.
//   node browser.mjs MODULES CHROMIUM USER_DATA_DIR
// Each command is {"do": NAME, ...}; each answer {"ok": value} or {"error": text}. Playwright's own waiting is used throughout.
import { readFile } from "node:fs/promises"
import { createInterface } from "node:readline"
import { createRequire } from "node:module"

const [modules, chromium, profile] = process.argv.slice(2)
const { chromium: launcher } = createRequire(modules + "/")("playwright-core")
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--enable-precise-memory-info", "--font-render-hinting=none", "--force-color-profile=srgb",
]
const context = await launcher.launchPersistentContext(profile, {
  executablePath: chromium, headless: true, args: FLAGS, viewport: { width: 1280, height: 900 },
  colorScheme: "dark", locale: "en-GB", timezoneId: "UTC", reducedMotion: "reduce",
})
const page = context.pages()[0] ?? (await context.newPage())
const notes = []
page.on("pageerror", (error) => notes.push({ kind: "pageerror", text: String(error) }))
page.on("console", (message) => message.type() === "error" && notes.push({ kind: "console", text: message.text() }))
page.on("response", (response) => {
  if (response.status() >= 400) notes.push({ kind: "http", text: `${response.request().method()} ${response.url()} ${response.status()}` })
})

const held = []

// The text that a person sees in the elements of a selector, a line for each block. Rolling digits and shimmering words keep
// hidden copies of themselves in the page, so their labels are taken; shadow roots (the diff viewer) are looked into.
const readTurns = (selector) => {
  const labelled = '[data-component="animated-number"], [data-component="text-shimmer"], [data-component="tool-status-title"]'
  const inactive = '[data-slot="tool-count-summary-item"][data-active="false"], [data-slot="tool-count-summary-prefix"][data-active="false"], [data-slot="tool-count-summary-empty"][data-active="false"]'
  const read = (node) => {
    if (node.nodeType === Node.TEXT_NODE) return node.textContent
    if (node.nodeType !== Node.ELEMENT_NODE && !(node instanceof ShadowRoot)) return ""
    if (node instanceof Element) {
      const style = getComputedStyle(node)
      if (style.display === "none" || style.visibility === "hidden" || node.matches(inactive + ", style, script")) return ""
      if (node.matches(labelled) && node.getAttribute("aria-label")) return node.getAttribute("aria-label")
    }
    const inner = [...(node.shadowRoot ? [node.shadowRoot] : []), ...node.childNodes].map(read).join("")
    return node instanceof Element && !getComputedStyle(node).display.startsWith("inline") ? "\n" + inner + "\n" : inner
  }
  return [...document.querySelectorAll(selector)].map(read)
}

// What axe finds wrong with the page as it is: a line for each rule, with the first elements.
const axe = async () => {
  if (!(await page.evaluate(() => "axe" in globalThis))) await page.evaluate(await readFile(modules + "/axe-core/axe.min.js", "utf8"))
  const { violations } = await page.evaluate(() => globalThis.axe.run())
  return violations.map((rule) => `${rule.id} (${rule.impact}): ${rule.nodes.slice(0, 3).map((node) => node.html.slice(0, 200)).join(" | ")}`)
}

const COMMANDS = {
  axe,
  // requests to a URL wait until `release`
  hold: ({ url }) => page.route(url, (route) => void held.push(route)).then(() => null),
  release: async ({ url }) => {
    for (const route of held.splice(0)) await route.continue()
    await page.unroute(url)
  },
  look: async ({ width, height, scheme }) => {
    if (width) await page.setViewportSize({ width, height })
    if (scheme) await page.emulateMedia({ colorScheme: scheme })
  },
  fill: ({ selector, text }) => page.locator(selector).first().fill(text, { timeout: 10000 }).then(() => null),
  accept: () => void page.once("dialog", (dialog) => dialog.accept()),
  turns: ({ selector }) => page.evaluate(readTurns, selector),
  goto: ({ url }) => page.goto(url, { waitUntil: "domcontentloaded" }).then(() => null),
  reload: () => page.reload({ waitUntil: "domcontentloaded" }).then(() => null),
  url: () => page.url(),
  storage: ({ entries }) => context.addInitScript((all) => {
    for (const [key, value] of Object.entries(all)) if (localStorage.getItem(key) === null) localStorage.setItem(key, value)
  }, entries).then(() => null),
  text: ({ selector = "body" }) => page.locator(selector).first().innerText({ timeout: 10000 }),
  texts: ({ selector }) => page.locator(selector).allInnerTexts(),
  html: ({ selector }) => page.locator(selector).first().innerHTML({ timeout: 10000 }),
  count: ({ selector }) => page.locator(selector).count(),
  wait: ({ selector, state = "visible", timeout = 20000 }) => page.locator(selector).first().waitFor({ state, timeout }).then(() => null),
  waitText: ({ pattern, timeout = 20000 }) =>
    page.waitForFunction((p) => new RegExp(p).test(document.body.innerText), pattern, { timeout, polling: 100 }).then(() => null),
  click: ({ selector, timeout = 10000 }) => page.locator(selector).first().click({ timeout }).then(() => null),
  type: ({ selector, text }) => page.locator(selector).first().pressSequentially(text, { timeout: 10000 }).then(() => null),
  press: ({ key }) => page.keyboard.press(key).then(() => null),
  // until no finite animation runs any more: what was opened stands still
  rest: () => page.evaluate(async () => {
    const finite = () => document.getAnimations().filter((a) => a.playState === "running" && Number.isFinite(a.effect?.getComputedTiming().endTime))
    for (let quiet = 0, tries = 0; quiet < 5 && tries < 60; tries++) {
      await new Promise((done) => setTimeout(done, 50))
      quiet = finite().length ? 0 : quiet + 1
    }
  }).then(() => null),
  eval: ({ script }) => page.evaluate(script),
  screenshot: ({ path, selector }) => (selector ? page.locator(selector).first() : page).screenshot({ path, animations: "disabled", caret: "hide" }).then(() => null),
  notes: () => notes.splice(0),
  // the server does not have this path: 404 for each request of the page that it matches
  refuse: ({ glob }) => context.route(glob, (route) => route.fulfill({ status: 404, contentType: "application/json", body: "{}" })).then(() => null),
  close: () => context.close().then(() => null),
}

for await (const line of createInterface({ input: process.stdin })) {
  const { do: name, ...args } = JSON.parse(line)
  let answer
  try {
    answer = { ok: (await COMMANDS[name](args)) ?? null }
  } catch (error) {
    answer = { error: String(error) }
  }
  process.stdout.write(JSON.stringify(answer) + "\n")
  if (name === "close") break
}
