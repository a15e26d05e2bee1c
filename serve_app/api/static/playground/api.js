// Requests to the service. The key comes from the address's fragment or the form and stays in this tab.

import { sleep } from "/playground/dom.js";

const STORED = "afa-key";
const BUSY = new Set([429, 503]);
const LONGEST_PAUSE_S = 60;

/** What the service refused: its message says what to do. */
export class Refusal extends Error {
  constructor(status, body) {
    super(body.message ?? `the service answered ${status}`);
    this.status = status;
    this.code = body.error ?? "";
    this.trace = body.trace_id ?? "";
  }
}

/** Take the key out of the address, where it would be copied and shown. */
export function takeKey() {
  const fragment = new URLSearchParams(location.hash.slice(1));
  const key = fragment.get("key");
  if (key === null) return;
  setKey(key);
  fragment.delete("key");
  history.replaceState(null, "", location.pathname + (fragment.size ? `#${fragment}` : ""));
}

export const key = () => sessionStorage.getItem(STORED) ?? "";
export const setKey = (value) => sessionStorage.setItem(STORED, value.trim());
export const forgetKey = () => sessionStorage.removeItem(STORED);

/**
 * Ask, and wait as long as a busy service says.
 * `told.paused(seconds, message)` and `told.offline(isAway)` hear of it meanwhile.
 */
export async function ask(path, options = {}, told = {}) {
  for (let tries = 1; ; tries += 1) {
    let answer;
    try {
      answer = await fetch(path, { ...options, headers: { ...options.headers, Authorization: `Bearer ${key()}` } });
    } catch {
      told.offline?.(true);
      await sleep(Math.min(1000 * 2 ** tries, 15_000));
      continue;
    }
    told.offline?.(false);
    const body = await answer.json().catch(() => ({}));
    if (answer.ok) return body;
    if (!BUSY.has(answer.status)) throw new Refusal(answer.status, body);
    const pause = Math.min(Number(answer.headers.get("Retry-After")) || 1, LONGEST_PAUSE_S);
    for (let left = pause; left > 0; left -= 1) {
      told.paused?.(left, body.message ?? "the service is busy");
      await sleep(1000);
    }
  }
}

export const account = (told) => ask("/v1/account", {}, told);

// The same request is paid once, however often it is sent again.
const once = () => ({ "Idempotency-Key": crypto.randomUUID() });

export const submitFile = (file, told) =>
  ask("/v1/audio-features/upload", { method: "POST", body: file, headers: once() }, told);

export const submitUrl = (url, told) =>
  ask("/v1/audio-features/url", { method: "POST", body: JSON.stringify({ url }), headers: { "Content-Type": "application/json", ...once() } }, told);

/** Follow a job to its end; `told.stage(envelope)` hears of every look. */
export async function follow(jobId, told) {
  for (;;) {
    const job = await ask(`/v1/jobs/${jobId}?wait=1`, {}, told);
    told.stage?.(job);
    if (job.status === "complete") return job;
    if (job.status === "failed") throw new Refusal(200, job.error);
    await sleep(150);
  }
}

export const analysis = (jobId, told) => ask(`/v1/analysis/${jobId}`, {}, told);
