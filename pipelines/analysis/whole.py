"""The complete analysis of many tracks: both steps behind batchers that share one device."""

import asyncio
from dataclasses import dataclass

from pipelines.analysis.merge import merge
from pipelines.analysis.records import EmbeddingResult, MoodResult, SpectralResult, TrackFeatures
from pipelines.audio.track import Track
from pipelines.audio.waveform import Waveform
from pipelines.batching.runner import BatchedStep
from pipelines.batching.steps import Prepared


@dataclass(frozen=True, slots=True)
class PreparedTrack:
    """A track whose windows are ready for the batchers."""

    duration_s: float
    spectral: Prepared
    described: Prepared


@dataclass(frozen=True, slots=True)
class WholeAnalysis:
    """Prepares tracks in any thread, and completes them in one event loop.

    Attributes:
        spectral: As `pipelines.analysis.spectral` builds it.
        described: As `pipelines.analysis.mood_and_embedding` builds it, on the same device.
    """

    spectral: BatchedStep[SpectralResult]
    described: BatchedStep[tuple[MoodResult, EmbeddingResult]]

    def prepare(self, waveform: Waveform) -> PreparedTrack:
        """Bring a track to the device once, and cut its windows for both steps.

        Raises:
            AudioError: The audio is unsuitable for one of them.
            DeviceFaultError: The device broke.
        """

        def windows(track: Track) -> tuple[Prepared, Prepared]:
            return self.spectral.step.prepare(track), self.described.step.prepare(track)

        prepared = self.spectral.prepare_by(waveform, windows, is_mono=False)
        return PreparedTrack(waveform.duration_s, *prepared)

    async def complete(self, track: PreparedTrack) -> TrackFeatures:
        """Analyse a track that has been prepared; errors as in `BatchedStep.run`."""
        spectral, (mood, embedding) = await asyncio.gather(
            self.spectral.complete(track.spectral), self.described.complete(track.described)
        )
        return merge(track.duration_s, spectral, mood, embedding)

    async def wants_more(self) -> None:
        """Wait until another track would speed up the whole."""
        await self.spectral.wants_more()
        await self.described.wants_more()

    async def compile(self) -> None:
        """Run every network at each of its batch sizes once."""
        await self.spectral.compile()
        await self.described.compile()
