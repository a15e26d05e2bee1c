"""Chords on bars and beats: what the decoder makes of evidence, and what is found in music."""

from collections.abc import Callable
from dataclasses import replace

import mir_eval.chord
import numpy as np
import pytest
import torch

from models.tonality.chordnet import (
    FRAME_SAMPLES,
    N_BASSES,
    N_CHORDS,
    NO_CHORD,
    RECEPTIVE_FRAMES,
    SAMPLE_RATE,
    ChordNetwork,
)
from pipelines.analysis.records import Chord
from pipelines.analysis.tonality.chords import ChordEvidence, ChordModel, find_chords, join_chords
from pipelines.analysis.tonality.key import played_in_tune
from pipelines.analysis.tonality.notes import chord_name
from pipelines.batching.steps import forward_windows

_FRAME_S = FRAME_SAMPLES / SAMPLE_RATE
BEATS = [0.5 * i for i in range(33)]


def evidence(*parts: tuple[float, int, int], sureness: float = 0.8) -> ChordEvidence:
    """Return evidence for chords and basses, each lasting up to a given second."""
    times = (np.arange(int(parts[-1][0] / _FRAME_S)) + 0.5) * _FRAME_S
    chords = np.full((len(times), N_CHORDS), (1 - sureness) / (N_CHORDS - 1))
    basses = np.full((len(times), N_BASSES), (1 - sureness) / (N_BASSES - 1))
    start = 0.0
    for end, chord, bass in parts:
        inside = (times >= start) & (times < end)
        chords[inside, chord], basses[inside, bass] = sureness, sureness
        start = end
    return ChordEvidence(
        np.log(chords).astype(np.float32), np.log(basses).astype(np.float32), times
    )


def names(chords: list[Chord]) -> list[str]:
    return [chord_name(chord.root, chord.mode, chord.bass) for chord in chords]


def test_every_bar_has_its_chords_and_they_cover_the_track() -> None:
    heard = evidence((4.0, 0, 0), (5.0, 12 + 9, 9), (8.0, 7, 11), (16.3, NO_CHORD, 12))
    chords = find_chords(heard, BEATS, BEATS[::4], 16.3)
    assert names(chords) == ["C:maj", "C:maj", "A:min", "G:maj/3", "G:maj/3", *["N"] * 5]
    assert [chord.start_s for chord in chords[:5]] == [0.0, 2.0, 4.0, 5.0, 6.0]
    ends = [chord.start_s + chord.duration_s for chord in chords]
    assert ends == pytest.approx([*(chord.start_s for chord in chords[1:]), 16.3])


@pytest.mark.parametrize(("probability", "right"), [(0.5, 0.59), (0.7, 0.82), (0.8, 0.91)])
def test_a_confidence_is_the_share_that_is_right(probability: float, right: float) -> None:
    (found,) = find_chords(evidence((2.0, 0, 0), sureness=probability), [0.0], [0.0], 2.0)
    assert found.confidence == pytest.approx(right, abs=0.01)


@pytest.mark.parametrize(("share", "bass"), [(0.55, 0), (0.65, 7)])
def test_another_bass_has_to_be_clearly_likelier(share: float, bass: int) -> None:
    heard = evidence((2.0, 0, 0))
    basses = np.full(heard.basses.shape, 1e-6, np.float32)
    basses[:, 7], basses[:, 0] = share, 1 - share
    (found,) = find_chords(replace(heard, basses=np.log(basses)), [0.0], [0.0], 2.0)
    assert found.bass == bass


def test_a_confidence_is_finite_where_a_probability_is_none_or_one() -> None:
    heard = evidence((2.0, 0, 0))
    certain = np.full(heard.chords.shape, -np.inf, np.float32)
    certain[:, 0] = 0.0
    (found,) = find_chords(replace(heard, chords=certain), [0.0], [0.0], 2.0)
    assert 0.99 < found.confidence <= 1.0


def test_a_slip_of_one_beat_is_no_chord_and_of_a_bar_is_one() -> None:
    slip = evidence((4.0, 0, 0), (4.5, 5, 5), (8.0, 0, 0), sureness=0.2)
    assert set(names(find_chords(slip, BEATS, BEATS[::4], 8.0))) == {"C:maj"}
    bar = evidence((4.0, 0, 0), (6.0, 5, 5), (8.0, 0, 0), sureness=0.2)
    assert names(find_chords(bar, BEATS, BEATS[::4], 8.0)) == ["C:maj", "C:maj", "F:maj", "C:maj"]


def test_without_beats_there_are_chords() -> None:
    chords = find_chords(evidence((4.0, 0, 0), (8.0, 12, 0)), [], [], 8.0)
    assert names(chords) == ["C:maj", "C:min"]
    assert chords[1].start_s == pytest.approx(4.0, abs=0.26)


def test_changes_are_counted_without_beats() -> None:
    bars = [(2.0 * (i + 1), 7 * (i % 2), 0) for i in range(16)]
    assert evidence(*bars).changes_per_second == pytest.approx(0.5, abs=0.05)
    assert evidence((32.0, 0, 0)).changes_per_second == 0
    assert evidence((0.9, 0, 0)).changes_per_second == 0
    flicker = [(0.2 * (i + 1), 7 * (i % 7 == 3), 0) for i in range(100)]
    assert evidence(*flicker, sureness=0.3).changes_per_second == 0


def test_names_are_what_mir_eval_reads() -> None:
    for root in range(12):
        for bass in range(12):
            for mode in (0, 1):
                name = chord_name(root, mode, bass)
                number, _, found = mir_eval.chord.encode(name)
                assert (number, (number + found) % 12) == (root, bass), name
    assert chord_name(-1, -1, -1) == "N"


def music(seconds: float, cents: float = 0.0) -> torch.Tensor:
    """C major and A minor alternately, two seconds each, in root position."""
    t = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    sound = np.zeros(len(t))
    for i, pitches in enumerate(((48, 60, 64, 67), (45, 60, 64, 69))):
        on = (t // 2).astype(int) % 2 == i
        for pitch in pitches:
            hz = 440 * 2 ** ((pitch - 69 + cents / 100) / 12)
            sound += on * sum(np.sin(2 * np.pi * k * hz * t) / k for k in (1, 2, 3))
    return torch.from_numpy((0.05 * sound).astype(np.float32))


@pytest.fixture(scope="module")
def network(checkpoint: Callable[[str], dict[str, torch.Tensor]]) -> ChordNetwork:
    return ChordNetwork.from_tensors(checkpoint("afa-chords-2"))


@pytest.mark.parametrize("cents", [0.0, 40.0])
def test_music_is_heard_in_its_tuning(network: ChordNetwork, cents: float) -> None:
    model, samples = ChordModel("chords", network, torch.device("cpu")), music(16.0, cents)
    windows, n = model.windows(samples, cents)
    heard = join_chords(forward_windows(model, windows, 4), model.grid, n, len(samples))
    assert heard.times_s[-1] < 16.2
    found = find_chords(heard, BEATS, BEATS[::4], 16.0)
    assert names(found) == ["C:maj", "A:min"] * 4


@pytest.mark.parametrize("cents", [-37.0, 20.0])
def test_windows_are_those_of_the_whole_played_in_tune(network: ChordNetwork, cents: float) -> None:
    model, samples = ChordModel("chords", network, torch.device("cpu")), music(190.0, cents)
    windows, n = model.windows(samples, cents)
    whole = played_in_tune(samples, cents)
    assert abs(n - len(whole)) <= 1
    expected = model.grid.windows(whole, n)
    assert windows.shape == expected.shape == (4, model.spec.length)
    torch.testing.assert_close(windows[:], expected, atol=5e-5, rtol=0)


@pytest.mark.parametrize("seconds", [0.0, 3.0, 20.0, 45.0])
def test_silence_behind_the_sound_is_the_same_computed_or_not(
    network: ChordNetwork, seconds: float
) -> None:
    model = ChordModel("chords", network, torch.device("cpu"))
    window = torch.zeros(1, model.spec.length)
    sound = music(seconds)
    window[0, : len(sound)] = sound
    n_frames = []
    computed = network.register_forward_hook(lambda *said: n_frames.append(said[-1].shape[1]))
    with torch.inference_mode():
        heard = model.forward(window)["chords"]
        computed.remove()
        whole = network(window)
    assert n_frames[0] < seconds * SAMPLE_RATE / FRAME_SAMPLES + 90
    assert heard.shape == whole.shape
    inner = slice(0, whole.shape[1] - RECEPTIVE_FRAMES)  # after it, the whole knows where it ends
    torch.testing.assert_close(heard[:, inner], whole[:, inner], atol=1e-4, rtol=0)


def test_windows_join_without_a_seam(network: ChordNetwork) -> None:
    model, samples = ChordModel("chords", network, torch.device("cpu")), music(75.0)
    windows, n = model.windows(samples, 0.0)
    assert len(windows) == 2
    joined = join_chords(forward_windows(model, windows, 1), model.grid, n, n)
    with torch.inference_mode():
        whole = network(samples[None])[0, :, :N_CHORDS]
    # After the track, one has silence and the other has nothing.
    inner = slice(0, len(whole) - RECEPTIVE_FRAMES)
    torch.testing.assert_close(
        torch.from_numpy(joined.chords[inner]), whole[inner], atol=1e-3, rtol=0
    )
