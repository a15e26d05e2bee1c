"""How well and how fast the local fingerprint identifies clips, per distortion.

Index: every known track of `benchmarks.identify.music`. Queries: clips from random places,
distorted, cut to 10 and 5 s. Unknown tracks, and known ones with their own entry left out, tell the
false accepts. Figures are of the half of the tracks that the calibration was not fitted on.
"""

import json
import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.distortions import DISTORTIONS, RATE
from benchmarks.identify.music import Track, decode_stereo, find_tracks
from benchmarks.report import Options, Result, Target
from models.fingerprint.landmarks import MODEL_ID
from pipelines.audio.waveform import Waveform
from pipelines.fingerprint.make import Fingerprinter
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.index import (
    CALIBRATION,
    Calibration,
    FingerprintIndex,
    IndexMatch,
)
from serve_app.providers.recognisers.own_index import MIN_CONFIDENCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "identify"
LENGTHS_S = (10, 5)
CLIP_S = 12.0
"""Cut before the distortion, so that a clip that is played faster is still long enough."""
N_CLIPS = 2
N_CLIPS_UNKNOWN = 3
UNKNOWN_DISTORTIONS = ("clean", "MP3 64 kbit/s", "pink noise 5 dB", "speed +2 %", "phone band")
QUIETEST = 0.01
CURVE = np.array([0.0, 1, 10, 30, 50, 70, 90, 99, 100])
SHARED = "hr3"
"""These tracks of one suite share passages: one found for another is no false accept."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the index said of one clip."""

    track: Track
    distortion: str
    length_s: int
    matches: list[IndexMatch]
    query_s: float

    @property
    def is_right(self) -> bool:
        """Whether the first match is the clip's own track."""
        return bool(self.matches) and self.matches[0].track_key == self.track.key

    @property
    def is_accepted(self) -> bool:
        """Whether the service would have called it a match."""
        return bool(self.matches) and self.matches[0].confidence >= MIN_CONFIDENCE


@dataclass(frozen=True, slots=True)
class Judged:
    """The best candidate of a query and whether it is right, for the calibration."""

    votes: int
    spans: int
    n_tracks: int
    is_right: bool
    is_held_out: bool

    def confidence(self, calibration: Calibration = CALIBRATION) -> int:
        """What the calibration says of it, in percent."""
        return calibration.confidence(self.votes, self.spans, self.n_tracks)


def run(options: Options) -> Result:
    """Measure; about 20 minutes of one core, three when quick."""
    torch.set_num_threads(1)
    tracks = find_tracks()
    if options.is_quick:
        tracks = tracks[::8]
    if not any(track.is_known for track in tracks):
        return Result(NAME, skipped="no music: run python -m benchmarks.identify.music")
    fingerprinter = Fingerprinter()
    clips: list[tuple[Track, int, NDArray[np.float32]]] = []
    with tempfile.TemporaryDirectory() as folder:
        index, building = _build(Path(folder), tracks, fingerprinter, clips)
        answers = [_ask(index, fingerprinter, *asked) for asked in _queries(clips)]
    judged = [one for answer in answers for one in _judge(answer, index.n_tracks)]
    held_out = [one for one in judged if one.is_held_out]
    return _result(answers, held_out, building | {"fitted": fit(judged)})


def _build(
    folder: Path,
    tracks: list[Track],
    fingerprinter: Fingerprinter,
    clips: list[tuple[Track, int, NDArray[np.float32]]],
) -> tuple[FingerprintIndex, dict[str, object]]:
    """Index the known tracks; put clips of all tracks aside on the way, since decoding is slow."""
    music_s = extract_s = 0.0
    n_postings = n_tracks = 0
    with FingerprintIndexBuilder(folder) as builder:
        for number, track in enumerate(tracks):
            audio = decode_stereo(track.path)
            if audio is None:
                continue
            rng = np.random.default_rng(number)
            n_clips = N_CLIPS if track.is_known else N_CLIPS_UNKNOWN
            clips += [(track, k, _cut(audio, rng)) for k in range(n_clips)]
            if not track.is_known:
                continue
            start = time.process_time()
            fingerprint = fingerprinter.make_fingerprints([Waveform(audio)])[0]
            n_postings += builder.add(track.key, fingerprint)
            extract_s += time.process_time() - start
            music_s += audio.shape[1] / RATE
            n_tracks += 1
        start = time.process_time()
        builder.commit()
        write_s = time.process_time() - start
    index = FingerprintIndex.open(folder)
    per_track = 1000 * 210 / music_s
    return index, {
        "fingerprint": MODEL_ID,
        "tracks": n_tracks,
        "music_s": round(music_s),
        "hashes_per_s": round(n_postings / music_s, 1),
        "cpu_s_per_1000_tracks_of_210_s": round((extract_s + write_s) * per_track),
        "mb_per_1000_tracks_of_210_s": round(n_postings * 6 * per_track / 1e6),
    }


def _cut(audio: NDArray[np.float32], rng: np.random.Generator) -> NDArray[np.float32]:
    """A clip from a random place that is not silent."""
    length = round(CLIP_S * RATE)
    clip = audio[:, :length]
    for _ in range(20):
        start = int(rng.uniform(0, audio.shape[1] - length))
        clip = audio[:, start : start + length]
        if np.sqrt(np.mean(np.square(clip))) > QUIETEST:
            break
    return clip.copy()


def _queries(
    clips: list[tuple[Track, int, NDArray[np.float32]]],
) -> Iterator[tuple[Track, str, int, NDArray[np.float32]]]:
    for track, k, clip in clips:
        for name, distort in DISTORTIONS.items():
            if not track.is_known and name not in UNKNOWN_DISTORTIONS:
                continue
            distorted = distort(clip, np.random.default_rng(k))
            for length_s in LENGTHS_S:
                yield track, name, length_s, distorted[:, : length_s * RATE]


def _ask(
    index: FingerprintIndex,
    fingerprinter: Fingerprinter,
    track: Track,
    distortion: str,
    length_s: int,
    audio: NDArray[np.float32],
) -> Answer:
    fingerprint = fingerprinter.make_fingerprints([Waveform(np.ascontiguousarray(audio))])[0]
    start = time.process_time()
    matches = index.query(fingerprint)
    return Answer(track, distortion, length_s, matches, time.process_time() - start)


def _judge(answer: Answer, n_tracks: int) -> Iterator[Judged]:
    """The answer as it is; and as it would be if the clip's own track were not indexed."""
    others = [m for m in answer.matches if m.track_key != answer.track.key]
    cases = [(answer.matches, answer.is_right)]
    if answer.track.is_known and not answer.track.key.startswith(SHARED):
        cases.append((others, False))
    for matches, is_right in cases:
        if matches:
            first = matches[0]
            yield Judged(first.score, first.spans, n_tracks, is_right, answer.track.is_held_out)


def fit(judged: list[Judged]) -> dict[str, float]:
    """Fit the calibration on the tracks that are not held out: logistic regression, small ridge.

    The number of tracks is no feature: its weight is -1, see `Calibration`.
    """
    from scipy.optimize import minimize

    rows = [j for j in judged if not j.is_held_out]
    x = np.array([[1, *np.log1p([j.votes, j.spans])] for j in rows])
    y = np.array([j.is_right for j in rows])
    size = np.log([j.n_tracks for j in rows])

    def loss(w: NDArray[np.float64]) -> float:
        z = x @ w - size
        return float(np.mean(np.logaddexp(0, z) - y * z) + 1e-4 * np.sum(np.square(w[1:])))

    weights = minimize(loss, np.zeros(3)).x
    names = ("bias", "votes", "spans")
    return {name: round(float(w), 2) for name, w in zip(names, weights, strict=True)}


def reliability(
    judged: list[Judged], calibration: Calibration = CALIBRATION
) -> list[tuple[float, float, int]]:
    """Stated confidence, share that was right, and count, per range of `CURVE`."""
    stated = np.array([j.confidence(calibration) for j in judged])
    right = np.array([j.is_right for j in judged])
    points = []
    for low, high in pairwise(CURVE):
        inside = (stated >= low) & (stated < high)
        if inside.any():
            points.append(
                (float(stated[inside].mean()), 100 * float(right[inside].mean()), int(inside.sum()))
            )
    return points


def _false_accepts(judged: list[Judged]) -> tuple[int, int]:
    """How many wrong candidates would be accepted, of how many queries without a right one."""
    wrong = [j for j in judged if not j.is_right]
    accepted = [j for j in wrong if j.confidence() >= MIN_CONFIDENCE]
    return len(accepted), len(wrong)


def _share(answers: list[Answer], distortion: str, length_s: int) -> float:
    asked = [a for a in answers if (a.distortion, a.length_s) == (distortion, length_s)]
    return sum(a.is_right and a.is_accepted for a in asked) / len(asked) if asked else math.nan


def _result(answers: list[Answer], judged: list[Judged], building: dict[str, object]) -> Result:
    known = [a for a in answers if a.track.is_known and a.track.is_held_out]
    real = [a for a in known if not a.track.is_synthetic]
    rows = [
        (
            name,
            *(f"{100 * _share(group, name, s):.1f}" for s in LENGTHS_S for group in (known, real)),
        )
        for name in DISTORTIONS
    ]
    n_false, n_unknown = _false_accepts(judged)
    query_ms = np.array([1000 * a.query_s for a in answers])
    curve = reliability(judged)
    targets = [
        Target("clean 10 s", _share(known, "clean", 10), 0.98),
        Target("clean 5 s", _share(known, "clean", 5), 0.95),
        Target("pink noise 5 dB, 10 s", _share(known, "pink noise 5 dB", 10), 0.90),
        Target("white noise 5 dB, 10 s", _share(known, "white noise 5 dB", 10), 0.90),
        Target("speed +2 %, 10 s", _share(known, "speed +2 %", 10), 0.85),
        Target("speed -2 %, 10 s", _share(known, "speed -2 %", 10), 0.85),
        Target("false accepts", n_false / max(n_unknown, 1), 0.001, at_least=False),
    ]
    values = building | {
        "right_and_accepted": {f"{row[0]}": row[1:] for row in rows},
        "n_queries": len(known),
        "false_accepts": n_false,
        "n_unknown_queries": n_unknown,
        "query_cpu_ms_p50_p95": np.percentile(query_ms, [50, 95]).round(2).tolist(),
        "reliability": curve,
    }
    return Result(
        NAME,
        values=json.loads(json.dumps(values)),
        columns=("distortion", "10 s", "10 s real", "5 s", "5 s real"),
        rows=rows,
        targets=targets,
        draw=lambda axes: _draw(axes, curve),
    )


def _draw(axes: "Axes", curve: list[tuple[float, float, int]]) -> None:
    axes.plot([0, 100], [0, 100], linestyle=":", color="grey")
    axes.plot([p[0] for p in curve], [p[1] for p in curve], marker="o")
    axes.set_xlabel("confidence stated, %")
    axes.set_ylabel("right, %")
