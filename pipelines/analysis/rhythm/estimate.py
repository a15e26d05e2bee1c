"""Beats, downbeats, tempo and metre of a track."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from models.rhythm.bars import downbeat_odds, find_bars
from models.rhythm.decoder import FRAME_RATE, BeatSpace, decode_beats, upsample
from models.rhythm.harmony import chord_change, harmonic_change
from models.rhythm.network import FRAME_RATE as NETWORK_RATE
from models.rhythm.network import TEMPI
from models.rhythm.tempo import (
    FASTEST,
    SLOWEST,
    TempoRange,
    are_related,
    dominant_tempo,
    harmonic_prior,
    level_prior,
    local_tempi,
    log_belief,
    periodicity_tempo,
)
from models.segments import FRAME_RATE as LEVEL_RATE
from models.tonality.chordnet import NO_CHORD
from models.tonality.key import HOP_LENGTH as CHROMA_HOP_LENGTH
from models.tonality.key import SAMPLE_RATE as CHROMA_SAMPLE_RATE
from pipelines.analysis.rhythm.beats import ATTACK_S, BeatEvidence
from pipelines.analysis.tonality.chords import ChordEvidence

CHROMA_RATE = CHROMA_SAMPLE_RATE / CHROMA_HOP_LENGTH
"""Chroma frames a second."""
_FACTOR = round(FRAME_RATE / NETWORK_RATE)
_ON_BEAT = np.arange(-3, 8)
"""Where a beat's peak may lie: from 30 ms before the decoded beat to a sixteenth of a slow one."""
_SOUND_OF_BEAT = np.arange(-3, 8)
"""Level frames, 20 ms apart, that contain a beat's attack however it falls between two frames."""
_DRUMS = 0.5
"""Mean probability of no chord; drums alone have more, even a kick drum with a pitch."""
_ALTERNATION_WEIGHT = 8.0
_ALTERNATION_BOUND = 2.0
"""If neither tempo is more usual, beats that alternate by more than 22 % are subdivisions; grids at
the right level alternate by at most 17 % above 100 BPM."""
_RELATIVES = (1.0, 1 / 3, 1 / 2, 2 / 3, 3 / 4, 4 / 3, 3 / 2, 2.0, 3.0)
"""Tempi of the grid's other levels, and of what triplets or dotted notes may stand for."""
_GRID_WEIGHT, _BELIEF_WEIGHT = 0.2, 0.6
"""Weights of the grid's likelihood per second and of the network's belief in its tempo. Real drums
with quick hi-hats also fit a grid at twice their tempo."""
_USUAL_WEIGHT, _USUAL_BPM = 0.5, 95.0
"""Weight and centre of how usual a tempo is. Chosen with the two above from those of 600 settings
that count metronomes right, looking at lo-fi and every set that ``afa bench accuracy`` uses."""
_UNLIKELY = 4.0
"""A tempo is ruled out if the network believes in it this much less (in nats) than in another."""
_SAME_TEMPO = 0.04
_CALIBRATION = 0.7
_TEMPO_MARGIN = 1.15
_LEVEL_MARGIN = 2**0.5
_OTHER_LEVEL_SHARE = 0.1
"""A grid counted at half or double speed for more than this share of the time loses its level."""
_STEADY, _STEADY_SHARE = 1.08, 0.9
"""A track is steady if at least this share of it is within this ratio of its tempo."""
_STEADY_MARGIN, _STEADY_INERTIA, _FINER = 1.1, 400.0, 2
"""For a steady track's second decoding: the range of tempi (a ratio), their inertia, and frames per
frame of the first. Chosen from 14 settings on eight metal songs with the charts of a game."""
_CHROMA_WEIGHT, _CHORDS_WEIGHT = 0.5, 2.0
"""Weights of their changes for finding the bars. Chosen from some forty settings, looking at every
set that ``afa bench accuracy`` uses."""
_PAUSE_FRAMES = 2 * FRAME_RATE
"""Beats continue this far into a pause from either end."""
_MIN_BEATS = 4
_BEATLESS = 0.05
"""Activation on a beat below which it does not count as one."""
_MIN_HEARD = 3
"""Beats that must be heard; the others may continue them into silence."""
_AROUND_BEAT = np.arange(-12, 13)
"""Frames in which the activation falls off on either side of a beat, but not after the last sound,
where it is the same everywhere."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """What `estimate_rhythm` finds; times in seconds, tempo in BPM, confidences 0 to 1."""

    tempo: float
    tempo_confidence: float
    beats: NDArray[np.float64]
    downbeats: NDArray[np.float64]
    time_signature: int
    time_signature_confidence: float

    def before(self, end_s: float) -> "Rhythm":
        """Leave out the beats from the track's end on, which its last frame may exceed."""
        beats, downbeats = (times[times < end_s] for times in (self.beats, self.downbeats))
        return replace(self, beats=beats, downbeats=downbeats)


NO_RHYTHM = Rhythm(0.0, 0.0, np.zeros(0), np.zeros(0), 4, 0.0)


def estimate_rhythm(
    evidence: BeatEvidence,
    chroma: NDArray[np.float32] | None = None,
    levels_db: NDArray[np.float32] | None = None,
    tempo_range: TempoRange | None = None,
) -> Rhythm:
    """Decode beats, bars and tempo.

    Args:
        evidence: The network's evidence of the beats.
        chroma: float32 ``[M, 12]`` from `models.tonality.key.Hpcp`; helps to find the bars.
        levels_db: float32 ``[L]`` from `models.segments.SoundFrames`; finds the bars of a
            metronome.
        tempo_range: The range in which the tempo must lie; None leaves it to the evidence.

    Returns:
        The rhythm; without at least four beats, three of them heard, `NO_RHYTHM`.
    """
    pulse = evidence.pulse
    decoded = _decode(evidence) if tempo_range is None else _decode_within(evidence, tempo_range)
    steadied = _steadied(decoded, evidence.stressed, tempo_range)
    frames = _drop_empty_ends(_drop_silent(steadied, pulse), pulse)
    if len(frames) < _MIN_BEATS or _n_heard(frames, pulse) < _MIN_HEARD:
        return NO_RHYTHM
    beats = refine(frames, pulse) / FRAME_RATE
    tempo = dominant_tempo(beats)
    if tempo_range is not None:  # beats lie on frames, or the music has no such tempo
        tempo = min(max(tempo, tempo_range.low), tempo_range.high)
    changes, heard = [], beats + ATTACK_S
    if chroma is not None:
        # A frame is centred one hop behind its start.
        times = (np.arange(len(chroma)) + 1) / CHROMA_RATE
        changes.append((_CHROMA_WEIGHT, harmonic_change(chroma, times, heard)))
    chords = evidence.chords
    if chords is not None:
        change = chord_change(chords.probabilities, chords.times_s, heard)
        changes.append((_CHORDS_WEIGHT, change))
    of_beats = None if levels_db is None else _levels_of_beats(levels_db, beats)
    is_drums = chords is not None and _are_alone(chords, heard)
    odds = downbeat_odds(evidence.fine, frames)
    bars = find_bars(odds, changes, of_beats, is_drums=is_drums)
    return Rhythm(
        tempo=tempo,
        tempo_confidence=_tempo_confidence(beats, frames, pulse, tempo),
        beats=beats,
        downbeats=beats[bars.downbeats],
        time_signature=bars.metre,
        time_signature_confidence=bars.confidence,
    )


def _are_alone(chords: ChordEvidence, heard: NDArray[np.float64]) -> bool:
    """Whether the beats are of drums alone; silence around them has no chord either."""
    return bool(np.interp(heard, chords.times_s, chords.probabilities[:, NO_CHORD]).mean() > _DRUMS)


def weigh_alternatives(evidence: BeatEvidence, tempo: float) -> list[tuple[float, float]]:
    """Weigh other tempi at which the beats may be counted: half, double, and any likely one.

    Args:
        evidence: The network's evidence of the beats.
        tempo: The BPM that was found; 0 has no alternatives.

    Returns:
        BPM and probability, the likeliest first. With that of ``tempo`` they sum to one.
    """
    if not tempo:
        return []
    tempi = _levels(tempo)
    octaves = np.isin(tempi, (tempo / 2, tempo, tempo * 2))
    if evidence.told_tempo is None:
        tempi = tempi[octaves]
    else:
        belief = log_belief(evidence.told_tempo, TEMPI, tempi)
        tempi = tempi[octaves | (belief > belief.max() - _UNLIKELY)]
    odds = _log_odds(evidence, tempi)
    share = np.exp(odds - odds.max())
    share /= share.sum()
    weighed = zip(tempi.tolist(), share.tolist(), strict=True)
    others = [(other, weight) for other, weight in weighed if other != tempo]
    return sorted(others, key=lambda pair: -pair[1])


def _decode(evidence: BeatEvidence) -> NDArray[np.int64]:
    """Decode the beats, and again if the first grid has a wrong tempo or level."""
    pulse = evidence.pulse
    frames = _decode_once(pulse)
    tempo = dominant_tempo(frames / FRAME_RATE)
    if not tempo:
        return frames
    if evidence.told_tempo is not None:
        chosen = _choose_tempo(evidence, tempo, evidence.told_tempo)
        return _at_tempo(frames, tempo, chosen, evidence.stressed)
    periodic = periodicity_tempo(pulse, FRAME_RATE)
    if periodic and not are_related(tempo, periodic):
        # The activation does not repeat at the grid's tempo.
        return _decode_near(evidence.stressed, periodic)
    halves = tempo / 2 >= BeatSpace().min_bpm and _counts_subdivisions(frames, pulse, tempo)
    return _at_tempo(frames, tempo, tempo / 2 if halves else tempo, evidence.stressed)


def _decode_within(evidence: BeatEvidence, within: TempoRange) -> NDArray[np.int64]:
    """Decode the beats in a range of tempi, at the likeliest level within the range."""
    space = BeatSpace(within.low, within.high)
    frames = _decode_once(evidence.pulse, space)
    tempo = dominant_tempo(frames / FRAME_RATE)
    if not tempo:
        return frames
    levels = np.array([level for level in _levels(tempo) if level in within])
    chosen = float(levels[_log_odds(evidence, levels).argmax()]) if len(levels) > 1 else tempo
    return _at_tempo(frames, tempo, chosen, evidence.stressed, within)


def _levels(tempo: float) -> NDArray[np.float64]:
    """The tempo, and its metrical relatives that (as whole BPM) occur in music."""
    tempi = tempo * np.array(_RELATIVES)
    whole = np.rint(tempi)
    return np.asarray(tempi[(tempi == tempo) | ((whole >= SLOWEST) & (whole <= FASTEST))])


def _log_odds(evidence: BeatEvidence, tempi: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log-odds of tempi from the grid, the network, the chords and what is usual."""
    likelihood = np.array([evidence.likelihood(tempo) for tempo in tempi])
    if evidence.told_tempo is None:
        belief = _BELIEF_WEIGHT * level_prior(tempi)
    else:
        belief = _BELIEF_WEIGHT * log_belief(evidence.told_tempo, TEMPI, tempi)
        belief += _USUAL_WEIGHT * level_prior(tempi, _USUAL_BPM)
    if evidence.changes_per_second:
        belief += harmonic_prior(tempi, evidence.changes_per_second)
    return np.asarray(_GRID_WEIGHT * likelihood + belief)


def _choose_tempo(evidence: BeatEvidence, tempo: float, tempo_logits: NDArray[np.float32]) -> float:
    """Choose between a tempo and its metrical relatives."""
    tempi = _levels(tempo)
    belief = log_belief(tempo_logits, TEMPI, tempi)
    tempi = tempi[(tempi == tempo) | (belief > belief.max() - _UNLIKELY)]
    if len(tempi) == 1:
        return tempo
    return float(tempi[_log_odds(evidence, tempi).argmax()])


def _counts_subdivisions(
    frames: NDArray[np.int64], pulse: NDArray[np.float32], tempo: float
) -> bool:
    """Whether every other beat is weak, weighed against how usual either tempo is."""
    strength = _strength(frames, pulse)
    even, odd = float(strength[::2].mean()), float(strength[1::2].mean())
    alternation = np.log(max(even, odd, 1e-6) / max(min(even, odd), 1e-6))
    prior = float(level_prior(tempo / 2) - level_prior(tempo))
    return bool(_ALTERNATION_WEIGHT * alternation + prior > _ALTERNATION_BOUND)


def _at_tempo(
    frames: NDArray[np.int64],
    tempo: float,
    chosen: float,
    pulse: NDArray[np.float32],
    within: TempoRange | None = None,
) -> NDArray[np.int64]:
    """Return the grid if it has the chosen tempo and keeps its level; else decode one that does."""
    if chosen != tempo:
        return _decode_near(pulse, chosen, _TEMPO_MARGIN, within)
    if not _keeps_level(frames, tempo):
        return _decode_near(pulse, tempo, _LEVEL_MARGIN, within)
    return frames


def _keeps_level(frames: NDArray[np.int64], tempo: float) -> bool:
    """Return whether almost none of a grid is counted twice or half as fast as the rest.

    Players change the tempo, but hardly ever double or halve it; such jumps come from the choice
    between two equally good levels.
    """
    tempi = local_tempi(frames / FRAME_RATE)
    octaves = np.abs(np.log2(tempi / tempo))
    elsewhere = np.abs(octaves - 1.0) < np.log2(1.0 + _SAME_TEMPO)
    share = np.average(elsewhere, weights=1.0 / tempi)
    return bool(share <= _OTHER_LEVEL_SHARE)


def _decode_near(
    pulse: NDArray[np.float32],
    tempo: float,
    margin: float = _TEMPO_MARGIN,
    within: TempoRange | None = None,
) -> NDArray[np.int64]:
    return _decode_once(pulse, BeatSpace(*_around(tempo, margin, within)))


def _decode_once(pulse: NDArray[np.float32], space: BeatSpace | None = None) -> NDArray[np.int64]:
    """Decode beats, without those in long pauses, where nothing holds them to a tempo."""
    return _drop_silent(decode_beats(pulse[None], space)[0], pulse)


def _around(tempo: float, margin: float, within: TempoRange | None) -> tuple[float, float]:
    """Return the lowest and highest BPM around a tempo that lie in a range."""
    low, high = tempo / margin, tempo * margin
    return (low, high) if within is None else (max(low, within.low), min(high, within.high))


def _steadied(
    frames: NDArray[np.int64], pulse: NDArray[np.float32], within: TempoRange | None
) -> NDArray[np.int64]:
    """Decode a steady track once more, in finer frames, between which the tempo changes less.

    A beat at 170 BPM lasts 35.3 frames, so the first decoding pays for tempo changes that are only
    rounding. They have to be cheap: so cheap that a fill or a blast beat can move the grid.
    """
    if len(frames) < _MIN_BEATS:
        return frames
    tempo = dominant_tempo(frames / FRAME_RATE)
    around = np.abs(np.log(local_tempi(frames / FRAME_RATE) / tempo))
    if np.mean(around < np.log(_STEADY)) < _STEADY_SHARE:
        return frames
    low, high = _around(tempo, _STEADY_MARGIN, within)
    space = BeatSpace(low, high, _STEADY_INERTIA, frame_rate=_FINER * FRAME_RATE)
    finer = decode_beats(upsample(pulse, _FINER)[None], space)[0]
    steady = np.unique(np.minimum(np.rint(finer / _FINER), len(pulse) - 1).astype(np.int64))
    # A beat on the very first or last frame may lie just outside on the steady grid.
    half_beat = 30.0 * FRAME_RATE / tempo
    before = frames[frames < steady[0] - half_beat]
    after = frames[frames > steady[-1] + half_beat]
    return np.concatenate([before, steady, after])


def refine(frames: NDArray[np.int64], pulse: NDArray[np.float32]) -> NDArray[np.float64]:
    """Move each beat to the top of the parabola through the activation around it.

    Args:
        frames: Beats, ascending.
        pulse: float32 ``[N]``.

    Returns:
        float64 ``[beats]``, frames and fractions, ascending.
    """
    around = np.clip(frames[:, None] + _ON_BEAT, 0, len(pulse) - 1)
    top = np.take_along_axis(around, pulse[around].argmax(axis=1)[:, None], axis=1)[:, 0]
    inner = np.clip(top, _FACTOR, len(pulse) - 1 - _FACTOR)
    left, centre, right = (pulse[inner + d * _FACTOR].astype(np.float64) for d in (-1, 0, 1))
    curve = np.maximum(2.0 * centre - left - right, 1e-9)
    shift = np.clip(0.5 * (right - left) / curve, -0.5, 0.5) * _FACTOR
    refined = np.where((inner == top) & (centre >= left) & (centre >= right), top + shift, frames)
    return np.asarray(np.maximum.accumulate(refined))


def _levels_of_beats(
    levels_db: NDArray[np.float32], beats_s: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Level of the sound that begins with each beat, in decibels."""
    around = np.round(beats_s * LEVEL_RATE).astype(np.int64)[:, None] + _SOUND_OF_BEAT
    levels = levels_db[np.clip(around, 0, len(levels_db) - 1)].astype(np.float64)
    return np.asarray(10.0 * np.log10((10.0 ** (levels / 10.0)).sum(axis=1)))


def _drop_silent(frames: NDArray[np.int64], pulse: NDArray[np.float32]) -> NDArray[np.int64]:
    """Drop the beats in pauses, where no beat is reported, except those near the ends."""
    told = np.concatenate([[0], (pulse > 0.0).cumsum()])
    before = np.maximum(frames - _PAUSE_FRAMES, 0)
    behind = np.minimum(frames + _PAUSE_FRAMES, len(pulse))
    return frames[told[behind] > told[before]]


def _drop_empty_ends(frames: NDArray[np.int64], pulse: NDArray[np.float32]) -> NDArray[np.int64]:
    """Cut off beats before the first and after the last that the activations support."""
    if not len(frames):
        return frames
    heard = np.flatnonzero(_strength(frames, pulse) >= _BEATLESS)
    return frames[heard[0] : heard[-1] + 1] if len(heard) else frames[:0]


def _strength(frames: NDArray[np.int64], pulse: NDArray[np.float32]) -> NDArray[np.float32]:
    around = np.clip(frames[:, None] + _ON_BEAT, 0, len(pulse) - 1)
    strongest: NDArray[np.float32] = pulse[around].max(axis=1)
    return strongest


def _n_heard(frames: NDArray[np.int64], pulse: NDArray[np.float32]) -> int:
    """Count the beats on which the activation stands out from the frames around."""
    around = np.clip(frames[:, None] + _AROUND_BEAT, 0, len(pulse) - 1)
    return int(np.count_nonzero(_strength(frames, pulse) - pulse[around].min(axis=1) >= _BEATLESS))


def _tempo_confidence(
    beats: NDArray[np.float64],
    frames: NDArray[np.int64],
    pulse: NDArray[np.float32],
    tempo: float,
) -> float:
    """How far the beats stand out of the activation, and how much of the track keeps the tempo.

    The exponent calibrates it: on the development set, tempi with a confidence of .6-.8 and .8-1
    are right (octave included) in 73 and 91 % of the tracks.
    """
    background = float(pulse.mean())
    contrast = (float(_strength(frames, pulse).mean()) - background) / max(1.0 - background, 1e-6)
    steady = float(np.mean(np.abs(local_tempi(beats) / tempo - 1.0) < _SAME_TEMPO))
    return float(np.clip(steady * contrast, 0.0, 1.0) ** _CALIBRATION)
