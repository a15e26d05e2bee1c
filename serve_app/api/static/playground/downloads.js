// Results as files that the page makes by itself: a track as JSON, the list as CSV, a copy with tags.

import { make } from "/playground/dom.js";
import { tagged, tagsOf } from "/playground/tags.js";

const COLUMNS = [
  ["file", (track) => track.name], ["artist"], ["title"], ["tempo"], ["tempo_confidence"], ["key"], ["mode"], ["camelot"], ["key_confidence"],
  ["time_signature"], ["loudness"], ["loudness_range"], ["true_peak"], ["mix_in"], ["mix_out"], ["energy"], ["danceability"], ["happiness"],
  ["acousticness"], ["instrumentalness"], ["speechiness"], ["liveness"], ["duration_ms"],
  ["tags", (track) => track.result.mood_tags.filter((tag) => tag.score >= 0.6).map((tag) => tag.tag).join("; ")],
];

/** Have the browser keep a file. */
export function save(name, blob) {
  const address = URL.createObjectURL(blob);
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

// A cell that begins like a formula would run in a spreadsheet.
const cell = (value) => {
  const text = String(value ?? "");
  const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

/** The list as CSV (RFC 4180), one line for each analysed track. */
export function csv(tracks) {
  const rows = tracks.map((track) => COLUMNS.map(([name, of]) => cell(of ? of(track) : track.result[name])));
  return [COLUMNS.map(([name]) => name), ...rows].map((row) => row.join(",")).join("\r\n") + "\r\n";
}

export const saveCsv = (tracks) => save("afa.csv", new Blob([csv(tracks)], { type: "text/csv" }));

export function saveJson(track) {
  const { _meta, ...result } = track.result;
  save(`${track.name.replace(/\.\w+$/, "")}.json`, new Blob([JSON.stringify(result, null, 2)], { type: "application/json" }));
}

/** A copy of the track's file under the same name; raises `UnwritableTags`. */
export async function saveTagged(track) {
  save(track.name, await tagged(track.file, tagsOf(track.result, track.factor)));
}
