// @ts-check
/** Take apart: a raw output, cut anywhere, and what comes of it. */
import { ask, config, models, Trouble } from "./api.js";
import { linkEvents, showChunks, showEvents, showMessage, STRANDS } from "./apart_view.js";
import { chooser } from "./chooser.js";
import { explainIn, quickReference } from "./explain.js";
import { guessed } from "./guess.js";
import { showReport } from "./report.js";
import { showTokens } from "./tokens.js";
import { area, check, field, fill, h, later, save, say, select, tabs } from "./dom.js";
import { MOST_HANDLES, RawText } from "./raw_text.js";
import { state, write } from "./state.js";

/** @typedef {import("./apart_view.js").ParsedEvent} ParsedEvent */
/** @typedef {{title: string, source: string, text: string, tools: any, prompt?: string}} Sample */

/** @type {[string, string][]} */
const MODES = [
  ["tokens", "Tokens"],
  ["characters", "Single characters"],
  ["lines", "Lines"],
  ["whole", "All at once"],
  ["own", "Boundaries of your own"],
];
/** @type {[string, string][]} */
const PANELS = [
  ["message", "Message"],
  ["events", "Events"],
  ["openai", "OpenAI"],
  ["responses", "Responses"],
  ["anthropic", "Anthropic"],
];
/** @type {Record<string, string>} */
const SOURCES = { recorded: "Recorded", template: "Written by the vendor's chat template", grammar: "Written by the format's grammar" };
const MOST_CHUNKS = 20_000;
/** @type {[string, string][]} */
const EXPORTS = [
  ["format", "Save the format as JSON"],
  ["cases", "Save its conformance cases"],
  ["response_template", "Save as response_template"],
];

/** @param {HTMLElement} place */
export async function show(place) {
  const my = state.apart;
  /** @type {{ends: number[], events: ParsedEvent[], same: Record<string, boolean>} | null} */
  let parsed = null;
  /** @type {string[][] | null} */
  let chunks = null;
  let asked = 0;
  let cutting = 0;
  /** @type {{ids: number[], ends: number[]}} of the served model's tokens, if the text is cut into them */
  let tokens = { ids: [], ends: [] };
  let timer = 0;
  /** @type {Set<string>} */
  const open = new Set();

  const raw = h("div", { class: "raw", role: "group", aria: { label: "Raw output by strand, with the boundaries of chunks" } });
  const text = new RawText(raw, (cuts, done) => {
    my.cuts = cuts;
    my.mode = how.value = "own";
    if (done) void parse();
  });
  const badge = h("p", { class: "badge", role: "status" });
  const panel = h("div", { class: "panel", id: "panel", role: "tabpanel", tabIndex: 0 });
  const input = area(my.text, (value) => {
    own();
    my.text = value;
    my.step = null;
    if (pasted && !my.chosen && value.trim()) void guess();
    else void recut();
    pasted = false;
  }, { rows: 7, class: "mono" });
  let pasted = false;
  input.addEventListener("paste", () => (pasted = true));
  const guesses = h("div", { class: "guesses", role: "status" });
  const picks = h("select", { onchange: () => pick(Number(picks.value)) });
  /** @type {Sample[]} */
  let samples = [];

  // What can be set

  const tools = area(my.tools, (value) => set({ tools: value, sampleTools: false }), { rows: 6, class: "mono" });
  const prompt = h("input", { type: "text", value: my.prompt ?? "", placeholder: "the format's own", oninput: later(() => set({ prompt: prompt.value || null, sample: false }), 200) });
  const called = h("span", { class: "dim" });
  const options = h(
    "details",
    { class: "options" },
    h("summary", null, "Tools and options ", called),
    h(
      "div",
      { class: "stack" },
      field("Tools, as JSON", tools, "A call to any other name is text. Empty: every name is a tool."),
      field("End of the prompt", prompt, "Says where the output begins, as in <think>."),
      check("Emit calls to unknown tools", my.emit, (value) => set({ emit: value })),
      check("Take reasoning apart from the answer", my.separate, (value) => set({ separate: value })),
      check("The model ended its turn (otherwise it was cut off)", my.ended, (value) => set({ ended: value })),
    ),
  );

  /** @param {Partial<typeof my>} change */
  function set(change) {
    Object.assign(my, change);
    nameTools();
    void parse();
  }

  /** The text is somebody's own from now on: what came with a sample goes. */
  function own() {
    if (my.sample) my.prompt = null;
    if (my.sampleTools) my.tools = "";
    Object.assign(my, { sample: false, sampleTools: false });
    tools.value = my.tools;
    prompt.value = my.prompt ?? "";
    nameTools();
  }

  /** Say which calls are calls where the tools are folded away. */
  function nameTools() {
    const names = [...my.tools.matchAll(/"name"\s*:\s*"([^"]+)"/g)].map(([, name]) => name);
    const some = `${names.slice(0, 3).join(", ")}${names.length > 3 ? ` and ${names.length - 3} more` : ""}`;
    called.textContent = my.tools.trim() ? `· calls to ${some || "none"}` : "· every name is a call";
  }

  // Chunks

  const how = select(MODES, my.mode, (value) => {
    my.mode = value;
    my.step = null;
    void recut();
  });
  const slider = h("input", { type: "range", min: 0, max: 1, aria: { label: "How many chunks have come" }, oninput: () => go(Number(slider.value)) });
  const count = h("span", { class: "count dim" });
  const speed = select([["4", "4 a second"], ["15", "15 a second"], ["60", "60 a second"]], "15", () => timer && play());
  speed.setAttribute("aria-label", "Speed");
  const player = h("button", { type: "button", class: "primary", onclick: () => (timer ? pause() : play()) }, "Play");
  const controls = h(
    "div",
    { class: "row player", role: "group", aria: { label: "Chunks" } },
    h("button", { type: "button", onclick: () => go(0), aria: { label: "To the beginning" } }, "|◀"),
    h("button", { type: "button", onclick: () => go(step() - 1), aria: { label: "One chunk back" } }, "◀"),
    player,
    h("button", { type: "button", onclick: () => go(step() + 1), aria: { label: "One chunk on" } }, "▶"),
    speed,
    slider,
    count,
  );

  function step() {
    const all = parsed?.ends.length ?? 0;
    return my.step === null ? all : Math.min(my.step, all);
  }

  /** @param {number} to */
  function go(to) {
    const all = parsed?.ends.length ?? 0;
    const next = Math.min(all, Math.max(0, to));
    my.step = next === all ? null : next;
    render();
    write();
  }

  function play() {
    pause();
    if (step() >= (parsed?.ends.length ?? 0)) go(0);
    player.textContent = "Pause";
    timer = window.setInterval(() => {
      if (!place.isConnected || step() >= (parsed?.ends.length ?? 0)) pause();
      else go(step() + 1);
    }, 1000 / Number(speed.value));
  }

  function pause() {
    clearInterval(timer);
    timer = 0;
    player.textContent = "Play";
  }

  function shuffle() {
    const length = Array.from(my.text).length;
    const wanted = Math.min(length - 1, Math.max(1, Math.round(length / (3 + 12 * Math.random()))));
    /** @type {Set<number>} */
    const cuts = new Set();
    while (cuts.size < wanted && length > 1) cuts.add(1 + Math.floor(Math.random() * (length - 1)));
    my.cuts = [...cuts].sort((one, other) => one - other);
    my.mode = how.value = "own";
    my.step = null;
    void parse();
  }

  /** Cut the text anew, as the mode says, and parse it. */
  async function recut() {
    const mine = (cutting += 1);
    const chars = Array.from(my.text);
    tokens = { ids: [], ends: [] };
    if (my.mode === "characters") my.cuts = chars.slice(1, MOST_CHUNKS).map((_, at) => at + 1);
    else if (my.mode === "lines") my.cuts = chars.flatMap((char, at) => (char === "\n" ? [at + 1] : []));
    else if (my.mode === "whole") my.cuts = [];
    else if (my.mode === "own") my.cuts = my.cuts.filter((at) => at < chars.length);
    else {
      const model = models.find((one) => one.tokens)?.name ?? "";
      const found = await trying(() => ask("cut", { text: my.text, model }));
      if (mine !== cutting) return; // the text has changed meanwhile
      if (found) my.cuts = found.cuts;
      if (found?.ids.length === found?.cuts.length + 1) tokens = { ids: found.ids, ends: [...found.cuts, chars.length] };
      const whose = found?.by ? `Tokens of ${found.by}` : "About where a tokenizer cuts";
      how.title = whose;
      MODES[0][1] = whose;
      how.options[0].textContent = whose;
    }
    await parse();
  }

  function body() {
    const { format, template, text, prompt, cuts, emit, separate, ended } = my;
    return { format, template, text, prompt, cuts, tools: my.tools, emit_unknown: emit, separate_reasoning: separate, end_of_turn: ended };
  }

  async function parse() {
    const mine = (asked += 1);
    const found = await trying(() => ask("apart", body()));
    if (mine !== asked) return; // something newer was asked meanwhile
    parsed = found;
    chunks = null;
    if (!found) {
      nothing();
      write();
      return;
    }
    if (found.warnings) say(found.warnings.join(" "));
    render();
    write();
  }

  /**
   * @template T
   * @param {() => Promise<T>} work @returns {Promise<T | null>}
   */
  async function trying(work) {
    try {
      const found = await work();
      say("");
      return found;
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      say(error.message);
      return null;
    }
  }

  /** Save the format as a file. @param {string} kind */
  async function keep(kind) {
    const made = await trying(() => ask("export", { format: my.format, template: my.template, kind }));
    if (!made) return;
    save(made.text, made.file);
    if (made.unread.length) say(`${made.file} does not read all that the format reads: ${made.unread.join("; ")}.`);
  }

  // What is shown

  /** What was shown is true no longer. */
  function nothing() {
    pause();
    text.empty = "No result: see the message above.";
    text.show("", [], [], 0, 0);
    badge.textContent = count.textContent = "";
    fill(panel, h("p", { class: "dim" }, "No result: see the message above."));
  }

  function render() {
    if (!parsed) return;
    text.empty = "Nothing here yet: paste an output, or pick one.";
    const { ends, events, same } = parsed;
    const at = step();
    const fed = at === 0 ? 0 : ends[at - 1];
    text.show(my.text, my.cuts, events, at, fed);
    slider.max = String(ends.length);
    slider.value = String(at);
    const number = Math.min(at, ends.length - 1);
    count.textContent = at === ends.length ? `${ends.length - 1} chunks, and the end` : `${number} of ${ends.length - 1} chunks`;
    slider.setAttribute("aria-valuetext", count.textContent);
    const good = same.whole && same.characters;
    badge.className = `badge ${good ? "good" : "bad"}`;
    badge.textContent = good
      ? `✓ Same result: in these ${ends.length - 1} chunks, all at once, and in single characters`
      : "✗ The result depends on the chunks: this is a bug. Copy the link and report it";
    void renderPanel();
  }

  async function renderPanel() {
    if (!parsed) return;
    panel.setAttribute("aria-labelledby", `panel-${my.panel}`);
    if (my.panel === "message") showMessage(panel, parsed.events, step(), open);
    else if (my.panel === "events") showEvents(panel, parsed.events, step());
    else if (my.panel === "tokens") await renderTokens();
    else {
      const dialect = my.panel;
      if (!chunks) {
        const mine = asked;
        const found = await trying(() => ask("chunks", { ...body(), dialect }));
        if (!found || mine !== asked || my.panel !== dialect) return;
        chunks = found.steps;
      }
      showChunks(panel, chunks ?? [], step());
    }
  }

  async function renderTokens() {
    const mine = asked;
    const model = models.find((one) => one.tokens)?.name ?? "";
    const found = await trying(async () => {
      const { ids } = await ask("cut", { text: my.text, model });
      return { ids, ...(await ask("spell", { model, ids })) };
    });
    if (found && mine === asked && my.panel === "tokens") showTokens(panel, found.tokens, found.ids);
  }

  /** The id of the token at a place. @param {number} at */
  function tokenAt(at) {
    return my.mode === "tokens" ? (tokens.ids[tokens.ends.findIndex((end) => at < end)] ?? null) : null;
  }

  /** Find the format of what was pasted. */
  async function guess() {
    const text = my.text;
    const format = await trying(() => guessed(guesses, text, useFormat));
    if (text !== my.text) return; // something newer was typed meanwhile
    if (format) choose.use(format);
    void recut();
    void loadSamples();
    void reference.changed();
  }

  /** @param {string} name */
  function useFormat(name) {
    my.chosen = true;
    choose.use(name);
    void recut();
    void loadSamples();
    void reference.changed();
  }

  // Samples

  async function loadSamples() {
    const found = await trying(() => ask("samples", { format: my.format, template: my.template }));
    samples = found?.samples ?? [];
    const groups = Object.keys(SOURCES).map((source) => {
      const some = samples.flatMap((one, at) => (one.source === source ? [h("option", { value: String(at) }, one.title)] : []));
      return some.length ? h("optgroup", { label: SOURCES[source] }, some) : null;
    });
    fill(picks, h("option", { value: "-1" }, "Pick an output …"), groups);
    picks.value = String(samples.findIndex((one) => one.text === my.text));
    return samples;
  }

  /** @param {number} number */
  function pick(number) {
    const sample = samples[number];
    if (!sample) return;
    if (!my.tools.trim() || my.sampleTools) {
      Object.assign(my, { tools: sample.tools ? JSON.stringify(sample.tools, null, 2) : "", sampleTools: true });
    }
    Object.assign(my, { text: sample.text, sample: true, prompt: sample.prompt ?? null, step: null });
    if (my.mode === "own") my.mode = "tokens";
    how.value = my.mode;
    input.value = my.text;
    tools.value = my.tools;
    prompt.value = my.prompt ?? "";
    nameTools();
    void recut();
  }

  const reference = quickReference(() => my);
  const explained = h("div", { class: "explained card" });
  const choose = await chooser(my, async () => {
    my.chosen = true;
    fill(guesses);
    void reference.changed();
    await loadSamples();
    if (samples.length && (my.sample || !my.text)) {
      picks.value = "0";
      pick(0);
    } else void recut();
  });
  const legend = h("ul", { class: "legend", aria: { label: "Strands" } }, Object.entries(STRANDS).map(([name, label]) => h("li", null, h("span", { class: `seg ${name}` }, label))));
  const panels = models.some((one) => one.tokens) ? [...PANELS, /** @type {[string, string]} */ (["tokens", "Tokens"])] : PANELS;
  if (!panels.some(([name]) => name === my.panel)) my.panel = "message";
  const grid = h(
    "div",
    { class: "grid" },
    h(
      "section",
      { class: "column", aria: { label: "The output" } },
      h("div", { class: "two" }, choose.element, field("Recorded outputs", picks)),
      field("Raw output", input),
      guesses,
      h("div", { class: "row" }, h("button", { type: "button", onclick: () => void guess() }, "Which format is it?")),
      options,
      h(
        "div",
        { class: "row wrap" },
        field("Cut into", how),
        h("button", { type: "button", onclick: shuffle }, "Shuffle"),
        h("button", { type: "button", onclick: () => halve() }, "Add a boundary"),
      ),
      controls,
      legend,
      raw,
      badge,
      explained,
      h("p", { class: "hint" }, `Drag a boundary, or double-click to add one. By keyboard: left and right move it, up and down go to the others. With more than ${MOST_HANDLES} they are not shown.`),
      h(
        "div",
        { class: "row wrap", role: "group", aria: { label: "Export" } },
        h("button", { type: "button", onclick: () => void showReport(my, parsed) }, "Export as bug report"),
        EXPORTS.map(([kind, title]) => h("button", { type: "button", onclick: () => void keep(kind) }, title)),
      ),
      reference.look,
    ),
    h("section", { class: "column", aria: { label: "What comes of it" } }, tabs("What comes of it", panels, my.panel, (name) => {
      my.panel = name;
      chunks = null;
      write();
      void renderPanel();
    }, undefined, "panel"), panel),
  );

  /** A boundary in the middle of the longest chunk: for those who have no mouse. */
  function halve() {
    const edges = [0, ...my.cuts, Array.from(my.text).length];
    const sizes = edges.slice(1).map((end, at) => end - edges[at]);
    const longest = sizes.indexOf(Math.max(...sizes));
    if (sizes[longest] < 2) return;
    my.cuts = [...my.cuts, edges[longest] + Math.floor(sizes[longest] / 2)].sort((one, other) => one - other);
    my.mode = how.value = "own";
    void parse().then(() => text.focus(longest));
  }

  linkEvents(grid);
  explainIn(grid, explained, () => parsed, tokenAt);
  nameTools();
  fill(place, h("h1", { class: "sr" }, "Take apart"), introduction(), grid);
  if (my.text || my.template) {
    const first = my.mode === "own" || my.cuts.length ? parse() : recut();
    await Promise.all([first, loadSamples()]);
  } else {
    await loadSamples();
    picks.value = "0";
    pick(0);
  }
}

function introduction() {
  const where = config.server ? "goes to this server alone" : "never leaves your browser";
  return h(
    "p",
    { class: "intro" },
    "Paste what a language model wrote, and see which characters are its answer, its reasoning, its tool calls or markup. ",
    `The result is the same however the output is cut into chunks, and what you type ${where}. `,
    config.documentation ? h("a", { href: config.documentation, rel: "noopener" }, "Documentation") : h("a", { href: "playground/help.html" }, "Documentation"),
  );
}
