"""The playground as a person uses it: files are dropped, read, played, listed and refused."""

import asyncio
import base64
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Request, Route, expect

from serve_app.services.scan.places import AUDIO_ENDINGS
from tests.api.live import LiveApplication
from tests.browser.conftest import PLAIN_HOST
from tests.browser.real_backend import RealBackend

pytestmark = pytest.mark.redis

DEMO = Path(__file__).parents[2] / "serve_app" / "data" / "demo.mp3"
PHONE = {"width": 390, "height": 844}
SMALLEST = {"width": 320, "height": 640}
"""What WCAG 1.4.10 asks for."""
ANALYSED_MS = 600_000
FIRST_VIEW_BYTES = 250_000
FIRST_VIEW_MS = 1000
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
CLICK_HZ = {"one": 1600, "other": 1000}

DROP = """([name, data]) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type: "audio/mpeg" }));
  for (const kind of ["dragover", "drop"])
    document.body.dispatchEvent(
      new DragEvent(kind, { dataTransfer: transfer, bubbles: true, cancelable: true }));
}"""
RENDER_CLICKS = """async ([jobId, seconds, factor]) => {
  const { grid, schedule } = await import("/playground/clicks.js");
  const { analysis } = await import("/playground/api.js");
  const found = await analysis(jobId);
  const context = new OfflineAudioContext(1, seconds * 8000, 8000);
  schedule(context, context.destination, grid(found.beats, found.bars, factor), 0, 0);
  const rendered = await context.startRendering();
  return {
    samples: [...rendered.getChannelData(0)],
    beats: found.beats,
    ones: found.bars.map((bar) => bar.start),
  };
}"""


ENDINGS = """async () => (await import("/playground/dropped.js")).ENDINGS"""
TABLE = """async (tempi) => {
  const { table } = await import("/playground/table.js");
  const place = document.createElement("section");
  const result = (tempo) => ({ tempo, mood_tags: [] });
  table(place, tempi.map((tempo, id) => ({ id, name: "a", result: result(tempo) })), null, null);
  return [...place.querySelectorAll("td:nth-child(2)")].map((cell) => cell.textContent);
}"""
WAVE_OF_THE_RIGHT = """async () => {
  const { Waveform } = await import("/playground/waveform.js");
  const audio = new AudioBuffer({ numberOfChannels: 2, length: 8000, sampleRate: 8000 });
  audio.copyToChannel(new Float32Array(8000).fill(-0.5), 1);
  const nothing = { bars: [], sections: [], chords: [], segments: [] };
  const canvas = document.createElement("canvas");
  const wave = new Waveform(canvas, { ...nothing, duration_ms: 1000 }, () => {}, () => {});
  wave.setPeaks(audio);
  return [...new Set(wave.peaks)];
}"""
CURVE = """async (segments) => {
  const { Waveform } = await import("/playground/waveform.js");
  const nothing = { bars: [], sections: [], chords: [], duration_ms: 30_000 };
  const canvas = document.createElement("canvas");
  const wave = new Waveform(canvas, { ...nothing, segments }, () => {}, () => {});
  const points = [];
  const lineTo = (x, y) => points.push([x, y]);
  wave.pen = { lineTo, beginPath: () => {}, stroke: () => {} };
  wave.width = 300;
  wave.height = 200;
  wave.paintLoudness();
  return points;
}"""
PICTURES = """() => [...document.querySelectorAll("canvas")].map((one) => one.toDataURL())"""
PAINTED_ANEW = f"(before) => ({PICTURES})().every((picture, at) => picture !== before[at])"
STYLE_OF = "(one, style) => getComputedStyle(one).getPropertyValue(style)"
NEVER_STARTS = """() => {
  AudioContext.prototype.resume = () => new Promise((start) => { window.start = start; });
}"""
STARTS_LATE = """() => {
  AudioContext.prototype.resume = () => new Promise((start) => setTimeout(start, 500));
  window.sounding = new Set();
  const { start } = AudioBufferSourceNode.prototype;
  const { stop } = AudioScheduledSourceNode.prototype;
  AudioBufferSourceNode.prototype.start = function (...when) {
    window.sounding.add(this);
    start.apply(this, when);
  };
  AudioScheduledSourceNode.prototype.stop = function (...when) {
    window.sounding.delete(this);
    stop.apply(this, when);
  };
}"""
"""Sounds start half a second after the click; `window.sounding` holds those still playing."""
SPELL = """async (keys) => {
  const { chordSign, keySign, spelt } = await import("/playground/keys.js");
  const of = (mode) => keys.map((key) => keySign({ key, mode }));
  return { major: of("major"), minor: of("minor"),
    "B flat in F": spelt("A#", { key: "F", mode: "major" }),
    "A sharp in B minor": spelt("A#", { key: "B", mode: "minor" }),
    "chords in F": [["A#", "maj", "A#"], ["D", "min", "A#"], [null, null, null]].map(
      ([root, quality, bass]) => chordSign({ root, quality, bass }, { key: "F", mode: "major" })) };
}"""


def drop(page: Page, path: Path) -> None:
    page.evaluate(DROP, [path.name, base64.b64encode(path.read_bytes()).decode()])


def analyse_demo(page: Page) -> None:
    drop(page, DEMO)
    page.wait_for_selector(".tiles", timeout=ANALYSED_MS)


def tile(page: Page, name: str) -> str:
    return page.get_by_role("group", name=name, exact=True).inner_text()


def test_a_dropped_file_is_analysed_and_told(page: Page) -> None:
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    analyse_demo(page)
    assert "124.0 BPM" in tile(page, "Tempo")
    assert "A minor" in tile(page, "Key")
    assert "Camelot 8A" in tile(page, "Key")
    assert "66 beats" in tile(page, "Metre")
    assert "LUFS" in tile(page, "Loudness")
    wheel = page.get_by_role("img", name="Camelot wheel: 8A; it mixes with 8B, 9A, 7A")
    expect(wheel).to_be_visible()
    repeats = page.get_by_role("region", name="Attributes").get_by_title(
        "Another part of the track"
    )
    expect(repeats).to_have_count(7)
    expect(page.get_by_role("button", name="Play")).to_be_enabled()
    assert page.evaluate("location.hash").startswith("#job_")
    assert faults == []


def test_what_is_dropped_while_the_page_loads_can_be_compared_too(page: Page) -> None:
    held: list[Route] = []
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.route("**/v1/account", lambda route: held.append(route))
    page.reload()
    while not held:
        page.wait_for_timeout(20)
    drop(page, DEMO)
    page.wait_for_timeout(500)
    assert not any("/upload" in url for url in sent)
    held[0].continue_()
    page.wait_for_selector(".tiles", timeout=ANALYSED_MS)
    similar = page.get_by_role("region", name="Similar tracks")
    expect(similar.get_by_role("button", name="Sounds alike", exact=True)).to_be_visible()


def test_half_and_double_change_the_number_and_the_beats(page: Page) -> None:
    analyse_demo(page)
    for name, told in (("½\u00d7", "62.0 BPM"), ("2\u00d7", "248.0 BPM"), ("1\u00d7", "124.0 BPM")):
        button = page.get_by_role("button", name=name)
        button.click()
        assert told in tile(page, "Tempo")
        expect(button).to_have_attribute("aria-pressed", "true")


def level_at(samples: Any, seconds: float, hertz: int) -> float:
    """Amplitude of a tone in the 40 ms after a moment."""
    start = round(seconds * 8000)
    part = samples[start : start + 320]
    at = np.arange(len(part)) / 8000
    return float(abs(np.dot(part, np.exp(-2j * np.pi * hertz * at))) / 160)


@pytest.mark.parametrize(("factor", "n_clicks"), [(1, 66), (0.5, 33), (2, 131)])
def test_the_click_track_sounds_on_the_beats_and_louder_on_the_one(
    page: Page, factor: float, n_clicks: int
) -> None:
    analyse_demo(page)
    job = page.evaluate("location.hash").removeprefix("#")
    heard = page.evaluate(RENDER_CLICKS, [job, 33, factor])
    samples = np.array(heard["samples"])
    onsets = np.flatnonzero(np.abs(samples) > 0.02)
    starts = onsets[np.insert(np.diff(onsets) > 800, 0, True)] / 8000
    assert len(starts) == n_clicks
    if factor == 1:
        assert np.abs(starts - np.array(heard["beats"])).max() < 0.005
        others = [beat for beat in heard["beats"] if beat not in heard["ones"]]
        ones = [level_at(samples, one, CLICK_HZ["one"]) for one in heard["ones"]]
        rest = [level_at(samples, beat, CLICK_HZ["other"]) for beat in others]
        assert min(ones) > 1.5 * max(rest) > 0.05


def test_it_plays_and_the_clicks_follow(page: Page) -> None:
    analyse_demo(page)
    play = page.get_by_role("button", name="Play")
    expect(play).to_be_enabled()
    page.get_by_role("button", name="Click track").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.locator(".clock")).to_have_text(re.compile(r"0:(0[2-9]|[12]\d) / 0:31"))
    page.locator("canvas.wave").click(position={"x": 900, "y": 100})
    page.get_by_role("button", name="Pause").click()
    at = page.locator(".clock").inner_text()
    assert int(at.split(":")[1][:2]) > 20


def test_a_computer_without_sound_is_told(page: Page) -> None:
    """There Firefox never starts sound and reports nothing; Chromium plays without output."""
    analyse_demo(page)
    page.evaluate(NEVER_STARTS)
    page.get_by_role("button", name="Play").click()
    expect(page.get_by_text("gives it no sound output")).to_be_visible()
    page.evaluate("window.start()")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    expect(page.get_by_text("gives it no sound output")).to_be_hidden()


def test_two_clicks_before_the_sound_starts_start_it_once(page: Page) -> None:
    analyse_demo(page)
    page.evaluate(STARTS_LATE)
    play = page.get_by_role("button", name="Play")
    expect(play).to_be_enabled()
    play.dblclick()
    page.get_by_role("button", name="Pause").click()
    expect(play).to_be_visible()
    assert page.evaluate("window.sounding.size") == 0


def test_a_track_that_is_left_before_its_sound_starts_is_silent(page: Page) -> None:
    analyse_demo(page)
    page.evaluate(STARTS_LATE)
    page.get_by_role("button", name="Play").click()
    page.set_input_files("#files", str(DEMO))
    page.wait_for_timeout(1_000)
    assert page.evaluate("window.sounding.size") == 0


def test_the_keyboard_goes_from_bar_to_bar_and_the_place_is_said(page: Page) -> None:
    analyse_demo(page)
    expect(page.get_by_role("button", name="Play")).to_be_enabled()
    expect(page.get_by_role("status").first).to_have_text(
        "demo.mp3 is analysed: 124.0 BPM, A minor, \u221215.9 LUFS"
    )
    place = page.get_by_role("slider", name="Place in the track")
    for key, said in (
        ("ArrowRight", "0:00, bar 1, section A, chord Am"),
        ("ArrowRight", "0:02, bar 2, section A, chord F"),
        ("End", "0:31, bar 17, section C"),
        ("Home", "0:00, section A, chord Am"),
    ):
        place.press(key)
        expect(place).to_have_attribute("aria-valuetext", said)
    place.press("Space")
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_keys_are_written_with_their_own_flats(page: Page) -> None:
    """A circle of fifths: names as in scores, with `♭` in keys that have flats."""
    written = page.evaluate(SPELL, ["C", "F", "A#", "D#", "F#", "G"])
    assert written == {
        "major": ["C", "F", "B\u266d", "E\u266d", "F\u266f", "G"],
        "minor": ["Cm", "Fm", "B\u266dm", "E\u266dm", "F\u266fm", "Gm"],
        "B flat in F": "B\u266d",
        "A sharp in B minor": "A\u266f",
        "chords in F": ["B\u266d", "Dm/B\u266d", ""],
    }


def test_a_phone_in_the_house_is_served_without_https(
    browser: Browser, context: BrowserContext, live: LiveApplication
) -> None:
    """Browsers withhold some APIs from pages that are neither https nor on loopback."""
    page = context.new_page()
    address = live.url.replace("127.0.0.1", PLAIN_HOST)
    page.goto(f"{address}/#key={live.key('pro')}")
    page.wait_for_selector("#bring", state="visible")
    assert not page.evaluate("isSecureContext")
    analyse_demo(page)
    expect(page.get_by_role("button", name="Copy", exact=True)).to_be_hidden()


def test_an_odd_address_is_sent_and_told(page: Page) -> None:
    page.get_by_label("Address of an audio file").fill("http://127.0.0.1/100%.mp3")
    page.get_by_role("button", name="Fetch").click()
    expect(page.locator(".failed")).to_contain_text("100%.mp3 could not be")


def test_several_files_are_a_table_that_sorts_and_filters(page: Page, tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp3"
    broken.write_bytes(b"no audio" * 100)
    copy = tmp_path / "another.mp3"
    copy.write_bytes(DEMO.read_bytes())
    page.set_input_files("#files", [str(DEMO), str(broken), str(copy)])
    expect(page.locator("#tracks h2")).to_have_text("3 tracks, 2 analysed", timeout=ANALYSED_MS)
    names = page.locator("#tracks tbody tr td:first-child")
    page.get_by_role("button", name="Track", exact=True).click()
    expect(page.get_by_role("button", name="Track \u25b4")).to_be_focused()
    expect(names).to_have_text(["another.mp3", "broken.mp3 failed", "demo.mp3"])
    page.get_by_role("button", name="BPM", exact=True).click()
    expect(names.last).to_have_text("broken.mp3 failed")
    page.get_by_role("searchbox").fill("8a another")
    expect(names).to_have_text(["another.mp3"])
    page.get_by_role("searchbox").fill("")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    header, *rows = download.value.path().read_text().splitlines()
    assert header.startswith("file,artist,title,tempo")
    assert {row.split(",")[0] for row in rows} == {"demo.mp3", "another.mp3"}
    page.get_by_role("button", name="broken.mp3").click()
    failed = page.get_by_role("region", name="broken.mp3 failed")
    expect(failed).to_contain_text("Nothing was charged.")
    expect(failed).to_contain_text("audio file")
    page.get_by_role("button", name="another.mp3").click()
    copy.unlink()
    page.get_by_role("button", name="Copy with tags").click()
    expect(page.get_by_role("region", name="Tags")).to_contain_text("cannot be read any more")


def decoded_tracks(page: Page) -> int:
    """How many decoded tracks are in memory after garbage collection."""
    devtools = page.context.new_cdp_session(page)
    kind = devtools.send("Runtime.evaluate", {"expression": "AudioBuffer.prototype"})
    wanted = {"prototypeObjectId": kind["result"]["objectId"]}
    found = devtools.send("Runtime.queryObjects", wanted)["objects"]["objectId"]
    counted = {"objectId": found, "functionDeclaration": "function () { return this.length; }"}
    return int(devtools.send("Runtime.callFunctionOn", counted)["result"]["value"])


def test_a_track_off_view_is_not_kept_decoded(page: Page, tmp_path: Path) -> None:
    copy = tmp_path / "another.mp3"
    copy.write_bytes(DEMO.read_bytes())
    page.set_input_files("#files", [str(DEMO), str(copy)])
    expect(page.locator("#tracks h2")).to_have_text("2 tracks, 2 analysed", timeout=ANALYSED_MS)
    for _ in range(3):
        for name in ("another.mp3", "demo.mp3"):
            page.get_by_role("button", name=name).click()
            expect(page.get_by_role("button", name="Play")).to_be_enabled()
    assert decoded_tracks(page) == 1
    light = page.evaluate(PICTURES)
    assert light
    page.emulate_media(color_scheme="dark")
    page.wait_for_function(PAINTED_ANEW, arg=light)


def test_the_curl_sample_sends_a_file_of_any_name(page: Page, tmp_path: Path) -> None:
    audio = tmp_path / """a, b; "c" \\ 'd'.mp3"""
    audio.write_bytes(DEMO.read_bytes())
    drop(page, audio)
    sample = page.get_by_role("tabpanel")
    expect(sample).to_contain_text("curl", timeout=ANALYSED_MS)
    command = ["sh", "-c", sample.inner_text()]
    answers = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)
    sent, asked = answers.stdout.split(b"}{")
    assert b'"status":"complete"' in sent
    assert b'"beats":' in asked


def test_the_code_has_the_key_and_the_id(page: Page, live: LiveApplication) -> None:
    analyse_demo(page)
    job = page.evaluate("location.hash").removeprefix("#")
    for name in ("curl", "Python", "spotipy", "JavaScript"):
        page.get_by_role("tab", name=name, exact=True).click()
        text = page.get_by_role("tabpanel").inner_text()
        assert live.key("pro") in text
        assert live.url in text
        assert (f'"{job.removeprefix("job_")}"' if name == "spotipy" else job) in text
    page.get_by_role("tab", name="JavaScript").press("ArrowRight")
    expect(page.get_by_role("tab", name="JSON")).to_have_attribute("aria-selected", "true")
    with page.expect_download() as download:
        page.get_by_role("button", name="JSON", exact=True).click()
    assert len(json.loads(download.value.path().read_text())["beats"]) == 66


def test_a_recording_is_analysed(page: Page) -> None:
    page.get_by_role("button", name="Record").click()
    stop = page.get_by_role("button", name="Stop and analyse")
    expect(stop).to_be_visible()
    page.wait_for_timeout(2500)
    stop.click()
    page.wait_for_selector(".tiles", timeout=ANALYSED_MS)
    expect(page.locator("#report-title")).to_contain_text("recording")


def test_two_clicks_before_it_records_make_one_recording(page: Page) -> None:
    """The browser asks for permission first; a microphone requested twice would stay on."""
    asked = """() => {
      let times = 0;
      const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
      navigator.mediaDevices.getUserMedia = (wanted) => (times += 1, ask(wanted));
      const button = document.getElementById("record");
      button.click();
      button.click();
      return times;
    }"""
    assert page.evaluate(asked) == 1
    expect(page.get_by_role("button", name="Stop and analyse")).to_be_enabled()


def test_the_key_is_in_no_request_line_and_leaves_the_address(
    context: BrowserContext, live: LiveApplication
) -> None:
    page = context.new_page()
    seen: list[Request] = []
    page.on("request", lambda request: seen.append(request))
    page.goto(f"{live.url}/#key={live.key('pro')}")
    page.wait_for_selector("#bring", state="visible")
    assert page.url == f"{live.url}/"
    assert not [request for request in seen if live.key("pro") in request.url]
    asked = [request for request in seen if "authorization" in request.headers]
    assert {request.url for request in asked} == {f"{live.url}/v1/account"}


def test_without_a_key_the_page_asks_for_one_and_what_was_brought_waits(
    context: BrowserContext, live: LiveApplication, tmp_path: Path
) -> None:
    page = context.new_page()
    page.goto(live.url)
    for wrong in ("afa_live_wrong", "afa_live_\u2026"):
        page.get_by_label("API key").fill(wrong)
        page.get_by_role("button", name="Use it").click()
        expect(page.locator("#door-fault")).to_contain_text("this API key is not valid")
        page.reload()
    uploads: list[str] = []
    page.on("request", lambda asked: uploads.append(asked.url) if "/upload" in asked.url else None)
    gone = tmp_path / "gone.mp3"
    gone.write_bytes(b"x")
    page.set_input_files("#files", [str(DEMO), str(gone)])
    expect(page.locator("#report")).to_contain_text("Waiting for your API key.")
    gone.unlink()
    page.get_by_label("API key").fill(live.key("pro"))
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_label("API key")).to_be_hidden()
    page.wait_for_selector(".tiles", timeout=ANALYSED_MS)
    page.get_by_role("button", name="gone.mp3").click()
    expect(page.locator(".failed")).to_contain_text("This file cannot be read")
    assert len(uploads) == 1  # in Firefox the upload of a deleted file hangs


def test_a_key_that_ended_meanwhile_is_asked_for_again(page: Page, live: LiveApplication) -> None:
    page.evaluate("sessionStorage.setItem('afa-key', 'afa_live_ended')")
    drop(page, DEMO)
    page.wait_for_selector("#door-fault:has-text('not valid')", state="visible")
    page.fill("#key", live.key("pro"))
    page.keyboard.press("Enter")
    page.wait_for_selector("#door", state="hidden")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector(".tiles", timeout=ANALYSED_MS)


def test_a_busy_service_is_waited_for(page: Page) -> None:
    answers = iter([429, 503])

    def refuse(route: Any) -> None:
        status = next(answers, None)
        if status is None:
            route.continue_()
            return
        body = {"error": "busy", "message": "too much work is waiting", "trace_id": "t"}
        route.fulfill(status=status, json=body, headers={"Retry-After": "1"})

    page.route("**/v1/audio-features/upload?*", refuse)
    drop(page, DEMO)
    expect(page.locator("#report")).to_contain_text("too much work is waiting; again in 1 s")
    page.wait_for_selector(".tiles", timeout=ANALYSED_MS)


def test_an_upload_that_ends_in_503_is_not_sent_for_ever(page: Page) -> None:
    sent: list[str] = []

    def refuse(route: Route) -> None:
        sent.append(route.request.url)
        body = {"error": "busy", "message": "the upload took too long", "trace_id": "t"}
        route.fulfill(status=503, json=body, headers={"Retry-After": "1"})

    page.clock.install()
    page.route("**/v1/audio-features/upload?*", refuse)
    drop(page, DEMO)
    for pause in (1, 3, 9, 27):
        expect(page.locator("#report")).to_contain_text(f"too long; again in {pause} s")
        page.clock.run_for(1000 * pause)
    expect(page.locator(".failed")).to_contain_text("the upload took too long")
    assert len(sent) == 5
    page.unroute("**/v1/audio-features/upload?*")
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector(".tiles", timeout=ANALYSED_MS)


def test_an_absent_service_is_told_and_tried_again_but_not_for_a_file_that_is_gone(
    page: Page, tmp_path: Path
) -> None:
    gone = tmp_path / "gone.mp3"
    gone.write_bytes(DEMO.read_bytes())
    page.route("**/v1/**", lambda route: route.abort())
    page.set_input_files("#files", [str(DEMO), str(gone)])
    expect(page.locator("#offline")).to_be_visible()
    gone.unlink()
    page.unroute("**/v1/**")
    page.wait_for_selector(".tiles", timeout=ANALYSED_MS)
    page.get_by_role("button", name="gone.mp3").click()
    expect(page.locator(".failed")).to_contain_text("This file cannot be read")
    expect(page.locator("#offline")).to_be_hidden()


def test_a_reload_keeps_what_was_sent_and_asks_about_the_rest(page: Page, tmp_path: Path) -> None:
    names = [f"{name}.mp3" for name in ("one", "two", "unsent")]
    for name in names:
        (tmp_path / name).write_bytes(DEMO.read_bytes())
    page.set_input_files("#files", [str(tmp_path / name) for name in names[:2]])
    title = page.locator("#tracks-title")
    expect(title).to_have_text("2 tracks, 2 analysed", timeout=ANALYSED_MS)
    page.route("**/v1/audio-features/upload?*", lambda _: None)
    page.set_input_files("#files", str(tmp_path / names[2]))
    page.get_by_role("button", name="one.mp3").click()  # without a gesture browsers do not ask
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.accept()))
    page.reload()
    assert asked == ["beforeunload"]
    expect(title).to_have_text("2 tracks, 2 analysed", timeout=ANALYSED_MS)
    shown = page.locator("#tracks tbody button").all_inner_texts()
    assert shown == names[:2]
    page.get_by_role("link", name="afa", exact=True).click()
    expect(page.locator(".tiles")).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#empty")).to_be_visible()
    assert page.locator("#tracks tbody button").count() == 0
    assert asked == ["beforeunload"]


def test_of_many_tracks_the_one_on_view_is_in_sight(page: Page, tmp_path: Path) -> None:
    page.route("**/v1/audio-features/upload?*", lambda _: None)
    files = [tmp_path / f"{number:02}.mp3" for number in range(60)]
    for file in files:
        file.write_bytes(b"any")
    page.set_input_files("#files", files)
    page.get_by_role("button", name="03.mp3").click()
    expect(page.get_by_role("region", name="Progress of 03.mp3")).to_be_in_viewport()
    place = page.locator("#tracks .scroll")
    place.evaluate("(one) => one.scrollTo(0, 600)")
    page.evaluate(DROP, ["60.mp3", ""])
    expect(page.locator("#tracks-title")).to_have_text("61 tracks, 0 analysed")
    assert place.evaluate("(one) => one.scrollTop") == 600


def test_a_track_without_a_beat_has_no_tempo_in_the_table(page: Page) -> None:
    assert page.evaluate(TABLE, [0, 90.04]) == ["", "90.0"]


def test_the_wave_is_of_every_channel(page: Page) -> None:
    assert page.evaluate(WAVE_OF_THE_RIGHT) == [0.5]


def test_the_curve_of_loudness_follows_long_segments_at_once(page: Page) -> None:
    loud = [{"start": n / 5, "loudness_max": -10, "loudness_max_time": 0.1} for n in range(75)]
    soft = [{"start": n, "loudness_max": -40, "loudness_max_time": 0.1} for n in (15, 18, 21)]
    points = page.evaluate(CURVE, loud + soft)
    heights = {round(x / 10, 1): y for x, y in points}
    assert heights[14.9] == pytest.approx(heights[0.1])
    assert heights[18.1] == pytest.approx(heights[21.1], abs=2)


def drop_from_disk(page: Page, *paths: Path) -> None:
    devtools = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(path) for path in paths], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        event = {"type": kind, "x": 200, "y": 300, "data": data}
        devtools.send("Input.dispatchDragEvent", event)


def test_the_audio_of_a_dropped_folder_is_taken(page: Page, tmp_path: Path) -> None:
    assert {f".{ending}" for ending in page.evaluate(ENDINGS)} == AUDIO_ENDINGS
    page.route("**/v1/audio-features/upload?*", lambda _: None)  # nothing needs to be analysed
    folder, bare, full = (tmp_path / name for name in ("music", "bare", "full"))
    names = [
        "one.MP3",
        "cover.jpg",
        ".one.mp3",
        ".x/y.mp3",
        "disc 1/two.flac",
        "disc 1/more/three.ogg",
        "...And/four.mp3",
    ]
    for name in [*(folder / name for name in names), bare / "notes.txt", tmp_path / "odd.bin"]:
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_bytes(b"-")
    full.mkdir()
    for number in range(201):
        (full / f"{number}.wav").write_bytes(b"-")
    said = page.locator("#left-out")
    listed = page.locator("#tracks tbody tr td:first-child button")
    drop_from_disk(page, folder, tmp_path / "odd.bin")
    expect(listed).to_have_text(["odd.bin", "four.mp3", "three.ogg", "two.flac", "one.MP3"])
    expect(said).to_be_hidden()
    drop_from_disk(page, bare)
    expect(said).to_have_text("There are no audio files in the folder.")
    drop_from_disk(page, full)
    expect(said).to_contain_text("200 of its audio files are used")
    expect(listed).to_have_count(205)
    expect(listed.last).to_have_text("199.wav")


@contextmanager
def gate_shut(live: LiveApplication, backend: RealBackend) -> Iterator[None]:
    """Let no analysis end inside the block."""

    async def shut() -> asyncio.Event:
        return asyncio.Event()

    backend.gate = live.call(shut())
    try:
        yield
    finally:
        live.loop.call_soon_threadsafe(backend.gate.set)
        backend.gate = None


def test_progress_is_told_as_the_service_tells_it(
    page: Page, live: LiveApplication, backend: RealBackend
) -> None:
    with gate_shut(live, backend):
        drop(page, DEMO)
        expect(page.locator(".stages li.now")).to_have_text("being analysed")
        expect(page.locator(".stages li.done").first).to_have_text("sent")
    page.wait_for_selector(".tiles", timeout=ANALYSED_MS)


def test_a_phone_shows_one_column_without_scrolling_sideways(page: Page) -> None:
    page.set_viewport_size(PHONE)
    analyse_demo(page)
    drop(page, DEMO)
    page.wait_for_selector("text=2 tracks, 2 analysed", timeout=ANALYSED_MS)
    page.get_by_text("All tracks for rekordbox").click()
    for viewport in (PHONE, SMALLEST):
        page.set_viewport_size(viewport)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        box = page.get_by_role("region", name="Attributes").bounding_box()
        assert box is not None
        assert box["width"] > 0.85 * viewport["width"]


def test_the_way_in_fits_the_smallest_phone(context: BrowserContext, live: LiveApplication) -> None:
    page = context.new_page()
    page.set_viewport_size({"width": 240, "height": 640})  # Firefox's fields are a third wider
    page.goto(live.url)
    door = page.locator("#door")
    door.wait_for(state="visible")
    assert door.evaluate("(door) => door.scrollWidth - door.clientWidth") == 0


def test_forced_colours_leave_what_colour_tells(page: Page) -> None:
    page.emulate_media(forced_colors="active")
    analyse_demo(page)
    drop(page, DEMO)
    page.wait_for_selector("text=2 tracks, 2 analysed", timeout=ANALYSED_MS)
    for one, other, style in (
        (".legend .i-bar", ".legend .i-loud", "background-color"),
        (".tags .sure", ".tags li:not(.sure)", "background-color"),
        ("[role=tab][aria-selected=true]", "[role=tab][aria-selected=false]", "background-color"),
        (".times [aria-pressed=true]", ".times [aria-pressed=false]", "background-color"),
        ("tbody tr.open", "tbody tr:not(.open)", "outline-style"),
        ("meter", ".panel", "background-color"),
    ):
        looks = [
            page.locator(selector).first.evaluate(STYLE_OF, style) for selector in (one, other)
        ]
        assert looks[0] != looks[1], one


def test_the_first_view_is_small_fast_and_of_one_host(
    browser: Browser, context: BrowserContext, live: LiveApplication
) -> None:
    context.new_page().goto(live.url)  # let the server do its one-off work
    painted_ms: list[float] = []
    seen: list[Request] = []
    # A view that is slow only because the processor is busy is fast another time.
    while len(painted_ms) < 20 and min(painted_ms, default=FIRST_VIEW_MS) >= FIRST_VIEW_MS:
        fresh = browser.new_context()
        page = fresh.new_page()
        seen.clear()
        page.on("request", lambda request: seen.append(request))
        page.goto(f"{live.url}/#key={live.key('pro')}")
        page.wait_for_selector("#bring", state="visible")
        painted_ms.append(
            page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        )
        size = sum(request.sizes()["responseBodySize"] for request in seen)
        assert {request.url.split("/")[2] for request in seen} == {live.url.split("/")[2]}
        assert size < FIRST_VIEW_BYTES
        fresh.close()
    assert min(painted_ms) < FIRST_VIEW_MS, painted_ms


def test_nothing_of_another_host_is_asked_for(page: Page, live: LiveApplication) -> None:
    hosts: set[str] = set()
    page.on("request", lambda request: hosts.add(request.url.split("/")[2]))
    analyse_demo(page)
    page.get_by_text("What they mean").click()
    expect(page.locator("dd").first).to_contain_text("How intense it sounds")
    assert hosts == {live.url.split("/")[2]}
