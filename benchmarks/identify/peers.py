"""The same clips with chromaprint, AcoustID's fingerprint, against ours.

Chromaprint's share is an upper bound: a clip is compared with every place of every indexed track by
bit errors, and no inverted index can do better. A match is accepted up to the error rate that
accepts 0.1 % of unknown clips. All known tracks are indexed; clips, known and unknown, are from the
packages on which nothing of ours was chosen.
"""

import ctypes
import ctypes.util
import tempfile
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.distortions import DISTORTIONS, RATE
from benchmarks.identify.music import decode_stereo, find_tracks
from benchmarks.report import Options, Result
from pipelines.audio.resample import resample
from pipelines.audio.waveform import Waveform
from pipelines.fingerprint.make import Fingerprinter
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.index import FingerprintIndex
from serve_app.providers.recognisers.own_index import MIN_CONFIDENCE

NAME = "identify_peers"
LENGTHS_S = (10, 5)
CLIP_S = 12
CHROMAPRINT_RATE = 11_025
FALSE_ACCEPTS = 0.001
SAME_RECORDING = 0.15
"""An unknown track whose clean clip differs from an indexed one in fewer bits is that recording,
from another package, and says nothing about false accepts."""

Items = NDArray[np.uint32]
Clip = tuple[str | None, NDArray[np.float32]]
"""The indexed track that it is from, and its samples ``[C, T]`` at 44.1 kHz."""


class Chromaprint:
    """libchromaprint's raw fingerprints: 32 bits, about eight times a second."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.chromaprint_new.restype = ctypes.c_void_p

    def __call__(self, audio: NDArray[np.float32]) -> Items:
        """Fingerprint mono or stereo ``[C, T]`` at 44.1 kHz."""
        mono = resample(audio.mean(axis=0, dtype=np.float32), RATE, CHROMAPRINT_RATE)
        pcm = np.ascontiguousarray((np.clip(mono, -1, 1) * 32767).astype(np.int16))
        library = self._library
        context = ctypes.c_void_p(library.chromaprint_new(1))
        items = ctypes.POINTER(ctypes.c_uint32)()
        size = ctypes.c_int()
        try:
            library.chromaprint_start(context, CHROMAPRINT_RATE, 1)
            library.chromaprint_feed(context, pcm.ctypes.data_as(ctypes.c_void_p), len(pcm))
            library.chromaprint_finish(context)
            library.chromaprint_get_raw_fingerprint(
                context, ctypes.byref(items), ctypes.byref(size)
            )
            found = np.array(items[: size.value], np.uint32)
            library.chromaprint_dealloc(items)
        finally:
            library.chromaprint_free(context)
        return found


def least_error(clip: Items, track: Items) -> float:
    """Lowest share of differing bits over all places of a clip in a track; 1 if it does not fit."""
    n = len(clip)
    if n == 0 or n > len(track):
        return 1.0
    places = np.lib.stride_tricks.sliding_window_view(track, n)
    errors = np.bitwise_count(places ^ clip).sum(axis=1, dtype=np.int64)
    return float(errors.min()) / (32 * n)


def errors_of(clip: Items, tracks: dict[str, Items]) -> dict[str, float]:
    """Lowest share of differing bits of a clip in each track."""
    return {key: least_error(clip, track) for key, track in tracks.items()}


def run(options: Options) -> Result:
    """Measure on the recorded tracks; takes one core about an hour, five minutes when quick."""
    path = ctypes.util.find_library("chromaprint")
    if path is None:
        return Result(NAME, skipped="no libchromaprint")
    torch.set_num_threads(1)
    tracks = [
        track
        for track in find_tracks()
        if (track.is_known or track.is_reported) and not track.is_synthetic
    ]
    if options.is_quick:
        tracks = tracks[::8]
    if not any(track.is_known for track in tracks):
        return Result(NAME, skipped="no music: run python -m benchmarks.identify.music")
    fingerprinter, chromaprint = Fingerprinter(), Chromaprint(path)
    theirs: dict[str, Items] = {}
    clips: list[Clip] = []
    with tempfile.TemporaryDirectory() as folder:
        with FingerprintIndexBuilder(Path(folder)) as builder:
            for number, track in enumerate(tracks):
                audio = decode_stereo(track.path)
                if audio is None:
                    continue
                if track.is_known:
                    builder.add(track.key, fingerprinter.make_fingerprints([Waveform(audio)])[0])
                    theirs[track.key] = chromaprint(audio)
                    if not track.is_reported:
                        continue
                last = audio.shape[1] - CLIP_S * RATE
                start = int(np.random.default_rng(number).uniform(0, last))
                clip = audio[:, start : start + CLIP_S * RATE].copy()
                clips.append((track.key if track.is_known else None, clip))
            builder.commit()
        return _compare(
            FingerprintIndex.open(Path(folder)), fingerprinter, chromaprint, theirs, clips
        )


def _compare(
    index: FingerprintIndex,
    fingerprinter: Fingerprinter,
    chromaprint: Chromaprint,
    theirs: dict[str, Items],
    clips: list[Clip],
) -> Result:
    ours_right: dict[tuple[str, int], list[bool]] = {}
    their_best: dict[tuple[str, int], list[tuple[bool, float]]] = {}
    unknown: dict[int, list[float]] = {length_s: [] for length_s in LENGTHS_S}
    n_same = 0
    for number, (key, clip) in enumerate(clips):
        if key is None and min(errors_of(chromaprint(clip), theirs).values()) < SAME_RECORDING:
            n_same += 1
            continue
        for name, distort in DISTORTIONS.items():
            distorted = distort(clip, np.random.default_rng(number))
            for length_s in LENGTHS_S:
                heard = np.ascontiguousarray(distorted[:, : length_s * RATE])
                items = chromaprint(heard)
                errors = errors_of(items, theirs)
                best = min(errors, key=lambda other: errors[other])
                if key is None:
                    unknown[length_s].append(errors[best])
                    continue
                their_best.setdefault((name, length_s), []).append((best == key, errors[best]))
                matches = index.query(*fingerprinter.make_query(Waveform(heard)))
                ours_right.setdefault((name, length_s), []).append(
                    bool(matches)
                    and matches[0].track_key == key
                    and matches[0].confidence >= MIN_CONFIDENCE
                )
    limits = {
        length_s: float(np.quantile(errors, FALSE_ACCEPTS)) if errors else 0.5
        for length_s, errors in unknown.items()
    }
    rows = []
    for (name, length_s), ours in ours_right.items():
        best_of = their_best[name, length_s]
        accepted = [right and error < limits[length_s] for right, error in best_of]
        top = [right for right, _ in best_of]
        rows.append((name, length_s, _percent(ours), _percent(accepted), _percent(top), len(ours)))
    return Result(
        NAME,
        values={
            "rows": rows,
            "chromaprint_error_limits": limits,
            "n_tracks": len(theirs),
            "n_unknown_tracks_that_are_indexed": n_same,
            "n_unknown_clips": {s: len(errors) for s, errors in unknown.items()},
        },
        columns=("distortion", "s", "ours, %", "chromaprint, %", "its best guess, %", "n"),
        rows=rows,
    )


def _percent(right: list[bool]) -> float:
    return round(100 * float(np.mean(right)), 1)
