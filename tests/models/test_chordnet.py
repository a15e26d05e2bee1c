"""The chord network: rows alone, the receptive field, silence, and equal results in every key."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from models.tonality.chordnet import (
    FRAME_SAMPLES,
    N_CHORDS,
    OVERHANG,
    RECEPTIVE_FRAMES,
    ChordNetwork,
)

_N_FRAMES = 2 * RECEPTIVE_FRAMES + 4


@pytest.fixture(scope="module")
def network(checkpoint: Callable[[str], dict[str, Tensor]]) -> ChordNetwork:
    return ChordNetwork.from_tensors(checkpoint("afa-chords-2"))


def noise(rows: int, n_frames: int = _N_FRAMES) -> Tensor:
    samples = torch.randn(
        rows, n_frames * FRAME_SAMPLES + OVERHANG, generator=torch.Generator().manual_seed(3)
    )
    return 0.1 * samples


def test_a_row_equals_itself_alone_and_says_probabilities(network: ChordNetwork) -> None:
    batch = torch.cat([noise(1), 3.0 * noise(1), torch.zeros(1, noise(1).shape[1])])
    with torch.inference_mode():
        rows = network(batch)
        for row, waveform in zip(rows, batch, strict=True):
            torch.testing.assert_close(network(waveform[None])[0], row, atol=1e-5, rtol=1e-4)
    assert rows.shape == (3, _N_FRAMES, 38)
    for part in (rows[..., :N_CHORDS], rows[..., N_CHORDS:]):
        assert part.exp().sum(-1).flatten().tolist() == pytest.approx([1.0] * 3 * _N_FRAMES)


def test_what_lies_farther_than_the_receptive_field_changes_nothing(network: ChordNetwork) -> None:
    samples = noise(1)
    other = samples.clone()
    other[:, (RECEPTIVE_FRAMES + 2) * FRAME_SAMPLES + OVERHANG :] *= -2.0
    with torch.inference_mode():
        before, after = network(samples)[0], network(other)[0]
    torch.testing.assert_close(before[0], after[0], atol=1e-5, rtol=1e-4)
    assert (before[RECEPTIVE_FRAMES] - after[RECEPTIVE_FRAMES]).abs().max() > 1e-3
