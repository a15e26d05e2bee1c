// Results as files: one track as JSON, the list as CSV.

import { make } from "/playground/dom.js";

const COLUMNS = [
  ["file", (track) => track.name], ["artist"], ["title"], ["tempo"], ["tempo_confidence"], ["key"], ["mode"], ["camelot"], ["key_confidence"],
  ["time_signature"], ["loudness"], ["loudness_range"], ["true_peak"], ["mix_in"], ["mix_out"], ["energy"], ["danceability"], ["happiness"],
  ["acousticness"], ["instrumentalness"], ["speechiness"], ["liveness"], ["duration_ms"],
  ["tags", (track) => track.result.mood_tags.filter((tag) => tag.score >= 0.6).map((tag) => tag.tag).join("; ")],
];

function save(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
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

export const saveCsv = (tracks) => save("afa.csv", csv(tracks), "text/csv");

export function saveJson(track) {
  const { _meta, ...result } = track.result;
  save(`${track.name.replace(/\.\w+$/, "")}.json`, JSON.stringify(result, null, 2), "application/json");
}
