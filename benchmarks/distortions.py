"""Distortions of a recording on its way to us: codecs, noise, speed, telephones, levels.

Every distortion maps float32 ``[2, T]`` at 44.1 kHz, full scale ±1, to float32 ``[C, T']``.
"""

import io
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

RATE = 44_100
REVERBERATION_S = 1.5
Audio = NDArray[np.float32]
Distortion = Callable[[Audio, np.random.Generator], Audio]


def mp3(audio: Audio, kbit_s: int) -> Audio:
    """Encode with LAME at a constant bit rate and decode again."""
    import av

    file = io.BytesIO()
    with av.open(file, "w", format="mp3") as out:
        stream = out.add_stream("libmp3lame", rate=RATE)
        stream.layout = "stereo"
        stream.bit_rate = kbit_s * 1000
        for start in range(0, audio.shape[1], 1152):
            block = np.ascontiguousarray(audio[:, start : start + 1152], np.float32)
            frame = av.AudioFrame.from_ndarray(block, format="fltp", layout="stereo")
            frame.sample_rate = RATE
            frame.pts = start
            out.mux(stream.encode(frame))
        out.mux(stream.encode(None))
    file.seek(0)
    with av.open(file, "r") as source:
        return np.concatenate([f.to_ndarray() for f in source.decode(audio=0)], axis=1)


def at_speed(audio: Audio, speed: float) -> Audio:
    """Play faster or slower, pitch included."""
    import soxr

    changed = soxr.resample(audio.T, RATE * speed, RATE, quality="HQ")
    return np.ascontiguousarray(changed.T, np.float32)


def with_noise(audio: Audio, snr_db: float, rng: np.random.Generator, *, is_pink: bool) -> Audio:
    """Add noise, pink (equal power per octave) or white, over the whole band."""
    noise = rng.standard_normal((1, audio.shape[1]))
    if is_pink:
        frequencies = np.maximum(np.fft.rfftfreq(audio.shape[1], 1 / RATE), 20)
        noise = np.fft.irfft(np.fft.rfft(noise) / np.sqrt(frequencies), audio.shape[1])
    wanted = np.mean(np.square(audio)) / 10 ** (snr_db / 10)
    noisy: Audio = (audio + noise * np.sqrt(wanted / np.mean(np.square(noise)))).astype(np.float32)
    return noisy


def with_music(audio: Audio, other: Audio, snr_db: float) -> Audio:
    """Add other music, ``snr_db`` lower; the result ends with the shorter of the two."""
    n = min(audio.shape[1], other.shape[1])
    audio, other = audio[:, :n], other[:, :n]
    wanted = np.mean(np.square(audio)) / 10 ** (snr_db / 10)
    gain = np.sqrt(wanted / max(float(np.mean(np.square(other))), 1e-12))
    mixed: Audio = (audio + gain * other).astype(np.float32)
    return mixed


def in_room(audio: Audio, rng: np.random.Generator) -> Audio:
    """Add a large room's reverberation: 1.5 s to -60 dB, as loud as the direct sound."""
    n = round(1.5 * REVERBERATION_S * RATE)
    t = np.arange(n) / RATE
    response = rng.standard_normal(n) * 10 ** (-3 * t / REVERBERATION_S)
    response /= np.sqrt(np.sum(np.square(response)))
    response[: round(0.005 * RATE)] = 0
    response[0] = 1
    length = audio.shape[1] + n
    wet = np.fft.irfft(np.fft.rfft(audio, length) * np.fft.rfft(response, length), length)
    wet = wet[:, : audio.shape[1]]
    heard: Audio = (wet / max(1, np.abs(wet).max())).astype(np.float32)
    return heard


def through_phone(audio: Audio) -> Audio:
    """A telephone's 300 to 3400 Hz, mono."""
    spectrum = np.fft.rfft(audio.mean(axis=0, keepdims=True))
    hz = np.fft.rfftfreq(audio.shape[1], 1 / RATE)
    gain = 1 / np.sqrt(1 + (300 / np.maximum(hz, 1)) ** 6) / np.sqrt(1 + (hz / 3400) ** 12)
    filtered: Audio = np.fft.irfft(spectrum * gain, audio.shape[1]).astype(np.float32)
    return filtered


DISTORTIONS: Mapping[str, Distortion] = {
    "clean": lambda audio, _: audio,
    "MP3 64 kbit/s": lambda audio, _: mp3(audio, 64),
    "mono, MP3 128 kbit/s": lambda audio, _: mp3(
        np.repeat(audio.mean(axis=0, keepdims=True), 2, axis=0), 128
    ),
    "pink noise 5 dB": lambda audio, rng: with_noise(audio, 5, rng, is_pink=True),
    "white noise 5 dB": lambda audio, rng: with_noise(audio, 5, rng, is_pink=False),
    "pink noise 0 dB": lambda audio, rng: with_noise(audio, 0, rng, is_pink=True),
    "white noise 0 dB": lambda audio, rng: with_noise(audio, 0, rng, is_pink=False),
    "reverb": in_room,
    "speed +2 %": lambda audio, _: at_speed(audio, 1.02),
    "speed -2 %": lambda audio, _: at_speed(audio, 0.98),
    "speed +3 %": lambda audio, _: at_speed(audio, 1.03),
    "speed -3 %": lambda audio, _: at_speed(audio, 0.97),
    "phone band": lambda audio, _: through_phone(audio),
    "-20 dB": lambda audio, _: audio * np.float32(0.1),
    "+12 dB, clipped": lambda audio, _: np.clip(audio * np.float32(4), -1, 1),
}
