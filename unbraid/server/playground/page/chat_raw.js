// @ts-check
/** What a model really wrote in a turn, live: the prompt that the template made, the output by strand, the tokens. */
import { ask, models, Trouble } from "./api.js";
import { fill, h } from "./dom.js";
import { RawText } from "./raw_text.js";
import { takeApart } from "./state.js";
import { showTokens } from "./tokens.js";

/**
 * What is known of a turn beside its message. Nothing of it is in the link.
 * @typedef {object} Facts
 * @property {number[] | null} ids null where the engine gives text alone
 * @property {number[]} prompt
 * @property {any} body the request
 * @property {string | null} end
 */

/** How much of the prompt a parser needs to see where the output begins. */
const END_OF_PROMPT = 2000;

/** @param {Facts} facts */
export function rawTurn(facts) {
  const place = h("div", { class: "stack" });
  const prompt = h("pre", { class: "grammar prompt", tabIndex: 0, aria: { label: "The prompt" } });
  const output = h("div", { class: "raw", role: "group", tabIndex: 0, aria: { label: "Raw output by strand" } });
  const tokens = h("div", { class: "stack" });
  const actions = h("div", { class: "row" });
  const text = new RawText(output, null);
  const element = h("details", { class: "what", ontoggle: () => element.open && void refresh() }, h("summary", null, "What the model wrote"), place);
  let prompted = "";
  let busy = false;
  let shown = -1;

  async function refresh() {
    if (busy || !element.open) return;
    if (!facts.ids) {
      fill(place, h("p", { class: "dim" }, "The engine gives text and no token ids here. Name its tokenizer to see them: add --tokenizer ORG/REPO to the command that started the server, and keep its other flags."));
      return;
    }
    busy = true;
    try {
      await draw(facts.ids.slice(), facts.end !== null);
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      fill(place, h("p", { class: "bad" }, error.message));
    } finally {
      busy = false;
    }
    if (shown !== (facts.ids?.length ?? 0) + (facts.end === null ? 0 : 0.5)) setTimeout(refresh, 150); // more came meanwhile
  }

  /** @param {number[]} ids @param {boolean} ended */
  async function draw(ids, ended) {
    const model = facts.body.model;
    if (!prompted && facts.prompt.length) prompted = (await ask("spell", { model, ids: facts.prompt })).text;
    const spelled = await ask("spell", { model, ids });
    const tools = facts.body.tools ? JSON.stringify(facts.body.tools, null, 2) : "";
    const output = { format: models.find((one) => one.name === model)?.format ?? "", text: spelled.text, tools, prompt: prompted.slice(-END_OF_PROMPT) || null };
    const parsed = await ask("apart", { ...output, cuts: [], end_of_turn: ended });
    if (!place.hasChildNodes()) {
      fill(place, prompted ? h("details", null, h("summary", null, `The prompt that the template made (${facts.prompt.length} tokens)`), prompt) : null, text.place, tokens, actions);
      prompt.textContent = prompted;
    }
    text.show(spelled.text, [], parsed.events, ended ? parsed.ends.length : parsed.ends.length - 1, Array.from(spelled.text).length);
    shown = ids.length + (ended ? 0.5 : 0);
    if (!ended) return;
    showTokens(tokens, spelled.tokens, ids);
    fill(actions, h("button", { type: "button", onclick: () => takeApart({ ...output }) }, "Take it apart"));
  }
  return { element, refresh };
}
