// @ts-check
/**
 * The views in the browser: a worker in which Pyodide runs the library.
 *
 * The same Python answers as on the server (`views.py`). It does not start here: it goes on from the memory of one that
 * has started and answered (`snapshot.bin`, which `make site` made).
 */
import { loadPyodide } from "./pyodide/pyodide.mjs";

const HOME = new URL("./", import.meta.url);
/** Views that need msgspec, which is compiled, and so cannot be part of the memory. */
const NEED_MSGSPEC = new Set(["chunks"]);

/** @param {string} name */
async function fetched(name) {
  const reply = await fetch(new URL(name, HOME));
  if (!reply.ok) throw new Error(`${name}: ${reply.status} ${reply.statusText}`);
  return reply;
}

/** @param {string} name */
async function inflated(name) {
  const { body } = await fetched(name);
  const whole = /** @type {ReadableStream<any>} */ (body).pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(whole).arrayBuffer());
}

const library = fetched("library.zip").then((reply) => reply.arrayBuffer());
const python = start();
/** @type {Promise<void> | null} */
let msgspec = null;

async function start() {
  const _loadSnapshot = await inflated("snapshot.bin");
  const pyodide = await loadPyodide({ indexURL: new URL("pyodide/", HOME).href, _loadSnapshot });
  pyodide.FS.writeFile("/lib/library.zip", new Uint8Array(await library)); // memory holds no files
  return { pyodide, answer: pyodide.globals.get("answer_in_browser") };
}

function loadMsgspec() {
  msgspec ??= (async () => {
    const archive = await (await fetched("msgspec.zip")).arrayBuffer();
    const { pyodide } = await python;
    pyodide.unpackArchive(archive, "zip", { extractDir: "/lib/compiled" });
    pyodide.runPython("import importlib; importlib.invalidate_caches()");
  })();
  return msgspec;
}

self.onmessage = async (/** @type {MessageEvent<{id: number, view: string, body: string}>} */ event) => {
  const { id, view, body } = event.data;
  try {
    const { answer } = await python;
    if (NEED_MSGSPEC.has(view)) await loadMsgspec();
    self.postMessage({ id, text: answer(view, body) });
  } catch (error) {
    self.postMessage({ id, text: JSON.stringify({ error: String(error) }) });
  }
};

python.then(
  () => self.postMessage({ ready: true }),
  (error) => self.postMessage({ failed: String(error) }),
);
