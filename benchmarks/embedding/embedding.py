"""Embeddings on unseen audio: altered tracks, albums, instruments, everyday sounds, cost.

Contenders are the default and its two networks alone.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.embedding import music
from benchmarks.embedding.heard import (
    PLAIN,
    HeardInstruments,
    HeardSounds,
    HeardTracks,
    Listener,
)
from benchmarks.embedding.measures import (
    Interval,
    average_precision,
    effective_dimension,
    found_first,
    hubness,
    interval,
    likeness,
    neighbours_agree,
)
from benchmarks.report import Options, Result, Target
from configs.settings import Settings
from configs.tables import load_table
from models.checkpoints.cache import pull
from models.checkpoints.cards import choose_cards, parse_cards
from pipelines.analysis.embedding import EmbeddingStep, Trunk, load_trunks
from pipelines.audio.track import Track
from pipelines.audio.waveform import SAMPLE_RATE, Waveform
from pipelines.batching.steps import forward_windows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "embedding"

TRACKS, QUICK_TRACKS = 40, 2
"""Tracks per package."""
PROGRAMS, QUICK_PROGRAMS = 3, 1
"""Programs per family of instruments."""
WINDOWS = 5
"""Windows per network and sound."""
LEAST_FOUND = 0.99
COST_S = 60.0
LABELS = ("found_all", "album_map", "album_nearest", "family_nearest", "kind_map", "kind_nearest")


@dataclass(frozen=True, slots=True)
class Figures:
    """The quality of one embedding.

    Attributes:
        found: Version of a track → share of tracks whose nearest neighbour among all unaltered
            tracks is the track itself.
        found_all: The same over all versions.
        album_map: Mean average precision of a track as a query for its package.
        album_nearest: Share of tracks whose nearest other track is from the same package.
        family_nearest: Share of rendered instruments whose nearest one from the other soundfont is
            of the same family.
        kind_map: Mean average precision of an everyday sound as a query for its kind.
        kind_nearest: Share of everyday sounds whose nearest other one is of the same kind.
        dimension: Participation ratio of the variances.
        hubness: Skewness of how often a track is among the ten nearest of others.
    """

    found: Mapping[str, Interval]
    found_all: Interval
    album_map: Interval
    album_nearest: Interval
    family_nearest: Interval
    kind_map: Interval
    kind_nearest: Interval
    dimension: float
    hubness: float


def run(options: Options) -> Result:
    """Measure every contender."""
    (card,) = choose_cards(parse_cards(load_table("models")))["embedding"]
    pull(card, Settings().resolved_model_dir())
    torch.set_num_threads(1)
    trunks = load_trunks(card.parts, Settings().resolved_model_dir(), torch.device("cpu"), WINDOWS)
    listener = Listener(trunks, card)
    try:
        music.fetch()
        tracks = listener.tracks(QUICK_TRACKS if options.is_quick else TRACKS)
        played = listener.instruments(QUICK_PROGRAMS if options.is_quick else PROGRAMS)
        sounds = listener.everyday()
    except OSError as fault:
        return Result(NAME, skipped=f"the music cannot be fetched: {fault}")
    found = {name: measure(name, tracks, played, sounds) for name in played.vectors}
    return summarise(found, card.model_id, costs(trunks))


def measure(
    contender: str, tracks: HeardTracks, played: HeardInstruments, sounds: HeardSounds
) -> Figures:
    """Return the figures of one contender."""
    versions = {name: vectors[contender] for name, vectors in tracks.versions.items()}
    plain = versions.pop(PLAIN)
    found = {name: found_first(altered, plain) for name, altered in versions.items()}
    near = likeness(played.vectors[contender])
    near[played.fonts[:, None] == played.fonts] = -np.inf
    agree = played.families[near.argmax(axis=1)] == played.families
    return Figures(
        {name: interval(hits) for name, hits in found.items()},
        interval(np.concatenate(list(found.values()))),
        interval(average_precision(plain, tracks.albums)),
        interval(neighbours_agree(plain, tracks.albums)),
        interval(agree.astype(np.float64)),
        interval(average_precision(sounds.vectors[contender], sounds.kinds)),
        interval(neighbours_agree(sounds.vectors[contender], sounds.kinds)),
        effective_dimension(plain),
        hubness(plain),
    )


def costs(trunks: Sequence[Trunk]) -> dict[str, float]:
    """Return each network's processor seconds for a minute of sound, including its front-end."""
    noise = 0.1 * np.random.default_rng(0).standard_normal((1, int(COST_S * SAMPLE_RATE)))
    step = EmbeddingStep("", trunks)
    prepared = step.prepare(Track.of(Waveform(noise.astype(np.float32), SAMPLE_RATE)))
    found = {}
    for model in step.models:
        windows = prepared.windows[model.model_id]
        begun_s = time.process_time()
        forward_windows(model, windows, WINDOWS)
        heard_s = len(windows) * model.spec.length / model.spec.sample_rate
        found[model.model_id] = (time.process_time() - begun_s) * COST_S / heard_s
    return found


def summarise(found: Mapping[str, Figures], default: str, cpu_s: Mapping[str, float]) -> Result:
    """Make a table of the contenders."""
    rows: list[tuple[object, ...]] = []
    for label in LABELS:
        values = [getattr(figures, label) for figures in found.values()]
        rows.append((f"{label.replace('_', ' ')} (n = {values[0].n})", *values))
    rows += [
        (f"found: {version}", *(figures.found[version] for figures in found.values()))
        for version in found[default].found
    ]
    rows.append(("effective dimension", *(figures.dimension for figures in found.values())))
    rows.append(("hubness", *(figures.hubness for figures in found.values())))
    total_s = sum(cpu_s.values())
    rows.append(("CPU s per minute heard", *(cpu_s.get(name, total_s) for name in found)))

    def draw(axes: "Axes") -> None:
        width = 0.8 / len(found)
        for n, (name, figures) in enumerate(found.items()):
            values: list[Interval] = [getattr(figures, label) for label in LABELS]
            errors = np.array([(v.mean - v.low, v.high - v.mean) for v in values]).T
            places = np.arange(len(LABELS)) + n * width
            axes.bar(places, [v.mean for v in values], width, yerr=errors, label=name)
        names = [label.replace("_", "\n") for label in LABELS]
        axes.set_xticks(np.arange(len(LABELS)) + 0.4 - width / 2, names)
        axes.set_title("Embeddings on what they never heard, with 95 % intervals")
        axes.legend()

    return Result(
        NAME,
        {"contenders": {n: asdict(f) for n, f in found.items()}, "cpu_s_per_minute": dict(cpu_s)},
        ("", *found),
        rows,
        [Target("same track found", found[default].found_all.mean, LEAST_FOUND)],
        draw,
    )
