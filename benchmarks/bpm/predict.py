"""Tempo by afa, or decoding alone, on one thread: ``python -m benchmarks.bpm.predict``.

Runs as a separate process, so that its processor time is only that of the work.
"""

import json
import os
import sys
from pathlib import Path

import torch

from benchmarks.bpm.peers import Predictor
from configs.settings import Settings
from configs.tables import load_table
from models.checkpoints.cards import choose_cards, parse_cards
from pipelines.analysis import quick
from pipelines.audio.decode import DecodeLimits, Decoder

LIMITS = DecodeLimits(max_seconds=3600)
OWN, DECODE = "afa", "decode alone"


def predictor(name: str, decoder: Decoder) -> Predictor:
    """Return the tempo route's work on a file, or only its decoding."""
    if name == DECODE:
        return lambda path: decoder.decode(Path(path), LIMITS).duration_s
    cards = choose_cards(parse_cards(load_table("models")))
    analyzer = quick.build(cards, Settings().resolved_model_dir(), torch.device("cpu"))

    def predict(path: str) -> float:
        return analyzer.analyse(decoder.decode(Path(path), LIMITS), with_key=False).tempo

    return predict


def processor_s(decoder: Decoder) -> float:
    """Processor seconds of this process, of the decoder's spawner and of its children."""
    times = os.times()
    fields = Path(f"/proc/{decoder.process_id}/stat").read_text().rpartition(")")[2].split()
    return times.user + times.system + sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Write ``{"tempos", "cpu_s"}``, as the peers do."""
    name, out, *files = sys.argv[1:]
    torch.set_num_threads(1)
    decoder = Decoder()
    try:
        predict = predictor(name, decoder)
        predict(files[0])
        before_s = processor_s(decoder)
        tempos = {Path(path).stem: predict(path) for path in files}
        content = {"tempos": tempos, "cpu_s": processor_s(decoder) - before_s}
    finally:
        decoder.close()
    Path(out).write_text(json.dumps(content), encoding="utf-8")


if __name__ == "__main__":
    main()
