"""The application with its real networks behind a real server, and a Chromium to view it."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from serve_app.checkpoints.choice import models_name
from serve_app.composition.options import StoreOptions
from serve_app.library.edit import Edit, removed
from serve_app.library.track import LibraryTrack
from tests.api.application import MODELS
from tests.api.live import LiveApplication, serve_application
from tests.browser.real_backend import RealBackend
from tests.library.library_setting import adding, heard, track

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PLAIN_HOST = "afa.test"
"""A name of this machine that browsers do not trust as they trust loopback."""
OF_NO_USE = (
    # The browser's own pages in every window, and a spare process for the next page.
    *("WebUIOmniboxPopup", "WebUIOmniboxAimPopup", "SpareRendererForSitePerProcess"),
    # Only the last list of features counts, so it repeats Playwright's.
    *("AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "HttpsUpgrades"),
    *("HttpsFirstBalancedModeAutoEnable", "LensOverlay", "MediaRouter", "PaintHolding"),
    *("ThirdPartyStoragePartitioning", "AvoidCorsURLLoaderRestartOnRedirect", "AimEnabled"),
    *("OptimizationHints", "NetworkTimeServiceQuerying", "PreconnectToSearch"),
)
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"),
    "--autoplay-policy=no-user-gesture-required",
    f"--host-resolver-rules=MAP {PLAIN_HOST} 127.0.0.1",
    f"--disable-features={','.join(OF_NO_USE)}",
)
NO_BROWSER = (
    "NO CHROMIUM: the pages are not tested. On Debian: apt-get install chromium, or name one in "
    "AFA_CHROMIUM"
)


CAMELOT = {"8A": (9, 0), "9A": (4, 0), "3B": (1, 1)}
SHELF = (
    ("Night Drive", 124.0, "9A", 0.81),
    ("Still Lake", 71.5, "3B", 0.12),
    *((f"Filler {number}", 100.0 + number, "8A", 0.5) for number in range(4)),
)
"""Title, tempo, key and energy of the tracks in the library."""


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """A Chromium; while it runs, its event loop is the thread's."""
    named = os.environ.get("AFA_CHROMIUM")
    path = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(NO_BROWSER)
    expect.set_options(timeout=120_000)  # a busy machine is slow
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with opened_browser() as browser:  # not for the session: other tests use the event loop
        yield browser


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
def shelf(live: LiveApplication) -> Iterator[list[LibraryTrack]]:
    """The operator's tracks, as a scan adds them."""
    tracks = [replace(track(title, year=1995), tags=("club",)) for title, *_ in SHELF]
    edits = []
    for one, (title, tempo, camelot, energy) in zip(tracks, SHELF, strict=True):
        what = heard(title, model="afa-embed-1")
        key, mode = CAMELOT[camelot]
        features = replace(
            what.features, tempo=tempo, camelot=camelot, key=key, mode=mode, energy=energy
        )
        edits.append(adding(one, replace(what, features=features, made_by=models_name(MODELS))))
    live.application.library.write(edits)
    yield tracks
    live.application.library.write([Edit(one.track_id, removed) for one in tracks])


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    """A window without animations, so that no colour is seen while it changes."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900},
        permissions=["microphone"],
        reduced_motion="reduce",
    )
    context.set_default_timeout(120_000)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext, live: LiveApplication) -> Page:
    """The playground, opened with a key at the address that `afa up` prints."""
    page = context.new_page()
    page.goto(f"{live.url}/#key={live.key('pro')}")
    page.wait_for_selector("#bring", state="visible")
    return page
