"""The library on the page, similar tracks, and exported files."""

import base64
import csv
import shutil
from pathlib import Path
from xml.etree import ElementTree

import mutagen
import pytest
from mutagen.apev2 import APEv2
from mutagen.id3 import APIC, ID3, TIT2, TKEY, TXXX, Encoding
from playwright.sync_api import Page, Request, Route, expect

from pipelines.audio.decode import DecodeLimits, digest_packets
from serve_app.library.track import LibraryTrack
from serve_app.providers.tags.reader import read_tags
from tests.browser.conftest import SHELF
from tests.browser.test_playground import (
    ANALYSED_MS,
    DEMO,
    PHONE,
    SMALLEST,
    analyse_demo,
    drop_from_disk,
)
from tests.cli.library.test_tagging import FORMATS

pytestmark = pytest.mark.redis

LIMITS = DecodeLimits()
DRIVE, LAKE = "The Cure \u2013 Night Drive", "The Cure \u2013 Still Lake"


def names(page: Page) -> list[str]:
    return page.locator("#library tbody td:first-child").all_inner_texts()


def test_the_library_is_found_sorted_and_picked_from(page: Page, shelf: list[LibraryTrack]) -> None:
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))
    page.get_by_role("link", name="Library").click()
    status = page.locator("#library").get_by_role("status")
    expect(status).to_have_text("6 tracks")
    expect(page.locator(".map circle")).to_have_count(6)
    page.get_by_role("button", name="BPM").click()
    expect(page.locator("#library tbody td").first).to_have_text(LAKE)
    page.get_by_label("Words of artist, title").fill("night")
    expect(status).to_have_text("1 track")
    assert names(page) == [DRIVE]
    assert "q=night" in asked[-1].url
    assert "sort=tempo" in asked[-1].url
    expect(page.locator(".map .listed")).to_have_count(1)
    page.get_by_label("Words of artist, title").fill("")
    page.get_by_label("Key", exact=True).select_option("8A")
    page.get_by_label("Energy from").fill("60")
    expect(status).to_have_text("No track matches.")
    page.get_by_label("and keys that mix with it").check()
    expect(status).to_have_text("1 track")
    page.get_by_role("button", name=DRIVE).click()
    expect(page.locator("#report-title")).to_have_text(DRIVE)
    assert page.url.endswith(f"#{shelf[0].track_id}")
    page.go_back()
    expect(status).to_have_text("1 track")
    assert faults == []


@pytest.mark.usefixtures("shelf")
def test_a_track_tells_what_sounds_like_it_and_leaves_as_files(page: Page, tmp_path: Path) -> None:
    analyse_demo(page)
    panel = page.get_by_role("region", name="Similar tracks")
    panel.get_by_role("button", name="Sounds alike and mixes").click()
    found = panel.get_by_role("listitem").filter(has_text="Night Drive")
    expect(found).to_contain_text("BPM (\u00d71.00) \u00b7 9A, a fifth up")
    expect(panel.get_by_role("listitem").filter(has_text="Still Lake")).to_have_count(0)
    page.get_by_role("button", name="½\u00d7").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Copy with tags").click()
    copy = tmp_path / download.value.suggested_filename
    download.value.save_as(copy)
    before, after = read_tags(DEMO).fields, read_tags(copy).fields
    assert after["bpm"] == ("62",)
    assert after["initialkey"] == ("Am",)
    assert {name: after[name] for name in ("artist", "title")} == {
        name: before[name] for name in ("artist", "title")
    }
    assert copy.read_bytes()[-400_000:] == DEMO.read_bytes()[-400_000:]
    tags_and_files = page.get_by_role("region", name="Tags")
    tags_and_files.get_by_label("Folder of the files").fill("/Users/ada/Music")
    with page.expect_download() as download:
        tags_and_files.get_by_role("button", name="rekordbox XML").click()
    entry = ElementTree.parse(download.value.path()).find("COLLECTION/TRACK")  # noqa: S314
    assert entry is not None
    assert entry.get("Location") == "file://localhost/Users/ada/Music/demo.mp3"
    assert entry.find("TEMPO") is not None
    found.get_by_role("link").click()
    expect(page.locator("#report-title")).to_have_text(DRIVE)


def test_a_job_of_before_has_no_file_that_rekordbox_could_find(page: Page) -> None:
    analyse_demo(page)
    expect(page.get_by_role("button", name="rekordbox XML")).to_have_count(1)
    page.reload()
    expect(page.locator(".tiles")).to_be_visible()
    expect(page.get_by_role("button", name="rekordbox XML")).to_have_count(0)


@pytest.mark.parametrize(
    ("folder", "above"),
    [
        ("/Users/ada", "/Users/ada/M%C3%BAsica"),
        ("/Users/ada/M\N{LATIN SMALL LETTER U WITH ACUTE}sica/", "/Users/ada/M%C3%BAsica"),
        ("/Users/ada/mu\N{COMBINING ACUTE ACCENT}sica", "/Users/ada/mu%CC%81sica"),
    ],
)
def test_files_of_a_dropped_folder_are_told_where_they_lie(
    folder: str, above: str, page: Page, tmp_path: Path
) -> None:
    dropped = tmp_path / "M\N{LATIN SMALL LETTER U WITH ACUTE}sica"
    deep = dropped / "disc 1" / "demo.mp3"
    deep.parent.mkdir(parents=True)
    shutil.copyfile(DEMO, deep)
    drop_from_disk(page, dropped)
    page.wait_for_selector(".tiles", timeout=ANALYSED_MS)
    tags_and_files = page.get_by_role("region", name="Tags")
    tags_and_files.get_by_label("Folder of the files").fill(folder)
    with page.expect_download() as download:
        tags_and_files.get_by_role("button", name="rekordbox XML").click()
    entry = ElementTree.parse(download.value.path()).find("COLLECTION/TRACK")  # noqa: S314
    assert entry is not None
    assert entry.get("Location") == f"file://localhost{above}/disc%201/demo.mp3"


@pytest.mark.usefixtures("shelf")
def test_a_track_without_a_beat_has_no_tempo_in_the_library(page: Page) -> None:
    def without_beats(route: Route) -> None:
        answer = route.fetch()
        listed = answer.json()
        route.fulfill(json=listed | {"items": [one | {"tempo": 0.0} for one in listed["items"]]})

    page.route("**/v1/library?*", without_beats)
    page.get_by_role("link", name="Library").click()
    expect(page.locator("#library tbody td:nth-child(2)")).to_have_text([""] * len(SHELF))


@pytest.mark.usefixtures("shelf")
def test_the_library_leaves_as_csv(page: Page) -> None:
    page.get_by_role("link", name="Library").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(download.value.path().read_text().splitlines()))
    assert {row["title"] for row in rows} == {title for title, *_ in SHELF}


@pytest.mark.usefixtures("shelf")
def test_the_library_fits_a_phone(page: Page) -> None:
    page.set_viewport_size(PHONE)
    page.get_by_role("link", name="Library").click()
    expect(page.locator(".map circle").first).to_be_visible()
    for viewport in (PHONE, SMALLEST):
        page.set_viewport_size(viewport)
        assert page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]


def test_an_absent_service_is_told_in_the_library_too(page: Page) -> None:
    page.route("**/v1/library**", lambda route: route.abort())
    page.get_by_role("link", name="Library").click()
    expect(page.locator("#offline")).to_be_visible()
    page.unroute("**/v1/library**")
    expect(page.locator("#library")).to_contain_text("afa scan ~/Music")
    expect(page.locator("#offline")).to_be_hidden()


def test_an_empty_library_says_how_it_is_filled(page: Page) -> None:
    page.get_by_role("link", name="Library").click()
    expect(page.locator("#library")).to_contain_text("afa scan ~/Music")
    expect(page.locator("#library table")).to_be_hidden()


MAKE_TAGGED = """async ([data, name]) => {
  const { tagged } = await import("/playground/tags.js");
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const tags = { bpm: "124", key: "Am", energy: "7", gain: "-6.80 dB", peak: "0.891251" };
  try {
    const copy = new Uint8Array(await (await tagged(new File([bytes], name), tags)).arrayBuffer());
    return btoa(copy.reduce((text, byte) => text + String.fromCharCode(byte), ""));
  } catch (fault) {
    return { refused: fault.message };
  }
}"""


def tagged(page: Page, path: Path) -> Path | str:
    """The copy with tags that the page makes, or what the page says if it makes none."""
    data = base64.b64encode(path.read_bytes()).decode()
    made = page.evaluate(MAKE_TAGGED, [data, path.name])
    if not isinstance(made, str):
        return str(made["refused"])
    copy = path.with_name(f"copy-{path.name}")
    copy.write_bytes(base64.b64decode(made))
    return copy


def mp3(path: Path, version: int | None) -> Path:
    """An MP3 whose tags hold a title, a cover and an old key and energy."""
    FORMATS["mp3"].write(path, 3)
    mutagen.File(path).delete()
    if version is None:
        return path
    tags = ID3()
    tags.add(TIT2(encoding=Encoding.UTF16, text="Kept — ü"))
    tags.add(TKEY(encoding=Encoding.UTF16, text="C"))
    tags.add(TXXX(encoding=Encoding.UTF16, desc="ENERGYLEVEL", text="1"))
    tags.add(TXXX(desc="replaygain_track_gain", text="-3.00 dB"))
    tags.add(TXXX(encoding=Encoding.UTF16, desc="EnergyLevel of mine", text="2"))
    tags.add(APIC(mime="image/png", data=bytes(range(256)) * 300))
    tags.save(path, v2_version=version)
    return path


def flac(path: Path) -> Path:
    FORMATS["flac"].write(path, 3)
    file = mutagen.File(path)
    file.add_tags() if file.tags is None else None
    file.tags.update({"title": "Kept — ü", "initialkey": "C", "key": "C"})
    file.save()
    return path


def test_a_copy_gets_tags_and_keeps_everything_else(page: Page, tmp_path: Path) -> None:
    files = [mp3(tmp_path / f"v{version}.mp3", version) for version in (None, 3, 4)]
    for path in [*files, flac(tmp_path / "a.flac")]:
        copy = tagged(page, path)
        assert isinstance(copy, Path), copy
        assert digest_packets(copy, LIMITS) == digest_packets(path, LIMITS)
        tags = read_tags(copy)
        assert (tags.first("bpm"), tags.fields["initialkey"]) == ("124", ("Am",))
        assert tags.fields["energylevel"] == ("7",)
        assert tags.fields["replaygaintrackgain"] == ("-6.80 dB",)
        assert tags.first("title") == (None if path is files[0] else "Kept — ü")
        if path.suffix == ".flac":
            assert mutagen.File(copy).tags["key"] == ["Am"]
        if path in files[1:]:
            assert tags.first("energylevelofmine") == "2"
            assert mutagen.File(copy).tags.getall("APIC")[0].data == bytes(range(256)) * 300
    late = tmp_path / "late.mp3"
    late.write_bytes(bytes(700) + files[0].read_bytes())
    copy = tagged(page, late)
    assert isinstance(copy, Path), copy
    assert copy.read_bytes().endswith(late.read_bytes())
    assert read_tags(copy).first("bpm") == "124"


def with_comments(path: Path, content: bytes) -> bytes:
    """A FLAC file whose only block after the first is a comment block with this content."""
    whole = path.read_bytes()
    at, is_last = 4, False
    while not is_last:
        is_last = whole[at] >= 0x80
        at += 4 + int.from_bytes(whole[at + 1 : at + 4])
    info = whole[8:42]
    return b"fLaC" + flac_block(0, info) + flac_block(0x80 | 4, content) + whole[at:]


def flac_block(kind: int, content: bytes) -> bytes:
    return bytes([kind]) + len(content).to_bytes(3) + content


def test_why_a_copy_gets_no_tags_is_told(page: Page, tmp_path: Path) -> None:
    FORMATS["ogg"].write(tmp_path / "a.ogg", 3)
    version_4 = mp3(tmp_path / "a.mp3", 4).read_bytes()
    lossless = flac(tmp_path / "a.flac")
    field = (7).to_bytes(4, "little") + b"TITLE=x"
    whole_bytes = b"GEOB" + (304).to_bytes(4) + bytes(2 + 304) + b"TIT2\0\0\0\x02\0\0\x03x"
    old_itunes = b"ID3\x04\0\0\0\0" + bytes(divmod(len(whole_bytes), 128)) + whole_bytes
    untagged = mp3(tmp_path / "b.mp3", None)
    ape = APEv2()
    ape["Title"] = "Only there"
    ape.save(tmp_path / "ape")
    for name, content, told in (
        ("v1.mp3", untagged.read_bytes() + b"TAG" + bytes(125), "not known here"),
        ("ape.mp3", untagged.read_bytes() + (tmp_path / "ape").read_bytes(), "not known here"),
        ("a.ogg", (tmp_path / "a.ogg").read_bytes(), "Only MP3 and FLAC"),
        ("flags.mp3", b"ID3\x04\x00\x80" + version_4[6:], "not known here"),
        ("itunes.mp3", old_itunes + untagged.read_bytes(), "not known here"),
        ("twice.mp3", b"ID3\x03\0\0\0\0\0\0" + version_4, "not known here"),
        ("id3.flac", b"ID3\x03\0\0\0\0\0\0" + lossless.read_bytes(), "not known here"),
        ("empty.flac", with_comments(lossless, b""), "damaged"),
        ("short.flac", with_comments(lossless, bytes(4) + b"\x05\0\0\0" + field), "damaged"),
    ):
        path = tmp_path / name
        path.write_bytes(content)
        assert told in str(tagged(page, path)), name
