"""Make a query from a clip's waveform: landmarks, band changes, excerpt, chromaprint.

All of it is made once, next to the decoder, so that nothing downstream needs the audio itself.
"""

import base64
import ctypes
import ctypes.util
import io
import wave
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray

from models.fingerprint.band_changes import BandChangeModel
from models.fingerprint.constellation import (
    MARGIN_FRAMES,
    WINDOW_FRAMES,
    WINDOW_LENGTH,
    LandmarkModel,
)
from models.fingerprint.landmarks import (
    HOP_LENGTH,
    N_BINS,
    N_FFT,
    SAMPLE_RATE,
    CloserLook,
    Fingerprint,
)
from models.fingerprint.subfingerprints import to_subfingerprints
from pipelines.audio.resample import mono_at, resample
from pipelines.audio.waveform import AudioTooShortError, UndecodableAudioError, Waveform
from pipelines.batching.framed import FrameGrid
from pipelines.fingerprint.clip import EXCERPT_RATE, EXCERPT_S, SHORTEST_CLIP_S, WHOLE_TRACK_S, Clip

CHROMAPRINT_S = 120.0

_BATCH = 16
_MEASURES = ("frames", "pitches", "prominences", "are_extra")
_GRID = FrameGrid(
    SAMPLE_RATE, HOP_LENGTH, WINDOW_FRAMES, MARGIN_FRAMES, MARGIN_FRAMES, N_FFT - HOP_LENGTH
)
_CHROMAPRINT_DEFAULT = 1
"""``CHROMAPRINT_ALGORITHM_DEFAULT`` of chromaprint.h, which AcoustID's index is made with."""


@cache
def _models() -> tuple[LandmarkModel, BandChangeModel]:
    """Return the models that all fingerprinters share."""
    return LandmarkModel().eval(), BandChangeModel().eval()


class Fingerprinter:
    """Makes fingerprints of clips and whole tracks, batched by windows."""

    def __init__(self) -> None:
        self._model, self._changes = _models()

    def make_clip(self, waveform: Waveform) -> Clip:
        """Prepare a recording for identification.

        Args:
            waveform: At least `SHORTEST_CLIP_S` long; silence gives an empty fingerprint.

        Raises:
            AudioTooShortError: It is shorter.
        """
        if waveform.duration_s < SHORTEST_CLIP_S:
            raise AudioTooShortError(
                f"Identification needs at least {SHORTEST_CLIP_S:g} s of audio, "
                f"this is {waveform.duration_s:.1f} s."
            )
        mono = waveform.mono()
        length = min(len(mono), round(EXCERPT_S * waveform.sample_rate))
        start = find_loudest_start(mono, length)
        excerpt = mono[start : start + length]
        is_whole = waveform.duration_s >= WHOLE_TRACK_S
        fingerprint, closer = self.make_query(Waveform(excerpt[None], waveform.sample_rate))
        return Clip(
            duration_s=waveform.duration_s,
            fingerprint=fingerprint,
            closer=closer,
            excerpt_wav=encode_wav(
                resample(excerpt, waveform.sample_rate, EXCERPT_RATE), EXCERPT_RATE
            ),
            chromaprint=make_chromaprint(waveform) if is_whole else None,
        )

    def make_query(self, waveform: Waveform) -> tuple[Fingerprint, CloserLook]:
        """Fingerprint a clip of at most one window, and prepare a closer look.

        Raises:
            UndecodableAudioError: A sample is not a finite number.
        """
        samples = _samples_of(waveform)
        if len(samples) < N_FFT:
            nothing = _join([], [], 0)
            return nothing, CloserLook(nothing, np.zeros((N_BINS, 0), np.int8))
        n_frames = 1 + (len(samples) - N_FFT) // HOP_LENGTH
        window = torch.from_numpy(np.ascontiguousarray(samples))[None]
        outputs = self._model(window, is_dense=True)
        found = _landmarks(outputs)[0]
        usual = found[:, found[3] == 0]
        return _join([0], [usual], n_frames), CloserLook(
            _join([0], [found], n_frames),
            outputs["evidence"][0].numpy(),
            self._measure_changes(samples),
        )

    def make_fingerprints(self, waveforms: Sequence[Waveform]) -> list[Fingerprint]:
        """Fingerprint recordings as an index keeps them; see `make_landmarks`."""
        tracks = [_samples_of(waveform) for waveform in waveforms]
        return [
            replace(found, subfingerprints=to_subfingerprints(self._measure_changes(track)))
            for found, track in zip(self._find_landmarks(tracks), tracks, strict=True)
        ]

    def make_landmarks(self, waveforms: Sequence[Waveform]) -> list[Fingerprint]:
        """Fingerprint recordings of any length together, in order, without sub-fingerprints.

        Recordings longer than a window share batches; a shorter one forms its own batch at its own
        length, since padding would put landmarks where it begins.

        Raises:
            UndecodableAudioError: A sample is not a finite number.
        """
        return self._find_landmarks([_samples_of(waveform) for waveform in waveforms])

    def _find_landmarks(self, tracks: Sequence[NDArray[np.float32]]) -> list[Fingerprint]:
        results: dict[int, Fingerprint] = {}
        long: list[int] = []
        for i, track in enumerate(tracks):
            if len(track) < N_FFT:
                results[i] = _join([], [], 0)
            elif len(track) <= WINDOW_LENGTH:
                found = self._forward(torch.from_numpy(np.ascontiguousarray(track))[None])
                results[i] = _join([0], found, 1 + (len(track) - N_FFT) // HOP_LENGTH)
            else:
                long.append(i)
        results |= self._long({i: tracks[i] for i in long})
        return [results[i] for i in range(len(tracks))]

    def _long(self, tracks: dict[int, NDArray[np.float32]]) -> dict[int, Fingerprint]:
        cuts = {i: _GRID.windows(torch.from_numpy(track)) for i, track in tracks.items()}
        found: list[NDArray[np.float32]] = []
        if cuts:
            rows = torch.cat(list(cuts.values()))
            for start in range(0, len(rows), _BATCH):
                found += self._forward(rows[start : start + _BATCH])
        results = {}
        for i, windows in cuts.items():
            mine, found = found[: len(windows)], found[len(windows) :]
            # Only frames that the track fills: the grid pads the last window.
            n_frames = 1 + (len(tracks[i]) - N_FFT) // HOP_LENGTH
            starts = [k * _GRID.spec.hop // HOP_LENGTH for k in range(len(windows))]
            results[i] = _join(starts, mine, n_frames)
        return results

    def _measure_changes(self, samples: NDArray[np.float32]) -> NDArray[np.float32]:
        waveform = torch.from_numpy(np.ascontiguousarray(samples))
        changes: NDArray[np.float32] = self._changes(waveform).numpy()
        return changes

    def _forward(self, windows: torch.Tensor) -> list[NDArray[np.float32]]:
        return _landmarks(self._model(windows))


def _samples_of(waveform: Waveform) -> NDArray[np.float32]:
    samples = mono_at(waveform, SAMPLE_RATE, precision=np.float32)
    if not np.isfinite(samples).all():
        raise UndecodableAudioError("The audio has samples that are not a number, or infinite.")
    return samples


def _landmarks(outputs: Mapping[str, torch.Tensor]) -> list[NDArray[np.float32]]:
    """Landmarks of each window: float32 ``[4, P]``, see `LandmarkModel.forward`."""
    stacked = torch.stack([outputs[name] for name in _MEASURES], dim=1)
    return [row[:, row[0] >= 0] for row in stacked.numpy()]


def _join(
    starts: Sequence[int], windows: Sequence[NDArray[np.float32]], n_frames: int
) -> Fingerprint:
    """Join windows' landmarks, each taken from the window that covers all its surroundings."""
    parts = []
    begin = -1.0
    for k, (start, found) in enumerate(zip(starts, windows, strict=True)):
        end = n_frames if k + 1 == len(starts) else start + WINDOW_FRAMES - MARGIN_FRAMES
        frames = found[0] + start
        mine = (frames >= begin) & (frames < end)
        parts.append(np.stack([frames[mine], found[1, mine], found[2, mine]]))
        begin = end
    joined = np.concatenate(parts, axis=1) if parts else np.zeros((3, 0), np.float32)
    joined = joined[:, np.lexsort((joined[1], joined[0]))].astype(np.float32)
    return Fingerprint(joined[0], joined[1], joined[2], n_frames)


def find_loudest_start(mono: NDArray[np.float32], length: int) -> int:
    """First sample of an excerpt from the middle of the loudest third of ``[T]`` samples."""
    n = len(mono)
    if n <= length:
        return 0
    third = n // 3
    energy = [float(np.mean(np.square(mono[k * third : (k + 1) * third]))) for k in range(3)]
    middle = int(np.argmax(energy)) * third + third // 2
    return min(max(middle - length // 2, 0), n - length)


def encode_wav(mono: NDArray[np.float32], sample_rate: int) -> bytes:
    """Write float32 ``[T]`` (full scale ±1, louder is clipped) as a 16-bit mono WAV file."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes((np.clip(mono, -1, 1) * 32767).astype("<i2").tobytes())
    return file.getvalue()


@cache
def _chromaprint_library() -> ctypes.CDLL | None:
    path = ctypes.util.find_library("chromaprint")
    if path is None:
        return None
    library = ctypes.CDLL(path)
    library.chromaprint_new.restype = ctypes.c_void_p
    return library


def make_chromaprint(waveform: Waveform) -> str | None:
    """Fingerprint the first two minutes for AcoustID, by libchromaprint.

    Returns:
        The compressed, base64url form; None if the library is missing or finds nothing.

    References:
        chromaprint.h (Lukáš Lalinský, LGPL-2.1+), loaded only if it is installed.
    """
    library = _chromaprint_library()
    if library is None:
        return None
    begin = waveform.samples[:, : round(CHROMAPRINT_S * waveform.sample_rate)]
    samples = begin.astype(np.float32, copy=False)
    pcm = np.ascontiguousarray((np.clip(samples, -1, 1) * 32767).astype(np.int16).T)
    context = ctypes.c_void_p(library.chromaprint_new(_CHROMAPRINT_DEFAULT))
    text = ctypes.c_void_p()
    try:
        done = (
            library.chromaprint_start(context, waveform.sample_rate, samples.shape[0])
            and library.chromaprint_feed(context, pcm.ctypes.data_as(ctypes.c_void_p), pcm.size)
            and library.chromaprint_finish(context)
            and library.chromaprint_get_fingerprint(context, ctypes.byref(text))
        )
        if not done or not text.value:
            return None
        found = ctypes.string_at(text.value).decode("ascii")
        library.chromaprint_dealloc(text)
        return found if len(base64.urlsafe_b64decode(found + "==")) > 4 else None
    finally:
        library.chromaprint_free(context)
