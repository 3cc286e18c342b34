// @ts-check
/** The conversations that this browser keeps. */
import { fill, h } from "./dom.js";

/** @typedef {{id: string, title: string, messages: any[]}} Conversation */

const KEPT = "unbraid-chats";
const MOST = 50;

/** @returns {Conversation[]} */
function all() {
  try {
    return JSON.parse(localStorage.getItem(KEPT) ?? "[]");
  } catch {
    return [];
  }
}

/** Keep as many as the browser has room for, the newest first. @param {Conversation[]} some */
function put(some) {
  for (let most = Math.min(MOST, some.length); most >= 0; most -= 1) {
    try {
      localStorage.setItem(KEPT, JSON.stringify(some.slice(0, most)));
      return;
    } catch {
      // no room: the oldest goes
    }
  }
}

/** @param {string} id @param {any[]} messages */
export function keepChat(id, messages) {
  const first = messages.find((one) => one.role === "user");
  if (!first) return;
  const title = (first.content || first.files?.[0]?.name || "Conversation").slice(0, 60);
  put([{ id, title, messages }, ...all().filter((one) => one.id !== id)]);
}

/**
 * @param {HTMLElement} place @param {string} current
 * @param {(conversation: Conversation) => void} choose @param {(id: string) => void} removed
 */
export function showChats(place, current, choose, removed) {
  const rows = all().map((one) =>
    h(
      "li",
      null,
      h("button", { type: "button", class: "plain title", aria: { current: one.id === current ? "true" : undefined }, onclick: () => choose(one) }, one.title),
      h("button", { type: "button", class: "plain", aria: { label: `Delete “${one.title}”` }, onclick: () => {
        put(all().filter((other) => other.id !== one.id));
        removed(one.id);
      } }, "×"),
    ),
  );
  fill(place, rows.length ? rows : h("li", { class: "dim small" }, "None yet."));
}
