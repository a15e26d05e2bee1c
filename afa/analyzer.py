"""The analyser: checkpoints loaded once, for one file or many."""

from collections.abc import Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path

import numpy as np

from afa.errors import AudioError, MachineError, ModelError
from afa.track import Track, Vector
from models.checkpoints.cards import CardError, choose_cards
from pipelines.analysis.records import EMBEDDING_DIMENSION

PathName = str | PathLike[str]


class Analyzer:
    """Loads the checkpoints once and analyses files with them.

    The analyser reads checkpoints from the service's model folder (``AFA_MODEL_DIR``), under the
    service's licence policy (``AFA_MODEL_LICENCES``). It does not fetch them: ``afa models pull``
    does.

    Args:
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; None means the value of ``AFA_DEVICE``.
        models: Model ids by role, for roles that should not use their default; `afa models list`
            shows them.

    Raises:
        ModelError: A checkpoint is unknown, missing here, or not what its card says; or you named
            a model and one of the operator's cards is malformed.
        MachineError: The device does not exist, failed, or has too little memory for the networks.
    """

    def __init__(self, device: str | None = None, models: Mapping[str, str] | None = None) -> None:
        from afa.cards import known_cards, usable_cards
        from afa.device import device_here, loading
        from configs.settings import Settings
        from models.checkpoints.cache import CheckpointError
        from pipelines.analysis import embedding, mood, spectral
        from pipelines.analysis.networks.checkpoint_model import try_all
        from pipelines.batching.batcher import DeviceFaultError
        from pipelines.batching.steps import Both

        settings = Settings()
        model_dir = settings.resolved_model_dir()
        self.device = device_here(device or settings.device)
        # If a model is named, a malformed card is an error. The defaults do not need those cards.
        known = known_cards if models else usable_cards
        try:
            cards = choose_cards(known(model_dir), settings.model_licences, models)
            with loading():
                self._spectral = spectral.build(cards, model_dir, self.device)
                self._embedding = embedding.build(cards, model_dir, self.device)
                trunks = self._embedding.models
                described = mood.build(cards, model_dir, self.device, loaded=trunks)
                self._described = Both(described, self._embedding)
                try_all(dict.fromkeys((*trunks, *described.models)))
        except (CardError, CheckpointError) as error:
            raise ModelError(str(error)) from error
        except DeviceFaultError as error:
            raise MachineError(str(error)) from error

    def analyze(self, path: PathName) -> Track:
        """Analyse a file.

        Raises:
            AudioError: The file cannot be read or analysed, or the device has too little memory
                for it.
            MachineError: This machine cannot decode any file, or the device failed.
        """
        from afa.device import no_memory_for, on_device
        from afa.reading import read
        from pipelines.analysis.merge import merge
        from pipelines.batching.device import is_out_of_memory
        from pipelines.batching.steps import run_on
        from pipelines.batching.upload import bring

        file = _file(path)
        waveform = read(file)
        try:
            with on_device():
                track = bring(waveform, self.device)
                rhythm_and_key = run_on(self._spectral, track)
                mood, vector = run_on(self._described, track)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise no_memory_for(file) from error
        return Track.of(file, merge(waveform.duration_s, rhythm_and_key, mood, vector))

    def stream(self, paths: Iterable[PathName]) -> Iterator[Track | AudioError]:
        """Analyse many files, batched across them.

        Files are read ahead while you take results. If a file cannot be analysed, its `AudioError`
        is yielded, not raised, and the other files go on.

        Args:
            paths: Any number of paths, read from the iterable as needed.

        Yields:
            Each track as soon as it is done, not necessarily in the order of the paths.

        Raises:
            MachineError: This machine cannot decode any file, or the device failed.
        """
        from afa.streaming import stream
        from pipelines.analysis.merge import merge
        from pipelines.batching.steps import Both

        if isinstance(paths, str | PathLike):
            raise TypeError("stream takes a list of paths; for one file: stream([path])")
        files = map(_file, paths)
        everything = Both(self._spectral, self._described)
        for path, outcome in stream(everything, self.device, files):
            if isinstance(outcome, AudioError):
                yield outcome
            else:
                duration_s, (rhythm_and_key, (mood, vector)) = outcome
                yield Track.of(path, merge(duration_s, rhythm_and_key, mood, vector))

    def embed(self, paths: Iterable[PathName]) -> Vector:
        """Return only the embeddings of files, which takes a fraction of the time.

        Returns:
            float32 ``[n, 768]``, one row per path in the given order, of norm 1 (zeros for
            silence).

        Raises:
            AudioError: One of the files cannot be analysed.
            MachineError: This machine cannot decode any file, or the device failed.
        """
        from afa.streaming import stream

        if isinstance(paths, str | PathLike):
            raise TypeError("embed takes a list of paths; for one file: embed([path])")
        files = [_file(path) for path in paths]
        vectors: dict[Path, list[float]] = {}
        for path, outcome in stream(self._embedding, self.device, dict.fromkeys(files)):
            if isinstance(outcome, AudioError):
                raise outcome
            vectors[path] = outcome[1].vector
        rows = np.array([vectors[path] for path in files], dtype=np.float32)
        return rows.reshape(len(files), EMBEDDING_DIMENSION)


def _file(path: PathName) -> Path:
    if not isinstance(path, str | PathLike):
        what = type(path).__name__
        raise TypeError(f"expected a path, not {what}: write samples to a file, as soundfile.write")
    return Path(path)
