// @ts-check
/** Constrain: what a request allows a model to write, in every syntax, and character by character. */
import { ask, Trouble } from "./api.js";
import { chooser, sampleTools } from "./chooser.js";
import { area, check, copy, field, fill, h, say, select, tabs } from "./dom.js";
import { state, write } from "./state.js";

/** @typedef {{name: string, grammar?: string, unenforced?: [string, string][], error?: string}} GrammarSyntax */
/** @typedef {{next: number, forced: string, may_end: boolean}} Place */

/** @type {[string, string][]} */
const SYNTAXES = [
  ["gbnf", "GBNF"],
  ["lark", "Lark"],
  ["ebnf", "EBNF"],
  ["structural_tag", "Structural tag"],
  ["regex", "Regex"],
];
/** @type {Record<string, string>} */
const ENGINES = {
  gbnf: "for llama.cpp",
  lark: "for llguidance, and vLLM with it",
  ebnf: "for xgrammar: SGLang and vLLM",
  structural_tag: "for xgrammar: SGLang and vLLM",
  regex: "for anything that knows regular expressions",
};

/** @param {HTMLElement} place */
export async function show(place) {
  const my = state.constrain;
  if (!my.tools) my.tools = await sampleTools();
  /** @type {GrammarSyntax[]} */
  let syntaxes = [];
  /** @type {{places: Place[], labels: string[][], refused: number | null} | null} */
  let walked = null;
  let asked = 0;

  const choices = h("select", { onchange: () => set({ choice: choices.value }) });
  const tools = area(my.tools, (value) => {
    my.tools = value;
    offerChoices();
    void update();
  }, { rows: 14 });
  const answer = area(my.answer, (value) => set({ answer: value }), { rows: 3, placeholder: '{"type": "json_schema", "json_schema": {"schema": {…}}}' });
  const reasoning = select([["", "may come"], ["true", "must come first"], ["false", "must not come"]], my.reasoning, (value) => set({ reasoning: value }));
  const panel = h("div", { class: "panel", id: "syntax", role: "tabpanel", tabIndex: 0 });
  const typed = area(my.typed, (value) => {
    my.typed = value;
    void walk();
  }, { rows: 5 });
  const echo = h("div", { class: "echo card", aria: { label: "What you typed, as far as it is allowed" }, role: "group" });
  const next = h("div", { class: "stack", role: "status" });

  function offerChoices() {
    /** @type {[string, string][]} */
    const found = [["auto", "auto: calls may come"], ["required", "required: a call must come"], ["none", "none: no call may come"]];
    try {
      for (const tool of JSON.parse(my.tools || "[]")) {
        const name = tool.function?.name ?? tool.custom?.name ?? tool.name;
        if (name) found.push([JSON.stringify({ type: "function", function: { name } }), `the tool ${name}`]);
      }
    } catch {
      // the server says what is wrong with it
    }
    fill(choices, found.map(([value, label]) => h("option", { value }, label)));
    choices.value = my.choice;
    if (choices.selectedIndex < 0) choices.value = my.choice = "auto";
  }

  /** @param {Partial<typeof my>} change */
  function set(change) {
    Object.assign(my, change);
    void update();
  }

  function body() {
    const choice = my.choice.startsWith("{") ? JSON.parse(my.choice) : my.choice;
    const thinks = my.reasoning === "" ? null : my.reasoning === "true";
    return {
      ...{ format: my.format, template: my.template, tools: my.tools, tool_choice: choice, response_format: my.answer },
      ...{ parallel_tool_calls: my.parallel ? null : false, reasoning: thinks },
    };
  }

  async function update() {
    const mine = (asked += 1);
    write();
    try {
      const found = await ask("grammars", body());
      if (mine !== asked) return;
      syntaxes = found.syntaxes;
      say(found.warnings ? found.warnings.join(" ") : "");
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      syntaxes = [];
      say(error.message);
    }
    showGrammar();
    await walk();
  }

  function showGrammar() {
    panel.setAttribute("aria-labelledby", `syntax-${my.syntax}`);
    const found = syntaxes.find((one) => one.name === my.syntax);
    if (!found) fill(panel, h("p", { class: "dim" }, "No grammar: see the message above."));
    else if (found.error !== undefined) fill(panel, h("p", { class: "bad" }, `This syntax cannot say it: ${found.error}`));
    else {
      const lost = found.unenforced ?? [];
      fill(
        panel,
        lost.length
          ? h("section", { class: "part diagnostics" }, h("h2", { class: "label" }, "What this syntax does not enforce"), h("ul", null, lost.map(([where, what]) => h("li", null, h("code", null, where), ` ${what}`))))
          : h("p", { class: "dim small" }, ENGINES[found.name], h("span", { class: "pill good" }, "enforces all of it")),
        h("pre", { class: "grammar", tabIndex: 0, aria: { label: `Grammar: ${found.name}` } }, found.grammar ?? ""),
        h("div", { class: "row" }, h("button", { type: "button", onclick: () => copy(found.grammar ?? "", "The grammar") }, "Copy the grammar")),
      );
    }
  }

  async function walk() {
    const mine = asked;
    write();
    try {
      const found = await ask("walk", { ...body(), text: my.typed });
      if (mine !== asked || found === null) return;
      walked = found;
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      walked = null;
      fill(next, h("p", { class: "bad" }, error.message));
      fill(echo);
      return;
    }
    showNext();
  }

  /** What may come where the cursor is. */
  function showNext() {
    if (!walked) return;
    const chars = Array.from(my.typed);
    const { places, labels, refused } = walked;
    const caret = Array.from(typed.value.slice(0, typed.selectionStart ?? typed.value.length)).length;
    const at = Math.min(caret, places.length - 1);
    fill(
      echo,
      chars.map((char, number) => {
        const kind = refused !== null && number >= refused ? "refused" : "";
        return h("span", { class: `${kind} ${number === at ? "here" : ""}` }, char === "\n" ? "⏎\n" : char);
      }),
      chars.length ? null : h("span", { class: "dim" }, "Nothing typed yet."),
    );
    const here = places[at];
    const wrong = refused !== null && refused < chars.length ? `Character ${refused + 1} (${JSON.stringify(chars[refused])}) is not allowed.` : "";
    fill(
      next,
      h("p", null, h("strong", null, `After ${at} character${at === 1 ? "" : "s"} may come`), here.may_end ? h("span", { class: "pill good" }, "or the end") : null),
      h("ul", { class: "chips" }, labels[here.next].map((label) => h("li", null, label))),
      here.forced
        ? h("p", null, labels[here.next].length > 1 ? "This must come, and whitespace may before it: " : "This must come: ", h("code", { class: "chip" }, here.forced), " ", h("button", { type: "button", onclick: () => insert(at, here.forced) }, "Insert it"))
        : null,
      wrong ? h("p", { class: "bad" }, wrong) : null,
    );
  }

  /** @param {number} at @param {string} text */
  function insert(at, text) {
    const chars = Array.from(typed.value);
    my.typed = typed.value = [...chars.slice(0, at), text, ...chars.slice(at)].join("");
    typed.focus();
    const end = [...chars.slice(0, at), text].join("").length;
    typed.setSelectionRange(end, end);
    void walk();
  }

  for (const kind of ["keyup", "click", "focus"]) typed.addEventListener(kind, () => showNext());
  offerChoices();
  const choose = await chooser(my, () => void update());
  fill(
    place,
    h("h1", { class: "sr" }, "Constrain"),
    h(
      "div",
      { class: "grid" },
      h(
        "section",
        { class: "column", aria: { label: "The request" } },
        choose.element,
        field("Tools, as JSON", tools, 'The arguments of a tool with "strict": true follow its schema.'),
        h("div", { class: "two" }, field("tool_choice", choices), field("Reasoning", reasoning)),
        check("Several calls in one turn (parallel_tool_calls)", my.parallel, (value) => set({ parallel: value })),
        field("response_format, as JSON", answer),
      ),
      h(
        "section",
        { class: "column", aria: { label: "The grammar" } },
        tabs("Syntaxes", SYNTAXES, my.syntax, (name) => {
          my.syntax = name;
          write();
          showGrammar();
        }, undefined, "syntax"),
        panel,
        h("h2", null, "Try it"),
        field("Type what a model would write", typed),
        echo,
        next,
      ),
    ),
  );
  await update();
}
