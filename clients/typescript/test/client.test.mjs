/** Runs against a service: AFA_URL, AFA_KEY, and AFA_AUDIO, a file that it knows as the demo track. */

import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { openAsBlob } from "node:fs";
import { createServer } from "node:http";
import { test } from "node:test";

import { Afa, AfaError, JobFailedError, verifyWebhook } from "../dist/index.js";

const { AFA_URL, AFA_KEY, AFA_AUDIO } = process.env;
const DEMO = "0AfaDemoTrack000000001";
const afa = new Afa(AFA_URL, AFA_KEY);
const audio = await openAsBlob(AFA_AUDIO, { type: "audio/mpeg" });

test("an upload is analysed and waited for", async () => {
  const job = await afa.analyze(audio, { includeEmbedding: true });
  const features = await afa.wait(job);
  assert.equal(features.tempo, 120);
  assert.equal(features.key, "A");
  assert.equal(features.embedding.length, 768);
  const spotify = await afa.wait(job.job_id, { format: "spotify" });
  assert.deepEqual([spotify.key, spotify.mode, spotify.energy], [9, 0, 0.3]);
  assert.equal((await afa.job(job.job_id)).status, "complete");
});

test("an asset is stored, listed page by page, and used instead of sent audio", async () => {
  const bytes = new Uint8Array(await audio.arrayBuffer());
  const made = new Set();
  for (const end of [0, 1, 2])
    made.add((await afa.uploadAsset(new Blob([bytes, new Uint8Array([end])]))).asset_id);
  const listed = [];
  for await (const asset of afa.assets(2)) listed.push(asset.asset_id);
  assert.deepEqual([...made].filter((asset_id) => !listed.includes(asset_id)), []);
  assert.equal(new Set(listed).size, listed.length);
  const [asset_id] = made;
  assert.equal((await afa.asset(asset_id)).content_type, "audio/mpeg");
  assert.equal((await afa.bpm({ asset_id })).asset_id, asset_id);
  assert.equal((await afa.bpm(bytes)).tempo, 120);
  for (const asked of [(...said) => afa.bpm(...said), (...said) => afa.analyze(...said)])
    await assert.rejects(asked(bytes, { tempoRange: [160, 80] }), /160-80/);
});

test("tracks are looked up in every way", async () => {
  assert.equal((await afa.features(DEMO)).title, "Demo in A minor");
  assert.equal((await afa.features(DEMO, "spotify")).id, DEMO);
  assert.equal((await afa.featuresByName("Demo in A minor", "The afa Demo Band")).camelot, "8A");
  assert.equal((await afa.keyBpm("Demo in A minor", "The afa Demo Band")).mode, "minor");
  assert.equal((await afa.resolve(DEMO)).isrc, "QZAFA2600001");
  assert.ok((await afa.beatgrid(DEMO)).beats.length > 10);
  const { audio_features: slots } = await afa.batch([DEMO, "7unknownTrack000000000"], { extended: true });
  assert.equal(slots[0].models.beats, "fake");
  assert.equal(slots[1], null);
  assert.equal((await afa.identify(audio)).title, "Demo");
  assert.equal((await afa.account()).tier, "pro");
});

test("the library is filled, searched, changed and emptied", async () => {
  const { asset_id } = await afa.uploadAsset(audio);
  const added = await afa.addToLibrary({ asset_id, artist: "The Clients", title: "Typed", tags: ["a", "b"] });
  await afa.wait(added.job_id);
  const { track } = await afa.changeLibraryTrack(added.track.id, { album: "First" });
  assert.deepEqual([track.album, track.tempo, track.artist], ["First", 120, "The Clients"]);
  const found = async (query) => {
    const ids = [];
    for await (const one of afa.library(query)) ids.push(one.id);
    return ids;
  };
  assert.deepEqual(await found({ q: "clients typed", tag: ["a", "b"], tempo_min: 119 }), [track.id]);
  assert.deepEqual(await found({ q: "clients typed", tag: ["a", "c"] }), []);
  assert.equal((await afa.libraryTrack(track.id)).track.title, "Typed");
  await afa.removeFromLibrary(track.id);
  assert.deepEqual(await found({ q: "clients typed" }), []);
  const jobs = [];
  for await (const job of afa.jobs(1)) jobs.push(job.job_id);
  assert.ok(jobs.includes(added.job_id));
  await afa.deleteJob(added.job_id);
  await afa.deleteAsset(asset_id);
  assert.equal((await afa.asset(asset_id).catch((error) => error)).code, "asset_not_found");
});

test("a wait for a silent service ends", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const silent = (_, { signal }) =>
    new Promise((_, fail) => signal?.addEventListener("abort", () => fail(signal.reason)));
  const waiting = new Afa(AFA_URL, AFA_KEY, { fetch: silent }).wait("job_1", { timeoutS: 5 });
  const outcome = Promise.race([waiting.catch((error) => error.code), new Promise(setImmediate)]);
  t.mock.timers.tick(15_000);
  assert.equal(await outcome, "unfinished");
});

test("errors repeat what the service says", async () => {
  const missing = await afa.features("7unknownTrack000000000").catch((error) => error);
  assert.ok(missing instanceof AfaError);
  assert.deepEqual([missing.status, missing.code, missing.traceId.length], [404, "track_not_found", 32]);
  const stranger = await new Afa(AFA_URL, "afa_live_nobodys").account().catch((error) => error);
  assert.equal(stranger.code, "unauthorized");
  const job = await afa.analyze(new Blob(["RIFF", new Uint8Array(2000)]));
  const failed = await afa.wait(job).catch((error) => error);
  assert.ok(failed instanceof JobFailedError);
  assert.equal(failed.code, "unprocessable_audio");
  const away = new Afa("http://127.0.0.1:1", "", { retries: 1, firstPauseMs: 1 });
  const unheard = await away.account().catch((error) => error);
  assert.equal(unheard.code, "no_answer");
  assert.match(unheard.message, /^no answer: .*(bad port|ECONNREFUSED)/);
});

test("a request whose answer is lost is sent again, with the same key, and charged once", async () => {
  const before = (await afa.account()).credits.remaining;
  const keys = [];
  const lossy = async (url, init) => {
    const response = await fetch(url, init);
    if (init.method === "POST" && keys.push(init.headers.get("Idempotency-Key")) === 1)
      throw new TypeError("the answer was lost");
    return response;
  };
  const client = new Afa(AFA_URL, AFA_KEY, { fetch: lossy, firstPauseMs: 1 });
  await client.wait(await client.analyze(audio));
  assert.equal(keys.length, 2);
  assert.equal(keys[0], keys[1]);
  assert.equal((await afa.account()).credits.remaining, before - 10);
});

test("a pause that the service asks for is observed, or refused if too long", async () => {
  let refusals = 1;
  const busy = async (url, init) => {
    if (refusals-- <= 0) return fetch(url, init);
    const body = JSON.stringify({ error: "rate_limit_exceeded", message: "slower", trace_id: "t" });
    return new Response(body, { status: 429, headers: { "Retry-After": "1" } });
  };
  const begun = Date.now();
  assert.equal((await new Afa(AFA_URL, AFA_KEY, { fetch: busy }).account()).tier, "pro");
  assert.ok(Date.now() - begun >= 990);
  refusals = 1;
  const hurried = new Afa(AFA_URL, AFA_KEY, { fetch: busy, longestPauseMs: 500 });
  assert.equal((await hurried.account().catch((error) => error)).retryAfterMs, 1000);
});

test("a pause is given in seconds or as a date", async () => {
  const until = new Date(Date.now() + 300_000).toUTCString();
  const asked = [[until, 300_000], ["Sunday, 06-Nov-94 08:49:37 GMT", 0], ["7", 7000], ["soon", undefined], ["-5", undefined]];
  for (const [written, ms] of asked) {
    const busy = async () => new Response("{}", { status: 503, headers: { "Retry-After": written } });
    const hurried = new Afa(AFA_URL, AFA_KEY, { fetch: busy, retries: 1, longestPauseMs: 100 });
    const { retryAfterMs } = await hurried.account().catch((error) => error);
    if (ms) assert.ok(Math.abs(retryAfterMs - ms) < 5000, `${written}: ${retryAfterMs}`);
    else assert.equal(retryAfterMs, ms, written);
  }
});

test("a wait can be aborted", async () => {
  const silent = (url, { signal }) => new Promise((_, reject) => {
    signal.addEventListener("abort", () => reject(signal.reason));
  });
  const waiting = new Afa(AFA_URL, AFA_KEY, { fetch: silent });
  const given = new AbortController();
  setTimeout(() => given.abort(), 50);
  const broken = waiting.wait("job_00000000000000000000000000", { signal: given.signal });
  await assert.rejects(broken, { name: "AbortError" });
});

test("a message is read if it was signed with the secret", async () => {
  const { secret } = await afa.setWebhook("https://example.org/afa");
  assert.equal((await afa.webhook()).secret, secret);
  await afa.deleteWebhook();
  const now = Math.floor(Date.now() / 1000);
  const body = JSON.stringify({ type: "job.complete", timestamp: "t", data: { job_id: "j", status: "complete" } });
  const headersAt = (sent) => {
    const key = Buffer.from(secret.slice("whsec_".length), "base64");
    const signature = createHmac("sha256", key).update(`msg_j.${sent}.${body}`).digest("base64");
    return new Headers({
      "webhook-id": "msg_j",
      "webhook-timestamp": String(sent),
      "webhook-signature": `v1,${signature}`,
    });
  };
  assert.equal((await verifyWebhook(secret, headersAt(now), body)).data.job_id, "j");
  const changed = (change) => {
    const headers = headersAt(now);
    headers.set("webhook-signature", change(headers.get("webhook-signature")));
    return verifyWebhook(secret, headers, body);
  };
  assert.equal((await changed((ours) => `v1a,abc= ${ours}`)).data.job_id, "j");
  for (const wrong of ["v1,!!!not base64", "v1", "v1,", "v1,abc="])
    await assert.rejects(changed(() => wrong), AfaError);
  await assert.rejects(verifyWebhook(secret, headersAt(now), `${body} `), AfaError);
  await assert.rejects(verifyWebhook(secret, headersAt(now - 301), body), /too old/);
  await assert.rejects(verifyWebhook("whsec_AAAA", headersAt(now), body), AfaError);
});

/** A server that answers its n-th request with the n-th of `answers`, then repeats the last. */
async function servedBy(answers, ask) {
  let asked = 0;
  const server = createServer((request, response) => answers[Math.min(asked++, answers.length - 1)](response));
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const options = { retries: 2, firstPauseMs: 1 };
  const told = await ask(new Afa(`http://127.0.0.1:${server.address().port}`, "KEY", options)).catch((e) => e);
  server.close();
  server.closeAllConnections();
  return [told, asked];
}

const breakOff = (response) => {
  response.writeHead(200, { "Content-Length": 100 });
  response.write('{"items":[', () => response.destroy());
};

test("a request whose answer breaks off is sent again", async () => {
  const whole = (response) => response.end('{"items":[]}');
  assert.deepEqual(await servedBy([breakOff, whole], (afa) => afa.models()), [{ items: [] }, 2]);
  const [told, asked] = await servedBy([breakOff], (afa) => afa.models());
  assert.ok(told instanceof AfaError);
  assert.deepEqual([told.status, told.code, asked], [0, "no_answer", 3]);
});

test("an answer from something other than the service is reported", async () => {
  const page = (response) => response.end("<p>Log in</p>");
  for (const ask of [(afa) => afa.models(), (afa) => afa.embed([])]) {
    const [told, asked] = await servedBy([page], ask);
    assert.ok(told instanceof AfaError);
    assert.deepEqual([told.status, told.code, told.message, asked], [200, "not_from_afa", "<p>Log in</p>", 1]);
  }
});

test("a pause ends when its request is aborted", async () => {
  const busy = (response) => response.writeHead(503, { "Retry-After": 30 }).end("{}");
  const reason = new Error("enough");
  const began = Date.now();
  const [told] = await servedBy([busy], (afa) => {
    const stop = new AbortController();
    setTimeout(() => stop.abort(reason), 200);
    return afa.analyzeUrl("http://a.test", { signal: stop.signal });
  });
  assert.equal(told, reason);
  assert.ok(Date.now() - began < 5000);
});

test("what is not audio is not sent", async () => {
  let sent = 0;
  const counted = new Afa(AFA_URL, AFA_KEY, { fetch: async () => (sent++, new Response("{}")) });
  for (const odd of ["song.mp3", null, 7, audio.stream(), new Response(audio), [audio], {}])
    for (const ask of [counted.analyze(odd), counted.identify(odd)])
      await assert.rejects(ask, /^TypeError: audio: give a Blob or File, bytes, or/);
  assert.equal(sent, 0);
  for (const good of [audio, await audio.arrayBuffer(), new Uint8Array(2), Buffer.from("a"), { asset_id: "afa_" }])
    await counted.bpm(good);
  assert.equal(sent, 5);
});

test("an id that would lead to another path is not sent", async () => {
  for (const id of ["", ".", ".."])
    await assert.rejects(async () => afa.job(id), /^TypeError: no id/);
});

test("a key that no request can carry is not repeated in the error", () => {
  for (const key of ["secret\nX: y", "secr\u00e9t"])
    assert.throws(() => new Afa(AFA_URL, key), (error) => error instanceof TypeError && !error.message.includes("secr"));
});
