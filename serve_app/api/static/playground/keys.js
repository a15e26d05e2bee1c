// Keys: the Camelot wheel with the keys that mix, and the notes over time with the scale's marked.

import { colour, draw } from "/playground/dom.js";

export const NOTES = ["C", "C#", "D", "D#", "E", "F", "F#", "G", "G#", "A", "A#", "B"];
const SCALES = { major: [0, 2, 4, 5, 7, 9, 11], minor: [0, 2, 3, 5, 7, 8, 10] };
const FLAT = { "C#": "D♭", "D#": "E♭", "F#": "G♭", "G#": "A♭", "A#": "B♭" };
const SIX = 6; // sharps or flats: F♯ major is written with sharps, its relative as E♭ minor
const NAMES_WIDTH = 22;

/** A note as it is written in a key: with flats where the key has them. */
export function spelt(note, { key, mode }) {
  const relative = (NOTES.indexOf(key) + (mode === "minor" ? 3 : 0)) % 12;
  const fifths = (7 * relative) % 12; // sharps, or from seven on twelve less the flats
  const hasFlats = key && (fifths > SIX || (fifths === SIX && mode === "minor"));
  return (hasFlats && FLAT[note]) || note.replace("#", "♯");
}

/** The key's name in words, `E♭ minor`, or short, `E♭m`. */
export const keyName = (track) => `${spelt(track.key, track)} ${track.mode}`;
export const keySign = (track) => `${spelt(track.key, track)}${track.mode === "minor" ? "m" : ""}`;

/** A chord as it is written in a track's key, `E♭m/B♭`; nothing where there is none. */
export function chordSign({ root, quality, bass }, track) {
  if (!root) return "";
  return `${spelt(root, track)}${quality === "min" ? "m" : ""}${bass === root ? "" : `/${spelt(bass, track)}`}`;
}

/** The keys that mix with one: itself, its relative, and one step to either side. */
export function compatible(camelot) {
  const hour = Number(camelot.slice(0, -1));
  const letter = camelot.slice(-1);
  return [camelot, `${hour}${letter === "A" ? "B" : "A"}`, `${(hour % 12) + 1}${letter}`, `${((hour + 10) % 12) + 1}${letter}`];
}

/** Draw the wheel. */
export function wheel(camelot) {
  const fits = camelot ? compatible(camelot) : [];
  const words = camelot ? `${camelot}; it mixes with ${fits.slice(1).join(", ")}` : "no key";
  const picture = draw("svg", { class: "wheel", viewBox: "-112 -112 224 224", role: "img", "aria-label": `Camelot wheel: ${words}` });
  for (const [letter, radius] of [["B", 93], ["A", 58]]) {
    for (let hour = 1; hour <= 12; hour += 1) {
      const angle = ((hour - 3) * Math.PI) / 6;
      const [x, y] = [radius * Math.cos(angle), radius * Math.sin(angle)];
      const name = `${hour}${letter}`;
      const kind = name === camelot ? "here" : fits.includes(name) ? "fits" : "";
      picture.append(draw("g", { class: kind }, draw("circle", { cx: x, cy: y, r: 15.5 }), draw("text", { x, y: y + 4 }, name)));
    }
  }
  return picture;
}

/** Paint the strength of the twelve notes over the time that `view()` gives; call what it returns when that changes. */
export function paintNotes(canvas, result, view) {
  const paint = () => {
    const ratio = devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width) return;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const row = height / 12;
    const [from, to] = view();
    const perSecond = width / (to - from);
    const tonic = NOTES.indexOf(result.key);
    const scale = tonic < 0 ? [] : SCALES[result.mode].map((step) => (tonic + step) % 12);
    pen.font = "10px system-ui, sans-serif";
    for (let note = 0; note < 12; note += 1) {
      const top = height - (note + 1) * row;
      const shade = scale.includes(note) ? colour("--accent") : colour("--dim");
      pen.fillStyle = shade;
      for (const segment of result.segments) {
        pen.globalAlpha = segment.pitches[note] ** 2;
        pen.fillRect((segment.start - from) * perSecond, top, segment.duration * perSecond + 0.5, row - 1);
      }
      pen.globalAlpha = 0.85;
      pen.fillStyle = colour("--card");
      pen.fillRect(0, top, NAMES_WIDTH, row);
      pen.globalAlpha = 1;
      pen.fillStyle = shade;
      pen.fillText(spelt(NOTES[note], result), 3, top + row - 2);
    }
  };
  new ResizeObserver(paint).observe(canvas);
  return paint;
}
