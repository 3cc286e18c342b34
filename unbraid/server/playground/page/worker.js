// @ts-check
/**
 * The views in the browser: a worker in which Pyodide runs the library.
 *
 * The same Python answers as on the server (`views.py`). The first answer is wanted soon, so only what it needs is
 * loaded before it; the rest comes when a view needs it, or after the first answer.
 */
import { loadPyodide } from "./pyodide/pyodide.mjs";

const HOME = new URL("./", import.meta.url);
const PLACE = "/lib/unbraid";
const NEED_EXTRAS = new Set(["detect", "chunks", "grammars", "walk"]);

/** @param {string} name */
async function fetched(name) {
  const reply = await fetch(new URL(name, HOME));
  if (!reply.ok) throw new Error(`${name}: ${reply.status} ${reply.statusText}`);
  return reply.arrayBuffer();
}

const library = fetched("library.zip");
const python = start();
/** @type {Promise<void> | null} */
let extras = null;

async function start() {
  const pyodide = await loadPyodide({ indexURL: new URL("pyodide/", HOME).href });
  pyodide.unpackArchive(await library, "zip", { extractDir: PLACE });
  pyodide.runPython(`import sys; sys.path.insert(0, "${PLACE}")`);
  const views = pyodide.pyimport("unbraid.server.playground.views");
  return { pyodide, answer: views.answer_in_browser };
}

function loadExtras() {
  extras ??= (async () => {
    const archive = await fetched("extras.zip");
    const { pyodide } = await python;
    pyodide.unpackArchive(archive, "zip", { extractDir: PLACE });
    pyodide.runPython("import importlib; importlib.invalidate_caches()");
  })();
  return extras;
}

self.onmessage = async (/** @type {MessageEvent<{id: number, view: string, body: string}>} */ event) => {
  const { id, view, body } = event.data;
  try {
    const { answer } = await python;
    if (NEED_EXTRAS.has(view) || JSON.parse(body).template) await loadExtras();
    self.postMessage({ id, text: answer(view, body) });
    setTimeout(loadExtras, 2000);
  } catch (error) {
    self.postMessage({ id, text: JSON.stringify({ error: String(error) }) });
  }
};

python.then(
  () => self.postMessage({ ready: true }),
  (error) => self.postMessage({ failed: String(error) }),
);
