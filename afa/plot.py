"""Draw an analysis: waveform with beats, chroma with the key, attributes."""

from io import BytesIO

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from afa.track import ATTRIBUTES
from pipelines.analysis.notes import MODES, PITCH_CLASSES
from pipelines.analysis.records import TrackFeatures
from pipelines.audio.waveform import Waveform

COLUMNS = 2000
SAVED_DPI = 110
SHOWN_DPI = 60


class Picture(Figure):
    """A figure that a notebook shows; `savefig` writes it to a file."""

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        self.savefig(png, dpi=SHOWN_DPI)
        return png.getvalue()


def draw(waveform: Waveform, features: TrackFeatures, title: str) -> Picture:
    """Draw an analysis."""
    figure = Picture(figsize=(13, 8), dpi=SAVED_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    wave, chroma, bars = figure.subplots(3, 1, height_ratios=[2, 1.6, 1.4])
    duration = features.duration_s

    mono = waveform.mono()
    step = max(1, mono.size // COLUMNS)
    blocks = mono[: mono.size // step * step].reshape(-1, step)
    at = np.arange(len(blocks)) * step / waveform.sample_rate
    wave.fill_between(at, blocks.min(axis=1), blocks.max(axis=1), color="#4b6cb7", linewidth=0)
    limit = max(0.05, float(np.abs(blocks).max(initial=0.0)) * 1.05)
    downbeats = set(features.downbeats)
    beats = [beat for beat in features.beats if beat not in downbeats]
    wave.vlines(beats, -limit, limit, color="#e07a1f", linewidth=0.5, alpha=0.6, label="beats")
    wave.vlines(features.downbeats, -limit, limit, color="#b3001b", linewidth=1, label="downbeats")
    wave.set(xlim=(0, duration), ylim=(-limit, limit), ylabel="amplitude")
    wave.set_title(
        f"{title} · {features.tempo:.1f} BPM · {features.time_signature}/4 · "
        f"{features.loudness_lufs:.1f} LUFS",
        loc="left",
    )
    wave.legend(loc="upper right", ncols=2, frameon=False)

    for segment in features.segments:
        end = segment.start_s + segment.duration_s
        chroma.imshow(
            np.array(segment.pitches)[:, None],
            extent=(segment.start_s, end, -0.5, 11.5),
            origin="lower",
            aspect="auto",
            cmap="magma",
            vmin=0,
            vmax=1,
        )
    chroma.set(xlim=(0, duration), ylim=(-0.5, 11.5), yticks=range(12), yticklabels=PITCH_CLASSES)
    if features.key >= 0:
        chroma.axhline(features.key, color="#4de0c0", linewidth=1.5)
        name = f"{PITCH_CLASSES[features.key]} {MODES[features.mode]} · {features.camelot}"
        chroma.set_title(f"key {name} (confidence {features.key_confidence:.2f})", loc="left")
    else:
        chroma.set_title("no key", loc="left")
    chroma.set_xlabel("seconds")

    values = [getattr(features, name) for name in ATTRIBUTES]
    rows = bars.barh(ATTRIBUTES, values, color="#4b6cb7")
    bars.bar_label(rows, fmt="%.2f", padding=3)
    bars.invert_yaxis()
    bars.set(xlim=(0, 1.08))
    tags = ", ".join(tag.tag for tag in features.mood_tags[:8])
    bars.set_title(f"tags: {tags or 'none'}", loc="left")
    return figure
