"""Writing tags into real files, read back by an independent reader."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import mutagen
import pytest
from mutagen.apev2 import APEv2
from mutagen.id3 import ID3, TDRC, TIT2, TRDA, TXXX, TYER
from typer.testing import CliRunner

from pipelines.analysis.records import TrackFeatures
from pipelines.audio.decode import DecodeLimits, digest_packets
from serve_app.cli.analysis.sources import audio_files
from serve_app.cli.library import rewrite
from serve_app.cli.library.rewrite import TaggingError, changes_of, write_tags
from serve_app.cli.library.tag_formats import UnwritableTagsError, open_tags
from serve_app.cli.library.tag_values import DEFAULT_FIELDS, Field, Tag, Wish, values_of
from serve_app.cli.main import app
from serve_app.domain.identity import TrackIdentity
from serve_app.library.edit import Edit, Heard, added
from serve_app.library.library import Library
from serve_app.library.track import LibraryTrack, Place, TrackFile, new_track_id
from serve_app.providers.tags.reader import read_tags
from serve_app.services.export.key_names import KeyFormat
from serve_app.services.scan.places import Trouble
from serve_app.services.simulation.features import simulated_features
from tests.data.audio_files import (
    MUSEPACK,
    RATE,
    Encoding,
    click_track,
    silent_ape,
    write_dff,
    write_dsf,
)

LIMITS = DecodeLimits()
FORMATS = {
    "mp3": Encoding("MP3", "mp3", "libmp3lame"),
    "flac": Encoding("FLAC", "flac", "flac", "s16"),
    "ogg": Encoding("OGG", "ogg", "vorbis"),
    "opus": Encoding("Opus", "ogg", "libopus", "flt", 48_000),
    "m4a": Encoding("M4A", "ipod", "aac"),
    "wav": Encoding("WAV", "wav", "pcm_s16le", "s16"),
    "aiff": Encoding("AIFF", "aiff", "pcm_s16be", "s16"),
    "wv": Encoding("WavPack", "wv", "wavpack"),
    "wma": Encoding("WMA", "asf", "wmav2", "fltp", RATE, 128_000),
}
TRUE_AUDIO = Encoding("TTA", "tta", "tta", "s16")
WRITERS: dict[str, Callable[[Path], object]] = {
    **{kind: partial(encoding.write, duration_s=3) for kind, encoding in FORMATS.items()},
    "mpc": partial(shutil.copyfile, MUSEPACK),
    "dsf": partial(write_dsf, samples=click_track(120, 1.0)),
    "dff": partial(write_dff, samples=click_track(120, 1.0)),
}
HEARD: TrackFeatures = replace(
    simulated_features("x"),
    tempo=123.98,
    key=9,
    mode=0,
    camelot="8A",
    energy=0.68,
    loudness_lufs=-9.5,
    true_peak_dbtp=-0.5,
)
UNTITLED = {".wav", ".aiff", ".dsf", ".dff"}
"""Mutagen has no plain names for the ID3 frames of these."""
EVERYTHING = Wish(tuple(Field), KeyFormat.CAMELOT)


def titled(path: Path) -> Path:
    WRITERS[path.suffix[1:]](path)
    if path.suffix not in UNTITLED:
        file = mutagen.File(path, easy=True)
        if file.tags is None:
            file.add_tags()
        file["title"] = "Kept"
        file.save()
    return path


def test_a_file_that_cannot_be_read_is_not_called_another_format(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_tags(tmp_path / "gone.mp3")


def test_a_single_name_that_is_not_utf_8_is_told_as_in_a_folder(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.ogg")
    path.touch()
    (trouble,) = audio_files([str(path)])
    assert isinstance(trouble, Trouble)
    assert "not UTF-8" in trouble.message


@pytest.mark.parametrize(
    "encoding",
    [Encoding("AAC", "adts", "aac"), Encoding("AC-3", "ac3", "ac3", "fltp", 48_000)],
    ids=lambda encoding: encoding.name,
)
def test_a_format_without_tags_is_named_as_such(encoding: Encoding, tmp_path: Path) -> None:
    path = encoding.write(tmp_path / f"a.{encoding.codec}", 2)
    with pytest.raises(UnwritableTagsError, match="alone"):
        open_tags(path)


@pytest.mark.parametrize(
    "write",
    [partial(silent_ape, n_frames=2), partial(TRUE_AUDIO.write, duration_s=3)],
    ids=["APE", "TTA"],
)
def test_monkeys_and_true_audio_are_left_as_they_are(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    path = write(tmp_path / "a")
    before = path.read_bytes()
    with pytest.raises(UnwritableTagsError, match="alone"):
        write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    assert path.read_bytes() == before


def test_a_file_under_another_formats_name_says_so(tmp_path: Path) -> None:
    path = titled(tmp_path / "a.flac").rename(tmp_path / "a.mp3")
    with pytest.raises(UnwritableTagsError, match="of another format than its name says"):
        open_tags(path)


@pytest.mark.parametrize("form", [b"RF64", b"BW64"])
def test_wav_of_more_than_4_gb_is_no_damaged_wav(form: bytes, tmp_path: Path) -> None:
    path = titled(tmp_path / "a.wav")
    path.write_bytes(form + path.read_bytes()[4:])
    with pytest.raises(UnwritableTagsError, match="RF64"):
        open_tags(path)


def test_tags_that_cannot_be_saved_are_told_and_the_file_stays(tmp_path: Path) -> None:
    damaged = titled(tmp_path / "damaged.ogg")
    file = open_tags(damaged)
    damaged.write_bytes(damaged.read_bytes().replace(b"\x03vorbis", b"\x03vorbit"))
    with pytest.raises(UnwritableTagsError, match="damaged"):
        file.write({Tag.BPM: "124"})
    damaged.with_suffix(".mp3").write_bytes(titled(tmp_path / "a.mp3").read_bytes()[:30])
    with pytest.raises(UnwritableTagsError, match="damaged"):
        open_tags(damaged.with_suffix(".mp3"))
    assert list(tmp_path.glob(".*")) == []


def test_flac_behind_an_id3_tag_is_written_under_any_name(tmp_path: Path) -> None:
    path = titled(tmp_path / f"{'x' * 250}.flac")
    tag = ID3()
    tag.add(TIT2(encoding=3, text="In front"))
    tag.save(tmp_path / "tag")
    path.write_bytes((tmp_path / "tag").read_bytes() + path.read_bytes())
    write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    assert mutagen.File(path)["bpm"] == ["124"]


KILLED = """
import os, signal, sys
from pathlib import Path
from serve_app.cli.library import rewrite
from serve_app.cli.library.tag_values import Tag
rewrite.sync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
rewrite.write_tags(Path(sys.argv[1]), {Tag.BPM: "124"}, None, keep_time=False)
"""


def test_what_a_killed_run_left_goes_and_what_another_writes_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = titled(tmp_path / "a.mp3"), titled(tmp_path / "b.mp3")
    subprocess.run([sys.executable, "-c", KILLED, str(one)], check=False)
    (left,) = tmp_path.glob(".*")

    def sync(_: Path) -> None:
        monkeypatch.undo()
        write_tags(two, {Tag.BPM: "99"}, None, keep_time=False)

    monkeypatch.setattr(rewrite, "sync", sync)
    write_tags(one, {Tag.BPM: "124"}, None, keep_time=False)
    assert not left.exists()
    assert sorted(tmp_path.iterdir()) == [one, two]
    assert [mutagen.File(path)["TBPM"].text for path in (one, two)] == [["124"], ["99"]]


@pytest.mark.parametrize("kind", WRITERS)
def test_tags_are_written_and_the_audio_stays(kind: str, tmp_path: Path) -> None:
    path = titled(tmp_path / f"a.{kind}")
    path.chmod(0o640)
    digest, before = digest_packets(path, LIMITS), path.stat()
    values = values_of(HEARD, EVERYTHING)
    wanted = changes_of(path, values)
    assert all(was is None for was, _ in wanted.values())
    write_tags(path, {tag: to for tag, (_, to) in wanted.items()}, digest, keep_time=False)
    assert digest_packets(path, LIMITS) == digest
    assert (path.stat().st_mode, path.stat().st_ino) != (before.st_mode, before.st_ino)
    assert path.stat().st_mode == before.st_mode
    assert changes_of(path, values) == {}
    tags = read_tags(path)
    assert tags.first("initialkey", "key") == "8A"
    assert tags.first("energylevel") == "7"
    assert tags.first("comment") == "8A - Energy 7"
    assert tags.first("bpm") == "124" if kind == "m4a" else "123.98"
    if kind == "opus":
        assert tags.first("r128trackgain") == str(round(256 * (-23 + 9.5)))
        assert tags.first("replaygaintrackgain") is None
    else:
        assert tags.first("replaygaintrackgain") == "-8.50 dB"
        assert tags.first("replaygaintrackpeak") == "0.944061"
    if path.suffix not in UNTITLED:
        assert tags.first("title") == "Kept"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["mp3", "wav", "m4a"])
def test_a_value_under_a_name_in_another_case_gives_way(kind: str, tmp_path: Path) -> None:
    path = titled(tmp_path / f"a.{kind}")
    file = mutagen.File(path)
    if file.tags is None:
        file.add_tags()
    for name, text in (("EnergyLevel", "7"), ("ENERGYLEVEL", "9"), ("Replaygain_Track_Gain", "1")):
        if kind == "m4a":
            file.tags[f"----:com.apple.iTunes:{name}"] = [text.encode()]
        else:
            file.tags.add(TXXX(desc=name, text=text))
    file.save()
    wanted = changes_of(path, {Tag.GAIN: "-8.50 dB", Tag.ENERGY: "7"})
    assert wanted[Tag.GAIN] == ("1", "-8.50 dB")
    assert wanted[Tag.ENERGY][0] in ("7; 9", "9; 7")
    write_tags(path, {tag: to for tag, (_, to) in wanted.items()}, None, keep_time=False)
    kept = [key.lower().split(":")[-1] for key in dict(mutagen.File(path).tags)]
    assert [kept.count(name) for name in ("replaygain_track_gain", "energylevel")] == [1, 1]
    tags = read_tags(path)
    assert (tags.first("replaygaintrackgain"), tags.first("energylevel")) == ("-8.50 dB", "7")


@pytest.mark.parametrize(
    ("kind", "own", "others"),
    [
        ("flac", "INITIALKEY", "KEY"),
        ("opus", "INITIALKEY", "KEY"),
        ("wv", "INITIALKEY", "KEY"),
        ("wma", "WM/InitialKey", "INITIALKEY"),
    ],
)
def test_a_key_under_the_name_of_another_program_is_kept_up_to_date(
    kind: str, own: str, others: str, tmp_path: Path
) -> None:
    """Picard reads and writes KEY, beets INITIALKEY in WMA; both went on to show the old key."""
    path = titled(tmp_path / f"a.{kind}")
    file = mutagen.File(path)
    file.tags[others] = ["C"]
    file.save()
    assert changes_of(path, {Tag.KEY: "C"}) == {Tag.KEY: ("none; C", "C")}
    write_tags(path, {Tag.KEY: "Am"}, None, keep_time=False)
    tags = mutagen.File(path).tags
    assert [str(tags[name][0]) for name in (own, others)] == ["Am", "Am"]
    assert changes_of(path, {Tag.KEY: "Am"}) == {}


def test_an_ape_tag_beside_says_the_same(tmp_path: Path) -> None:
    """mp3gain writes such a tag, and some players prefer it."""
    path = titled(tmp_path / "a.mp3")
    ape = APEv2()
    ape["Replaygain_Track_Gain"], ape["MP3GAIN_MINMAX"] = "-1.00 dB", "1,2"
    ape.save(path)
    values = {Tag.BPM: "124", Tag.GAIN: "-8.50 dB"}
    assert changes_of(path, values)[Tag.GAIN] == ("-1.00 dB", "-8.50 dB")
    write_tags(path, values, digest_packets(path, LIMITS), keep_time=False)
    assert changes_of(path, values) == {}
    there = {name.lower(): str(text) for name, text in APEv2(path).items()}
    assert there == {"replaygain_track_gain": "-8.50 dB", "mp3gain_minmax": "1,2"}
    id3 = ID3(path)
    assert id3["TBPM"].text == ["124"]
    assert id3["TXXX:REPLAYGAIN_TRACK_GAIN"].text == ["-8.50 dB"]
    assert id3["TIT2"].text == ["Kept"]
    path.write_bytes(path.read_bytes().replace(b"MP3GAIN_", b"MP3GAIN\xff"))
    assert changes_of(path, {Tag.GAIN: "-8.50 dB"}) == {}  # the damaged one is ignored


def chunk(name: bytes, content: bytes, order: Literal["little", "big"]) -> bytes:
    return name + len(content).to_bytes(4, order) + content + b"\0" * (len(content) % 2)


def named_wav(path: Path) -> None:
    """Name a WAV as ffmpeg, Audacity and recorders do: in RIFF's list."""
    texts = {b"INAM": "Títle", b"IART": "Ärtist", b"ICRD": "2003"}
    info = b"".join(chunk(key, f"{text}\0".encode(), "little") for key, text in texts.items())
    data = path.read_bytes() + chunk(b"LIST", b"INFO" + info, "little")
    path.write_bytes(data[:4] + (len(data) - 8).to_bytes(4, "little") + data[8:])


def named_aiff(path: Path) -> None:
    data = path.read_bytes() + chunk(b"NAME", b"Title", "big") + chunk(b"AUTH", b"Artist", "big")
    path.write_bytes(data[:4] + (len(data) - 8).to_bytes(4, "big") + data[8:])


def frame(name: bytes, content: bytes) -> bytes:
    return name + len(content).to_bytes(4) + bytes(2) + content


def named_mp3(path: Path) -> None:
    ID3(path).delete(path)
    tag = APEv2()
    tag.update({"Title": "Títle", "Artist": "Ärtist", "Year": "2003"})
    tag.save(path)


@pytest.mark.parametrize("kind", ["mp3", "wv"])
def test_what_ends_a_file_stays(kind: str, tmp_path: Path) -> None:
    """An ID3v1 comment was lost and came back as another one; after APEv2 all of ID3v1 was lost."""
    path = titled(tmp_path / f"a.{kind}")
    end = b"TAG" + b"Old".ljust(30, b"\0") + b"me".ljust(64, b"\0") + b"mine".ljust(31)
    if kind == "mp3":
        tag = ID3(path)
        tag.add(TYER(encoding=1, text="2003年"))
        tag.save(v1=0, v2_version=3)
        ape = APEv2()
        ape["REPLAYGAIN_TRACK_GAIN"] = "-1.00 dB"
        ape.save(path)
        words = b"LYRICSBEGININD0000200LYR00005words"
        end = words + b"%06dLYRICS200" % len(words) + end
    path.write_bytes(path.read_bytes() + end)
    write_tags(path, {Tag.GAIN: "-8.50 dB"}, None, keep_time=False)
    written = path.read_bytes()
    assert written.endswith(end)
    assert written.count(end) == 1
    assert APEv2(path)["REPLAYGAIN_TRACK_GAIN"] == "-8.50 dB"
    if kind == "mp3":
        assert ID3(path, load_v1=False, translate=False).getall("COMM") == []


@pytest.mark.timeout(20)
def test_an_end_that_looks_like_very_many_lyrics_takes_no_time(tmp_path: Path) -> None:
    path = titled(tmp_path / "a.mp3")
    end = b"LYRICSBEGIN" * 95_000
    path.write_bytes(path.read_bytes() + end)
    write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    assert path.read_bytes().endswith(end)


def test_names_and_comment_of_id3v1_alone_are_those_of_the_new_tag(tmp_path: Path) -> None:
    path = titled(tmp_path / "a.mp3")
    ID3(path).delete()
    end = b"TAG" + b"Old".ljust(30, b"\0") + bytes(64) + b"mine".ljust(30, b"\0") + b"\xff"
    path.write_bytes(path.read_bytes() + end)
    write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    written = ID3(path, load_v1=False)
    assert (str(written["TIT2"]), str(written["COMM::eng"])) == ("Old", "mine")
    assert path.read_bytes().endswith(end)


def test_chapters_and_comments_stay_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "a.mp3"
    WRITERS["mp3"](path)
    ID3(path).delete()
    texts = [b"The first chapter", b"Second", b"Ein Kommentar", b"one", b"of its own"]
    title, other = (frame(b"TIT2", b"\0" + text) for text in texts[:2])
    tag = frame(b"CHAP", b"a\0" + bytes(16) + title) + frame(b"CHAP", b"b\0" + bytes(16) + other)
    tag += frame(b"COMM", b"\0deu\0" + texts[2]) + frame(b"COMM", b"\0eng\0" + texts[3])
    tag += frame(b"XOWN", texts[4])
    path.write_bytes(
        b"ID3\4\0\0" + bytes(divmod(len(tag), 128)).rjust(4, b"\0") + tag + path.read_bytes()
    )
    write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    written = path.read_bytes()
    assert [written.count(text) for text in texts] == [1] * len(texts)
    assert sorted(texts, key=written.index) == texts


@pytest.mark.parametrize(
    ("kind", "named", "expected"),
    [
        ("wav", named_wav, ["Títle", "Ärtist", "2003"]),
        ("aiff", named_aiff, ["Title", "Artist", None]),
        ("mp3", named_mp3, ["Títle", "Ärtist", "2003"]),
    ],
)
def test_an_id3_tag_without_names_repeats_those_beside_it(
    kind: str, named: Callable[[Path], None], expected: list[str | None], tmp_path: Path
) -> None:
    path = titled(tmp_path / f"a.{kind}")
    named(path)
    write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    tags = mutagen.File(path).tags
    found = [tags.get(frame) for frame in ("TIT2", "TPE1", "TDRC")]
    assert [frame and str(frame) for frame in found] == expected
    assert tags["TBPM"] == "124"


def test_a_tempo_that_itunes_wrote_is_seen(tmp_path: Path) -> None:
    path = titled(tmp_path / "a.m4a")
    file = mutagen.File(path)
    file.tags["tmpo"] = [120]
    file.save()
    assert changes_of(path, {Tag.BPM: "120"}) == {}
    assert changes_of(path, {Tag.BPM: "123.98"}) == {Tag.BPM: ("120", "123.98")}


@pytest.mark.parametrize("beside", ["123.98", "fast", "inf"])
def test_a_tempo_that_itunes_changed_beside_another_is_seen(tmp_path: Path, beside: str) -> None:
    path = titled(tmp_path / "a.m4a")
    write_tags(path, {Tag.BPM: "123.98"}, None, keep_time=False)
    assert changes_of(path, {Tag.BPM: "123.98"}) == {}
    file = mutagen.File(path)
    file.tags["tmpo"], file.tags["----:com.apple.iTunes:BPM"] = [99], [beside.encode()]
    file.save()
    assert changes_of(path, {Tag.BPM: "123.98"}) == {Tag.BPM: (f"{beside}; 99", "123.98")}


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("kind", ["mp3", "wav", "aiff"])
def test_id3_keeps_its_version_and_every_other_frame(
    kind: str, version: int, tmp_path: Path
) -> None:
    path = titled(tmp_path / f"a.{kind}")
    file = mutagen.File(path)
    if file.tags is None:
        file.add_tags()
    texts = {TIT2: ["Dog / Bone", "Säge"], TYER: ["about 1999"], TRDA: ["May"], TDRC: ["2001"]}
    for frame, text in texts.items():
        file.tags.add(frame(encoding=1, text=text))
    file.tags.unknown_frames.append(b"XYZW\0\0\0\5\0\0hello")
    file.tags._unknown_v2_version = version
    file.save(v2_version=version, v23_sep=None)
    file.load(path, translate=False)
    before, unknown = dict(file.tags), file.tags.unknown_frames
    assert len(unknown) == 1
    write_tags(path, {Tag.BPM: "124", Tag.COMMENT: "ä"}, None, keep_time=False)
    file.load(path, translate=False)
    assert file.tags.version == (2, version, 0)
    assert {key: file.tags[key] for key in before} == before
    assert set(file.tags) - set(before) == {"TBPM", "COMM::eng"}
    assert file.tags.unknown_frames == unknown
    assert (read_tags(path).first("bpm"), read_tags(path).first("comment")) == ("124", "ä")


@pytest.mark.parametrize(
    ("form", "expected"),
    [(KeyFormat.CLASSIC, "Am"), (KeyFormat.CAMELOT, "8A"), (KeyFormat.OPENKEY, "1m")],
)
def test_values(form: KeyFormat, expected: str) -> None:
    values = values_of(HEARD, Wish(DEFAULT_FIELDS, form))
    assert values[Tag.KEY] == expected
    assert values[Tag.BPM] == "123.98"
    assert Tag.COMMENT not in values
    silent = replace(HEARD, tempo=0.0, key=-1, mode=-1, camelot="", loudness_lufs=-70.0)
    assert set(values_of(silent, Wish(tuple(Field), form))) == {Tag.ENERGY, Tag.COMMENT}


def test_a_file_that_cannot_be_replaced_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = titled(tmp_path / "a.flac")
    whole = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(rewrite.shutil, "copyfile", full)
        with pytest.raises(OSError, match="No space"):
            write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    with monkeypatch.context() as patch:
        digests = iter(["one", "another"])
        patch.setattr(rewrite, "digest_packets", lambda *_: next(digests))
        with pytest.raises(TaggingError, match="would have changed"):
            write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    with pytest.raises(TaggingError, match="other audio"):
        write_tags(path, {Tag.BPM: "124"}, "0" * 64, keep_time=False)
    path.chmod(0o444)
    with pytest.raises(TaggingError, match="read-only"):
        write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    assert path.read_bytes() == whole
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_of_which_another_user_owns_every_file_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exFAT stick or a NAS, mounted for everybody: only the owner may set times and modes."""
    path = titled(tmp_path / "a.flac")

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(rewrite.shutil, "copystat", refuse)
    path.chmod(0o644)
    with pytest.raises(PermissionError):
        write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    path.chmod(0o600)  # as the new file is: the disk gives all of its files one mode
    with pytest.raises(PermissionError):
        write_tags(path, {Tag.BPM: "124"}, None, keep_time=True)
    write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    assert mutagen.File(path)["bpm"] == ["124"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_cannot_be_synced_is_no_fault() -> None:
    """The file has been replaced by then."""
    unsynced = Path("/proc")
    descriptor = os.open(unsynced, os.O_RDONLY)
    with pytest.raises(OSError, match="Invalid argument"):
        os.fsync(descriptor)
    os.close(descriptor)
    rewrite.sync(unsynced)


def test_what_another_program_wrote_meanwhile_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = titled(tmp_path / "a.flac")
    before = path.stat()
    copystat = rewrite.shutil.copystat

    def meddle(*paths: Path) -> None:
        file = mutagen.File(path)
        file["title"] = file["title"][0][::-1]
        file.save()
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        copystat(*paths)

    monkeypatch.setattr(rewrite.shutil, "copystat", meddle)
    with pytest.raises(TaggingError, match="changed meanwhile"):
        write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    assert path.stat().st_size == before.st_size
    assert "bpm" not in mutagen.File(path)


def test_the_time_of_change_may_stay_and_a_link_stays_a_link(tmp_path: Path) -> None:
    path = titled(tmp_path / "a.ogg")
    os.utime(path, ns=(10**18, 10**18))
    link = tmp_path / "link.ogg"
    link.symlink_to(path)
    write_tags(link, {Tag.BPM: "124"}, None, keep_time=True)
    assert link.is_symlink()
    assert path.stat().st_mtime_ns == 10**18
    assert read_tags(path).first("bpm") == "124"


def test_what_the_system_keeps_beside_a_file_stays(tmp_path: Path) -> None:
    path = titled(tmp_path / "a.mp3")
    os.utime(path, ns=(10**18, 10**18))
    try:
        os.setxattr(path, "user.baloo.rating", b"8")
    except OSError:
        pytest.skip("the folder for tests keeps no extended attributes")
    write_tags(path, {Tag.BPM: "124"}, None, keep_time=False)
    assert os.getxattr(path, "user.baloo.rating") == b"8"
    assert path.stat().st_mtime_ns > 10**18


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))
    song, stranger = titled(tmp_path / "a [b]c.mp3"), titled(tmp_path / "a stranger.mp3")
    library = Library((tmp_path / "data" / "library").as_uri(), tmp_path / "data" / "library-view")
    file = TrackFile(Place.PATH, str(song), audio_sha256=digest_packets(song, LIMITS))
    track = LibraryTrack(new_track_id(), TrackIdentity(title="Song"), files=(file,))
    library.write([Edit(track.track_id, added(track), Heard(HEARD, "m"))])
    library.close()
    runner = CliRunner()
    before = song.read_bytes()
    done = runner.invoke(app, ["tag", "--library", "--dry-run", "--key-format", "openkey"])
    assert done.exit_code == 0, done.output
    assert "123.98" in done.stdout
    assert "a [b]c.mp3" in done.stdout
    assert "1m" in done.stdout
    assert "1 would change" in done.stdout
    assert song.read_bytes() == before
    with monkeypatch.context() as small:
        small.setattr("serve_app.cli.library.tag.ROWS_TOGETHER", 1)
        in_parts = runner.invoke(app, ["tag", "--library", "--dry-run", "--key-format", "openkey"])
    assert in_parts.stdout == done.stdout
    done = runner.invoke(app, ["tag", str(song), str(stranger), "--only", "key", "--only", "bpm"])
    assert done.exit_code == 1
    assert f"not in the library; run `afa scan '{stranger}'` first" in done.stderr
    assert "1 changed" in done.stdout
    assert read_tags(song).first("initialkey") == "Am"
    assert read_tags(song).first("energylevel") is None
    assert runner.invoke(app, ["tag", "--library", "--only", "key"]).stdout.startswith("0 changed")
    assert runner.invoke(app, ["tag"]).exit_code == 1
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "other"))
    assert "there is no library" in runner.invoke(app, ["tag", str(song)]).stderr
    assert not (tmp_path / "other").exists()
