// @ts-check
/** Which formats explain an output that somebody has pasted: ranked, with what each leaves unexplained. */
import { ask } from "./api.js";
import { fill, h } from "./dom.js";

/** @typedef {{format: string, sure: string, unexplained: string[], same: string[]}} Guess */

/** @type {Record<string, string>} */
const SURE = {
  certain: "no other reading leaves nothing over",
  likely: "others leave nothing over either, and write it differently",
  possible: "it leaves nothing over, and another format is more likely",
  partly: "it leaves something over",
};

/**
 * Show the formats that explain a text. Returns the one that is at least likely.
 * @param {HTMLElement} place @param {string} text @param {(format: string) => void} use
 * @returns {Promise<string | null>}
 */
export async function guessed(place, text, use) {
  /** @type {{guesses: Guess[]}} */
  const { guesses } = await ask("guess", { text });
  const [best] = guesses;
  fill(
    place,
    h("p", null, h("strong", null, best ? "Formats that explain this output" : "No format explains this output: it reads as plain text")),
    best ? h("ol", null, guesses.map((one) => row(one, use))) : null,
  );
  return best && ["certain", "likely"].includes(best.sure) ? best.format : null;
}

/** @param {Guess} one @param {(format: string) => void} use */
function row(one, use) {
  return h(
    "li",
    null,
    h("button", { type: "button", class: "plain", onclick: () => use(one.format) }, one.format),
    h("span", { class: `pill ${one.sure === "partly" ? "bad" : "good"}`, title: SURE[one.sure] }, one.sure),
    one.same.length ? h("span", { class: "dim small", title: one.same.join(", ") }, ` the same with ${one.same.slice(0, 3).join(", ")}${one.same.length > 3 ? ` and ${one.same.length - 3} more` : ""}`) : null,
    one.unexplained.length ? h("ul", { class: "dim small" }, one.unexplained.slice(0, 3).map((what) => h("li", null, what))) : null,
  );
}
