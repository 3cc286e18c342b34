// @ts-check
/** One turn of a conversation, which can grow while it is shown: what one has opened in it stays open. */
import { answerForm, resultSchema, showCall } from "./chat_calls.js";
import { rawTurn } from "./chat_raw.js";
import { fill, h } from "./dom.js";

/** @typedef {import("./chat_calls.js").Call} Call */
/** @typedef {import("./chat_raw.js").Facts} Facts */
/**
 * @typedef {object} Message
 * @property {string} role
 * @property {string | null} content
 * @property {import("./chat_files.js").Attached[]} [files]
 * @property {string} [reasoning_content]
 * @property {Call[]} [tool_calls]
 * @property {string} [tool_call_id]
 */
/**
 * @typedef {object} Live what a turn asks of the conversation
 * @property {string} name of who speaks
 * @property {Facts | undefined} facts
 * @property {any[]} tools
 * @property {() => boolean} busy
 * @property {(call: Call) => boolean} open whether a call waits for its result
 * @property {(call: Call, text: string) => void} answer
 * @property {(kind: "curl" | "python", body: any) => void} copied
 */

/** @param {Message} message @param {Live} live @returns {{element: HTMLElement, update: () => void}} */
export function turn(message, live) {
  return message.role === "assistant" ? assistant(message, live) : { element: other(message, live.name), update: () => {} };
}

/** @param {Message} message @param {string} name */
function other(message, name) {
  const files = (message.files ?? []).map((file) => h("details", { class: "file" }, h("summary", null, file.name), h("pre", { tabIndex: 0 }, file.text)));
  return h("article", { class: `turn ${message.role}` }, h("header", null, h("h2", { class: "label" }, name)), files, h("div", { class: "said" }, message.content));
}

/** @param {Message} message @param {Live} live */
function assistant(message, live) {
  const pill = h("span", { class: "pill" });
  const length = h("summary");
  const thought = h("div", { class: "said" });
  const reasoning = h("details", { class: "part reasoning", hidden: true }, length, thought);
  const said = h("div", { class: "said" });
  const calls = h("div");
  const raw = live.facts ? rawTurn(live.facts) : null;
  const footer = h("footer", { class: "row wrap" });
  const element = h("article", { class: "turn assistant" }, h("header", null, h("h2", { class: "label" }, live.name), pill), h("div", { class: "reply" }, reasoning, said, calls), raw?.element, footer);
  let drawn = "";
  let touched = false;
  length.addEventListener("click", () => (touched = true));

  function update() {
    const busy = live.busy();
    element.setAttribute("aria-busy", String(busy));
    pill.className = `pill ${busy ? "open" : ""}`;
    pill.textContent = busy ? "writes" : (live.facts?.end ?? "");
    const text = message.reasoning_content ?? "";
    reasoning.hidden = !text;
    length.textContent = `Reasoning · ${text.length} characters`;
    thought.textContent = text;
    if (!touched) reasoning.open = busy && !message.content && !message.tool_calls;
    said.textContent = message.content ?? "";
    const open = (message.tool_calls ?? []).filter((call) => !busy && live.open(call));
    const now = JSON.stringify([message.tool_calls, open.map((call) => call.id)]);
    if (now !== drawn) {
      drawn = now;
      fill(calls, (message.tool_calls ?? []).flatMap((call) => [showCall(call), open.includes(call) ? answerForm(call, resultSchema(live.tools, call.function.name), (result) => live.answer(call, result)) : null]));
    }
    void raw?.refresh();
    if (busy || !live.facts || footer.hasChildNodes()) return;
    const { body } = live.facts;
    fill(
      footer,
      h("button", { type: "button", class: "plain", onclick: () => live.copied("curl", body) }, "This turn as curl"),
      h("button", { type: "button", class: "plain", onclick: () => live.copied("python", body) }, "This turn as Python"),
    );
  }
  update();
  return { element, update };
}
