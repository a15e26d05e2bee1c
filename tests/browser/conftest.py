"""The application with its real networks behind a real server, and a Chromium to look at it."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from serve_app.composition.options import StoreOptions
from tests.api.live import LiveApplication, serve_application
from tests.browser.real_backend import RealBackend

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"),
    "--autoplay-policy=no-user-gesture-required",
)
NO_BROWSER = (
    "NO CHROMIUM: the pages are not tested. On Debian: apt-get install chromium, or name one in "
    "AFA_CHROMIUM"
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    # Not for the session: while it lives, its event loop is the main thread's.
    named = os.environ.get("AFA_CHROMIUM")
    path = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(NO_BROWSER)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def backend(model_dir: Path) -> RealBackend:
    return RealBackend(model_dir)


@pytest.fixture(scope="module")
def live(
    api_stores: StoreOptions, demo_catalog: Path, backend: RealBackend
) -> Iterator[LiveApplication]:
    with serve_application(api_stores, demo_catalog, backend=backend) as live:
        yield live


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, permissions=["microphone"]
    )
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, live: LiveApplication) -> Page:
    """The playground, entered with a key by the address that `afa up` prints."""
    page = context.new_page()
    page.goto(f"{live.url}/#key={live.key('pro')}")
    page.wait_for_selector("#bring", state="visible")
    return page
