// Ways to bring audio: drop, choose, an address, the microphone, the demo track.

import { $ } from "/playground/dom.js";
import { demo } from "/playground/api.js";
import { filesOf } from "/playground/dropped.js";
import { addFiles, addUrl } from "/playground/tracks.js";

/** Make the ways work; `open(tracks)` hears what was brought. */
export function wireSources(open) {
  const bring = (files, words = "") => {
    $("left-out").textContent = words;
    $("left-out").hidden = !words;
    if (files.length) open(addFiles(files));
  };
  $("choose").addEventListener("click", () => $("files").click());
  $("files").addEventListener("change", (event) => {
    bring(event.target.files);
    event.target.value = "";
  });
  $("address").addEventListener("submit", (event) => {
    event.preventDefault();
    open([addUrl($("url").value)]);
    event.target.reset();
  });
  $("demo").addEventListener("click", async () => bring([new File([await demo()], "demo.mp3", { type: "audio/mpeg" })]));
  wireDrop(bring);
  if (navigator.mediaDevices && window.MediaRecorder) wireRecord(bring);
}

function wireDrop(bring) {
  const target = $("bring");
  const over = (isOver) => target.classList.toggle("over", isOver);
  addEventListener("dragover", (event) => {
    event.preventDefault();
    over(true);
  });
  addEventListener("dragleave", (event) => event.relatedTarget === null && over(false));
  addEventListener("drop", async (event) => {
    event.preventDefault();
    over(false);
    const { files, words } = await filesOf(event.dataTransfer);
    bring(files, words);
  });
}

function wireRecord(bring) {
  const button = $("record");
  let recorder = null;
  button.hidden = false;
  button.addEventListener("click", async () => {
    if (recorder) {
      recorder.stop();
      return;
    }
    button.disabled = true; // until it records: a browser may ask first, and takes a while
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false } });
    } catch (fault) {
      button.textContent = fault.name === "NotAllowedError" ? "Microphone refused" : "No microphone";
      button.disabled = false;
      return;
    }
    const parts = [];
    recorder = new MediaRecorder(stream);
    recorder.addEventListener("dataavailable", (event) => parts.push(event.data));
    recorder.addEventListener("stop", () => {
      stream.getTracks().forEach((track) => track.stop());
      bring([new File(parts, `recording ${new Date().toLocaleTimeString()}`, { type: recorder.mimeType })]);
      recorder = null;
      show(false);
    });
    recorder.addEventListener("start", () => show(true));
    recorder.start();
  });
  const show = (isOn) => {
    button.disabled = false;
    button.setAttribute("aria-pressed", isOn);
    button.textContent = isOn ? "Stop and analyse" : "Record";
  };
}
