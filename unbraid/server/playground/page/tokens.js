// @ts-check
/** Tokens with their ids, as a model has written them. */
import { check, fill, h } from "./dom.js";

/**
 * @param {Element} place @param {string[]} texts @param {number[]} ids
 */
export function showTokens(place, texts, ids) {
  const list = h("div", { class: "tokens", tabIndex: 0, role: "group", aria: { label: "Tokens" } });
  const draw = (/** @type {boolean} */ numbers) =>
    fill(
      list,
      texts.map((text, at) => h("span", { title: `Token ${ids[at]}` }, numbers ? String(ids[at]) : text.replaceAll("\n", "⏎"))),
    );
  draw(false);
  fill(place, h("div", { class: "row wrap" }, h("p", { class: "dim small" }, `${ids.length} tokens`), check("Ids", false, draw)), list);
}
