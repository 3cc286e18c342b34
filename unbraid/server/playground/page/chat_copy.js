// @ts-check
/** A request as a command or a program that others can run. No key is ever in it. */
import { config } from "./api.js";

const BASE = () => new URL("v1", document.baseURI).href;

/** @param {any} body */
export function asCurl(body) {
  const key = config.key ? " \\\n  -H \"Authorization: Bearer $UNBRAID_KEY\"" : "";
  const text = JSON.stringify({ ...body, stream: true }, null, 2).replaceAll("'", "'\\''");
  return `curl -N ${BASE()}/chat/completions \\\n  -H 'Content-Type: application/json'${key} \\\n  -d '${text}'`;
}

/** @param {any} body */
export function asPython(body) {
  const key = config.key ? 'os.environ["UNBRAID_KEY"]' : '"any"';
  const fields = Object.entries(body).map(([name, value]) => `    ${name}=${python(value, 1)},\n`);
  return `${config.key ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${JSON.stringify(BASE())}, api_key=${key})
stream = client.chat.completions.create(
${fields.join("")}    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta if chunk.choices else chunk)
`;
}

/** A value as Python writes it. @param {any} value @param {number} depth @returns {string} */
function python(value, depth) {
  const inner = "    ".repeat(depth + 1);
  const outer = "    ".repeat(depth);
  if (value === null || value === undefined) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) {
    return value.length ? `[\n${value.map((one) => `${inner}${python(one, depth + 1)},\n`).join("")}${outer}]` : "[]";
  }
  if (typeof value === "object") {
    const rows = Object.entries(value).map(([name, one]) => `${inner}${quoted(name)}: ${python(one, depth + 1)},\n`);
    return rows.length ? `{\n${rows.join("")}${outer}}` : "{}";
  }
  return typeof value === "string" ? quoted(value) : String(value);
}

/** A string as Python reads it: characters beyond the first plane stand as they are. @param {string} text */
function quoted(text) {
  return JSON.stringify(text);
}
