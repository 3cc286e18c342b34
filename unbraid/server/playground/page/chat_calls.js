// @ts-check
/** A call of a model, and a form for its result: by the schema of the result where the tool has one, else as text. */
import { field, h, select } from "./dom.js";
import { pretty } from "./pretty.js";

/**
 * @typedef {object} Call
 * @property {string} id
 * @property {string} type
 * @property {{name: string, arguments: string}} function
 */

/** @param {Call} call */
export function showCall(call) {
  const { name, arguments: text } = call.function;
  return h(
    "section",
    { class: "part call" },
    h("h2", { class: "label" }, "Tool call ", h("code", null, name)),
    h("pre", { class: "arguments", tabIndex: 0, aria: { label: `Arguments of ${name}` } }, pretty([[text, 0]]).map(([piece]) => piece)),
  );
}

/** The schema of a tool's result. Vendors have no common name for it. @param {any[]} tools @param {string} name */
export function resultSchema(tools, name) {
  const tool = tools.map((one) => one.function ?? one).find((one) => one.name === name);
  return tool?.returns ?? tool?.response ?? tool?.outputSchema ?? tool?.output_schema ?? null;
}

/**
 * @param {Call} call @param {any} schema @param {(text: string) => void} answer
 */
export function answerForm(call, schema, answer) {
  const { name } = call.function;
  const properties = Object.entries(schema?.properties ?? {});
  const box = h("textarea", { rows: 3, spellcheck: false, placeholder: '{"weather": "rain"}' });
  const inputs = properties.map(([key, of]) => ({ key, of, input: control(of) }));
  const required = new Set(schema?.required ?? []);
  for (const { key, of, input } of inputs) input.required = required.has(key) && of?.type !== "string";
  const send = () => answer(properties.length ? JSON.stringify(result(inputs, required)) : box.value);
  return h(
    "form",
    {
      class: "answer stack",
      aria: { label: `Result of ${name}` },
      onsubmit: (/** @type {Event} */ event) => {
        event.preventDefault();
        send();
      },
    },
    properties.length ? inputs.map(({ key, of, input }) => field(`${key}${required.has(key) ? "" : " (optional)"}`, input, of?.description)) : field(`Your answer to ${name}`, box),
    h("div", { class: "row" }, h("button", { type: "submit", class: "primary" }, "Answer the call")),
  );
}

/** @param {any} schema */
function control(schema) {
  const kind = Array.isArray(schema?.type) ? schema.type[0] : schema?.type;
  if (Array.isArray(schema?.enum)) return select([["", "–"], ...schema.enum.map((/** @type {any} */ one) => [JSON.stringify(one), String(one)])], "", () => {});
  if (kind === "boolean") return select([["", "–"], ["true", "true"], ["false", "false"]], "", () => {});
  if (kind === "number" || kind === "integer") return h("input", { type: "number", step: kind === "integer" ? "1" : "any" });
  if (kind === "string") return h("input", { type: "text" });
  return h("textarea", { rows: 2, spellcheck: false, placeholder: kind === "array" ? "[…]" : "JSON" });
}

/** @param {{key: string, of: any, input: any}[]} inputs @param {Set<string>} required */
function result(inputs, required) {
  /** @type {Record<string, any>} */
  const values = {};
  for (const { key, of, input } of inputs) {
    const text = input.value;
    if (text === "" && !(required.has(key) && of?.type === "string")) continue;
    if (of?.type === "string" && !of.enum) values[key] = text;
    else {
      try {
        values[key] = JSON.parse(text);
      } catch {
        values[key] = text; // what is no JSON is a text
      }
    }
  }
  return values;
}
