"""The reference is readable on a phone, and its boxes send real requests."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.api.live import LiveApplication
from tests.browser.test_playground import DEMO, PHONE

pytestmark = pytest.mark.redis


@pytest.fixture
def reference(context: BrowserContext, live: LiveApplication) -> Page:
    page = context.new_page()
    page.goto(f"{live.url}/docs")
    page.wait_for_selector("section")
    return page


def test_a_box_sends_a_look_up(reference: Page, live: LiveApplication) -> None:
    key = reference.get_by_label("API key for the boxes below")
    key.fill("afa_live_\u2026")
    section = reference.locator("section", has_text="/v1/resolve/{id}").first
    section.get_by_text("Try it").click()
    section.get_by_role("button", name="Send").click()
    expect(section).to_contain_text("This API key is not valid")
    key.fill(live.key("pro"))
    section.get_by_role("button", name="Send").click()
    expect(section.get_by_text("200")).not_to_have_count(0)
    expect(section).to_contain_text('"title": "Demo in A minor"')


def test_a_box_sends_a_file(reference: Page, live: LiveApplication) -> None:
    reference.get_by_label("API key for the boxes below").fill(live.key("pro"))
    section = reference.locator("section", has_text="Detect the tempo").first
    section.get_by_text("Try it").click()
    section.get_by_label("Audio file").set_input_files(str(DEMO))
    section.get_by_role("button", name="Send").click()
    expect(section).to_contain_text('"tempo": 120')


def test_fields_are_shown_when_they_are_opened(reference: Page) -> None:
    section = reference.locator("section", has_text="Detect the tempo").first
    meaning = section.get_by_text("How regular and clear the beats are")
    expect(meaning).to_have_count(0)
    section.locator("summary", has_text=re.compile("^Bpm$")).click()
    expect(meaning).to_be_visible()


def test_bounds_of_what_may_be_null_are_shown(reference: Page) -> None:
    section = reference.locator("section", has_text="List the library").first
    row = section.get_by_role("row", name="tempo_max")
    expect(row).to_contain_text("at least 0, at most 1000")


def test_it_leads_to_the_playground(reference: Page, live: LiveApplication) -> None:
    reference.get_by_role("link", name="Playground").click()
    assert reference.url == f"{live.url}/"


def test_every_operation_has_a_sample(reference: Page) -> None:
    sections = reference.locator("section").count()
    assert sections > 20
    assert reference.locator("section > pre", has_text="curl").count() == sections


OF_OTHERS = ("/v1/similar?text=", "/api/similar_tracks")
"""Samples that need a model that reads text, or one of two ways to name a track."""


def test_every_sample_is_a_request_that_is_understood(
    reference: Page, live: LiveApplication, tmp_path: Path
) -> None:
    shutil.copy(DEMO, tmp_path / "track.mp3")
    samples = reference.locator("section > pre", has_text="curl").all_inner_texts()
    odd = []
    for sample in samples:
        command = sample.replace("curl", "curl -s -o /dev/null -w '%{http_code}'", 1)
        done = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=tmp_path,
            env=os.environ | {"KEY": live.key("pro")},
            capture_output=True,
            text=True,
            check=True,
        )
        if done.stdout in ("400", "405", "415") or "%7B" in sample:
            odd.append(sample)
    assert [sample for sample in odd if not any(path in sample for path in OF_OTHERS)] == []


def test_a_phone_reads_it_from_the_first_word(reference: Page) -> None:
    reference.set_viewport_size(PHONE)
    expect(reference.locator("#contents")).not_to_have_attribute("open", "")
    assert reference.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    heading = reference.get_by_role("heading", name="afa v1").bounding_box()
    assert heading is not None
    assert heading["y"] < 200
