/**
 * Starts Python as the static site has it, has it answer what the page asks first, and keeps its memory in a file.
 *
 *     node snapshot.mjs FOLDER_OF_THE_PAGE FILE
 *
 * Files are not part of the memory: the page puts `library.zip` at the same place (`page/worker.js`), since modules that
 * were not imported here are imported from it there. Nothing compiled may be imported here.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const WARM_UP = `
import json
import sys

sys.path[:0] = ["/lib/library.zip", "/lib/compiled"]

from unbraid.server.playground.views import answer_in_browser

answer_in_browser("formats", "{}")
for sample in json.loads(answer_in_browser("samples", '{"format": "qwen3"}'))["samples"]:
    text = sample["text"]
    cuts = json.loads(answer_in_browser("cut", json.dumps({"text": text})))["cuts"]
    answer_in_browser("apart", json.dumps({**sample, "format": "qwen3", "cuts": cuts}))
`;

const [page, target] = process.argv.slice(2);
const pyodide = join(page, "pyodide");
const { loadPyodide } = await import(pathToFileURL(join(pyodide, "pyodide.mjs")).href);
const python = await loadPyodide({ indexURL: `${pyodide}/`, _makeSnapshot: true });
python.FS.writeFile("/lib/library.zip", new Uint8Array(await readFile(join(page, "library.zip"))));
python.runPython(WARM_UP);
await writeFile(target, python.makeMemorySnapshot());
