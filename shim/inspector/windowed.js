// The geometry of a virtual list, which renders only visible rows. Rows have a fixed height, except opened ones. Pure.

export class Heights {
  constructor(row) {
    this.row = row
    this.opened = new Map() // position -> height
  }

  /** Where a position begins, in pixels. */
  top(position) {
    let top = position * this.row
    for (const [at, height] of this.opened) if (at < position) top += height - this.row
    return top
  }

  of(position) {
    return this.opened.get(position) ?? this.row
  }

  /** The first position that reaches below a pixel. */
  find(pixel, count) {
    let low = 0
    let high = count
    while (low < high) {
      const middle = (low + high) >> 1
      if (this.top(middle + 1) <= pixel) low = middle + 1
      else high = middle
    }
    return low
  }

  /** [first, after the last): what is seen of `count` rows, and `more` on both sides. */
  seen(scroll, height, count, more = 8) {
    const first = this.find(scroll, count)
    const last = this.find(scroll + height, count)
    return [Math.max(0, first - more), Math.min(count, last + 1 + more)]
  }
}
