"""The spectral step: rhythm, key, loudness and structure of a whole track."""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import nn

from models.checkpoints.cards import ModelCard
from models.loudness import SILENCE_DBTP, SILENCE_LUFS
from models.rhythm.beatnet import SAMPLE_RATE
from models.rhythm.tempo import TempoRange
from models.tonality.chordnet import ChordNetwork
from models.tonality.keynet import KeyNetwork
from models.tonality.skey import SKey
from models.tonality.tuning import estimate_tuning
from pipelines.analysis.levels import LevelModel, join_levels
from pipelines.analysis.networks.checkpoint_model import build_own
from pipelines.analysis.records import UNKNOWN_KEY, SpectralResult, TempoAlternative
from pipelines.analysis.rhythm.beats import BeatModel, join_beats, load_beat_model
from pipelines.analysis.rhythm.estimate import estimate_rhythm, weigh_alternatives
from pipelines.analysis.structure import (
    MeasuredTrack,
    SoundModel,
    find_mix_points,
    find_sections,
    find_segments,
)
from pipelines.analysis.tonality.chords import ChordModel, find_chords, join_chords
from pipelines.analysis.tonality.key import ChromaModel, KeyNetworkModel, estimate_key, join_chroma
from pipelines.audio.gain import SILENCE_PEAK, peak_of
from pipelines.audio.track import Track
from pipelines.batching.framed import FrameGrid
from pipelines.batching.steps import Outputs, Prepared
from pipelines.batching.windows import WindowedModel, Windows

_STRETCH = 1 << 18
"""Samples checked for sound at a time."""
CHROMA_ID = "hpcp"
"""The chroma is needed for the segments, whatever decides the key."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What `SpectralStep.finish` needs to know about a track."""

    duration_s: float
    n_samples: int
    n_analysed: int
    tuning_cents: float
    n_in_tune: int


@dataclass(frozen=True, slots=True)
class SpectralFinisher:
    """Decodes and merges the rows of all windows of a track; holds no network.

    Attributes:
        beats: Id and grid of the beat network; likewise for the other models.
        levels: The ids of the loudness models, in chronological order.
        key_networks: The id of the key networks, if there are any.
        tempo_range: The range in which the tempo must lie.
    """

    beats: tuple[str, FrameGrid]
    chroma: tuple[str, FrameGrid]
    sound: tuple[str, FrameGrid]
    chords: tuple[str, FrameGrid]
    levels: tuple[str, ...]
    key_networks: str | None
    tempo_range: TempoRange | None

    def __call__(self, context: object, outputs: Outputs) -> SpectralResult:
        """See `Finisher`."""
        if not isinstance(context, _Context):
            raise TypeError("prepared by another step")
        if not outputs:
            return self._silent(context.duration_s)
        n = context.n_analysed
        chords = join_chords(outputs[self.chords[0]], self.chords[1], context.n_in_tune, n)
        beats = replace(join_beats(outputs[self.beats[0]], self.beats[1], n), chords=chords)
        chroma = join_chroma(outputs[self.chroma[0]], self.chroma[1], n, context.tuning_cents)
        networks = None
        if self.key_networks is not None:
            networks = outputs[self.key_networks]["keys"].numpy()
        key = estimate_key(chroma, networks)
        sound = self.sound[1].join(outputs[self.sound[0]]["sound"], n).numpy()
        rhythm = estimate_rhythm(beats, chroma, sound[:, 1], self.tempo_range)
        rhythm = rhythm.before(context.duration_s)
        track = MeasuredTrack(
            duration_s=context.duration_s,
            sound=sound,
            chroma=chroma,
            levels=join_levels(
                [outputs[name] for name in self.levels if name in outputs], context.n_samples
            ),
            rhythm=rhythm,
        )
        alternatives = weigh_alternatives(beats, rhythm.tempo)
        mix_in, mix_out = find_mix_points(track)
        return SpectralResult(
            tempo=rhythm.tempo,
            tempo_confidence=rhythm.tempo_confidence,
            beats=rhythm.beats.tolist(),
            downbeats=rhythm.downbeats.tolist(),
            time_signature=rhythm.time_signature,
            time_signature_confidence=rhythm.time_signature_confidence,
            key=key.key,
            mode=key.mode,
            key_confidence=key.confidence,
            loudness_lufs=track.levels.loudness_lufs,
            loudness_range_lu=track.levels.range_lu,
            true_peak_dbtp=track.levels.true_peak_dbtp,
            mix_in_s=mix_in,
            mix_out_s=mix_out,
            segments=find_segments(track),
            sections=find_sections(track),
            models=self._model_ids(),
            tempo_alternatives=[TempoAlternative(*pair) for pair in alternatives],
            chords=find_chords(
                chords, rhythm.beats.tolist(), rhythm.downbeats.tolist(), context.duration_s
            ),
            tuning_cents=context.tuning_cents,
        )

    def _model_ids(self) -> dict[str, str]:
        key = [name for name in (self.chroma[0], self.key_networks) if name]
        return {"beats": self.beats[0], "key": "+".join(key), "chords": self.chords[0]}

    def _silent(self, duration_s: float) -> SpectralResult:
        return SpectralResult(
            tempo=0.0,
            tempo_confidence=0.0,
            beats=[],
            downbeats=[],
            time_signature=4,
            time_signature_confidence=0.0,
            key=UNKNOWN_KEY,
            mode=UNKNOWN_KEY,
            key_confidence=0.0,
            loudness_lufs=SILENCE_LUFS,
            loudness_range_lu=0.0,
            true_peak_dbtp=SILENCE_DBTP,
            mix_in_s=0.0,
            mix_out_s=duration_s,
            segments=[],
            sections=[],
            models=self._model_ids(),
        )


class SpectralStep:
    """Tempo, beats, downbeats, key, chords, loudness, segments, sections and mix points."""

    def __init__(
        self,
        beats: BeatModel,
        chroma: ChromaModel,
        levels: tuple[LevelModel, LevelModel],
        sound: SoundModel,
        chords: ChordModel,
        key_networks: KeyNetworkModel | None,
    ) -> None:
        self._beats, self._chroma, self._levels, self._sound = beats, chroma, levels, sound
        self._chords, self._key_networks = chords, key_networks
        self._tempo_range: TempoRange | None = None

    def within(self, tempo_range: TempoRange | None) -> "SpectralStep":
        """Return this step, with the same models, for a track whose tempo must lie in a range."""
        step = copy(self)
        step._tempo_range = tempo_range
        return step

    is_mono = False

    @property
    def models(self) -> Sequence[WindowedModel]:
        """See `Step`."""
        always = (self._beats, self._chroma, *self._levels, self._sound, self._chords)
        return always if self._key_networks is None else (*always, self._key_networks)

    def prepare(self, track: Track) -> Prepared:
        """Resample and cut the windows; no network runs on silence."""
        # Room for the last windows, so that a long track is in memory only once.
        behind = max(
            model.spec.length for model in (self._beats, self._chroma, self._sound, self._chords)
        )
        padded = track.mono_at(SAMPLE_RATE, behind)
        samples = padded[: len(padded) - behind]
        tuning = estimate_tuning(samples)
        context = _Context(track.duration_s, track.samples.shape[1], len(samples), tuning, 0)
        stretches = torch.split(track.samples, _STRETCH, dim=1)
        if all(peak_of(stretch) < SILENCE_PEAK for stretch in stretches):
            return Prepared({}, context)
        n = len(samples)
        chords, n_in_tune = self._chords.windows(padded, tuning, n)
        windows: dict[str, Windows] = {
            self._beats.model_id: self._beats.windows(padded, n),
            self._chroma.model_id: self._chroma.grid.windows(padded, n),
            self._sound.model_id: self._sound.grid.windows(padded, n),
            self._chords.model_id: chords,
        }
        windows |= {
            model.model_id: cut
            for model in self._levels
            if len(cut := model.windows(track.samples))
        }
        if self._key_networks is not None:
            windows[self._key_networks.model_id] = self._key_networks.windows(samples, tuning)
        return Prepared(windows, replace(context, n_in_tune=n_in_tune))

    def finish(self, prepared: Prepared, outputs: Outputs) -> SpectralResult:
        """Decode and merge the rows of all windows."""
        return self.finisher(prepared.context, outputs)

    @property
    def finisher(self) -> SpectralFinisher:
        """See `HeavyStep`."""
        networks = self._key_networks
        return SpectralFinisher(
            (self._beats.model_id, self._beats.grid),
            (self._chroma.model_id, self._chroma.grid),
            (self._sound.model_id, self._sound.grid),
            (self._chords.model_id, self._chords.grid),
            tuple(model.model_id for model in self._levels),
            None if networks is None else networks.model_id,
            self._tempo_range,
        )


def build(
    cards: Mapping[str, tuple[ModelCard, ...]], model_dir: Path, device: torch.device
) -> SpectralStep:
    """Load the step's checkpoints.

    Args:
        cards: Role → cards, see `models.checkpoints.cards.choose_cards`; ``beats``, ``key``
            and ``chords`` are used.
        model_dir: The model cache.
        device: Where the forwards run.

    Raises:
        CheckpointError: A checkpoint is absent or damaged.
    """
    return SpectralStep(
        load_beat_model(cards["beats"][0], model_dir, device),
        ChromaModel(CHROMA_ID, device),
        (LevelModel(device), LevelModel(device, is_end=True)),
        SoundModel(device),
        load_chord_model(cards["chords"][0], model_dir, device),
        load_key_networks(cards["key"], model_dir, device),
    )


def load_chord_model(card: ModelCard, model_dir: Path, device: torch.device) -> ChordModel:
    """Load the chord network.

    Raises:
        CheckpointError: The checkpoint is absent, damaged, or belongs to another network.
    """
    network = build_own(card, model_dir, ChordNetwork.from_tensors)
    return ChordModel(card.model_id, network, device)


def load_key_networks(
    cards: Sequence[ModelCard], model_dir: Path, device: torch.device
) -> KeyNetworkModel | None:
    """Load the key networks, if there are cards for any."""
    chosen = [card for card in cards if card.format != "none"]
    if not chosen:
        return None
    networks = [_key_network(card, model_dir) for card in chosen]
    return KeyNetworkModel("+".join(card.model_id for card in chosen), networks, device)


def _key_network(card: ModelCard, model_dir: Path) -> nn.Module:
    network = SKey if card.network == "chromanet" else KeyNetwork
    return build_own(card, model_dir, network.from_tensors)
