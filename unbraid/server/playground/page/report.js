// @ts-check
/** An output as a bug report: the text, the format, the boundaries and what came of it, as a link and as Markdown. */
import { config } from "./api.js";
import { copy, h } from "./dom.js";
import { link } from "./state.js";

/** @typedef {import("./state.js").ApartState} ApartState */

/**
 * Show the report, to be looked at before it is copied.
 * @param {ApartState} my @param {any} parsed what came of it, or null
 */
export async function showReport(my, parsed) {
  const address = await link();
  const text = markdown(my, parsed, address);
  const box = h("textarea", { class: "mono", rows: 16, readOnly: true, spellcheck: false, aria: { label: "The report, as Markdown" } });
  box.value = text;
  const dialog = h(
    "dialog",
    { class: "wide", aria: { labelledby: "report-title" }, onclose: () => dialog.remove() },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "report-title" }, "Bug report"),
      h("p", { class: "hint" }, "It holds all of the output and the tools. See that nothing in it is secret before you send it."),
      box,
      h(
        "div",
        { class: "row wrap end" },
        h("button", { type: "button", onclick: () => copy(address, "The link") }, "Copy the link"),
        h("button", { type: "button", class: "primary", onclick: () => copy(text, "The report") }, "Copy as Markdown"),
        h("button", { type: "submit" }, "Close"),
      ),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
}

/** @param {ApartState} my @param {any} parsed @param {string} address */
function markdown(my, parsed, address) {
  const options = [
    ["Version", config.version ?? "unknown"],
    ["Format", my.template ? "detected from the template below" : my.format],
    ["Chunks end at", my.cuts.length ? my.cuts.join(", ") : "the end alone"],
    ["End of the prompt", my.prompt === null ? "the format's own" : JSON.stringify(my.prompt)],
    ["Options", [my.emit && "unknown tools are emitted", !my.separate && "reasoning is left in place", !my.ended && "the output was cut off"].filter(Boolean).join(", ") || "none"],
  ];
  const diagnostics = (parsed?.events ?? []).filter((/** @type {any} */ event) => event.diagnostic);
  return [
    "### What the model wrote",
    fenced(my.text, "text"),
    options.map(([name, value]) => `- ${name}: ${value}`).join("\n"),
    ...(my.template ? ["### Chat template", fenced(my.template, "jinja")] : []),
    ...(my.tools.trim() ? ["### Tools", fenced(my.tools, "json")] : []),
    "### What came",
    parsed ? fenced(JSON.stringify(parsed.message, null, 2), "json") : "Nothing: the request was refused.",
    ...(parsed ? [`The same all at once: ${parsed.same.whole ? "yes" : "NO"}. The same in single characters: ${parsed.same.characters ? "yes" : "NO"}.`] : []),
    ...(diagnostics.length ? [diagnostics.map((/** @type {any} */ event) => `- \`${event.diagnostic}\` at ${event.start}–${event.end}: ${event.message}`).join("\n")] : []),
    "### What should have come\n\n…",
    `[The same in the playground](${address})`,
  ].join("\n\n");
}

/** @param {string} text @param {string} kind */
function fenced(text, kind) {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map(([ticks]) => ticks.length));
  const fence = "`".repeat(longest + 1);
  return `${fence}${kind}\n${text}\n${fence}`;
}
