"""Processor seconds of a whole analysis by stage, per minute of one-minute clips.

One thread, including the walls and pipes of decoding. The clips are made here, each in three
formats. The targets are for WAV, like the development set, for which they were set.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from benchmarks.report import Options, Result, Target
from benchmarks.signals import encode, music_like
from configs.settings import Settings
from configs.tables import load_table
from models.checkpoints.cache import CheckpointError
from models.checkpoints.cards import choose_cards, parse_cards
from pipelines.analysis import mood_and_embedding, spectral
from pipelines.audio.decode import DecodeLimits, default_decoder
from pipelines.audio.track import Track
from pipelines.batching.steps import CPU, Step, forward_windows
from pipelines.batching.windows import most_windows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "cost"

CLIP_S = 60.0
CLIPS, QUICK_CLIPS = 8, 2
FORMATS = {
    "wav": ("pcm_s16le", "s16", 0),
    "mp3": ("libmp3lame", "fltp", 192_000),
    "flac": ("flac", "s16", 0),
}
TARGETED = "wav"
MOST_SPECTRAL_S, MOST_S = 0.25, 0.9
DECODING, NETWORKS = "decoding ", "tags, embedding: "

Clock = Callable[[], float]


def run(options: Options) -> Result:
    """Measure every stage."""
    cards = choose_cards(parse_cards(load_table("models")))
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with tempfile.TemporaryDirectory(prefix="afa-bench-") as folder:
            clips = make_clips(Path(folder), QUICK_CLIPS if options.is_quick else CLIPS)
            steps: dict[str, Step[Any]] = {
                "": spectral.build(cards, Settings().resolved_model_dir(), CPU),
                NETWORKS: mood_and_embedding.build(cards, Settings().resolved_model_dir(), CPU),
            }
            rounds = [stages(clips, steps) for _ in range(options.rounds + 1)]
    except CheckpointError as error:
        return Result(NAME, skipped=f"checkpoints are missing ({error}); run `afa models pull`")
    finally:
        torch.set_num_threads(n_threads)
    return summarise(rounds[1:])  # the first one warms everything up


def make_clips(folder: Path, n: int) -> dict[str, list[Path]]:
    """Write clips of `CLIP_S` seconds in each of `FORMATS`."""
    clips: dict[str, list[Path]] = {container: [] for container in FORMATS}
    for seed in range(n):
        samples = music_like(CLIP_S, seed)
        for container, how in FORMATS.items():
            path = folder / f"{seed}.{container}"
            clips[container].append(encode(path, samples, container, *how))
    return clips


def stages(clips: Mapping[str, Sequence[Path]], steps: Mapping[str, Step[Any]]) -> dict[str, float]:
    """Decode clips in every format and analyse them; return each stage's seconds per minute."""
    spent_s: dict[str, float] = {}
    tracks: list[Track] = []
    for container, files in clips.items():
        spent_s[DECODING + container], tracks = _decode(files)
    for prefix, step in steps.items():
        for track in tracks:
            _run(step, track, prefix, spent_s)
    heard_s = sum(track.duration_s for track in tracks)
    return {stage: 60 * seconds / heard_s for stage, seconds in spent_s.items()}


def _decode(clips: Sequence[Path]) -> tuple[float, list[Track]]:
    """Decode clips; return the seconds that it takes, and the tracks."""
    decoder = default_decoder()
    decoder.check_head(clips[0], DecodeLimits())  # starts the spawner
    spent_s = -_decoder_s(decoder.process_id)
    begun_s = time.process_time()
    tracks = [Track.of(decoder.decode(clip, DecodeLimits())) for clip in clips]
    spent_s += time.process_time() - begun_s + _decoder_s(decoder.process_id)
    return spent_s, tracks


def _run(step: Step[Any], track: Track, prefix: str, spent_s: dict[str, float]) -> None:
    """Do what `pipelines.batching.steps.run_on` does, and time it."""
    last_s = time.process_time()

    def lap(stage: str) -> None:
        nonlocal last_s
        now_s = time.process_time()
        spent_s[prefix + stage] = spent_s.get(prefix + stage, 0.0) + now_s - last_s
        last_s = now_s

    outputs = {}
    with torch.inference_mode():
        prepared = step.prepare(track)
        lap("resampling and level" if prefix else "resampling and tuning")
        for model in step.models:
            if model.model_id in prepared.windows:
                windows = prepared.windows[model.model_id]
                outputs[model.model_id] = forward_windows(model, windows, most_windows(CPU))
                lap(model.model_id)
    step.finish(prepared, outputs)
    lap("results")


def summarise(rounds: Sequence[Mapping[str, float]]) -> Result:
    """Return the median of every stage."""
    medians = {stage: statistics.median(one[stage] for one in rounds) for stage in rounds[0]}
    of_networks = sum(s for stage, s in medians.items() if stage.startswith(NETWORKS))
    decoding = {container: medians[DECODING + container] for container in FORMATS}
    spectral_s = sum(medians.values()) - sum(decoding.values()) - of_networks
    both = {container: seconds + spectral_s for container, seconds in decoding.items()}
    everything = {container: seconds + of_networks for container, seconds in both.items()}
    return Result(
        NAME,
        values={
            "stages": {stage: round(seconds, 4) for stage, seconds in medians.items()},
            "decoding_and_spectral_s": {name: round(s, 4) for name, s in both.items()},
            "everything_s": {name: round(s, 4) for name, s in everything.items()},
            "rounds": len(rounds),
        },
        columns=("stage", "processor s a minute"),
        rows=[
            *medians.items(),
            *((f"decoding and spectral, {name}", seconds) for name, seconds in both.items()),
            *((f"everything, {name}", seconds) for name, seconds in everything.items()),
        ],
        targets=(
            Target("decoding and spectral", both[TARGETED], MOST_SPECTRAL_S, at_least=False),
            Target("everything", everything[TARGETED], MOST_S, at_least=False),
        ),
        draw=lambda axes: _draw(axes, medians),
    )


def _draw(axes: "Axes", medians: Mapping[str, float]) -> None:
    axes.barh(list(medians), list(medians.values()))
    axes.invert_yaxis()
    axes.set(xlabel="processor seconds for a minute of audio", title="One thread, clips of 60 s")


def _decoder_s(pid: int) -> float:
    """Processor seconds of the decoder's spawner and of the children that it has reaped."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
