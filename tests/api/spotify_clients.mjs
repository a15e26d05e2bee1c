// Runs two released JavaScript Spotify clients against a base URL and prints what they read as JSON.
import { createRequire } from "node:module";
import { SpotifyApi } from "@spotify/web-api-ts-sdk";

const [base, key, known, unknown] = process.argv.slice(2);
const require = createRequire(import.meta.url);

async function sdk() {
  const token = { access_token: key, token_type: "Bearer", expires_in: 3600, refresh_token: "" };
  const toUs = (url, options) => fetch(String(url).replace("https://api.spotify.com", `${base}/spotify`), options);
  const api = SpotifyApi.withAccessToken("client", token, { fetch: toUs });
  const missing = await api.tracks.audioFeatures(unknown).then(() => "found", (error) => error.message);
  return {
    one: await api.tracks.audioFeatures(known),
    several: await api.tracks.audioFeatures([known, unknown]),
    analysis: await api.tracks.audioAnalysis(known),
    track: await api.tracks.get(known),
    missing,
  };
}

async function node() {
  // The package knows no base URL: its request builder is given our host, as its own tests do.
  const request = require("spotify-web-api-node/src/webapi-request");
  const { hostname, port, protocol } = new URL(base);
  const builder = request.builder;
  request.builder = (token) => {
    const made = builder(token).withHost(hostname).withPort(Number(port)).withScheme(protocol.slice(0, -1));
    const withPath = made.withPath.bind(made);
    made.withPath = (path) => withPath(`/spotify${path}`);
    return made;
  };
  const SpotifyWebApi = require("spotify-web-api-node");
  const api = new SpotifyWebApi({ accessToken: key });
  const missing = await api.getAudioFeaturesForTrack(unknown).then(
    () => "found", (error) => ({ status: error.statusCode, message: error.body.error.message }));
  return {
    one: (await api.getAudioFeaturesForTrack(known)).body,
    several: (await api.getAudioFeaturesForTracks([known, unknown])).body.audio_features,
    analysis: (await api.getAudioAnalysisForTrack(known)).body,
    track: (await api.getTrack(known)).body,
    search: (await api.searchTracks("isrc:QZAFA2600001")).body,
    missing,
  };
}

console.log(JSON.stringify({ sdk: await sdk(), node: await node() }));
