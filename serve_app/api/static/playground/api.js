// Requests to the service. The key comes from the address's fragment or the form and stays in this tab.

import { sleep } from "/playground/dom.js";

const STORED = "afa-key";
const BUSY = new Set([429, 503]);
const LONGEST_PAUSE_S = 60;
const MOST_UPLOADS = 5; // of one file: a 503 may say that its upload takes too long
const PATIENCE = 3; // by which the pauses between them grow
const SENDABLE = /^[!-~]+$/; // a header takes no other key

/** What the service refused, or would: its message says what to do. */
export class Refusal extends Error {
  constructor(status, body) {
    super(body.message ?? `the service answered ${status}`);
    this.status = status;
    this.code = body.error ?? "";
    this.trace = body.trace_id ?? "";
  }
}

/** Take the key out of the address, where it would be copied and shown; tell whether there was one. */
export function takeKey() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const key = fragment.get("key");
  if (key === null) return false;
  setKey(key);
  fragment.delete("key");
  history.replaceState(null, "", location.pathname + (fragment.size ? `#${fragment}` : ""));
  return true;
}

export const key = () => sessionStorage.getItem(STORED) ?? "";
export const setKey = (value) => sessionStorage.setItem(STORED, value.trim());
export const forgetKey = () => sessionStorage.removeItem(STORED);

/** The account of the key: limits and prices; null before it is known. */
export let mine = null;

/** Who hears that the service takes no key like this; and that it is absent or busy, where a request has nobody of its own. */
export const page = { denied() {}, offline() {}, paused() {} };

/**
 * Ask, and wait as long as a busy service says.
 * `told.paused(seconds, message)` and `told.offline(isAway)` hear of it meanwhile.
 */
export async function ask(path, options = {}, told = page, read = (answer) => answer.json()) {
  const isUpload = options.body instanceof Blob;
  for (let tries = 1, refused = 0; ; tries += 1) {
    if (isUpload) await mustBeReadable(options.body);
    let answer;
    try {
      answer = await fetch(path, { ...options, headers: { ...options.headers, Authorization: `Bearer ${key()}` } });
    } catch {
      told.offline(true);
      await sleep(Math.min(1000 * 2 ** tries, 15_000));
      continue;
    }
    told.offline(false);
    if (answer.ok) return read(answer);
    const body = await answer.json().catch(() => ({}));
    if (answer.status === 401) page.denied(body.message ?? "");
    if (isUpload && answer.status === 503) refused += 1;
    if (!BUSY.has(answer.status) || refused === MOST_UPLOADS) throw new Refusal(answer.status, body);
    const wanted = Number(answer.headers.get("Retry-After")) || 1;
    const pause = Math.min(Math.max(wanted, PATIENCE ** (refused - 1)), LONGEST_PAUSE_S);
    for (let left = pause; left > 0; left -= 1) {
      told.paused(left, body.message ?? "the service is busy");
      await sleep(1000);
    }
  }
}

/** The upload of a file that is gone fails as an absent service does; in Firefox it hangs. */
async function mustBeReadable(file) {
  try {
    const reader = file.stream().getReader();
    await reader.read();
    await reader.cancel();
  } catch {
    throw new Refusal(0, { error: "unreadable_file", message: "This file cannot be read: it was moved, changed or deleted since it was chosen." });
  }
}

let enter;

/** Kept once the service took a key. */
export const entered = new Promise((resolve) => (enter = resolve));

export async function account() {
  if (!SENDABLE.test(key())) throw new Refusal(401, { error: "unauthorized", message: "this API key is not valid; it may have been mistyped" });
  mine = await ask("/v1/account");
  enter();
  return mine;
}

// The same request is paid once, however often it is sent again. (`randomUUID` is there on https and loopback alone.)
const once = () => ({ "Idempotency-Key": [...crypto.getRandomValues(new Uint32Array(4))].join("-") });

const sent = (body) => ({ method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json", ...once() } });
// With its embedding, where the tier has it, a track can be compared with the library.
const wants = () => ({ include_embedding: Boolean(mine.limits.embedding) });

export const submitFile = (file, told) => ask(`/v1/audio-features/upload?${new URLSearchParams(wants())}`, { method: "POST", body: file, headers: once() }, told);

export const submitUrl = (url, told) => ask("/v1/audio-features/url", sent({ url, ...wants() }), told);

/** Follow a job to its end; `told.stage(envelope)` hears of every look. */
export async function follow(jobId, told) {
  for (;;) {
    const job = await ask(`/v1/jobs/${jobId}?wait=1`, {}, told);
    told.stage(job);
    if (job.status === "complete") return job;
    if (job.status === "failed") throw new Refusal(200, job.error);
    await sleep(150);
  }
}

/** Everything that was found in a track, by the id of its job or of the library. */
export const analysis = (id, told) => ask(`/v1/analysis/${id}`, {}, told);

export const library = (query) => ask(`/v1/library?${query}`);
export const libraryMap = () => ask("/v1/library/map");
export const similar = (seed, filters) => ask("/v1/similar", sent({ seeds: [seed], ...filters }));

/** Tracks, `{id, location}` each, as a file. */
export const exported = (format, tracks) => ask("/v1/export", sent({ format, tracks }), page, (answer) => answer.blob());

/** The track that every service brings along. */
export const demo = () => ask("/playground/demo.mp3", {}, page, (answer) => answer.blob());

