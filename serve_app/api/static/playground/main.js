// Puts the page together: the key, what was brought, the list, the track on view, and the library.

import { $ } from "/playground/dom.js";
import { Refusal, account, forgetKey, key, mine, page, setKey, takeKey } from "/playground/api.js";
import { wireSources } from "/playground/sources.js";
import { library } from "/playground/library.js";
import { addKnown, hasUnsent, idOf, onChange, restore, tracks } from "/playground/tracks.js";
import { report } from "/playground/report.js";
import { table } from "/playground/table.js";

const KNOWN = /^#((?:job|trk)_\w+)$/;
const LIBRARY = "#library";

let opened = null;
let shelf = null; // the library, once it was asked for

const ABSENT = "The service does not answer. The page keeps what it has, and sends again automatically.";

function showOffline(isAway, words = ABSENT) {
  $("offline").hidden = !isAway;
  if (isAway) $("offline").textContent = words;
}

page.denied = ask;
page.offline = showOffline;
page.paused = (left, message) => showOffline(left > 0, `${message}; again in ${left} s`);

function open(track) {
  opened = track;
  if (idOf(track) && $("library").hidden) history.replaceState(null, "", `#${idOf(track)}`);
  report($("report"), track);
  table($("tracks"), tracks, opened, open);
}

onChange((track) => {
  $("empty").hidden = true;
  showOffline(tracks.some((one) => one.note === "offline"));
  if (track === opened) open(track);
  else table($("tracks"), tracks, opened, open);
  if (track.left !== undefined) showCredits(track.left);
});

let tier = "";

function showCredits(left) {
  $("account").textContent = tier === "local" ? "local, without limits" : `${tier} · ${left.toLocaleString("en").replaceAll(",", " ")} credits`;
}

/** Let the page be used with the key that is there, or ask for one. */
async function enter() {
  if (!key()) {
    ask("");
    return;
  }
  try {
    const mine = await account();
    tier = mine.is_test ? `${mine.tier}, test key` : mine.tier;
    showCredits(mine.credits.remaining);
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    forgetKey();
    ask(fault.message);
    return;
  }
  $("door").hidden = true;
  $("listen").hidden = false;
  $("empty").hidden = tracks.length > 0;
  await turnTo(location.hash);
}

/** Show what the address names: the library, a track, or what was brought. */
async function turnTo(fragment) {
  const isLibrary = fragment === LIBRARY;
  $("library").hidden = !isLibrary;
  $("listen").hidden = isLibrary;
  for (const [id, isHere] of [["to-listen", !isLibrary], ["to-library", isLibrary]]) {
    if (isHere) $(id).setAttribute("aria-current", "page");
    else $(id).removeAttribute("aria-current");
  }
  const known = KNOWN.exec(fragment);
  if (known) {
    open(addKnown(known[1]));
    scrollTo(0, 0);
    $("report").focus({ preventScroll: true });
  } else if (!isLibrary && !opened && tracks.length) open(tracks[0]);
  if (!isLibrary) return;
  shelf ??= library($("library"), (id) => (location.hash = id));
  await shelf.load();
}

function ask(fault) {
  $("library").hidden = true;
  $("listen").hidden = !tracks.length;
  $("door").hidden = false;
  $("door-fault").textContent = fault;
  $("key").focus();
}

$("door").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey($("key").value);
  enter();
});
addEventListener("hashchange", () => {
  if (takeKey() || !mine) enter();
  else turnTo(location.hash);
});
addEventListener("beforeunload", (event) => hasUnsent() && event.preventDefault());
wireSources((brought) => {
  if (location.hash === LIBRARY) history.pushState(null, "", location.pathname);
  turnTo("");
  open(brought[0]);
});
takeKey();
restore();
enter();
