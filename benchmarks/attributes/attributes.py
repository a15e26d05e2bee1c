"""Attributes of sounds with obvious attributes: metal, solo piano, speech, songs, noise."""

import statistics
import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.attributes.sounds import Sound, fetch, sounds
from benchmarks.report import Options, Result, Target
from configs.settings import Settings
from configs.tables import load_table
from models.checkpoints.cache import pull
from models.checkpoints.cards import choose_cards, parse_cards
from models.vibenet import ATTRIBUTES
from pipelines.analysis import mood_and_embedding
from pipelines.analysis.tags.presence import with_presence
from pipelines.audio.waveform import SAMPLE_RATE, Waveform
from pipelines.batching.steps import run_local

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "attributes"

EXPECTED: Mapping[str, Mapping[str, tuple[float, bool]]] = {
    "metal": {"energy": (0.7, True), "acousticness": (0.3, False)},
    "solo piano": {"acousticness": (0.7, True), "instrumentalness": (0.7, True)},
    "speech, read": {"speechiness": (0.66, True), "instrumentalness": (0.2, False)},
    "speech, acted": {"speechiness": (0.33, True), "instrumentalness": (0.2, False)},
    "song": {"instrumentalness": (0.3, False), "speechiness": (0.33, False)},
    "generated, acoustic": {"instrumentalness": (0.7, True), "acousticness": (0.5, True)},
    "generated, electronic": {"instrumentalness": (0.7, True), "acousticness": (0.5, False)},
    "noise": {"speechiness": (0.33, False)},
    "silence": {"energy": (0.0, False)},
}
"""Kind → attribute → bound on its mean, and whether that is a lower bound. .33 and .66 are the
bounds for speech in Spotify's documentation."""
_QUICK_WINDOWS = 4


def run(options: Options) -> Result:
    """Analyse every sound with the default checkpoints and compare the means of each kind."""
    try:
        fetch()
    except (OSError, subprocess.CalledProcessError, StopIteration) as fault:
        return Result(NAME, skipped=f"the sounds cannot be fetched: {fault}")
    cards = choose_cards(parse_cards(load_table("models")))
    model_dir = Settings().resolved_model_dir()
    for role in ("tags", "attributes", "embedding"):
        pull(cards[role][0], model_dir)
    windows = _QUICK_WINDOWS if options.is_quick else 0
    step = mood_and_embedding.build(cards, model_dir, torch.device("cpu"), max_windows=windows)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for sound in (*sounds(), *_without_music()):
        result = with_presence(*run_local(step, sound.waveform))
        values = {name: round(getattr(result, name), 4) for name in ATTRIBUTES}
        found.setdefault(sound.kind, {})[sound.name] = values
    return summarise(found)


def _without_music() -> tuple[Sound, ...]:
    rng = np.random.default_rng(0)
    white = 0.1 * rng.standard_normal((2, 30 * SAMPLE_RATE))
    slope = 1 / np.sqrt(np.maximum(np.fft.rfftfreq(white.shape[1], 1 / SAMPLE_RATE), 20.0))
    pink = np.fft.irfft(np.fft.rfft(white) * slope, white.shape[1])
    pink *= 0.1 / pink.std()
    return (
        Sound("noise", "white", Waveform(white.astype(np.float32))),
        Sound("noise", "pink", Waveform(pink.astype(np.float32))),
        Sound("silence", "silence", Waveform(np.zeros_like(white, dtype=np.float32))),
    )


def summarise(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> Result:
    """Compare the means with the expected bounds; ``found`` is kind → name → attributes."""
    means = {
        kind: {name: statistics.fmean(v[name] for v in items.values()) for name in ATTRIBUTES}
        for kind, items in found.items()
    }
    targets = [
        Target(f"{kind}: {name}", means[kind][name], bound, at_least)
        for kind, bounds in EXPECTED.items()
        if kind in means
        for name, (bound, at_least) in bounds.items()
    ]
    rows: list[tuple[object, ...]] = []
    for kind, items in found.items():
        rows.append((kind, f"mean of {len(items)}", *means[kind].values()))
        rows += [("", name, *values.values()) for name, values in items.items()]

    def draw(axes: "Axes") -> None:
        image = axes.imshow([list(m.values()) for m in means.values()], vmin=0, vmax=1)
        axes.set_xticks(range(len(ATTRIBUTES)), ATTRIBUTES, rotation=30, ha="right")
        axes.set_yticks(range(len(means)), list(means))
        for y, values in enumerate(means.values()):
            for x, value in enumerate(values.values()):
                axes.text(x, y, f"{value:.2f}", ha="center", va="center", color="tab:red")
        axes.set_title("Mean attributes by kind of sound")
        axes.figure.colorbar(image)

    return Result(
        NAME,
        {"means": means, "sounds": found},
        ("kind", "sound", *ATTRIBUTES),
        rows,
        targets,
        draw,
    )
