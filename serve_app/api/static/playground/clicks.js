// The click track: a short tone on every beat, higher and louder on the first of a bar.

const LENGTH_S = 0.04;
const ONE = { hertz: 1600, gain: 0.9 };
const OTHER = { hertz: 1000, gain: 0.4 };
const ROUNDING = 1e-6;
const SAME_S = 0.01; // a beat this close to a bar's start is its first

/** Beats as `{at, isOne}`, at `factor` times the marked tempo; they go by the first one that is heard. */
export function grid(beats, bars, factor) {
  const ones = bars.map((bar) => bar.start);
  const isOne = (at) => ones.some((one) => Math.abs(one - at) < SAME_S);
  const first = Math.max(0, beats.findIndex(isOne));
  const before = Math.floor(first * factor + ROUNDING);
  const after = Math.floor((beats.length - 1 - first) * factor + ROUNDING);
  return Array.from({ length: beats.length ? before + after + 1 : 0 }, (_, i) => {
    const place = first + (i - before) / factor; // among the marked beats
    const last = Math.floor(place + ROUNDING);
    const part = Math.max(0, place - last);
    if (part < ROUNDING) return { at: beats[last], isOne: isOne(beats[last]) };
    return { at: beats[last] + part * (beats[last + 1] - beats[last]), isOne: false };
  });
}

function clickOf(context, { hertz, gain }) {
  const buffer = context.createBuffer(1, Math.ceil(LENGTH_S * context.sampleRate), context.sampleRate);
  const samples = buffer.getChannelData(0);
  for (let i = 0; i < samples.length; i += 1) {
    const at = i / context.sampleRate;
    samples[i] = gain * Math.sin(2 * Math.PI * hertz * at) * Math.exp((-5 * at) / LENGTH_S);
  }
  return buffer;
}

/** Schedule the clicks from `offset` seconds of the track on, which sounds at `when` in the context; gives their sources. */
export function schedule(context, destination, clicks, offset, when) {
  const sounds = { true: clickOf(context, ONE), false: clickOf(context, OTHER) };
  return clicks.filter((click) => click.at >= offset).map((click) => {
    const source = context.createBufferSource();
    source.buffer = sounds[click.isOne];
    source.connect(destination);
    source.start(when + click.at - offset);
    return source;
  });
}
