"""A file on its way to a card, in an actor of a back-fill."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import torch

from models.checkpoints.cache import pull
from models.checkpoints.cards import ModelCard
from pipelines.audio.decode import decode
from pipelines.audio.waveform import SAMPLE_RATE, Waveform
from pipelines.batching import device
from pipelines.batching.batcher import DeviceFaultError
from serve_app.backfill import hearer
from serve_app.backfill.hearer import SOURCE, Hearer, HearerOptions
from serve_app.composition.options import ModelOptions
from serve_app.services.scan.places import Folder
from tests.card import DEVICE, Card
from tests.data.audio_files import click_track, encode


@pytest.fixture
def options(cards: dict[str, ModelCard], model_dir: Path) -> ModelOptions:
    for model_id in ("vibenet", "musicnn-mtt", "musicnn-msd-768", "afa-beats-3"):
        pull(cards[model_id], model_dir)
    return ModelOptions(model_dir=model_dir, chosen={"embedding": "musicnn-msd-768"})


def test_a_file_comes_to_a_card_once_for_both_steps(
    tmp_path: Path, options: ModelOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearer, "assigned_cpus", lambda: 2)
    monkeypatch.setattr(hearer, "replica_device", lambda wanted: DEVICE)
    for name, seconds in (("first.ogg", 2), ("second.ogg", 4)):
        encode(tmp_path / name, click_track(120, seconds), "ogg", "vorbis")
    first, second = Folder(tmp_path).find()
    with torch.inference_mode(), Card() as card:
        actor = Hearer(
            HearerOptions(Folder(tmp_path), options, options, tmp_path / "no", tmp_path / "none")
        )
        actor._read(first)  # makes the tables that are kept
        before = card.n_bytes
        read = actor._read(second)
    pcm_bytes = 4 * SAMPLE_RATE * 2 * 4
    assert read.prepared.spectral.windows
    assert read.prepared.described.windows
    assert pcm_bytes <= card.n_bytes - before <= 1.05 * pcm_bytes
    actor._analysis.spectral.close()
    actor._analysis.described.close()


async def test_an_actor_with_one_processor_reads_no_file_beside_a_forward(
    tmp_path: Path, options: ModelOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearer, "assigned_cpus", lambda: 1)
    monkeypatch.setattr(hearer, "replica_device", lambda wanted: torch.device("cpu"))
    for name in ("first.ogg", "second.ogg"):
        encode(tmp_path / name, click_track(120, 2), "ogg", "vorbis")
    actor = Hearer(
        HearerOptions(Folder(tmp_path), options, options, tmp_path / "no", tmp_path / "none")
    )
    held: list[bool] = []

    def decode_noted(*args: Any) -> Waveform:
        held.append(actor._processor.locked())
        return decode(*args)

    monkeypatch.setattr(hearer, "decode", decode_noted)
    files = [
        {"location": one.location, "size_bytes": one.size_bytes, "mtime_ns": one.mtime_ns}
        for one in Folder(tmp_path).find()
    ]
    try:
        answers = await actor(pa.Table.from_pylist(files, schema=SOURCE))
    finally:
        actor._analysis.spectral.close()
        actor._analysis.described.close()
    assert answers["code"].to_pylist() == [None, None]
    assert held == [True, True]
    assert (
        actor._analysis.spectral._processor
        is actor._analysis.described._processor
        is actor._processor
    )


async def test_a_card_that_is_lost_is_blamed_on_no_file(
    tmp_path: Path, options: ModelOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hearer, "assigned_cpus", lambda: 2)
    monkeypatch.setattr(hearer, "replica_device", lambda wanted: torch.device("cpu"))
    encode(tmp_path / "first.ogg", click_track(120, 2), "ogg", "vorbis")
    actor = Hearer(
        HearerOptions(Folder(tmp_path), options, options, tmp_path / "no", tmp_path / "none")
    )

    def lost(*_args: Any, **_options: Any) -> None:
        raise torch.AcceleratorError("CUDA error: GPU is lost")

    monkeypatch.setattr(device, "bring", lost)
    (one,) = Folder(tmp_path).find()
    file = {"location": one.location, "size_bytes": one.size_bytes, "mtime_ns": one.mtime_ns}
    try:
        with pytest.raises(DeviceFaultError, match="GPU is lost"):
            await actor(pa.Table.from_pylist([file], schema=SOURCE))
    finally:
        actor._analysis.spectral.close()
        actor._analysis.described.close()
