// The lines that do the same from elsewhere, with the real key, file and id in them.

import { make } from "/playground/dom.js";
import { key } from "/playground/api.js";
import { idOf } from "/playground/tracks.js";

const quoted = (text) => JSON.stringify(text);
const bare = (id) => id.slice(4); // spotipy takes letters and digits alone

function lines(track) {
  const all = track.libraryId ? ofLibrary(idOf(track)) : ofUpload(track);
  return { ...all, JSON: JSON.stringify({ ...track.result, segments: `${track.result.segments.length} segments, see the download` }, null, 2) };
}

function ofLibrary(id) {
  const base = location.origin;
  return {
    curl: `# everything that was found in the track\ncurl -H 'Authorization: Bearer ${key()}' '${base}/v1/analysis/${id}'\n\n# what sounds like it, in keys that mix\ncurl -H 'Authorization: Bearer ${key()}' '${base}/v1/similar/${id}?compatible=true'`,
    Python: `import httpx\n\nafa = httpx.Client(base_url=${quoted(base)}, timeout=90, headers={"Authorization": "Bearer ${key()}"})\ntrack = afa.get("/v1/analysis/${id}").json()\nprint(track["tempo"], track["key"], track["camelot"])\n\nfor near in afa.get("/v1/similar/${id}").json()["items"]:\n    print(near["track"]["title"], near["key_relation"], near["tempo_ratio"])`,
    spotipy: `import spotipy\n\nsp = spotipy.Spotify(auth=${quoted(key())})\nsp.prefix = "${base}/spotify/v1/"\nfeatures = sp.audio_features(["${bare(id)}"])[0]\nanalysis = sp.audio_analysis("${bare(id)}")`,
    JavaScript: `const headers = { Authorization: "Bearer ${key()}" };\nconst track = await (await fetch("${base}/v1/analysis/${id}", { headers })).json();\nconst similar = await (await fetch("${base}/v1/similar/${id}", { headers })).json();`,
  };
}

function ofUpload(track) {
  const base = location.origin;
  const name = track.file ? track.file.name : "track.mp3";
  const field = `file=@"${name.replace(/["\\]/g, "\\$&")}"`; // without the quotes a comma or semicolon ends the name
  const shell = `'${field.replaceAll("'", "'\\''")}'`;
  return {
    curl: `# analyse, and wait for the result\ncurl -H 'Authorization: Bearer ${key()}' -F ${shell} \\\n  '${base}/v1/audio-features/upload?wait=60'\n\n# bars, beats, sections and segments of this track\ncurl -H 'Authorization: Bearer ${key()}' '${base}/v1/analysis/${track.jobId}'`,
    Python: `import httpx\n\nafa = httpx.Client(base_url=${quoted(base)}, timeout=90, headers={"Authorization": "Bearer ${key()}"})\nwith open(${quoted(name)}, "rb") as audio:\n    job = afa.post("/v1/audio-features/upload", params={"wait": 60}, files={"file": audio}).json()\nprint(job["result"]["tempo"], job["result"]["key"], job["result"]["camelot"])\n\nstructure = afa.get("/v1/analysis/${track.jobId}").json()`,
    spotipy: `import spotipy\n\nsp = spotipy.Spotify(auth=${quoted(key())})\nsp.prefix = "${base}/spotify/v1/"\nfeatures = sp.audio_features(["${bare(track.jobId)}"])[0]\nanalysis = sp.audio_analysis("${bare(track.jobId)}")`,
    JavaScript: `const headers = { Authorization: "Bearer ${key()}" };\nconst form = new FormData();\nform.append("file", file); // a File of an <input type="file">\nconst job = await (await fetch("${base}/v1/audio-features/upload?wait=60", { method: "POST", headers, body: form })).json();\nconst structure = await (await fetch("${base}/v1/analysis/${track.jobId}", { headers })).json();`,
  };
}

/** Make the tabs; arrow keys go from one to the next. */
export function samples(track) {
  const texts = lines(track);
  const names = Object.keys(texts);
  const code = make("pre", { id: "sample", role: "tabpanel", tabindex: 0 });
  const tabs = names.map((name) => make("button", { role: "tab", type: "button", "aria-controls": "sample", onclick: () => choose(name) }, name));
  const copy = make("button", { type: "button", hidden: !navigator.clipboard, onclick: () => navigator.clipboard.writeText(code.textContent).then(() => (copy.textContent = "Copied")) }, "Copy");
  const choose = (name) => {
    code.textContent = texts[name];
    code.setAttribute("aria-label", name);
    copy.textContent = "Copy";
    tabs.forEach((tab) => {
      const isChosen = tab.textContent === name;
      tab.setAttribute("aria-selected", isChosen);
      tab.tabIndex = isChosen ? 0 : -1;
    });
  };
  const list = make("div", { class: "tabs", role: "tablist", "aria-label": "The same in code", onkeydown: (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const at = tabs.indexOf(document.activeElement);
    const tab = tabs[(at + step + tabs.length) % tabs.length];
    tab.focus();
    choose(tab.textContent);
  } }, tabs);
  choose(names[0]);
  return make("section", { class: "panel", "aria-label": "The same in code" }, list, make("div", { class: "sample" }, copy, code));
}
