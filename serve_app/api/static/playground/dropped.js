// What was dropped, as files: those of folders too, and of folders in them.

const MOST_FILES = 200;
const MOST_SEEN = 20_000; // a folder may hold a whole disk

/** How names of audio files end; in a folder lie covers and lists as well. */
export const ENDINGS = ["mp3", "wav", "flac", "ogg", "opus", "m4a", "mp4", "aac", "aiff", "webm", "mka", "mp2", "wave", "oga", "aif", "aifc", "m4b", "wma", "ac3", "eac3", "wv", "tta", "au", "caf", "w64", "ape", "amr", "3gp", "mpc", "mp+", "dsf", "dff"];

const isAudio = ({ name }) => ENDINGS.includes(name.split(".").pop().toLowerCase());
const paths = new WeakMap();
const asked = (ask) => new Promise((resolve, reject) => ask(resolve, reject));

/** Where a file lies below what it was dropped from: `Music/disc 1/two.flac` of a folder, else its name. */
export const pathOf = (file) => paths.get(file) ?? file.name;

/** The files of a drop, and what is to be said of them; "" where all are taken. */
export async function filesOf(transfer) {
  // The browser forgets the items when the event is over.
  const items = [...transfer.items].filter(({ kind }) => kind === "file").map((item) => ({ entry: item.webkitGetAsEntry(), file: item.getAsFile() }));
  const folders = items.filter(({ entry }) => entry?.isDirectory).map(({ entry }) => entry);
  const files = items.filter(({ entry }) => !entry?.isDirectory).map(({ file }) => file);
  if (!folders.length) return { files, words: "" };
  const { found, words } = await audioIn(folders);
  return { files: [...files, ...found], words };
}

async function audioIn(folders) {
  const found = [];
  let seen = 0;
  try {
    for (const folder of folders)
      for await (const entry of walk(folder)) {
        seen += 1;
        if (seen > MOST_SEEN || (found.length === MOST_FILES && isAudio(entry))) return { found, words: `The folder is large: ${found.length} of its audio files are used. \`afa scan\` adds whole collections.` };
        if (!isAudio(entry)) continue;
        const file = await asked((done, failed) => entry.file(done, failed));
        paths.set(file, entry.fullPath.slice(1));
        found.push(file);
      }
  } catch (fault) {
    return { found, words: `Part of the folder cannot be read: ${fault.message}` };
  }
  return { found, words: found.length ? "" : "There are no audio files in the folder." };
}

async function* walk(folder) {
  for (const entry of await listed(folder)) {
    if (entry.isDirectory) yield* walk(entry);
    else yield entry;
  }
}

/** What lies in a folder, by name; the browser gives a hundred at a time, in any order. */
async function listed(folder) {
  const reader = folder.createReader();
  const entries = [];
  for (let some = [null]; some.length; entries.push(...some)) some = await asked((done, failed) => reader.readEntries(done, failed));
  const shown = entries.filter(({ name }) => !/^\.(?!\.)/.test(name)); // titles such as "...And Justice for All" begin with several dots
  return shown.sort((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }));
}
