"""Predict with other libraries, one thread: run by *their* Python, so it imports nothing of ours.

`python peers.py NAME OUT FILE…` with librosa, essentia and sonara installed there.
Essentia is AGPL: a comparator on a development machine, never a dependency.
"""

import json
import os
import resource
import sys
import warnings
from collections.abc import Callable
from typing import Any

for _library in ("OMP", "OPENBLAS", "MKL", "NUMBA", "RAYON"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

NAMES = ("C", "C#", "D", "Eb", "E", "F", "F#", "G", "Ab", "A", "Bb", "B")

# Krumhansl & Kessler (1982).
KRUMHANSL = {
    "major": [6.35, 2.23, 3.48, 2.33, 4.38, 4.09, 2.52, 5.19, 2.39, 3.66, 2.29, 2.88],
    "minor": [6.33, 2.68, 3.52, 5.38, 2.60, 3.53, 2.54, 4.75, 3.98, 2.69, 3.34, 3.17],
}

Predictor = Callable[[str], dict[str, Any]]


def librosa() -> Predictor:
    """`beat_track`, and the mean CQT chroma against Krumhansl and Kessler's profiles."""
    import librosa as library
    import numpy as np

    def predict(path: str) -> dict[str, Any]:
        samples, rate = library.load(path, sr=22_050)
        tempo, beats = library.beat.beat_track(y=samples, sr=rate, units="time")
        chroma = library.feature.chroma_cqt(y=samples, sr=rate).mean(axis=1)
        _, key, mode = max(
            (float(np.corrcoef(np.roll(profile, key), chroma)[0, 1]), key, mode)
            for mode, profile in KRUMHANSL.items()
            for key in range(12)
        )
        return {
            "tempo": float(np.atleast_1d(tempo)[0]),
            "beats": [float(beat) for beat in beats],
            "key": NAMES[key],
            "mode": mode,
        }

    return predict


def essentia() -> Predictor:
    """RhythmExtractor2013 (multifeature) and KeyExtractor (bgate)."""
    import essentia as package
    import essentia.standard as library

    package.log.infoActive = package.log.warningActive = False

    def predict(path: str) -> dict[str, Any]:
        samples = library.MonoLoader(filename=path, sampleRate=44_100)()
        tempo, beats, *_ = library.RhythmExtractor2013(method="multifeature")(samples)
        key, mode, _ = library.KeyExtractor(profileType="bgate")(samples)
        return {"tempo": float(tempo), "beats": [float(b) for b in beats], "key": key, "mode": mode}

    return predict


def sonara() -> Predictor:
    """`analyze_file` in its playlist mode."""
    import sonara as library

    def predict(path: str) -> dict[str, Any]:
        found = library.analyze_file(path, mode="playlist")
        key, mode = found["key"].split()
        beats = [frame * 512 / 22_050 for frame in found["beats"]]
        return {"tempo": float(found["bpm"]), "beats": beats, "key": key, "mode": mode}

    return predict


PEERS = {"essentia": essentia, "librosa": librosa, "sonara": sonara}


def cpu_seconds() -> float:
    """Processor time of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Write ``{"predictions", "cpu_s"}``; the first file is analysed twice, to warm up."""
    warnings.filterwarnings("ignore")
    name, out, *files = sys.argv[1:]
    predict = PEERS[name]()
    predict(files[0])
    before = cpu_seconds()
    predictions = {os.path.splitext(os.path.basename(path))[0]: predict(path) for path in files}
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"predictions": predictions, "cpu_s": cpu_seconds() - before}, file)


if __name__ == "__main__":
    main()
