"""The pictures of the pages; `make screenshots` keeps them, so that the README's cannot lie."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.api.live import LiveApplication
from tests.browser.test_playground import ANALYSED_MS, DEMO, PHONE, analyse_demo

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
    expect(page.get_by_role("button", name="Play")).to_be_enabled(timeout=20_000)
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
