"""Look-ups in a fingerprint index of 100,000 tracks.

The music is that of `benchmarks.identify_set`; all other tracks are synthetic postings: hashes of
triplets drawn from the real ones and moved by a few cells (a kernel density estimate), at random
times. So a query meets as many chance hits as in a real catalog of that size.
"""

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.identify_distortions import RATE, with_noise
from benchmarks.identify_set import decode_stereo, find_tracks
from benchmarks.report import Options, Result, Target
from models.fingerprint_hashes import INDEX_PARTNERS, INDEX_TRIPLETS, hash_cells, triplets
from models.fingerprint_landmarks import FRAME_S, Fingerprint
from pipelines.audio import Waveform
from pipelines.identify import Fingerprinter
from serve_app.providers.fingerprint_builder import FingerprintIndexBuilder
from serve_app.providers.fingerprint_index import FingerprintIndex
from serve_app.providers.fingerprint_manifest import (
    Manifest,
    SegmentEntry,
    read_manifest,
    write_manifest,
)
from serve_app.providers.fingerprint_segment import (
    N_SHARDS,
    SHARD_BITS,
    TRACK_GAP,
    write_segment,
)

NAME = "identify_scale"
N_TRACKS = 100_000
TRACK_S = 210.0
SPREAD_CELLS = 1.5
N_DISTINCT = 16_000_000
"""Hashes drawn; each is used for several postings, which changes no expected number of hits."""
N_REAL = 40
LENGTHS_S = (10, 5)


def run(options: Options) -> Result:
    """Measure; writes 6 GB into the temporary folder, a tenth of it when quick."""
    torch.set_num_threads(1)
    tracks = [track for track in find_tracks() if track.is_known and not track.is_synthetic]
    if not tracks:
        return Result(NAME, skipped="no music: run python -m benchmarks.identify_set")
    fingerprinter = Fingerprinter()
    queries: list[tuple[str, str, int, Fingerprint]] = []
    real: dict[str, Fingerprint] = {}
    rng = np.random.default_rng(0)
    for track in tracks[:: max(1, len(tracks) // N_REAL)]:
        audio = decode_stereo(track.path)
        if audio is None:
            continue
        real[track.key] = fingerprinter.fingerprints([Waveform(audio)])[0]
        start = int(rng.uniform(0, audio.shape[1] - LENGTHS_S[0] * RATE))
        for length_s in LENGTHS_S:
            clip = audio[:, start : start + length_s * RATE]
            noisy = with_noise(clip, 5, rng, is_pink=True)
            for name, heard in (("clean", clip), ("pink noise 5 dB", noisy)):
                waveform = Waveform(np.ascontiguousarray(heard))
                queries.append(
                    (track.key, name, length_s, fingerprinter.fingerprints([waveform])[0])
                )
    n_tracks = N_TRACKS // 10 if options.is_quick else N_TRACKS
    with tempfile.TemporaryDirectory() as folder:
        build_s = build(Path(folder), real, n_tracks)
        index = FingerprintIndex.open(Path(folder))
        return _measure(index, queries, build_s, options.rounds)


def build(folder: Path, real: dict[str, Fingerprint], n_tracks: int) -> float:
    """Write an index of real tracks and ``n_tracks`` synthetic ones; CPU seconds."""
    start = time.process_time()
    with FingerprintIndexBuilder(folder) as builder:
        builder.build(real.items())
    measures = np.concatenate(
        [triplets(f, INDEX_PARTNERS, INDEX_TRIPLETS)[1] for f in real.values()]
    )
    real_s = sum(f.duration_s for f in real.values())
    n_postings = round(len(measures) / real_s * TRACK_S * n_tracks)
    span = round(TRACK_S / FRAME_S) + TRACK_GAP
    starts = np.arange(n_tracks, dtype=np.int64) * span
    write_segment(
        folder / "segment-synthetic",
        [f"synthetic-{i}" for i in range(n_tracks)],
        starts,
        n_tracks * span,
        n_postings,
        _shards(measures, n_postings, n_tracks * span),
    )
    entry = SegmentEntry("segment-synthetic", n_tracks, n_postings)
    write_manifest(folder, Manifest((*read_manifest(folder).segments, entry)))
    return time.process_time() - start


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


def _measure(
    index: FingerprintIndex,
    queries: list[tuple[str, str, int, Fingerprint]],
    build_s: float,
    rounds: int,
) -> Result:
    before_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    cold: list[float] = []
    warm: list[float] = []
    n_right: dict[tuple[str, int], list[bool]] = {}
    for turn in range(max(rounds, 2)):
        for key, name, length_s, fingerprint in queries:
            start = time.process_time()
            matches = index.query(fingerprint)
            spent_ms = 1000 * (time.process_time() - start)
            (cold if turn == 0 else warm).append(spent_ms)
            if turn == 0:
                is_right = bool(matches) and matches[0].track_key == key
                n_right.setdefault((name, length_s), []).append(
                    is_right and matches[0].confidence >= 50
                )
    rows = [
        (f"{name}, {length_s} s", f"{100 * np.mean(right):.1f} %", len(right))
        for (name, length_s), right in n_right.items()
    ]
    p50, p95, p99 = np.percentile(warm, [50, 95, 99])
    values = {
        "tracks": index.n_tracks,
        "size_mb": round(index.size_bytes / 1e6),
        "mb_per_1000_tracks": round(index.size_bytes / 1e3 / index.n_tracks, 1),
        "build_cpu_s": round(build_s),
        "look_up_cpu_ms": {"p50": p50, "p95": p95, "p99": p99},
        "first_look_up_cpu_ms_p95": float(np.percentile(cold, 95)),
        "peak_memory_mb_before_look_ups": round(before_mb),
    }
    return Result(
        NAME,
        values=values,
        columns=("clip", "right and accepted", "n"),
        rows=rows,
        targets=[Target("look-up CPU ms p95", float(p95), 50, at_least=False)],
    )
