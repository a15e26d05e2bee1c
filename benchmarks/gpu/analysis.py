"""The whole analysis of files on a GPU, in one process, as an actor of `afa backfill` does it.

Digests, tags and the Chromaprint, which such an actor also makes, are left out.

The checkpoints are the shipped ones, so the GPU's results are compared with those of the same
machine's CPUs. The peers are the two halves alone: decoding with nothing after it, and the analysis
of decoded tracks. Files: whatever can be decoded in the folder ``AFA_GPU_AUDIO``, or the track that
comes with afa.
"""

import asyncio
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import psutil
import torch

from benchmarks.gpu.dry import NO_DEVICE, device_for
from benchmarks.report import Options, Result, Target, interleave, median_ratio
from configs.settings import Settings
from configs.tables import load_table
from models.checkpoints.cache import CheckpointError
from models.checkpoints.cards import choose_cards, parse_cards
from models.vibenet import ATTRIBUTES
from pipelines.analysis import mood_and_embedding, spectral
from pipelines.analysis.networks.checkpoint_model import EAGER
from pipelines.analysis.records import TrackFeatures
from pipelines.analysis.whole import WholeAnalysis
from pipelines.audio.decode import DecodeLimits, Decoder
from pipelines.audio.waveform import AudioError, Waveform
from pipelines.batching.backfill import backfill
from pipelines.batching.device import Turns
from pipelines.batching.runner import BatchedStep
from pipelines.batching.steps import CPU
from serve_app.composition.execution import gpu_execution
from serve_app.composition.model_args import ModelArgs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "gpu-analysis"

DEMO = Path(__file__).parents[2] / "serve_app" / "data" / "demo.mp3"
N_FILES, QUICK_FILES, DRY_FILES = 64, 16, 1
"""Tracks per round; files are repeated if there are fewer."""
LEAST_SHARE = 0.85
LEAST_COSINE = 0.999
NEAR_S = 0.02
"""Beats at most this far apart are the same."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far the answers of a GPU and of a CPU agree, over tracks.

    Attributes:
        same_tempo: Tracks whose tempo is within .1 BPM.
        same_key: Tracks with the same key and mode.
        same_beats: Lowest share of a track's beats that the other result has within 20 ms.
        loudness_lu: Largest difference.
        true_peak_db: Likewise.
        attributes: Likewise, of seven values from 0 to 1.
        tags: Likewise, of the scores of mood tags that both report.
        embedding: Lowest cosine.
    """

    tracks: int
    same_tempo: int
    same_key: int
    same_beats: float
    loudness_lu: float
    true_peak_db: float
    attributes: float
    tags: float
    embedding: float


def agreement(one: Sequence[TrackFeatures], other: Sequence[TrackFeatures]) -> Agreement:
    """Compare two lists of the same tracks."""
    pairs = list(zip(one, other, strict=True))
    return Agreement(
        tracks=len(pairs),
        same_tempo=sum(abs(a.tempo - b.tempo) <= 0.1 for a, b in pairs),
        same_key=sum((a.key, a.mode) == (b.key, b.mode) for a, b in pairs),
        same_beats=min(same_beats(a.beats, b.beats) for a, b in pairs),
        loudness_lu=max(abs(a.loudness_lufs - b.loudness_lufs) for a, b in pairs),
        true_peak_db=max(abs(a.true_peak_dbtp - b.true_peak_dbtp) for a, b in pairs),
        attributes=max(
            abs(getattr(a, name) - getattr(b, name)) for a, b in pairs for name in ATTRIBUTES
        ),
        tags=max(_largest_tag_difference(a, b) for a, b in pairs),
        embedding=min(float(np.dot(a.embedding, b.embedding)) for a, b in pairs),
    )


def same_beats(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the share of the longer list's beats that the other has; 1 if both are empty."""
    if not one or not other:
        return float(len(one) == len(other))
    gaps = np.abs(np.subtract.outer(np.array(one), np.array(other))).min(axis=1)
    return float((gaps <= NEAR_S).sum()) / max(len(one), len(other))


def _largest_tag_difference(one: TrackFeatures, other: TrackFeatures) -> float:
    scores = {tag.tag: tag.score for tag in other.mood_tags}
    both = [abs(tag.score - scores[tag.tag]) for tag in one.mood_tags if tag.tag in scores]
    return max(both, default=0.0)


@contextmanager
def loaded(device: torch.device) -> Iterator[WholeAnalysis]:
    """Load the shipped checkpoints to a device, and free them at the end."""
    args = load_table("serve.gpu")["applications"][0]["args"]
    described = ModelArgs.model_validate(args["embedding"])
    rhythm = ModelArgs.model_validate(args["spectral"])
    cards = choose_cards(parse_cards(load_table("models")))
    is_gpu = device.type == "cuda"
    execution = gpu_execution(described.execution) if is_gpu else EAGER
    n_cpus, turns = os.cpu_count() or 1, Turns()
    analysis = WholeAnalysis(
        BatchedStep(
            spectral.build(cards, Settings().resolved_model_dir(), device),
            device,
            rhythm.batch_windows if is_gpu else 0,
            max_batch_bytes=rhythm.batch_mib << 20,
            host_threads=n_cpus,
            finishers=n_cpus if is_gpu else 0,
            turns=turns,
        ),
        BatchedStep(
            mood_and_embedding.build(cards, Settings().resolved_model_dir(), device, 0, execution),
            device,
            described.batch_windows if is_gpu else 0,
            max_batch_bytes=described.batch_mib << 20,
            host_threads=n_cpus,
            turns=turns,
        ),
    )
    try:
        yield analysis
    finally:
        analysis.spectral.close()
        analysis.described.close()


def device_s(analysis: WholeAnalysis) -> dict[str, float]:
    """Seconds of the device's work so far, by model."""
    return {
        model_id: metrics.device_s
        for step in (analysis.spectral, analysis.described)
        for model_id, metrics in step.metrics().items()
    }


async def analyse(
    analysis: WholeAnalysis, read: Callable[[int], Waveform], n: int
) -> tuple[list[TrackFeatures], float]:
    """Analyse tracks 0 to ``n``; return the results in that order, and the seconds taken."""
    found: dict[int, TrackFeatures] = {}

    def keep(track: int, result: TrackFeatures | Exception) -> None:
        if isinstance(result, Exception):
            raise result
        found[track] = result

    begun_s = time.perf_counter()
    await backfill(
        range(n),
        lambda track: analysis.prepare(read(track)),
        analysis.complete,
        keep,
        analysis.wants_more,
    )
    return [found[track] for track in range(n)], time.perf_counter() - begun_s


def processor_s() -> float:
    """Processor seconds that this process and those it started have taken so far."""
    this = psutil.Process()
    times = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return float(sum(one.user + one.system for one in times))


def _peak_mib(device: torch.device) -> float:
    return torch.cuda.max_memory_reserved(device) / 2**20 if device.type == "cuda" else 0.0


def run(options: Options) -> Result:
    """Measure, if there is a GPU."""
    device = device_for(options)
    if device is None:
        return Result(NAME, skipped=NO_DEVICE)
    decoder = Decoder()
    try:
        return measure(device, decoder, _files(decoder), options)
    except CheckpointError as error:
        return Result(NAME, skipped=f"checkpoints are missing ({error}); run `afa models pull`")
    finally:
        decoder.close()


def _files(decoder: Decoder) -> list[Path]:
    folder = os.environ.get("AFA_GPU_AUDIO")
    if not folder:
        return [DEMO]
    found = sorted(path for path in Path(folder).iterdir() if path.is_file())
    return [path for path in found if _is_audio(decoder, path)]


def _is_audio(decoder: Decoder, path: Path) -> bool:
    try:
        decoder.check_head(path, DecodeLimits())
    except AudioError:
        return False
    return True


def measure(
    device: torch.device, decoder: Decoder, files: Sequence[Path], options: Options
) -> Result:
    """Compare the whole with its halves, in interleaved rounds, and its answers with a CPU's."""
    n_threads = os.cpu_count() or 1

    def decode(path: Path) -> Waveform:
        return decoder.decode(path, DecodeLimits())

    with ThreadPoolExecutor(n_threads) as readers, asyncio.Runner() as runner:
        tracks = list(readers.map(decode, files))
        with loaded(CPU) as on_cpu:
            expected, _ = runner.run(analyse(on_cpu, lambda i: tracks[i], len(tracks)))
        with loaded(device) as analysis:
            runner.run(analysis.compile())
            given, _ = runner.run(analyse(analysis, lambda i: tracks[i], len(tracks)))  # warms up
            n = DRY_FILES if options.is_dry else QUICK_FILES if options.is_quick else N_FILES
            chosen = [i % len(files) for i in range(n)]
            audio_s = sum(tracks[i].duration_s for i in chosen)
            busy: list[dict[str, float]] = []
            cores_s: list[float] = []

            def decode_only() -> float:
                begun_s = time.perf_counter()
                list(readers.map(decode, [files[i] for i in chosen]))
                return audio_s / (time.perf_counter() - begun_s)

            def whole(read: Callable[[int], Waveform]) -> float:
                before, cores_before_s = device_s(analysis), processor_s()
                _, took_s = runner.run(analyse(analysis, lambda i: read(chosen[i]), n))
                after = device_s(analysis)
                cores_s.append(processor_s() - cores_before_s)
                busy.append({name: after[name] - before[name] for name in after})
                return audio_s / took_s

            contenders: dict[str, Callable[[], float]] = {
                "decode alone": decode_only,
                "analysis alone": lambda: whole(lambda i: tracks[i]),
                "files to results": lambda: whole(lambda i: decode(files[i])),
            }
            found = interleave(contenders, options.rounds)
    limits = [
        min(pair) for pair in zip(found["decode alone"], found["analysis alone"], strict=True)
    ]
    share = median_ratio(found["files to results"], limits)
    rates = {name: statistics.median(of_one) for name, of_one in found.items()}
    per_minute = {
        name: 60 / audio_s * statistics.median(of_round[name] for of_round in busy)
        for name in busy[0]
    }
    agreed = agreement(expected, given)
    return Result(
        NAME,
        values={
            "audio_s_per_s": rates,
            "share_of_slower_half": share,
            "device_s_per_minute": per_minute | {"all": sum(per_minute.values())},
            # Of every second round, in which the tracks were already decoded.
            "core_s_per_minute": 60 / audio_s * statistics.median(cores_s[::2]),
            "finish_s_per_track": analysis.spectral.host_s()["finish"],
            "peak_mib": _peak_mib(device),
            "agreement_with_cpu": asdict(agreed),
            "files": len(files),
            "tracks": n,
            "seconds_of_files": sum(track.duration_s for track in tracks),
            "threads": n_threads,
            "rounds": options.rounds,
        },
        columns=("", ""),
        rows=[
            *((f"{name}, audio s/s", rate) for name, rate in rates.items()),
            *((f"{name}, ms of the device a minute", s * 1e3) for name, s in per_minute.items()),
            *((f"to the CPU: {name}", value) for name, value in asdict(agreed).items()),
        ],
        targets=()
        if options.is_dry
        else (
            Target("files to results / slower half", share, LEAST_SHARE),
            Target("tracks of the same key", agreed.same_key / agreed.tracks, 1.0),
            Target("tracks of the same tempo", agreed.same_tempo / agreed.tracks, 1.0),
            Target("beats the same", agreed.same_beats, 0.99),
            Target("cosine of the embedding", agreed.embedding, LEAST_COSINE),
        ),
        draw=lambda axes: _draw(axes, rates),
    )


def _draw(axes: "Axes", rates: dict[str, float]) -> None:
    axes.bar(list(rates), list(rates.values()), 0.5)
    axes.set(ylabel="seconds of audio per second", title="The whole analysis of files")
