"""Mood and embedding of 3 x 10 s, sought in the file, against those of the whole track.

Measured on files of at least a minute and a half below ``$AFA_PARTIAL_AUDIO`` (default: the
evaluation set's folder, which has the unpacked music of its packages): the agreement of the
results, and the processor time of decoding, front-ends and networks together. One thread.
"""

import os
import resource
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from benchmarks.report import Options, Result, Target
from configs.settings import Settings
from configs.tables import load_table
from models.checkpoints.cache import CheckpointError
from models.checkpoints.cards import choose_cards, parse_cards
from models.vibenet import ATTRIBUTES
from pipelines.analysis.excerpt import Excerpt, decode_excerpt
from pipelines.analysis.mood_and_embedding import MoodAndEmbeddingStep, build
from pipelines.analysis.records import EmbeddingResult, MoodResult
from pipelines.audio.decode import DecodeLimits, decode, default_decoder, probe
from pipelines.audio.waveform import AudioError
from pipelines.batching.steps import run_local

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "partial"

EXCERPT = Excerpt()
SHORTEST_S = 90.0
LONGEST_S = 900.0
LIMITS = DecodeLimits(max_seconds=LONGEST_S)
SUFFIXES = (".ogg", ".mp3", ".flac", ".m4a", ".opus")
TOP = 5
"""Number of tags that are compared."""
MOST_TRACKS, QUICK_TRACKS = 30, 4
"""Number of tracks, spread over those found."""
LEAST_COSINE = 0.95
MOST_TIME = 0.5


@dataclass(frozen=True, slots=True)
class Agreement:
    """One track, whole and in part.

    Attributes:
        cosine: Cosine of the embeddings.
        attributes: Mean absolute difference of the seven attributes, each 0 to 1.
        tag_scores: Mean absolute difference of the calibrated tag scores, 0 to 1.
        top_tags: Share of the `TOP` tags that both have.
        time_ratio: Ratio of processor seconds of the part to those of the whole.
    """

    track: str
    duration_s: float
    cosine: float
    attributes: float
    tag_scores: float
    top_tags: float
    time_ratio: float


def audio_dir() -> Path:
    """Return the music's folder."""
    named = os.environ.get("AFA_PARTIAL_AUDIO") or os.environ.get("AFA_EVAL_AUDIO")
    return Path(named or "~/.cache/afa-evalset").expanduser()


def find_tracks(folder: Path) -> list[Path]:
    """Return the files that are long enough, without duplicate recordings."""
    found: dict[int, Path] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in SUFFIXES or not path.is_file():
            continue
        try:
            duration_s = probe(path, LIMITS).duration_s
        except AudioError:
            continue
        if duration_s is not None and SHORTEST_S <= duration_s <= LONGEST_S:
            found.setdefault(path.stat().st_size, path)
    return list(found.values())


def run(options: Options) -> Result:
    """Analyse every track both ways."""
    tracks = find_tracks(audio_dir())
    if not tracks:
        return Result(NAME, skipped=f"no music of {SHORTEST_S:g} s or more in AFA_PARTIAL_AUDIO")
    wanted = QUICK_TRACKS if options.is_quick else MOST_TRACKS
    tracks = tracks[:: max(1, len(tracks) // wanted)][:wanted]
    torch.set_num_threads(1)
    cards = choose_cards(parse_cards(load_table("models")))
    try:
        step = build(cards, Settings().resolved_model_dir(), torch.device("cpu"))
    except CheckpointError as error:
        return Result(NAME, skipped=f"checkpoints are missing ({error}); run `afa models pull`")
    run_local(step, EXCERPT.take(decode(tracks[0], LIMITS)))  # warms everything up
    found = [compare(step, path) for path in tracks]
    return summarise(found, options)


def compare(step: MoodAndEmbeddingStep, path: Path) -> Agreement:
    """Analyse one track both ways."""
    (mood, vector), whole_s = timed(lambda: run_local(step, decode(path, LIMITS)))
    part, part_s = timed(lambda: run_local(step, decode_excerpt(path, LIMITS, EXCERPT)))
    duration_s = probe(path, LIMITS).duration_s or 0.0
    return agreement(path.stem, duration_s, (mood, vector), part, part_s / whole_s)


Analysis = tuple[MoodResult, EmbeddingResult]


def agreement(
    track: str, duration_s: float, whole: Analysis, part: Analysis, time_ratio: float
) -> Agreement:
    """Compare two analyses of one track."""
    tags, part_tags = ({tag.tag: tag.score for tag in mood.tags} for mood, _ in (whole, part))
    both = tags.keys() | part_tags.keys()
    top = {tag.tag for tag in whole[0].tags[:TOP]}
    return Agreement(
        track,
        round(duration_s, 1),
        cosine=float(np.dot(whole[1].vector, part[1].vector)),
        attributes=statistics.mean(
            abs(getattr(whole[0], name) - getattr(part[0], name)) for name in ATTRIBUTES
        ),
        tag_scores=statistics.mean(
            abs(tags.get(name, 0.0) - part_tags.get(name, 0.0)) for name in both
        )
        if both
        else 0.0,
        top_tags=len(top & {tag.tag for tag in part[0].tags[:TOP]}) / max(1, len(top)),
        time_ratio=time_ratio,
    )


def timed(work: Callable[[], Analysis]) -> tuple[Analysis, float]:
    """Run; also return the processor seconds of this process and of the decoder's children."""
    before_s = _processor_s()
    result = work()
    return result, _processor_s() - before_s


def _processor_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    fields = Path(f"/proc/{default_decoder().process_id}/stat").read_text().rpartition(")")[2]
    ticks = sum(map(int, fields.split()[11:15]))
    return usage.ru_utime + usage.ru_stime + ticks / os.sysconf("SC_CLK_TCK")


def summarise(found: list[Agreement], options: Options) -> Result:
    """Compile the figures."""
    names = ("cosine", "attributes", "tag_scores", "top_tags", "time_ratio")
    worst_first = {"cosine", "top_tags"}
    rows, values = [], {}
    for name in names:
        column = [getattr(one, name) for one in found]
        worst = min(column) if name in worst_first else max(column)
        spread = np.quantile(column, 0.1 if name in worst_first else 0.9)
        figures = (statistics.mean(column), statistics.median(column), float(spread), worst)
        rows.append((name.replace("_", " "), *figures))
        values[name] = {
            key: round(value, 4)
            for key, value in zip(("mean", "median", "worst_tenth", "worst"), figures, strict=True)
        }
    return Result(
        NAME,
        values={
            "excerpt": str(EXCERPT),
            "n_tracks": len(found),
            "median_duration_s": statistics.median(one.duration_s for one in found),
            "agreement": values,
            "tracks": [
                {name: getattr(one, name) for name in ("track", "duration_s")}
                | {name: round(getattr(one, name), 4) for name in names}
                for one in found
            ],
        },
        columns=("figure", "mean", "median", "worst tenth", "worst"),
        rows=rows,
        targets=(
            Target("mean cosine of the embeddings", values["cosine"]["mean"], LEAST_COSINE),
            Target("time ratio", values["time_ratio"]["median"], MOST_TIME, at_least=False),
        ),
        draw=None if options.is_quick else lambda axes: _draw(axes, found),
    )


def _draw(axes: "Axes", found: list[Agreement]) -> None:
    for name, marker in (("cosine", "o"), ("top_tags", "x"), ("time_ratio", ".")):
        axes.scatter(
            [one.duration_s for one in found],
            [getattr(one, name) for one in found],
            marker=marker,
            label=name.replace("_", " "),
        )
    axes.set(xlabel="track, s", ylim=(0, 1.05), title=f"{EXCERPT} against the whole track")
    axes.grid(alpha=0.3)
    axes.legend()
