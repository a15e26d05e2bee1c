"""APEv2 and container tags, as taggers write them and as nobody should."""

import shutil
import struct
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import av
import mutagen.id3
import numpy as np
import pytest
from mutagen.apev2 import APEv2, APEValue

from serve_app.providers.tags import ape, matroska, reader
from serve_app.providers.tags.identity import TAGS, identity_of
from serve_app.providers.tags.reader import Cover, Tags, read_cover, read_tags
from tests.data.audio_files import (
    MUSEPACK,
    RATE,
    Encoding,
    click_track,
    encode,
    silent_ape,
    write_dff,
    write_dsf,
)

MBID = "b1a9c0e9-d987-4042-ae91-78d6a3267d69"
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
TEXTS = {
    "artist": "Björk",
    "title": "Jóga",
    "album": "Homogenic",
    "date": "1997-09-22",
    "genre": "Electronic",
    "ISRC": "GBAYE9700123",
    "REPLAYGAIN_TRACK_GAIN": "-7.25 dB",
    "MUSICBRAINZ_TRACKID": MBID,
}
APE_TEXTS = {
    **{name.title(): TEXTS[name] for name in ("artist", "title", "album", "genre")},
    **{name: TEXTS[name] for name in ("ISRC", "REPLAYGAIN_TRACK_GAIN", "MUSICBRAINZ_TRACKID")},
    "Year": "1997",
}
ID3_FRAMES = {
    mutagen.id3.TPE1: "artist",
    mutagen.id3.TIT2: "title",
    mutagen.id3.TALB: "album",
    mutagen.id3.TDRC: "date",
    mutagen.id3.TCON: "genre",
    mutagen.id3.TSRC: "ISRC",
}
WITH_APE = [
    Encoding("MP3", "mp3", "libmp3lame"),
    Encoding("AAC", "adts", "aac"),
    Encoding("WavPack", "wv", "wavpack"),
    Encoding("TTA", "tta", "tta", "s16"),
]
CONTAINERS = [
    Encoding("WebM", "webm", "libopus", "flt", 48_000),
    Encoding("MKA", "matroska", "flac", "s16"),
    Encoding("CAF", "caf", "pcm_s16be", "s16"),
]


def check(path: Path) -> None:
    tags = read_tags(path)
    known = identity_of(tags, path)
    who = known.identity
    assert (who.artist, who.title, who.album, who.year) == ("Björk", "Jóga", "Homogenic", 1997)
    assert (who.mbid, who.isrc, who.genres) == (MBID, "GBAYE9700123", ("Electronic",))
    assert known.sources["title"] == TAGS
    assert tags.first("replaygaintrackgain") == "-7.25 dB"


def tag_with_ape(path: Path) -> Path:
    tags = APEv2()
    tags.update(APE_TEXTS)
    tags["Cover Art (Front)"] = APEValue(b"cover.png\0" + PNG, 1)
    tags.save(path)
    return path


def in_container(path: Path, encoding: Encoding, labels: dict[str, str]) -> Path:
    """Write audio into a container with tags, one of them on the stream."""
    encoding.write(path, 2)
    bare = path.rename(path.with_suffix(".bare"))
    with av.open(str(bare)) as source, av.open(str(path), "w", format=encoding.container) as file:
        file.metadata.update(labels)
        stream = file.add_stream_from_template(source.streams.audio[0])
        stream.metadata["title"] = "Stereo"
        for packet in source.demux(source.streams.audio[0]):
            if packet.dts is not None:
                packet.stream = stream
                file.mux(packet)
    return path


@pytest.mark.parametrize("kind", ["wav", "aiff"])
def test_id3_counts_before_other_chunks(kind: str, tmp_path: Path) -> None:
    """Editors change only ID3, and players show it."""
    codec = {"wav": "pcm_s16le", "aiff": "pcm_s16be"}[kind]
    labels = {"title": "Before", "artist": "The same", "comment": "Kept"}
    path = in_container(tmp_path / f"a.{kind}", Encoding(kind, kind, codec, "s16"), labels)
    file = mutagen.File(path)
    file.add_tags()
    file.tags.add(mutagen.id3.TIT2(encoding=3, text="After"))
    file.tags.add(mutagen.id3.TPE1(encoding=3, text=["The same", "Another"]))
    file.save()
    tags = read_tags(path)
    assert tags.fields["title"] == ("After", "Before")
    assert tags.fields["artist"] == ("The same", "Another")
    assert tags.first("comment") == "Kept"


def test_picard_s_id_of_the_recording_is_read_from_wma(tmp_path: Path) -> None:
    wma = Encoding("WMA", "asf", "wmav2", "fltp", RATE, 128_000)
    path = wma.write(tmp_path / "a.wma", 2)
    file = mutagen.File(path)
    file["MusicBrainz/Track Id"] = MBID
    file.save()
    assert identity_of(read_tags(path), path).identity.mbid == MBID


def test_the_first_artist_of_wma_is_the_one_that_players_show(tmp_path: Path) -> None:
    wma = Encoding("WMA", "asf", "wmav2", "fltp", RATE, 128_000)
    path = wma.write(tmp_path / "a.wma", 2)
    file = mutagen.File(path)
    file["Author"], file["WM/Genre"] = ["First", "Second"], ["Rock", "Pop"]
    file.save()
    fields = read_tags(path).fields
    assert (fields["artist"], fields["genre"]) == (("First", "Second"), ("Rock", "Pop"))


@pytest.mark.parametrize("encoding", WITH_APE, ids=lambda encoding: encoding.name)
def test_apev2_is_read(encoding: Encoding, tmp_path: Path) -> None:
    path = tag_with_ape(encoding.write(tmp_path / "01 - Someone - Else", 2))
    check(path)
    cover = read_cover(path)
    assert cover is not None
    assert (cover.media_type, cover.data) == ("image/png", PNG)
    assert read_tags(path).cover == cover


def test_apev2_of_monkeys_audio_is_read(tmp_path: Path) -> None:
    check(tag_with_ape(silent_ape(tmp_path / "a.ape")))


def test_apev2_of_musepack_is_read(tmp_path: Path) -> None:
    check(tag_with_ape(Path(shutil.copy(MUSEPACK, tmp_path / "a.mpc"))))


@pytest.mark.parametrize("form", [b"RF64", b"BW64"])
def test_wav_of_more_than_4_gb_is_read(form: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    with av.open(str(path), "w", format="wav", options={"rf64": "always"}) as file:
        file.metadata.update({name: TEXTS[name] for name in ("artist", "title", "album")})
        stream = file.add_stream("pcm_s16le", rate=48_000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 480), np.int16), "s16", "mono")
        frame.sample_rate = 48_000
        file.mux(stream.encode(frame))
        file.mux(stream.encode(None))
    path.write_bytes(form + path.read_bytes()[4:])
    tags = read_tags(path)
    assert (tags.artist, tags.title, tags.first("album")) == ("Björk", "Jóga", "Homogenic")


@pytest.mark.parametrize("write", [write_dsf, write_dff])
def test_id3_of_dsd_is_read(tmp_path: Path, write: Callable[[Path, np.ndarray], Path]) -> None:
    path = write(tmp_path / f"a.{write.__name__[-3:]}", click_track(120, 1.0))
    assert read_tags(path) == Tags()
    file = mutagen.File(path)
    file.add_tags()
    for frame, name in ID3_FRAMES.items():
        file.tags.add(frame(encoding=3, text=TEXTS[name]))
    file.tags.add(mutagen.id3.UFID(owner="http://musicbrainz.org", data=MBID.encode()))
    gain = TEXTS["REPLAYGAIN_TRACK_GAIN"]
    file.tags.add(mutagen.id3.TXXX(encoding=3, desc="REPLAYGAIN_TRACK_GAIN", text=gain))
    file.tags.add(mutagen.id3.APIC(encoding=3, mime="image/png", type=3, data=PNG))
    file.save()
    check(path)
    assert read_cover(path) == read_tags(path).cover == Cover("image/png", PNG)


@pytest.mark.parametrize("head", [b"DSD ", b"FRM8"])
@pytest.mark.parametrize("rest", [b"", b"\xff" * 24, bytes(60), bytes(8) + b"ID3 " * 40])
def test_broken_dsd_has_no_tags(tmp_path: Path, head: bytes, rest: bytes) -> None:
    (tmp_path / "a.dsf").write_bytes(head + rest)
    assert read_tags(tmp_path / "a.dsf") == Tags()


def test_apev2_stands_between_id3v2_and_id3v1(tmp_path: Path) -> None:
    path = tmp_path / "a.mp3"
    WITH_APE[0].write(path, 2)
    mutagen.id3.ID3(path).delete(path)
    tag_with_ape(path)
    path.write_bytes(
        path.read_bytes() + b"TAG" + b"A title that was cut after 30 ".ljust(124) + b"\xff"
    )
    check(path)
    tags = mutagen.id3.ID3()
    tags.add(mutagen.id3.TIT2(encoding=3, text="Newer"))
    tags.save(path, v1=1)
    tagged = read_tags(path)
    assert (tagged.title, tagged.first("replaygaintrackgain")) == ("Newer", "-7.25 dB")


@pytest.mark.parametrize("encoding", CONTAINERS, ids=lambda encoding: encoding.name)
def test_tags_of_containers_are_read(encoding: Encoding, tmp_path: Path) -> None:
    check(in_container(tmp_path / "01 - Someone - Else", encoding, TEXTS))


def test_the_name_of_a_stream_is_no_title(tmp_path: Path) -> None:
    path = in_container(tmp_path / "Forest.mka", CONTAINERS[1], {"artist": "Wansti"})
    assert (read_tags(path).artist, read_tags(path).title) == ("Wansti", "")


def test_au_tells_its_title(tmp_path: Path) -> None:
    samples = click_track(120, 2)
    path = encode(tmp_path / "a", samples, "au", "pcm_s16be", sample_format="s16", title="Jóga")
    assert read_tags(path).title == "Jóga"


def element(name: str, content: bytes) -> bytes:
    return bytes.fromhex(name) + b"\x01" + len(content).to_bytes(7, "big") + content


def tags_element(texts: dict[str, str], level: str = "", number: int = 0, track: int = 0) -> bytes:
    simple = [
        element("67c8", element("45a3", name.encode()) + element("4487", text.encode()))
        for name, text in texts.items()
    ]
    target = element("63ca", level.encode()) if level else b""
    target += element("68ca", bytes([number])) if number else b""
    target += element("63c5", track.to_bytes(8, "big")) if track else b""
    return element("7373", element("63c0", target) + b"".join(simple))


def attachments(**pictures: bytes) -> bytes:
    """Pictures by name; the ``_`` before the extension stands for a dot."""
    return element(
        "1941a469",
        b"".join(
            element(
                "61a7",
                element("466e", name.replace("_", ".").encode())
                + element("4660", b"text/plain" if name.endswith("txt") else b"image/png")
                + element("465c", data),
            )
            for name, data in pictures.items()
        ),
    )


def with_tags(path: Path, tags: bytes, beside: bytes = b"") -> Path:
    """Replace the tags of a Matroska file with ``tags``, followed by ``beside``."""
    in_container(path, CONTAINERS[1], {"comment": "x" * (len(tags + beside) + 2000)})
    data = path.read_bytes()
    begin = data.rindex(bytes.fromhex("1254c367"))
    n_bytes = 9 - data[begin + 4].bit_length()
    size = int.from_bytes(data[begin + 4 : begin + 4 + n_bytes], "big") - (1 << 7 * n_bytes)
    end = begin + 4 + n_bytes + size
    new = element("1254c367", tags) + beside
    new += element("ec", bytes(end - begin - len(new) - 9))
    path.write_bytes(data[:begin] + new + data[end:])
    return path


ALBUM = {
    "TITLE": "Homogenic",
    "ARTIST": "Various",
    "DATE_RELEASED": "1997",
    "GENRE": "Electronic",
}
TRACK = {"TITLE": "Jóga", "ARTIST": "Björk", "REPLAYGAIN_GAIN": "-7.25 dB"} | {
    name: TEXTS[name] for name in ("ISRC", "MUSICBRAINZ_TRACKID")
}


@pytest.mark.parametrize(
    "tags",
    [
        tags_element(TRACK, "TRACK") + tags_element(ALBUM, "ALBUM"),
        tags_element(ALBUM, number=50) + tags_element(TRACK, number=30),
        tags_element(ALBUM) + tags_element(TRACK, "SONG", 30),
        tags_element(TRACK, number=30)
        + tags_element(ALBUM)
        + tags_element({"TITLE": "Vespertine"}, number=60),
    ],
    ids=["names", "numbers", "no level", "a collection"],
)
def test_matroska_tells_album_and_track_apart(tags: bytes, tmp_path: Path) -> None:
    path = with_tags(tmp_path / "a.mka", tags)
    check(path)
    assert read_tags(path).first("albumartist") == "Various"


def test_what_matroska_says_of_its_audio_is_read(tmp_path: Path) -> None:
    path = with_tags(tmp_path / "a.mka", b"")
    data = path.read_bytes()
    at = data.index(bytes.fromhex("73c5")) + 2  # the number of its only track
    n_bytes = data[at] & 0x7F
    uid = int.from_bytes(data[at + 1 : at + 1 + n_bytes], "big")
    of_audio = tags_element({"TITLE": "Jóga"}, track=uid)
    path = with_tags(tmp_path / "b.mka", tags_element({"TITLE": "Film"}, track=uid + 1) + of_audio)
    data = path.read_bytes()
    at = data.index(bytes.fromhex("73c5")) + 3
    path.write_bytes(data[:at] + uid.to_bytes(n_bytes, "big") + data[at + n_bytes :])
    assert read_tags(path).fields["title"] == ("Jóga",)


def test_matroska_s_cover_is_read(tmp_path: Path) -> None:
    beside = attachments(notes_txt=b"x", back_png=PNG + b"back", cover_png=PNG)
    path = with_tags(tmp_path / "a.mka", tags_element(TRACK), beside)
    cover = read_cover(path)
    assert cover is not None
    assert (cover.media_type, cover.data) == ("image/png", PNG)
    assert read_tags(path).cover == cover
    path = with_tags(tmp_path / "b.mka", b"", attachments(notes_txt=PNG, back_png=PNG + b"back"))
    assert read_cover(path) == reader.Cover("image/png", PNG + b"back")
    two = attachments(cover_png=PNG) + attachments(notes_txt=b"x")
    assert read_cover(with_tags(tmp_path / "two.mka", b"", two)) == cover
    path = with_tags(tmp_path / "c.mka", b"", attachments(big_png=PNG + bytes(reader.MAX_COVER)))
    assert read_cover(path) is None


def test_millions_of_matroska_tags_cost_little(tmp_path: Path) -> None:
    many = tags_element({f"{number:x}": "b" for number in range(100_000)})
    path = with_tags(tmp_path / "a.mka", many + tags_element({"LONG": "x" * 8_000_000}))
    begun_s = time.thread_time()
    assert len(read_tags(path).fields) <= 100
    assert time.thread_time() - begun_s < 10.0  # FFmpeg would take a minute


@pytest.mark.parametrize(
    "tail",
    [
        bytes.fromhex("1254c36701ffffffffffff") + element("7373", b"\x67"),
        element("1254c367", b"") * 500_000,
        element("1254c367", element("7373", b"") * 500_000),
        element("1941a469", element("61a7", b"") * 500_000),
        element("1254c367", bytes(1_000_000)),
        element("1254c367", bytes.fromhex("ec80") * 20_000) * 50,
    ],
    ids=["size", "tags", "tag", "files", "zeros", "tags of voids"],
)
def test_odd_matroska_costs_little(
    tail: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Counted(BytesIO):
        n_reads = n_bytes = 0

        def read(self, size: int | None = -1) -> bytes:
            content = super().read(size)
            Counted.n_reads += 1
            Counted.n_bytes += len(content)
            return content

    content = element("1a45dfa3", b"") + bytes.fromhex("18538067ff") + tail
    path = tmp_path / "a.mka"
    path.write_bytes(content)
    assert read_tags(path).fields == {}
    monkeypatch.setattr(matroska, "BytesIO", Counted)
    assert matroska.read_matroska(Counted(content), 0).texts == {}
    assert Counted.n_reads < 3 * matroska.MAX_ELEMENTS
    assert Counted.n_bytes < 2 * matroska.MAX_TAGS


@pytest.mark.parametrize("size", ["80", "01" + "00" * 7], ids=["a byte", "eight bytes"])
def test_what_begins_in_a_matroska_element_and_ends_behind_it_is_not_read(
    size: str, tmp_path: Path
) -> None:
    path = tmp_path / "a.mka"
    info = bytes.fromhex("1549a966827ba9" + size)  # it holds two bytes: the id of a title
    path.write_bytes(element("1a45dfa3", b"") + element("18538067", info + b"Not a title"))
    assert read_tags(path).fields == {}


def test_cut_matroska_never_raises(tmp_path: Path) -> None:
    path = with_tags(tmp_path / "a.mka", tags_element(TRACK, "TRACK"), attachments(cover_png=PNG))
    whole = path.read_bytes()
    begin = whole.rindex(bytes.fromhex("1254c367"))
    for at in (*range(0, 600, 7), *range(begin, begin + 800, 7)):
        path.write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
        read_tags(path)
        path.write_bytes(whole[:at])
        read_tags(path)


def ape_tag(items: bytes, n: int, size: int | None = None) -> bytes:
    size = len(items) + 32 if size is None else size
    return items + struct.pack("<8sIIII8x", b"APETAGEX", 2000, size, n, 0)


@pytest.mark.parametrize(
    "tag",
    [
        ape_tag(b"", 1 << 31),
        ape_tag(b"", 1, 31),
        ape_tag(b"", 1, 1 << 31),
        ape_tag(struct.pack("<II", 1 << 31, 0) + b"Title", 1),
        ape_tag(struct.pack("<II", 1 << 31, 2) + b"Cover Art (Front)\0" + PNG, 1),
        ape_tag(struct.pack("<II", 0, 0) * 1_000_000, 1_000_000),
        ape_tag(
            struct.pack("<II", 1, 0)
            + b"a\0"
            + (b"b" + struct.pack("<II", 1, 0) + b"a\0") * 1_000_000,
            1 << 31,
        ),
        ape_tag(struct.pack("<II", 14 << 20, 0) + b"Artist\0" + b"a\0" * (7 << 20), 1),
        ape_tag((struct.pack("<II", 28_000, 0) + b"Artist\0" + b"a\xff" * 14_000) * 500, 500),
        ape_tag((struct.pack("<II", 28_000, 0) + b"Artist\0" + bytes(28_000)) * 500, 500),
    ],
    ids=["items", "small", "large", "no key", "size", "empty", "many", "values", "texts", "zeros"],
)
def test_odd_ape_tags_cost_little_and_say_nothing_odd(tag: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.wv"
    path.write_bytes(bytes(100) + tag)
    begun_s = time.thread_time()
    found = read_tags(path)
    assert time.thread_time() - begun_s < 1.0
    assert found.cover is None
    assert len(found.fields) <= ape.MAX_ITEMS
    for texts in found.fields.values():
        assert len(texts) <= reader.MAX_VALUES
        assert all(text.isprintable() and 0 < len(text) <= reader.MAX_TEXT for text in texts)


def test_a_cut_ape_tag_never_raises(tmp_path: Path) -> None:
    path = tmp_path / "a.wv"
    path.write_bytes(bytes(64))
    whole = tag_with_ape(path).read_bytes()
    for at in range(0, len(whole), 7):
        path.write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
        read_tags(path)
        path.write_bytes(whole[at:])
        read_tags(path)
