// Puts the page together: the key, what was brought, the list, and the track on view.

import { $ } from "/playground/dom.js";
import { Refusal, account, forgetKey, key, setKey, takeKey } from "/playground/api.js";
import { wireSources } from "/playground/sources.js";
import { addJob, onChange, tracks } from "/playground/tracks.js";
import { report } from "/playground/report.js";
import { table } from "/playground/table.js";

const JOB = /^#(job_\w+)$/;

let opened = null;

const showOffline = (isAway) => ($("offline").hidden = !isAway);

function open(track) {
  opened = track;
  if (track.jobId) history.replaceState(null, "", `#${track.jobId}`);
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
    const mine = await account({ offline: showOffline });
    tier = mine.is_test ? `${mine.tier}, test key` : mine.tier;
    showCredits(mine.credits.remaining);
  } catch (fault) {
    if (!(fault instanceof Refusal)) throw fault;
    forgetKey();
    ask(fault.message);
    return;
  }
  $("door").hidden = true;
  $("bring").hidden = false;
  $("empty").hidden = tracks.length > 0;
  const job = JOB.exec(location.hash);
  if (job && !tracks.length) open(addJob(job[1]));
}

function ask(fault) {
  $("bring").hidden = $("empty").hidden = true;
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
  takeKey();
  enter();
});
wireSources((brought) => open(brought[0]));
takeKey();
enter();
