// The tracks of this visit: each goes from sent to analysed, a few at a time.

import { Refusal, analysis, entered, follow, key, submitFile, submitUrl } from "/playground/api.js";

const AT_ONCE = 3;
const KEPT = "afa-tracks"; // names and jobs of this tab
const RUNNING = { queued: "waiting for a worker", running: "" }; // what a job says before its end

export const tracks = [];
const waiting = [];
const listeners = [];
let running = 0;

/** Be told whenever a track changes. */
export const onChange = (listener) => listeners.push(listener);

function changed(track) {
  const kept = tracks.filter((one) => one.jobId && one.fault?.status !== 404);
  sessionStorage.setItem(KEPT, JSON.stringify(kept.map(({ name, jobId }) => [name, jobId])));
  listeners.forEach((listener) => listener(track));
}

/** Bring back what this tab had sent before it was loaded anew. */
export const restore = () => JSON.parse(sessionStorage.getItem(KEPT) ?? "[]").forEach(([name, jobId]) => add(name, { jobId }));

/** Begin anew, with an empty list. */
export function forget() {
  sessionStorage.removeItem(KEPT);
  location.assign(location.pathname);
}

/** Whether the service lacks something that was brought. */
export const hasUnsent = () => tracks.some((track) => ["waiting", "sending"].includes(track.state) && !idOf(track));

/** Take files in; gives their tracks. */
export const addFiles = (files) => [...files].map((file) => add(file.name, { file }));
export const addUrl = (url) => add(fileOf(url), { url });

/** The name of the file at an address, or the address where it tells none. */
function fileOf(url) {
  try {
    return decodeURIComponent(new URL(url).pathname.split("/").pop()) || url;
  } catch {
    return url;
  }
}

/** Show a job of before again, or a track of the library, by its id; one that is here already is not brought twice. */
export function addKnown(id) {
  const kind = id.startsWith("job_") ? "jobId" : "libraryId";
  return tracks.find((track) => track[kind] === id) ?? add(id, { [kind]: id });
}

/** The id by which the service knows a track; null before it does. */
export const idOf = (track) => track.jobId ?? track.libraryId;

/** Artist and title of what the service tells of a track; "" where it knows no title. */
export const nameOf = ({ artist, title }) => (title ? `${artist ? `${artist} – ` : ""}${title}` : "");

/** Send a failed track once more. */
export function again(track) {
  Object.assign(track, { state: "waiting", fault: null, jobId: track.file || track.url ? null : track.jobId });
  waiting.push(track);
  changed(track);
  next();
}

function add(name, source) {
  const track = { id: tracks.length, name, state: "waiting", stage: "", progress: 0, note: "", fault: null, result: null, jobId: null, libraryId: null, factor: 1, ...source };
  tracks.push(track);
  waiting.push(track);
  changed(track);
  next();
  return track;
}

function next() {
  while (running < AT_ONCE && waiting.length) {
    running += 1;
    run(waiting.shift()).finally(() => {
      running -= 1;
      next();
    });
  }
}

async function run(track) {
  const set = (values) => {
    Object.assign(track, values);
    changed(track);
  };
  const told = {
    offline: (isAway) => isAway !== (track.note === "offline") && set({ note: isAway ? "offline" : "" }),
    paused: (left, message) => set({ note: `${message}; again in ${left} s` }),
    stage: (job) => job.status in RUNNING && set({ state: job.status, stage: RUNNING[job.status] || job._meta.stage, progress: job._meta.progress, note: "" }),
  };
  if (!key()) set({ note: "Waiting for your API key." });
  await entered;
  const began = performance.now();
  try {
    if (track.libraryId) {
      const result = await analysis(track.libraryId, told);
      set({ result, name: nameOf(result) || track.name, left: result._meta.credits_remaining, state: "complete" });
      return;
    }
    if (!track.jobId) {
      set({ state: "sending", note: "" });
      const job = track.file ? await submitFile(track.file, told) : await submitUrl(track.url, told);
      set({ jobId: job.job_id, state: job.status, note: "" });
    }
    const job = await follow(track.jobId, told);
    const result = await analysis(track.jobId, told);
    set({ result, hasEmbedding: Boolean(job.result.embedding), credits: job._meta.credits_used, left: job._meta.credits_remaining, tookS: (performance.now() - began) / 1000, state: "complete" });
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    set({ state: "failed", fault, note: "" });
  }
}
