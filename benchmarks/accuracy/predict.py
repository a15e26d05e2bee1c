"""Predict with afa, one file after the other on one thread.

Runs as a separate process, so that its processor time is only that of decoding and analysis.
"""

import argparse
import json
import resource
from pathlib import Path
from typing import Any

import torch

from configs.tables import load_table
from models.checkpoints.cards import choose_cards, parse_cards
from pipelines.analysis.records import SpectralResult
from pipelines.analysis.spectral import SpectralStep, build
from pipelines.audio.decode import DecodeLimits, decode, default_decoder
from pipelines.batching.steps import run_local
from pipelines.training.metrics import PITCH_CLASSES


def as_prediction(result: SpectralResult) -> dict[str, Any]:
    """Return the scored fields of a result."""
    known = result.key >= 0
    return {
        "tempo": result.tempo,
        "tempo_confidence": result.tempo_confidence,
        "beats": result.beats,
        "downbeats": result.downbeats,
        "time_signature": result.time_signature,
        "key": PITCH_CLASSES[result.key] if known else None,
        "mode": ("minor", "major")[result.mode] if known else None,
        "key_confidence": result.key_confidence,
    }


def predict(step: SpectralStep, path: Path) -> tuple[dict[str, Any], float]:
    """Analyse a file; return the prediction and the audio's seconds."""
    waveform = decode(path, DecodeLimits(max_seconds=3600))
    return as_prediction(run_local(step, waveform)), waveform.duration_s


def cpu_seconds() -> float:
    """Processor time of this process and of the children that have ended."""
    return sum(
        usage.ru_utime + usage.ru_stime
        for usage in (
            resource.getrusage(resource.RUSAGE_SELF),
            resource.getrusage(resource.RUSAGE_CHILDREN),
        )
    )


def main() -> None:
    """Write ``{"predictions", "cpu_s", "minutes"}`` for the files named on the command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--model-dir", type=Path, required=True)
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    torch.set_num_threads(1)
    cards = choose_cards(parse_cards(load_table("models")))
    step = build(cards, options.model_dir, torch.device("cpu"))
    predict(step, options.files[0])
    default_decoder().close()
    before = cpu_seconds()
    results = {path.stem: predict(step, path) for path in options.files}
    default_decoder().close()
    content = {
        "predictions": {name: prediction for name, (prediction, _) in results.items()},
        "cpu_s": cpu_seconds() - before,
        "minutes": sum(duration for _, duration in results.values()) / 60,
    }
    options.out.write_text(json.dumps(content))


if __name__ == "__main__":
    main()
