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

/** Plays what an item says, and knows how much of it has been heard. */
export class Speaker {
  /** @param {AudioContext} context */
  constructor(context) {
    this.context = context;
    /** @type {AudioBufferSourceNode[]} */
    this.playing = [];
    this.item = "";
    this.begun = 0;
    this.next = 0;
  }

  /** @param {string} item @param {string} base64 PCM of 16 bits */
  play(item, base64) {
    const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
    const samples = new Int16Array(bytes.buffer, 0, bytes.length >> 1);
    if (!samples.length) return;
    const buffer = this.context.createBuffer(1, samples.length, RATE);
    buffer.getChannelData(0).set(Float32Array.from(samples, (sample) => sample / 32_768));
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    this.next = Math.max(this.next, this.context.currentTime + 0.05);
    if (item !== this.item) [this.item, this.begun] = [item, this.next];
    source.start(this.next);
    source.onended = () => (this.playing = this.playing.filter((one) => one !== source));
    this.playing.push(source);
    this.next += buffer.duration;
  }

  /** End what is playing. Returns the item and the milliseconds of it that were heard; null if nothing was playing. */
  stop() {
    if (!this.playing.length) return null;
    this.playing.forEach((source) => source.stop());
    this.playing = [];
    this.next = 0;
    return { item: this.item, heard: Math.max(0, Math.round(1000 * (this.context.currentTime - this.begun))) };
  }
}
