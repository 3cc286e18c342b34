// The microphone as PCM of 16 bits at 24 kHz, in pieces of a tenth of a second. Runs beside the page, in the audio thread.
/* global AudioWorkletProcessor, registerProcessor, sampleRate */
const RATE = 24_000;
const PIECE = RATE / 10;

class Microphone extends AudioWorkletProcessor {
  piece = new Int16Array(PIECE);
  filled = 0;
  place = 0; // of the next sample, counted from the beginning of the block
  last = 0;

  process([[samples]]) {
    if (!samples) return true;
    const step = sampleRate / RATE;
    for (; this.place < samples.length; this.place += step) {
      const at = Math.floor(this.place);
      const before = at > 0 ? samples[at - 1] : this.last;
      const value = before + (samples[at] - before) * (this.place - at);
      this.piece[this.filled] = Math.max(-1, Math.min(1, value)) * 32_767;
      this.filled += 1;
      if (this.filled === PIECE) {
        this.port.postMessage(this.piece.slice().buffer);
        this.filled = 0;
      }
    }
    this.place -= samples.length;
    this.last = samples[samples.length - 1];
    return true;
  }
}

registerProcessor("microphone", Microphone);
