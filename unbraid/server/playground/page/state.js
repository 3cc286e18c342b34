// @ts-check
/**
 * What the page shows, in the link: everything is in the part after `#`, compressed, and goes to no server. The same is
 * kept in the browser, for whoever comes back without the link.
 */
import { later } from "./dom.js";

/**
 * @typedef {object} ApartState
 * @property {string} format
 * @property {string} template
 * @property {string} text
 * @property {string} tools JSON as it was typed
 * @property {boolean} chosen whether somebody chose the format
 * @property {boolean} sample whether the text is a sample, as it is
 * @property {boolean} sampleTools whether the tools are a sample's
 * @property {string | null} prompt
 * @property {boolean} emit
 * @property {boolean} separate
 * @property {boolean} ended whether the model ended its turn
 * @property {string} mode how the text is cut
 * @property {number[]} cuts
 * @property {number | null} step how many chunks have come; null for all, and the end
 * @property {string} panel
 *
 * @typedef {object} ConstrainState
 * @property {string} format
 * @property {string} template
 * @property {string} tools
 * @property {string} choice
 * @property {boolean} parallel
 * @property {string} reasoning
 * @property {string} answer the response_format
 * @property {string} syntax
 * @property {string} typed
 *
 * @typedef {object} ChatState
 * @property {string} model
 * @property {string} system
 * @property {string} tools
 * @property {string} choice
 * @property {string} temperature
 * @property {string} most
 * @property {string} id of the conversation
 * @property {any[]} messages
 * @property {string} draft what is typed and not sent
 * @property {boolean} settings whether the settings are open
 * @property {boolean} list whether the list of conversations is open
 *
 * @typedef {object} State
 * @property {string} view
 * @property {ApartState} apart
 * @property {ConstrainState} constrain
 * @property {ChatState} chat
 * @property {{model: string, instructions: string}} talk
 * @property {{language: string}} transcribe
 * @property {{family: string, show: string}} compare
 */

/** @returns {State} */
function fresh() {
  return {
    view: "apart",
    apart: {
      ...{ format: "qwen3", template: "", text: "", tools: "", prompt: null, emit: false, separate: true, ended: true },
      ...{ chosen: false, sample: false, sampleTools: false, mode: "tokens", cuts: [], step: null, panel: "message" },
    },
    constrain: {
      ...{ format: "qwen3", template: "", tools: "", choice: "required", parallel: true, reasoning: "", answer: "" },
      ...{ syntax: "gbnf", typed: "" },
    },
    chat: { model: "", system: "", tools: "", choice: "auto", temperature: "", most: "", id: "", messages: [], draft: "", settings: false, list: false },
    talk: { model: "", instructions: "" },
    transcribe: { language: "" },
    compare: { family: "", show: "differ" },
  };
}

export const state = fresh();
let written = "";
/** A link longer than this is a burden to whoever gets it: then the conversation is left out. */
const MOST_LINK = 60_000;
const KEPT = "unbraid-state";
/** What was typed here before somebody's link was opened. */
const BEFORE = "unbraid-before";

/** Take what the link says or, without one, what was typed here last. Returns whether there was anything. */
export async function read() {
  const held = new URLSearchParams(location.hash.slice(1)).get("s") ?? "";
  if (held && held === written) return false;
  const kept = keptState();
  try {
    if (kept && (held ? kept.held === held : !written)) take(kept.state); // it has more than the link
    else if (held) {
      take(JSON.parse(await unpacked(held)));
      const { apart, chat } = kept?.state ?? {};
      if ((apart?.text && !apart.sample) || chat?.messages?.length) localStorage.setItem(BEFORE, JSON.stringify(kept));
    } else return false;
    written = held;
    return true;
  } catch {
    return false; // no link of ours, or a damaged one
  }
}

/** Whether something was typed here before a link was opened. */
export const hasBefore = () => localStorage.getItem(BEFORE) !== null;

/** Show it again. */
export function takeBefore() {
  take(JSON.parse(localStorage.getItem(BEFORE) ?? "{}").state ?? {});
  localStorage.removeItem(BEFORE);
}

/** @param {any} from */
function take(from) {
  const base = /** @type {any} */ (fresh());
  for (const [name, value] of Object.entries(base)) {
    const other = from[name];
    if (typeof value === "string") base[name] = typeof other === "string" ? other : value;
    else if (other && typeof other === "object") base[name] = { ...value, ...other };
  }
  Object.assign(state, base);
}

/** What this browser keeps of the page. @returns {{held: string, state: any} | null} */
function keptState() {
  try {
    return JSON.parse(localStorage.getItem(KEPT) ?? "null");
  } catch {
    return null;
  }
}

function keep() {
  for (const chat of [state.chat, { ...state.chat, messages: [] }]) {
    try {
      localStorage.setItem(KEPT, JSON.stringify({ held: written, state: { ...state, chat } }));
      return;
    } catch {
      // a browser keeps a few megabytes: then all but the conversation
    }
  }
}
window.addEventListener("pagehide", keep);

/** A link to what is shown now. */
export async function link() {
  let held = await packed(JSON.stringify(state));
  if (held.length > MOST_LINK) held = await packed(JSON.stringify({ ...state, chat: { ...state.chat, messages: [] } }));
  return new URL(`#s=${held}`, location.href).href;
}

/** Have an output taken apart in its view. @param {Partial<ApartState>} output */
export function takeApart(output) {
  Object.assign(state.apart, fresh().apart, { chosen: true }, output);
  document.getElementById("view-apart")?.click();
}

/** Put what is shown into the link, a moment later, and keep it in this browser. */
export const write = later(async () => {
  const url = await link();
  written = url.slice(url.indexOf("#s=") + 3);
  history.replaceState({ view: state.view }, "", url);
  keep();
}, 250);

/** @param {string} text */
async function packed(text) {
  const bytes = await through(new Blob([text]), new CompressionStream("deflate-raw"));
  let letters = "";
  for (let at = 0; at < bytes.length; at += 8192) letters += String.fromCharCode(...bytes.subarray(at, at + 8192));
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** @param {string} held */
async function unpacked(held) {
  const letters = atob(held.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  return new TextDecoder().decode(await through(new Blob([bytes]), new DecompressionStream("deflate-raw")));
}

/** @param {Blob} blob @param {CompressionStream | DecompressionStream} stream */
async function through(blob, stream) {
  return new Uint8Array(await new Response(blob.stream().pipeThrough(stream)).arrayBuffer());
}
