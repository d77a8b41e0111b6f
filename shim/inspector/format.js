// Times, sizes and events in a line. Pure.

const two = (value) => String(value).padStart(2, "0")

export function clock(ms) {
  const at = new Date(ms)
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`
}

/** "3 ms", "1.2 s", "4 min", "2.5 h", "3 d". */
export function span(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`
  if (ms < 3_600_000) return `${Math.round(ms / 60_000)} min`
  return ms < 86_400_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${Math.round(ms / 86_400_000)} d`
}

export const ago = (ms, now) => (now - ms < 1500 ? "now" : `${span(now - ms)} ago`)

export function bytes(count) {
  if (count === null || count === undefined) return "not known"
  return count < 2 ** 20 ? `${(count / 1024).toFixed(0)} KiB` : `${(count / 2 ** 20).toFixed(0)} MiB`
}

const LINE = 160
export const line = (text) => {
  const flat = String(text ?? "").slice(0, LINE * 4).replace(/\s+/g, " ").trim()
  return flat.length > LINE ? flat.slice(0, LINE) + " …" : flat
}

/** What a native payload is about: its kind in the agent's own words. */
export function nativeLine(raw) {
  if (raw === null || raw === undefined) return ""
  if (typeof raw !== "object") return line(raw)
  const inner = raw.event ?? raw.params?.update ?? raw.request ?? raw.message ?? {}
  const kind = raw.method ?? raw.type ?? raw.kind ?? raw.t ?? (raw.result !== undefined ? "result" : null)
  const sub = inner.type ?? inner.sessionUpdate ?? inner.subtype ?? inner.role ?? raw.subtype
  const rest = kind ? "" : line(JSON.stringify(raw))
  return [kind, typeof sub === "string" ? sub : null, rest].filter(Boolean).join(" · ")
}

/** What a universal event says, without its type. */
export function universalLine({ type, data }) {
  if (type === "item.delta") return `${data.part_type} ${JSON.stringify(line(data.delta))}`
  if (data.item) return itemLine(data.item)
  if (type.startsWith("permission")) return `${data.status} ${data.action}`
  if (type.startsWith("question")) return `${data.status} ${line(data.prompt)}`
  if (type === "turn.ended") return line(data.metadata?.reason)
  if (type === "turn.started") return line(data.metadata?.origin)
  if (type === "session.ended") return `${data.reason}, by ${data.terminated_by}`
  return line(data.message ?? data.error ?? data.metadata?.agent ?? "")
}

function itemLine(item) {
  const part = item.content.find((one) => one.text || one.name || one.output || one.label || one.path)
  const says = part ? (part.name ?? part.label ?? part.text ?? part.output ?? part.path) : ""
  return line([item.role ?? item.kind, says].filter(Boolean).join(" · "))
}

/** What an OpenCode event says, without its type. */
export function opencodeLine({ type, properties }) {
  const part = properties.part
  if (part) return line([part.type, part.tool, part.state?.status, part.text || part.state?.title].filter(Boolean).join(" · "))
  if (type === "message.part.delta") return JSON.stringify(line(properties.delta))
  if (type === "session.status") return line(properties.status?.type)
  const info = properties.info
  return line(info?.role ?? info?.title ?? properties.error?.data?.message ?? properties.permission ?? "")
}
