// The picture of a track in time: wave, bars, beats when zoomed, sections, chords, loudness, and where it plays.

import { clock, colour, signed } from "/playground/dom.js";
import { chordSign, keySign } from "/playground/keys.js";

const HEAD = 24; // pixels for the names of sections
const FOOT = 18; // and for the time
const BEATS_FROM = 22; // beats are drawn once they are so many pixels apart
const BARS_FROM = 5;
const QUIETEST_DB = -48;
const SMOOTHED_S = 0.5; // over which the curve of loudness follows the level
const SHORTEST_S = 2;
const STEP_S = 5; // what an arrow key goes where there are no bars
const WIDTHS = [0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600];
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

/** Loudest sample of each of `n` parts of a decoded track, in any channel. */
function peaksOf(buffer, n) {
  const step = buffer.length / n;
  const peaks = new Float32Array(n);
  for (let channel = 0; channel < buffer.numberOfChannels; channel += 1) {
    const samples = buffer.getChannelData(channel);
    for (let i = 0; i < n; i += 1) {
      for (let k = Math.floor(i * step); k < (i + 1) * step && k < samples.length; k += 1) peaks[i] = Math.max(peaks[i], Math.abs(samples[k]));
    }
  }
  return peaks;
}

/** The same of a track that cannot be decoded here, from the levels that were measured. */
function peaksOfSegments(segments, duration, n) {
  const peaks = new Float32Array(n);
  for (const segment of segments) {
    const level = 10 ** (segment.loudness_max / 20);
    const from = Math.floor((segment.start / duration) * n);
    peaks.fill(level, from, Math.ceil(((segment.start + segment.duration) / duration) * n));
  }
  return peaks;
}

export class Waveform {
  /** `seek(seconds)` hears of clicks, `moved()` of another part of the track on view. */
  constructor(canvas, result, seek, moved) {
    this.moved = moved;
    this.canvas = canvas;
    this.result = result;
    this.duration = result.duration_ms / 1000;
    this.bars = result.bars.map((bar) => bar.start);
    this.clicks = [];
    this.at = 0;
    this.from = 0;
    this.to = this.duration;
    this.tellPlace();
    this.setPeaks(null);
    canvas.addEventListener("click", (event) => seek(this.from + (event.offsetX / canvas.clientWidth) * (this.to - this.from)));
    canvas.addEventListener("keydown", (event) => this.onKey(event, seek));
    canvas.addEventListener("wheel", (event) => this.onWheel(event), { passive: false });
    new ResizeObserver(() => this.paint()).observe(canvas);
  }

  /** Take a decoded track, or none. */
  setPeaks(buffer) {
    const n = Math.min(400_000, Math.ceil(this.duration * 200));
    this.peaks = buffer ? peaksOf(buffer, n) : peaksOfSegments(this.result.segments, this.duration, n);
    this.loudest = Math.max(0.05, this.peaks.reduce((most, one) => Math.max(most, one), 0));
    this.paint();
  }

  onWheel(event) {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 0.8 : 1.25, event.offsetX / this.canvas.clientWidth);
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      event.preventDefault();
      this.pan((event.deltaX / this.canvas.clientWidth) * (this.to - this.from));
    }
  }

  /** Go from bar to bar, to either end, or look closer. */
  onKey(event, seek) {
    const { key } = event;
    if (key === "+" || key === "-") this.zoom(key === "+" ? 0.5 : 2);
    else if (key === "ArrowRight") seek(this.bars.find((bar) => bar > this.at + 0.05) ?? Math.min(this.duration, this.at + STEP_S));
    else if (key === "ArrowLeft") seek(this.bars.findLast((bar) => bar < this.at - 0.3) ?? Math.max(0, this.at - STEP_S));
    else if (key === "Home" || key === "End") seek(key === "Home" ? 0 : this.duration);
    else return;
    event.preventDefault();
  }

  /** Say where it is, for those who do not see it. */
  tellPlace() {
    const bar = this.bars.findLastIndex((start) => start <= this.at + 0.05) + 1;
    const section = this.result.sections.findLastIndex(({ start }) => start <= this.at + 0.05);
    const chord = this.result.chords.findLast(({ start }) => start <= this.at + 0.05);
    const words = [clock(this.at), bar && `bar ${bar}`, section >= 0 && `section ${LETTERS[section % 26]}`, chord?.root && `chord ${chordSign(chord, this.result)}`];
    this.canvas.setAttribute("aria-valuenow", Math.round(this.at));
    this.canvas.setAttribute("aria-valuetext", words.filter(Boolean).join(", "));
  }

  /** Show `factor` times as much, around a place of the picture. */
  zoom(factor, place = (this.at - this.from) / (this.to - this.from)) {
    const kept = place >= 0 && place <= 1 ? place : 0.5;
    const centre = this.from + kept * (this.to - this.from);
    const span = Math.min(this.duration, Math.max(SHORTEST_S, (this.to - this.from) * factor));
    this.from = Math.max(0, Math.min(centre - kept * span, this.duration - span));
    this.to = this.from + span;
    this.paint();
    this.moved();
  }

  pan(seconds) {
    const span = this.to - this.from;
    this.from = Math.max(0, Math.min(this.from + seconds, this.duration - span));
    this.to = this.from + span;
    this.paint();
    this.moved();
  }

  /** Move the playhead, and the picture with it. */
  show(at) {
    this.at = at;
    this.tellPlace();
    if (at < this.from || at > this.to) this.pan(at - this.from - 0.05 * (this.to - this.from));
    else this.paint();
  }

  x(seconds) {
    return ((seconds - this.from) / (this.to - this.from)) * this.width;
  }

  paint() {
    const ratio = devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    if (!this.width) return;
    this.canvas.width = this.width * ratio;
    this.canvas.height = this.height * ratio;
    this.pen = this.canvas.getContext("2d");
    this.pen.scale(ratio, ratio);
    this.pen.font = "12px system-ui, sans-serif";
    this.paintSections();
    this.paintWave();
    this.paintBeats();
    this.paintChords();
    this.paintLoudness();
    this.paintTime();
    this.paintMix();
    this.paintHead();
  }

  paintSections() {
    this.result.sections.forEach((section, i) => {
      const left = this.x(section.start);
      const right = this.x(section.start + section.duration);
      if (right < 0 || left > this.width) return;
      this.pen.fillStyle = colour(`--s${i % 4}`);
      this.pen.fillRect(left, 0, right - left, this.height - FOOT);
      this.pen.fillStyle = colour("--ink");
      const key = section.key ? ` · ${keySign(section)}` : "";
      const name = `${LETTERS[i % 26]}${key} · ${signed(section.loudness, 0)} dB`;
      const room = Math.min(right, this.width) - Math.max(left, 0) - 10;
      const text = this.pen.measureText(name).width < room ? name : LETTERS[i % 26];
      if (room > 8) this.pen.fillText(text, Math.max(left, 0) + 6, 16);
    });
  }

  paintWave() {
    const middle = HEAD + (this.height - HEAD - FOOT) / 2;
    const tall = (this.height - HEAD - FOOT) / 2 - 3;
    const perSecond = this.peaks.length / this.duration;
    const played = colour("--played");
    const ahead = colour("--wave");
    for (let px = 0; px < this.width; px += 2) {
      const from = Math.floor((this.from + (px / this.width) * (this.to - this.from)) * perSecond);
      const to = Math.max(from + 1, Math.floor((this.from + ((px + 2) / this.width) * (this.to - this.from)) * perSecond));
      let most = 0;
      for (let i = from; i < to && i < this.peaks.length; i += 1) most = Math.max(most, this.peaks[i]);
      const half = Math.max(0.5, (most / this.loudest) * tall);
      this.pen.fillStyle = px < this.x(this.at) ? played : ahead;
      this.pen.fillRect(px, middle - half, 1.5, 2 * half);
    }
  }

  paintBeats() {
    const apart = this.clicks.length > 1 ? this.x(this.clicks[1].at) - this.x(this.clicks[0].at) : 0;
    const ones = this.clicks.filter((click) => click.isOne);
    const every = ones.length > 1 ? Math.ceil(BARS_FROM / Math.max(0.01, this.x(ones[1].at) - this.x(ones[0].at))) : 1;
    const line = (at, name, width) => {
      this.pen.fillStyle = colour(name);
      this.pen.fillRect(this.x(at) - width / 2, HEAD, width, this.height - HEAD - FOOT);
    };
    if (apart >= BEATS_FROM) this.clicks.filter((click) => !click.isOne).forEach((click) => line(click.at, "--beat", 1));
    ones.filter((_, i) => i % every === 0).forEach((click) => line(click.at, "--bar", 1.5));
  }

  /** The chords over the wave, each where it begins and there is room for it. */
  paintChords() {
    this.pen.fillStyle = colour("--ink");
    let written = "";
    for (const chord of this.result.chords) {
      const name = chordSign(chord, this.result);
      if (name === written) continue;
      const left = this.x(chord.start);
      const room = this.x(chord.start + chord.duration) - left;
      const isSeen = left >= 0 && left < this.width && room > this.pen.measureText(name).width + 4;
      if (isSeen) this.pen.fillText(name, left + 3, HEAD + 12);
      written = isSeen ? name : "";
    }
  }

  paintLoudness() {
    const floor = this.height - FOOT;
    this.pen.strokeStyle = colour("--loud");
    this.pen.lineWidth = 1.5;
    this.pen.beginPath();
    let before = -Infinity;
    let level = 0;
    for (const segment of this.result.segments) {
      const at = segment.start + segment.loudness_max_time;
      const kept = Math.exp((before - at) / SMOOTHED_S);
      level = kept * level + (1 - kept) * segment.loudness_max;
      before = at;
      const height = Math.max(0, 1 - level / QUIETEST_DB) * (floor - HEAD);
      this.pen.lineTo(this.x(at), floor - height);
    }
    this.pen.stroke();
  }

  paintTime() {
    const span = this.to - this.from;
    const step = WIDTHS.find((one) => (one / span) * this.width > 64) ?? 600;
    this.pen.fillStyle = colour("--dim");
    for (let at = Math.ceil(this.from / step) * step; at < this.to; at += step) {
      const text = step < 1 ? at.toFixed(1) : clock(at);
      if (this.x(at) < this.width - 30) this.pen.fillText(text, this.x(at) + 3, this.height - 4);
      this.pen.fillRect(this.x(at), this.height - FOOT, 1, 5);
    }
  }

  /** Where to mix in and out: flags at the foot that point into the part between. */
  paintMix() {
    const foot = this.height - FOOT;
    this.pen.fillStyle = colour("--accent");
    for (const [at, way] of [[this.result.mix_in, 1], [this.result.mix_out, -1]]) {
      this.pen.beginPath();
      [[0, 0], [0, -14], [11 * way, -7]].forEach(([x, y]) => this.pen.lineTo(this.x(at) + x, foot + y));
      this.pen.fill();
    }
  }

  paintHead() {
    this.pen.fillStyle = colour("--ink");
    this.pen.fillRect(this.x(this.at) - 1, 0, 2, this.height - FOOT);
  }
}
