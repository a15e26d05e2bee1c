// The list of tracks: sorted by a click on a heading, filtered by words, opened by a click on a name.

import { clock, make, signed } from "/playground/dom.js";
import { saveCsv } from "/playground/downloads.js";
import { rekordboxForm } from "/playground/exports.js";
import { keyName } from "/playground/keys.js";
import { forget } from "/playground/tracks.js";

const STATES = { waiting: "waiting", sending: "sending", queued: "queued", running: "analysing", complete: "", failed: "failed" };
const of = (name) => (track) => track.result?.[name] ?? null;
const COLUMNS = [
  ["Track", (track) => track.name],
  ["BPM", (track) => track.result?.tempo || null, (value) => value.toFixed(1)],
  ["Key", (track) => (track.result?.key ? keyName(track.result) : null)],
  ["Camelot", of("camelot"), (value) => value, (value) => Number(value.slice(0, -1)) + (value.endsWith("B") ? 0.5 : 0)],
  ["Energy", of("energy")],
  ["Dance", of("danceability")],
  ["LUFS", of("loudness"), (value) => signed(value, 1)],
  ["Length", of("duration_ms"), (value) => clock(value / 1000)],
];

let order = { column: -1, isDown: false };
let words = "";

/** Make the table in `place`; `open(track)` hears of clicks, `opened` is on view. */
export function table(place, tracks, opened, open) {
  const again = () => table(place, tracks, opened, open);
  if (!place.firstChild) place.append(...frame(place, tracks, () => place.redraw()));
  place.redraw = again;
  place.hidden = tracks.length < 2;
  const done = tracks.filter((track) => track.result);
  place.querySelector("h2").textContent = `${tracks.length} tracks, ${done.length} analysed`;
  place.querySelector(".csv").disabled = !done.length;
  place.querySelector(".crate").hidden = !done.some((track) => track.jobId);
  const focused = document.activeElement?.dataset.at;
  place.querySelector("thead").replaceChildren(headings(again));
  place.querySelector("tbody").replaceChildren(...sorted(tracks).map((track) => row(track, track === opened, open)));
  if (focused) place.querySelector(`[data-at="${focused}"]`)?.focus({ preventScroll: true });
}

const frame = (place, tracks, redraw) => [
  make("div", { class: "tableHead" }, make("h2", { id: "tracks-title" }),
    make("input", { type: "search", placeholder: "Filter: name, key, 8A, tag", "aria-label": "Filter the tracks", oninput: (event) => {
      words = event.target.value;
      redraw();
    } }),
    make("button", { type: "button", class: "csv", onclick: () => saveCsv(tracks.filter((track) => track.result)) }, "Download CSV"),
    make("button", { type: "button", title: "Empties the list; your files stay as they are", onclick: forget }, "Clear")),
  make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table of tracks" }, make("table", {}, make("thead"), make("tbody"))),
  make("details", { class: "crate", hidden: true }, make("summary", {}, "All tracks for rekordbox"), rekordboxForm(() => tracks.filter((track) => track.result))),
];

const headings = (redraw) => make("tr", {}, COLUMNS.map(([name], i) => {
  const isSorted = order.column === i;
  const label = isSorted ? `${name} ${order.isDown ? "▾" : "▴"}` : name;
  return make("th", { scope: "col", "aria-sort": isSorted ? (order.isDown ? "descending" : "ascending") : "none" }, make("button", { type: "button", "data-at": `column ${i}`, onclick: () => {
    order = { column: i, isDown: isSorted && !order.isDown };
    redraw();
  } }, label));
}));

/** Tracks with all the words, in the chosen order; what has no value comes last. */
export function sorted(tracks) {
  const wanted = words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = tracks.filter((track) => {
    const tags = track.result?.mood_tags.filter((tag) => tag.score >= 0.6).map((tag) => tag.tag) ?? [];
    const text = [track.name, track.result?.artist, track.result?.title, track.result?.key, track.result?.key && keyName(track.result), track.result?.camelot, ...tags].join(" ").toLowerCase();
    return wanted.every((word) => text.includes(word));
  });
  if (order.column < 0) return found;
  const [, value, , rank = (one) => one] = COLUMNS[order.column];
  return found.sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === null || b === null) return (a === null) - (b === null);
    const [x, y] = [rank(a), rank(b)];
    const ahead = typeof x === "string" ? x.localeCompare(y) : x - y;
    return order.isDown ? -ahead : ahead;
  });
}

function row(track, isOpen, open) {
  const state = track.note === "offline" ? "no answer" : STATES[track.state];
  const cells = COLUMNS.slice(1).map(([, value, shown = String]) => {
    const found = value(track);
    return make("td", { class: "number" }, found === null ? "" : shown(found));
  });
  const name = make("button", { type: "button", "data-at": `track ${track.id}`, "aria-current": String(isOpen), onclick: () => open(track) }, track.name);
  return make("tr", { class: isOpen ? "open" : "" }, make("td", {}, name, state && make("span", { class: track.state === "failed" ? "fault" : "dim" }, ` ${state}`)), cells);
}
