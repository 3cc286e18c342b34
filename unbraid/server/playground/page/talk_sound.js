// @ts-check
/** Sound in and out of a talk: the microphone as pieces of PCM, and what the model says, piece after piece. */

export const RATE = 24_000;

/** @param {ArrayBuffer} bytes */
export function toBase64(bytes) {
  return btoa(String.fromCharCode(...new Uint8Array(bytes)));
}

/**
 * Listen to the microphone.
 * @param {AudioContext} context @param {(piece: ArrayBuffer) => void} heard
 * @returns {Promise<() => void>} what ends it
 */
export async function listen(context, heard) {
  const sound = await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: true } });
  await context.audioWorklet.addModule("playground/talk_worklet.js");
  const source = context.createMediaStreamSource(sound);
  const node = new AudioWorkletNode(context, "microphone", { numberOfOutputs: 0 });
  node.port.onmessage = ({ data }) => heard(data);
  source.connect(node);
  return () => {
    source.disconnect();
    sound.getTracks().forEach((track) => track.stop());
  };
}

/** @typedef {{item: string, source: AudioBufferSourceNode, at: number, before: number, seconds: number}} Piece */

/** Plays what items say, one after the other, and knows how much of each has been heard. */
export class Speaker {
  /** @param {AudioContext} context */
  constructor(context) {
    this.context = context;
    /** @type {Piece[]} */
    this.playing = [];
    /** The item whose sound may still come, and how many seconds of it have come. */
    this.item = "";
    this.seconds = 0;
    /** @type {Set<string>} items that were interrupted: what still comes of them is not played */
    this.cut = new Set();
    this.next = 0;
  }

  /** An item is spoken, though its sound may come later. @param {string} item */
  begin(item) {
    if (item !== this.item) [this.item, this.seconds] = [item, 0];
  }

  /** No more sound will come: what is playing is all. */
  finish() {
    this.item = "";
  }

  /** @param {string} item @param {string} base64 PCM of 16 bits */
  play(item, base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const samples = new Int16Array(bytes.buffer, 0, bytes.length >> 1);
    if (!samples.length || this.cut.has(item)) return;
    const buffer = this.context.createBuffer(1, samples.length, RATE);
    buffer.getChannelData(0).set(Float32Array.from(samples, (sample) => sample / 32_768));
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    const at = Math.max(this.next, this.context.currentTime + 0.05);
    this.begin(item);
    const piece = { item, source, at, before: this.seconds, seconds: buffer.duration };
    source.start(at);
    source.onended = () => (this.playing = this.playing.filter((one) => one !== piece));
    this.playing.push(piece);
    this.seconds += buffer.duration;
    this.next = at + buffer.duration;
  }

  /** End what is playing. Returns the items that were interrupted, each with the milliseconds of it that were heard. */
  stop() {
    const now = this.context.currentTime;
    const unheard = this.playing.filter((piece) => piece.at + piece.seconds > now);
    const heard = new Map(this.item && !this.cut.has(this.item) ? [[this.item, this.seconds]] : []);
    for (const { item, at, before } of unheard.reverse()) heard.set(item, before + Math.max(0, now - at));
    this.playing.forEach((piece) => piece.source.stop());
    this.playing = [];
    this.next = 0;
    this.finish();
    for (const item of heard.keys()) this.cut.add(item);
    return [...heard].map(([item, seconds]) => ({ item, heard: Math.round(1000 * seconds) }));
  }
}
