"""Tags of files as taggers write them, and files that are not what they claim to be."""

import re
import time
import unicodedata
from collections.abc import Callable
from pathlib import Path

import mutagen
import pytest
from mutagen.flac import FLAC, Picture
from mutagen.id3 import APIC, COMM, ID3, SYLT, TCON, TDRC, TIT2, TPE1, TSRC, TXXX, UFID
from mutagen.mp4 import MP4, AtomDataType, MP4Cover, MP4FreeForm

from serve_app.providers.tags import reader
from serve_app.providers.tags.identity import FILE_NAME, TAGS, identity_of
from serve_app.providers.tags.reader import Tags, read_tags
from tests.data.audio_files import Encoding

MBID = "b1a9c0e9-d987-4042-ae91-78d6a3267d69"
SPOTIFY = "0AfaDemoTrack000000001"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
TEXTS = {
    "artist": "Björk",
    "title": "Jóga",
    "album": "Homogenic",
    "isrc": "GBAYE9700123",
    "replaygain_track_gain": "-7.25 dB",
    "musicbrainz_trackid": MBID,
    "comment": f"bought at https://open.spotify.com/track/{SPOTIFY}?si=1, thanks",
}


def tagged_id3(path: Path) -> Path:
    Encoding("MP3", "mp3", "libmp3lame").write(path, 2)
    tags = ID3()
    tags.add(TPE1(encoding=3, text=TEXTS["artist"]))
    tags.add(TIT2(encoding=1, text=TEXTS["title"]))
    tags.add(mutagen.id3.TALB(encoding=0, text=TEXTS["album"]))
    tags.add(TDRC(encoding=3, text="1997-09-22"))
    tags.add(TCON(encoding=3, text=["Electronic", "Art Pop"]))
    tags.add(TSRC(encoding=3, text="GB-AYE-97-00123"))
    tags.add(UFID(owner="http://musicbrainz.org", data=MBID.encode()))
    tags.add(TXXX(encoding=3, desc="REPLAYGAIN_TRACK_GAIN", text="-7.25 dB"))
    tags.add(COMM(encoding=3, lang="eng", desc="", text=TEXTS["comment"]))
    tags.add(APIC(encoding=3, mime="image/png", type=3, desc="", data=PNG))
    tags.save(path)
    return path


def tagged_vorbis(path: Path, encoding: Encoding) -> Path:
    encoding.write(path, 2)
    file = mutagen.File(path)
    file.update({**TEXTS, "date": "1997", "genre": ["Electronic", "Art Pop"]})
    if isinstance(file, FLAC):
        picture = Picture()
        picture.type, picture.mime, picture.data = 3, "image/png", PNG
        file.add_picture(picture)
    file.save()
    return path


def tagged_mp4(path: Path) -> Path:
    Encoding("M4A", "ipod", "aac").write(path, 2)
    file = MP4(path)
    file.add_tags() if file.tags is None else None
    file["\xa9ART"], file["\xa9nam"] = TEXTS["artist"], TEXTS["title"]
    file["\xa9alb"], file["\xa9day"] = TEXTS["album"], "1997-09-22"
    file["\xa9gen"], file["\xa9cmt"] = ["Electronic", "Art Pop"], TEXTS["comment"]
    file["covr"] = [MP4Cover(PNG, MP4Cover.FORMAT_PNG)]
    for name, text in {
        "ISRC": TEXTS["isrc"],
        "MusicBrainz Track Id": MBID,
        "replaygain_track_gain": "-7.25 dB",
    }.items():
        value = MP4FreeForm(text.encode(), AtomDataType.UTF8)
        file[f"----:com.apple.iTunes:{name}"] = [value]
    file.save()
    return path


@pytest.mark.parametrize("kind", ["mp3", "flac", "ogg", "opus", "m4a"])
def test_what_taggers_write_is_read(kind: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{kind}"
    match kind:
        case "mp3":
            tagged_id3(path)
        case "m4a":
            tagged_mp4(path)
        case "flac":
            tagged_vorbis(path, Encoding("FLAC", "flac", "flac", "s16"))
        case "ogg":
            tagged_vorbis(path, Encoding("OGG", "ogg", "vorbis"))
        case _:
            tagged_vorbis(path, Encoding("Opus", "ogg", "libopus", "flt", 48_000))
    tags = read_tags(path)
    known = identity_of(tags, path, 2.0)
    who = known.identity
    assert (who.artist, who.title, who.album, who.year) == ("Björk", "Jóga", "Homogenic", 1997)
    assert (who.mbid, who.isrc, who.spotify_id) == (MBID, "GBAYE9700123", SPOTIFY)
    assert who.genres == ("Electronic", "Art Pop")
    assert (who.duration_s, who.source) == (2.0, TAGS)
    assert known.sources["isrc"] == known.sources["title"] == TAGS
    assert tags.first("replaygaintrackgain") == "-7.25 dB"
    if kind in ("mp3", "m4a", "flac"):
        assert tags.cover is not None
        assert (tags.cover.media_type, tags.cover.data) == ("image/png", PNG)


def named(**fields: str) -> Tags:
    return Tags({name: (value,) for name, value in fields.items()})


@pytest.mark.parametrize(
    ("name", "artist", "title"),
    [
        ("03 - Nina Simone - Sinnerman.mp3", "Nina Simone", "Sinnerman"),
        ("07_the_dangerous_symphony.ogg", "", "the dangerous symphony"),
        ("99 Luftballons.mp3", "", "99 Luftballons"),
        ("track1.opus", "", "track1"),
        ("1999.flac", "", "1999"),
    ],
)
def test_a_file_without_a_title_goes_by_its_name(name: str, artist: str, title: str) -> None:
    known = identity_of(Tags(), Path("/music") / name)
    assert (known.identity.artist, known.identity.title) == (artist, title)
    assert known.sources["title"] == FILE_NAME


def test_a_tagged_artist_is_not_replaced_by_the_file_name() -> None:
    known = identity_of(named(artist="Wansti"), Path("Someone - Forest.ogg"))
    assert (known.identity.artist, known.identity.title) == ("Wansti", "Forest")
    assert (known.sources["artist"], known.sources["title"]) == (TAGS, FILE_NAME)


@pytest.mark.parametrize(
    "fields",
    [
        {"isrc": "not one", "musicbrainztrackid": "1234", "spotifyid": "short", "year": "soon"},
        {"comment": "https://open.spotify.com/artist/x http://[::1 spotify:track:"},
        {"spotify": "https://www.deezer.com/track/1"},
    ],
)
def test_ids_that_are_none_are_left_out(fields: dict[str, str]) -> None:
    known = identity_of(named(title="A", **fields), Path("a.mp3"))
    assert list(known.identity.ids()) == []
    assert known.identity.year is None


@pytest.mark.parametrize(
    ("written", "year"),
    [
        *(("2019", 2019), ("2019-05-12", 2019), ("12.05.2019", 2019), ("20 May 2019", 2019)),
        *(("20190512", 2019), ("201905", 2019), ("12052019", 2019), ("20051999", 1999)),
        *(("19991231T120000", 1999), ("0000", None), ("199", None), ("120190512", None)),
    ],
)
def test_the_year_of_a_date_is_read_however_it_is_written(written: str, year: int | None) -> None:
    assert identity_of(named(date=written), Path("a.mp3")).identity.year == year


@pytest.mark.parametrize(
    ("encoding", "name", "edition"),
    [
        (Encoding("MP3", "mp3", "libmp3lame"), "TDOR", "TDRC"),
        (Encoding("FLAC", "flac", "flac", "s16"), "originaldate", "date"),
        (
            Encoding("WMA", "asf", "wmav2", "fltp", 44_100, 128_000),
            "WM/OriginalReleaseYear",
            "WM/Year",
        ),
    ],
    ids=["mp3", "flac", "wma"],
)
def test_the_year_is_that_of_the_first_release(
    encoding: Encoding, name: str, edition: str, tmp_path: Path
) -> None:
    """As beets writes it; only M4A had it."""
    path = encoding.write(tmp_path / f"a.{encoding.name.lower()}", 2)
    for year, known in (("0000", 2011), ("1971-05-03", 1971)):
        file = mutagen.File(path)
        if file.tags is None:
            file.add_tags()
        for field, text in ((name, year), (edition, "2011")):
            is_id3 = isinstance(file.tags, ID3)
            file[field] = getattr(mutagen.id3, field)(text=text) if is_id3 else text
        file.save()
        assert identity_of(read_tags(path), path).identity.year == known


def test_the_frame_of_musicbrainz_counts_before_a_text_that_others_left(tmp_path: Path) -> None:
    path = tagged_id3(tmp_path / "a.mp3")
    tags = ID3(path)
    tags.add(TXXX(encoding=3, desc="MUSICBRAINZ_TRACKID", text=MBID.replace("b", "c")))
    tags.save()
    assert identity_of(read_tags(path), path).identity.mbid == MBID


def test_utf8_that_was_labelled_latin1_is_read_as_meant(tmp_path: Path) -> None:
    path = tagged_id3(tmp_path / "a.mp3")
    raw = path.read_bytes()
    utf8 = re.compile(rb"(TPE1.{6})\x03", re.DOTALL)
    assert utf8.search(raw)
    path.write_bytes(utf8.sub(lambda match: match[1] + b"\0", raw))
    assert identity_of(read_tags(path), path).identity.artist == "Björk"


@pytest.mark.parametrize(
    ("written", "title"),
    [
        ("Bold \U0001f469\u200d\U0001f4bb", "Bold \U0001f469\u200d\U0001f4bb"),
        (
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
            "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
        ),
        ("\U0001f3f4\U000e0067\U000e0062\U000e007f", "\U0001f3f4\U000e0067\U000e0062\U000e007f"),
        ("Heart \U0001fa77", "Heart \U0001fa77"),
        ("\U0001fae9", "\U0001fae9"),
        ("\ufeffsoft\u00adly\u200e \u202edrawkcab\x07\ue000", "softly drawkcab"),
        ("\u200d\u200c", ""),
    ],
    ids=["joined", "Persian", "flag", "Unicode 15", "Unicode 16", "unseen", "nothing"],
)
def test_letters_are_kept_and_what_is_unseen_is_not(
    written: str, title: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.mp3"
    Encoding("MP3", "mp3", "libmp3lame").write(path, 1)
    tags = ID3()
    tags.add(TIT2(encoding=3, text=written))
    tags.save(path)

    assert (read_tags(path).title or "") == title


@pytest.mark.parametrize("kind", ["mp3", "flac", "ogg", "m4a"])
def test_damaged_tags_never_raise(kind: str, tmp_path: Path) -> None:
    whole = {
        "mp3": lambda path: tagged_id3(path),
        "flac": lambda path: tagged_vorbis(path, Encoding("FLAC", "flac", "flac", "s16")),
        "ogg": lambda path: tagged_vorbis(path, Encoding("OGG", "ogg", "vorbis")),
        "m4a": tagged_mp4,
    }[kind](tmp_path / f"a.{kind}").read_bytes()
    damaged = tmp_path / f"b.{kind}"
    for at in range(0, 2000, 13):
        damaged.write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
        texts = [text for values in read_tags(damaged).fields.values() for text in values]
        assert all(len(text) <= reader.MAX_TEXT for text in texts)
        assert not {unicodedata.category(char) for char in "".join(texts)} & {"Cc", "Co", "Cs"}
        damaged.write_bytes(whole[:at])
        read_tags(damaged)


@pytest.mark.parametrize("kind", ["flac", "ogg"])
def test_what_was_read_before_a_fault_is_kept(kind: str, tmp_path: Path) -> None:
    codec = {"flac": ("flac", "s16"), "ogg": ("vorbis", "fltp")}[kind]
    path = tagged_vorbis(tmp_path / f"a.{kind}", Encoding(kind, kind, *codec))
    whole = path.read_bytes()
    at = whole.lower().index(b"isrc=") - 4
    path.write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
    found = read_tags(path)
    assert (found.artist, found.title, found.first("album")) == ("Björk", "Jóga", "Homogenic")


def test_an_id3_block_with_a_fault_keeps_what_came_before(tmp_path: Path) -> None:
    path = Encoding("WAV", "wav", "pcm_s16le", "s16").write(tmp_path / "a.wav", 2)
    tags = ID3()
    tags.add(TIT2(encoding=3, text="Jóga"))
    tags.save(tmp_path / "tag")
    id3 = (tmp_path / "tag").read_bytes()
    info = b"INFOIART" + (6).to_bytes(4, "little") + "Björk".encode() + b"\0ICMT\1"
    for name, content in ((b"id3 ", id3), (b"LIST", info)):
        padded = content + b"\0" * (len(content) % 2)
        path.write_bytes(path.read_bytes() + name + len(content).to_bytes(4, "little") + padded)
    assert (read_tags(path).artist, read_tags(path).title) == ("Björk", "Jóga")


def test_huge_tags_cost_a_bounded_read(tmp_path: Path) -> None:
    path = tagged_id3(tmp_path / "a.mp3")
    tags = ID3(path)
    tags.add(TXXX(encoding=3, desc="long", text="x" * 5_000_000))
    tags.add(TPE1(encoding=3, text=[f"artist {n}" for n in range(5000)]))
    tags.add(APIC(encoding=3, mime="image/png", type=3, data=PNG + bytes(reader.MAX_COVER)))
    tags.save(path)
    found = read_tags(path)
    assert found.cover is None
    assert len(found.fields["long"][0]) == reader.MAX_TEXT
    assert len(found.fields["artist"]) == reader.MAX_VALUES
    tags.add(APIC(encoding=3, mime="image/png", type=4, desc="b", data=bytes(reader.MAX_READ)))
    tags.save(path)
    assert read_tags(path).fields == found.fields


def test_what_was_read_before_it_was_too_much_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.mp3"
    tags = ID3()
    tags.add(TIT2(encoding=3, text="Title"))
    tags.add(TCON(encoding=3, text=[f"{n:06x}" for n in range(2000)]))
    tags.save(path)
    monkeypatch.setattr(reader, "MAX_STEPS", 1000)
    found = read_tags(path)
    assert (found.title, len(found.fields["genre"])) == ("Title", reader.MAX_VALUES)


@pytest.mark.parametrize("container", ["wav", "aiff"])
def test_of_an_id3_block_too_what_was_read_is_kept(
    container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    codec = {"wav": "pcm_s16le", "aiff": "pcm_s16be"}[container]
    path = Encoding(container, container, codec, "s16").write(tmp_path / f"a.{container}", 2)
    file = mutagen.File(path)
    file.add_tags()
    file.tags.add(TIT2(encoding=3, text="Title"))
    file.tags.add(TCON(encoding=3, text=[f"{n:06x}" for n in range(2000)]))
    file.save()
    monkeypatch.setattr(reader, "MAX_STEPS", 1000)
    found = read_tags(path)
    assert (found.title, len(found.fields["genre"])) == ("Title", reader.MAX_VALUES)


def test_many_values_take_no_longer_than_their_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.mp3"
    many = [f"{n:06x}" for n in range(60_000)]
    lyrics = SYLT(encoding=3, lang="eng", format=2, type=1, desc="x")
    lyrics.text = [("ab", n) for n in range(150_000)]
    for frame in (TCON(encoding=3, text=many), TPE1(encoding=3, text=many), lyrics):
        path.unlink(missing_ok=True)
        tags = ID3()
        tags.add(frame)
        tags.save(path)
        begun_s = time.thread_time()
        read_tags(path)
        assert time.thread_time() - begun_s < 2.0, frame.FrameID


def id3_frame(name: bytes, content: bytes) -> bytes:
    """A tag of one frame, followed only by the header of an MP3 frame."""

    def size(n: int) -> bytes:
        return bytes(n >> shift & 0x7F for shift in (21, 14, 7, 0))

    frame = name + size(len(content)) + bytes(2) + content
    return b"ID3\x04\0\0" + size(len(frame)) + frame + b"\xff\xfb\x90\0"


def aiff_name(content: bytes) -> bytes:
    chunk = b"NAME" + len(content).to_bytes(4, "big") + content
    return b"FORM" + (4 + len(chunk)).to_bytes(4, "big") + b"AIFF" + chunk


def ogg_comments(n: int) -> bytes:
    """An Ogg file of nothing but comments, each with a different name."""
    texts = (f"{number:x}=b".encode() for number in range(n))
    comments = b"".join(len(text).to_bytes(4, "little") + text for text in texts)
    packet = b"\x03vorbis" + bytes(4) + n.to_bytes(4, "little") + comments
    most = 255 * 255
    blocks = [packet[at : at + most] for at in range(0, len(packet), most)]
    pages = []
    for block in blocks:
        sizes = [255] * (len(block) // 255) + ([len(block) % 255] if block is blocks[-1] else [])
        pages.append(b"OggS" + bytes(22) + bytes([len(sizes), *sizes]) + block)
    return b"".join(pages)


@pytest.mark.parametrize(
    "make",
    [
        lambda: id3_frame(b"TPE1", b"\3" + b"a\0" * 12_000_000),
        lambda: id3_frame(b"TIT1", b"\3" + b"a\0" * 12_000_000),
        lambda: id3_frame(b"TPE1", b"\1" + b"a\0\0" * 12_000_000),
        lambda: aiff_name(b"a\0b\0" * 15_000_000),
        lambda: ogg_comments(1_200_000),
    ],
    ids=["values", "groupings", "odd zeros", "AIFF", "Ogg"],
)
def test_millions_of_values_are_not_all_looked_at(
    make: Callable[[], bytes], tmp_path: Path
) -> None:
    path = tmp_path / "a"
    path.write_bytes(make())
    begun_s = time.thread_time()
    read_tags(path)
    assert time.thread_time() - begun_s < 6.0
