// The library as a map: a dot for each track, near to those that sound alike.

import { draw, make } from "/playground/dom.js";
import { libraryMap } from "/playground/api.js";
import { nameOf } from "/playground/tracks.js";

const STEPS = 6;
const LEAST_SHOWN = 3; // two dots are always far from each other
const SHADES = {
  Energy: (track) => (track.energy === null ? null : track.energy / 100),
  BPM: (track) => (track.tempo ? (track.tempo - 70) / 110 : null), // from 70 to 180
};

const shadeOf = (value) => (value === null ? "m-none" : `m${Math.min(STEPS - 1, Math.max(0, Math.floor(value * STEPS)))}`);

/** Make the map; `open(id)` hears of clicks. Gives its panel, `load()`, `list(ids)` for the tracks on the list, and `mark(id)`. */
export function map(open) {
  const picture = draw("svg", { class: "map", viewBox: "-104 -104 208 208", role: "img" });
  const note = make("p", { class: "dim" });
  const by = make("select", { "aria-label": "Shade of the dots", onchange: () => shade() }, Object.keys(SHADES).map((name) => make("option", {}, name)));
  const panel = make("section", { class: "panel", "aria-label": "Map", hidden: true },
    make("div", { class: "tableHead" }, make("h2", {}, "Tracks that sound alike are close together"), make("label", { class: "dim" }, "Shade ", by)),
    picture,
    make("div", { class: "legend" }, make("span", {}, Array.from({ length: STEPS }, (_, i) => make("i", { class: `m${i}` })), "low to high"), make("span", {}, make("i", { class: "ring" }), "on the list")),
    note);
  let dots = new Map();
  let listed = new Set();

  const shade = () => {
    for (const { dot, track } of dots.values()) dot.setAttribute("class", `${shadeOf(SHADES[by.value](track))}${listed.has(track.id) ? " listed" : ""}`);
  };
  const dotOf = (track) => {
    const dot = draw("circle", { cx: 100 * track.x, cy: -100 * track.y, r: 2.2, onclick: () => open(track.id) }, draw("title", {}, nameOf(track) || track.id));
    return [track.id, { dot, track }];
  };
  return {
    panel,
    async load() {
      const { items, total, variance_shown: shown, model } = await libraryMap();
      panel.hidden = items.length < LEAST_SHOWN;
      dots = new Map(items.map(dotOf));
      picture.replaceChildren(...[...dots.values()].map(({ dot }) => dot));
      picture.setAttribute("aria-label", `Map of ${items.length} tracks by how they sound; the list has the same tracks`);
      const part = items.length < total ? `${items.length.toLocaleString("en")} of ${total.toLocaleString("en")} tracks` : `${total} tracks`;
      note.textContent = `${part}. The map shows the two directions in which the embeddings of ${model} differ most: ${Math.round(100 * shown)} % of what tells tracks apart.`;
      shade();
    },
    list(ids) {
      listed = new Set(ids);
      shade();
    },
    mark(id) {
      picture.querySelector(".here")?.classList.remove("here");
      const found = dots.get(id);
      if (!found) return;
      found.dot.classList.add("here");
      picture.append(found.dot); // above the others
    },
  };
}
