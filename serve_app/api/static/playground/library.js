// The library: the tracks that the service keeps, found, filtered and sorted there; picked here.

import { clock, make } from "/playground/dom.js";
import { Refusal, library as listTracks, mine } from "/playground/api.js";
import { csvButton, rekordboxButton } from "/playground/exports.js";
import { compatible, keySign } from "/playground/keys.js";
import { map } from "/playground/map.js";
import { nameOf } from "/playground/tracks.js";

const PAGE = 100;
const MOST_EXPORTED = 500;
const TYPING_MS = 250;
const HOURS = Array.from({ length: 12 }, (_, i) => i + 1);
const COLUMNS = [["Track", "name"], ["BPM", "tempo"], ["Key", "key"], ["Energy", "energy"], ["Length", null], ["Tags", null], ["Added", "added"]];

const number = (name, label, most) => make("input", { type: "number", name, min: 0, max: most, inputmode: "numeric", "aria-label": label, placeholder: label.split(" ").at(-1) });

/** Make the library in a place; gives `load()`, which asks for its first page. `open(id)` hears of a track that was picked. */
export function library(place, open) {
  let items = [];
  let cursor = null;
  let sort = "-added";
  let asked = 0;
  let timer = null;
  const status = make("p", { class: "dim", role: "status" });
  const fault = make("p", { class: "fault", role: "alert" });
  const more = make("button", { type: "button", hidden: true, onclick: () => ask(cursor) }, "Show more");
  const head = make("thead");
  const body = make("tbody");
  const plan = map(open);
  const filters = make("form", { class: "filters", hidden: true, onsubmit: (event) => event.preventDefault(), oninput: () => {
    clearTimeout(timer);
    timer = setTimeout(ask, TYPING_MS);
  } },
    make("input", { type: "search", name: "q", placeholder: "Artist, title, album, tag", "aria-label": "Words of artist, title, album or tags" }),
    make("fieldset", {}, make("legend", {}, "BPM"), number("tempo_min", "BPM from", 1000), number("tempo_max", "BPM to", 1000)),
    make("fieldset", {}, make("legend", {}, "Energy"), number("energy_min", "Energy from", 100), number("energy_max", "Energy to", 100)),
    make("fieldset", {}, make("legend", {}, "Key"),
      make("select", { name: "key", "aria-label": "Key" }, make("option", { value: "" }, "any"), HOURS.flatMap((hour) => ["A", "B"].map((letter) => make("option", {}, `${hour}${letter}`)))),
      make("label", { class: "check" }, make("input", { type: "checkbox", name: "mixing" }), "and keys that mix with it")));
  const wanted = () => items.filter((track) => track.analysed_at).slice(0, MOST_EXPORTED).map(({ id }) => ({ id }));
  const exporting = make("span", { class: "controls" });
  const list = make("section", { class: "panel", "aria-label": "Tracks of the library", hidden: true },
    make("div", { class: "tableHead" }, status, exporting),
    make("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": "Table of the library" }, make("table", {}, head, body)), more);
  const empty = make("div", { class: "panel", hidden: true },
    make("h2", {}, "The library is empty"),
    make("p", {}, "On the machine that runs the service, ", make("code", {}, "afa scan ~/Music"), " adds your folders: it reads the tags, analyses new files, and leaves the files as they are. Programs add single tracks with ", make("code", {}, "POST /v1/library"), "."));
  place.append(make("h2", { class: "title", tabindex: -1 }, "Library"), filters, fault, empty, make("div", { class: "shelf" }, plan.panel, list));

  function query(after) {
    const values = Object.fromEntries(new FormData(filters));
    const { key, mixing, ...plain } = values;
    const known = Object.entries(plain).filter(([, value]) => value.trim() !== "");
    const keys = key ? (mixing ? compatible(key) : [key]) : [];
    return new URLSearchParams([...known, ...keys.map((one) => ["key", one]), ["sort", sort], ["limit", PAGE], ...(after ? [["cursor", after]] : [])]);
  }

  async function ask(after = null) {
    const turn = (asked += 1);
    try {
      const page = await listTracks(query(after));
      if (turn !== asked) return; // something else was asked for meanwhile
      items = after ? [...items, ...page.items] : page.items;
      cursor = page.next_cursor;
      fault.textContent = "";
      show();
    } catch (error) {
      if (!(error instanceof Refusal)) throw error;
      if (turn === asked) fault.textContent = error.message;
    }
  }

  function show() {
    const isFiltered = [...new FormData(filters).values()].some((value) => value !== "");
    empty.hidden = isFiltered || items.length > 0;
    filters.hidden = list.hidden = !empty.hidden;
    status.textContent = items.length ? `${items.length} ${items.length === 1 ? "track" : "tracks"}${cursor ? ", and more" : ""}` : "No track matches.";
    more.hidden = !cursor;
    exporting.replaceChildren(...(items.length ? [csvButton(wanted, fault), mine.tier === "local" ? rekordboxButton(wanted, fault) : ""] : []));
    head.replaceChildren(make("tr", {}, COLUMNS.map(heading)));
    body.replaceChildren(...items.map(row));
    plan.list(items.map(({ id }) => id));
  }

  function heading([name, value]) {
    if (!value) return make("th", { scope: "col" }, name);
    const isSorted = sort.endsWith(value);
    const isDown = sort.startsWith("-");
    return make("th", { scope: "col", "aria-sort": isSorted ? (isDown ? "descending" : "ascending") : "none" }, make("button", { type: "button", onclick: async () => {
      sort = isSorted && !isDown ? `-${value}` : value;
      await ask();
      head.querySelectorAll("button")[COLUMNS.filter(([, one]) => one).findIndex(([, one]) => one === value)]?.focus();
    } }, isSorted ? `${name} ${isDown ? "▾" : "▴"}` : name));
  }

  function row(track) {
    const name = nameOf(track) || track.id;
    const cell = (value) => make("td", { class: "number" }, value ?? "");
    return make("tr", { onpointerenter: () => plan.mark(track.id), onfocusin: () => plan.mark(track.id) },
      make("td", {}, track.analysed_at ? make("button", { type: "button", onclick: () => open(track.id) }, name) : [name, make("span", { class: "dim" }, " not analysed yet")]),
      cell(track.tempo ? track.tempo.toFixed(1) : ""), cell(track.camelot && `${keySign(track)} · ${track.camelot}`), cell(track.energy), cell(track.duration_s && clock(track.duration_s)),
      make("td", {}, track.tags.join(", ")), cell(track.added_at?.slice(0, 10)));
  }

  return {
    async load() {
      await Promise.all([ask(), plan.load().catch((error) => (fault.textContent = error.message))]);
      plan.list(items.map(({ id }) => id));
    },
  };
}
