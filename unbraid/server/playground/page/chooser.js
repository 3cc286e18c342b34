// @ts-check
/** Choosing a format: from the list, or by a template that it is detected from. Two views have it. */
import { ask, Trouble } from "./api.js";
import { area, field, fill, h, select } from "./dom.js";

/** @typedef {{name: string, aliases: string[], strands: string[]}} KnownFormat */

/** @type {Promise<{formats: KnownFormat[], tools: any[]}> | null} */
let known = null;

/** All formats, and the tools that samples use. */
export function formats() {
  known ??= ask("formats", {});
  return known;
}

/** The tools that samples use, as somebody would type them. */
export async function sampleTools() {
  return JSON.stringify((await formats()).tools, null, 2);
}

const FROM_TEMPLATE = "\u0000template";

/**
 * @param {{format: string, template: string}} chosen
 * @param {() => void} changed
 */
export async function chooser(chosen, changed) {
  const { formats: list } = await formats();
  /** @type {[string, string][]} */
  const options = list.map((one) => [one.name, one.aliases.length ? `${one.name}  (${one.aliases.slice(0, 3).join(", ")})` : one.name]);
  options.unshift([FROM_TEMPLATE, "Detect it from a chat template …"]);
  const reasons = h("div", { class: "reasons", role: "status" });
  const box = area(chosen.template, (text) => {
    chosen.template = text;
    void detect();
  }, { rows: 5, placeholder: "{% for message in messages %} … or the whole tokenizer_config.json" });
  const pasted = h("div", { class: "stack" }, field("Chat template, or tokenizer_config.json", box), reasons);
  const list_ = select(options, chosen.template ? FROM_TEMPLATE : chosen.format, (value) => {
    pasted.hidden = value !== FROM_TEMPLATE;
    if (value === FROM_TEMPLATE) {
      box.focus();
      return;
    }
    chosen.format = value;
    chosen.template = box.value = "";
    changed();
  });
  pasted.hidden = !chosen.template;

  async function detect() {
    if (!chosen.template.trim()) {
      fill(reasons);
      return;
    }
    fill(reasons, h("p", { class: "dim" }, "Looking …"));
    try {
      const found = await ask("detect", { template: chosen.template });
      fill(
        reasons,
        h("p", null, found.format ? h("strong", null, found.format) : h("strong", null, "No format was found"), " ", h("span", { class: `pill ${found.verified ? "good" : "bad"}` }, found.verified ? "verified" : "not verified")),
        h("ul", null, found.reasons.map((/** @type {string} */ reason) => h("li", null, reason))),
        found.alternatives.length ? h("p", { class: "dim" }, `Others that read it as well, or nearly: ${found.alternatives.join(", ")}`) : null,
        found.definition ? h("details", null, h("summary", null, "Its definition"), h("pre", { tabIndex: 0 }, found.definition)) : null,
      );
      if (found.format) changed();
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      fill(reasons, h("p", { class: "bad" }, error.message));
    }
  }
  if (chosen.template) void detect();
  /** Choose a format without anybody's doing. @param {string} name */
  function use(name) {
    chosen.format = list_.value = name;
    chosen.template = box.value = "";
    pasted.hidden = true;
  }
  return { element: h("div", { class: "stack" }, field("Format", list_), pasted), use };
}
