"""All code that computes positions in a track is right for every length up to an hour."""

import itertools
import math

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models.fingerprint.constellation import HOP_LENGTH as LANDMARK_HOP
from models.fingerprint.constellation import SAMPLE_RATE as LANDMARK_RATE
from models.fingerprint.constellation import WINDOW_FRAMES
from models.rhythm.decoder import FRAME_RATE
from models.segments import FRAME_RATE as SEGMENT_RATE
from models.segments import find_boundaries
from pipelines.analysis.excerpt import Excerpt
from pipelines.analysis.rhythm.estimate import CHROMA_RATE, refine
from pipelines.audio.waveform import SAMPLE_RATE, Waveform
from pipelines.batching.framed import FrameGrid
from pipelines.batching.windows import WindowSpec, window_starts
from pipelines.fingerprint.make import _GRID, _join, find_loudest_start
from serve_app.services.identify.clip_identifier import middle

HOUR_S = 3600
BEYOND_FLOAT32 = 2**24 + 1
SILENCE = np.zeros(1, np.float32)


def silence(n_samples: int, channels: int = 1) -> Waveform:
    """Return a silent track of any length that uses almost no memory."""
    return Waveform(np.broadcast_to(SILENCE, (channels, n_samples)))


@given(
    n_samples=st.integers(1, HOUR_S * SAMPLE_RATE),
    length=st.integers(16_384, 1_500_000),
    overlap=st.sampled_from([0, 1, 2]),
    max_windows=st.sampled_from([0, 1, 2, 3, 7, 64]),
)
@example(n_samples=BEYOND_FLOAT32, length=16_384, overlap=2, max_windows=64)
@settings(max_examples=60, deadline=None)
def test_windows_lie_within_the_track(
    n_samples: int, length: int, overlap: int, max_windows: int
) -> None:
    spec = WindowSpec(SAMPLE_RATE, length, max(1, length >> overlap), max_windows=max_windows)
    starts = window_starts(n_samples, spec)
    assert starts[0] == 0
    assert starts == sorted(set(starts))
    if max_windows != 1:
        assert starts[-1] == max(0, n_samples - length)
    assert len(starts) <= max_windows or not max_windows
    if not max_windows:
        assert all(b - a <= spec.hop for a, b in itertools.pairwise(starts))


@given(
    n_samples=st.integers(1, HOUR_S * SAMPLE_RATE),
    hop=st.integers(64, 4_410),
    n_frames=st.integers(50, 3_000),
    lead=st.integers(0, 20),
    tail=st.integers(0, 20),
    overhang=st.integers(0, 4_000),
)
@example(n_samples=BEYOND_FLOAT32, hop=441, n_frames=1_500, lead=5, tail=5, overhang=0)
def test_the_frames_of_windows_are_those_of_the_track(
    n_samples: int, hop: int, n_frames: int, lead: int, tail: int, overhang: int
) -> None:
    grid = FrameGrid(SAMPLE_RATE, hop, n_frames, lead, tail, overhang)
    n, wanted = grid.n_windows(n_samples), grid.count(n_samples)
    joined = n * (n_frames - lead - tail) + lead + tail
    assert joined >= wanted
    assert joined - (n_frames - lead - tail) < wanted or n == 1
    assert grid.padded_length(n_samples) >= wanted * hop
    assert (wanted - 1) * hop < max(1, n_samples)


@given(
    n_samples=st.integers(SAMPLE_RATE, HOUR_S * SAMPLE_RATE),
    n_parts=st.integers(1, 6),
    part_s=st.floats(0.5, 60.0),
)
@settings(max_examples=30, deadline=None)
def test_an_excerpt_is_as_long_as_its_parts(n_samples: int, n_parts: int, part_s: float) -> None:
    excerpt = Excerpt(n_parts, part_s)
    track = silence(n_samples)
    taken = excerpt.take(track).samples.shape[1]
    if track.duration_s <= excerpt.duration_s:
        assert taken == n_samples
    else:
        assert abs(taken - n_parts * round(part_s * SAMPLE_RATE)) <= n_parts
    starts = [start for start, _ in excerpt.segments(track.duration_s)]
    assert starts == sorted(starts)
    last_start, last_s = excerpt.segments(track.duration_s)[-1]
    assert last_start + last_s <= track.duration_s + 1e-6


@given(n_samples=st.integers(0, HOUR_S * SAMPLE_RATE), length_s=st.floats(0.5, 120.0))
def test_the_middle_lies_within_the_clip(n_samples: int, length_s: float) -> None:
    clip = middle(silence(n_samples), length_s)
    assert clip.samples.shape[1] == min(n_samples, round(length_s * SAMPLE_RATE))


@given(thirds=st.integers(1, 40_000))
@settings(max_examples=20)
def test_the_loudest_part_lies_within_the_clip(thirds: int) -> None:
    samples = np.zeros(3 * thirds + 1, np.float32)
    samples[-thirds:] = 1.0
    start = find_loudest_start(samples, thirds)
    assert 0 <= start <= len(samples) - thirds


@given(n_frames=st.integers(1, round(HOUR_S * SEGMENT_RATE)), every=st.integers(30, 400))
@example(n_frames=round(HOUR_S * SEGMENT_RATE), every=151)
@settings(max_examples=10, deadline=None)
def test_segments_tile_the_track(n_frames: int, every: int) -> None:
    onset = np.zeros(n_frames, np.float32)
    onset[::every] = 20.0
    edges = find_boundaries(onset)
    assert (edges[0], edges[-1]) == (0, n_frames)
    gaps = np.diff(edges)
    assert gaps.min() > 0
    assert gaps.max() <= 150


@given(late=st.integers(1, round(HOUR_S * FRAME_RATE) - 2))
@settings(max_examples=20, deadline=None)
def test_a_beat_is_found_as_exactly_late_as_early(late: int) -> None:
    pulse = np.zeros(late + 2, np.float32)
    pulse[late - 1 : late + 2] = (0.5, 1.0, 0.7)
    early = refine(np.array([1]), pulse[late - 1 :])[0]
    assert math.isclose(refine(np.array([late]), pulse)[0], late - 1 + early, abs_tol=1e-6)


@given(window=st.integers(0, HOUR_S * LANDMARK_RATE // _GRID.spec.hop))
@settings(max_examples=30)
def test_landmarks_keep_their_place(window: int) -> None:
    """Float32 represents a frame in the last window of an hour to a hundredth or better."""
    starts = [k * _GRID.spec.hop // LANDMARK_HOP for k in range(window + 1)]
    place = WINDOW_FRAMES / 2 + 0.3
    nothing = np.zeros((3, 0), np.float32)
    found = [nothing] * window + [np.array([[place], [10.0], [1.0]], np.float32)]
    n_frames = starts[-1] + WINDOW_FRAMES
    joined = _join(starts, found, n_frames)
    assert joined.n_frames == n_frames
    assert abs(float(joined.frames[0]) - (starts[-1] + place)) < 0.02


@given(seconds=st.floats(0.0, HOUR_S))
def test_a_frame_of_chroma_is_the_one_of_its_time(seconds: float) -> None:
    frame = np.round(np.array([seconds]) * CHROMA_RATE).astype(np.int64)[0]
    assert abs(frame / CHROMA_RATE - seconds) <= 0.5001 / CHROMA_RATE
