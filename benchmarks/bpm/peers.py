"""Tempo by other libraries, one thread: run by a Python that has them; imports nothing of ours.

``python peers.py NAME OUT FILE…``. Essentia is AGPL: a comparator, never a dependency.
"""

import json
import os
import resource
import sys
import warnings
from collections.abc import Callable

for _library in ("OMP", "OPENBLAS", "MKL", "NUMBA"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

Predictor = Callable[[str], float]


def librosa() -> Predictor:
    """`load` at 22,050 Hz and `beat_track`."""
    import librosa as library
    import numpy as np

    def predict(path: str) -> float:
        samples, rate = library.load(path, sr=22_050)
        tempo, _ = library.beat.beat_track(y=samples, sr=rate)
        return float(np.atleast_1d(tempo)[0])

    return predict


def essentia(method: str) -> Predictor:
    """RhythmExtractor2013."""
    import essentia as package
    import essentia.standard as library

    package.log.infoActive = package.log.warningActive = False

    def predict(path: str) -> float:
        samples = library.MonoLoader(filename=path, sampleRate=44_100)()
        return float(library.RhythmExtractor2013(method=method)(samples)[0])

    return predict


PEERS: dict[str, Callable[[], Predictor]] = {
    "librosa": librosa,
    "essentia degara": lambda: essentia("degara"),
    "essentia multifeature": lambda: essentia("multifeature"),
}


def measure(predict: Predictor, files: list[str]) -> dict[str, object]:
    """Return tempo and processor seconds; the first file is analysed twice, to warm up."""
    predict(files[0])

    def used_s() -> float:
        kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        usages = [resource.getrusage(kind) for kind in kinds]
        return sum(usage.ru_utime + usage.ru_stime for usage in usages)

    before_s = used_s()
    tempos = {os.path.splitext(os.path.basename(path))[0]: predict(path) for path in files}
    return {"tempos": tempos, "cpu_s": used_s() - before_s}


def main() -> None:
    """Write ``{"tempos", "cpu_s"}``."""
    warnings.filterwarnings("ignore")
    name, out, *files = sys.argv[1:]
    with open(out, "w", encoding="utf-8") as file:
        json.dump(measure(PEERS[name](), files), file)


if __name__ == "__main__":
    main()
