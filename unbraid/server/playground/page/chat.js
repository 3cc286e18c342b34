// @ts-check
/** Chat: talk to a served model with tools. Calls are answered by hand. */
import { config, events, models, request, Trouble } from "./api.js";
import { asCurl, asPython } from "./chat_copy.js";
import { attached, withFiles } from "./chat_files.js";
import { keepChat, showChats } from "./chat_list.js";
import { turn } from "./chat_turn.js";
import { sampleTools } from "./chooser.js";
import { area, copy, field, fill, h, say, select } from "./dom.js";
import { missing } from "./missing.js";
import { state, write } from "./state.js";

/** @typedef {import("./chat_calls.js").Call} Call */
/** @typedef {import("./chat_raw.js").Facts} Facts */
/** @typedef {import("./chat_turn.js").Message} Message */

/** @type {WeakMap<Message, Facts>} */
const known = new WeakMap();
/**
 * The turn that is being written. It goes on while another view is shown, and tells the one that is there.
 * @type {{running: AbortController | null, grow: () => void, render: () => void}}
 */
const live = { running: null, grow: () => {}, render: () => {} };

/** @param {HTMLElement} place */
export async function show(place) {
  const my = state.chat;
  const chatting = models.filter((one) => one.chats);
  if (!config.server || !chatting.length) {
    fill(place, h("h1", { class: "sr" }, "Chat"), missing("Chat needs a server", "chats", "--model smollm2-135m-instruct"));
    return;
  }
  if (!chatting.some((one) => one.name === my.model)) my.model = chatting[0].name;
  my.id ||= newId();
  /** @type {{element: HTMLElement, update: () => void}[]} */
  let turns = [];
  let due = 0;

  // What can be set

  const tools = area(my.tools, (value) => keep({ tools: value }), { rows: 8 });
  const settings = h(
    "details",
    { class: "side settings", open: my.settings, ontoggle: () => keep({ settings: settings.open }) },
    h("summary", null, "Settings"),
    h(
      "div",
      { class: "stack" },
      field("Model", select(chatting.map((one) => [one.name, `${one.name} (${one.format})`]), my.model, (value) => keep({ model: value }))),
      field("System prompt", area(my.system, (value) => keep({ system: value }), { rows: 3 })),
      field("Tools, as JSON", tools, "You answer the calls by hand, in a form if the tool has a schema for its result (returns)."),
      h("div", { class: "row" }, h("button", { type: "button", onclick: async () => keep({ tools: (tools.value = await sampleTools()) }) }, "Use two sample tools")),
      field("tool_choice", select([["auto", "auto"], ["required", "required"], ["none", "none"]], my.choice, (value) => keep({ choice: value }))),
      h("div", { class: "two" }, field("Most tokens", number(my.most, "512", (value) => keep({ most: value }))), field("Temperature", number(my.temperature, "the model's", (value) => keep({ temperature: value })))),
      h("div", { class: "row wrap" }, h("button", { type: "button", onclick: () => copied("curl") }, "Copy as curl"), h("button", { type: "button", onclick: () => copied("python") }, "Copy as Python")),
    ),
  );

  /** @param {Partial<typeof my>} change */
  function keep(change) {
    Object.assign(my, change);
    write();
  }

  // Conversations

  const list = h("ul", { class: "conversations" });
  const conversations = h(
    "details",
    { class: "side", open: my.list, ontoggle: () => keep({ list: conversations.open }) },
    h("summary", null, "Conversations"),
    h("div", { class: "stack" }, h("button", { type: "button", onclick: () => change({ id: newId(), messages: [] }) }, "New conversation"), list),
  );

  /** @param {{id: string, messages: any[]}} to */
  function change(to) {
    live.running?.abort();
    keep({ id: to.id, messages: to.messages });
    render();
  }

  function listChats() {
    showChats(list, my.id, change, (id) => (id === my.id ? change({ id: newId(), messages: [] }) : listChats()));
  }

  // What is written

  /** @type {import("./chat_files.js").Attached[]} */
  let files = [];
  const chips = h("ul", { class: "chips", aria: { label: "Attachments" } });
  const picker = h("input", { type: "file", multiple: true, hidden: true, aria: { label: "Files to attach" }, onchange: () => void attach([...(picker.files ?? [])]) });
  const box = area(my.draft, (value) => keep({ draft: value }), { rows: 2, placeholder: "Enter sends, Shift and Enter begins a line." });
  box.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      send();
    }
  });
  const stop = h("button", { type: "button", onclick: () => live.running?.abort(), disabled: true }, "Stop");
  const composer = h(
    "div",
    { class: "composer" },
    chips,
    field("Your message", box),
    h("div", { class: "row" }, h("button", { type: "button", class: "primary", onclick: () => send() }, "Send"), stop, h("button", { type: "button", onclick: () => picker.click() }, "Attach files"), picker),
  );

  /** @param {File[]} some */
  async function attach(some) {
    try {
      for (const file of some) files.push(await attached(file));
      say("");
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      say(error.message);
    }
    picker.value = "";
    showFiles();
  }

  function showFiles() {
    const drop = (/** @type {number} */ at) => {
      files = files.filter((_, each) => each !== at);
      showFiles();
    };
    fill(chips, files.map((file, at) => h("li", null, file.name, h("button", { type: "button", class: "plain", aria: { label: `Leave out ${file.name}` }, onclick: () => drop(at) }, "×"))));
  }

  function send() {
    const text = box.value.trim();
    my.tools = tools.value;
    if ((!text && !files.length) || live.running) return;
    if (unanswered().length) {
      say("Answer the calls first.");
      return;
    }
    my.messages.push({ role: "user", content: text, ...(files.length ? { files } : {}) });
    if (!request_(my.messages)) {
      my.messages.pop();
      return;
    }
    box.value = my.draft = "";
    files = [];
    showFiles();
    void speak();
  }

  /** The body of a request for the next turn. @param {Message[]} messages */
  function requestOf(messages) {
    const system = my.system.trim() ? [{ role: "system", content: my.system }] : [];
    const said = messages.map(({ reasoning_content: _, files: some, ...message }) => (some ? { ...message, content: withFiles(message.content ?? "", some) } : message));
    /** @type {Record<string, any>} */
    const body = { model: my.model, messages: [...system, ...said], max_tokens: Number(my.most) || 512 };
    const list = my.tools.trim() ? JSON.parse(my.tools) : [];
    if (list.length) Object.assign(body, { tools: list, tool_choice: my.choice });
    if (my.temperature !== "") body.temperature = Number(my.temperature);
    return body;
  }

  /** The same, or null with a word on what is wrong. @param {Message[]} messages */
  function request_(messages) {
    try {
      return requestOf(messages);
    } catch (error) {
      say(`Tools are not JSON: ${error}`);
      return null;
    }
  }

  /** @param {"curl" | "python"} kind @param {any} [body] */
  function copied(kind, body = request_(my.messages)) {
    if (body) void copy(kind === "curl" ? asCurl(body) : asPython(body), kind === "curl" ? "The command" : "The program");
  }

  /** The calls of the last turn that have no answer yet. */
  function unanswered() {
    const at = my.messages.findLastIndex((/** @type {Message} */ one) => one.role === "assistant");
    const calls = my.messages[at]?.tool_calls ?? [];
    const answered = new Set(my.messages.slice(at + 1).map((/** @type {Message} */ one) => one.tool_call_id));
    return calls.filter((/** @type {Call} */ call) => !answered.has(call.id));
  }

  /** @param {Call} call @param {string} text */
  function answer(call, text) {
    my.messages.push({ role: "tool", tool_call_id: call.id, content: text });
    if (unanswered().length) render();
    else void speak();
  }

  /** The model's turn. */
  async function speak() {
    const body = request_(my.messages);
    if (!body) return render();
    const { id, messages } = my;
    const mine = (live.running = new AbortController());
    /** @type {Message} */
    const message = { role: "assistant", content: "" };
    messages.push(message);
    /** @type {Facts} */
    const facts = { ids: [], prompt: [], body, end: null };
    known.set(message, facts);
    live.render();
    try {
      await stream(body, message, facts, mine.signal);
      say("");
    } catch (error) {
      if (!mine.signal.aborted && !(error instanceof Trouble)) throw error;
      facts.end = mine.signal.aborted ? "stopped" : "failed";
      if (error instanceof Trouble) say(error.message);
      if (!message.content && !message.tool_calls && !message.reasoning_content) messages.pop();
    } finally {
      if (live.running === mine) live.running = null;
      keepChat(id, messages);
      write();
      live.render();
    }
  }

  /** @param {any} body @param {Message} message @param {Facts} facts @param {AbortSignal} signal */
  async function stream(body, message, facts, signal) {
    const ids = models.find((one) => one.name === body.model)?.tokens ?? false;
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
      if (chunk.prompt_token_ids) facts.prompt = chunk.prompt_token_ids;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      take(message, choice.delta);
      if (facts.ids && choice.token_ids) facts.ids.push(...choice.token_ids);
      facts.end = choice.finish_reason ?? facts.end;
      live.grow();
    }
  }

  // What is shown

  const log = h("div", { class: "messages", role: "log", tabIndex: 0, aria: { label: "Conversation" } });

  /** Show the messages. Turns that are shown already stay as they are, with what is open in them. */
  function render() {
    cancelAnimationFrame(due);
    due = 0;
    const kept = turns.filter((one, at) => shownFor.get(one.element) === my.messages[at]);
    turns = my.messages.map((/** @type {Message} */ message, /** @type {number} */ at) => (kept[at] && shownFor.get(kept[at].element) === message ? kept[at] : made(message)));
    for (const one of turns) one.update();
    if (turns.some((one, at) => log.children[at] !== one.element) || log.childElementCount !== turns.length) fill(log, turns.map((one) => one.element));
    if (!turns.length) fill(log, h("p", { class: "dim" }, "Say something to the model."));
    log.scrollTop = log.scrollHeight;
    stop.disabled = live.running === null;
    listChats();
  }

  /** The last turn has grown. Who has scrolled up is left there. */
  function grow() {
    due = 0;
    const below = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
    turns.at(-1)?.update();
    if (below) log.scrollTop = log.scrollHeight;
  }

  /** @type {WeakMap<HTMLElement, Message>} */
  const shownFor = new WeakMap();
  /** @param {Message} message */
  function made(message) {
    const facts = known.get(message);
    const call = my.messages.flatMap((/** @type {Message} */ one) => one.tool_calls ?? []).find((/** @type {Call} */ one) => one.id === message.tool_call_id);
    const names = { user: "You", tool: `Result of ${call?.function.name ?? message.tool_call_id}`, assistant: facts?.body.model ?? my.model };
    const one = turn(message, {
      name: names[/** @type {keyof names} */ (message.role)] ?? message.role,
      facts,
      tools: facts?.body.tools ?? listed(my.tools),
      busy: () => live.running !== null && message === my.messages.at(-1),
      open: (each) => unanswered().includes(each),
      answer,
      copied,
    });
    shownFor.set(one.element, message);
    return one;
  }

  fill(place, h("h1", { class: "sr" }, "Chat"), h("div", { class: "chat-layout" }, conversations, h("section", { class: "talk", aria: { label: "Chat" } }, log, composer), settings));
  Object.assign(live, { grow: () => (due ||= requestAnimationFrame(grow)), render });
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

function newId() {
  return crypto.getRandomValues(new Uint32Array(2)).join("-");
}

/** @param {string} tools @returns {any[]} */
function listed(tools) {
  try {
    return JSON.parse(tools || "[]");
  } catch {
    return [];
  }
}

/** @param {string} value @param {string} placeholder @param {(value: string) => void} change */
function number(value, placeholder, change) {
  const box = h("input", { type: "number", min: 0, step: "any", placeholder, oninput: () => change(box.value) });
  box.value = value;
  return box;
}
