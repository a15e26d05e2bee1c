"""Draw an analysis: waveform with sections, bars and loudness, chroma with its scale, attributes.

Lines that would blur are left out: the beats of a long track, the bars of a very long one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font
from matplotlib.ticker import FuncFormatter

from pipelines.analysis.records import ATTRIBUTES, TrackFeatures
from pipelines.analysis.tonality.notes import MODES, PITCH_CLASSES
from pipelines.audio.waveform import Waveform

COLUMNS = 2000
SAVED_DPI = 110
SHOWN_DPI = 60
MOST_LINES = 160
"""Vertical lines in a picture; more would run together."""

SHOWN_TAGS = 7
STRONG = 0.6
LOUDNESS_SPAN_DB = 40.0
LEVELS, LEVEL_STEPS = 60, 20
"""Points of the loudness curve, and how many samples are averaged into each."""

FLATS = ("C", "D♭", "D", "E♭", "E", "F", "G♭", "G", "A♭", "A", "B♭", "B")
MAJOR = (0, 2, 4, 5, 7, 9, 11)
MINOR = (0, 2, 3, 5, 7, 8, 10)


@dataclass(frozen=True, slots=True)
class Colours:
    """Colours for a light or a dark background."""

    ground: str
    text: str
    quiet: str
    wave: str
    bars: str
    loudness: str
    scale: str
    sections: tuple[str, str]
    map: str


LIGHT = Colours(
    *("#ffffff", "#16181d", "#8a93a3", "#3b82a0", "#b45309", "#7c3aed", "#0f766e"),
    ("#eef2f6", "#fbf3df"),
    "Greys",
)
DARK = Colours(
    *("#14171c", "#e8eaee", "#7b8494", "#5aa9c7", "#f0a35e", "#b794f6", "#4fd1c0"),
    ("#1c2128", "#28241b"),
    "bone",
)


class Picture(Figure):
    """A figure that a notebook shows; `savefig` writes it to a file, also as SVG or PDF."""

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        self.savefig(png, dpi=SHOWN_DPI)
        return png.getvalue()


def draw(
    waveform: Waveform, features: TrackFeatures, title: str, *, is_dark: bool = False
) -> Picture:
    """Draw an analysis.

    Args:
        waveform: The audio.
        features: Its analysis.
        title: Its name.
        is_dark: Whether the background is dark.
    """
    colours = DARK if is_dark else LIGHT
    figure = Picture(figsize=(13, 8), dpi=SAVED_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    figure.set_facecolor(colours.ground)
    grid = figure.add_gridspec(3, 2, height_ratios=[2.2, 1.7, 1.3])
    wave = figure.add_subplot(grid[0, :])
    chroma = figure.add_subplot(grid[1, :], sharex=wave)
    attributes, tags = figure.add_subplot(grid[2, 0]), figure.add_subplot(grid[2, 1])
    for axes in (wave, chroma, attributes, tags):
        _quieten(axes, colours)
    headline = _headline(features, title)
    title_style = {"color": colours.text, "fontfamily": _families(headline)}
    figure.suptitle(headline, x=0.01, ha="left", parse_math=False, **title_style)
    _draw_wave(wave, waveform, features, colours)
    _draw_chroma(chroma, features, colours)
    values = [100 * getattr(features, name) for name in ATTRIBUTES]
    names = [name.replace("valence", "happiness") for name in ATTRIBUTES]  # the API's name
    _draw_rows(attributes, names, values, "%.0f", colours)
    attributes.set(xlim=(0, 112))
    attributes.set_title("attributes, 0 to 100", loc="left", color=colours.text)
    best = features.mood_tags[:SHOWN_TAGS]
    _draw_rows(tags, [tag.tag for tag in best], [tag.score for tag in best], "%.2f", colours)
    tags.axvline(STRONG, color=colours.quiet, linewidth=0.8, linestyle=":")
    tags.set(xlim=(0, 1.12))
    tags.set_title(f"tags; strong from {STRONG} on", loc="left", color=colours.text)
    return figure


def _headline(features: TrackFeatures, title: str) -> str:
    others = " or ".join(f"{other.tempo:.1f}" for other in features.tempo_alternatives[:2])
    tempo = f"{features.tempo:.1f} BPM" + (f" (or {others})" if others else "")
    key = "no key"
    if features.key >= 0:
        name = f"{_names(features)[features.key]} {MODES[features.mode]}"
        key = f"{name} · {features.camelot} (confidence {features.key_confidence:.2f})"
    metre = f"{features.time_signature}/4"
    return f"{title} · {tempo} · {metre} · {key} · {features.loudness_lufs:.1f} LUFS"


def _families(text: str) -> list[str]:
    """Name the fonts that a text needs: the usual one, then installed ones for what it lacks."""
    families = ["sans-serif"]
    lacking = {ord(letter) for letter in text if letter.isprintable()}
    lacking -= get_font(findfont(FontProperties())).get_charmap().keys()
    for font in fontManager.ttflist if lacking else ():
        if not Path(font.fname).is_file():  # uninstalled since matplotlib listed it
            continue
        found = lacking & get_font(font.fname).get_charmap().keys()
        if found and not font.name.startswith("Last Resort"):  # boxes for every letter
            families.append(font.name)
            lacking -= found
    return families


def _draw_wave(axes: Axes, waveform: Waveform, features: TrackFeatures, colours: Colours) -> None:
    mono = waveform.mono()
    step = max(1, mono.size // COLUMNS)
    blocks = mono[: mono.size // step * step].reshape(-1, step)
    at = np.arange(len(blocks)) * step / waveform.sample_rate
    limit = max(0.05, float(np.abs(blocks).max(initial=0.0)) * 1.25)
    for number, section in enumerate(features.sections):
        end = section.start_s + section.duration_s
        axes.axvspan(section.start_s, end, color=colours.sections[number % 2], linewidth=0)
        axes.text(section.start_s, limit, f" {_letter(number)}", va="top", color=colours.text)
    axes.fill_between(
        at, blocks.min(axis=1), blocks.max(axis=1), color=colours.wave, linewidth=0, label="wave"
    )
    for seconds, width, name in (
        (features.beats, 0.4, "beats"),
        (features.downbeats, 1.0, "bars"),
    ):
        if 0 < len(seconds) <= MOST_LINES:
            axes.vlines(seconds, -limit, limit * 0.86, colours.bars, linewidth=width, label=name)
    marks = [features.mix_in_s, features.mix_out_s]
    axes.plot(marks, [-limit, -limit], "^", color=colours.scale, label="mix in, mix out")
    axes.set(xlim=(0, features.duration_s), ylim=(-limit, limit), yticks=[])
    if features.segments:
        level = axes.twinx()
        _quieten(level, colours)
        times = [segment.start_s + segment.loudness_max_time_s for segment in features.segments]
        levels = [segment.loudness_max_db for segment in features.segments]
        top = max(levels) + 3
        fine = np.linspace(0, features.duration_s, LEVELS * LEVEL_STEPS)
        points = np.stack([fine, np.interp(fine, times, levels)]).reshape(2, LEVELS, LEVEL_STEPS)
        level.plot(*points.mean(axis=2), color=colours.loudness, linewidth=1.2)
        level.set(ylim=(top - LOUDNESS_SPAN_DB, top), ylabel="loudness, dB")
    axes.plot([], [], color=colours.loudness, label="loudness")
    axes.legend(
        loc="lower left", bbox_to_anchor=(0, 1), ncols=6, frameon=False, labelcolor=colours.text
    )


def _draw_chroma(axes: Axes, features: TrackFeatures, colours: Colours) -> None:
    if features.segments:
        edges = [*(segment.start_s for segment in features.segments), features.duration_s]
        pitches = np.transpose([segment.pitches for segment in features.segments])
        mesh = axes.pcolormesh(edges, np.arange(13) - 0.5, pitches, cmap=colours.map)
        # One image also in SVG and PDF, where every cell would be a path.
        mesh.set(clim=(0, 1), rasterized=True)
    axes.set(xlim=(0, features.duration_s), ylim=(-0.5, 11.5), yticks=range(12))
    axes.set_yticklabels(_names(features), fontsize=8)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda s, _: f"{s // 60:.0f}:{s % 60:02.0f}"))
    told = (
        "notes; the darker, the stronger"
        if colours is LIGHT
        else "notes; the lighter, the stronger"
    )
    if features.key >= 0:
        scale = {(features.key + step) % 12 for step in (MINOR, MAJOR)[features.mode]}
        for note, label in enumerate(axes.get_yticklabels()):
            if note in scale:
                label.set(color=colours.scale, fontweight="bold")
        told += f". Bold: the scale of {_names(features)[features.key]} {MODES[features.mode]}"
    axes.set_title(told, loc="left", color=colours.text)


def _draw_rows(
    axes: Axes, names: Sequence[str], values: Sequence[float], form: str, colours: Colours
) -> None:
    rows = axes.barh(range(len(names)), values, color=colours.wave, height=0.6)
    axes.bar_label(rows, fmt=form, padding=3, color=colours.text)
    axes.set(yticks=range(len(names)), xticks=[])
    axes.set_yticklabels(names)
    axes.invert_yaxis()


def _quieten(axes: Axes, colours: Colours) -> None:
    axes.set_facecolor(colours.ground)
    axes.tick_params(colors=colours.text, length=2)
    axes.yaxis.label.set_color(colours.text)
    for side in axes.spines.values():
        side.set_visible(False)


def _names(features: TrackFeatures) -> Sequence[str]:
    """Return note names as the key writes them: flats on the left of the circle of fifths."""
    if features.key < 0:
        return PITCH_CLASSES
    relative_major = (features.key + (0 if features.mode == 1 else 3)) % 12
    return FLATS if relative_major in (5, 10, 3, 8, 1) else PITCH_CLASSES


def _letter(number: int) -> str:
    return chr(ord("A") + number % 26)
