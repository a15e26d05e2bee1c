"""Merge the results of the steps into one record."""

from pipelines.analysis.records import EmbeddingResult, MoodResult, SpectralResult, TrackFeatures
from pipelines.analysis.tags.contradictions import consistent_tags
from pipelines.analysis.tags.presence import with_presence
from pipelines.analysis.tags.repeatability import repeatability
from pipelines.analysis.tags.tagging import joined_tags
from pipelines.analysis.tonality.notes import camelot


def merge(
    duration_s: float, spectral: SpectralResult, mood: MoodResult, embedding: EmbeddingResult
) -> TrackFeatures:
    """Put the three results together."""
    mood = with_presence(mood, embedding)
    return TrackFeatures(
        duration_s=duration_s,
        tempo=spectral.tempo,
        tempo_confidence=spectral.tempo_confidence,
        beats=spectral.beats,
        downbeats=spectral.downbeats,
        time_signature=spectral.time_signature,
        time_signature_confidence=spectral.time_signature_confidence,
        key=spectral.key,
        mode=spectral.mode,
        key_confidence=spectral.key_confidence,
        camelot=camelot(spectral.key, spectral.mode),
        loudness_lufs=spectral.loudness_lufs,
        loudness_range_lu=spectral.loudness_range_lu,
        true_peak_dbtp=spectral.true_peak_dbtp,
        mix_in_s=spectral.mix_in_s,
        mix_out_s=spectral.mix_out_s,
        acousticness=mood.acousticness,
        danceability=mood.danceability,
        energy=mood.energy,
        instrumentalness=mood.instrumentalness,
        liveness=mood.liveness,
        speechiness=mood.speechiness,
        valence=mood.valence,
        mood_tags=consistent_tags(
            joined_tags(mood.tags, embedding.tags), mood.instrumentalness, spectral.tempo
        ),
        models={**embedding.models, **mood.models, **spectral.models},
        embedding=embedding.vector,
        segments=spectral.segments,
        sections=spectral.sections,
        tempo_alternatives=spectral.tempo_alternatives,
        chords=spectral.chords,
        tuning_cents=spectral.tuning_cents,
        attribute_confidence=repeatability(mood),
    )
