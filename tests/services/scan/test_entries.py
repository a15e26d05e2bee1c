"""Analysed files, entered into a real library several at a time."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from serve_app.domain.identity import TrackIdentity
from serve_app.library.edit import Edit, added
from serve_app.library.library import Library
from serve_app.library.query import TrackQuery
from serve_app.library.track import OPERATOR, LibraryTrack, Place, TrackFile, new_track_id
from serve_app.providers.tags.identity import TAGS, TaggedIdentity
from serve_app.services.scan.entries import Entries, Hearing, Taken
from serve_app.services.scan.report import Outcome
from serve_app.services.simulation.features import simulated_features

N = 8


@pytest.fixture
def library(tmp_path: Path) -> Library:
    library = Library((tmp_path / "library").as_uri(), tmp_path / "view")
    library.follow()
    return library


def taken(
    number: int, *, sound: int | None = None, title: str | None = None, audio: str | None = None
) -> Taken:
    """A file of 30 s whose sound depends on ``number``, or on ``sound`` if given."""
    vector = np.random.default_rng(number if sound is None else sound).standard_normal(768)
    features = replace(
        simulated_features(f"{number}"),
        duration_s=30.0,
        embedding=(vector / np.linalg.norm(vector)).tolist(),
    )
    location = f"/music/{number}.flac"
    digests = f"content {number}", audio or f"audio {number}"
    named = TaggedIdentity(TrackIdentity(title=title), {"title": TAGS} if title else {})
    file = TrackFile(Place.PATH, location, *digests, 1000, number)
    return Taken(file, named, Hearing(features, None), lambda: nullcontext(Path(location)))


def n_writes(library: Library, files: list[Taken]) -> int:
    before = library.version
    Entries(library).enter(files)
    return library.version - before


def test_files_of_one_length_share_a_write_where_they_sound_otherwise(library: Library) -> None:
    assert n_writes(library, [taken(number) for number in range(N)]) == 1


def test_files_that_sound_alike_share_a_write_where_they_are_named_otherwise(
    library: Library,
) -> None:
    files = [taken(number, sound=0, title=f"Take {number}") for number in range(N)]
    assert n_writes(library, files) == 1


def test_a_file_that_may_be_a_copy_sees_the_other_written(library: Library) -> None:
    assert n_writes(library, [taken(0), taken(1, sound=0), taken(2)]) == 2


def test_the_same_audio_under_another_title_is_one_track(library: Library) -> None:
    files = [taken(0, title="One", audio="same"), taken(1, title="Two", audio="same")]
    entered = Entries(library).enter(files)
    assert len({track_id for track_id, _ in entered}) == 1
    assert [outcome for _, outcome in entered] == [Outcome.ADDED, Outcome.ANALYSED]


def test_a_copy_has_the_level_of_whichever_file_of_its_audio_has_one(library: Library) -> None:
    """An older version of afa stored no level."""
    plain, levelled, copy = (
        replace(taken(n, audio="same").file, content_sha256=f"{n}") for n in range(3)
    )
    levelled = replace(levelled, loudness_lufs=-9.5, true_peak_dbtp=-0.5)
    track = LibraryTrack(new_track_id(), TrackIdentity(), files=(plain, levelled))
    library.write([Edit(track.track_id, added(track))])
    Entries(library).enter([replace(taken(2), file=copy, hearing=None)])
    entered = library.get(track.track_id)
    assert entered is not None
    assert replace(copy, loudness_lufs=-9.5, true_peak_dbtp=-0.5) in entered.files


def test_another_encoding_that_also_moved_is_still_known_when_its_turn_comes(
    library: Library, tmp_path: Path
) -> None:
    """In a renamed folder with an MP3 and a FLAC, the second was added without its analysis."""
    before = [replace(taken(n).file, location=str(tmp_path / f"old {n}")) for n in range(2)]
    track = LibraryTrack(new_track_id(), TrackIdentity(), files=tuple(before))
    library.write([Edit(track.track_id, added(track))])
    moved = [replace(taken(n), hearing=None) for n in range(2)]
    entered = [Entries(library).enter([one]) for one in moved]
    assert entered == [[(track.track_id, Outcome.FOLLOWED)]] * 2
    (known,) = library.page(TrackQuery(), [OPERATOR], 10).items
    assert {file.location for file in known.files} == {one.file.location for one in moved}


def test_two_scans_at_once_make_one_track_of_a_file(
    library: Library, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Library((tmp_path / "library").as_uri(), tmp_path / "view")
    is_writing, write = threading.Event(), library.write

    def slowly(edits: Sequence[Edit]) -> list[LibraryTrack | None]:
        is_writing.set()
        time.sleep(0.5)
        return write(edits)

    monkeypatch.setattr(library, "write", slowly)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Entries(library).enter, [taken(0)])
        assert is_writing.wait(30)
        second = Entries(other).enter([taken(0)])
    assert [track_id for track_id, _ in first.result()] == [track_id for track_id, _ in second]
    assert other.count([OPERATOR]) == 1
