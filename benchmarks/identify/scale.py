"""Look-ups in a fingerprint index of 100,000 tracks.

The music is that of `benchmarks.identify.music`; all other tracks are synthetic postings: hashes of
triplets drawn from the real ones and moved by a few cells (a kernel density estimate), at random
times. So a query meets as many chance hits as in a real catalog of that size. The landmarks of
synthetic tracks are those of the real ones, in turn, and so are their sub-fingerprints, transposed.
Clips of music that is not indexed show how often chance alone passes for a match. The third look,
which has its own time limit, is timed separately.
"""

import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.distortions import RATE, with_noise
from benchmarks.identify.music import decode_stereo, find_tracks
from benchmarks.report import Options, Result, Target
from models.fingerprint.hashes import INDEX_PARTNERS, INDEX_TRIPLETS, hash_cells, triplets
from models.fingerprint.landmarks import (
    FRAME_S,
    MODEL_ID,
    SAMPLE_RATE,
    CloserLook,
    Fingerprint,
)
from models.fingerprint.subfingerprints import HOP_LENGTH, N_BANDS, to_subfingerprints
from pipelines.audio.waveform import Waveform
from pipelines.fingerprint.make import Fingerprinter
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.index import FingerprintIndex, IndexMatch
from serve_app.providers.fingerprints.kept_landmarks import LandmarkBlocks, to_blocks
from serve_app.providers.fingerprints.manifest import (
    Manifest,
    SegmentEntry,
    read_manifest,
    write_manifest,
)
from serve_app.providers.fingerprints.segment import (
    N_SHARDS,
    SHARD_BITS,
    track_span,
    write_segment,
)
from serve_app.providers.recognisers.own_index import MIN_CONFIDENCE

NAME = "identify_scale"
N_TRACKS = 100_000
TRACK_S = 210.0
SPREAD_CELLS = 1.5
N_DISTINCT = 16_000_000
"""Hashes drawn; each is used for several postings, which changes no expected number of hits."""
N_REAL = 40
N_UNKNOWN_CLIPS = 3
N_COLD = 20
LENGTHS_S = (10, 5)

Query = tuple[str | None, str, int, tuple[Fingerprint, CloserLook]]
"""Track (None: not indexed), distortion, seconds, the clip's landmarks and its closer look."""


def run(options: Options) -> Result:
    """Measure; writes 6 GB into the temporary folder, a tenth of it when quick."""
    torch.set_num_threads(1)
    tracks = [track for track in find_tracks() if not track.is_synthetic]
    known = [track for track in tracks if track.is_known]
    if not known:
        return Result(NAME, skipped="no music: run python -m benchmarks.identify.music")
    fingerprinter = Fingerprinter()
    queries: list[Query] = []
    real: dict[str, Fingerprint] = {}
    rng = np.random.default_rng(0)
    for track in known[:: max(1, len(known) // N_REAL)]:
        audio = decode_stereo(track.path)
        if audio is None:
            continue
        real[track.key] = fingerprinter.make_fingerprints([Waveform(audio)])[0]
        queries += _clips(track.key, audio, fingerprinter, rng)
    for track in () if options.is_quick else tracks:
        audio = None if track.is_known else decode_stereo(track.path)
        if audio is not None:
            for _ in range(N_UNKNOWN_CLIPS):
                queries += _clips(None, audio, fingerprinter, rng)
    n_tracks = N_TRACKS // 10 if options.is_quick else N_TRACKS
    with tempfile.TemporaryDirectory() as folder:
        build_s = build(Path(folder), real, n_tracks)
        return _measure(Path(folder), queries, build_s, options.rounds)


def _clips(
    key: str | None,
    audio: NDArray[np.float32],
    fingerprinter: Fingerprinter,
    rng: np.random.Generator,
) -> Iterator[Query]:
    """Clips from one random place, clean and in noise."""
    start = int(rng.uniform(0, audio.shape[1] - LENGTHS_S[0] * RATE))
    for length_s in LENGTHS_S:
        clip = audio[:, start : start + length_s * RATE]
        noisy = with_noise(clip, 5, rng, is_pink=True)
        for name, heard in (("clean", clip), ("pink noise 5 dB", noisy)):
            waveform = Waveform(np.ascontiguousarray(heard))
            yield key, name, length_s, fingerprinter.make_query(waveform)


def build(folder: Path, real: dict[str, Fingerprint], n_tracks: int) -> float:
    """Write an index of real tracks and ``n_tracks`` synthetic ones; return the CPU seconds."""
    start = time.process_time()
    with FingerprintIndexBuilder(folder) as builder:
        builder.build(real.items())
    measures = np.concatenate(
        [triplets(f, INDEX_PARTNERS, INDEX_TRIPLETS)[1] for f in real.values()]
    )
    real_s = sum(f.duration_s for f in real.values())
    n_postings = round(len(measures) / real_s * TRACK_S * n_tracks)
    span = track_span(round(TRACK_S / FRAME_S))
    landmarks = [_first_landmarks(fingerprint, span) for fingerprint in real.values()]
    rows = [
        _transposed(fingerprint.subfingerprints, semitones)
        for semitones in range(1, N_BANDS)
        for fingerprint in real.values()
    ]
    turns = range(n_tracks)
    starts = np.arange(n_tracks, dtype=np.int64) * span
    write_segment(
        folder / "segment-synthetic",
        [f"synthetic-{i}" for i in range(n_tracks)],
        starts,
        n_tracks * span,
        n_postings,
        _shards(measures, n_postings, n_tracks * span),
        sum(len(landmarks[i % len(landmarks)].frames) for i in turns),
        (landmarks[i % len(landmarks)] for i in turns),
        [rows[i % len(rows)] for i in turns],
    )
    entry = SegmentEntry("segment-synthetic", n_tracks, n_postings)
    write_manifest(folder, Manifest((*read_manifest(folder).segments, entry)))
    return time.process_time() - start


def _first_landmarks(fingerprint: Fingerprint, span: int) -> LandmarkBlocks:
    first = fingerprint.frames < TRACK_S / FRAME_S
    return to_blocks(
        Fingerprint(
            fingerprint.frames[first],
            fingerprint.pitches[first],
            fingerprint.prominences[first],
            round(TRACK_S / FRAME_S),
        ),
        span,
    )


def _transposed(rows: NDArray[np.uint64], semitones: int) -> NDArray[np.uint64]:
    """The first `TRACK_S` of sub-fingerprints, transposed by some semitones."""
    first = rows[: round(TRACK_S * SAMPLE_RATE / HOP_LENGTH)]
    bits = np.unpackbits(first[:, None].view(np.uint8), axis=1)
    return to_subfingerprints(np.roll(bits, semitones, axis=1).astype(np.float32))


def _shards(
    measures: NDArray[np.float64], n_postings: int, n_frames: int
) -> Iterator[tuple[NDArray[np.uint32], NDArray[np.uint32]]]:
    rng = np.random.default_rng(1)
    parts = []
    for _ in range(-(-N_DISTINCT // 2_000_000)):
        drawn = measures[rng.integers(0, len(measures), 2_000_000)]
        moved = drawn + rng.normal(0, SPREAD_CELLS, drawn.shape)
        parts.append(hash_cells(np.floor(moved).astype(np.int64)))
    hashes = np.sort(np.concatenate(parts))
    edges = np.searchsorted(hashes, np.arange(1, N_SHARDS, dtype=np.uint64) << (32 - SHARD_BITS))
    for mine in np.split(hashes, edges):
        total = round(n_postings * len(mine) / len(hashes))
        repeated = np.repeat(mine, -(-total // len(mine)))[:total]
        yield repeated, rng.integers(0, n_frames, total, dtype=np.uint32)


def _evict(folder: Path) -> None:
    """Drop the index from the page cache, as after a reboot."""
    for path in folder.rglob("*.npy"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class _TimedIndex(FingerprintIndex):
    """Records how long its third looks take.

    Attributes:
        third_ms: CPU milliseconds of each.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.third_ms: list[float] = []

    def by_likeness(self, closer: CloserLook) -> list[IndexMatch]:
        start = time.process_time()
        found = super().by_likeness(closer)
        self.third_ms.append(1000 * (time.process_time() - start))
        return found


def _first_look_ups(
    folder: Path, queries: list[Query], *, is_warm: bool
) -> tuple[float, list[float]]:
    """Seconds to open (and warm) an evicted index, and milliseconds of its first look-ups."""
    _evict(folder)
    start = time.perf_counter()
    index = FingerprintIndex.open(folder)
    if is_warm:
        index.warm()
    opened_s = time.perf_counter() - start
    spent = []
    for _, _, _, landmarks in queries[:N_COLD]:
        start = time.perf_counter()
        index.query(*landmarks)
        spent.append(1000 * (time.perf_counter() - start))
    return opened_s, spent


def _measure(folder: Path, queries: list[Query], build_s: float, rounds: int) -> Result:
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    known = [query for query in queries if query[0] is not None]
    _, not_warmed = _first_look_ups(folder, known, is_warm=False)
    warm_up_s, warmed = _first_look_ups(folder, known, is_warm=True)
    index = _TimedIndex(folder)
    index.warm()
    first: list[float] = []
    later: list[float] = []
    n_right: dict[tuple[str, int], list[bool]] = {}
    accepted: list[bool] = []
    for turn in range(max(rounds, 2)):
        for key, name, length_s, landmarks in queries if turn == 0 else known:
            n_third = len(index.third_ms)
            start = time.process_time()
            matches = index.query(*landmarks)
            spent_ms = 1000 * (time.process_time() - start) - sum(index.third_ms[n_third:])
            (first if turn == 0 else later).append(spent_ms)
            if turn == 0:
                is_accepted = bool(matches) and matches[0].confidence >= MIN_CONFIDENCE
                if key is None:
                    accepted.append(is_accepted)
                else:
                    is_right = is_accepted and matches[0].track_key == key
                    n_right.setdefault((name, length_s), []).append(is_right)
    rows: list[tuple[object, ...]] = [
        (f"{name}, {length_s} s", f"{100 * np.mean(right):.1f} %", len(right))
        for (name, length_s), right in n_right.items()
    ]
    rows.append(
        ("not indexed: accepted", f"{100 * np.mean(accepted or [False]):.2f} %", len(accepted))
    )
    values = {
        "fingerprint": MODEL_ID,
        "tracks": index.n_tracks,
        "size_mb": round(index.size_bytes / 1e6),
        "mb_per_1000_tracks": round(index.size_bytes / 1e3 / index.n_tracks, 1),
        "build_cpu_s": round(build_s),
        "look_up_cpu_ms": _percentiles(later),
        "first_look_up_cpu_ms": _percentiles(first),
        "third_look_cpu_ms": _percentiles(index.third_ms),
        "n_third_looks": len(index.third_ms),
        "first_look_up_wall_ms_from_disk": _percentiles(not_warmed),
        "first_look_up_wall_ms_warmed": _percentiles(warmed),
        "warm_up_from_disk_s": round(warm_up_s, 2),
        "false_accepts": sum(accepted),
        "n_unknown_queries": len(accepted),
        "peak_memory_mb_before_look_ups": round(before_mb),
    }
    return Result(
        NAME,
        values=values,
        columns=("clip", "right and accepted", "n"),
        rows=rows,
        targets=[
            Target("look-up by hashes CPU ms p95", _percentiles(later)["p95"], 50, at_least=False),
            Target(
                "first look-up by hashes CPU ms p95", _percentiles(first)["p95"], 50, at_least=False
            ),
            Target("false accepts", float(np.mean(accepted or [False])), 0.001, at_least=False),
        ],
    )


def _percentiles(spent_ms: list[float]) -> dict[str, float]:
    found = np.percentile(spent_ms or [0.0], [50, 95, 99]).round(2).tolist()
    return dict(zip(("p50", "p95", "p99"), found, strict=True))
