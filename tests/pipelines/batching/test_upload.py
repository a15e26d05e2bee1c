"""How a track reaches a device: the blocks it passes through, and what is left of it there."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from pipelines.audio.resample import resample
from pipelines.audio.track import resampled
from pipelines.audio.waveform import Waveform
from pipelines.batching.upload import BLOCK_SAMPLES, DEPTH, StagingBlocks, bring
from tests.card import DEVICE, Card


class Copy:
    """The event after a copy that reads a block; waiting for it ends it."""

    def __init__(self) -> None:
        self.waited = 0

    def synchronize(self) -> None:
        self.waited += 1


def test_two_blocks_of_a_thread_are_used_in_turn_and_waited_for() -> None:
    blocks = StagingBlocks(is_pinned=False)
    copies: list[Any] = [Copy() for _ in range(5)]
    places = []
    for copy in copies:
        places.append(blocks.next().data_ptr())
        blocks.is_copied_after(copy)
    assert len(set(places)) == DEPTH
    assert [copy.waited for copy in copies] == [1, 1, 1, 0, 0]
    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(lambda: blocks.next().data_ptr()).result() not in places


def test_a_block_is_free_when_the_card_it_went_to_has_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a second card, the copies are not on the current stream, which is the first card's."""
    waited_for: list[Any] = []

    class Event(Copy):
        def record(self, stream: Any = None) -> None:
            waited_for.append(stream or torch.cuda.current_stream())

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device="the first card": device)
    blocks = StagingBlocks(is_pinned=False)
    blocks.next(), blocks.next()
    blocks.is_pinned = True
    with torch.inference_mode(), Card():
        bring(Waveform(np.zeros((2, 100), np.float32)), DEVICE, blocks=blocks)
    assert waited_for == [DEVICE, DEVICE]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("is_mono", [False, True])
def test_what_arrives_is_the_track_itself(
    is_mono: bool, dtype: type[np.float32 | np.float16]
) -> None:
    n = BLOCK_SAMPLES + 1000  # more than one block
    samples = np.random.default_rng(0).normal(size=(2, n)).astype(dtype)
    with torch.inference_mode(), Card() as card:
        track = bring(Waveform(samples), DEVICE, is_mono=is_mono)
        arrived = track.samples.cpu()
        assert card.n_bytes == n * (1 if is_mono else 2) * 4
    samples = samples.astype(np.float32)
    wanted = samples.mean(axis=0, keepdims=True) if is_mono else samples
    np.testing.assert_allclose(arrived, wanted, rtol=1e-6, atol=1e-6)


def test_on_the_cpu_the_memory_is_shared() -> None:
    samples = np.zeros((2, 100), np.float32)
    samples.flags.writeable = False  # as it comes from the object store
    assert bring(Waveform(samples), torch.device("cpu")).samples.data_ptr() == samples.ctypes.data


@pytest.mark.parametrize("rate", [16_000, 22_050, 48_000])
def test_the_device_resamples_as_the_host_and_torchaudio(rate: int) -> None:
    from torchaudio.functional import resample as of_torchaudio

    rng = np.random.default_rng(1)
    spectrum = np.fft.rfft(rng.normal(size=700_000)) / np.sqrt(np.arange(350_001) + 1.0)
    music = np.fft.irfft(spectrum * np.exp(-np.arange(350_001) / 1e5), 700_000).astype(np.float32)
    music /= np.abs(music).max()
    here = resampled(torch.from_numpy(music), 44_100, rate)
    like = of_torchaudio(
        torch.from_numpy(music), 44_100, rate, 96, 0.9565, "sinc_interp_kaiser", 13.0
    )
    torch.testing.assert_close(here, like, atol=3e-5, rtol=0)
    inner = slice(1000, -1000)
    there = torch.from_numpy(resample(music, 44_100, rate))[: len(here)]
    error = (here[: len(there)] - there)[inner].square().mean().sqrt()
    assert float(error / there.square().mean().sqrt()) < 1e-3
