"""Stretches that represent a whole track: partial analysis of mood and embedding.

Each stretch is the middle of one of several equal parts of the track, so neither the intro nor the
end dominates. They are joined into one waveform with one loudness. Tempo, beats and key need the
whole track. `benchmarks.accuracy.partial` measures how closely the results agree.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pipelines.analysis.records import MoodResult
from pipelines.audio.decode import DecodeLimits, decode, decode_segments, probe
from pipelines.audio.decode_answer import AudioClaims
from pipelines.audio.waveform import Waveform

LEAST_SHARE = 0.9
"""A file that yields less than this share of the samples after seeking is decoded as a whole."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """How much of a track is analysed."""

    n_parts: int = 3
    part_s: float = 10.0

    def __str__(self) -> str:
        return f"{self.n_parts} x {self.part_s:g} s"

    @property
    def duration_s(self) -> float:
        """Total length of all parts."""
        return self.n_parts * self.part_s

    def segments(self, duration_s: float) -> list[tuple[float, float]]:
        """Return ``(start_s, duration_s)`` of every part; a short track is one whole part."""
        if duration_s <= self.duration_s:
            return [(0.0, duration_s)]
        share_s = duration_s / self.n_parts
        return [
            (part * share_s + (share_s - self.part_s) / 2, self.part_s)
            for part in range(self.n_parts)
        ]

    def take(self, waveform: Waveform) -> Waveform:
        """Cut the parts out of a decoded track ``[C, T]`` and join them."""
        if waveform.duration_s <= self.duration_s:
            return waveform
        rate = waveform.sample_rate
        length = round(self.part_s * rate)
        starts = [round(start_s * rate) for start_s, _ in self.segments(waveform.duration_s)]
        parts = [waveform.samples[:, start : start + length] for start in starts]
        return Waveform(np.concatenate(parts, axis=1), rate)

    def named(self) -> dict[str, str]:
        """Return the entry that marks a partial analysis among the model ids."""
        return {"excerpt": str(self)}

    def mark(self, mood: MoodResult) -> MoodResult:
        """Note among the model ids that only this excerpt was analysed."""
        return replace(mood, models=mood.models | self.named())


def decode_excerpt(
    source: Path,
    limits: DecodeLimits,
    excerpt: Excerpt,
    read_claims: Callable[[Path, DecodeLimits], AudioClaims] = probe,
) -> Waveform:
    """Decode only the excerpt, seeking to each part.

    A file whose headers give no length, or a wrong one, is decoded as a whole.

    Returns:
        What `Excerpt.take` returns for the whole track, within the accuracy of its time stamps.

    Raises:
        AudioError: As `pipelines.audio.decode.decode`.
    """
    duration_s = read_claims(source, limits).duration_s
    if duration_s is not None and excerpt.duration_s < duration_s <= limits.max_seconds:
        parts = decode_segments(source, excerpt.segments(duration_s), limits)
        channels = {part.samples.shape[0] for part in parts}
        heard_s = sum(part.duration_s for part in parts)
        if len(channels) == 1 and heard_s >= LEAST_SHARE * excerpt.duration_s:
            return Waveform(np.concatenate([part.samples for part in parts], axis=1))
    return excerpt.take(decode(source, limits))
