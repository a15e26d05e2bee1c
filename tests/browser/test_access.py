"""axe finds no accessibility problem in any state of either page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.api.live import LiveApplication
from tests.browser.real_backend import RealBackend
from tests.browser.test_playground import ANALYSED_MS, DEMO, PHONE, drop, gate_shut
from tests.npm import npm_with

pytestmark = [pytest.mark.redis, pytest.mark.npm]

AXE = "axe-core@4.14.1"
RUN = """async () => {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  const options = { resultTypes: ["violations"], ...(isDark && { runOnly: ["color-contrast"] }) };
  return (await axe.run(document, options)).violations.map(
    (one) => `${one.id}: ${one.nodes.map((node) => node.html.slice(0, 120)).join(" | ")}`);
}"""
"""Only the contrast of a dark page: it differs from the light one in nothing but colours."""


@pytest.fixture(scope="module")
def axe(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("axe")
    npm_with(folder, "install", AXE)
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture
def violations(axe: str) -> Callable[[Page], Any]:
    def check(page: Page) -> Any:
        page.evaluate(axe)
        return page.evaluate(RUN)

    return check


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_playground_has_no_barrier(
    page: Page,
    live: LiveApplication,
    backend: RealBackend,
    violations: Callable[[Page], Any],
    scheme: Any,
    tmp_path: Path,
) -> None:
    page.emulate_media(color_scheme=scheme)
    found = {"empty": violations(page)}
    with gate_shut(live, backend):
        drop(page, DEMO)
        page.wait_for_selector(".stages li.now:has-text('being analysed')", timeout=ANALYSED_MS)
        found["busy"] = violations(page)
    page.wait_for_selector(".tiles", timeout=ANALYSED_MS)
    found["done"] = violations(page)
    broken = tmp_path / "broken.mp3"
    broken.write_bytes(b"no audio" * 100)
    page.set_input_files("#files", [str(broken), str(DEMO)])
    page.wait_for_selector(".failed", timeout=ANALYSED_MS)
    page.wait_for_selector("text=3 tracks, 2 analysed", timeout=ANALYSED_MS)
    found["failed"] = violations(page)
    page.set_viewport_size(PHONE)
    found["phone"] = violations(page)
    page.route("**/v1/**", lambda route: route.abort())
    drop(page, DEMO)
    page.wait_for_selector("#offline", state="visible")
    found["offline"] = violations(page)
    assert {state: barriers for state, barriers in found.items() if barriers} == {}


@pytest.mark.usefixtures("shelf")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_library_has_no_barrier(
    page: Page, violations: Callable[[Page], Any], scheme: Any
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.get_by_role("link", name="Library").click()
    page.wait_for_selector(".map circle")
    page.wait_for_selector("#library tbody tr")
    assert violations(page) == []
    page.get_by_role("button", name="Night Drive").click()
    page.get_by_role("button", name="Sounds alike", exact=True).click()
    page.wait_for_selector(".similar li")
    assert violations(page) == []
    page.set_viewport_size(PHONE)
    assert violations(page) == []
    page.get_by_role("link", name="Library").click()
    page.wait_for_selector("#library tbody tr")
    assert violations(page) == []


def test_the_way_in_has_no_barrier(
    context: BrowserContext, live: LiveApplication, violations: Callable[[Page], Any]
) -> None:
    page = context.new_page()
    page.goto(live.url)
    page.wait_for_selector("#door", state="visible")
    assert violations(page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_reference_has_no_barrier(
    context: BrowserContext, live: LiveApplication, violations: Callable[[Page], Any], scheme: Any
) -> None:
    page = context.new_page()
    page.emulate_media(color_scheme=scheme)
    page.goto(f"{live.url}/docs")
    page.wait_for_selector("section")
    assert violations(page) == []
    if scheme == "light":
        page.set_viewport_size(PHONE)
        assert violations(page) == []
