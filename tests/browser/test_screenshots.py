"""Screenshots of the pages; `make screenshots` saves them, so that the README's stay true."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from pipelines.analysis.records import MoodTag
from serve_app.checkpoints.choice import models_name
from serve_app.library.library import Library
from tests.api.application import MODELS
from tests.api.live import LiveApplication
from tests.browser.test_playground import ANALYSED_MS, DEMO, PHONE, analyse_demo
from tests.library.library_setting import adding, heard, track

pytestmark = pytest.mark.redis

MASKED = "afa_live_…"
HIDE_KEYS = """(masked) => document.querySelectorAll("pre").forEach((node) => {
  node.textContent = node.textContent.replace(/afa_live_\\w+/g, masked);
})"""


@pytest.fixture
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder: Path = request.config.getoption("--screenshots") or tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def take(page: Page, path: Path) -> None:
    page.evaluate(HIDE_KEYS, MASKED)
    assert not re.search(r"afa_live_\w{10}", page.inner_text("main"))
    page.wait_for_timeout(300)
    page.screenshot(path=path, full_page=True)
    assert path.stat().st_size > 10_000


def test_the_pages_are_taken(page: Page, live: LiveApplication, folder: Path) -> None:
    analyse_demo(page)
    expect(page.get_by_role("button", name="Play")).to_be_enabled()
    take(page, folder / "playground.png")
    page.emulate_media(color_scheme="dark")
    take(page, folder / "playground-dark.png")
    page.set_viewport_size(PHONE)
    take(page, folder / "playground-phone.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1280, "height": 900})
    broken = {"name": "notes.txt", "mimeType": "audio/mpeg", "buffer": b"no audio" * 100}
    again = {"name": "once more.mp3", "mimeType": "audio/mpeg", "buffer": DEMO.read_bytes()}
    page.set_input_files("#files", [broken, again])
    expect(page.locator("#tracks h2")).to_have_text("3 tracks, 2 analysed", timeout=ANALYSED_MS)
    page.wait_for_selector(".failed")
    take(page, folder / "playground-error.png")
    page.goto(f"{live.url}/docs")
    page.wait_for_selector("section")
    page.screenshot(path=folder / "reference.png")


MUSIC = ("Harbour Lights", "Slow Train", "Paper Moon", "Copper Sky", "Night Bus", "Glass Garden")
ARTISTS = ("Ada Loopback", "The Buffers", "Nina Nyquist", "Bel Canto Bits")
KEYS = (("8A", 9, 0), ("9A", 4, 0), ("5B", 3, 1), ("11A", 6, 0), ("8B", 0, 1))
STYLES = (("house", 124.0, 0.8), ("ambient", 78.0, 0.2), ("jazz", 104.0, 0.45))


def fill(library: Library) -> None:
    """Put music of three styles into the library; music that sounds alike has similar vectors."""
    random = np.random.default_rng(5)
    centres = 0.15 * random.standard_normal((len(STYLES), 768))
    edits = []
    for number in range(60):
        style, tempo, energy = STYLES[number % 3]
        camelot, key, mode = KEYS[number % 5]
        title, artist = f"{MUSIC[number % 6]} {number // 6 + 1}", ARTISTS[number % 4]
        vector = centres[number % 3] + 0.9 * random.standard_normal(768)
        what = heard(title, model="afa-embed-1")
        features = replace(
            what.features,
            tempo=round(tempo + 8 * random.random(), 1),
            energy=min(1.0, energy + 0.2 * random.random()),
            duration_s=120.0 + 200 * random.random(),
            embedding=(vector / np.linalg.norm(vector)).tolist(),
            mood_tags=[MoodTag(style, 0.9)],
            camelot=camelot,
            key=key,
            mode=mode,
        )
        made = replace(what, features=features, made_by=models_name(MODELS))
        edits.append(adding(replace(track(title, artist=artist), tags=(style,)), made))
    library.write(edits)


def test_the_library_is_taken(page: Page, live: LiveApplication, folder: Path) -> None:
    fill(live.application.library)
    page.get_by_role("link", name="Library").click()
    expect(page.locator(".map circle")).to_have_count(60)
    expect(page.locator("#library tbody tr")).to_have_count(60)
    page.get_by_label("Words of artist, title").fill("house")
    expect(page.locator("#library tbody tr")).to_have_count(20)
    take(page, folder / "playground-library.png")
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    take(page, folder / "playground-library-phone.png")
