// Plays a track sample by sample, so that the clicks lie exactly on its beats.

import { schedule } from "/playground/clicks.js";

const LONGEST_START_MS = 2_000;

let context = null; // one for the page: browsers allow few, and none before a gesture

/** Decode a file; null where the browser cannot read its format. */
export async function decode(file) {
  context ??= new AudioContext();
  try {
    return await context.decodeAudioData(await file.arrayBuffer());
  } catch {
    return null;
  }
}

export class Player {
  /** `changed()` is called when it starts and stops, `silent(isSo)` when it does not start, and starts after all. */
  constructor(buffer, changed, silent) {
    this.buffer = buffer;
    this.clicks = [];
    this.isClicking = false;
    this.isPlaying = this.isClosed = false;
    this.changed = changed;
    this.silent = silent;
    this.offset = 0;
    this.sources = [];
    this.music = context.createGain();
    this.clicking = context.createGain();
    for (const gain of [this.music, this.clicking]) gain.connect(context.destination);
    this.mix();
  }

  /** Where it is, seconds. */
  get at() {
    if (!this.isPlaying) return this.offset;
    return Math.min(this.buffer.duration, this.offset + context.currentTime - this.began);
  }

  toggle() {
    return this.isPlaying ? this.stop() : this.play();
  }

  async play() {
    const late = setTimeout(() => this.silent(true), LONGEST_START_MS);
    await context.resume(); // in Firefox it waits for ever where nothing can sound
    clearTimeout(late);
    this.silent(false);
    if (this.isPlaying || this.isClosed) return; // it was asked to start twice, or left meanwhile
    if (this.offset >= this.buffer.duration - 0.05) this.offset = 0;
    const source = context.createBufferSource();
    source.buffer = this.buffer;
    source.connect(this.music);
    this.began = context.currentTime + 0.02;
    source.start(this.began, this.offset);
    source.addEventListener("ended", () => this.sources.includes(source) && this.stop());
    this.sources = [source, ...schedule(context, this.clicking, this.clicks, this.offset, this.began)];
    this.isPlaying = true;
    this.changed();
  }

  stop() {
    this.offset = this.at;
    const sources = this.sources;
    this.sources = [];
    sources.forEach((source) => source.stop());
    this.isPlaying = false;
    this.changed();
  }

  /** End for good, also what has not started yet. */
  close() {
    this.isClosed = true;
    if (this.isPlaying) this.stop();
  }

  seek(seconds) {
    const wasPlaying = this.isPlaying;
    if (wasPlaying) this.stop();
    this.offset = Math.max(0, Math.min(seconds, this.buffer.duration));
    if (wasPlaying) this.play();
    else this.changed();
  }

  /** Give the clicks to sound, and whether they do; the music steps back behind them. */
  setClicks(clicks, isClicking) {
    const at = this.at;
    const isSame = clicks === this.clicks;
    this.clicks = clicks;
    this.isClicking = isClicking;
    this.mix();
    if (!isSame && this.isPlaying) this.seek(at);
  }

  mix() {
    this.clicking.gain.value = this.isClicking ? 1 : 0;
    this.music.gain.value = this.isClicking ? 0.5 : 1;
  }
}
