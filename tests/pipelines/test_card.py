"""A track is copied to a card once, and its analysis there equals that on the CPU."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from benchmarks.gpu.agreement import lowest_cosine
from benchmarks.gpu.subjects import Subject, subjects
from models.checkpoints.cache import pull
from models.checkpoints.cards import ModelCard, choose_cards
from models.loudness import step_energies
from pipelines.analysis import embedding, mood, mood_and_embedding, spectral
from pipelines.audio.track import resampled
from pipelines.audio.waveform import SAMPLE_RATE, Waveform
from pipelines.batching.steps import CPU, Both, Step, run_local
from tests.card import DEVICE, Card

Chosen = dict[str, tuple[ModelCard, ...]]
Build = Callable[[Chosen, Path, torch.device], Step[Any]]


def everything(chosen: Chosen, model_dir: Path, device: torch.device) -> Step[Any]:
    """Build what `afa.Analyzer.stream` runs."""
    described = mood_and_embedding.build(chosen, model_dir, device)
    return Both(spectral.build(chosen, model_dir, device), described)


HEARD: dict[str, Build] = {
    "mood": mood.build,
    "embedding": embedding.build,
    "spectral": spectral.build,
    "everything": everything,
}


def music(seconds: float) -> Waveform:
    """Chords and hits with nothing above 11 kHz, as a lossy format leaves it."""
    t = np.arange(int(seconds * SAMPLE_RATE)) / SAMPLE_RATE
    chord = sum(np.sin(2 * np.pi * hertz * t) for hertz in (220.0, 277.18, 329.63, 2637.0))
    hit = np.random.default_rng(0).normal(size=len(t)) * np.exp(-25 * (t % 0.5))
    left, right = 0.1 * chord + 0.2 * hit, 0.08 * chord + 0.25 * hit
    spectrum = np.fft.rfft(np.stack([left, right]))
    spectrum[:, spectrum.shape[1] // 2 :] = 0
    return Waveform(np.fft.irfft(spectrum, len(t)).astype(np.float32), SAMPLE_RATE)


@pytest.mark.parametrize("name", HEARD)
def test_a_track_comes_once_and_is_heard_alike(
    name: str, cards: dict[str, ModelCard], model_dir: Path
) -> None:
    chosen = choose_cards(cards, "any")
    for model_id in ("vibenet", "musicnn-mtt", "afa-embed-1", "afa-beats-3"):
        pull(cards[model_id], model_dir)
    on_host: Step[Any] = HEARD[name](chosen, model_dir, CPU)
    there = run_local(on_host, music(8.0))
    with torch.inference_mode(), Card() as card:
        step: Step[Any] = HEARD[name](chosen, model_dir, DEVICE)
        run_local(step, music(2.0), device=DEVICE)  # makes the tables that are kept
        before = card.n_bytes
        here = run_local(step, music(8.0), device=DEVICE)
    pcm_bytes = 8 * SAMPLE_RATE * (1 if step.is_mono else 2) * 4
    assert pcm_bytes <= card.n_bytes - before <= 1.05 * pcm_bytes
    compare(here, there)


@pytest.mark.parametrize("subject", [*subjects(is_small=True)], ids=lambda one: one.name)
def test_every_network_and_front_end_keeps_what_it_needs_on_the_card(subject: Subject) -> None:
    """Includes networks that are no default."""
    windows = subject.windows(2)
    with torch.inference_mode():
        there = subject.build(CPU)(windows)
        with Card() as card:
            network, of_card = subject.build(DEVICE), windows.to(DEVICE)
            network(of_card)  # makes the tables that are kept
            before = card.n_bytes
            outputs = network(of_card)
            assert card.n_bytes == before
            assert {rows.device for rows in outputs.values()} == {DEVICE}
            here = {name: rows.to("cpu") for name, rows in outputs.items()}
    assert lowest_cosine(there, here) > 0.9999


def compare(here: Any, there: Any) -> None:
    if isinstance(there, tuple):
        for one, other in zip(here, there, strict=True):
            compare(one, other)
    elif isinstance(there, spectral.SpectralResult):
        assert (here.key, here.mode, here.time_signature) == (
            there.key,
            there.mode,
            there.time_signature,
        )
        assert len(there.beats) > 12
        np.testing.assert_allclose(here.beats, there.beats, atol=1e-3)
        np.testing.assert_allclose(here.downbeats, there.downbeats, atol=1e-3)
        assert here.tempo == pytest.approx(there.tempo, abs=1e-2)
        assert here.key_confidence == pytest.approx(there.key_confidence, abs=1e-2)
        assert here.loudness_lufs == pytest.approx(there.loudness_lufs, abs=1e-3)
        assert here.true_peak_dbtp == pytest.approx(there.true_peak_dbtp, abs=1e-2)
        assert len(here.segments) == len(there.segments)
    elif isinstance(there, mood.MoodResult):
        for name in mood.ATTRIBUTES:
            assert getattr(here, name) == pytest.approx(getattr(there, name), abs=5e-3)
        assert [tag.tag for tag in here.tags] == [tag.tag for tag in there.tags]
    else:
        assert float(np.dot(here.vector, there.vector)) > 0.9999


def test_a_card_transforms_much_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a card, launching a kernel takes longer than a block of samples takes on a CPU."""
    transforms: list[int | None] = []
    rfft = torch.fft.rfft

    def counted(samples: Tensor, n: int | None = None) -> Tensor:
        transforms.append(n)
        return rfft(samples, n)

    monkeypatch.setattr(torch.fft, "rfft", counted)
    samples = torch.randn(4, 2, 10 * SAMPLE_RATE, generator=torch.Generator().manual_seed(0))
    there = step_energies(samples, SAMPLE_RATE)
    assert len(transforms) > 10
    with torch.inference_mode(), Card():
        step_energies(samples[:1].to(DEVICE), SAMPLE_RATE)  # makes the filter's own transform
        transforms.clear()
        here = step_energies(samples.to(DEVICE), SAMPLE_RATE).cpu()
        assert len(transforms) == 1
        transforms.clear()
        resampled(torch.zeros(40 * SAMPLE_RATE).to(DEVICE), SAMPLE_RATE, 16_000)
    assert len(transforms) <= 2  # the filter's, and one block
    torch.testing.assert_close(here, there, rtol=1e-5, atol=0)


def test_the_card_takes_part_in_nothing_of_the_host() -> None:
    with torch.inference_mode(), Card() as card:
        there = torch.ones(3, 4).to(DEVICE)
        assert (there * 2).sum().item() == 24
        assert card.n_bytes == 48
        with pytest.raises(RuntimeError, match="of the host"):
            there + torch.ones(3, 4)
