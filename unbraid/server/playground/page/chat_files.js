// @ts-check
/** Files that go with a message: texts as they are, recordings as what is said in them. */
import { listeners, request, Trouble } from "./api.js";

/** @typedef {{name: string, text: string}} Attached */

const MOST = 200_000;

/** @param {File} file @returns {Promise<Attached>} */
export async function attached(file) {
  if (file.type.startsWith("audio/") || file.type.startsWith("video/")) return { name: file.name, text: await heard(file) };
  const text = await file.text();
  if (text.includes("\u0000") || text.includes("\ufffd")) throw new Trouble(`${file.name} is no text. The models here read text${listeners.length ? " and recordings" : ""}.`);
  if (text.length > MOST) throw new Trouble(`${file.name} has ${text.length} characters; ${MOST} can be attached.`);
  return { name: file.name, text };
}

/** @param {File} file */
async function heard(file) {
  if (!listeners.length) throw new Trouble(`${file.name} is a recording, and this server has no model that transcribes: add --transcription-model whisper-base to the command that started it, and keep its other flags.`);
  const form = new FormData();
  form.append("file", file, file.name);
  return (await (await request("v1/audio/transcriptions", { method: "POST", body: form })).json()).text;
}

/** A message as a model gets it. @param {string} text @param {Attached[]} files */
export function withFiles(text, files) {
  return [...files.map((file) => `${file.name}:\n\n${file.text}`), text].filter(Boolean).join("\n\n");
}
