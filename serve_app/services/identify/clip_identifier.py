"""Identify one stored recording: decode, fingerprint, ask the cascade, enrich."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import AudioError, Waveform
from pipelines.fingerprint.clip import SHORTEST_CLIP_S, Clip
from serve_app.domain.identification import TempoAndKey
from serve_app.domain.objects import ObjectNotFoundError
from serve_app.services.audio.decoding import counted_decoding
from serve_app.services.audio.refusal import Refusal
from serve_app.services.identify.answers import IdentifyCache
from serve_app.services.identify.cascade import TOTAL_BUDGET_S, IdentifyCascade, IdentifyOutcome
from serve_app.services.identify.enrichment import Enriched, EnrichmentService
from serve_app.services.identify.identified import Identified
from serve_app.store.objects import ObjectStore

MakeClip = Callable[[Waveform], Clip]
MEASURED_S = 120.0
"""Seconds measured from the middle of a longer recording: a call cannot wait for more."""
AT_ONCE = 2

MeasureClip = Callable[[Waveform], Awaitable[TempoAndKey | None]]


class ClipIdentifier:
    """Returns what is wrong with the audio as an answer, not an error; see `IdentifyBackend`."""

    def __init__(
        self,
        objects: ObjectStore,
        make_clip: MakeClip,
        cache: IdentifyCache,
        cascade: IdentifyCascade,
        enrichment: EnrichmentService,
        measure: MeasureClip,
        at_once: int = AT_ONCE,
    ) -> None:
        """Use these parts.

        Args:
            objects: Where recordings are stored.
            make_clip: Makes fingerprints.
            cache: Earlier answers.
            cascade: Own index and services.
            enrichment: Adds what else is known about a track.
            measure: Finds tempo and key.
            at_once: Recordings decoded at the same time; more may be waiting for services.
        """
        self._turns = asyncio.Semaphore(at_once)
        self._objects = objects
        self._make_clip = make_clip
        self._cache = cache
        self._cascade = cascade
        self._enrichment = enrichment
        self._measure = measure

    async def identify(self, key: str, sha256: str, max_audio_s: float) -> Identified | Refusal:
        """See `IdentifyBackend`."""
        limits = DecodeLimits(max_seconds=max_audio_s, min_seconds=SHORTEST_CLIP_S)
        try:
            async with self._turns:
                ends_at = time.monotonic() + TOTAL_BUDGET_S
                with TemporaryDirectory(prefix="afa-identify-") as folder:
                    path = Path(folder) / "audio"
                    await self._objects.download(key, path)
                    clip, heard = await asyncio.to_thread(self._hear, path, limits)
        except AudioError as error:
            return Refusal(error.code, str(error))
        except ObjectNotFoundError:
            return Refusal("unprocessable_audio", "the uploaded audio is gone; send it again")
        known = await self._cache.by_fingerprint(clip.fingerprint)
        if known is not None:
            return known
        generation = self._cache.generation()
        outcome = await self._cascade.identify(clip)
        enriched = None
        if outcome.recognition is not None:
            enriched = await self._enrichment.enrich(
                outcome.recognition,
                measure=lambda: self._measure(heard),
                left_s=ends_at - time.monotonic(),
            )
        found = replace(describe(outcome, enriched), generation=generation)
        if found.is_definite and not found.is_unavailable:
            await self._cache.put(sha256, clip.fingerprint, found)
        return found

    def _hear(self, path: Path, limits: DecodeLimits) -> tuple[Clip, Waveform]:
        with counted_decoding():
            waveform = decode(path, limits)
        return self._make_clip(waveform), middle(waveform, MEASURED_S)


def middle(waveform: Waveform, length_s: float) -> Waveform:
    """Copy the middle of a recording, or return a short one unchanged."""
    n = waveform.samples.shape[1]
    length = round(length_s * waveform.sample_rate)
    if n <= length:
        return waveform
    start = (n - length) // 2
    return Waveform(waveform.samples[:, start : start + length].copy(), waveform.sample_rate)


def describe(outcome: IdentifyOutcome, enriched: Enriched | None) -> Identified:
    """Turn what was found into plain data."""
    tried = {name: state.value for name, state in outcome.services_tried.items()}
    if enriched is None:
        return Identified(services_tried=tried, is_definite=outcome.is_definite)
    identity = enriched.identity
    facts = asdict(enriched.enrichment)
    failures = facts.pop("failures")
    return Identified(
        services_tried=tried,
        artist=identity.artist,
        title=identity.title,
        album=identity.album,
        year=str(identity.year) if identity.year is not None else None,
        isrc=identity.isrc,
        confidence=outcome.confidence,
        source_service=outcome.source_service,
        enrichment=facts,
        is_definite=outcome.is_definite and not failures,
    )
