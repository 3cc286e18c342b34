// @ts-check
/** Transcribe: a recording, from a file or the microphone, as text with times; click a word to hear it. */
import { ask, config, events, listeners, request, Trouble } from "./api.js";
import { fill, field, h, save, say } from "./dom.js";
import { state, write } from "./state.js";

/** @typedef {{word: string, start: number, end: number, probability: number}} Word */
/** @typedef {{start: number, end: number, text: string, words?: Word[]}} Segment */

/** @param {HTMLElement} place */
export function show(place) {
  const my = state.transcribe;
  if (!config.server || !listeners.length) {
    const how = config.server ? "unbraid serve --transcription-model whisper-base" : "pip install 'unbraid[server,speech]'\nunbraid serve --transcription-model whisper-base";
    const why = config.server ? "This server has no model that transcribes. Start it with one:" : "This page has no server behind it. To transcribe, start one, and open the address that it says:";
    fill(place, h("h1", { class: "sr" }, "Transcribe"), h("div", { class: "card stack" }, h("h2", null, "Transcription needs a server"), h("p", null, why), h("pre", null, how)));
    return;
  }
  /** @type {Segment[]} */
  let segments = [];
  /** @type {{language: string | null, text: string} | null} */
  let done = null;
  let name = "recording";
  /** @type {AbortController | null} */
  let running = null;
  /** @type {MediaRecorder | null} */
  let recorder = null;
  let until = 0;

  const audio = h("audio", { controls: true, hidden: true, aria: { label: "The recording" } });
  audio.addEventListener("timeupdate", () => {
    if (until && audio.currentTime >= until) {
      until = 0;
      audio.pause();
    }
    for (const button of list.querySelectorAll("button[data-start]")) {
      const on = audio.currentTime >= Number(button.dataset.start) && audio.currentTime < Number(button.dataset.end);
      button.classList.toggle("now", on);
    }
  });
  const list = h("ol", { class: "segments", aria: { label: "Segments", live: "polite" } });
  const head = h("p", { role: "status" });
  const file = h("input", { type: "file", accept: "audio/*,video/*", onchange: () => file.files?.[0] && take(file.files[0], file.files[0].name) });
  const record = h("button", { type: "button", onclick: () => (recorder ? recorder.stop() : listen()) }, "Record from the microphone");
  const stop = h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Stop");
  const language = h("input", { type: "text", value: my.language, placeholder: "detected", maxlength: "16", oninput: () => {
    my.language = language.value.trim();
    write();
  } });
  const saves = h("div", { class: "row wrap", role: "group", aria: { label: "Save" }, hidden: true }, ["txt", "srt", "vtt", "json"].map((kind) => h("button", { type: "button", onclick: () => keep(kind) }, `Save as ${kind}`)));
  const drop = h("div", { class: "drop" }, h("p", null, "Drop a recording here"), field("or choose a file", file), h("div", { class: "row" }, record, stop));
  drop.addEventListener("dragover", (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (/** @type {DragEvent} */ event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const dropped = event.dataTransfer?.files[0];
    if (dropped) void take(dropped, dropped.name);
  });

  async function listen() {
    try {
      const sound = await navigator.mediaDevices.getUserMedia({ audio: true });
      /** @type {Blob[]} */
      const parts = [];
      recorder = new MediaRecorder(sound);
      recorder.ondataavailable = (event) => parts.push(event.data);
      recorder.onstop = () => {
        const type = recorder?.mimeType ?? "audio/webm";
        sound.getTracks().forEach((track) => track.stop());
        recorder = null;
        record.textContent = "Record from the microphone";
        record.classList.remove("primary");
        void take(new Blob(parts, { type }), `recording.${type.includes("mp4") ? "m4a" : type.includes("ogg") ? "ogg" : "webm"}`);
      };
      recorder.start();
      const begun = performance.now();
      const tell = () => {
        if (recorder) record.textContent = `End the recording (${Math.floor((performance.now() - begun) / 1000)} s)`;
        else clearInterval(ticking);
      };
      const ticking = setInterval(tell, 250);
      tell();
      record.classList.add("primary");
    } catch (error) {
      say(`The microphone cannot be used: ${error}. Pages get it on https or localhost, with your permission.`);
    }
  }

  /** @param {Blob} sound @param {string} called */
  async function take(sound, called) {
    running?.abort();
    const mine = (running = new AbortController());
    name = called.replace(/\.[^.]*$/, "") || "recording";
    segments = [];
    done = null;
    if (audio.src) URL.revokeObjectURL(audio.src);
    audio.src = URL.createObjectURL(sound);
    audio.hidden = false;
    saves.hidden = true;
    stop.hidden = false;
    head.textContent = "Listening …";
    fill(list);
    const form = new FormData();
    form.append("file", sound, called);
    for (const [key, value] of [["stream", "true"], ["response_format", "verbose_json"]]) form.append(key, value);
    if (listeners[0].words) form.append("timestamp_granularities[]", "word");
    if (my.language) form.append("language", my.language);
    try {
      const reply = await request("v1/audio/transcriptions", { method: "POST", body: form, signal: mine.signal });
      for await (const event of events(reply)) {
        if (event.error) throw new Trouble(event.error.message);
        if (event.type === "transcript.text.segment") {
          segments.push(event);
          list.append(shown(event));
        } else if (event.type === "transcript.text.done") done = event;
      }
      head.textContent = done ? `Language: ${done.language ?? "not said"} · ${segments.length} segment${segments.length === 1 ? "" : "s"}` : "It ended early.";
      if (done && !done.text) head.textContent = "Nobody says anything in it.";
      saves.hidden = !done;
      say("");
    } catch (error) {
      head.textContent = "";
      if (mine.signal.aborted) head.textContent = "Stopped.";
      else if (error instanceof Trouble) say(error.message);
      else throw error;
    } finally {
      if (running === mine) {
        running = null;
        stop.hidden = true;
      }
    }
  }

  /** @param {Segment} segment */
  function shown(segment) {
    const words = segment.words?.length ? segment.words : [{ word: segment.text, start: segment.start, end: segment.end, probability: 1 }];
    return h(
      "li",
      null,
      h("span", { class: "times" }, `${clock(segment.start)} – ${clock(segment.end)}`),
      h("span", null, words.map((word) => h("button", { type: "button", data: { start: word.start, end: word.end }, title: `${clock(word.start)}, ${Math.round(word.probability * 100)}% sure`, onclick: () => hear(word) }, word.word))),
    );
  }

  /** @param {Word} word */
  function hear(word) {
    audio.currentTime = word.start;
    until = word.end;
    void audio.play();
  }

  /** @param {string} kind */
  async function keep(kind) {
    if (!done) return;
    try {
      if (kind === "txt") save(`${done.text}\n`, `${name}.txt`);
      else if (kind === "json") save(JSON.stringify({ ...done, segments: segments.map(({ start, end, text, words }) => ({ start, end, text, words })) }, null, 2), `${name}.json`);
      else save((await ask("save", { kind, segments })).text, `${name}.${kind}`);
    } catch (error) {
      if (!(error instanceof Trouble)) throw error;
      say(error.message);
    }
  }

  fill(
    place,
    h("h1", { class: "sr" }, "Transcribe"),
    h("div", { class: "grid" }, h("section", { class: "column", aria: { label: "The recording" } }, drop, field("Language", language, "A code such as de. Empty: it is detected."), audio), h("section", { class: "column", aria: { label: "The transcript" } }, head, list, saves)),
  );
}

/** @param {number} seconds */
function clock(seconds) {
  const whole = Math.floor(seconds / 60);
  return `${whole}:${(seconds - 60 * whole).toFixed(2).padStart(5, "0")}`;
}
