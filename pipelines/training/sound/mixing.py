"""From parts to a record: side-chain, reverb, compression, distortion, filters, noise, codec."""

import io
from collections.abc import Sequence
from random import Random

import numpy as np
from numpy.typing import NDArray
from scipy.signal import butter, fftconvolve, lfilter, sosfilt

from pipelines.training.sound.soundfonts import SAMPLE_RATE

Waveform = NDArray[np.float32]
_LEVEL = 0.1
_CODECS = (("mp3", "libmp3lame"), ("mp3", "libmp3lame"), ("mp4", "aac"))
_BIT_RATES = (32_000, 48_000, 64_000)


def normalise(x: Waveform) -> Waveform:
    """Scale ``[T]`` to a root mean square of 1; silence stays silence."""
    return np.asarray(x / max(1e-5, float(np.sqrt(np.mean(np.square(x))))), dtype=np.float32)


def distort(x: Waveform, drive: float) -> Waveform:
    """Saturate like an overdriven amplifier."""
    return np.asarray(np.tanh(normalise(x) * drive), dtype=np.float32)


def duck(x: Waveform, kicks_s: Sequence[float], depth: float) -> Waveform:
    """Push ``[T]`` down at every kick (side-chain compression)."""
    strokes = np.zeros(len(x), dtype=np.float32)
    at = np.round(np.asarray(kicks_s) * SAMPLE_RATE).astype(np.int64)
    strokes[at[(at >= 0) & (at < len(x))]] = 1.0
    # A recursive filter, not a convolution: strokes are few and the decay is long.
    level = lfilter([1.0], [1.0, -np.exp(-1.0 / (0.08 * SAMPLE_RATE))], strokes)
    return np.asarray(x * (1 - depth * np.minimum(1, level)), dtype=np.float32)


def reverberate(x: Waveform, rng: Random, noise: np.random.Generator) -> Waveform:
    """Put ``[T]`` into a room of random size."""
    t = np.arange(int(SAMPLE_RATE * rng.uniform(0.2, 1.6))) / SAMPLE_RATE
    room = noise.normal(size=len(t)) * np.exp(-t * rng.uniform(3, 14))
    room = sosfilt(
        butter(1, rng.uniform(2000, 7000), "lp", fs=SAMPLE_RATE, output="sos"), room
    ).astype(np.float32)
    wet = normalise(fftconvolve(x, room)[: len(x)])
    return np.asarray(normalise(x) + rng.uniform(0.1, 0.7) * wet, dtype=np.float32)


def compress(x: Waveform, rng: Random) -> Waveform:
    """Attenuate what is louder than a random threshold."""
    a = float(np.exp(-1 / (SAMPLE_RATE * 0.01)))
    power = lfilter([1 - a], [1, -a], np.square(normalise(x)))
    envelope = np.sqrt(np.maximum(power, 1e-9))
    gain = np.minimum(1, (rng.uniform(0.5, 1.2) / envelope) ** rng.uniform(0.3, 0.8))
    return np.asarray(x * gain, dtype=np.float32)


def encode(x: Waveform, rng: Random) -> Waveform:
    """Pass ``[T]`` through a lossy codec at a low rate, and remove its delay."""
    peak = max(1e-4, float(np.abs(x).max()))
    frames = _decoded(_encoded(x / peak, *rng.choice(_CODECS), rng.choice(_BIT_RATES)))
    heard = np.concatenate(frames)
    return np.asarray(peak * _aligned(heard, x), dtype=np.float32)


def _encoded(x: Waveform, suffix: str, codec: str, bit_rate: int) -> bytes:
    import av
    from av.audio.stream import AudioStream

    target = io.BytesIO()
    with av.open(target, "w", format=suffix) as container:
        stream = container.add_stream(codec, rate=SAMPLE_RATE)
        if not isinstance(stream, AudioStream):
            raise TypeError(f"{codec} is no audio codec")
        stream.bit_rate = bit_rate
        stream.layout = "mono"
        frame = av.AudioFrame.from_ndarray(x[None], format="fltp", layout="mono")
        frame.sample_rate = SAMPLE_RATE
        for packet in (*stream.encode(frame), *stream.encode(None)):
            container.mux(packet)
    return target.getvalue()


def _decoded(data: bytes) -> list[Waveform]:
    import av

    with av.open(io.BytesIO(data), "r") as container:
        resampler = av.AudioResampler("fltp", "mono", SAMPLE_RATE)
        return [
            np.asarray(part.to_ndarray()[0], dtype=np.float32)
            for decoded in container.decode(audio=0)
            for part in resampler.resample(decoded)
        ]


def _aligned(heard: Waveform, original: Waveform) -> Waveform:
    """Shift `heard` so that it fits `original` best, and give it the same length."""
    reach = 4096
    head = original[: 20 * SAMPLE_RATE]
    padded = np.pad(heard, (reach, reach + len(original)))
    window = padded[: len(head) + 2 * reach]
    match = fftconvolve(window, head[::-1], mode="valid")
    delay = int(match.argmax())
    return np.asarray(padded[delay : delay + len(original)], dtype=np.float32)


def master(x: Waveform, rng: Random, noise: np.random.Generator) -> Waveform:
    """Process a mix at random, as on its way to a listener.

    Args:
        x: float32 ``[T]`` at 22,050 Hz.
        rng: Draws the chain.
        noise: Draws rooms and noise.

    Returns:
        float32 ``[T]``, root mean square near .1; time is untouched.
    """
    if rng.random() < 0.4:
        x = reverberate(x, rng, noise)
    if rng.random() < 0.5:
        x = compress(x, rng)
    if rng.random() < 0.3:
        x = distort(x, rng.uniform(0.3, 1.2))
    if rng.random() < 0.3:
        x = _filtered(x, "hp", 1, rng.uniform(40, 250))
    if rng.random() < 0.3:
        x = _filtered(x, "lp", 2, rng.uniform(2500, 9000))
    x = _LEVEL * normalise(x)
    hiss = noise.normal(size=len(x)).astype(np.float32)
    x = np.asarray(x + hiss * 10 ** rng.uniform(-5.5, -2.3), dtype=np.float32)
    return encode(x, rng) if rng.random() < 0.06 else x


def _filtered(x: Waveform, kind: str, order: int, hz: float) -> Waveform:
    return np.asarray(
        sosfilt(butter(order, hz, kind, fs=SAMPLE_RATE, output="sos"), x), dtype=np.float32
    )
