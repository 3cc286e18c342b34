// @ts-check
/** Talk: a conversation by voice over `/v1/realtime`, with what both say as text. */
import { config, key, listeners, models } from "./api.js";
import { area, field, fill, h, say, select } from "./dom.js";
import { missing } from "./missing.js";
import { state, write } from "./state.js";
import { listen, RATE, Speaker, toBase64 } from "./talk_sound.js";

/** @param {HTMLElement} place */
export function show(place) {
  const my = state.talk;
  const chatting = models.filter((one) => one.chats);
  const title = h("h1", { class: "sr" }, "Talk");
  if (!config.server || !chatting.length || !listeners.length) {
    const flags = [chatting.length ? "" : "--model smollm2-135m-instruct", listeners.length ? "" : "--transcription-model whisper-base"];
    fill(place, title, missing("Talking needs a server", chatting.length ? "hears" : "answers", flags.filter(Boolean).join(" ")));
    return;
  }
  if (!chatting.some((one) => one.name === my.model)) my.model = (chatting.find((one) => one.speaks) ?? chatting[0]).name;
  /** @type {{socket: WebSocket, context: AudioContext, speaker: Speaker, deaf: () => void} | null} */
  let running = null;
  /** @type {Map<string, HTMLElement>} what was said, by its item */
  const said = new Map();

  const log = h("div", { class: "messages", role: "log", tabIndex: 0, aria: { label: "Conversation" } });
  const now = h("p", { class: "dim", role: "status" });
  const button = h("button", { type: "button", class: "primary", onclick: () => (running ? end("") : void begin()) }, "Start talking");
  const model = select(chatting.map((one) => [one.name, `${one.name}${one.speaks ? "" : " (answers in text)"}`]), my.model, (value) => keep({ model: value }));
  const instructions = area(my.instructions, (value) => keep({ instructions: value }), { rows: 2 });

  /** @param {Partial<typeof my>} change */
  function keep(change) {
    Object.assign(my, change);
    write();
  }

  async function begin() {
    fill(log);
    said.clear();
    const context = new AudioContext();
    try {
      const url = new URL(`v1/realtime?model=${encodeURIComponent(my.model)}`, document.baseURI);
      url.protocol = url.protocol.replace("http", "ws");
      const socket = new WebSocket(url, ["realtime", ...(key.get() ? [`openai-insecure-api-key.${key.get()}`] : [])]);
      const mine = { socket, context, speaker: new Speaker(context), deaf: () => {} };
      running = mine;
      button.textContent = "End the talk";
      now.textContent = "Connecting …";
      socket.onclose = () => running === mine && end("The server has ended the talk.");
      socket.onmessage = ({ data }) => running === mine && take(JSON.parse(data), mine);
      mine.deaf = await listen(context, (piece) => {
        if (!place.isConnected) end("");
        else if (socket.readyState === WebSocket.OPEN) send({ type: "input_audio_buffer.append", audio: toBase64(piece) });
      });
      if (running !== mine) mine.deaf();
    } catch (error) {
      end(`The microphone cannot be used: ${error}. Pages get it on https or localhost, with your permission.`);
    }
  }

  /** @param {string} why */
  function end(why) {
    const ended = running;
    running = null;
    ended?.deaf();
    ended?.socket.close();
    void ended?.context.close();
    button.textContent = "Start talking";
    now.textContent = "";
    say(why);
  }

  /** @param {any} event */
  function send(event) {
    running?.socket.send(JSON.stringify(event));
  }

  /** @param {any} event @param {{speaker: Speaker}} mine */
  function take(event, { speaker }) {
    const kind = event.type;
    if (kind === "session.created") {
      const input = { format: { type: "audio/pcm", rate: RATE }, transcription: { model: listeners[0].name } };
      send({ type: "session.update", session: { type: "realtime", instructions: my.instructions, audio: { input } } });
    } else if (kind === "session.updated") now.textContent = "Speak: the model answers when you pause.";
    else if (kind === "input_audio_buffer.speech_started") {
      now.textContent = "Hears you …";
      for (const { item, heard } of speaker.stop()) send({ type: "conversation.item.truncate", item_id: item, content_index: 0, audio_end_ms: heard });
    } else if (kind === "input_audio_buffer.speech_stopped") now.textContent = "Thinks …";
    else if (kind === "conversation.item.input_audio_transcription.delta") write_("user", event.item_id, event.delta);
    else if (kind === "conversation.item.input_audio_transcription.completed") write_("user", event.item_id, event.transcript, true);
    else if (kind === "response.output_text.delta") write_("assistant", event.item_id, event.delta);
    else if (kind === "response.output_audio_transcript.delta") {
      speaker.begin(event.item_id);
      write_("assistant", event.item_id, event.delta);
    } else if (kind === "response.output_audio.delta") speaker.play(event.item_id, event.delta);
    else if (kind === "conversation.item.truncated") send({ type: "conversation.item.retrieve", item_id: event.item_id });
    else if (kind === "conversation.item.retrieved") interrupt(event.item);
    else if (kind === "response.done") {
      speaker.finish();
      if (event.response.status !== "cancelled") now.textContent = "Speak: the model answers when you pause.";
    }
    else if (kind === "error") say(event.error.message);
  }

  /** Add to what somebody says, or put it right. @param {string} role @param {string} item @param {string} text @param {boolean} [whole] */
  function write_(role, item, text, whole = false) {
    let place = said.get(item);
    if (!place) {
      if (!text) return;
      place = /** @type {HTMLElement} */ (h("div", { class: "said" }));
      said.set(item, place);
      log.append(h("article", { class: `turn ${role}` }, h("header", null, h("h2", { class: "label" }, role === "user" ? "You" : my.model)), place));
    }
    place.textContent = whole ? text : place.textContent + text;
    log.scrollTop = log.scrollHeight;
  }

  /** Show of an answer what was heard. @param {any} item */
  function interrupt(item) {
    const place = said.get(item.id);
    if (!place) return;
    const heard = item.content.map((/** @type {any} */ part) => part.transcript ?? "").join("");
    fill(place, heard, h("span", { class: "dim" }, heard ? " … (interrupted)" : "(interrupted before a word was heard)"));
  }

  fill(
    place,
    title,
    h(
      "div",
      { class: "grid" },
      h("section", { class: "column", aria: { label: "Conversation" } }, h("div", { class: "row" }, button, now), log),
      h("section", { class: "column", aria: { label: "Settings" } }, field("Model", model, chatting.every((one) => one.speaks) ? "" : "Answers are heard where the server has a voice: add --speech-model kokoro to the command that started it, and keep its other flags."), field("Instructions", instructions, "They hold from the next talk on. Headphones keep the model from hearing itself.")),
    ),
  );
}
