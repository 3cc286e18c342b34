// @ts-check
/** Compare: the scoreboard and, where they have been built, what engines and unbraid make of recorded outputs. */
import { config, Trouble } from "./api.js";
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
/** @typedef {{source: string, engines: string[], tools: any[], families: {name: string, format: string, cases: Case[]}[]}} Recorded */
/** @typedef {{right: [number, number], exact: number, differs: [number, number]} & Record<string, any>} Counts */
/** @typedef {{name: string, title: string, missing?: string, all: Counts, versions: Record<string, string>, formats: Record<string, [number, number]>}} Peer */
/** @typedef {{seed: number, count: number, machine: string, faults: Record<string, string>, ours: string[], peers: Peer[], constraints?: {rows: Row[]}}} Scoreboard */
/** @typedef {{title: string, missing?: string, library: string, suite: Record<string, number>, tools: Record<string, number>, first_ms: number[], step_us: number[]}} Row */

/** @type {Record<string, string>} */
const NAMES = { dynamo: "Dynamo", vllm: "vLLM", sglang: "SGLang", llama_cpp: "llama.cpp" };

/** @param {string} name */
async function load(name) {
  const reply = await fetch(`playground/${name}.json`);
  if (!reply.ok) throw new Trouble(`${name}.json cannot be loaded: ${reply.status} ${reply.statusText}`);
  return reply.json();
}

/** @param {HTMLElement} place */
export async function show(place) {
  /** @type {Scoreboard} */
  const board = await load("scoreboard");
  const cases = h("div", { class: "column" });
  fill(place, h("h1", { class: "sr" }, "Compare"), h("div", { class: "column" }, scoreboard(board), constraints(board.constraints?.rows ?? []), cases));
  if (config.recorded) recorded(cases, await load("recorded_cases"));
  say("");
}

/** @param {string} label @param {string[]} head @param {HTMLElement[]} rows */
function table(label, head, rows) {
  const columns = h("tr", null, head.map((name) => h("th", { scope: "col" }, name)));
  return h("div", { class: "scroll", tabIndex: 0, role: "region", aria: { label } }, h("table", null, h("thead", null, columns), h("tbody", null, rows)));
}

/** @param {Scoreboard} board */
function scoreboard(board) {
  const run = board.peers.filter((peer) => !peer.missing);
  const faults = Object.keys(board.faults);
  const share = (/** @type {[number, number]} */ [part, all]) => (part === all ? "100%" : `${Math.min(99.9, (100 * part) / all).toFixed(1)}%`);
  const peers = board.peers.map((peer) =>
    h(
      "tr",
      null,
      h("th", { scope: "row", title: Object.entries(peer.versions ?? {}).map((one) => one.join(" ")).join(", ") }, peer.title),
      peer.missing
        ? h("td", { colSpan: 3 + faults.length, class: "dim" }, `not run: ${peer.missing}`)
        : [`${peer.all.right[1]}`, share(peer.all.right), share(peer.all.differs).replace("100%", peer.all.differs[1] ? "100%" : "–"), ...faults.map((fault) => `${peer.all[fault] ?? 0}`)].map((text) => h("td", null, text)),
    ),
  );
  const names = [...new Set(run.flatMap((peer) => Object.keys(peer.formats)))].sort();
  const formats = names.map((name) =>
    h(
      "tr",
      null,
      h("th", { scope: "row" }, board.ours.includes(name) ? `${name} *` : name),
      run.map((peer) => {
        const counts = peer.formats[name];
        if (!counts) return h("td", { class: "dim" }, "–");
        return h("td", { class: counts[0] === counts[1] ? "same" : "other" }, counts.join(" / "));
      }),
    ),
  );
  return [
    h("h2", null, "The scoreboard"),
    h("p", { class: "dim" }, `The same streams through everybody's parser, judged by the message that was written: seed ${board.seed}, ${board.count} of each kind for each format, ${board.machine}. Each peer has the formats that it has a parser for.`),
    table("Peers", ["Peer", "Streams", "Right", "Stream ≠ whole", ...faults], peers),
    table("Formats", ["Format", ...run.map((peer) => peer.title)], formats),
    h("p", { class: "hint" }, "Streams that are right, of all. * No template of the vendor: written by unbraid's renderer."),
  ];
}

/** @param {Row[]} rows */
function constraints(rows) {
  if (!rows.length) return null;
  const head = ["Schema → masks", "Cases", "Right", "Schema refused", "Said", "Valid refused", "Invalid admitted"];
  const cells = (/** @type {Record<string, number>} */ counts) => {
    const of = (/** @type {string} */ name) => counts[name] ?? 0;
    const all = Object.values(counts).reduce((sum, count) => sum + count, 0);
    return [all, of("right"), of("refused"), of("valid-said") + of("invalid-said"), of("valid-silent"), of("invalid-silent")];
  };
  const lines = (/** @type {(row: Row) => (string | number)[]} */ shown) =>
    rows.map((row) =>
      h(
        "tr",
        null,
        h("th", { scope: "row", title: row.library ?? "" }, row.title),
        row.missing ? h("td", { colSpan: 6, class: "dim" }, `not run: ${row.missing}`) : shown(row).map((text) => h("td", null, `${text}`)),
      ),
    );
  return [
    h("h2", null, "Constraints"),
    h("p", { class: "dim" }, "The same schemas through our dialects and through each library's own converter. The last two columns are silent: nothing says that a valid value cannot be written, or that an invalid one can."),
    h("h3", null, "JSON Schema's test suite"),
    table("The test suite", head, lines((row) => cells(row.suite))),
    h("h3", null, "Tool definitions"),
    table("Tool definitions", [...head, "First mask, ms", "Step, µs"], lines((row) => [...cells(row.tools), row.first_ms[0], row.step_us[0]])),
  ];
}

/** @param {HTMLElement} place @param {Recorded} board */
function recorded(place, board) {
  const my = state.compare;
  if (!board.families.some((one) => one.name === my.family)) my.family = board.families[0].name;
  const summary = h("p", { class: "dim", role: "status" });
  const shown = h("div", { class: "scroll", tabIndex: 0, role: "region", aria: { label: "Cases" } });

  function render() {
    write();
    const family = /** @type {Recorded["families"][0]} */ (board.families.find((one) => one.name === my.family));
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
    fill(shown, cases.length ? h("table", null, h("thead", null, head), h("tbody", null, rows)) : h("p", { class: "card dim" }, "No such case."));
  }

  /** @type {[string, string][]} */
  const families = board.families.map((one) => [one.name, `${one.name} (${one.format})`]);
  fill(
    place,
    h("h2", null, "Recorded cases"),
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
    shown,
    h("p", { class: "hint" }, board.source),
  );
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
