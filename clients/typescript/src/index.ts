/** Client of afa, the audio-intelligence service. It needs only fetch and Web Crypto. */

import type { components } from "./schema.js";

export type Schemas = components["schemas"];
export type Job = Schemas["JobEnvelope"];
export type AnalysisFeatures = Schemas["AnalysisFeatures"];
export type SpotifyFeatures = Schemas["SpotifyFeatures"];
export type Features = Schemas["FeaturesAnswer"];
export type Batch = Schemas["BatchResponse"];
export type LibraryTrack = Schemas["LibraryTrackBody"];
export type Asset = Schemas["AssetMetadata"];

/** The audio itself, or an asset that was uploaded before. */
export type Audio = Blob | ArrayBuffer | Uint8Array<ArrayBuffer> | { asset_id: string };

type Format = "spotify" | undefined;
type Shape<F extends Format, Canonical> = F extends "spotify" ? SpotifyFeatures : Canonical;

export interface Options {
  /** Sends the requests; the platform's by default. */
  fetch?: typeof globalThis.fetch;
  /** Requests after the first, if one fails for a temporary reason. */
  retries?: number;
  /** Pause before the first of them, if the service does not say; doubled each time. */
  firstPauseMs?: number;
  /** If the service asks for a longer pause, its error is thrown at once. */
  longestPauseMs?: number;
}

export interface Sending {
  /** Your own; the same key and request return the same answer for a day. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

/** The service answered with an error, did not answer (status 0), or something else answered (`not_from_afa`). */
export class AfaError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly traceId: string = "",
    readonly retryAfterMs: number | undefined = undefined,
  ) {
    super(message);
    this.name = "AfaError";
  }
}

/** An analysis failed and was refunded. */
export class JobFailedError extends AfaError {
  constructor(
    readonly jobId: string,
    error: Schemas["Error"],
  ) {
    super(200, error.error, error.message, error.trace_id ?? "");
    this.name = "JobFailedError";
  }
}

const RETRIED = new Set([0, 429, 500, 502, 503, 504]);
const POLL_S = 20;
/** An answer that was asked for in time may arrive this much later. */
const LATEST_MS = 10_000;
const LONGEST_TIMER_MS = 2 ** 31 - 1;

type Query = Record<string, string | number | boolean | readonly string[] | undefined>;

/** Filters for tracks of the library, and their order. */
export type LibraryQuery = {
  /** Words from artist, title, album or tags; all must match. */
  q?: string;
  tempo_min?: number;
  tempo_max?: number;
  year_min?: number;
  year_max?: number;
  energy_min?: number;
  energy_max?: number;
  /** Camelot names; a track needs one of them. */
  key?: readonly string[];
  /** Tags; a track needs all of them. */
  tag?: readonly string[];
  /** `added`, `name`, `tempo`, `key` or `energy`; with `-` descending. */
  sort?: string;
};

/** Which embedding an analysis returns; none by default. */
export interface Embedding {
  includeEmbedding?: boolean;
  /** The model that makes it, if not the one in use. */
  embeddingModel?: string;
}

/** Where to search for the tempo. */
export interface Tempo {
  /** Lowest and highest BPM to search, from 40 to 250, so that half or double the tempo is not chosen. */
  tempoRange?: readonly [number, number];
}

interface Request extends Sending {
  query?: Query;
  json?: unknown;
  audio?: Audio;
  asForm?: boolean;
}

interface Answer {
  response: Response;
  body: Blob;
}

/** One service and one API key. */
export class Afa {
  readonly #options: Required<Options>;

  constructor(
    readonly baseUrl: string,
    readonly apiKey: string,
    options: Options = {},
  ) {
    // Checked here because the layers below would repeat the key in their message.
    if (!/^[!-~]*$/.test(apiKey.trim()))
      throw new TypeError("the API key has characters that no request can carry");
    this.#options = {
      fetch: (input, init) => globalThis.fetch(input, init),
      retries: 4,
      firstPauseMs: 500,
      longestPauseMs: 60_000,
      ...options,
    };
  }

  /** Submit audio for analysis; `wait` returns its features. */
  analyze(audio: Audio, options: Sending & Embedding & Tempo = {}): Promise<Job> {
    const query = {
      include_embedding: options.includeEmbedding,
      embedding_model: options.embeddingModel,
      ...tempo(options),
    };
    return this.#json("POST", "/v1/audio-features/upload", { ...options, query, audio });
  }

  /** Submit audio at a public URL for analysis; `wait` returns its features. */
  analyzeUrl(url: string, options: Sending & Embedding & Tempo = {}): Promise<Job> {
    const json = { url, include_embedding: options.includeEmbedding ?? false };
    const query = { embedding_model: options.embeddingModel, ...tempo(options) };
    return this.#json("POST", "/v1/audio-features/url", { ...options, query, json });
  }

  /** A job as it is now, or as soon as it ends within `waitS` seconds. */
  job(jobId: string, options: { waitS?: number; format?: Format; signal?: AbortSignal } = {}): Promise<Job> {
    const query = { wait: options.waitS, format: options.format };
    return this.#json("GET", `/v1/jobs/${segment(jobId)}`, { ...signal(options), query });
  }

  /** Your jobs, newest first. */
  jobs(pageSize = 50): AsyncGenerator<Schemas["ListedJob"]> {
    return this.#items("/v1/jobs", { limit: pageSize });
  }

  /** Delete a job and its result; a queued job is cancelled and refunded. */
  async deleteJob(jobId: string): Promise<void> {
    await this.#send("DELETE", `/v1/jobs/${segment(jobId)}`, {});
  }

  /** Wait until a job has ended, and return its features; if the service is silent, give up 10 s after `timeoutS`. */
  async wait<F extends Format = undefined>(
    job: Job | string,
    options: { timeoutS?: number; format?: F; signal?: AbortSignal } = {},
  ): Promise<Shape<F, AnalysisFeatures>> {
    const jobId = typeof job === "string" ? job : job.job_id;
    const longestMs = 1000 * (options.timeoutS ?? 600);
    const endMs = Date.now() + longestMs;
    const silence = new AbortController();
    const unheard = new AfaError(0, "unfinished", `the service does not say how far ${jobId} is`);
    const end = () => silence.abort(unheard);
    const timer = setTimeout(end, Math.min(LONGEST_TIMER_MS, longestMs + LATEST_MS));
    const stop = options.signal ? AbortSignal.any([options.signal, silence.signal]) : silence.signal;
    const format: Format = options.format;
    try {
      for (;;) {
        const leftS = Math.max(0, (endMs - Date.now()) / 1000);
        const asked = { waitS: Math.min(POLL_S, leftS), format, signal: stop };
        const now = await this.job(jobId, asked);
        if (now.result) return now.result as Shape<F, AnalysisFeatures>;
        if (now.error) throw new JobFailedError(jobId, now.error);
        if (leftS === 0) throw new AfaError(0, "unfinished", `${jobId} is still ${now.status}`);
      }
    } finally {
      clearTimeout(timer);
    }
  }

  /** Look up a track by any id: Spotify, MusicBrainz, ISRC, Apple Music, Deezer, YouTube. */
  features<F extends Format = undefined>(trackId: string, format?: F): Promise<Shape<F, Features>> {
    return this.#json("GET", `/v1/audio-features/${segment(trackId)}`, { query: { format } });
  }

  /** Look up a track by title and artist. */
  featuresByName<F extends Format = undefined>(
    song: string,
    artist: string,
    format?: F,
  ): Promise<Shape<F, Features>> {
    return this.#json("GET", "/v1/audio-features", { query: { song, artist, format } });
  }

  /** Look up at most 100 tracks; the answer has their order, and null for unknown ones. */
  batch(
    ids: readonly string[],
    options: Sending & { extended?: boolean; format?: Format } = {},
  ): Promise<Batch> {
    const json = { ids, extended: options.extended ?? false };
    return this.#json("POST", "/v1/audio-features", { ...options, query: { format: options.format }, json });
  }

  /** Only the tempo and key of a track. */
  keyBpm(song: string, artist: string): Promise<Schemas["KeyBpm"]> {
    return this.#json("GET", "/v1/key-bpm", { query: { song, artist } });
  }

  /** All identifiers of a track. */
  resolve(trackId: string): Promise<Schemas["ResolvedTrack"]> {
    return this.#json("GET", `/v1/resolve/${segment(trackId)}`, {});
  }

  /** The beats and downbeats of a track. */
  beatgrid(trackId: string): Promise<Schemas["BeatGridBody"]> {
    return this.#json("GET", `/v1/beatgrid/${segment(trackId)}`, {});
  }

  /** Bars, beats, sections and segments of a track, or of your own job by its id. */
  analysis(trackId: string): Promise<Schemas["TrackAnalysis"]> {
    return this.#json("GET", `/v1/analysis/${segment(trackId)}`, {});
  }

  /** Tracks of the library that sound like one. */
  similar(trackId: string, filters: Query = {}): Promise<Schemas["SimilarList"]> {
    return this.#json("GET", `/v1/similar/${segment(trackId)}`, { query: filters });
  }

  /** Tracks that sound like several, or like an embedding. */
  similarTo(
    wanted: Partial<Schemas["SimilarRequest"]>,
    options: Sending = {},
  ): Promise<Schemas["SimilarList"]> {
    return this.#json("POST", "/v1/similar", { ...options, json: wanted });
  }

  /** Tracks of the library that match a description, if the service has a model that reads text. */
  similarToText(text: string, filters: Query = {}): Promise<Schemas["SimilarList"]> {
    return this.#json("GET", "/v1/similar", { query: { ...filters, text } });
  }

  /** Only the embeddings of up to 32 assets and public URLs, in their order. */
  async embed(
    files: readonly ({ asset_id: string } | string)[],
    options: Sending & { embeddingModel?: string } = {},
  ): Promise<Schemas["EmbeddedFile"][]> {
    const named = files.map((file) =>
      typeof file === "string" ? { url: file } : { asset_id: file.asset_id },
    );
    const query = { embedding_model: options.embeddingModel };
    const answer = await this.#send("POST", "/v1/embed", { ...options, query, json: { files: named } });
    return read(answer, (text) =>
      text.trimEnd().split("\n").map((line) => JSON.parse(line) as Schemas["EmbeddedFile"]),
    );
  }

  /** The models that the service knows. */
  models(): Promise<Schemas["ModelList"]> {
    return this.#json("GET", "/v1/models", {});
  }

  /** Up to `n` tracks of the library that lead from one track to another, both included. */
  path(from: string, to: string, n = 10): Promise<Schemas["SimilarList"]> {
    return this.#json("GET", "/v1/path", { query: { from, to, n } });
  }

  /** The tempo of audio at once, without a job. */
  bpm(audio: Audio, options: Sending & Tempo = {}): Promise<Schemas["Bpm"]> {
    return this.#json("POST", "/v1/bpm", { ...options, query: tempo(options), audio });
  }

  /** Identify a recording from three seconds or more of it. */
  identify(audio: Audio, options: Sending = {}): Promise<Schemas["Identification"]> {
    return this.#json("POST", "/v1/identify", { ...options, audio, asForm: true });
  }

  /** Store audio for a day (a week on pro and scale), so you need not send it again. */
  uploadAsset(audio: Audio, options: Sending = {}): Promise<Schemas["AssetUpload"]> {
    return this.#json("POST", "/v1/assets/upload", { ...options, audio });
  }

  asset(assetId: string): Promise<Asset> {
    return this.#json("GET", `/v1/assets/${segment(assetId)}`, {});
  }

  /** All your assets, newest first; pages are fetched as needed. */
  assets(pageSize = 50): AsyncGenerator<Asset> {
    return this.#items("/v1/assets", { limit: pageSize });
  }

  async deleteAsset(assetId: string): Promise<void> {
    await this.#send("DELETE", `/v1/assets/${segment(assetId)}`, {});
  }

  /** Your tracks and the operator's in the library, newest first unless `sort` says otherwise. */
  library(query: LibraryQuery = {}, pageSize = 50): AsyncGenerator<LibraryTrack> {
    return this.#items("/v1/library", { ...query, limit: pageSize });
  }

  /** Your library as a map, on which tracks that sound alike are close together. */
  libraryMap(): Promise<Schemas["LibraryMapBody"]> {
    return this.#json("GET", "/v1/library/map", {});
  }

  /** Tracks as a file: CSV, or XML for rekordbox and other DJ programs. */
  async export(wanted: Schemas["ExportRequest"]): Promise<Blob> {
    return (await this.#send("POST", "/v1/export", { json: wanted })).body;
  }

  libraryTrack(trackId: string): Promise<Schemas["LibraryAnswer"]> {
    return this.#json("GET", `/v1/library/${segment(trackId)}`, {});
  }

  /** The picture in the tags of a track's file. */
  async libraryCover(trackId: string): Promise<Blob> {
    return (await this.#send("GET", `/v1/library/${segment(trackId)}/cover`, {})).body;
  }

  /** Add a track from an asset or a public URL, with what you know about it; a job analyses it. */
  addToLibrary(
    track: Partial<Schemas["LibraryAddRequest"]>,
    options: Sending & Tempo = {},
  ): Promise<Schemas["LibraryAdded"]> {
    return this.#json("POST", "/v1/library", { ...options, query: tempo(options), json: track });
  }

  /** Change what is known about a track: omitted fields stay, null clears a field, `ids` are added. */
  changeLibraryTrack(
    trackId: string,
    changes: Partial<Schemas["LibraryChangeRequest"]>,
  ): Promise<Schemas["LibraryAnswer"]> {
    return this.#json("PATCH", `/v1/library/${segment(trackId)}`, { json: changes });
  }

  /** Delete a track and its analysis. */
  async removeFromLibrary(trackId: string): Promise<void> {
    await this.#send("DELETE", `/v1/library/${segment(trackId)}`, {});
  }

  /** Balance, usage and limits. */
  account(): Promise<Schemas["Account"]> {
    return this.#json("GET", "/v1/account", {});
  }

  webhook(): Promise<Schemas["WebhookBody"]> {
    return this.#json("GET", "/v1/account/webhook", {});
  }

  /** Have the end of every job posted to a URL; `verifyWebhook` reads the messages. */
  setWebhook(url: string): Promise<Schemas["WebhookBody"]> {
    return this.#json("PUT", "/v1/account/webhook", { json: { url } });
  }

  async deleteWebhook(): Promise<void> {
    await this.#send("DELETE", "/v1/account/webhook", {});
  }

  async *#items<T>(path: string, query: Query): AsyncGenerator<T> {
    let cursor: string | undefined;
    do {
      const page = await this.#json<{ items: T[]; next_cursor: string | null }>("GET", path, {
        query: { ...query, cursor },
      });
      yield* page.items;
      cursor = page.next_cursor ?? undefined;
    } while (cursor);
  }

  async #json<T>(method: string, path: string, request: Request): Promise<T> {
    return read(await this.#send(method, path, request), (text) => JSON.parse(text) as T);
  }

  async #send(method: string, path: string, request: Request): Promise<Answer> {
    const url = new URL(this.baseUrl.replace(/\/$/, "") + path);
    for (const [name, value] of Object.entries(request.query ?? {}))
      for (const one of Array.isArray(value) ? value : [value])
        if (one !== undefined && one !== false) url.searchParams.append(name, String(one));
    const headers = new Headers({ Authorization: `Bearer ${this.apiKey}` });
    if (method === "POST") headers.set("Idempotency-Key", request.idempotencyKey ?? crypto.randomUUID());
    const init: RequestInit = { method, headers, body: body(request, headers), ...signal(request) };
    for (let attempt = 0; ; attempt++) {
      const answer = await this.#ask(url.href, init).catch((fault: unknown) => {
        request.signal?.throwIfAborted();
        return new AfaError(0, "no_answer", `no answer: ${reason(fault)}`);
      });
      if (!(answer instanceof AfaError) && answer.response.ok) return answer;
      const error = answer instanceof AfaError ? answer : await errorOf(answer);
      const pauseMs = this.#pauseMs(attempt, error);
      if (pauseMs === undefined) throw error;
      await pause(pauseMs, request.signal);
    }
  }

  /** Ask once; an answer counts only when all of it has arrived. */
  async #ask(href: string, init: RequestInit): Promise<Answer> {
    const response = await this.#options.fetch(href, init);
    return { response, body: await response.blob() };
  }

  #pauseMs(attempt: number, error: AfaError): number | undefined {
    const { retries, firstPauseMs, longestPauseMs } = this.#options;
    if (attempt >= retries || !RETRIED.has(error.status)) return undefined;
    if (error.retryAfterMs !== undefined)
      return error.retryAfterMs <= longestPauseMs ? error.retryAfterMs : undefined;
    return Math.min(longestPauseMs, firstPauseMs * 2 ** attempt) * (0.5 + Math.random() / 2);
  }
}

function signal(options: { signal?: AbortSignal }): { signal?: AbortSignal } {
  return options.signal ? { signal: options.signal } : {};
}

function tempo({ tempoRange }: Tempo): Query {
  return { tempo_range: tempoRange?.join("-") };
}

function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((done, fail) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      if (signal?.aborted) fail(signal.reason);
      else done();
    };
    const timer = setTimeout(end, signal?.aborted ? 0 : ms);
    signal?.addEventListener("abort", end);
  });
}

async function read<T>(answer: Answer, parse: (text: string) => T): Promise<T> {
  try {
    return parse(await answer.body.text());
  } catch {
    throw await errorOf(answer);
  }
}

/** Write an id as one segment of a path. An empty one, "." and ".." are refused: they would lead to another path. */
function segment(text: string): string {
  if (["", ".", ".."].includes(text)) throw new TypeError(`no id: "${text}"`);
  return encodeURIComponent(text);
}

function body(request: Request, headers: Headers): BodyInit | null {
  const { audio, json } = request;
  const isAsset = typeof audio === "object" && audio !== null && "asset_id" in audio;
  if (json !== undefined || isAsset) {
    headers.set("Content-Type", "application/json");
    return JSON.stringify(isAsset ? { asset_id: audio.asset_id } : json);
  }
  if (audio === undefined) return null;
  const blob = blobOf(audio);
  if (request.asForm) {
    const form = new FormData();
    form.set("file", blob);
    return form;
  }
  const isAudio = blob.type.startsWith("audio/");
  headers.set("Content-Type", isAudio ? blob.type : "application/octet-stream");
  return blob;
}

/** Return bytes as a Blob. Callers may pass anything, and Blob would turn a stream into its name. */
function blobOf(audio: Blob | ArrayBuffer | Uint8Array<ArrayBuffer>): Blob {
  if (audio instanceof Blob) return audio;
  if (audio instanceof ArrayBuffer || ArrayBuffer.isView(audio)) return new Blob([audio]);
  throw new TypeError("audio: give a Blob or File, bytes, or { asset_id }; read a path or a stream before");
}

/** Node's fetch says only in the cause why it failed. */
function reason(fault: unknown): string {
  return String((fault instanceof Error && fault.cause) || fault);
}

/** Read a Retry-After header, in seconds or as a date. */
function msAsked(after: string): number | undefined {
  if (/^\d+$/.test(after)) return 1000 * Number(after);
  const until = after.endsWith(" GMT") ? Date.parse(after) : NaN;
  return Number.isNaN(until) ? undefined : Math.max(0, until - Date.now());
}

async function errorOf({ response, body }: Answer): Promise<AfaError> {
  const text = await body.text();
  const retryAfterMs = msAsked(response.headers.get("retry-after") ?? "");
  try {
    const told = JSON.parse(text) as Schemas["Error"];
    if (!told.error) throw new SyntaxError("not the service's");
    return new AfaError(response.status, told.error, told.message, told.trace_id ?? "", retryAfterMs);
  } catch {
    return new AfaError(response.status, "not_from_afa", text.slice(0, 200), "", retryAfterMs);
  }
}

/** A posted message: `type` is `job.complete` or `job.failed`. */
export interface WebhookMessage {
  type: string;
  timestamp: string;
  data: { job_id: string; status: "complete" | "failed"; error: string | null };
}

/**
 * Read a message that was posted to your webhook, if the service signed it (Standard Webhooks).
 *
 * @param body The request's body, exactly as it came.
 */
export async function verifyWebhook(
  secret: string,
  headers: Headers,
  body: string,
  toleranceS = 300,
): Promise<WebhookMessage> {
  const [id, sent, signatures] = ["id", "timestamp", "signature"].map((part) => headers.get(`webhook-${part}`));
  if (!id || !signatures || !sent || !(Math.abs(Date.now() / 1000 - Number(sent)) <= toleranceS))
    throw new AfaError(0, "bad_signature", "the message is too old, or its headers are missing");
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const raw = bytes(secret.replace(/^whsec_/, ""));
  const key = await crypto.subtle.importKey("raw", raw, algorithm, false, ["verify"]);
  const signed = new TextEncoder().encode(`${id}.${sent}.${body}`);
  for (const signature of signatures.split(" ")) {
    const given = /^v1,([A-Za-z0-9+/]{43}=)$/.exec(signature)?.[1];
    if (given && (await crypto.subtle.verify("HMAC", key, bytes(given), signed)))
      return JSON.parse(body) as WebhookMessage;
  }
  throw new AfaError(0, "bad_signature", "the message was not signed with this secret");
}

function bytes(base64: string): Uint8Array<ArrayBuffer> {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}
