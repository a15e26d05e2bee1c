"""The real networks in this process, in place of the model deployments."""

import asyncio
import hashlib
from pathlib import Path

import torch

from configs.settings import Settings
from models.checkpoints.cache import pull
from pipelines.analysis import embedding, mood, spectral
from pipelines.analysis.rhythm.estimate import TempoRange
from pipelines.audio.waveform import Waveform
from pipelines.batching.steps import run_local
from serve_app.composition.options import ModelOptions
from serve_app.services.jobs.run import Analysed
from tests.api.application import FakeBackend


class RealBackend(FakeBackend):
    """Analyses each audio once with the default checkpoints; few windows are enough here."""

    def __init__(self, model_dir: Path) -> None:
        super().__init__()
        cards = ModelOptions(model_dir=Settings().resolved_model_dir()).cards()
        for role in cards.values():
            for card in role:
                pull(card, model_dir)
        cpu = torch.device("cpu")
        self._spectral = spectral.build(cards, model_dir, cpu)
        self._mood = mood.build(cards, model_dir, cpu, max_windows=2)
        self._embedding = embedding.build(cards, model_dir, cpu, max_windows=2)
        self._known: dict[bytes, Analysed] = {}

    async def analyse(
        self, waveform: Waveform, tempo_range: TempoRange | None = None, embedding_model: str = ""
    ) -> Analysed:
        if self.gate is not None:
            await self.gate.wait()
        return await asyncio.to_thread(self._run, waveform)

    def _run(self, waveform: Waveform) -> Analysed:
        digest = hashlib.sha256(waveform.samples.tobytes()).digest()
        if digest not in self._known:
            self._known[digest] = Analysed(
                run_local(self._spectral, waveform),
                run_local(self._mood, waveform),
                run_local(self._embedding, waveform),
            )
        return self._known[digest]
