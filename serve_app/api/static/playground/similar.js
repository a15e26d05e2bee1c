// Tracks of the library that sound like the one on view, and why.

import { make } from "/playground/dom.js";
import { Refusal, mine, similar } from "/playground/api.js";
import { nameOf } from "/playground/tracks.js";

const N = 8;
const MIXING_TEMPO = 0.06; // what a record player's pitch control reaches, up and down
const MOST_TAGS = 4;
const KEYS = { same: "same key", relative: "relative key", "fifth up": "a fifth up", "fifth down": "a fifth down", diagonal: "diagonal key", parallel: "parallel key", distant: "distant key" };

function why({ track, shared_tags: tags, key_relation: relation, tempo_ratio: ratio, distance }) {
  return [
    track.tempo && `${track.tempo.toFixed(1)} BPM${ratio ? ` (×${ratio.toFixed(2)})` : ""}`,
    track.camelot && `${track.camelot}${relation ? `, ${KEYS[relation]}` : ""}`,
    tags.length && `both ${tags.slice(0, MOST_TAGS).join(", ")}`,
    `distance ${distance.toFixed(2)}`,
  ].filter(Boolean).join(" · ");
}

const mixing = ({ tempo }) => ({ compatible: true, tempo_min: tempo * (1 - MIXING_TEMPO), tempo_max: tempo * (1 + MIXING_TEMPO), tempo_octaves: true });

/** Make the panel of a track. */
export function similarTracks(track) {
  const place = make("div", { role: "status" });
  const seed = track.libraryId ? { id: track.libraryId } : { job_id: track.jobId };
  const find = async (filters) => {
    place.replaceChildren(make("p", { class: "dim" }, "Searching…"));
    try {
      const { items } = await similar(seed, { n: N, ...filters });
      place.replaceChildren(items.length ? make("ol", { class: "similar" }, items.map(entry)) : make("p", { class: "dim" }, "No track of the library matches."));
    } catch (fault) {
      if (!(fault instanceof Refusal)) throw fault;
      place.replaceChildren(make("p", { class: "fault" }, fault.message));
    }
  };
  const button = (name, filters) => make("button", { type: "button", onclick: () => find(filters) }, name);
  const canMix = track.result.camelot && track.result.tempo;
  const price = mine.tier === "local" ? "" : `A search costs ${mine.prices.similar} credit.`;
  const ways = track.libraryId || track.hasEmbedding
    ? make("div", { class: "controls" }, button("Sounds alike", {}), canMix && button("Sounds alike and mixes", mixing(track.result)), make("span", { class: "dim" }, price))
    : make("p", { class: "dim" }, "This analysis has no embedding, which the search needs; the tiers pro and scale include it.");
  return make("section", { class: "panel", "aria-label": "Similar tracks" }, make("h2", {}, "Similar tracks of the library"), ways, place);
}

const entry = (found) => make("li", {},
  make("a", { href: `#${found.track.id}` }, nameOf(found.track) || found.track.id), make("p", { class: "dim" }, why(found)));
