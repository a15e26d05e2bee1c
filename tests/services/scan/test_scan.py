"""Scanning real files with real tags and fingerprints; only the networks are replaced, by a
deterministic function of the audio."""

import asyncio
import os
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Barrier, Thread

import mutagen
import numpy as np
import obstore
import pytest
import torch
from moto.server import ThreadedMotoServer

from pipelines.audio.decode import decode, decode_segments
from pipelines.fingerprint.make import Fingerprinter
from serve_app.domain.identity import TrackIdentity
from serve_app.library.library import Library
from serve_app.library.measures import measures_of
from serve_app.library.query import TrackQuery
from serve_app.library.track import OPERATOR, LibraryTrack, TrackFile, unpack
from serve_app.library.track import Place as Kind
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.index import FingerprintIndex
from serve_app.providers.fingerprints.manifest import exclusive
from serve_app.providers.fingerprints.track_keys import key_of_file
from serve_app.providers.tags.identity import TAGS, TaggedIdentity
from serve_app.services.export.tracks import files_of
from serve_app.services.scan import landmarks
from serve_app.services.scan.entries import Hearing
from serve_app.services.scan.facts import LIMITS
from serve_app.services.scan.landmarks import LandmarkIndex
from serve_app.services.scan.naming import Naming
from serve_app.services.scan.places import (
    Bucket,
    Folder,
    Found,
    Place,
    SingleFile,
    Trouble,
    absolute,
    fetched,
)
from serve_app.services.scan.report import Outcome, ScanReport
from serve_app.services.scan.same import may_be_same
from serve_app.services.scan.scan import NO_MEMORY, Scan, gone_from
from serve_app.services.simulation.features import simulated_features
from serve_app.store.objects import open_backend
from tests.data.audio_files import encode
from tests.library.library_setting import adding
from tests.library.library_setting import track as new_track

RATE = 44_100


@dataclass
class EarEngine:
    """Really decodes; the embedding is the shape of the spectrum, all else is simulated."""

    n_at_once: int = 2
    heard: list[str] = field(default_factory=list)
    gate: asyncio.Event | None = None
    meddle: bool = False

    async def hear(self, path: Path) -> Hearing:
        self.heard.append(path.name)
        if self.gate is not None and len(self.heard) > 2:
            await self.gate.wait()
        waveform = await asyncio.to_thread(decode, path, LIMITS)
        if self.meddle:
            await asyncio.to_thread(grow, path)
        spectrum = np.abs(np.fft.rfft(waveform.mono()[: 10 * RATE]))
        bins = np.sqrt(np.add.reduceat(spectrum[:100_000], np.arange(768) * 130))
        vector = (bins / np.linalg.norm(bins)).tolist()
        features = simulated_features(path.name)
        return Hearing(replace(features, duration_s=waveform.duration_s, embedding=vector), "print")


def grow(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def melody(seed: int, seconds: float = 16.0) -> np.ndarray:
    """Random notes, each a decaying chord; the same seed gives the same melody."""
    rng = np.random.default_rng(seed)
    t = np.arange(int(0.25 * RATE)) / RATE
    pitches = 2 ** (rng.integers(96, 144, (int(seconds / 0.25), 2)) / 12)
    notes = [
        np.exp(-6 * t) * np.sin(2 * np.pi * chord[:, None] * t).sum(axis=0) for chord in pitches
    ]
    mono = 0.2 * np.concatenate(notes) + 0.002 * rng.standard_normal(len(t) * len(notes))
    return np.stack([mono, mono]).astype(np.float32)


@cache
def recording(seed: int, suffix: str) -> bytes:
    kind = {".mp3": ("mp3", "libmp3lame"), ".flac": ("flac", "flac"), ".ogg": ("ogg", "vorbis")}
    sample_format = "s16" if suffix == ".flac" else "fltp"
    with NamedTemporaryFile(suffix=suffix) as file:
        path = Path(file.name)
        return encode(path, melody(seed), *kind[suffix], sample_format=sample_format).read_bytes()


def write(path: Path, seed: int, **tags: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(recording(seed, path.suffix))
    if tags:
        file = mutagen.File(path, easy=True)
        if file.tags is None:
            file.add_tags()
        file.update(tags)
        file.save()
    return path


@dataclass
class Setting:
    library: Library
    engine: EarEngine
    naming: Naming
    index: Path

    async def scan(self, *places: Place, again: bool = False, forget: bool = False) -> ScanReport:
        scan = Scan(
            self.library,
            self.engine,
            self.naming,
            LandmarkIndex(self.index),
            lambda *_: None,
            again=again,
            forget=forget,
        )
        await scan.run([(place, list(place.find())) for place in places])
        return scan.report

    def tracks(self) -> list[LibraryTrack]:
        return self.library.page(TrackQuery(), [OPERATOR], 100).items

    def titled(self, title: str) -> LibraryTrack:
        (found,) = [track for track in self.tracks() if track.identity.title == title]
        return found


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    library = Library((tmp_path / "library").as_uri(), tmp_path / "view")
    naming = Naming(Catalog.open(tmp_path / "catalog"), None)
    return Setting(library, EarEngine(), naming, tmp_path / "fingerprints")


@pytest.fixture
def music(tmp_path: Path) -> Path:
    write(tmp_path / "music" / "a.ogg", 1, artist="Nina", title="First", isrc="GBAYE9700123")
    write(tmp_path / "music" / "b.mp3", 2, artist="Nina", title="Second")
    return tmp_path / "music"


async def test_what_is_known_is_not_analysed_again(setting: Setting, music: Path) -> None:
    first = await setting.scan(Folder(music))
    assert first.counts == {Outcome.ADDED: 2}
    track = setting.titled("First")
    assert track.identity.isrc == "GBAYE9700123"
    assert (track.sources["title"], track.identity.source) == ("tags", "library")
    assert track.fingerprint == "print"
    (file,) = track.files
    assert file.location == str(music / "a.ogg")
    assert file.size_bytes == (music / "a.ogg").stat().st_size
    whole = setting.library.whole(track.track_id)
    assert whole is not None
    assert len(whole.embedding) == 768
    second = await setting.scan(Folder(music))
    assert second.counts == {Outcome.UNCHANGED: 2}
    os.utime(music / "a.ogg")
    assert (await setting.scan(Folder(music))).counts == {Outcome.UNCHANGED: 2}
    assert sorted(setting.engine.heard) == ["a.ogg", "b.mp3"]
    assert sorted(track.revision for track in setting.tracks()) == [1, 2]
    again = await setting.scan(Folder(music), again=True)
    assert again.counts == {Outcome.ANALYSED: 2}
    assert len(setting.tracks()) == 2


async def test_what_was_scanned_is_known_by_its_sound(setting: Setting, music: Path) -> None:
    await setting.scan(Folder(music))
    clip = decode_segments(music / "b.mp3", [(3.0, 8.0)], LIMITS)[0]

    def named() -> str:
        asked = Fingerprinter().make_query(clip)
        return FingerprintIndex.open(setting.index).query(*asked)[0].track_key

    second = setting.titled("Second").track_id
    assert named() == second
    shutil.rmtree(setting.index)  # as after a crash before the index was written
    again = await setting.scan(Folder(music))
    assert again.counts == {Outcome.UNCHANGED: 2}
    assert named() == second
    assert len(setting.engine.heard) == 2


async def test_a_file_that_a_curator_s_catalog_names_has_what_was_heard_in_it(
    setting: Setting, tmp_path: Path, demo_catalog: Path
) -> None:
    setting.naming = Naming(Catalog.open(demo_catalog), None)
    write(tmp_path / "music" / "a.ogg", 1, artist="Nina", title="First", isrc="QZAFA2600001")
    await setting.scan(Folder(tmp_path / "music"))
    track = setting.titled("First")
    assert track.identity.spotify_id == "0AfaDemoTrack000000001"
    assert not track.identity.is_verified
    assert track.analysis is not None
    before = replace(track, identity=replace(track.identity, is_verified=True))
    for one in (track, before):
        assert measures_of(one).tempo == track.analysis.features.tempo
        assert measures_of(one).key == track.analysis.features.key


@pytest.mark.parametrize("is_known", [False, True])
async def test_what_was_indexed_as_a_file_is_the_library_s_after_a_scan(
    setting: Setting, music: Path, is_known: bool
) -> None:
    if is_known:
        await setting.scan(Folder(music))
        shutil.rmtree(setting.index)
    elsewhere = key_of_file(music.parent / "a.ogg")
    as_files = [key_of_file(music / "a.ogg"), key_of_file(music / "b.mp3"), elsewhere]
    sound = Fingerprinter().make_fingerprints([decode(music / "a.ogg", LIMITS)])[0]
    with FingerprintIndexBuilder(setting.index) as builder:
        builder.build((key, sound) for key in as_files)
    await setting.scan(Folder(music))
    ours = {track.track_id for track in setting.tracks()}
    assert FingerprintIndex.open(setting.index).keys() == {*ours, elsewhere}


async def test_a_scan_waits_for_another_at_the_index_and_ends_without_it(
    setting: Setting, music: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setting.scan(Folder(music))
    (music / "a.ogg").unlink()
    write(music / "c.ogg", 3, artist="Nina", title="Third")
    with exclusive(setting.index):
        monkeypatch.setattr(landmarks, "PATIENCE_S", 0.3)
        report = await setting.scan(Folder(music))
    (trouble,) = report.troubles
    assert "Scan again" in trouble.message
    assert setting.titled("First").files[0].missing_since is not None
    third = setting.titled("Third").track_id
    assert LandmarkIndex(setting.index).lacks(third)
    held = exclusive(setting.index)
    held.__enter__()
    monkeypatch.setattr(landmarks, "PATIENCE_S", 60.0)
    scanning = asyncio.create_task(setting.scan(Folder(music)))
    await asyncio.sleep(1)
    held.__exit__(None, None, None)
    assert (await scanning).troubles == []
    assert not LandmarkIndex(setting.index).lacks(third)


async def test_moves_copies_and_tags_are_followed(setting: Setting, music: Path) -> None:
    await setting.scan(Folder(music))
    track_id = setting.titled("First").track_id
    (music / "a.ogg").rename(music / "c.ogg")
    assert (await setting.scan(Folder(music))).counts[Outcome.FOLLOWED] == 1
    (music / "c.ogg").rename(music / "d.ogg")
    file = mutagen.File(music / "d.ogg")
    file["title"] = "First, renamed"
    file.save()
    assert (await setting.scan(Folder(music))).counts[Outcome.FOLLOWED] == 1
    shutil.copy(music / "d.ogg", music / "e.ogg")
    assert (await setting.scan(Folder(music))).counts[Outcome.JOINED] == 1
    track = setting.titled("First, renamed")
    assert track.track_id == track_id
    assert sorted(Path(one.location).name for one in track.files) == ["d.ogg", "e.ogg"]
    assert sorted(setting.engine.heard) == ["a.ogg", "b.mp3"]
    assert setting.library.named("Nina", "First, renamed", [OPERATOR])[0].track_id == track_id


async def test_tags_of_one_copy_name_the_track_whatever_another_is_called(
    setting: Setting, tmp_path: Path
) -> None:
    copy = write(tmp_path / "music" / "a copy.mp3", 1)
    write(tmp_path / "music" / "b.mp3", 1, artist="Nina", title="First")
    await setting.scan(SingleFile(copy))
    assert (await setting.scan(Folder(tmp_path / "music"))).counts[Outcome.JOINED] == 1
    named = setting.titled("First")
    assert named.identity.artist == "Nina"
    copy.rename(tmp_path / "music" / "moved.mp3")
    assert (await setting.scan(Folder(tmp_path / "music"))).counts[Outcome.FOLLOWED] == 1
    assert setting.titled("First").identity == named.identity
    (tmp_path / "music" / "b.mp3").unlink()
    await setting.scan(Folder(tmp_path / "music"), forget=True)
    (tmp_path / "music" / "moved.mp3").rename(copy)
    await setting.scan(Folder(tmp_path / "music"))
    assert setting.titled("a copy").identity.artist == ""


async def test_a_copy_with_other_tags_that_moves_renames_no_track(
    setting: Setting, tmp_path: Path
) -> None:
    write(tmp_path / "music" / "a.mp3", 1, artist="Nina", title="First", album="One")
    copy = write(tmp_path / "music" / "b.mp3", 1, title="1st")
    await setting.scan(Folder(tmp_path / "music"))
    write(tmp_path / "music" / "a.mp3", 1, artist="Nina", title="First", album="Only")
    await setting.scan(Folder(tmp_path / "music"))
    named = setting.titled("First").identity
    assert (named.artist, named.album) == ("Nina", "Only")
    copy.rename(tmp_path / "music" / "c.mp3")
    assert (await setting.scan(Folder(tmp_path / "music"))).counts[Outcome.FOLLOWED] == 1
    assert setting.titled("First").identity == named


async def test_files_that_change_names_with_each_other_keep_their_tracks(
    setting: Setting, tmp_path: Path
) -> None:
    music = tmp_path / "album"
    for number in range(4):
        write(music / f"Track {number}.ogg", number)
    await setting.scan(Folder(music))
    before = {track.files[0].audio_sha256: track.track_id for track in setting.tracks()}
    names = sorted(music.iterdir())
    for name in names:
        name.rename(music / f"{name.stem}.moving")
    for name, moved_to in zip(names, [*names[1:], names[0]], strict=True):
        (music / f"{name.stem}.moving").rename(moved_to)
    report = await setting.scan(Folder(music))
    assert report.counts == {Outcome.FOLLOWED: 4}
    after = {track.files[0].audio_sha256: track.track_id for track in setting.tracks()}
    assert after == before
    for track in setting.tracks():
        (file,) = track.files
        assert (file.missing_since, track.analysis is not None) == (None, True)
        assert track.identity.title == Path(file.location).stem
    assert len(setting.engine.heard) == 4


async def test_albums_that_make_room_for_a_new_first_track_keep_theirs(
    setting: Setting, music: Path
) -> None:
    await setting.scan(Folder(music))
    track_id = setting.titled("First").track_id
    (music / "a.ogg").rename(music / "moved.ogg")
    write(music / "a.ogg", 7, title="New")
    report = await setting.scan(Folder(music))
    assert report.counts == {Outcome.UNCHANGED: 1, Outcome.ADDED: 1, Outcome.FOLLOWED: 1}
    assert setting.titled("First").track_id == track_id
    assert [Path(one.location).name for one in setting.titled("First").files] == ["moved.ogg"]


async def test_a_track_whose_file_gave_way_to_another_is_missing_until_it_is_forgotten(
    setting: Setting, music: Path
) -> None:
    await setting.scan(Folder(music))
    write(music / "a.ogg", 7, title="New")
    (music / "bad.mp3").write_bytes(b"nothing to hear")
    report = await setting.scan(Folder(music), forget=True)
    assert report.counts[Outcome.MISSING] == 1
    assert setting.titled("First").files[0].missing_since is not None
    again = await setting.scan(Folder(music))
    assert again.counts == {Outcome.UNCHANGED: 2, Outcome.FAILED: 1}
    assert setting.titled("First").analysis is not None
    forgot = await setting.scan(Folder(music), forget=True)
    assert forgot.counts[Outcome.FORGOTTEN] == 1
    assert sorted(track.identity.title for track in setting.tracks()) == ["New", "Second"]


async def test_what_gave_way_twice_is_missing_since_the_first_time(
    setting: Setting, music: Path
) -> None:
    await setting.scan(Folder(music))
    write(music / "a.ogg", 7, title="New")
    await setting.scan(Folder(music))
    since = setting.titled("First").files[0].missing_since
    write(music / "a.ogg", 8, title="Newer")
    report = await setting.scan(Folder(music))
    assert report.counts == {Outcome.ADDED: 1, Outcome.UNCHANGED: 1, Outcome.MISSING: 1}
    assert since is not None
    assert setting.titled("First").files[0].missing_since == since


async def test_tags_that_were_changed_without_a_new_time_are_followed(
    setting: Setting, music: Path
) -> None:
    path = write(music / "x.flac", 7, artist="Nina", title="Before")
    await setting.scan(Folder(music))
    before = path.stat()
    file = mutagen.File(path, easy=True)
    file["title"] = "Behind"
    file.save()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    assert (await setting.scan(Folder(music))).counts == {
        Outcome.UNCHANGED: 2,
        Outcome.RETAGGED: 1,
    }
    assert setting.titled("Behind").files[0].location == str(path)


async def test_files_of_one_size_and_time_that_change_names_keep_their_tracks(
    setting: Setting, tmp_path: Path
) -> None:
    music = tmp_path / "rendered"
    one = write(music / "one.flac", 7, artist="Nina", title="Seven")
    other = write(music / "other.flac", 8, artist="Nina", title="Eight")
    size = max(path.stat().st_size for path in (one, other))
    for path in (one, other):
        with path.open("ab") as file:
            file.write(bytes(size - path.stat().st_size))
        os.utime(path, ns=(10**18, 10**18))
    await setting.scan(Folder(music))
    one.rename(music / "aside")
    other.rename(one)
    (music / "aside").rename(other)
    assert (await setting.scan(Folder(music))).counts == {Outcome.FOLLOWED: 2}
    assert setting.titled("Seven").files[0].location == str(other)
    assert setting.titled("Eight").files[0].location == str(one)


async def test_a_file_of_two_encodings_that_changes_its_name_stays_with_its_track(
    setting: Setting, music: Path
) -> None:
    write(music / "z.flac", 1, artist="Nina", title="First")
    assert (await setting.scan(Folder(music))).counts[Outcome.JOINED] == 1
    setting.engine.heard.clear()
    (music / "a.ogg").rename(music / "moving")
    (music / "b.mp3").rename(music / "a.ogg")
    (music / "moving").rename(music / "b.mp3")
    report = await setting.scan(Folder(music))
    assert report.counts == {Outcome.UNCHANGED: 1, Outcome.FOLLOWED: 2}
    assert setting.engine.heard == []
    names = {Path(one.location).name for one in setting.titled("First").files}
    assert names == {"b.mp3", "z.flac"}


async def test_a_known_place_that_is_a_pipe_now_holds_up_no_scan(
    setting: Setting, music: Path
) -> None:
    await setting.scan(Folder(music))
    (music / "a.ogg").rename(music / "moved.ogg")
    os.mkfifo(music / "a.ogg")
    async with asyncio.timeout(60):
        report = await setting.scan(Folder(music))
    assert report.counts[Outcome.FOLLOWED] == 1


async def test_a_moved_file_is_followed_where_no_audio_lies_in_its_place(
    setting: Setting, music: Path
) -> None:
    await setting.scan(Folder(music))
    (music / "a.ogg").rename(music / "moved.ogg")
    (music / "a.ogg").write_bytes(b"nothing to hear")
    report = await setting.scan(Folder(music))
    assert report.counts == {Outcome.UNCHANGED: 1, Outcome.FOLLOWED: 1, Outcome.FAILED: 1}


async def test_what_lies_behind_a_link_that_leads_nowhere_is_not_forgotten(
    setting: Setting, music: Path, tmp_path: Path
) -> None:
    write(tmp_path / "disk" / "c.ogg", 3, title="Third")
    (music / "disk").symlink_to(tmp_path / "disk")
    (music / "file.ogg").symlink_to(tmp_path / "disk" / "c.ogg")
    beside = write(music / "disk two" / "d.ogg", 4, title="Fourth")
    await setting.scan(Folder(music))
    (tmp_path / "disk").rename(tmp_path / "unmounted")
    beside.unlink()
    report = await setting.scan(Folder(music), forget=True)
    assert report.counts == {Outcome.UNCHANGED: 2, Outcome.MISSING: 1, Outcome.FAILED: 2}
    assert all("leads nowhere" in trouble.message for trouble in report.troubles)
    assert setting.titled("Third").files[0].missing_since is None


async def test_copies_that_are_retagged_together_stay_files_of_their_track(
    setting: Setting, music: Path
) -> None:
    shutil.copy(music / "a.ogg", music / "copy.ogg")
    await setting.scan(Folder(music))
    for name in ("a.ogg", "copy.ogg"):
        file = mutagen.File(music / name)
        file["title"] = "First, again"
        file.save()
    report = await setting.scan(Folder(music))
    assert report.counts == {Outcome.UNCHANGED: 1, Outcome.RETAGGED: 2}
    assert len(setting.titled("First, again").files) == 2


async def test_two_new_copies_are_analysed_once(setting: Setting, music: Path) -> None:
    shutil.copy(music / "a.ogg", music / "copy.ogg")
    report = await setting.scan(Folder(music))
    assert report.counts == {Outcome.ADDED: 2, Outcome.JOINED: 1}
    assert len(setting.engine.heard) == 2


async def test_a_file_that_several_places_hold_is_one(setting: Setting, music: Path) -> None:
    inner = music / "inner"
    write(inner / "c.ogg", 3, title="Third")
    (inner / "bad.mp3").write_bytes(b"nothing to hear")
    places = [Folder(music), Folder(music), Folder(inner), Folder(inner / ".." / ".." / "music")]
    report = await setting.scan(*places)
    assert report.counts == {Outcome.ADDED: 3, Outcome.FAILED: 1}
    locations = [file.location for track in setting.tracks() for file in track.files]
    assert sorted(locations) == sorted(
        map(str, [music / "a.ogg", music / "b.mp3", inner / "c.ogg"])
    )
    again = await setting.scan(*places, SingleFile(inner / ".." / "a.ogg"), again=True)
    assert again.counts == {Outcome.ANALYSED: 3, Outcome.FAILED: 1}


def test_a_path_through_a_link_is_known_as_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "disk" / "music").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "music")
    assert absolute(tmp_path / "link" / "a.ogg") == tmp_path / "link" / "a.ogg"
    assert absolute(tmp_path / "link" / ".." / "a.ogg") == tmp_path / "disk" / "a.ogg"
    assert absolute(tmp_path / "disk" / ".." / "link" / "b") == tmp_path / "link" / "b"


def test_linked_folders_are_looked_at_once_and_last(tmp_path: Path) -> None:
    music, elsewhere = tmp_path / "music", tmp_path / "elsewhere"
    for path in (music / "real" / "a.ogg", elsewhere / "deep" / "b.ogg"):
        path.parent.mkdir(parents=True)
        path.touch()
    (music / "also").symlink_to(music / "real")
    (music / "linked").symlink_to(elsewhere)
    (elsewhere / "loop").symlink_to(music)
    found = [one.location for one in Folder(music).find()]
    assert found == [str(music / "real" / "a.ogg"), str(music / "linked" / "deep" / "b.ogg")]


def test_titles_that_begin_with_dots_are_seen_and_what_is_hidden_or_deleted_is_not(
    tmp_path: Path,
) -> None:
    titled = [tmp_path / name for name in ("...And Justice for All/One.mp3", "...Baby.mp3")]
    hidden = [".Trash-1000/a.mp3", "._b.mp3", "#recycle/c.mp3", "disk/$Recycle.Bin/d.mp3"]
    for path in (*titled, *(tmp_path / name for name in hidden)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    found = {one.location for one in Folder(tmp_path).find()}
    assert found == set(map(str, titled))
    assert len(list(Folder(tmp_path / "#recycle").find())) == 1


@pytest.mark.parametrize("name", ["x.aif", "X.AIFC", "x.oga", "x.mp2", "x.wave", "book.m4b"])
def test_usual_endings_are_audio(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    (tmp_path / "x.txt").touch()
    (found,) = Folder(tmp_path).find()
    assert found.location == str(tmp_path / name)


async def test_what_is_gone_is_marked_and_found_again(setting: Setting, music: Path) -> None:
    await setting.scan(Folder(music))
    (music / "a.ogg").rename(music.parent / "aside.ogg")
    assert (await setting.scan(Folder(music))).counts[Outcome.MISSING] == 1
    assert setting.titled("First").files[0].missing_since is not None
    assert (await setting.scan(Folder(music))).counts == {Outcome.UNCHANGED: 1}
    (music.parent / "aside.ogg").rename(music / "a.ogg")
    assert (await setting.scan(Folder(music))).counts[Outcome.RETURNED] == 1
    assert setting.titled("First").files[0].missing_since is None


async def test_what_comes_back_with_its_folder_is_not_analysed_again(
    setting: Setting, music: Path
) -> None:
    write(music / "album" / "c.ogg", 3, artist="Nina", title="Third")
    await setting.scan(Folder(music))
    (music / "album").rename(music.parent / "aside")
    assert (await setting.scan(Folder(music))).counts[Outcome.MISSING] == 1
    (music.parent / "aside").rename(music / "album")
    back = await setting.scan(Folder(music))
    assert back.counts == {Outcome.UNCHANGED: 2, Outcome.RETURNED: 1}
    assert setting.titled("Third").files[0].missing_since is None
    assert setting.engine.heard.count("c.ogg") == 1


def test_what_is_gone_from_a_place_is_found_without_reading_the_whole_library(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = [tmp_path / f"{n}.ogg" for n in range(20)]
    files = [TrackFile(Kind.PATH, str(path)) for path in where]
    tracks = [replace(new_track(file.location), files=(file,)) for file in files]
    setting.library.write([adding(one) for one in tracks])
    read: list[bytes] = []

    def unpacked(record: bytes) -> LibraryTrack:
        read.append(record)
        return unpack(record)

    monkeypatch.setattr("serve_app.library.view.unpack", unpacked)
    for path in where[:2]:
        (lost,) = gone_from(setting.library, SingleFile(path), [], set())
        assert lost.file.location == str(path)
    assert len(read) == 2


async def test_a_file_that_is_reached_through_another_link_has_one_place(
    setting: Setting, music: Path
) -> None:
    write(music.parent / "more" / "c.ogg", 3, artist="Nina", title="Third")
    (music / "old").symlink_to(music.parent / "more")
    await setting.scan(Folder(music))
    (music / "new").symlink_to(music.parent / "more")
    report = await setting.scan(Folder(music))
    assert report.counts == {Outcome.UNCHANGED: 2, Outcome.JOINED: 1}
    (file,) = setting.titled("Third").files
    assert (file.location, file.missing_since) == (str(music / "new" / "c.ogg"), None)


async def test_a_folder_that_is_away_marks_nothing(setting: Setting, music: Path) -> None:
    await setting.scan(Folder(music))
    await asyncio.to_thread(music.rename, music.parent / "aside")
    report = await setting.scan(Folder(music))
    assert report.has_failed
    assert Outcome.MISSING not in report.counts
    await asyncio.to_thread(music.mkdir)
    report = await setting.scan(Folder(music))
    assert "mounted" in report.troubles[0].message
    assert all(file.missing_since is None for track in setting.tracks() for file in track.files)


@pytest.mark.parametrize("forget", [False, True])
async def test_a_folder_without_audio_is_no_finished_scan(
    setting: Setting, music: Path, forget: bool
) -> None:
    await setting.scan(Folder(music))
    (music.parent / "empty").mkdir()
    empty = Folder(music.parent / "empty")
    report = await setting.scan(Folder(music), empty, forget=forget)
    assert report.counts == {Outcome.UNCHANGED: 2, Outcome.FAILED: 1}
    (trouble,) = report.troubles
    assert trouble.location == empty.root
    assert "holds no audio; is its name right" in trouble.message


async def test_what_was_deleted_is_forgotten_when_told(setting: Setting, music: Path) -> None:
    shutil.copy(music / "b.mp3", music / "copy.mp3")
    await setting.scan(Folder(music))
    first = setting.titled("First").track_id
    (music / "a.ogg").unlink()
    (music / "copy.mp3").unlink()
    await setting.scan(Folder(music))  # only marks them; they are forgotten below
    report = await setting.scan(Folder(music), forget=True)
    assert (report.counts[Outcome.FORGOTTEN], report.troubles) == (2, [])
    (left,) = setting.tracks()
    assert [file.location for file in left.files] == [str(music / "b.mp3")]
    assert setting.library.whole(first) is None
    index = LandmarkIndex(setting.index)
    assert index.lacks(first)
    assert not index.lacks(left.track_id)
    (music / "b.mp3").unlink()
    report = await setting.scan(Folder(music))
    assert "--forget" in report.troubles[0].message
    report = await setting.scan(Folder(music), forget=True)
    assert (report.counts, setting.tracks()) == ({Outcome.FORGOTTEN: 1}, [])


async def test_what_is_there_is_not_forgotten_though_not_listed(
    setting: Setting, music: Path
) -> None:
    write(music.parent / "more" / "c.ogg", 3, artist="Nina", title="Third")
    (music / "link").symlink_to(music.parent / "more")
    write(music / ".hidden" / "d.ogg", 4, artist="Nina", title="Fourth")
    places = [Folder(music / "link"), Folder(music / ".hidden"), Folder(music)]
    report = await setting.scan(*places, forget=True)
    assert report.counts == {Outcome.ADDED: 4}
    await setting.scan(Folder(music), forget=True)
    await setting.scan(Folder(music), forget=True)
    assert len(setting.tracks()) == 4


async def test_what_was_named_itself_is_not_missing_where_a_folder_is_not_searched_for_it(
    setting: Setting, music: Path
) -> None:
    film = write(music / "c.ogg", 3).rename(music / "film.mkv")
    await setting.scan(SingleFile(film))
    assert (await setting.scan(Folder(music))).counts == {Outcome.ADDED: 2}
    film.unlink()
    counts = (await setting.scan(Folder(music))).counts
    assert counts == {Outcome.UNCHANGED: 2, Outcome.MISSING: 1}


async def test_beside_a_failure_only_what_was_missed_before_is_forgotten(
    setting: Setting, music: Path
) -> None:
    await setting.scan(Folder(music))
    first = setting.titled("First").track_id
    (music / "a.ogg").rename(music / "moved.ogg")
    content = (music / "moved.ogg").read_bytes()
    (music / "moved.ogg").write_bytes(b"")  # as if it were unreadable this once
    assert (await setting.scan(Folder(music), forget=True)).counts[Outcome.MISSING] == 1
    (music / "moved.ogg").write_bytes(content)
    report = await setting.scan(Folder(music), forget=True)
    assert (report.counts[Outcome.FOLLOWED], report.counts[Outcome.FORGOTTEN]) == (1, 0)
    assert setting.titled("First").track_id == first


async def test_what_a_busy_index_kept_is_taken_out_by_the_next(
    setting: Setting, music: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setting.scan(Folder(music))
    first = setting.titled("First").track_id
    (music / "a.ogg").unlink()
    monkeypatch.setattr(landmarks, "PATIENCE_S", 0.3)
    write(music / "c.ogg", 3, artist="Nina", title="Third")
    with exclusive(setting.index):
        assert len((await setting.scan(Folder(music), forget=True)).troubles) == 1
    assert (await setting.scan(Folder(music), forget=True)).troubles == []
    assert LandmarkIndex(setting.index).lacks(first)
    assert len(setting.tracks()) == 2


async def test_what_cannot_be_looked_at_is_not_forgotten(setting: Setting, music: Path) -> None:
    await setting.scan(Folder(music))
    await asyncio.to_thread(music.rename, music.parent / "aside")
    report = await setting.scan(Folder(music), forget=True)
    assert report.has_failed
    assert len(setting.tracks()) == 2


async def test_a_bad_file_is_a_line_with_its_path(setting: Setting, music: Path) -> None:
    (music / "bad.mp3").write_bytes(b"nothing to hear")
    (music / "empty.flac").touch()
    (music / "gone.ogg").symlink_to(music / "nowhere")
    os.mkfifo(music / "pipe.ogg")
    absent = ("absent.mp3", "long" * 100, "zero\0.mp3")
    report = await setting.scan(Folder(music), *(SingleFile(music / name) for name in absent))
    assert report.counts == {Outcome.ADDED: 2, Outcome.FAILED: 7}
    told = {Path(trouble.location).name: trouble.message for trouble in report.troubles}
    absent = ("absent.mp3", "long" * 100, "zero\\0.mp3")
    assert set(told) == {"bad.mp3", "empty.flac", "gone.ogg", "pipe.ogg", *absent}
    assert all(told.values())


async def test_what_is_below_a_name_that_is_not_utf_8_is_a_line(
    setting: Setting, tmp_path: Path
) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    (folder / "a.ogg").touch()
    report = await setting.scan(Folder(folder))
    assert [one.location for one in report.troubles] == [str(tmp_path / "caf?" / "a.ogg")]
    assert (await setting.scan(SingleFile(folder))).counts == {Outcome.FAILED: 1}


@pytest.mark.parametrize("ask", [np.empty, torch.empty])
async def test_a_file_for_which_there_is_no_memory_is_a_line(
    setting: Setting, music: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[[int], object]
) -> None:
    hear = LandmarkIndex.hear

    def more_than_there_is(index: LandmarkIndex, path: Path) -> object:
        return ask(1 << 50) if path.name == "b.mp3" else hear(index, path)

    monkeypatch.setattr(LandmarkIndex, "hear", more_than_there_is)
    report = await setting.scan(Folder(music))
    assert report.counts == {Outcome.ADDED: 1, Outcome.FAILED: 1}
    (trouble,) = report.troubles
    assert trouble == Trouble(str(music / "b.mp3"), NO_MEMORY)


async def test_a_file_that_changes_while_it_is_read_is_left_for_later(
    setting: Setting, music: Path
) -> None:
    setting.engine.meddle = True
    report = await setting.scan(SingleFile(music / "a.ogg"))
    assert report.counts == {Outcome.FAILED: 1}
    assert "changed" in report.troubles[0].message
    assert setting.tracks() == []
    setting.engine.meddle = False
    assert (await setting.scan(SingleFile(music / "a.ogg"))).counts == {Outcome.ADDED: 1}


async def test_a_stopped_scan_keeps_what_was_done(setting: Setting, tmp_path: Path) -> None:
    for seed in range(5):
        write(tmp_path / "many" / f"{seed}.ogg", seed, title=f"Song {seed}")
    setting.engine.gate = asyncio.Event()
    running = asyncio.create_task(setting.scan(Folder(tmp_path / "many")))
    while len(setting.tracks()) < 2:  # noqa: ASYNC110  other threads write
        await asyncio.sleep(0.05)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    kept = {track.track_id for track in setting.tracks()}
    assert len(kept) == 2
    setting.engine.gate = None
    report = await setting.scan(Folder(tmp_path / "many"))
    assert report.counts == {Outcome.UNCHANGED: 2, Outcome.ADDED: 3}
    assert kept < {track.track_id for track in setting.tracks()}


async def test_a_full_disk_ends_the_scan_and_loses_nothing(
    setting: Setting, music: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await setting.scan(SingleFile(music / "a.ogg"))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(setting.library, "write", full)
        with pytest.raises(OSError, match="No space"):
            await setting.scan(Folder(music))
    assert [track.identity.title for track in setting.tracks()] == ["First"]
    assert (await setting.scan(Folder(music))).counts[Outcome.ADDED] == 1


async def test_an_mp3_and_a_flac_of_one_recording_are_one_track(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured, measure = [], Fingerprinter._measure_changes
    monkeypatch.setattr(
        Fingerprinter,
        "_measure_changes",
        lambda self, samples: measured.append(len(samples)) or measure(self, samples),
    )
    write(tmp_path / "one" / "x.flac", 7, artist="Nina", title="Same")
    write(tmp_path / "one" / "x.mp3", 7, artist="Nina", title="same (Remastered)")
    write(tmp_path / "one" / "y.mp3", 8, artist="Nina", title="Other")
    report = await setting.scan(Folder(tmp_path / "one"))
    assert report.counts == {Outcome.ADDED: 2, Outcome.JOINED: 1}
    (joined,) = [track for track in setting.tracks() if len(track.files) == 2]
    assert {Path(file.location).suffix for file in joined.files} == {".flac", ".mp3"}
    assert len(measured) == 3  # only whole tracks, for the index


async def test_parts_of_one_piece_are_tracks_and_what_begins_later_is_a_copy(
    setting: Setting, tmp_path: Path
) -> None:
    piece = melody(7, 20.0)
    silence = np.zeros((2, int(0.8 * RATE)), np.float32)
    files = {
        "beginning": piece[:, : 16 * RATE],
        "later": piece[:, 2 * RATE : 18 * RATE],
        "beginning late": np.concatenate([silence, piece[:, : 16 * RATE]], axis=1),
    }
    for name, samples in files.items():
        encode(tmp_path / f"{name}.mp3", samples, "mp3", "libmp3lame")
    report = await setting.scan(Folder(tmp_path))
    assert report.counts == {Outcome.ADDED: 2, Outcome.JOINED: 1}
    (joined,) = [track for track in setting.tracks() if len(track.files) == 2]
    assert {Path(file.location).stem for file in joined.files} == {"beginning", "beginning late"}


def test_recordings_of_other_lengths_are_two() -> None:
    named = TaggedIdentity(TrackIdentity(artist="Nina", title="Same"), {"title": TAGS})
    assert may_be_same(named, 200.0, named, 201.0)
    assert not may_be_same(named, 200.0, named, 201.1)


async def test_every_file_of_a_track_keeps_the_level_of_its_own_master(
    setting: Setting, music: Path
) -> None:
    write(music / "x.flac", 7, artist="Nina", title="Same")
    write(music / "x.mp3", 7, artist="Nina", title="Same")
    await setting.scan(Folder(music))
    moved = (music / "x.mp3").rename(music / "moved.mp3")
    file = mutagen.File(moved, easy=True)
    file["album"] = "Retagged"
    file.save()
    report = await setting.scan(Folder(music))
    assert report.counts == {Outcome.UNCHANGED: 3, Outcome.FOLLOWED: 1}
    levels = {one.path.name: one.features for one in files_of(setting.titled("Same"))}
    heard = {"x.flac": "x.flac", "moved.mp3": "x.mp3"}
    assert levels.keys() == heard.keys()
    for name, before in heard.items():
        features = simulated_features(before)
        assert levels[name].loudness_lufs == features.loudness_lufs
        assert levels[name].true_peak_dbtp == features.true_peak_dbtp


@pytest.mark.parametrize(
    "tags",
    [
        {"title": "Same (live)"},
        {"title": "Another song"},
        {"title": "Same", "isrc": "GBAYE9700124"},
    ],
)
async def test_tags_that_tell_of_two_recordings_are_believed(
    setting: Setting, tmp_path: Path, tags: dict[str, str]
) -> None:
    write(tmp_path / "two" / "x.flac", 7, artist="Nina", title="Same", isrc="GBAYE9700123")
    write(tmp_path / "two" / "x.ogg", 7, artist="Nina", **tags)
    assert (await setting.scan(Folder(tmp_path / "two"))).counts == {Outcome.ADDED: 2}


async def test_other_audio_in_the_place_of_a_file_is_another_track(
    setting: Setting, music: Path
) -> None:
    await setting.scan(Folder(music))
    old = setting.titled("First").track_id
    write(music / "a.ogg", 5, artist="Nina", title="Third")
    report = await setting.scan(Folder(music))
    assert report.counts == {Outcome.UNCHANGED: 1, Outcome.ADDED: 1, Outcome.MISSING: 1}
    assert setting.library.get(old) is not None
    report = await setting.scan(Folder(music), forget=True)
    assert report.counts == {Outcome.UNCHANGED: 2, Outcome.FORGOTTEN: 1}
    assert setting.library.get(old) is None
    assert {track.identity.title for track in setting.tracks()} == {"Second", "Third"}


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    made = urllib.request.Request(f"http://{host}:{port}/scanned", method="PUT")
    urllib.request.urlopen(made).close()  # noqa: S310
    yield f"s3://scanned/music?endpoint=http://{host}:{port}&region=us-east-1"
    server.stop()


class Refusing(BaseHTTPRequestHandler):
    """An S3 store that denies all access."""

    def do_GET(self) -> None:
        self.send_error(HTTPStatus.FORBIDDEN)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"s3://closed/music?endpoint=http://127.0.0.1:{server.server_port}&region=us-east-1"
        server.shutdown()


async def test_a_store_that_refuses_is_a_line(setting: Setting, refusing: str) -> None:
    report = await setting.scan(Bucket(refusing))
    assert report.counts == {Outcome.FAILED: 1}
    (trouble,) = report.troubles
    assert "\n" not in trouble.message
    refused = fetched(open_backend(refusing), "a.ogg")
    with pytest.raises(OSError, match=r"a\.ogg"):
        refused.__enter__()


async def test_files_of_a_bucket_are_fetched_beside_each_other(
    setting: Setting, music: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Barrier(2)

    @contextmanager
    def fetch(place: Folder, found: Found) -> Iterator[Path]:
        both.wait(timeout=30)
        yield Path(found.location)

    monkeypatch.setattr(Folder, "at_hand", fetch)
    assert (await setting.scan(Folder(music))).counts == {Outcome.ADDED: 2}


async def test_a_bucket_is_scanned_as_a_folder_is(
    setting: Setting, music: Path, bucket: str
) -> None:
    store = open_backend(bucket)
    obstore.put(store, "album/a.ogg", music / "a.ogg")
    obstore.put(store, "b.mp3", music / "b.mp3")
    for name in ("cover.jpg", "album/._a.ogg", "#recycle/c.ogg"):
        obstore.put(store, name, b"no audio")
    assert (await setting.scan(Bucket(bucket))).counts == {Outcome.ADDED: 2}
    track = setting.titled("First")
    assert [file.location for file in track.files] == ["s3://scanned/music/album/a.ogg"]
    obstore.delete(store, "b.mp3")
    again = await setting.scan(Bucket(bucket))
    assert again.counts == {Outcome.UNCHANGED: 1, Outcome.MISSING: 1}
    assert len(setting.engine.heard) == 2
