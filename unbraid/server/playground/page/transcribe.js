// @ts-check
/** Transcribe: a recording, from a file or the microphone, as text with times; click a word to hear it. */
import { ask, config, events, listeners, request, Trouble } from "./api.js";
import { copy, fill, field, h, save, say } from "./dom.js";
import { missing } from "./missing.js";
import { state, write } from "./state.js";

/** @typedef {{word: string, start: number, end: number, probability: number}} Word */
/** @typedef {{start: number, end: number, text: string, words?: Word[]}} Segment */

/** @param {HTMLElement} place */
export function show(place) {
  const my = state.transcribe;
  if (!config.server || !listeners.length) {
    fill(place, h("h1", { class: "sr" }, "Transcribe"), missing("Transcription needs a server", "transcribes", "--transcription-model whisper-base"));
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
    for (const button of list.querySelectorAll("[data-start]")) {
      const on = audio.currentTime >= Number(button.dataset.start) && audio.currentTime < Number(button.dataset.end);
      button.classList.toggle("now", on);
    }
  });
  const list = h("ol", { class: "segments", aria: { label: "Segments", live: "polite" }, onkeydown: key });
  const head = h("p", { role: "status" });
  const file = h("input", { type: "file", accept: "audio/*,video/*", onchange: () => file.files?.[0] && take(file.files[0], file.files[0].name) });
  const record = h("button", { type: "button", onclick: () => (recorder ? recorder.stop() : listen()) }, "Record from the microphone");
  const stop = h("button", { type: "button", hidden: true, onclick: () => running?.abort() }, "Stop");
  const language = h("input", { type: "text", value: my.language, placeholder: "detected", maxlength: "16", oninput: () => {
    my.language = language.value.trim();
    write();
  } });
  const saves = h("div", { class: "row wrap", role: "group", aria: { label: "Save" }, hidden: true }, h("button", { type: "button", onclick: () => copy(whole(), "The transcript") }, "Copy the transcript"), ["txt", "srt", "vtt", "json"].map((kind) => h("button", { type: "button", onclick: () => keep(kind) }, `Save as ${kind}`)));
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
      h("span", { class: "words" }, between(segment.text.trim(), words).flatMap(([gap, word], at) => [gap, spoken(word, at === 0)])),
    );
  }

  /** A word to be heard. @param {Word} word @param {boolean} first */
  function spoken(word, first) {
    const props = { role: "button", tabIndex: first ? 0 : -1, data: { start: word.start, end: word.end }, title: `${clock(word.start)}, ${Math.round(word.probability * 100)}% sure`, onclick: () => hear(word) };
    return h("span", props, word.word.trim());
  }

  /** One stop for each segment; arrow keys go on to its words. @param {KeyboardEvent} event */
  function key(event) {
    const here = event.target instanceof HTMLElement ? event.target.closest("[data-start]") : null;
    if (!(here instanceof HTMLElement)) return;
    const words = /** @type {HTMLElement[]} */ ([...(here.parentElement?.querySelectorAll("[data-start]") ?? [])]);
    const at = words.indexOf(here);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: words.length - 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") here.click();
    else if (to === undefined || !words[to]) return;
    else {
      here.tabIndex = -1;
      words[to].tabIndex = 0;
      words[to].focus();
    }
    event.preventDefault();
  }

  /** The transcript as text, a line for each segment. */
  function whole() {
    return segments.map((segment) => segment.text.trim()).join("\n");
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

/**
 * Words with the text before each: who copies the transcript gets its spaces, where its language has any.
 * @param {string} text @param {Word[]} words @returns {[string, Word][]}
 */
function between(text, words) {
  let rest = text;
  return words.map((word) => {
    const bare = word.word.trim();
    const at = Math.max(0, rest.indexOf(bare));
    const gap = rest.slice(0, at);
    rest = rest.slice(at + bare.length);
    return [gap, word];
  });
}

/** @param {number} seconds */
function clock(seconds) {
  const whole = Math.floor(seconds / 60);
  return `${whole}:${(seconds - 60 * whole).toFixed(2).padStart(5, "0")}`;
}
