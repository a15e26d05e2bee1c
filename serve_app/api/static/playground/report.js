// What is said of one track: its progress, then its numbers, pictures and lines of code.

import { $, clock, make, signed } from "/playground/dom.js";
import { ask } from "/playground/api.js";
import { grid } from "/playground/clicks.js";
import { Player, decode } from "/playground/player.js";
import { Waveform } from "/playground/waveform.js";
import { keyName, keySign, paintNotes, wheel } from "/playground/keys.js";
import { samples } from "/playground/samples.js";
import { saveCsv, saveJson, saveTagged } from "/playground/downloads.js";
import { isNamed, rekordboxForm } from "/playground/exports.js";
import { similarTracks } from "/playground/similar.js";
import { UnwritableTags } from "/playground/tags.js";
import { again, nameOf } from "/playground/tracks.js";

const ATTRIBUTES = ["energy", "danceability", "happiness", "acousticness", "instrumentalness", "speechiness", "liveness"];
const STRONG = 0.6;
const MOST_TAGS = 14;
const STREAMING_LUFS = -14;
const SAME_TEMPO = 0.04; // of two tempi, in parts
const LEAST_ODDS = 0.01;
const REPEATS = 0.6; // from this confidence on an attribute is not grey
const STAGES = [["sending", "sent"], ["queued", "waiting for a worker"], ["running", "being analysed"], ["complete", "done"]];

let shown = null; // the track on view, with what sounds and moves there

/** Show a track, or show again what has changed of it. */
export function report(place, track) {
  if (shown?.track === track && shown.isWhole) return;
  if (shown?.track !== track) close();
  shown = { track, isWhole: track.state === "complete" };
  say(track);
  if (track.state === "complete") place.replaceChildren(...whole(track));
  else if (track.state === "failed") place.replaceChildren(failed(track));
  else place.replaceChildren(progress(track));
}

/** Say in a sentence what became of the track on view, to those who do not see it. */
function say(track) {
  const words = { sending: "is being sent", queued: "is waiting for a worker", running: "is being analysed", failed: `could not be analysed: ${track.fault?.message}`, complete: track.result && `is analysed: ${inWords(track.result)}` }[track.state];
  const text = track.note || (words ? `${track.name} ${words}` : "");
  if ($("status").textContent !== text) $("status").textContent = text;
}

const inWords = (result) => [result.tempo ? `${result.tempo.toFixed(1)} BPM` : "no tempo", result.key ? keyName(result) : "no key", `${signed(result.loudness, 1)} LUFS`].join(", ");

/** Take a track off view, and end what sounds. */
function close() {
  shown?.player?.close();
  shown = null;
}

const progress = (track) => {
  const now = STAGES.findIndex(([state]) => state === track.state);
  const words = track.note === "offline" ? "The service does not answer; trying again." : track.note || (track.state === "waiting" ? "Waiting for the tracks before it." : track.stage);
  return make("section", { class: "panel stages", "aria-label": `Progress of ${track.name}` },
    make("h2", {}, track.name),
    make("ol", {}, STAGES.map(([, name], i) => make("li", { class: i < now ? "done" : i === now ? "now" : "" }, name))),
    make("progress", { max: 1, value: track.state === "running" ? track.progress : null, "aria-label": "Progress" }),
    make("p", { class: "dim" }, words));
};

const failed = (track) => make("section", { class: "panel failed", "aria-label": `${track.name} failed` },
  make("h2", {}, `${track.name} could not be analysed`),
  make("p", {}, track.fault.message),
  make("p", { class: "dim" }, `Nothing was charged.${track.fault.trace ? ` Trace ${track.fault.trace}` : ""}`),
  make("p", {}, make("button", { type: "button", onclick: () => again(track) }, "Try again")));

function whole(track) {
  const result = track.result;
  const name = nameOf(result) || track.name;
  const took = track.tookS < 90 ? ` · analysed in ${track.tookS.toFixed(1)} s` : "";
  const time = timeline(track);
  return [
    make("div", { class: "head" }, make("h2", { tabindex: -1, id: "report-title" }, name),
      make("span", { class: "dim" }, `${clock(result.duration_ms / 1000)}${took} · ${[...new Set(Object.values(result.models))].join(", ")}`)),
    tiles(track, time.setFactor),
    time.panel,
    make("div", { class: "columns" }, attributes(result), mixing(result), tagsAndFiles(track)),
    similarTracks(track),
    samples(track),
  ];
}

const tile = (name, value, unit, ...notes) => make("div", { class: "tile", role: "group", "aria-label": name },
  make("h3", { class: "dim" }, name), make("b", {}, value, unit && make("small", {}, ` ${unit}`)), notes.map((note) => (typeof note === "string" ? make("p", {}, note) : note)));

const sure = (confidence) => `${confidence >= 0.85 ? "sure" : confidence >= 0.6 ? "likely" : "unsure"} (${confidence.toFixed(2)})`;

function tiles(track, setFactor) {
  const result = track.result;
  const level = result.loudness - STREAMING_LUFS;
  return make("section", { class: "tiles", "aria-label": "In numbers" },
    tempoTile(track, setFactor),
    result.key ? tile("Key", keyName(result), "", `Camelot ${result.camelot}`, sure(result.key_confidence)) : tile("Key", "none", "", "the notes fit no key"),
    tile("Metre", `${result.time_signature}`, "beats a bar", `${result.bars.length} bars · ${result.beats.length} beats`, sure(result.time_signature_confidence)),
    tile("Loudness", signed(result.loudness, 1), "LUFS", `${Math.abs(level).toFixed(1)} dB ${level < 0 ? "under" : "over"} streaming level`, `peak ${signed(result.true_peak, 1)} dBTP · range ${result.loudness_range.toFixed(1)} LU`),
    tile("Mix", `${clock(result.mix_in)} → ${clock(result.mix_out)}`, "", "first bar to mix in, last to mix out"));
}

/** Ways to count the beats: half, as found, double, and what else the analysis took into account. */
function countings({ tempo, tempo_alternatives: others }) {
  const ways = [[0.5, "½×"], [1, "1×"], [2, "2×"]];
  const isSame = (one, other) => Math.abs(Math.log(one / other)) < SAME_TEMPO;
  const scored = ways.map(([factor, name]) => [factor, name, others.find((other) => isSame(other.tempo, tempo * factor))?.score]);
  const odd = others.filter((other) => !ways.some(([factor]) => isSame(other.tempo, tempo * factor)));
  return [...scored, ...odd.map(({ tempo: bpm, score }) => [bpm / tempo, bpm.toFixed(1), score])];
}

function tempoTile(track, setFactor) {
  const result = track.result;
  if (!result.tempo) return tile("Tempo", "none", "", "no beat found");
  const shownTempo = make("span", {});
  const choose = (chosen) => {
    track.factor = chosen;
    buttons.forEach(([button, factor]) => button.setAttribute("aria-pressed", factor === chosen));
    shownTempo.textContent = (result.tempo * chosen).toFixed(1);
    setFactor(chosen);
  };
  const buttons = countings(result).map(([factor, name, score]) => {
    const odds = score >= LEAST_ODDS ? `, ${Math.round(100 * score)} % likely` : "";
    const says = `${name}, ${(result.tempo * factor).toFixed(1)} BPM${odds}`;
    return [make("button", { type: "button", "aria-label": says, title: says, onclick: () => choose(factor) }, name), factor];
  });
  choose(track.factor);
  const second = result.tempo_alternatives.find((other) => other.score >= LEAST_ODDS);
  return tile("Tempo", shownTempo, "BPM", sure(result.tempo_confidence) + (second ? ` · or ${second.tempo.toFixed(1)}, ${Math.round(100 * second.score)} %` : ""), make("div", { class: "times" }, buttons.map(([button]) => button)));
}

function timeline(track) {
  const result = track.result;
  const duration = result.duration_ms / 1000;
  const canvas = make("canvas", { class: "wave", role: "slider", tabindex: 0, "aria-valuemin": 0, "aria-valuemax": Math.round(duration), "aria-label": `Place in the track. ${result.bars.length} bars, ${result.sections.length} sections: ${result.sections.map((one) => `${clock(one.start)} ${one.key ? keySign(one) : "no key"}`).join(", ")}. Arrow keys go from bar to bar` });
  const notes = make("canvas", { class: "chroma", role: "img", "aria-label": `Strength of the notes over time${result.key ? `; those of ${keyName(result)} are marked` : ""}` });
  const play = make("button", { type: "button", class: "primary", disabled: true, "aria-keyshortcuts": "Space" }, "▶ Play");
  const click = make("button", { type: "button", disabled: true, "aria-pressed": false }, "Click track");
  const where = make("span", { class: "clock" }, `0:00 / ${clock(duration)}`);
  const note = make("p", { class: "dim" }, track.file ? "Decoding…" : "Without the file, the picture is drawn from the analysis, and there is no sound.");
  const wave = new Waveform(canvas, result, (seconds) => {
    shown.player?.seek(seconds);
    if (!shown.player) wave.show(seconds);
  }, () => repaintNotes());
  const repaintNotes = paintNotes(notes, result, () => [wave.from, wave.to]);
  const setFactor = (factor) => {
    wave.clicks = grid(result.beats, result.bars, factor);
    shown?.player?.setClicks(wave.clicks, shown.player.isClicking);
    wave.paint();
  };
  wave.clicks = grid(result.beats, result.bars, track.factor);
  const mine = shown;
  mine.repaint = () => {
    wave.paint();
    repaintNotes();
  };
  const follow = () => {
    if (shown !== mine) return;
    where.textContent = `${clock(mine.player.at)} / ${clock(duration)}`;
    play.textContent = mine.player.isPlaying ? "❚❚ Pause" : "▶ Play";
    wave.show(mine.player.at);
    if (mine.player.isPlaying) requestAnimationFrame(follow);
  };
  if (track.file) {
    decode(track.file).then((buffer) => {
      if (shown !== mine) return;
      note.textContent = buffer ? "" : "This browser cannot decode the format: the picture is drawn from the analysis.";
      if (!buffer) return;
      wave.setPeaks(buffer);
      mine.player = new Player(buffer, follow, (isSilent) => {
        note.textContent = isSilent ? "The browser cannot play: this computer gives it no sound output." : "";
      });
      mine.player.setClicks(wave.clicks, false);
      play.disabled = click.disabled = false;
    });
  }
  play.addEventListener("click", () => mine.player.toggle());
  click.addEventListener("click", () => {
    const isOn = !mine.player.isClicking;
    click.setAttribute("aria-pressed", isOn);
    mine.player.setClicks(wave.clicks, isOn);
    if (isOn && !mine.player.isPlaying) mine.player.play();
  });
  const zoom = (name, factor, label) => make("button", { type: "button", "aria-label": label, onclick: () => wave.zoom(factor) }, name);
  const panel = make("section", { class: "panel", "aria-label": "In time" },
    make("div", { class: "controls" }, play, click, where,
      make("span", { class: "end" }, zoom("−", 2, "Show more time"), zoom("+", 0.5, "Show less time"))),
    canvas, notes,
    make("div", { class: "legend" }, [["i-bar", "bars"], ["i-beat", "beats, when zoomed"], ["i-loud", "loudness"], ["i-mix", "mix in, mix out"], ["i-scale", "notes of the scale"]].map(([kind, name]) => make("span", {}, make("i", { class: kind }), name))),
    note);
  return { panel, setFactor };
}

function attribute(name, value, confidence = 1) {
  const says = confidence < 1 ? `In ${Math.round(100 * confidence)} of 100 cases, another part of the track gets the same value, within 10` : null;
  return make("div", { class: "attribute", title: says }, make("span", {}, name),
    make("meter", { min: 0, max: 100, value, "aria-label": name }), make("b", { class: confidence < REPEATS ? "dim" : null }, String(value)));
}

function attributes(result) {
  const confidence = result.attribute_confidence;
  const meanings = make("dl", {});
  const explain = async () => {
    if (meanings.childElementCount) return;
    const document = await ask("/openapi.json");
    const fields = document.components.schemas.TrackAnalysis.properties;
    meanings.append(...ATTRIBUTES.flatMap((name) => [make("dt", {}, name), make("dd", {}, fields[name].description)]));
  };
  return make("section", { class: "panel", "aria-label": "Attributes" },
    make("h2", {}, "Attributes, 0 to 100"),
    ATTRIBUTES.map((name) => attribute(name, result[name], confidence[name])),
    ATTRIBUTES.some((name) => confidence[name] < REPEATS) && make("p", { class: "dim" }, "Grey: another part of the track may get a different value."),
    make("details", { ontoggle: explain }, make("summary", {}, "What they mean"), meanings));
}

const mixing = (result) => make("section", { class: "panel", "aria-label": "Keys that mix" },
  make("h2", {}, result.camelot ? `Mixes with (Camelot ${result.camelot})` : "Mixes with"), wheel(result.camelot));

function tagsAndFiles(track) {
  const tags = track.result.mood_tags.slice(0, MOST_TAGS);
  return make("section", { class: "panel", "aria-label": "Tags" },
    make("h2", {}, `Tags (filled: strong, from ${STRONG} on)`),
    make("ul", { class: "tags" }, tags.map((tag) => make("li", { class: tag.score >= STRONG ? "sure" : "" }, tag.tag, " ", make("small", {}, tag.score.toFixed(2))))),
    make("details", { open: true }, make("summary", {}, "Take it with you"), files(track)));
}

function files(track) {
  const fault = make("p", { class: "fault", role: "alert" });
  const tag = () => saveTagged(track).then(() => (fault.textContent = ""), (error) => {
    if (!(error instanceof UnwritableTags)) throw error;
    fault.textContent = error.message;
  });
  return [
    make("div", { class: "controls" },
      track.file && make("button", { type: "button", onclick: tag, title: "BPM, key, energy and ReplayGain; your file stays as it is" }, "Copy with tags"),
      make("button", { type: "button", onclick: () => saveCsv([track]) }, "CSV"),
      make("button", { type: "button", onclick: () => saveJson(track) }, "JSON")),
    fault,
    track.jobId && isNamed(track) && rekordboxForm(() => [track]),
  ];
}

// One listener for all tracks: it would keep each that it is told of, with its sound.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => shown?.repaint?.());

/** Play or stop with the space bar, unless it belongs to what has the focus. */
addEventListener("keydown", (event) => {
  if (event.code !== "Space" || event.target.closest("button, input, summary, a, pre") || !shown?.player) return;
  event.preventDefault();
  shown.player.toggle();
});
