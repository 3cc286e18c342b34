// @ts-check
/** What a part of an output is, in words: on hover and on focus, and as a quick reference to the format. */
import { ask, Trouble } from "./api.js";
import { STRANDS } from "./apart_view.js";
import { fill, h } from "./dom.js";

/** @typedef {import("./apart_view.js").ParsedEvent} ParsedEvent */

/** @type {Record<string, string>} */
const MEANINGS = {
  Content: "Part of the answer: clients get it as content.",
  Reasoning: "Part of the reasoning: clients get it apart from the answer, as reasoning_content.",
  SpeechText: "The text of what is spoken.",
  SpeechAudio: "Audio codes: a vocoder makes sound of them.",
  ToolCallStart: "A tool call begins here. Its name is certain, and clients are told.",
  ToolCallArguments: "Arguments of the tool call, passed on as JSON.",
  ToolCallEnd: "The tool call ends here.",
  Language: "The language of a transcript.",
  Timestamp: "A time in a transcript.",
  Markup: "Markup: it says what comes before and after it, and no client gets it.",
};
/** @type {Record<string, string>} */
const WAITING = {
  held: "Held back: it may become markup, so no client has got it yet.",
  coming: "It has not come yet.",
};

/** @type {Promise<Map<string, string>> | null} */
let diagnostics = null;

/**
 * Say what the part below the mouse or the focus is.
 * @param {HTMLElement} within where the parts are @param {HTMLElement} place where it is said
 * @param {() => {events: ParsedEvent[], ends: number[]} | null} parsed
 * @param {(at: number) => number | null} token the id of the token at a place
 */
export function explainIn(within, place, parsed, token) {
  const nothing = "Point at a part of the output, of the message or of the events: here stands what it is.";
  fill(place, h("p", { class: "dim" }, nothing));
  const say = (/** @type {Event} */ moved) => {
    const target = moved.target instanceof Element ? moved.target.closest("[data-event], .seg.held, .seg.coming") : null;
    if (!target || target.closest(".legend, .reference")) return;
    const number = target.getAttribute("data-event");
    const event = number === null ? null : parsed()?.events[Number(number)];
    if (event) void describe(place, event, parsed()?.ends ?? [], token(event.start));
    else fill(place, h("p", null, WAITING[target.classList.contains("held") ? "held" : "coming"]));
  };
  for (const kind of ["mouseover", "focusin"]) within.addEventListener(kind, say);
}

/** @param {HTMLElement} place @param {ParsedEvent} event @param {number[]} ends @param {number | null} id */
async function describe(place, event, ends, id) {
  const last = ends.length - 1;
  const when = event.step >= last ? "by the end of the output" : `by chunk ${event.step + 1} of ${last}`;
  const meaning = event.diagnostic ? (await kinds()).get(event.diagnostic) : MEANINGS[event.kind];
  const where = event.end > event.start ? `Characters ${event.start + 1} to ${event.end}` : `After character ${event.start}`;
  fill(
    place,
    h("p", null, h("span", { class: `seg ${event.strand}` }, STRANDS[event.strand] ?? "Diagnostic"), " ", h("code", null, event.diagnostic ?? event.kind), ` ${meaning ?? ""}`),
    event.message ? h("p", null, event.message) : null,
    h("p", { class: "dim small" }, `${where}, ${when}${id === null ? "" : `; begins with token ${id}`}.`),
  );
}

/** The kinds of diagnostics, with what they mean. */
function kinds() {
  diagnostics ??= ask("reference", { format: "qwen3" }).then((found) => new Map(found.diagnostics));
  return diagnostics;
}

/**
 * The quick reference: how the format writes each strand, and what diagnostics mean. It is asked for when it is opened.
 * @param {() => {format: string, template: string}} chosen
 */
export function quickReference(chosen) {
  const place = h("div", { class: "stack reference" });
  const look = h("details", { class: "options", ontoggle: () => look.open && void load() }, h("summary", null, "Quick reference"), place);

  async function load() {
    try {
      const { format, template } = chosen();
      const found = await ask("reference", { format, template });
      fill(
        place,
        h("h2", { class: "label" }, `How ${found.format} writes it`),
        h("pre", { class: "written", tabIndex: 0, aria: { label: "An example of the format" } }, found.pieces.map((/** @type {[string, string]} */ [strand, text]) => h("span", { class: `seg ${strand}`, title: STRANDS[strand] }, text))),
        h("h2", { class: "label" }, "What becomes of it"),
        terms(Object.entries(MEANINGS)),
        h("h2", { class: "label" }, "Diagnostics"),
        terms(found.diagnostics),
      );
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      fill(place, h("p", { class: "bad" }, error.message));
    }
  }
  return { look, changed: () => (look.open ? load() : undefined) };
}

/** @param {[string, string][]} rows */
function terms(rows) {
  return h("dl", { class: "terms" }, rows.flatMap(([term, meaning]) => [h("dt", null, h("code", null, term)), h("dd", null, meaning)]));
}
