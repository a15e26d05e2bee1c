"""Identify one stored recording: decode, fingerprint, ask the cascade, enrich."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.audio import AudioError, Waveform
from pipelines.clip import SHORTEST_CLIP_S, Clip
from pipelines.decode import DecodeLimits, decode
from serve_app.domain.identification import Measured
from serve_app.domain.object_ports import ObjectNotFoundError, ObjectStorePort
from serve_app.services.bpm import Refusal
from serve_app.services.enrichment import Enriched, EnrichmentService
from serve_app.services.identify import Identified
from serve_app.services.identify_cache import KEEP_MATCH_S, KEEP_NO_MATCH_S, IdentifyCache
from serve_app.services.identify_cascade import TOTAL_BUDGET_S, IdentifyCascade, IdentifyOutcome

MakeClip = Callable[[Waveform], Clip]
MeasureClip = Callable[[Waveform], Awaitable[Measured | None]]


class ClipIdentifier:
    """What is wrong with the audio is an answer, not an error; see `IdentifyBackend`."""

    def __init__(
        self,
        objects: ObjectStorePort,
        make_clip: MakeClip,
        cache: IdentifyCache,
        cascade: IdentifyCascade,
        enrichment: EnrichmentService,
        measure: MeasureClip,
    ) -> None:
        self._objects = objects
        self._make_clip = make_clip
        self._cache = cache
        self._cascade = cascade
        self._enrichment = enrichment
        self._measure = measure

    async def identify(self, key: str, sha256: str, max_audio_s: float) -> Identified | Refusal:
        """See `IdentifyBackend`."""
        ends_at = time.monotonic() + TOTAL_BUDGET_S
        limits = DecodeLimits(max_seconds=max_audio_s, min_seconds=SHORTEST_CLIP_S)
        try:
            with TemporaryDirectory(prefix="afa-identify-") as folder:
                path = Path(folder) / "audio"
                await self._objects.download(key, path)
                waveform = await asyncio.to_thread(decode, path, limits)
            clip = await asyncio.to_thread(self._make_clip, waveform)
        except AudioError as error:
            return Refusal(error.code, str(error))
        except ObjectNotFoundError:
            return Refusal("unprocessable_audio", "the uploaded audio is gone; send it again")
        known = await self._cache.by_fingerprint(clip.fingerprint)
        if known is not None:
            return replace(Identified.from_json(known), is_known_clip=True)
        outcome = await self._cascade.identify(clip)
        enriched = None
        if outcome.recognition is not None:
            enriched = await self._enrichment.enrich(
                outcome.recognition,
                measure=lambda: self._measure(waveform),
                left_s=ends_at - time.monotonic(),
            )
        found = describe(outcome, enriched)
        if found.is_definite and not found.is_unavailable:
            keep_s = KEEP_MATCH_S if found.matched else KEEP_NO_MATCH_S
            digest = bytes.fromhex(sha256)
            await self._cache.put(digest, clip.fingerprint, found.to_json(), keep_s)
        return found


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
