// @ts-check
/** Compare: what engines and unbraid make of the same recorded outputs, where the scoreboard has been built. */
import { Trouble } from "./api.js";
import { fill, field, h, say, select } from "./dom.js";
import { state, takeApart, write } from "./state.js";

/** @typedef {{calls: [string, string, boolean][], text: string, after?: string, reasoning?: string}} Said */
/**
 * @typedef {object} Case
 * @property {string} id
 * @property {string} title
 * @property {string} text
 * @property {number} tools
 * @property {boolean} emit
 * @property {Record<string, Said | null>} engines
 * @property {Said} ours
 * @property {string[]} agree
 */
/** @typedef {{source: string, engines: string[], tools: any[], families: {name: string, format: string, cases: Case[]}[]}} Scoreboard */

/** @type {Record<string, string>} */
const NAMES = { dynamo: "Dynamo", vllm: "vLLM", sglang: "SGLang", llama_cpp: "llama.cpp" };

/** @param {HTMLElement} place */
export async function show(place) {
  const my = state.compare;
  const reply = await fetch("playground/scoreboard.json");
  if (!reply.ok) throw new Trouble(`The scoreboard cannot be loaded: ${reply.status} ${reply.statusText}`);
  /** @type {Scoreboard} */
  const board = await reply.json();
  if (!board.families.some((one) => one.name === my.family)) my.family = board.families[0].name;
  const summary = h("p", { class: "dim", role: "status" });
  const table = h("div", { class: "scroll", tabIndex: 0, role: "region", aria: { label: "Cases" } });

  function render() {
    write();
    const family = /** @type {Scoreboard["families"][0]} */ (board.families.find((one) => one.name === my.family));
    const engines = board.engines.filter((engine) => family.cases.some((one) => engine in one.engines));
    const differs = (/** @type {Case} */ one) => one.agree.length < Object.keys(one.engines).length;
    const cases = family.cases.filter((one) => my.show === "all" || differs(one) === (my.show === "differ"));
    const counts = engines.map((engine) => `${NAMES[engine] ?? engine} ${family.cases.filter((one) => one.agree.includes(engine)).length}`);
    summary.textContent = `${family.cases.length} cases; the same as unbraid: ${counts.join(", ")}.`;
    const head = h("tr", null, ["Case", "unbraid", ...engines.map((engine) => NAMES[engine] ?? engine)].map((name) => h("th", { scope: "col" }, name)));
    const rows = cases.map((one) =>
      h(
        "tr",
        null,
        h(
          "th",
          { scope: "row" },
          `${one.id} ${one.title}`,
          h("details", null, h("summary", null, "The output"), h("pre", { class: "case-text" }, one.text)),
          h("button", { type: "button", class: "plain", onclick: () => takeApart({ format: family.format, text: one.text, tools: JSON.stringify(board.tools[one.tools], null, 2), prompt: "", emit: one.emit }) }, "Take it apart"),
        ),
        h("td", null, said(one.ours)),
        engines.map((engine) => {
          if (!(engine in one.engines)) return h("td", { class: "dim" }, "no parser for it");
          const same = one.agree.includes(engine);
          const found = one.engines[engine];
          return h("td", { class: same ? "same" : "other" }, same ? "the same" : found ? said(found) : "an error");
        }),
      ),
    );
    fill(table, cases.length ? h("table", null, h("thead", null, head), h("tbody", null, rows)) : h("p", { class: "card dim" }, "No such case."));
  }

  /** @type {[string, string][]} */
  const families = board.families.map((one) => [one.name, `${one.name} (${one.format})`]);
  fill(
    place,
    h("h1", { class: "sr" }, "Compare"),
    h(
      "div",
      { class: "column" },
      h(
        "div",
        { class: "row wrap" },
        field("Family", select(families, my.family, (value) => {
          my.family = value;
          render();
        })),
        field("Show", select([["differ", "Where they differ"], ["same", "Where all agree"], ["all", "All cases"]], my.show, (value) => {
          my.show = value;
          render();
        })),
      ),
      summary,
      table,
      h("p", { class: "hint" }, board.source),
    ),
  );
  say("");
  render();
}

/** @param {Said} found */
function said(found) {
  const calls = found.calls.map(([name, args, complete]) => h("code", null, `${name}(${args})`, complete ? "" : " — not complete"));
  const empty = !found.calls.length && !found.text && !found.after && !found.reasoning;
  return [
    found.reasoning ? h("p", { class: "dim small" }, `reasoning: ${found.reasoning}`) : null,
    found.text ? h("code", null, JSON.stringify(found.text)) : null,
    ...calls,
    found.after ? h("code", null, `then ${JSON.stringify(found.after)}`) : null,
    empty ? h("span", { class: "dim" }, "nothing") : null,
  ];
}
