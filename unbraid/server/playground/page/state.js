// @ts-check
/**
 * What the page shows, in the link: everything is in the part after `#`, compressed, and goes to no server.
 */
import { later } from "./dom.js";

/**
 * @typedef {object} ApartState
 * @property {string} format
 * @property {string} template
 * @property {string} text
 * @property {string} tools JSON as it was typed
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
 * @property {any[]} messages
 *
 * @typedef {object} State
 * @property {string} view
 * @property {ApartState} apart
 * @property {ConstrainState} constrain
 * @property {ChatState} chat
 * @property {{language: string}} transcribe
 * @property {{family: string, show: string}} compare
 */

/** @returns {State} */
function fresh() {
  return {
    view: "apart",
    apart: {
      ...{ format: "qwen3", template: "", text: "", tools: "", prompt: null, emit: false, separate: true, ended: true },
      ...{ mode: "tokens", cuts: [], step: null, panel: "message" },
    },
    constrain: {
      ...{ format: "qwen3", template: "", tools: "", choice: "required", parallel: true, reasoning: "", answer: "" },
      ...{ syntax: "gbnf", typed: "" },
    },
    chat: { model: "", system: "", tools: "", choice: "auto", temperature: "", most: "", messages: [] },
    transcribe: { language: "" },
    compare: { family: "", show: "differ" },
  };
}

export const state = fresh();
let written = "";
/** A link longer than this is a burden to whoever gets it: then the conversation is left out. */
const MOST_LINK = 60_000;

/** Take what the link says. Returns whether it said anything. */
export async function read() {
  const held = new URLSearchParams(location.hash.slice(1)).get("s");
  if (!held || held === written) return false;
  try {
    const found = JSON.parse(await unpacked(held));
    const base = /** @type {any} */ (fresh());
    for (const [name, value] of Object.entries(base)) {
      const given = found[name];
      if (typeof value === "string") base[name] = typeof given === "string" ? given : value;
      else if (given && typeof given === "object") base[name] = { ...value, ...given };
    }
    Object.assign(state, base);
    written = held;
    return true;
  } catch {
    return false; // no link of ours, or a damaged one
  }
}

/** Put what is shown into the link, a moment later. */
export const write = later(async () => {
  let held = await packed(JSON.stringify(state));
  if (held.length > MOST_LINK) held = await packed(JSON.stringify({ ...state, chat: { ...state.chat, messages: [] } }));
  written = held;
  history.replaceState(null, "", `#s=${held}`);
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
