// @ts-check
/** Where answers come from: the server that the page is from or, in the static site, a worker of the browser. */

/** @typedef {{server: boolean, key?: boolean, version?: string, documentation?: string | null, recorded?: boolean}} Config */
/** @typedef {{name: string, format: string, chats: boolean, tokens: boolean, speaks: boolean}} ServedModel */

/** What went wrong, in words for the user. */
export class Trouble extends Error {}

/** @type {Config} */
export let config = { server: true };
/** @type {ServedModel[]} */
export let models = [];
/** @type {{name: string, words: boolean}[]} */
export let listeners = [];
/** @type {Worker | null} */
let worker = null;
/** @type {Map<number, (text: string) => void>} */
const waiting = new Map();
let asked = 0;

/** Learn what there is. @param {(text: string) => void} tell */
export async function connect(tell) {
  config = await (await fetch("playground/config.json")).json();
  if (!config.server) {
    tell("Starting Python in your browser …");
    startWorker(tell);
    return;
  }
  const found = await (await request("playground/models.json")).json();
  models = found.models;
  listeners = found.listeners;
}

/** @param {(text: string) => void} tell */
function startWorker(tell) {
  worker = new Worker("playground/worker.js", { type: "module" });
  worker.onmessage = ({ data }) => {
    if (data.ready) tell("");
    else if (data.failed) tell(`Python did not start: ${data.failed}`);
    else {
      waiting.get(data.id)?.(data.text);
      waiting.delete(data.id);
    }
  };
  worker.onerror = (event) => tell(`Python did not start: ${event.message ?? "the worker could not be loaded"}`);
}

let open = 0;
/**
 * Do something, and tell screen readers meanwhile that the page is about to change.
 * @template T
 * @param {() => Promise<T>} work
 */
export async function during(work) {
  const mark = (/** @type {number} */ more) => {
    open += more;
    document.getElementById("main")?.setAttribute("aria-busy", String(open > 0));
  };
  mark(1);
  try {
    return await work();
  } finally {
    mark(-1);
  }
}

/**
 * What a view says.
 * @param {string} view @param {Record<string, unknown>} body
 * @returns {Promise<any>}
 */
export function ask(view, body) {
  return during(() => answer(view, body));
}

/** @param {string} view @param {Record<string, unknown>} body */
async function answer(view, body) {
  const text = JSON.stringify(body);
  if (worker === null) {
    const headers = { "Content-Type": "application/json" };
    return (await request(`playground/views/${view}`, { method: "POST", headers, body: text })).json();
  }
  const id = (asked += 1);
  const reply = await new Promise((/** @type {(text: string) => void} */ done) => {
    waiting.set(id, done);
    worker?.postMessage({ id, view, body: text });
  });
  const found = JSON.parse(reply);
  if (found.error !== undefined) throw new Trouble(found.error);
  return found;
}

/** The key of this server, for as long as the tab is open. */
export const key = {
  get: () => sessionStorage.getItem("unbraid-key") ?? "",
  /** @param {string} value */
  set: (value) => sessionStorage.setItem("unbraid-key", value),
};

/**
 * A request to the server, with its key; asks for one where it is missing or wrong.
 * @param {string} path @param {RequestInit} [options]
 * @returns {Promise<Response>}
 */
export async function request(path, options = {}) {
  for (;;) {
    const headers = new Headers(options.headers);
    if (key.get()) headers.set("Authorization", `Bearer ${key.get()}`);
    /** @type {Response} */
    let reply;
    try {
      reply = await fetch(path, { ...options, headers });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Trouble(`The server does not answer: ${error}. Is it still running?`);
    }
    if (reply.status === 401) {
      await askForKey();
      continue;
    }
    if (!reply.ok) throw new Trouble(await problem(reply));
    return reply;
  }
}

/** @param {Response} reply */
async function problem(reply) {
  const text = await reply.text();
  try {
    return JSON.parse(text).error.message;
  } catch {
    return `${reply.status} ${reply.statusText}`;
  }
}

/** @returns {Promise<void>} */
function askForKey() {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("key-dialog"));
  const input = /** @type {HTMLInputElement} */ (document.getElementById("key"));
  const why = /** @type {HTMLElement} */ (document.getElementById("key-why"));
  why.textContent = key.get() ? "The key that you gave is not one of this server's." : "";
  if (!dialog.open) dialog.showModal();
  return new Promise((done) => {
    dialog.addEventListener(
      "close",
      () => {
        key.set(input.value.trim());
        done();
      },
      { once: true },
    );
  });
}

/**
 * The data of a stream of events, as they come.
 * @param {Response} reply
 * @returns {AsyncGenerator<any>}
 */
export async function* events(reply) {
  const reader = /** @type {ReadableStream<any>} */ (reply.body).pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { done, value } = await reader.read();
    held += value ?? "";
    const frames = held.split("\n\n");
    held = frames.pop() ?? "";
    for (const frame of frames) {
      const data = frame.split("\n").find((line) => line.startsWith("data: "))?.slice(6);
      if (data !== undefined && data !== "[DONE]") yield JSON.parse(data);
    }
    if (done) return;
  }
}
