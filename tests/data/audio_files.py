"""Audio files for tests, made with PyAV: any container and codec that the service accepts."""

import io
import struct
import wave
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np

RATE = 44_100
LAYOUTS = {1: "mono", 2: "stereo"}

APE_BLOCKS = 73_728
DSF_BLOCK = 4_096


@dataclass(frozen=True, slots=True)
class Encoding:
    """A way to write audio with PyAV; ``name`` is what users call it."""

    name: str
    container: str
    codec: str
    sample_format: str = "fltp"
    rate: int = RATE
    bit_rate: int | None = None

    def write(self, path: Path, duration_s: float) -> Path:
        """Encode clicks and a chord, mono at telephone rates."""
        samples = click_track(120, duration_s, 1 if self.rate < 16_000 else 2, self.rate)
        return encode(
            path,
            samples,
            self.container,
            self.codec,
            rate=self.rate,
            sample_format=self.sample_format,
            bit_rate=self.bit_rate,
        )


ENCODINGS = [
    Encoding("MP3", "mp3", "libmp3lame"),
    Encoding("WAV", "wav", "pcm_s16le", "s16"),
    Encoding("WAV", "wav", "pcm_f32le", "flt"),
    Encoding("WAV", "wav", "adpcm_ms", "s16"),
    Encoding("FLAC", "flac", "flac", "s16"),
    Encoding("OGG", "ogg", "vorbis"),
    Encoding("Opus", "ogg", "libopus", "flt", 48_000),
    Encoding("M4A", "ipod", "aac"),
    Encoding("ALAC", "ipod", "alac", "s16p"),
    Encoding("3GP", "3gp", "libopencore_amrnb", "s16", 8_000),
    Encoding("AAC", "adts", "aac"),
    Encoding("AIFF", "aiff", "pcm_s16be", "s16"),
    Encoding("WebM", "webm", "libopus", "flt", 48_000),
    Encoding("MKA", "matroska", "flac", "s16"),
    Encoding("MKA", "matroska", "ac3", "fltp", 48_000),
    Encoding("MKA", "matroska", "tta", "s16"),
    Encoding("WMA", "asf", "wmav1", "fltp", RATE, 128_000),
    Encoding("WMA", "asf", "wmav2", "fltp", RATE, 128_000),
    Encoding("AC-3", "ac3", "ac3", "fltp", 48_000),
    Encoding("E-AC-3", "eac3", "eac3", "fltp", 48_000),
    Encoding("WavPack", "wv", "wavpack"),
    Encoding("WavPack", "wv", "wavpack", "s16p"),
    Encoding("TTA", "tta", "tta", "s16"),
    Encoding("AU", "au", "pcm_s16be", "s16"),
    Encoding("AU", "au", "pcm_mulaw", "s16"),
    Encoding("CAF", "caf", "alac", "s16p"),
    Encoding("CAF", "caf", "pcm_s16be", "s16"),
    Encoding("CAF", "caf", "adpcm_ima_qt", "s16p"),
    Encoding("W64", "w64", "pcm_s16le", "s16"),
    Encoding("AMR", "amr", "libopencore_amrnb", "s16", 8_000),
]
"""Every accepted format that PyAV writes."""

DSD_RATE = 64 * RATE
MUSEPACK = Path(__file__).with_name("clicks.mpc")
"""`click_track(120, 2.0)` by ``mpcenc --quality 3``, version 1.30."""


def silent_ape(path: Path, n_frames: int = 1) -> Path:
    """Write a Monkey's Audio file of silence (one flag a frame); FFmpeg has no encoder."""
    frame = struct.pack("<II", 1 << 31, 3) + bytes(8)
    sizes = (0, 52, 24, 4 * n_frames, 0, len(frame) * n_frames, 0, 0)
    descriptor = struct.pack("<4sHHIIIIIII16s", b"MAC ", 3990, *sizes, bytes(16))
    header = struct.pack("<HHIIIHHI", 2000, 32, APE_BLOCKS, APE_BLOCKS, n_frames, 16, 2, RATE)
    first = len(descriptor) + len(header) + 4 * n_frames
    seek_table = [first + i * len(frame) for i in range(n_frames)]
    seeks = struct.pack(f"<{n_frames}I", *seek_table)
    path.write_bytes(descriptor + header + seeks + frame * n_frames)
    return path


def write_dsf(path: Path, samples: np.ndarray) -> Path:
    """Write float samples ``[C, T]`` as DSD64 in a DSF file; FFmpeg has no encoder."""
    n_channels, n_bits = samples.shape[0], samples.shape[1] * DSD_RATE // RATE
    rows = np.packbits(_one_bit(samples), axis=1, bitorder="little")
    n_blocks = -(-rows.shape[1] // DSF_BLOCK)
    rows = np.pad(rows, ((0, 0), (0, n_blocks * DSF_BLOCK - rows.shape[1])))
    body = rows.reshape(n_channels, n_blocks, DSF_BLOCK).swapaxes(0, 1).tobytes()
    about = (52, 1, 0, n_channels, n_channels, DSD_RATE, 1, n_bits, DSF_BLOCK, 0)
    content = struct.pack("<4sQIIIIIIQII", b"fmt ", *about)
    content += struct.pack("<4sQ", b"data", 12 + len(body)) + body
    path.write_bytes(struct.pack("<4sQQQ", b"DSD ", 28, 28 + len(content), 0) + content)
    return path


def write_dff(path: Path, samples: np.ndarray) -> Path:
    """Write float samples ``[2, T]`` as DSD64 in a DSDIFF file."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">4sQ", name, len(content)) + content

    properties = chunk(b"FS  ", struct.pack(">I", DSD_RATE))
    properties += chunk(b"CHNL", struct.pack(">H4s4s", 2, b"SLFT", b"SRGT"))
    properties += chunk(b"CMPR", b"DSD \x0enot compressed\0")
    content = b"DSD " + chunk(b"FVER", bytes((1, 5, 0, 0))) + chunk(b"PROP", b"SND " + properties)
    content += chunk(b"DSD ", np.packbits(_one_bit(samples), axis=1).T.tobytes())
    path.write_bytes(chunk(b"FRM8", content))
    return path


def _one_bit(samples: np.ndarray) -> np.ndarray:
    """Modulate to bits ``[C, T · 64]``, half as loud, by a first-order sigma-delta modulator."""
    at = np.arange(samples.shape[1] * DSD_RATE // RATE) * (RATE / DSD_RATE)
    fine = np.stack([np.interp(at, np.arange(len(row)), row) for row in samples])
    return np.diff(np.floor(np.cumsum(0.5 + 0.25 * fine, axis=1)), axis=1, prepend=0).astype(bool)


def encode(
    path: Path,
    samples: np.ndarray,
    container: str,
    codec: str,
    *,
    rate: int = RATE,
    sample_format: str = "fltp",
    bit_rate: int | None = None,
    title: str = "",
) -> Path:
    """Encode float samples ``[C, T]``."""
    layout = LAYOUTS[samples.shape[0]]
    with av.open(str(path), "w", format=container) as output:
        if title:
            output.metadata["title"] = title
        stream: Any = output.add_stream(
            codec, rate=rate, layout=layout, options={"strict": "experimental"}
        )
        stream.format = sample_format
        if bit_rate is not None:
            stream.bit_rate = bit_rate
        for start in range(0, samples.shape[1], 8192):
            block = np.ascontiguousarray(samples[:, start : start + 8192], dtype=np.float32)
            frame = av.AudioFrame.from_ndarray(block, format="fltp", layout=layout)
            frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def click_track(tempo: float, duration_s: float, channels: int = 2, rate: int = RATE) -> np.ndarray:
    """Decaying clicks on every beat over a soft A minor triad, float ``[C, T]``."""
    t = np.arange(round(duration_s * rate)) / rate
    chord = sum(np.sin(2 * np.pi * f * t) for f in (220.0, 261.63, 329.63)) * 0.05
    since_beat = t % (60 / tempo)
    clicks = 0.6 * np.exp(-since_beat * 60) * np.sin(2 * np.pi * 1500 * since_beat)
    return np.repeat((chord + clicks)[None], channels, axis=0).astype(np.float32)


def write_wav(path: Path, samples: np.ndarray, rate: int = RATE) -> Path:
    """Write 16-bit PCM with any number of channels."""
    with wave.open(str(path), "wb") as file:
        file.setparams((samples.shape[0], 2, rate, 0, "NONE", ""))
        file.writeframes((samples.T * 32_767).astype("<i2").tobytes())
    return path


def silent_wav(n_bytes: int) -> bytes:
    """Make a WAV of an even number of bytes, 44 of them the header."""
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setparams((1, 2, RATE, 0, "NONE", ""))
        out.writeframes(bytes(n_bytes - 44))
    return file.getvalue()


def silent_flac(path: Path, duration_s: float, rate: int = 8000) -> Path:
    """Write a FLAC of silence; hours of it take little time and space."""
    with av.open(str(path), "w", format="flac") as output:
        stream: Any = output.add_stream("flac", rate=rate, layout="mono")
        stream.format = "s16"
        block = np.zeros((1, 65_535), np.int16)
        for start in range(0, round(duration_s * rate), block.shape[1]):
            frame = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
            frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
            output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return path


def float_wav(path: Path, samples: np.ndarray, rate: int = RATE, dtype: str = "<f4") -> Path:
    """Write mono floats ``[T]`` unchanged, whatever their values."""
    with np.errstate(over="ignore"):
        data = samples.astype(dtype).tobytes()
    width = np.dtype(dtype).itemsize
    sizes = (16, 3, 1, rate, rate * width, width, 8 * width)
    chunk = struct.pack("<IHHIIHH", *sizes)
    head = b"WAVEfmt " + chunk + b"data" + struct.pack("<I", len(data))
    path.write_bytes(b"RIFF" + struct.pack("<I", len(head) + len(data)) + head + data)
    return path
