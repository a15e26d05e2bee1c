import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from models.fingerprint.hashes import query_hashes
from models.fingerprint.landmarks import (
    LOWEST_BIN,
    N_BINS,
    N_FFT,
    SAMPLE_RATE,
    CloserLook,
    Fingerprint,
)
from models.fingerprint.subfingerprints import to_subfingerprints
from pipelines.fingerprint.clip import Clip
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import ProviderUnavailableError
from serve_app.providers.fingerprints import builder, segment
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.confidence import evidence_confidence, votes_confidence
from serve_app.providers.fingerprints.index import (
    SURE,
    FingerprintIndex,
    IndexMatch,
)
from serve_app.providers.fingerprints.kept_landmarks import to_blocks
from serve_app.providers.fingerprints.manifest import (
    FingerprintIndexError,
    is_current,
    read_manifest,
)
from serve_app.providers.fingerprints.segment import N_SHARDS, Segment, write_segment
from serve_app.providers.recognisers.own_index import LocalRecogniser

FRAMES_PER_S = 11_025 / 256


def track(seed: int, seconds: float = 60.0) -> Fingerprint:
    """A track with as many landmarks as music has: 30 a second."""
    rng = np.random.default_rng(seed)
    n = int(seconds * 30)
    return Fingerprint(
        np.sort(rng.uniform(0, seconds * FRAMES_PER_S, n)).astype(np.float32),
        np.log2(rng.uniform(250, 4000, n)).astype(np.float32),
        rng.uniform(1, 6, n).astype(np.float32),
        int(seconds * FRAMES_PER_S),
    )


def excerpt(
    whole: Fingerprint, start_s: float, length_s: float = 10, speed: float = 1, kept: float = 1
) -> Fingerprint:
    """A clip of a track: played at some speed, with a share of its landmarks replaced by others."""
    frames = whole.frames - start_s * FRAMES_PER_S
    inside = (frames >= 0) & (frames < length_s * FRAMES_PER_S)
    rng = np.random.default_rng(round(start_s))
    stays = inside & (rng.random(len(frames)) < kept)
    wrong = track(10_000 + round(start_s), length_s)
    chosen = rng.random(len(wrong)) < 1 - kept
    frames = np.concatenate([frames[stays], wrong.frames[chosen]])
    pitches = np.concatenate([whole.pitches[stays], wrong.pitches[chosen]])
    prominences = np.concatenate([whole.prominences[stays], wrong.prominences[chosen]])
    order = np.argsort(frames, kind="stable")
    return Fingerprint(
        (frames[order] / speed).astype(np.float32),
        (pitches[order] + np.log2(speed)).astype(np.float32),
        prominences[order],
        int(length_s * FRAMES_PER_S / speed),
    )


def closer(dense: Fingerprint, of: Fingerprint, left: float = 1) -> CloserLook:
    """A closer look with dense landmarks; its evidence shows a share of the landmarks of ``of``."""
    rng = np.random.default_rng(len(of))
    n_frames = max(dense.n_frames, 1)
    evidence = rng.integers(-30, 15, (N_BINS, n_frames)).astype(np.int8)
    bins = np.rint(np.exp2(of.pitches) * N_FFT / SAMPLE_RATE).astype(int) - LOWEST_BIN
    frames = np.clip(np.rint(of.frames), 0, n_frames - 1).astype(int)
    stays = rng.random(len(of)) < left
    for bin_step, frame_step in np.ndindex(3, 3):  # blurred as by a window
        rows = bins[stays] + bin_step - 1
        columns = np.clip(frames[stays] + frame_step - 1, 0, n_frames - 1)
        evidence[rows, columns] = 40
    return CloserLook(dense, evidence)


def ask(
    index: FingerprintIndex, clip: Fingerprint, dense: Fingerprint | None = None
) -> list[IndexMatch]:
    """Look up a clip whose evidence shows all of its own landmarks."""
    return index.query(clip, closer(dense or clip, clip))


TRACKS = {f"track-{i}": track(i) for i in range(30)}


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> FingerprintIndex:
    folder = tmp_path_factory.mktemp("index")
    with FingerprintIndexBuilder(folder) as builder:
        builder.build(TRACKS.items())
    return FingerprintIndex.open(folder)


@pytest.mark.parametrize("start_s", [0, 17.3, 49])
@pytest.mark.parametrize("length_s", [5, 10])
@pytest.mark.parametrize("speed", [0.97, 1, 1.03])
def test_a_clip_is_found_with_its_place_and_speed(
    index: FingerprintIndex, start_s: float, length_s: float, speed: float
) -> None:
    best = ask(index, excerpt(TRACKS["track-7"], start_s, length_s, speed))[0]
    assert best.track_key == "track-7"
    assert best.confidence >= 95
    assert best.offset_s == pytest.approx(start_s, abs=0.1)
    assert best.speed == pytest.approx(speed, abs=0.006)


def test_a_clip_in_noise_is_found(index: FingerprintIndex) -> None:
    for start_s in range(0, 50, 7):
        best = ask(index, excerpt(TRACKS["track-3"], start_s, 10, 1.01, kept=0.7))[0]
        assert best.track_key == "track-3"
        assert best.confidence >= 50


def test_a_doubt_is_settled_by_the_dense_landmarks(index: FingerprintIndex) -> None:
    whole = excerpt(TRACKS["track-3"], 20)
    worn = excerpt(TRACKS["track-3"], 20, kept=0.1)
    first = index.query(worn, closer(worn, whole))
    assert not first or first[0].confidence < SURE
    best = index.query(worn, closer(whole, whole))[0]
    assert (best.track_key, best.offset_s) == ("track-3", pytest.approx(20, abs=0.1))
    assert best.confidence >= 95


@pytest.mark.parametrize(("speed", "length_s"), [(1, 10), (1, 5), (0.97, 10), (1.03, 5)])
def test_hidden_landmarks_speak_for_a_track_of_few_votes(
    index: FingerprintIndex, speed: float, length_s: float
) -> None:
    whole = excerpt(TRACKS["track-3"], 20, length_s, speed)
    clips = (
        excerpt(TRACKS["track-3"], 20, length_s, speed, kept / 50) for kept in range(25, 0, -1)
    )
    worn = next(clip for clip in clips if _confidence(index, clip, whole, 0) < 50)
    assert _confidence(index, worn, whole, 0.5) >= 90


def _confidence(
    index: FingerprintIndex, clip: Fingerprint, whole: Fingerprint, heard: float
) -> int:
    """Confidence in track-3 when evidence shows a share of the landmarks of ``whole``."""
    matches = index.query(clip, closer(clip, whole, heard))
    return next((m.confidence for m in matches if m.track_key == "track-3"), 0)


def test_doubtful_votes_that_no_evidence_follows_are_not_believed(index: FingerprintIndex) -> None:
    """As when another track shares a figure with the clip, and nothing else."""
    worn = excerpt(TRACKS["track-3"], 20, kept=0.2)
    believed = ask(index, worn)[0]
    doubted = index.query(worn, closer(worn, excerpt(TRACKS["track-9"], 20)))[0]
    assert (believed.track_key, believed.confidence >= 95) == ("track-3", True)
    assert doubted.support < 3
    assert doubted.confidence < 50


def test_kept_landmarks_are_those_of_the_frames_around(index: FingerprintIndex) -> None:
    segment = index._segments[0][0]
    whole = TRACKS["track-7"]
    start = int(segment.track_starts[segment.keys.index("track-7")])
    for begin, end in ((0, 255), (256, 512), (700, 1300), (-900, len(whole.frames))):
        frames, bins = segment.landmarks.around(start + begin, start + end)
        inside = (frames >= start + begin) & (frames < start + end)
        kept = np.rint(whole.frames).astype(int)
        wanted = (kept >= begin) & (kept < end)
        np.testing.assert_array_equal(frames[inside] - start, kept[wanted])
        hz = np.exp2(whole.pitches[wanted])
        np.testing.assert_allclose(bins[inside], hz * N_FFT / SAMPLE_RATE, atol=1 / 128)
    nowhere = segment.landmarks.around(1e7, 1e7 + 600)
    assert [len(measure) for measure in nowhere] == [0, 0]


def test_sure_votes_are_doubted_where_no_evidence_follows(index: FingerprintIndex) -> None:
    """A match that is only just sure is then doubted; one with many votes is still believed."""
    stranger = excerpt(TRACKS["track-9"], 20)
    clips = (excerpt(TRACKS["track-3"], 20, kept=kept / 100) for kept in range(10, 100))
    shared = next(clip for clip in clips if _votes_confidence(index, clip) >= SURE)
    believed = ask(index, shared)[0]
    assert (believed.confidence >= SURE, believed.support > 5) == (True, True)
    assert index.query(shared, closer(shared, stranger))[0].confidence < 50
    whole = excerpt(TRACKS["track-3"], 20)
    best = index.query(whole, closer(whole, stranger))[0]
    assert (best.track_key, best.support < 3, best.confidence >= SURE) == ("track-3", True, True)


def _votes_confidence(index: FingerprintIndex, clip: Fingerprint) -> int:
    found = index.look_up(query_hashes(clip))
    nothing = np.zeros((N_BINS, 0), np.int8)
    return next((m.confidence for m in index.by_votes(found, nothing)), 0)


@pytest.mark.parametrize("length_s", [6, 10])
def test_evidence_answers_by_its_support_and_the_clip_s_length(
    index: FingerprintIndex, length_s: float
) -> None:
    clip = excerpt(TRACKS["track-3"], 20, length_s, kept=0.3)
    evidence = closer(clip, excerpt(TRACKS["track-3"], 20, length_s), 0.05).evidence
    found = index.by_evidence(index.look_up(query_hashes(clip)), evidence)[0]
    heard_s = evidence.shape[1] / FRAMES_PER_S
    stated = evidence_confidence(found.support, found.spans, heard_s, index.n_tracks)
    assert (found.track_key, found.confidence) == ("track-3", stated)
    assert 50 < stated < 90


def test_votes_answer_where_there_is_no_evidence(index: FingerprintIndex) -> None:
    worn = excerpt(TRACKS["track-3"], 20, 4, kept=0.25)
    unheard = CloserLook(worn, np.zeros((N_BINS, 0), np.int8))
    found = index.query(worn, unheard)[0]
    by_votes = votes_confidence(found.score, found.spans, index.n_tracks)
    assert (found.track_key, found.confidence) == ("track-3", by_votes)
    assert 0 < found.confidence < SURE


def test_of_too_many_postings_those_of_rare_hashes_are_read(tmp_path: Path) -> None:
    frequent, rare = np.uint32(7 << 20), np.uint32(8 << 20)
    hashes = np.array([*[frequent] * 100, rare], np.uint32)
    positions = np.arange(101, dtype=np.uint32)
    none = hashes[:0]
    write_segment(
        tmp_path,
        ["a track"],
        np.zeros(1, np.int64),
        2048,
        101,
        iter([(hashes, positions), *[(none, none)] * (N_SHARDS - 1)]),
        0,
        [to_blocks(Fingerprint(*[np.zeros(0, np.float32)] * 3, 2048), 2048)],
        [np.zeros(0, np.uint64)],
    )
    wanted = np.array([frequent, rare])
    some = Segment(tmp_path).look_up(wanted, 50 * N_SHARDS)
    assert (some.positions.tolist(), some.rows.tolist()) == ([100], [1])
    every = Segment(tmp_path).look_up(wanted, 101 * N_SHARDS)
    assert sorted(every.positions.tolist()) == list(range(101))
    assert every.rows.tolist().count(0) == 100


def test_of_equally_sure_tracks_the_one_of_more_votes_is_first(index: FingerprintIndex) -> None:
    more = index.look_up(query_hashes(excerpt(TRACKS["track-3"], 20)))[0]
    fewer = replace(more, key="another", candidate=replace(more.candidate, votes=150))
    nothing = np.zeros((N_BINS, 0), np.int8)
    for found in ([more, fewer], [fewer, more]):
        best = index.by_votes(found, nothing)
        assert [(match.track_key, match.confidence) for match in best] == [
            ("track-3", 99),
            ("another", 99),
        ]


def test_silence_is_not_looked_at_in_vain(index: FingerprintIndex) -> None:
    worn = excerpt(TRACKS["track-3"], 20, 4, kept=0.35)
    silence = replace(
        worn, **{name: np.zeros(0, np.float32) for name in ("frames", "pitches", "prominences")}
    )
    found = index.query(worn, closer(silence, excerpt(TRACKS["track-3"], 20, 4)))
    assert found[0].track_key == "track-3"


def changing(seed: int, seconds: float = 60.0) -> tuple[Fingerprint, NDArray[np.float32]]:
    """A track, and how its bands change."""
    rows = round(8 * seconds)
    changes = np.random.default_rng(seed).standard_normal((rows, 64)).astype(np.float32)
    return replace(track(seed, seconds), subfingerprints=to_subfingerprints(changes)), changes


def in_noise(changes: NDArray[np.float32], start: int = 200, length: int = 75) -> CloserLook:
    """A clip that has lost all its landmarks, with three times as much noise as changes."""
    clip = changes[start : start + length]
    noise = np.random.default_rng(start).standard_normal(clip.shape).astype(np.float32)
    lost = track(777, 10)
    return replace(closer(lost, lost), changes=clip + 3 * noise)


@pytest.fixture(scope="module")
def changing_index(tmp_path_factory: pytest.TempPathFactory) -> FingerprintIndex:
    folder = tmp_path_factory.mktemp("changing")
    with FingerprintIndexBuilder(folder) as builder:
        builder.build((f"track-{i}", changing(i)[0]) for i in range(20))
    return FingerprintIndex.open(folder)


@pytest.mark.parametrize("number", [0, 7, 19])
def test_where_all_landmarks_are_lost_the_changes_tell(
    changing_index: FingerprintIndex, number: int
) -> None:
    look = in_noise(changing(number)[1])
    best, *rest = changing_index.query(look.landmarks, look)
    assert best.track_key == f"track-{number}"
    assert best.confidence >= 50
    assert best.likeness > 10
    assert best.offset_s == pytest.approx(200 * 1378 / 11_025, abs=0.001)
    assert (best.score, best.speed) == (0, 1)
    assert all(match.confidence < 10 for match in rest)
    by_landmarks = changing_index.query(look.landmarks, closer(look.landmarks, look.landmarks))
    assert all(match.confidence < 50 for match in by_landmarks)


def test_changes_of_a_stranger_name_nothing(changing_index: FingerprintIndex) -> None:
    for number in range(100, 120):
        look = in_noise(changing(number)[1])
        assert not named(changing_index.query(look.landmarks, look))


def named(matches: list[IndexMatch]) -> list[IndexMatch]:
    return [match for match in matches if match.confidence >= 50]


def test_what_landmarks_are_sure_of_is_not_compared(
    changing_index: FingerprintIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, changes = changing(3)
    clip = excerpt(whole, 20)
    look = replace(closer(clip, clip), changes=changes[160:240])
    by_likeness = changing_index.by_likeness(look)
    assert by_likeness[0].track_key == "track-3"
    monkeypatch.setattr(changing_index, "by_likeness", None)
    assert changing_index.query(clip, look)[0].track_key == "track-3"


def test_what_is_sure_is_not_asked_again(index: FingerprintIndex) -> None:
    clip = excerpt(TRACKS["track-3"], 20)
    other = excerpt(TRACKS["track-7"], 20)
    assert index.query(clip, replace(closer(clip, clip), landmarks=other)) == ask(index, clip)


def test_a_dense_unknown_clip_is_not_accepted(index: FingerprintIndex) -> None:
    for seed in range(100, 160):
        asked, other = track(seed, 10), track(seed + 500, 10)
        assert all(m.confidence < 20 for m in index.query(asked, closer(other, asked)))


def test_unknown_clips_are_not_accepted(index: FingerprintIndex) -> None:
    for seed in range(100, 160):
        matches = ask(index, track(seed, 10))
        assert all(match.confidence < 20 for match in matches)


def test_a_warm_index_says_the_same(tmp_path: Path) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build(TRACKS.items())
    cold, warm = FingerprintIndex.open(tmp_path), FingerprintIndex.open(tmp_path)
    warm.warm()
    clip = excerpt(TRACKS["track-1"], 12)
    assert ask(warm, clip) == ask(cold, clip)


OF_DIRECTORY = {"starts", "block_starts"}
COMPARED = {"subfingerprints", "coarse_subfingerprints"}
POSTINGS = {"tags", "positions", "landmark_frames", "landmark_bins"}


@pytest.mark.parametrize(
    ("room_bytes", "kinds"),
    [
        (0, OF_DIRECTORY),
        (500_000, OF_DIRECTORY | COMPARED),
        (10**9, OF_DIRECTORY | COMPARED | POSTINGS),
    ],
)
def test_warming_reads_what_there_is_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room_bytes: int, kinds: set[str]
) -> None:
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr(segment, "WARMED_SHARE", room_bytes / physical)
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build(TRACKS.items())
    index = FingerprintIndex.open(tmp_path)
    assert _resident(tmp_path) == set()
    index.warm()
    assert _resident(tmp_path) == kinds


def test_opening_parses_no_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that parse at once may break each other in CPython 3.11."""
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([("a", TRACKS["track-0"])])
    monkeypatch.setattr("ast.literal_eval", None)
    index = FingerprintIndex.open(tmp_path)
    assert ask(index, excerpt(TRACKS["track-0"], 5))[0].track_key == "a"


def _resident(folder: Path) -> set[str]:
    """Kinds of mapped files of which this process has pages in memory."""
    kinds, kind = set(), ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in line.split(" ", 1)[0]:
            name = Path(line).stem.split("-")[0]
            kind = name if str(folder) in line else ""
        elif kind and line.startswith("Rss:") and int(line.split()[1]) > 0:
            kinds.add(kind)
    return kinds


def test_silence_matches_nothing(index: FingerprintIndex) -> None:
    nothing = np.zeros(0, np.float32)
    assert ask(index, Fingerprint(nothing, nothing, nothing, 400)) == []


def test_confidence_grows_and_never_says_100() -> None:
    for grown in (
        [votes_confidence(votes, 10, 100) for votes in (0, 5, 20, 100, 10_000)],
        [votes_confidence(10, spans, 100) for spans in (0, 2, 5, 20)],
        [votes_confidence(10, 10, 100, z) for z in (-9.0, 0.0, 3.0, 5.0, 99.0)],
        [evidence_confidence(4.0, spans, 5.0, 100) for spans in (0, 2, 5, 10, 10_000)],
        [evidence_confidence(z, 5, 5.0, 100) for z in (-3.0, 0.0, 4.0, 8.0, 12.0, 99.0)],
        [evidence_confidence(8.0, 8, length_s, 100) for length_s in (9999.0, 12.0, 9.0, 5.0)],
    ):
        assert grown == sorted(grown)
        assert grown[0] < 5
        assert 95 <= grown[-1] <= 99
    assert evidence_confidence(12.0, 4, 9.0, 100) == evidence_confidence(99.0, 4, 9.0, 100)
    assert votes_confidence(9, 8, 100, 5.0) == votes_confidence(9, 8, 100, 99.0)
    assert votes_confidence(9, 8, 100) == votes_confidence(9, 8, 100, 99.0)
    # A stranger that shared a figure with one of 359 tracks, fifteen times in seven half-seconds.
    assert (votes_confidence(15, 7, 359), votes_confidence(15, 7, 359, 2.07)) == (95, 47)
    assert evidence_confidence(6.0, 4, 3.0, 100) == evidence_confidence(6.0, 4, 4.9, 100)


def test_a_larger_index_asks_for_more() -> None:
    sizes = (1, 100, 10_000, 1_000_000)
    by_votes = [votes_confidence(10, 8, n) for n in sizes]
    by_evidence = [evidence_confidence(6.0, 6, 5.0, n) for n in sizes]
    for fallen in (by_votes, by_evidence):
        assert fallen == sorted(fallen, reverse=True)
    assert (by_votes[0] >= 95, by_votes[-1] < 5) == (True, True)
    assert (by_evidence[0] >= 90, by_evidence[-1] < 30) == (True, True)


def keys_found(folder: Path) -> set[str]:
    index = FingerprintIndex.open(folder)
    found = {ask(index, excerpt(f, 20))[0].track_key for f in TRACKS.values()}
    return found & {key for key, f in TRACKS.items() if key in found}


def test_an_index_grows_by_segments_which_are_merged(tmp_path: Path) -> None:
    for start in range(0, 30, 3):
        with FingerprintIndexBuilder(tmp_path, most_segments=3) as builder:
            for key in list(TRACKS)[start : start + 3]:
                builder.add(key, TRACKS[key])
            builder.commit()
            assert len(builder) == start + 3
    assert len(list(tmp_path.glob("segment-*"))) == 3
    index = FingerprintIndex.open(tmp_path)
    assert index.n_tracks == 30
    for key, whole in TRACKS.items():
        best = ask(index, excerpt(whole, 20))[0]
        assert (best.track_key, best.offset_s) == (key, pytest.approx(20, abs=0.1))


def test_a_new_track_rewrites_few_others(tmp_path: Path) -> None:
    short = [(f"short-{n}", track(n, 4.0)) for n in range(192)]
    n_written = 0
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build(short[:180], commit_every=30)
        for one in short[180:]:
            before = set(tmp_path.glob("segment-*"))
            builder.build([one])
            new = set(tmp_path.glob("segment-*")) - before
            n_written += sum(len(Segment(folder).keys) for folder in new)
    assert FingerprintIndex.open(tmp_path).n_tracks == 192
    assert n_written < 250


def test_what_was_replaced_does_not_stay_for_long(tmp_path: Path) -> None:
    short = [(f"short-{n}", track(n, 4.0)) for n in range(180)]
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build(short, commit_every=30)
        builder.build(short[:90], commit_every=30)
    index = FingerprintIndex.open(tmp_path)
    stored = [Segment(folder).keys for folder in tmp_path.glob("segment-*")]
    assert index.n_tracks == 180
    assert sum(map(len, stored)) == 180


def test_merging_changes_no_answer(tmp_path: Path) -> None:
    for name, most in (("one", 1), ("many", 99)):
        for half in (0, 1):
            with FingerprintIndexBuilder(tmp_path / name, most_segments=most) as builder:
                builder.build(list(TRACKS.items())[half::2])
    one, many = FingerprintIndex.open(tmp_path / "one"), FingerprintIndex.open(tmp_path / "many")
    for whole in TRACKS.values():
        clip = excerpt(whole, 31.5, 5)
        worn = excerpt(whole, 31.5, 5, kept=0.6)
        for asked, evidence in ((clip, closer(clip, clip)), (worn, closer(worn, clip, 0.5))):
            first, second = (i.query(asked, evidence)[0] for i in (one, many))
            assert first == second


def test_segments_that_do_not_fit_into_one_stay_and_more_are_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = max(segment.track_span(whole.n_frames) for whole in TRACKS.values())
    monkeypatch.setattr(builder, "MOST_FRAMES", longest)
    with FingerprintIndexBuilder(tmp_path, most_segments=1) as added:
        added.build(list(TRACKS.items())[:3])
    assert FingerprintIndex.open(tmp_path).n_tracks == 3
    assert len(list(tmp_path.glob("segment-*"))) == 3
    assert len(keys_found(tmp_path)) == 3


def test_a_small_buffer_makes_several_segments_in_one_build(tmp_path: Path) -> None:
    with FingerprintIndexBuilder(tmp_path, flush_postings=5000, most_segments=99) as builder:
        told: list[tuple[int, str]] = []
        assert builder.build(TRACKS.items(), lambda n, key: told.append((n, key))) == 30
    assert told[0] == (1, "track-0")
    assert told[-1] == (30, "track-29")
    assert len(list(tmp_path.glob("segment-*"))) > 3
    assert len(keys_found(tmp_path)) == 30


def test_a_long_build_is_visible_and_safe_on_the_way(tmp_path: Path) -> None:
    seen: list[int] = []

    def tracks() -> Iterator[tuple[str, Fingerprint]]:
        for key in list(TRACKS)[:7]:
            published = (tmp_path / "manifest.json").exists()
            seen.append(FingerprintIndex.open(tmp_path).n_tracks if published else 0)
            yield key, TRACKS[key]

    with FingerprintIndexBuilder(tmp_path) as builder:
        assert builder.build(tracks(), commit_every=3) == 7
    assert seen == [0, 0, 0, 3, 3, 3, 6]
    assert FingerprintIndex.open(tmp_path).n_tracks == 7


def test_a_track_is_replaced_and_removed(tmp_path: Path) -> None:
    other = track(77)
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([("a", TRACKS["track-0"]), ("b", TRACKS["track-1"])])
    with FingerprintIndexBuilder(tmp_path) as builder:
        assert "a" in builder
        builder.add("a", other)
        builder.remove("b")
        assert not builder.remove("b")
        builder.commit()
    index = FingerprintIndex.open(tmp_path)
    assert index.n_tracks == 1
    assert ask(index, excerpt(other, 5))[0].track_key == "a"
    for gone in ("track-0", "track-1"):
        matches = ask(index, excerpt(TRACKS[gone], 5))
        assert all(match.confidence < 50 for match in matches)
    with FingerprintIndexBuilder(tmp_path, most_segments=1) as builder:
        builder.build([("c", TRACKS["track-2"])])
    assert json.loads((tmp_path / "manifest.json").read_text())["segments"][0]["n_tracks"] == 2
    assert ask(FingerprintIndex.open(tmp_path), excerpt(other, 5))[0].track_key == "a"


def test_a_track_replaced_before_the_commit_counts_once(tmp_path: Path) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.add("a", TRACKS["track-0"])
        builder.build([("a", TRACKS["track-1"])])
        assert len(builder) == 1
    index = FingerprintIndex.open(tmp_path)
    assert index.n_tracks == 1
    assert ask(index, excerpt(TRACKS["track-1"], 5))[0].track_key == "a"
    assert all(m.confidence < 50 for m in ask(index, excerpt(TRACKS["track-0"], 5)))


def test_a_silent_track_is_remembered_and_never_found(tmp_path: Path) -> None:
    nothing = np.zeros(0, np.float32)
    with FingerprintIndexBuilder(tmp_path) as builder:
        assert builder.add("silent", Fingerprint(nothing, nothing, nothing, 900)) == 0
        builder.commit()
    with FingerprintIndexBuilder(tmp_path) as builder:
        assert "silent" in builder
    assert ask(FingerprintIndex.open(tmp_path), excerpt(TRACKS["track-0"], 5)) == []


def test_an_open_index_takes_up_what_is_committed(tmp_path: Path) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([("a", TRACKS["track-0"])])
    index = FingerprintIndex.open(tmp_path)
    assert not index.refresh()
    with FingerprintIndexBuilder(tmp_path, most_segments=1) as builder:
        builder.build([("b", TRACKS["track-1"])])
        assert ask(index, excerpt(TRACKS["track-0"], 5))[0].track_key == "a"  # its files are gone
        assert index.refresh()
    assert ask(index, excerpt(TRACKS["track-1"], 5))[0].track_key == "b"
    assert not index.refresh()


def test_readers_never_see_a_half_built_index(tmp_path: Path) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([("track-0", TRACKS["track-0"])])
    problems: list[str] = []
    is_over = threading.Event()

    def read() -> None:
        index = FingerprintIndex.open(tmp_path)
        while not is_over.is_set():
            index.refresh()
            best = ask(index, excerpt(TRACKS["track-0"], 12))[0]
            if best.track_key != "track-0" or best.confidence < 90:
                problems.append(str(best))

    thread = threading.Thread(target=read)
    thread.start()
    try:
        for i in range(1, 13):
            with FingerprintIndexBuilder(tmp_path, most_segments=2) as builder:
                builder.build([(f"track-{i}", TRACKS[f"track-{i}"])])
    finally:
        is_over.set()
        thread.join()
    assert problems == []


def test_a_builder_that_dies_changes_nothing(tmp_path: Path) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([("a", TRACKS["track-0"])])
    before = (tmp_path / "manifest.json").read_text()

    def die() -> None:
        with FingerprintIndexBuilder(tmp_path, flush_postings=1) as builder:
            builder.add("b", TRACKS["track-1"])
            builder.add("c", TRACKS["track-2"])  # "b" is on disk by now
            raise RuntimeError("died")

    with pytest.raises(RuntimeError, match="died"):
        die()
    assert (tmp_path / "manifest.json").read_text() == before
    assert len(list(tmp_path.glob("segment-*"))) == 2
    with FingerprintIndexBuilder(tmp_path) as builder:  # cleans up
        assert len(builder) == 1
    assert len(list(tmp_path.glob("segment-*"))) == 1


def test_two_builders_keep_out_of_each_others_way(tmp_path: Path) -> None:
    with (
        FingerprintIndexBuilder(tmp_path),
        pytest.raises(FingerprintIndexError, match="Another process"),
        FingerprintIndexBuilder(tmp_path),
    ):
        pass


def test_a_missing_damaged_or_foreign_index_says_so(tmp_path: Path) -> None:
    with pytest.raises(FingerprintIndexError, match="no fingerprint index"):
        FingerprintIndex.open(tmp_path / "nowhere")
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([("a", TRACKS["track-0"])])
    manifest = tmp_path / "manifest.json"
    body = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**body, "model_id": "other"}))
    with pytest.raises(FingerprintIndexError, match="made with other"):
        FingerprintIndex.open(tmp_path)
    assert not is_current(tmp_path)
    with FingerprintIndexBuilder(tmp_path) as builder:
        assert len(builder) == 0
        builder.build([("b", TRACKS["track-1"])])
    assert [folder.name for folder in tmp_path.glob("segment-*")] == [
        entry.name for entry in read_manifest(tmp_path).segments
    ]
    assert FingerprintIndex.open(tmp_path).n_tracks == 1
    for text in ("{", "{}", "[]"):
        manifest.write_text(text)
        with pytest.raises(FingerprintIndexError, match="damaged"):
            FingerprintIndex.open(tmp_path)


@pytest.mark.parametrize("name", ["block_starts", "subfingerprint_starts", "starts-*"])
def test_a_segment_damaged_in_its_middle_says_what_to_do(tmp_path: Path, name: str) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build(TRACKS.items())
    spoil(tmp_path, name)
    with pytest.raises(FingerprintIndexError, match="remove it, and make it again"):
        ask(FingerprintIndex.open(tmp_path), excerpt(TRACKS["track-3"], 20))


@pytest.mark.parametrize("name", ["block_starts", "track_starts", "starts-*"])
def test_a_damaged_segment_that_is_to_be_merged_says_what_to_do(tmp_path: Path, name: str) -> None:
    with FingerprintIndexBuilder(tmp_path, most_segments=2) as builder:
        builder.build(list(TRACKS.items())[:6], commit_every=3)
    spoil(tmp_path, name)
    with (
        FingerprintIndexBuilder(tmp_path, most_segments=1) as builder,
        pytest.raises(FingerprintIndexError, match="remove it, and make it again"),
    ):
        builder.commit()


def spoil(folder: Path, name: str) -> None:
    """Overwrite the middle of arrays of all segments."""
    for path in folder.glob(f"segment-*/{name}.npy"):
        content = bytearray(path.read_bytes())
        content[128 + 4 : -8] = b"\xff" * (len(content) - 128 - 4 - 8)
        path.write_bytes(content)


@pytest.mark.parametrize("name", ["tracks.json", "n_frames.npy", "positions-05.npy"])
def test_a_segment_that_lost_a_file_says_what_to_do(tmp_path: Path, name: str) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([("a", TRACKS["track-0"])])
    (path,) = tmp_path.glob(f"segment-*/{name}")
    whole = path.read_bytes()

    def damage() -> Iterator[None]:
        for content in (b"", whole[:3], whole[:-1]):
            path.write_bytes(content)
            yield
        path.unlink()
        yield

    for _ in damage():
        with pytest.raises(FingerprintIndexError, match="remove it, and make it again"):
            FingerprintIndex.open(tmp_path)
        with (
            pytest.raises(FingerprintIndexError, match="is damaged"),
            FingerprintIndexBuilder(tmp_path),
        ):
            pass


def test_a_segment_is_on_the_disk_before_the_manifest_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []

    def record(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fsync", record)
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([("a", TRACKS["track-0"])])
    (segment,) = tmp_path.glob("segment-*")
    before = synced[: synced.index("manifest.json.new")]
    assert set(before) == {segment.name, *(path.name for path in segment.iterdir())}
    assert synced[-1] == tmp_path.name


def _query_in_child(folder: Path) -> str:
    return ask(FingerprintIndex.open(folder), excerpt(TRACKS["track-0"], 12))[0].track_key


def test_processes_share_an_index(tmp_path: Path) -> None:
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([("track-0", TRACKS["track-0"])])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_query_in_child, (tmp_path,)) == "track-0"


def clip(fingerprint: Fingerprint) -> Clip:
    return Clip(10.0, fingerprint, closer(fingerprint, fingerprint), b"")


async def test_the_recogniser_gives_the_catalogs_identity(tmp_path: Path) -> None:
    known = TrackIdentity(artist="A", title="T", source="catalog")
    recogniser = LocalRecogniser(tmp_path, {"track-0": known}.get)
    asked = clip(excerpt(TRACKS["track-0"], 20))
    assert not recogniser.accepts(asked)
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([("track-0", TRACKS["track-0"])])
    assert recogniser.accepts(asked)
    found = await recogniser.recognise(asked)
    assert found is not None
    assert found.identity == known
    assert found.confidence >= 95
    assert await recogniser.recognise(clip(track(500, 10))) is None
    worn = excerpt(TRACKS["track-0"], 20, kept=0.05)
    assert await recogniser.recognise(clip(worn)) is None
    assert await recogniser.recognise(Clip(10.0, worn, asked.closer, b"")) == found
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([("track-1", TRACKS["track-1"])])
    found = await recogniser.recognise(clip(excerpt(TRACKS["track-1"], 20)))
    assert found is not None
    assert found.identity == TrackIdentity(title="track-1", source="local")


async def test_the_recogniser_passes_over_what_the_library_has_no_longer(tmp_path: Path) -> None:
    gone, here = "trk_01ARZ3NDEKTSV4RRFFQ69G5FAV", "trk_01BX5ZZKBKACTAV9WEVGEMMVRZ"
    known = TrackIdentity(artist="A", title="T", source="library")
    asked = clip(excerpt(TRACKS["track-0"], 20))
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([(gone, TRACKS["track-0"])])
    recogniser = LocalRecogniser(tmp_path, {here: known}.get)
    assert await recogniser.recognise(asked) is None
    with FingerprintIndexBuilder(tmp_path) as builder:
        builder.build([(here, TRACKS["track-0"])])
    found = await recogniser.recognise(asked)
    assert found is not None
    assert found.identity == known


async def test_a_damaged_index_is_a_failure_and_not_a_miss(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    recogniser = LocalRecogniser(tmp_path, lambda _: None)
    with pytest.raises(ProviderUnavailableError, match="cannot be read"):
        await recogniser.recognise(clip(TRACKS["track-0"]))
