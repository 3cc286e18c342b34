// @ts-check
/**
 * The raw text with every character in the colour of its strand, and the boundaries of the chunks, which can be moved.
 *
 * Places are counted in characters, as Python counts them, and not in JavaScript's units.
 */
import { fill, h } from "./dom.js";

/** @typedef {import("./apart_view.js").ParsedEvent} ParsedEvent */

/** With more boundaries than this, they are not shown: nobody could grasp one. */
export const MOST_HANDLES = 400;

export class RawText {
  /**
   * @param {HTMLElement} place
   * @param {((cuts: number[], done: boolean) => void) | null} changed called with the boundaries when one was moved; null
   * for a text that is only looked at
   */
  constructor(place, changed) {
    this.place = place;
    this.changed = changed ?? (() => {});
    /** @type {string[]} */
    this.chars = [];
    /** @type {number[]} */
    this.cuts = [];
    /** @type {ParsedEvent[]} */
    this.events = [];
    this.step = 0;
    this.fed = 0;
    this.dragged = -1;
    this.empty = "Nothing here yet: paste an output, or pick one.";
    /** The boundary that the Tab key reaches. The others are reached from it. */
    this.current = 0;
    if (changed === null) return;
    place.addEventListener("focusin", (event) => this.arrive(event));
    place.addEventListener("pointerdown", (event) => this.grasp(event));
    place.addEventListener("pointermove", (event) => this.drag(event));
    place.addEventListener("pointerup", () => this.drop());
    place.addEventListener("pointercancel", () => this.drop());
    place.addEventListener("keydown", (event) => this.key(event));
    place.addEventListener("dblclick", (event) => this.split(event));
  }

  /**
   * @param {string} text @param {number[]} cuts @param {ParsedEvent[]} events
   * @param {number} step how many steps have come @param {number} fed how many characters
   */
  show(text, cuts, events, step, fed) {
    this.chars = Array.from(text);
    Object.assign(this, { cuts, events, step, fed });
    this.draw();
  }

  draw() {
    const { chars, cuts, events, step, fed } = this;
    /** @type {Int32Array} the event that each character came by */
    const by = new Int32Array(chars.length).fill(-1);
    events.forEach((event, at) => {
      if (event.step < step && event.kind !== "Diagnostic") by.fill(at, event.start, event.end);
    });
    const handles = cuts.length <= MOST_HANDLES;
    const edges = new Set(handles ? cuts : []);
    edges.add(fed);
    const numbers = new Map((handles ? cuts : []).map((at, number) => [at, number]));
    /** @type {Node[]} */
    const shown = [];
    let start = 0;
    for (let at = 0; at <= chars.length; at += 1) {
      if (at < chars.length && (at === start || (by[at] === by[start] && !edges.has(at)))) continue;
      if (at > start) shown.push(this.segment(start, at, by[start]));
      const number = at < chars.length ? numbers.get(at) : undefined;
      if (number !== undefined) shown.push(this.handle(number));
      start = at;
    }
    const focused = document.activeElement?.getAttribute?.("data-cut");
    fill(this.place, chars.length ? shown : h("span", { class: "dim" }, this.empty));
    if (focused !== null && focused !== undefined && !this.place.contains(document.activeElement)) this.focus(Number(focused));
  }

  /** @param {number} start @param {number} end @param {number} by */
  segment(start, end, by) {
    const event = by < 0 ? null : this.events[by];
    const kind = event ? event.strand : start < this.fed ? "held" : "coming";
    const text = this.chars.slice(start, end).join("");
    const told = { held: "Held back: it may become markup", coming: "Has not come yet" }[kind];
    return h("span", { class: `seg ${kind}`, title: told, data: { event: event ? by : undefined, start } }, visible(text));
  }

  /** @param {number} number */
  handle(number) {
    const at = this.cuts[number];
    const before = this.chars.slice(Math.max(0, at - 12), at).join("");
    return h("span", {
      class: "cut",
      role: "slider",
      tabIndex: number === Math.min(this.current, this.cuts.length - 1) ? 0 : -1,
      data: { cut: number },
      aria: {
        label: `End of chunk ${number + 1}`,
        ...{ valuemin: 1, valuemax: this.chars.length - 1, valuenow: at, orientation: "horizontal" },
        valuetext: `after ${at} of ${this.chars.length} characters, behind ${JSON.stringify(before)}`,
      },
      title: "Drag it, or use the left and right keys; up and down go to the others. Delete takes it away.",
    });
  }

  /** @param {number} number */
  focus(number) {
    /** @type {HTMLElement | null} */ (this.place.querySelector(`[data-cut="${number}"]`))?.focus();
  }

  /** @param {FocusEvent} event */
  arrive(event) {
    const number = Number((event.target instanceof Element ? event.target.getAttribute("data-cut") : null) ?? -1);
    if (number < 0) return;
    this.current = number;
    for (const handle of this.place.querySelectorAll("[data-cut]")) {
      /** @type {HTMLElement} */ (handle).tabIndex = handle === event.target ? 0 : -1;
    }
  }

  /** @param {PointerEvent} event */
  grasp(event) {
    const handle = event.target instanceof Element ? event.target.closest("[data-cut]") : null;
    if (!handle) return;
    event.preventDefault();
    this.dragged = Number(handle.getAttribute("data-cut"));
    this.place.setPointerCapture(event.pointerId);
    this.place.classList.add("dragging");
  }

  /** @param {PointerEvent} event */
  drag(event) {
    if (this.dragged < 0) return;
    const to = this.placeAt(event.clientX, event.clientY);
    if (to !== null) this.move(this.dragged, to, false);
  }

  drop() {
    if (this.dragged < 0) return;
    this.place.classList.remove("dragging");
    this.focus(this.dragged);
    this.dragged = -1;
    this.changed(this.cuts, true);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const number = Number((event.target instanceof Element ? event.target.getAttribute("data-cut") : null) ?? -1);
    if (number < 0) return;
    const by = { ArrowLeft: -1, ArrowRight: 1, PageDown: -10, PageUp: 10 }[event.key];
    const other = { ArrowUp: number - 1, ArrowDown: number + 1, Home: 0, End: this.cuts.length - 1 }[event.key];
    if (by !== undefined) {
      event.preventDefault();
      this.move(number, this.cuts[number] + by, true);
    } else if (other !== undefined) {
      event.preventDefault();
      this.focus(Math.min(this.cuts.length - 1, Math.max(0, other)));
    } else if (event.key === "Delete" || event.key === "Backspace") {
      event.preventDefault();
      this.cuts = this.cuts.filter((_, at) => at !== number);
      this.draw();
      this.focus(Math.min(number, this.cuts.length - 1));
      this.changed(this.cuts, true);
    }
  }

  /** A new boundary where somebody double-clicks. @param {MouseEvent} event */
  split(event) {
    const at = this.placeAt(event.clientX, event.clientY);
    if (at === null || at <= 0 || at >= this.chars.length || this.cuts.includes(at)) return;
    getSelection()?.removeAllRanges();
    this.cuts = [...this.cuts, at].sort((one, other) => one - other);
    this.draw();
    this.focus(this.cuts.indexOf(at));
    this.changed(this.cuts, true);
  }

  /** Move a boundary, not past its neighbours. @param {number} number @param {number} to @param {boolean} done */
  move(number, to, done) {
    const low = (this.cuts[number - 1] ?? 0) + 1;
    const high = (this.cuts[number + 1] ?? this.chars.length) - 1;
    const at = Math.min(high, Math.max(low, to));
    if (at === this.cuts[number]) return;
    this.cuts = this.cuts.map((cut, each) => (each === number ? at : cut));
    this.draw();
    this.focus(number);
    this.changed(this.cuts, done);
  }

  /** The place in the text at a point of the page. @param {number} x @param {number} y @returns {number | null} */
  placeAt(x, y) {
    const page = /** @type {any} */ (document);
    const found = page.caretPositionFromPoint?.(x, y);
    const range = found ? null : page.caretRangeFromPoint?.(x, y);
    const node = /** @type {Node | null} */ (found?.offsetNode ?? range?.startContainer ?? null);
    const offset = found?.offset ?? range?.startOffset ?? 0;
    const segment = node?.parentElement?.closest?.("[data-start]");
    if (!segment || !this.place.contains(segment)) return null;
    // What is shown has a sign before each line break, which is no character of the text.
    const shown = Array.from((node?.textContent ?? "").slice(0, offset)).filter((char) => char !== LINE).length;
    return Number(segment.getAttribute("data-start")) + shown;
  }
}

const LINE = "\u23ce";

/** Line breaks with a sign, and control characters as pictures. @param {string} text */
function visible(text) {
  // eslint-disable-next-line no-control-regex
  return text.replace(/[\u0000-\u0008\u000b-\u001f]/g, (char) => String.fromCharCode(0x2400 + char.charCodeAt(0))).replaceAll("\n", `${LINE}\n`);
}
