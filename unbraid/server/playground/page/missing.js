// @ts-check
/** What to do where a view needs a server, or a server with another model. */
import { config } from "./api.js";
import { h } from "./dom.js";

const BOTH = "unbraid serve --model smollm2-135m-instruct --transcription-model whisper-base";

/**
 * @param {string} title @param {string} does what the missing model does @param {string} flag the flag that names one
 */
export function missing(title, does, flag) {
  const told = config.server
    ? [
        h("p", null, `This server has no model that ${does}. Add this to the command that started it, and keep its other flags:`),
        h("pre", null, flag),
        h("p", null, "A server that names one model has no other. This one chats and transcribes:"),
        h("pre", null, BOTH),
      ]
    : [
        h("p", null, "This page has no server behind it. Start one that chats and transcribes, and open the address that it says:"),
        h("pre", null, `pip install 'unbraid[server,speech]'\n${BOTH}`),
      ];
  return h("div", { class: "card stack" }, h("h2", null, title), told);
}
