"""How well and how fast the local fingerprint identifies clips, per distortion.

Index: the first `LONGEST_S` of every known track of `benchmarks.identify.music`. Queries: clips
from random places, distorted, cut to 10 and 5 s. Unknown tracks, and known ones with their own
entry left out, show the false accepts. Figures are for packages on which nothing was chosen, and
separately for those on which choices were made; after one look, after two, and after all three.
"""

import json
import math
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.distortions import DISTORTIONS, RATE, with_music
from benchmarks.identify.music import Track, decode_stereo, find_tracks
from benchmarks.report import Options, Result, Target
from models.fingerprint.hashes import query_hashes
from models.fingerprint.landmarks import MODEL_ID
from pipelines.audio.waveform import Waveform
from pipelines.fingerprint.make import Fingerprinter
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.confidence import MOST_SUPPORT, TRACKS_WEIGHT
from serve_app.providers.fingerprints.index import (
    SURE,
    FingerprintIndex,
    IndexMatch,
    best_matches,
)
from serve_app.providers.recognisers.own_index import MIN_CONFIDENCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "identify"
LENGTHS_S = (10, 5)
LONGEST_S = 150
CLIP_S = 12.0
"""Length before the distortion, so that a clip played faster is still long enough."""
N_CLIPS = 1
N_CLIPS_UNKNOWN = 3
CONDITIONS = (
    "clean",
    "MP3 64 kbit/s",
    "pink noise 5 dB",
    "white noise 5 dB",
    "speed +2 %",
    "speed -3 %",
    "phone band",
    "+12 dB, clipped",
    "pink noise 0 dB",
    "white noise 0 dB",
    "reverb",
)
OTHER_MUSIC = "other music 5 dB below"
"""The other music is a clip from an unknown track."""
UNKNOWN_CONDITIONS = ("clean", "pink noise 5 dB", "speed +2 %", "phone band")
QUIETEST = 0.01
CURVE = np.array([0.0, 1, 10, 30, 50, 70, 90, 99, 100])
SHARED = "hr3"
"""The tracks of this suite share passages: one found for another is not a false accept."""

Audio = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Case:
    """A query and the index's answers: by votes, by evidence, and by similarity.

    Attributes:
        first: Best first, by the votes for the usual landmarks, and their evidence if sure.
        again: By the evidence for matches of usual and dense landmarks, whether needed or not.
        compared: By the similarity of band changes to those of all tracks, whether needed or not.
        is_left_out: Whether the clip's own track was taken out of both.
    """

    track: Track
    distortion: str
    length_s: int
    first: list[IndexMatch]
    again: list[IndexMatch]
    compared: list[IndexMatch]
    is_left_out: bool = False

    @property
    def is_unsure(self) -> bool:
        """Whether the first look left a doubt."""
        return not self.first or self.first[0].confidence < SURE

    @property
    def is_still_unsure(self) -> bool:
        """Whether the second look left a doubt too."""
        return self.is_unsure and (not self.again or self.again[0].confidence < SURE)

    @property
    def final(self) -> list[IndexMatch]:
        """The index's final answer."""
        if not self.is_unsure:
            return self.first
        return best_matches([*self.again, *self.compared]) if self.is_still_unsure else self.again

    def is_named(self, matches: list[IndexMatch]) -> bool:
        """Whether the service would call it a match."""
        return bool(matches) and matches[0].confidence >= MIN_CONFIDENCE

    def is_right(self, matches: list[IndexMatch]) -> bool:
        """Whether the first match is the clip's own track."""
        return bool(matches) and matches[0].track_key == self.track.key

    def without_own_track(self) -> "Case":
        """The same clip, as if its track were not indexed."""
        own = self.track.key
        return Case(
            self.track,
            self.distortion,
            self.length_s,
            [m for m in self.first if m.track_key != own],
            [m for m in self.again if m.track_key != own],
            [m for m in self.compared if m.track_key != own],
            is_left_out=True,
        )


def run(options: Options) -> Result:
    """Measure; takes one core about 30 minutes, four when quick."""
    torch.set_num_threads(1)
    tracks = find_tracks()
    if options.is_quick:
        tracks = tracks[::8]
    if not any(track.is_known for track in tracks):
        return Result(NAME, skipped="no music: run python -m benchmarks.identify.music")
    fingerprinter = Fingerprinter()
    clips: list[tuple[Track, int, Audio]] = []
    with tempfile.TemporaryDirectory() as folder:
        index, building = _build(Path(folder), tracks, fingerprinter, clips)
        spent_ms: dict[str, list[float]] = {
            "landmarks": [],
            "first": [],
            "again": [],
            "compared": [],
        }
        cases = [_ask(index, fingerprinter, spent_ms, *asked) for asked in _queries(clips)]
    return result(cases, index.n_tracks, building | {"cpu_ms": _medians(spent_ms)})


def _build(
    folder: Path,
    tracks: list[Track],
    fingerprinter: Fingerprinter,
    clips: list[tuple[Track, int, Audio]],
) -> tuple[FingerprintIndex, dict[str, object]]:
    """Index the known tracks, and collect clips of all tracks meanwhile, since decoding is slow."""
    music_s = extract_s = 0.0
    n_postings = n_tracks = 0
    with FingerprintIndexBuilder(folder) as builder:
        for number, track in enumerate(tracks):
            audio = decode_stereo(track.path)
            if audio is None:
                continue
            audio = audio[:, : LONGEST_S * RATE]
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
        "music_s": round(music_s),
        "hashes_per_s": round(n_postings / music_s, 1),
        "cpu_s_per_1000_tracks_of_210_s": round((extract_s + write_s) * per_track),
        "mb_per_1000_tracks_of_210_s": round(index.size_bytes * per_track / 1e6),
    }


def _cut(audio: Audio, rng: np.random.Generator) -> Audio:
    """A clip from a random place that is not silent."""
    length = round(CLIP_S * RATE)
    clip = audio[:, :length]
    for _ in range(20):
        start = int(rng.uniform(0, audio.shape[1] - length))
        clip = audio[:, start : start + length]
        if np.sqrt(np.mean(np.square(clip))) > QUIETEST:
            break
    return clip.copy()


def _queries(clips: list[tuple[Track, int, Audio]]) -> Iterator[tuple[Track, str, int, Audio]]:
    others = [clip for track, _, clip in clips if not track.is_known]
    for number, (track, k, clip) in enumerate(clips):
        heard = {
            name: DISTORTIONS[name](clip, np.random.default_rng(k))
            for name in (CONDITIONS if track.is_known else UNKNOWN_CONDITIONS)
        }
        if track.is_known and others:
            heard[OTHER_MUSIC] = with_music(clip, others[number % len(others)], 5)
        for name, audio in heard.items():
            for length_s in LENGTHS_S:
                yield track, name, length_s, audio[:, : length_s * RATE]


def _ask(
    index: FingerprintIndex,
    fingerprinter: Fingerprinter,
    spent_ms: dict[str, list[float]],
    track: Track,
    distortion: str,
    length_s: int,
    audio: Audio,
) -> Case:
    times = [time.process_time()]
    fingerprint, closer = fingerprinter.make_query(Waveform(np.ascontiguousarray(audio)))
    times.append(time.process_time())
    found = index.look_up(query_hashes(fingerprint))
    first = index.by_votes(found, closer.evidence)
    times.append(time.process_time())
    found += index.look_up(query_hashes(closer.landmarks, is_dense=True))
    again = index.by_evidence(found, closer.evidence)
    times.append(time.process_time())
    compared = index.by_likeness(closer)
    times.append(time.process_time())
    for name, (begin, end) in zip(spent_ms, pairwise(times), strict=True):
        spent_ms[name].append(1000 * (end - begin))
    return Case(track, distortion, length_s, first, again, compared)


def _medians(spent_ms: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: np.percentile(ms, [50, 95]).round(2).tolist() for name, ms in spent_ms.items()}


def _with_left_out(cases: Sequence[Case]) -> list[Case]:
    left_out = [
        case.without_own_track()
        for case in cases
        if case.track.is_known and not case.track.key.startswith(SHARED)
    ]
    return [*cases, *left_out]


def fit(cases: Sequence[Case], n_tracks: int) -> dict[str, dict[str, float]]:
    """Fit `evidence_confidence` and `likeness_confidence` on doubtful unreported cases."""
    chosen_on = [case for case in cases if not case.track.is_reported and not case.is_left_out]
    evidence = [
        (_is_of(match, case), (math.log1p(match.spans), math.log(case.length_s), _bounded(match)))
        for case in chosen_on
        if case.is_unsure
        for match in case.again
    ]
    likeness = [
        (_is_of(match, case), (match.likeness, _bounded(match)))
        for case in chosen_on
        if case.is_still_unsure
        for match in case.compared
    ]
    return {
        "evidence": _fit(
            evidence, ("bias", "spans", "length", "support"), TRACKS_WEIGHT * math.log(n_tracks)
        ),
        "likeness": _fit(likeness, ("bias", "likeness", "support"), math.log(n_tracks)),
    }


def _is_of(match: IndexMatch, case: Case) -> bool:
    return case.track.is_known and match.track_key == case.track.key


def _bounded(match: IndexMatch) -> float:
    return min(match.support, MOST_SUPPORT)


def _fit(
    rows: Sequence[tuple[bool, tuple[float, ...]]], names: Sequence[str], size: float
) -> dict[str, float]:
    """Logistic regression with a small ridge, for odds that are ``size`` times smaller."""
    from scipy.optimize import minimize

    if not rows:
        return {}
    x = np.array([(1.0, *values) for _, values in rows])
    y = np.array([is_right for is_right, _ in rows])

    def loss(w: NDArray[np.float64]) -> float:
        z = x @ w - size
        return float(np.mean(np.logaddexp(0, z) - y * z) + 1e-4 * np.sum(np.square(w[1:])))

    weights = minimize(loss, np.zeros(len(names))).x
    return {name: round(float(w), 2) for name, w in zip(names, weights, strict=True)}


def reliability(cases: Sequence[Case]) -> list[tuple[float, float, int]]:
    """Stated confidence, share that was right, and count, per range of `CURVE`."""
    answered = [case for case in cases if case.final]
    stated = np.array([case.final[0].confidence for case in answered])
    right = np.array([case.is_right(case.final) for case in answered])
    points = []
    for low, high in pairwise(CURVE):
        inside = (stated >= low) & (stated < high)
        if inside.any():
            points.append(
                (float(stated[inside].mean()), 100 * float(right[inside].mean()), int(inside.sum()))
            )
    return points


def _after_two(case: Case) -> list[IndexMatch]:
    return case.again if case.is_unsure else case.first


LOOKS: Mapping[str, Callable[[Case], list[IndexMatch]]] = {
    "one look": lambda case: case.first,
    "two": _after_two,
    "three": lambda case: case.final,
}
"""Number of looks → the answer after at most that many."""


def _named(case: Case, looks: str) -> bool:
    matches = LOOKS[looks](case)
    return case.is_named(matches) and case.is_right(matches)


def _share(cases: Sequence[Case], looks: str = "three") -> float:
    named = sum(_named(case, looks) for case in cases)
    return 100 * named / len(cases) if cases else math.nan


def interval(cases: Sequence[Case], n_draws: int = 2000) -> list[float]:
    """95 % interval of the share that is named, over tracks; seed 0."""
    keys = sorted({case.track.key for case in cases})
    numbers = np.array([keys.index(case.track.key) for case in cases], np.int64)
    named = np.bincount(numbers, [_named(case, "three") for case in cases], len(keys))
    asked = np.bincount(numbers, minlength=len(keys))
    drawn = np.random.default_rng(0).integers(0, len(keys), (n_draws, len(keys)))
    shares = 100 * named[drawn].sum(axis=1) / asked[drawn].sum(axis=1)
    return [round(float(p), 1) for p in np.percentile(shares, [2.5, 97.5])]


def _part(cases: Sequence[Case]) -> dict[str, object]:
    """Figures of some tracks: by condition and over all conditions, and the false accepts."""
    known = [case for case in cases if case.track.is_known]
    everything: dict[str, object] = {"tracks": len({case.track.key for case in known})}
    for length_s in LENGTHS_S:
        asked = [case for case in known if case.length_s == length_s]
        if asked:
            everything[f"{length_s} s"] = {
                "first_look": round(_share(asked, "one look"), 1),
                "two_looks": round(_share(asked, "two"), 1),
                "named": round(_share(asked), 1),
                "interval": interval(asked),
                "n": len(asked),
                "second_look": round(float(np.mean([case.is_unsure for case in asked])), 3),
                "third_look": round(float(np.mean([case.is_still_unsure for case in asked])), 3),
            }
    wrong = [case for case in _with_left_out(cases) if case.is_left_out or not case.track.is_known]
    for kind, group in (
        ("unknown", [case for case in wrong if not case.is_left_out]),
        ("left_out", [case for case in wrong if case.is_left_out]),
    ):
        everything[kind] = {
            "named_by_first_look": sum(case.is_named(case.first) for case in group),
            "named_by_two_looks": sum(case.is_named(_after_two(case)) for case in group),
            "named": sum(case.is_named(case.final) for case in group),
            "n": len(group),
        }
    return everything


def result(cases: Sequence[Case], n_tracks: int, building: dict[str, object]) -> Result:
    """Compile the figures."""
    reported = [case for case in cases if case.track.is_reported]
    chosen_on = [case for case in cases if not case.track.is_reported]
    rendered = [case for case in chosen_on if case.track.is_synthetic]
    real = [case for case in chosen_on if not case.track.is_synthetic]
    parts = {"reported": reported, "chosen_on": real, "chosen_on_rendered": rendered}

    def row(name: str, group: Sequence[Case]) -> tuple[str, ...]:
        known = [case for case in group if case.track.is_known]
        by_length = ([c for c in known if c.length_s == length_s] for length_s in LENGTHS_S)
        shares = (_share(asked, looks) for asked in by_length for looks in LOOKS)
        return name, *(f"{share:.1f}" for share in shares)

    conditions = (*CONDITIONS, OTHER_MUSIC)
    rows = {
        part: [
            *(
                row(name, [case for case in group if case.distortion == name])
                for name in conditions
            ),
            row("all", group),
        ]
        for part, group in parts.items()
    }
    judged = _with_left_out(cases)
    curve = reliability([case for case in judged if case.track.is_reported])
    unknown = [c for c in reported if not c.track.is_known]
    n_false = sum(case.is_named(case.final) for case in unknown)
    by_length = {
        length_s: _share([c for c in reported if c.track.is_known and c.length_s == length_s]) / 100
        for length_s in LENGTHS_S
    }
    targets = [
        Target("10 s", by_length[10], 0.98),
        Target("5 s", by_length[5], 0.94),
        Target("false accepts", n_false / max(len(unknown), 1), 0.001, at_least=False),
    ]
    values = building | {
        "tracks": n_tracks,
        "by_part": {part: _part(group) for part, group in parts.items() if group},
        "by_condition": {part: rows[part] for part, group in parts.items() if group},
        "fitted": fit(cases, n_tracks),
        "reliability": curve,
    }
    return Result(
        NAME,
        values=json.loads(json.dumps(values)),
        columns=(
            "distortion",
            *(f"{length_s} s, {looks}" for length_s in LENGTHS_S for looks in LOOKS),
        ),
        rows=rows["reported"],
        targets=targets,
        draw=lambda axes: _draw(axes, curve),
    )


def _draw(axes: "Axes", curve: list[tuple[float, float, int]]) -> None:
    axes.plot([0, 100], [0, 100], linestyle=":", color="grey")
    axes.plot([p[0] for p in curve], [p[1] for p in curve], marker="o")
    axes.set_xlabel("confidence stated, %")
    axes.set_ylabel("right, %")
