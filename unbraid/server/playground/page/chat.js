// @ts-check
/** Chat: talk to a served model with tools. Calls are answered by hand. */
import { ask, config, events, models, request, Trouble } from "./api.js";
import { asCurl, asPython } from "./chat_copy.js";
import { area, copy, field, fill, h, say, select } from "./dom.js";
import { sampleTools } from "./chooser.js";
import { pretty } from "./pretty.js";
import { state, write } from "./state.js";

/**
 * @typedef {object} Call
 * @property {string} id
 * @property {string} type
 * @property {{name: string, arguments: string}} function
 *
 * @typedef {object} Message
 * @property {string} role
 * @property {string | null} content
 * @property {string} [reasoning_content]
 * @property {Call[]} [tool_calls]
 * @property {string} [tool_call_id]
 */

/** What is known of a turn beside its message, by its number: nothing of it is in the link. */
/** @type {Map<Message, {ids: number[] | null, body: any, end: string | null}>} */
const known = new Map();

/** @param {HTMLElement} place */
export async function show(place) {
  const my = state.chat;
  const chatting = models.filter((one) => one.chats);
  if (!config.server || !chatting.length) {
    const why = config.server ? "This server has no model that chats. Start it with one:" : "This page has no server behind it. To chat, start one, and open the address that it says:";
    const how = config.server ? "unbraid serve --model smollm2-135m-instruct" : "pip install 'unbraid[server]'\nunbraid serve";
    fill(place, h("h1", { class: "sr" }, "Chat"), h("div", { class: "card stack" }, h("h2", null, "Chat needs a server"), h("p", null, why), h("pre", null, how)));
    return;
  }
  if (!chatting.some((one) => one.name === my.model)) my.model = chatting[0].name;
  /** @type {AbortController | null} */
  let running = null;

  const list = h("div", { class: "messages", role: "log", aria: { label: "Conversation" } });
  const say_ = area("", () => {}, { rows: 3, placeholder: "Ask something. Enter sends, Shift and Enter begins a line." });
  say_.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  const stop = h("button", { type: "button", onclick: () => running?.abort(), disabled: true }, "Stop");
  const sender = h("button", { type: "button", class: "primary", onclick: () => send() }, "Send");
  const tools = area(my.tools, (value) => keep({ tools: value }), { rows: 8 });
  const settings = h(
    "section",
    { class: "column", aria: { label: "Settings" } },
    field("Model", select(chatting.map((one) => [one.name, `${one.name} (${one.format})`]), my.model, (value) => keep({ model: value }))),
    field("System prompt", area(my.system, (value) => keep({ system: value }), { rows: 3 })),
    field("Tools, as JSON", tools, "You answer the calls by hand."),
    h("div", { class: "row" }, h("button", { type: "button", onclick: async () => keep({ tools: (tools.value = await sampleTools()) }) }, "Use two sample tools")),
    h(
      "div",
      { class: "two" },
      field("tool_choice", select([["auto", "auto"], ["required", "required"], ["none", "none"]], my.choice, (value) => keep({ choice: value }))),
      field("Most tokens", number(my.most, "512", (value) => keep({ most: value }))),
      field("Temperature", number(my.temperature, "the model's", (value) => keep({ temperature: value }))),
    ),
    h("div", { class: "row wrap" },
      h("button", { type: "button", onclick: () => copied("curl") }, "Copy as curl"),
      h("button", { type: "button", onclick: () => copied("python") }, "Copy as Python"),
      h("button", { type: "button", onclick: clear }, "New conversation"),
    ),
  );

  /** @param {Partial<typeof my>} change */
  function keep(change) {
    Object.assign(my, change);
    write();
  }

  /** @param {"curl" | "python"} kind @param {any} [body] */
  function copied(kind, body) {
    try {
      const request_ = body ?? requestOf(my.messages);
      return copy(kind === "curl" ? asCurl(request_) : asPython(request_), kind === "curl" ? "The command" : "The program");
    } catch (error) {
      say(`Tools are not JSON: ${error}`);
    }
  }

  function clear() {
    running?.abort();
    keep({ messages: [] });
    render();
  }

  /** The body of a request for the next turn. @param {Message[]} messages */
  function requestOf(messages) {
    const system = my.system.trim() ? [{ role: "system", content: my.system }] : [];
    const said = messages.map(({ reasoning_content: _, ...message }) => message);
    /** @type {Record<string, any>} */
    const body = { model: my.model, messages: [...system, ...said], max_tokens: Number(my.most) || 512 };
    const given = my.tools.trim() ? JSON.parse(my.tools) : [];
    if (given.length) Object.assign(body, { tools: given, tool_choice: my.choice });
    if (my.temperature !== "") body.temperature = Number(my.temperature);
    return body;
  }

  function send() {
    const text = say_.value.trim();
    my.tools = tools.value;
    if (!text || running || unanswered().length) return;
    say_.value = "";
    my.messages.push({ role: "user", content: text });
    void turn();
  }

  /** The calls of the last turn that have no answer yet. */
  function unanswered() {
    const at = my.messages.findLastIndex((/** @type {Message} */ one) => one.role === "assistant");
    const calls = my.messages[at]?.tool_calls ?? [];
    const answered = new Set(my.messages.slice(at + 1).map((/** @type {Message} */ one) => one.tool_call_id));
    return calls.filter((/** @type {Call} */ call) => !answered.has(call.id));
  }

  async function turn() {
    const before = [...my.messages];
    /** @type {any} */
    let body;
    try {
      body = requestOf(before);
    } catch (error) {
      say(`Tools are not JSON: ${error}`);
      my.messages.pop();
      return;
    }
    running = new AbortController();
    stop.disabled = false;
    /** @type {Message} */
    const message = { role: "assistant", content: "" };
    my.messages.push(message);
    /** @type {{ids: number[] | null, body: any, end: string | null}} */
    const facts = { ids: [], body, end: null };
    known.set(message, facts);
    render();
    try {
      await stream(body, message, facts, running.signal);
      say("");
    } catch (error) {
      if (running.signal.aborted) facts.end = "stopped";
      else if (error instanceof Trouble) {
        say(error.message);
        if (!message.content && !message.tool_calls) my.messages.pop();
      } else throw error;
    } finally {
      running = null;
      stop.disabled = true;
      write();
      render();
    }
  }

  /** @param {any} body @param {Message} message @param {{ids: number[] | null, end: string | null}} facts @param {AbortSignal} signal */
  async function stream(body, message, facts, signal) {
    const ids = models.find((one) => one.name === my.model)?.tokens ?? false;
    if (!ids) facts.ids = null;
    const sent = { ...body, stream: true, ...(ids ? { return_token_ids: true } : {}) };
    const headers = { "Content-Type": "application/json" };
    /** @type {Response} */
    let reply;
    try {
      reply = await request("v1/chat/completions", { method: "POST", headers, body: JSON.stringify(sent), signal });
    } catch (error) {
      if (!(error instanceof Trouble) || !ids || !error.message.includes("return_token_ids")) throw error;
      facts.ids = null; // this engine gives text alone
      delete sent.return_token_ids;
      reply = await request("v1/chat/completions", { method: "POST", headers, body: JSON.stringify(sent), signal });
    }
    for await (const chunk of events(reply)) {
      if (chunk.error) throw new Trouble(chunk.error.message);
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      take(message, choice.delta);
      if (facts.ids && choice.token_ids) facts.ids.push(...choice.token_ids);
      facts.end = choice.finish_reason ?? facts.end;
      renderLast();
    }
  }

  // What is shown

  function render() {
    cancelAnimationFrame(due);
    due = 0;
    fill(list, my.messages.map((/** @type {Message} */ message, /** @type {number} */ at) => shown(message, at)));
    if (!my.messages.length) fill(list, h("p", { class: "dim" }, "Say something to the model."));
  }

  let due = 0;
  function renderLast() {
    due ||= requestAnimationFrame(() => {
      due = 0;
      const at = my.messages.length - 1;
      if (at >= 0 && list.lastElementChild) list.lastElementChild.replaceWith(shown(my.messages[at], at));
    });
  }

  /** @param {Message} message @param {number} at */
  function shown(message, at) {
    if (message.role !== "assistant") {
      const name = message.role === "tool" ? `Result of ${message.tool_call_id}` : "You";
      return h("article", { class: `turn ${message.role}` }, h("header", null, h("h2", { class: "label" }, name)), h("div", { class: "said" }, message.content));
    }
    const facts = known.get(message);
    const last = at === my.messages.length - 1;
    const busy = last && running !== null;
    const open = new Set(last || my.messages.slice(at + 1).every((/** @type {Message} */ one) => one.role === "tool") ? unanswered().map((/** @type {Call} */ call) => call.id) : []);
    return h(
      "article",
      { class: "turn assistant", aria: { busy } },
      h("header", null, h("h2", { class: "label" }, my.model), h("span", { class: `pill ${busy ? "open" : ""}` }, busy ? "writes" : (facts?.end ?? "from the link"))),
      message.reasoning_content ? h("details", { class: "part reasoning", open: busy && !message.content }, h("summary", null, `Reasoning · ${message.reasoning_content.length} characters`), h("div", { class: "said" }, message.reasoning_content)) : null,
      message.content ? h("div", { class: "said" }, message.content) : null,
      (message.tool_calls ?? []).map((call) => showCall(call, !busy && open.has(call.id))),
      !busy && facts ? footer(message, facts) : null,
    );
  }

  /** @param {Call} call @param {boolean} open */
  function showCall(call, open) {
    const answer = open ? h("textarea", { rows: 3, spellcheck: false, placeholder: '{"weather": "rain"}' }) : null;
    return h(
      "section",
      { class: "part call" },
      h("h2", { class: "label" }, "Tool call ", h("code", null, call.function.name)),
      h("pre", { class: "arguments", tabIndex: 0, aria: { label: `Arguments of ${call.function.name}` } }, pretty([[call.function.arguments, 0]]).map(([text]) => text)),
      answer ? field(`Your answer to ${call.function.name}`, answer) : null,
      answer ? h("div", { class: "row" }, h("button", { type: "button", class: "primary", onclick: () => answerCall(call, answer.value) }, "Answer the call")) : null,
    );
  }

  /** @param {Call} call @param {string} text */
  function answerCall(call, text) {
    my.messages.push({ role: "tool", tool_call_id: call.id, content: text });
    if (unanswered().length) render();
    else void turn();
  }

  /** @param {Message} message @param {{ids: number[] | null, body: any}} facts */
  function footer(message, facts) {
    const raw = h("div", { class: "stack" });
    const look = h("details", { ontoggle: () => look.open && !raw.hasChildNodes() && showRaw(raw, facts) }, h("summary", null, "Raw output and tokens"), raw);
    return h(
      "footer",
      { class: "stack" },
      look,
      h(
        "div",
        { class: "row wrap" },
        h("button", { type: "button", class: "plain", onclick: () => copied("curl", facts.body) }, "This turn as curl"),
        h("button", { type: "button", class: "plain", onclick: () => copied("python", facts.body) }, "This turn as Python"),
      ),
    );
  }

  /** @param {HTMLElement} place @param {{ids: number[] | null, body: any}} facts */
  async function showRaw(place, facts) {
    if (!facts.ids) {
      fill(place, h("p", { class: "dim" }, "The engine gives text and no token ids here. Start the server with --tokenizer to see them."));
      return;
    }
    try {
      const found = await ask("spell", { model: my.model, ids: facts.ids });
      const format = models.find((one) => one.name === my.model)?.format ?? "";
      const given = facts.body.tools ? JSON.stringify(facts.body.tools, null, 2) : "";
      fill(
        place,
        h("pre", { class: "grammar", tabIndex: 0, aria: { label: "Raw output" } }, found.text),
        h("p", { class: "dim small" }, `${facts.ids.length} tokens`),
        h("div", { class: "tokens", tabIndex: 0, role: "group", aria: { label: "Tokens" } }, found.tokens.map((/** @type {string} */ text, /** @type {number} */ at) => h("span", { title: String(facts.ids?.[at]) }, text.replaceAll("\n", "⏎")))),
        h("div", { class: "row" }, h("button", { type: "button", onclick: () => takeApart(format, found.text, given) }, "Take it apart")),
      );
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      fill(place, h("p", { class: "bad" }, error.message));
    }
  }

  fill(
    place,
    h("h1", { class: "sr" }, "Chat"),
    h("div", { class: "grid" }, h("section", { class: "column", aria: { label: "Conversation" } }, list, field("Your message", say_), h("div", { class: "row" }, sender, stop)), settings),
  );
  render();
}

/**
 * Add what a chunk brings.
 * @param {Message} message @param {any} delta
 */
function take(message, delta) {
  if (delta.content) message.content = (message.content ?? "") + delta.content;
  const thought = delta.reasoning_content ?? delta.reasoning;
  if (thought) message.reasoning_content = (message.reasoning_content ?? "") + thought;
  for (const part of delta.tool_calls ?? []) {
    message.tool_calls ??= [];
    const call = (message.tool_calls[part.index] ??= { id: "", type: "function", function: { name: "", arguments: "" } });
    call.id ||= part.id ?? "";
    call.function.name += part.function?.name ?? part.custom?.name ?? "";
    call.function.arguments += part.function?.arguments ?? part.custom?.input ?? "";
  }
}

/** @param {string} value @param {string} placeholder @param {(value: string) => void} change */
function number(value, placeholder, change) {
  const box = h("input", { type: "number", min: 0, step: "any", placeholder, oninput: () => change(box.value) });
  box.value = value;
  return box;
}

/** @param {string} format @param {string} text @param {string} tools */
function takeApart(format, text, tools) {
  Object.assign(state.apart, { format, text, tools, template: "", prompt: null, emit: false, mode: "tokens", cuts: [], step: null, panel: "message" });
  document.getElementById("view-apart")?.click();
}
