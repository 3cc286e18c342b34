// @ts-check
/**
 * What an output becomes: the message as it grows, the events, and the chunks of three APIs.
 *
 * Nothing is folded here. Every event says which part of the message it belongs to, and what is shown is made of the
 * events that have come so far. Elements that belong to an event carry `data-event`, so that one can point at another.
 */
import { fill, h } from "./dom.js";
import { pretty } from "./pretty.js";

/**
 * @typedef {object} ParsedEvent
 * @property {string} kind
 * @property {string} strand
 * @property {number | null} part
 * @property {number} step
 * @property {number} start
 * @property {number} end
 * @property {string} [text]
 * @property {string} [fragment]
 * @property {string} [name]
 * @property {string} [id]
 * @property {number[]} [codes]
 * @property {string} [code]
 * @property {number} [seconds]
 * @property {boolean} [complete]
 * @property {string} [message]
 * @property {string} [diagnostic]
 * @property {number} [section]
 */

/** @type {Record<string, string>} */
export const STRANDS = {
  content: "Answer",
  reasoning: "Reasoning",
  call: "Tool call",
  speech: "Speech",
  audio: "Audio codes",
  tag: "Language, time",
  markup: "Markup",
};
const MOST_ROWS = 1500;

/**
 * The message so far.
 * @param {Element} place @param {ParsedEvent[]} events @param {number} step how many steps have come
 * @param {Set<string>} open which reasonings are unfolded
 */
export function showMessage(place, events, step, open) {
  /** @type {Map<number, {kind: string, at: number[]}>} */
  const parts = new Map();
  /** @type {[ParsedEvent, number][]} */
  const diagnostics = [];
  events.forEach((event, at) => {
    if (event.step >= step) return;
    if (event.kind === "Diagnostic") diagnostics.push([event, at]);
    if (event.part === null) return;
    const part = parts.get(event.part) ?? { kind: event.strand === "audio" ? "speech" : event.strand, at: [] };
    part.at.push(at);
    parts.set(event.part, part);
  });
  const shown = [...parts].map(([number, part]) => showPart(number, part.kind, part.at.map((at) => [events[at], at]), open));
  const empty = h("p", { class: "dim" }, step === 0 ? "Nothing has come yet." : "Nothing is certain yet.");
  fill(place, shown.length || diagnostics.length ? shown : empty, diagnostics.length ? showDiagnostics(diagnostics) : null);
}

/**
 * @param {number} number @param {string} kind @param {[ParsedEvent, number][]} events @param {Set<string>} open
 */
function showPart(number, kind, events, open) {
  if (kind === "call") return showCall(events);
  const text = events.map(([event, at]) => {
    if (event.kind === "SpeechAudio") {
      const codes = event.codes ?? [];
      const label = `${codes.length} audio code${codes.length === 1 ? "" : "s"}`;
      return h("span", { class: "codes", data: { event: at }, title: codes.join(" ") }, `♪ ${label}`);
    }
    const said = event.text ?? event.code ?? (event.seconds === undefined ? "" : `${event.seconds.toFixed(2)} s`);
    return h("span", { data: { event: at } }, said);
  });
  if (kind === "reasoning") {
    const length = events.reduce((sum, [event]) => sum + (event.text?.length ?? 0), 0);
    const key = String(number);
    const details = h(
      "details",
      { class: "part reasoning", ontoggle: () => (details.open ? open.add(key) : open.delete(key)) },
      h("summary", null, `Reasoning · ${length} characters`),
      h("div", { class: "said" }, text),
    );
    details.open = open.has(key);
    return details;
  }
  return h("section", { class: `part ${kind}` }, h("h2", { class: "label" }, STRANDS[kind] ?? kind), h("div", { class: "said" }, text));
}

/** @param {[ParsedEvent, number][]} events */
function showCall(events) {
  const [start, first] = events[0];
  const end = events.find(([event]) => event.kind === "ToolCallEnd");
  const status = !end ? ["comes in", "open"] : end[0].complete ? ["complete", "good"] : ["not complete", "bad"];
  const pieces = events
    .filter(([event]) => event.kind === "ToolCallArguments")
    .map(([event, at]) => /** @type {[string, number]} */ ([event.fragment ?? "", at]));
  return h(
    "section",
    { class: "part call" },
    h("h2", { class: "label" }, "Tool call ", h("code", { data: { event: first } }, start.name ?? ""), h("span", { class: `pill ${status[1]}` }, status[0])),
    h("pre", { class: "arguments", tabIndex: 0, aria: { label: `Arguments of ${start.name}` } }, pretty(pieces).map(([text, at]) => h("span", { data: { event: at } }, text))),
    h("p", { class: "dim small" }, start.id ?? ""),
  );
}

/** @param {[ParsedEvent, number][]} found */
function showDiagnostics(found) {
  const rows = found.map(([event, at]) =>
    h(
      "li",
      { data: { event: at }, tabIndex: 0 },
      h("code", null, event.diagnostic ?? ""),
      ` ${event.message} `,
      h("span", { class: "dim" }, `at ${event.start}–${event.end}`),
    ),
  );
  return h("section", { class: "part diagnostics" }, h("h2", { class: "label" }, `Diagnostics (${found.length})`), h("ul", null, rows));
}

/**
 * The events so far.
 * @param {Element} place @param {ParsedEvent[]} events @param {number} step
 */
export function showEvents(place, events, step) {
  const come = events.filter((event) => event.step < step);
  const from = Math.max(0, come.length - MOST_ROWS);
  const rows = come.slice(from).map((event, at) =>
    h(
      "li",
      { data: { event: from + at }, tabIndex: 0, class: `event ${event.strand}` },
      h("span", { class: "kind" }, event.kind),
      h("span", { class: "span dim" }, `${event.start}–${event.end}`),
      h("code", null, detail(event)),
    ),
  );
  const less = from ? h("p", { class: "dim" }, `The first ${from} events are not shown.`) : null;
  fill(place, less, come.length ? h("ol", { class: "events", start: from + 1 }, rows) : h("p", { class: "dim" }, "No event yet."));
}

/** @param {ParsedEvent} event */
function detail(event) {
  if (event.kind === "Diagnostic") return event.message ?? "";
  if (event.kind === "ToolCallStart") return `${event.name} ${event.id}`;
  if (event.kind === "ToolCallEnd") return event.complete ? "complete" : "not complete";
  if (event.codes) return event.codes.join(" ");
  return JSON.stringify(event.text ?? event.fragment ?? event.code ?? event.seconds ?? "");
}

/**
 * The chunks so far.
 * @param {Element} place @param {string[][]} steps @param {number} step
 */
export function showChunks(place, steps, step) {
  const come = steps.slice(0, step).flatMap((frames, at) => frames.map((frame) => ({ frame, at })));
  const from = Math.max(0, come.length - MOST_ROWS);
  const rows = come.slice(from).map(({ frame, at }) =>
    h("li", { data: { step: at }, class: "chunk" }, h("pre", null, frame)),
  );
  const less = from ? h("p", { class: "dim" }, `The first ${from} chunks are not shown.`) : null;
  fill(place, less, come.length ? h("ol", { class: "chunks", start: from + 1 }, rows) : h("p", { class: "dim" }, "No chunk yet."));
}

/**
 * Have what belongs to the same event light up together, by mouse and by focus.
 * @param {HTMLElement} place
 */
export function linkEvents(place) {
  /** @type {Element[]} */
  let lit = [];
  const light = (/** @type {Event} */ event) => {
    const target = event.target instanceof Element ? event.target.closest("[data-event]") : null;
    lit.forEach((element) => element.classList.remove("lit"));
    lit = target ? [...place.querySelectorAll(`[data-event="${target.getAttribute("data-event")}"]`)] : [];
    lit.forEach((element) => element.classList.add("lit"));
  };
  for (const kind of ["mouseover", "mouseleave", "focusin", "focusout"]) place.addEventListener(kind, light);
}
