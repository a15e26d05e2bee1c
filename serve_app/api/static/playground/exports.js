// Files that the service writes for other programs: CSV of the library, and rekordbox' XML.

import { make } from "/playground/dom.js";
import { Refusal, exported } from "/playground/api.js";
import { save } from "/playground/downloads.js";
import { pathOf } from "/playground/dropped.js";

const FOLDER = "afa-folder";
const NAMES = { csv: "afa.csv", rekordbox: "afa-rekordbox.xml" };

const button = (name, format, wanted, fault) => make("button", { type: "button", onclick: () => download(format, wanted(), fault) }, name);

async function download(format, tracks, fault) {
  fault.textContent = "";
  try {
    save(NAMES[format], await exported(format, tracks));
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    fault.textContent = error.message;
  }
}

/** Buttons for tracks whose files the service knows; `wanted()` gives them, `fault` is where a refusal is told. */
export const csvButton = (wanted, fault) => button("CSV", "csv", wanted, fault);
export const rekordboxButton = (wanted, fault) => button("rekordbox XML", "rekordbox", wanted, fault);

const alike = new Intl.Collator(undefined, { sensitivity: "accent" }); // as systems write names: "É" in one sign or in two, in either case

/** A path in a folder; whoever dropped a folder may have named that one, or where it lies. */
function inFolder(folder, path) {
  const above = folder.replace(/[\\/]+$/, "");
  const parts = path.split("/");
  if (parts.length > 1 && !alike.compare(above.split(/[\\/]/).at(-1), parts[0])) parts.shift();
  return [above, ...parts].join(/^[A-Za-z]:\\/.test(folder) ? "\\" : "/");
}

/** Whether the page knows what a track's file is called: of a job of before it does not. */
export const isNamed = ({ file, url }) => Boolean(file || url);

/** Ask for the folder of files that were sent: a page never learns it, and rekordbox finds tracks by it. */
export function rekordboxForm(tracks) {
  const fault = make("p", { class: "fault", role: "alert" });
  const folder = make("input", { type: "text", required: true, spellcheck: "false", pattern: "(/|[A-Za-z]:[\\\\\\/]).*", title: "A full path, such as /Users/ada/Music or C:\\Music", placeholder: "/Users/you/Music", "aria-label": "Folder of the files on your disk", value: sessionStorage.getItem(FOLDER) ?? "" });
  return make("form", { class: "rekordbox", onsubmit: (event) => {
    event.preventDefault();
    sessionStorage.setItem(FOLDER, folder.value);
    download("rekordbox", tracks().filter((track) => track.jobId && isNamed(track)).map((track) => ({ id: track.jobId, location: inFolder(folder.value, track.file ? pathOf(track.file) : track.name) })), fault);
  } },
    make("p", { class: "dim" }, "rekordbox finds a track by the path of its file. Folder on your disk:"),
    make("div", { class: "line" }, folder, make("button", { type: "submit" }, "rekordbox XML")), fault);
}
