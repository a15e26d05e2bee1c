// A copy of a file with tempo, key, energy and ReplayGain in its tags: MP3 and FLAC. The file stays in
// the browser; other tags and the audio are copied byte for byte.

const REPLAYGAIN_LUFS = -18; // what ReplayGain 2.0 brings tracks to
const SILENT_LUFS = -70;
const PADDING = 1024;
const KEYS = { C: "C", "C#": "Db", D: "D", "D#": "Eb", E: "E", F: "F", "F#": "F#", G: "G", "G#": "Ab", A: "A", "A#": "Bb", B: "B" };
const ID3 = { bpm: "TBPM", key: "TKEY", energy: "EnergyLevel", gain: "REPLAYGAIN_TRACK_GAIN", peak: "REPLAYGAIN_TRACK_PEAK" };
const VORBIS = { ...ID3, bpm: "BPM", key: "INITIALKEY", energy: "ENERGYLEVEL" };
const PICARDS_KEY = "KEY"; // kept up to date where it is
const COMMENTS = 4; // kinds of FLAC's blocks
const SPACE = 1;
const MOST_ZEROS = 65_536; // that some programs leave before the first frame

/** The copy cannot be made here; the message says why. */
export class UnwritableTags extends Error {}

const ODD = () => new UnwritableTags("The tags of this file are written in a way that is not known here; `afa tag` writes more kinds.");
const DAMAGED = () => new UnwritableTags("The tags of this file are damaged.");
const GONE = () => new UnwritableTags("This file cannot be read any more: it was moved, changed or deleted.");
const OTHER = () => new UnwritableTags("Only MP3 and FLAC get tags here; `afa tag` writes OGG, Opus, M4A, WAV and AIFF too.");

/** What is written of a result, as `afa tag` does; the tempo times `factor`. */
export function tagsOf(result, factor) {
  const tags = { energy: String(Math.max(1, Math.round(result.energy / 10))) };
  if (result.tempo) tags.bpm = String(Number((result.tempo * factor).toFixed(2)));
  if (result.key) tags.key = KEYS[result.key] + (result.mode === "minor" ? "m" : "");
  if (result.loudness > SILENT_LUFS) {
    tags.gain = `${(REPLAYGAIN_LUFS - result.loudness).toFixed(2)} dB`;
    tags.peak = (10 ** (result.true_peak / 20)).toFixed(6);
  }
  return tags;
}

/** A copy of a file with these tags. */
export async function tagged(file, tags) {
  const head = await bytesOf(file, 0, 10);
  const mark = text(head.subarray(0, 4));
  if (mark === "fLaC") return taggedFlac(file, tags);
  if (mark.startsWith("ID3") || (await isMpeg(file, 0))) return taggedMp3(file, tags, head);
  throw OTHER();
}

async function bytesOf(file, from, to) {
  try {
    return new Uint8Array(await file.slice(from, to).arrayBuffer());
  } catch {
    throw GONE();
  }
}

/** Whether a frame of layer III comes next. */
async function isMpeg(file, from) {
  const bytes = await bytesOf(file, from, from + MOST_ZEROS);
  const at = bytes.findIndex((byte) => byte !== 0);
  return bytes[at] === 0xff && (bytes[at + 1] & 0xe6) === 0xe2;
}

/** Whether the file ends in ID3v1 or APEv2. If it also has ID3v2, players ignore the names in those. */
async function isTaggedAtEnd(file) {
  const end = text(await bytesOf(file, Math.max(0, file.size - 128), file.size));
  return end.startsWith("TAG") || end.startsWith("APETAGEX", 96);
}

const text = (bytes) => String.fromCharCode(...bytes);
const ascii = (words) => Uint8Array.from(words, (letter) => letter.charCodeAt(0));

function joined(parts) {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  parts.reduce((at, part) => {
    bytes.set(part, at);
    return at + part.length;
  }, 0);
  return bytes;
}

// ID3v2: sizes have seven bits a byte, but those of version 3's frames have eight.
const sizeOf = (bytes, bits) => bytes.reduce((sum, byte) => sum * 2 ** bits + byte, 0);
const sized = (size, bits) => [3, 2, 1, 0].map((place) => Math.floor(size / 2 ** (bits * place)) % 2 ** bits);

async function taggedMp3(file, tags, head) {
  const isTagged = text(head.subarray(0, 3)) === "ID3";
  const [version, flags] = isTagged ? [head[3], head[5]] : [3, 0];
  if (![3, 4].includes(version) || flags || (!isTagged && (await isTaggedAtEnd(file)))) throw ODD();
  const bits = version === 4 ? 7 : 8;
  const end = isTagged ? 10 + sizeOf([...head.subarray(6, 10)], 7) : 0;
  if (!(await isMpeg(file, end))) throw /^(ID3|fLaC)/.test(text(await bytesOf(file, end, end + 4))) ? ODD() : OTHER();
  const old = framesOf(await bytesOf(file, 10, Math.max(10, end)), bits);
  const ours = Object.keys(tags).map((name) => ID3[name].toUpperCase());
  const kept = old.filter((frame) => !ours.includes(text(frame.subarray(0, 4))) && !ours.includes(describedIn(frame).toUpperCase()));
  const added = Object.entries(tags).map(([name, value]) => frameOf(ID3[name], value, bits));
  const body = joined([...kept, ...added, new Uint8Array(PADDING)]);
  const tag = joined([ascii("ID3"), [version, 0, 0], sized(body.length, 7), body]);
  return new Blob([tag, file.slice(end)], { type: file.type });
}

function framesOf(body, bits) {
  const frames = [];
  let at = 0;
  while (at + 10 <= body.length && body[at]) {
    const end = at + 10 + sizeOf([...body.subarray(at + 4, at + 8)], bits);
    if (!/^[A-Z0-9]{4}$/.test(text(body.subarray(at, at + 4))) || end > body.length) throw ODD();
    frames.push(body.subarray(at, end));
    at = end;
  }
  if (body.subarray(at).some(Boolean)) throw ODD(); // old iTunes wrote sizes of eight bits into version 4
  return frames;
}

/** The name of a field that a program made for itself; "" of any other frame. */
function describedIn(frame) {
  if (text(frame.subarray(0, 4)) !== "TXXX") return "";
  const [coding, order] = frame.subarray(10);
  const name = coding === 1 || coding === 2 ? (coding === 1 && order === 0xff ? "utf-16le" : "utf-16be") : "utf-8";
  return new TextDecoder(name).decode(frame.subarray(11)).split("\0")[0];
}

function frameOf(name, value, bits) {
  const isOwn = name.length !== 4;
  const content = ascii(`\0${isOwn ? `${name}\0` : ""}${value}`); // 0: Latin-1
  return joined([ascii(isOwn ? "TXXX" : name), sized(content.length, bits), [0, 0], content]);
}

async function taggedFlac(file, tags) {
  const blocks = [];
  let at = 4;
  for (let isLast = false; !isLast;) {
    const head = await bytesOf(file, at, at + 4);
    if (head.length < 4) throw ODD();
    const end = at + 4 + sizeOf([...head.subarray(1)], 8);
    blocks.push({ kind: head[0] & 0x7f, content: await bytesOf(file, at + 4, end) });
    isLast = head[0] >= 0x80;
    at = end;
  }
  const known = blocks.find(({ kind }) => kind === COMMENTS);
  const comments = { kind: COMMENTS, content: commentsWith(known?.content, tags) };
  const kept = blocks.filter(({ kind }) => kind !== SPACE && kind !== COMMENTS);
  const written = [...kept.slice(0, 1), comments, ...kept.slice(1), { kind: SPACE, content: new Uint8Array(PADDING) }];
  const parts = written.flatMap(({ kind, content }, i) => [Uint8Array.from([kind + (i === written.length - 1 ? 0x80 : 0), ...sized(content.length, 8).slice(1)]), content]);
  return new Blob([ascii("fLaC"), ...parts, file.slice(at)], { type: file.type });
}

const little = (number) => sized(number, 8).reverse();

/** Vorbis comments: the program that wrote the file, then `NAME=value` each; lengths stand before them. */
function commentsWith(content, tags) {
  const fields = content ? readFields(content) : [ascii("afa")];
  const [vendor, ...old] = fields;
  const isCalled = (field, name) => text(field.subarray(0, name.length + 1)).toUpperCase() === `${name}=`;
  const values = Object.entries(tags).map(([name, value]) => [VORBIS[name], value]);
  if (tags.key && old.some((field) => isCalled(field, PICARDS_KEY))) values.push([PICARDS_KEY, tags.key]);
  const kept = old.filter((field) => !values.some(([name]) => isCalled(field, name)));
  const all = [...kept, ...values.map(([name, value]) => ascii(`${name}=${value}`))];
  return joined([little(vendor.length), vendor, little(all.length), ...all.flatMap((field) => [little(field.length), field])]);
}

function readFields(content) {
  const view = new DataView(content.buffer, content.byteOffset, content.length);
  let at = 0;
  const number = () => {
    if (at + 4 > content.length) throw DAMAGED();
    at += 4;
    return view.getUint32(at - 4, true);
  };
  const field = () => {
    const size = number();
    if (at + size > content.length) throw DAMAGED();
    at += size;
    return content.subarray(at - size, at);
  };
  const fields = [field()];
  for (let left = number(); left > 0; left -= 1) fields.push(field());
  return fields;
}
