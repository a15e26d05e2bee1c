import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from models.fingerprint.constellation import (
    _LEVEL_BINS,
    _LEVEL_FRAMES,
    BINS_AROUND,
    DENSE_BINS_AROUND,
    DENSE_FRAMES_AROUND,
    DENSE_PER_S,
    FRAMES_AROUND,
    MAX_LANDMARKS,
    WINDOW_LENGTH,
    LandmarkModel,
    _local_maximum,
    measure_prominence,
)
from models.fingerprint.hashes import index_hashes, query_hashes
from models.fingerprint.landmarks import FRAME_S, HOP_LENGTH, N_FFT, SAMPLE_RATE, Fingerprint

Found = NDArray[np.float32]


def tones(seed: int, seconds: float = 8.0) -> NDArray[np.float32]:
    """Decaying notes at random times and pitches: the landmarks are where they begin."""
    rng = np.random.default_rng(seed)
    n = int(seconds * SAMPLE_RATE)
    audio = np.zeros(n)
    for _ in range(int(seconds * 12)):
        start, hz = rng.integers(0, n - 100), rng.uniform(220, 3500)
        t = np.arange(n - start) / SAMPLE_RATE
        audio[start:] += rng.uniform(0.2, 1) * np.exp(-t * 6) * np.sin(2 * np.pi * hz * t)
    return (audio / np.abs(audio).max()).astype(np.float32)


def landmarks(audio: NDArray[np.float32], *, is_dense: bool = False) -> Found:
    """Frames, pitches, prominences and whether each is extra, ``[4, P]``, ordered by time."""
    out = LandmarkModel()(torch.from_numpy(audio)[None], is_dense=is_dense)
    names = ("frames", "pitches", "prominences", "are_extra")
    stacked = torch.stack([out[name] for name in names], 1)[0].numpy()
    found = stacked[:, stacked[0] >= 0]
    return found[:, np.argsort(found[0], kind="stable")]


def fingerprint(audio: NDArray[np.float32], *, is_dense: bool = False) -> Fingerprint:
    found = landmarks(audio, is_dense=is_dense)
    return Fingerprint(found[0], found[1], found[2], 1 + (len(audio) - N_FFT) // HOP_LENGTH)


def test_outputs_have_the_stated_shape_and_type() -> None:
    out = LandmarkModel()(torch.zeros(3, WINDOW_LENGTH))
    assert list(out) == ["frames", "pitches", "prominences", "are_extra"]
    for values in out.values():
        assert values.shape == (3, MAX_LANDMARKS)
        assert values.dtype == torch.float32


@pytest.mark.parametrize("level", [0.0, 1e-6])
def test_silence_has_no_landmarks(level: float) -> None:
    noise = level * np.random.default_rng(0).standard_normal(SAMPLE_RATE * 4)
    assert landmarks(noise.astype(np.float32)).shape[1] == 0


def test_a_decaying_sine_is_one_landmark_at_its_frequency_and_onset() -> None:
    hz, start_s = 1234.5, 1.5
    t = np.arange(4 * SAMPLE_RATE) / SAMPLE_RATE
    audio = np.where(t >= start_s, np.exp(-(t - start_s) * 8) * np.sin(2 * np.pi * hz * t), 0)
    found = landmarks(audio.astype(np.float32))
    best = found[:, found[2].argmax()]
    assert 2 ** best[1] == pytest.approx(hz, rel=2e-3)
    # A frame's time is its first sample; it is strongest when the onset is near its start.
    assert best[0] * FRAME_S == pytest.approx(start_s, abs=N_FFT / SAMPLE_RATE)


def test_a_row_of_a_batch_equals_the_same_window_alone() -> None:
    rows = [tones(seed, 5) for seed in range(4)]
    model = LandmarkModel()
    together = model(torch.from_numpy(np.stack(rows)))
    for i, row in enumerate(rows):
        alone = model(torch.from_numpy(row)[None])
        for name, values in alone.items():
            torch.testing.assert_close(together[name][i], values[0], rtol=0, atol=1e-4)


@pytest.mark.parametrize("seconds", [5, 10])
def test_dense_landmarks_are_the_usual_ones_and_more(seconds: int) -> None:
    rng = np.random.default_rng(0)
    audio = tones(7, seconds) + rng.normal(0, 0.1, seconds * SAMPLE_RATE).astype(np.float32)
    usual, dense = landmarks(audio), landmarks(audio, is_dense=True)
    assert not usual[3].any()
    np.testing.assert_array_equal(dense[:3, dense[3] == 0], usual[:3])
    assert dense.shape[1] == pytest.approx(DENSE_PER_S * seconds, rel=0.02)
    assert dense.shape[1] > 1.2 * usual.shape[1]


@pytest.mark.parametrize("n_frames", [1, 2, 9, 100])
def test_surroundings_are_those_that_pooling_sees(n_frames: int) -> None:
    torch.manual_seed(0)
    level = torch.randn(2, 60, n_frames).round(decimals=1)
    for bins, frames in ((BINS_AROUND, FRAMES_AROUND), (DENSE_BINS_AROUND, DENSE_FRAMES_AROUND)):
        size = (2 * bins + 1, 2 * frames + 1)
        largest = torch.nn.functional.max_pool2d(level, size, 1, (bins, frames))
        assert torch.equal(_local_maximum(level, bins, frames), largest)
    around = (_LEVEL_FRAMES // 2,) * 2 + (_LEVEL_BINS // 2,) * 2
    repeated = torch.nn.functional.pad(level[None], around, mode="replicate")[0].double()
    mean = torch.nn.functional.avg_pool2d(repeated, (_LEVEL_BINS, _LEVEL_FRAMES), 1)
    torch.testing.assert_close(measure_prominence(level).double(), level - mean, rtol=0, atol=1e-6)


def test_landmarks_do_not_depend_on_volume() -> None:
    audio = tones(1)
    loud, quiet = landmarks(audio), landmarks(audio * 0.1)
    pairs = {(round(float(t), 2), round(float(f), 2)) for t, f in loud[:2].T}
    kept = {(round(float(t), 2), round(float(f), 2)) for t, f in quiet[:2].T}
    assert len(pairs & kept) > 0.9 * len(pairs)


def test_a_shift_by_whole_frames_shifts_the_landmarks() -> None:
    audio = tones(2, 10)
    whole, late = landmarks(audio), landmarks(audio[40 * HOP_LENGTH :])
    expected = whole[:2, (whole[0] > 80) & (whole[0] < 380)].T - [40, 0]
    for frame, pitch in expected:
        near = np.abs(late[0] - frame) + 100 * np.abs(late[1] - pitch)
        assert near.min() < 0.01


def share_found(index: Fingerprint, clip: Fingerprint) -> float:
    """Share of the index's hashes that a query with the clip hits."""
    hashes, _ = index_hashes(index)
    return float(np.isin(hashes, query_hashes(clip).hashes).mean())


def test_hashes_of_the_same_sound_agree_and_of_another_do_not() -> None:
    mine, other = fingerprint(tones(3)), fingerprint(tones(4))
    assert share_found(mine, mine) > 0.9
    assert share_found(mine, other) < 0.01


def test_dense_landmarks_find_more_in_noise() -> None:
    found = {False: 0.0, True: 0.0}
    for seed in range(4):
        audio = tones(20 + seed)
        noise = np.random.default_rng(seed).normal(0, 1.5 * audio.std(), len(audio))
        for is_dense in found:
            asked = fingerprint(audio + noise.astype(np.float32), is_dense=is_dense)
            hashes = query_hashes(asked, is_dense=is_dense).hashes
            found[is_dense] += float(np.isin(index_hashes(fingerprint(audio))[0], hashes).mean())
    assert found[True] > 1.2 * found[False] > 0


@pytest.mark.parametrize("speed", [0.97, 0.98, 1.02, 1.03])
def test_hashes_survive_another_speed(speed: float) -> None:
    original = fingerprint(tones(5))
    changed = Fingerprint(
        original.frames / np.float32(speed),
        original.pitches + np.float32(np.log2(speed)),
        original.prominences,
        original.n_frames,
    )
    assert share_found(original, changed) > 0.4


def test_a_query_finds_the_times_of_its_anchors() -> None:
    mine = fingerprint(tones(6))
    hashes, frames = index_hashes(mine)
    asked = query_hashes(mine)
    assert hashes.dtype == frames.dtype == asked.hashes.dtype == np.uint32
    times = dict(zip(hashes.tolist(), frames.tolist(), strict=True))
    hits = [
        abs(times[h] - asked.frames[t])
        for h, t in zip(asked.hashes.tolist(), asked.triplets.tolist(), strict=True)
        if h in times
    ]
    assert len(hits) > len(hashes) / 2
    assert np.median(hits) < 0.5


@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_landmarks_make_no_hashes(n: int) -> None:
    few = Fingerprint(*(np.ones(n, np.float32) for _ in range(3)), n_frames=40)
    assert len(index_hashes(few)[0]) == 0
    assert len(query_hashes(few).hashes) == 0
