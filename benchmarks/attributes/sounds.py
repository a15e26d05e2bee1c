"""The sounds that attributes are checked on, of kinds whose attributes are beyond doubt.

``python -m benchmarks.attributes.sounds`` fetches Debian packages (250 MB) and three Python
archives into ``$AFA_ATTRIBUTES_AUDIO`` (default: ``afa-attributes`` in ``~/.cache``), unpacks them
without installing anything, and renders our own piano pieces with ``fluidsynth``, if it is
installed.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks import generated
from benchmarks.attributes.piano_pieces import PIECES, as_midi
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import SAMPLE_RATE, AudioError, Waveform

PACKAGES = (
    "fretsonfire-songs-sectoid",
    "fretsonfire-songs-muldjord",
    "marsshooter-data",
    *(f"asterisk-core-sounds-{language}-wav" for language in ("en", "es", "fr", "it", "ru")),
    "fillets-ng-data-nl",
    "espeak-ng",
    "espeak-ng-data",
    "libespeak-ng1",
    "libpcaudio0",
    "libsonic0",
    "fluid-soundfont-gm",
    "timgm6mb-soundfont",
)
ARCHIVES = ("stempeg==0.2.6", "basic-pitch==0.2.5")
VOICES = ("en", "en-us+f3")
TEXT = (
    "The sun rose slowly over the harbour. Nobody had expected the ship to come back so soon, and "
    "the old man at the gate put down his paper. There were three letters on the table, one of "
    "them unopened. She asked him whether the road was still closed. He said that it had rained "
    "all night, and that the bridge would not hold. They waited for an hour, talking of the price "
    "of fish, of the mayor's new hat, and of nothing at all."
)
_LIMITS = DecodeLimits(max_seconds=3600, min_seconds=0.0)
_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Sound:
    """One item: its kind, name and audio."""

    kind: str
    name: str
    waveform: Waveform


def audio_dir() -> Path:
    """Return the set's folder."""
    return Path(os.environ.get("AFA_ATTRIBUTES_AUDIO", "~/.cache/afa-attributes")).expanduser()


def fetch() -> None:
    """Download, unpack and render what is missing; needs ``apt-get``, but no root.

    Raises:
        OSError: A program is missing.
        subprocess.CalledProcessError: A download failed.
    """
    target = audio_dir()
    for package in PACKAGES:
        if not (target / package).is_dir():
            sys.stderr.write(f"fetching {package}\n")
            with tempfile.TemporaryDirectory() as folder, _made(target / package) as made:
                _run("apt-get", "-q", "download", package, cwd=Path(folder))
                for deb in Path(folder).glob("*.deb"):
                    _run("dpkg-deb", "-x", str(deb), str(made))
    for archive in ARCHIVES:
        name = archive.partition("==")[0]
        if not (target / name).is_dir():
            with tempfile.TemporaryDirectory() as folder, _made(target / name) as made:
                pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps")
                source = ("--no-binary", ":all:", "--no-build-isolation")
                _run(*pip, *(source if name == "basic-pitch" else ()), "-d", folder, archive)
                archived = next(Path(folder).iterdir())
                kind = "zip" if archived.suffix == ".whl" else "gztar"
                shutil.unpack_archive(archived, made, kind)
    if not (target / generated.KIND).is_dir():
        with _made(target / generated.KIND) as made:
            generated.build(made)
    _synthesise(target)


class _made:  # noqa: N801  # reads as a word
    """A folder that gets its name only once its content is complete."""

    def __init__(self, path: Path) -> None:
        self._path, self._part = path, path.with_name(path.name + ".part")

    def __enter__(self) -> Path:
        shutil.rmtree(self._part, ignore_errors=True)
        self._part.mkdir(parents=True)
        return self._part

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._part.rename(self._path)


def _run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    subprocess.run(  # noqa: S603  # commands are put together here
        command, check=True, cwd=cwd, env=env, stdout=subprocess.DEVNULL
    )


def _synthesise(target: Path) -> None:
    """Let espeak-ng read texts and fluidsynth play the pieces."""
    libraries = next((target / "libespeak-ng1").rglob("libespeak-ng.so.1")).parent
    others = [next((target / p).rglob("*.so.0")).parent for p in ("libpcaudio0", "libsonic0")]
    data = next((target / "espeak-ng-data").rglob("phontab")).parent.parent
    program = str(next((target / "espeak-ng").rglob("bin/espeak-ng")))
    paths = ":".join(map(str, (libraries, *others)))
    for voice in VOICES:
        path = target / f"espeak_{voice.replace('+', '_')}.wav"
        if not path.is_file():
            command = (program, f"--path={data}", "-v", voice, "-w", str(path), TEXT)
            _run(*command, env={**os.environ, "LD_LIBRARY_PATH": paths})
    fonts = sorted(p for n in PACKAGES[-2:] for p in (target / n).rglob("*.sf2"))
    if shutil.which("fluidsynth") is None:
        return
    for name, piece in PIECES.items():
        midi = target / f"piano_{name}.mid"
        midi.write_bytes(as_midi(piece))
        for font in fonts:
            path = target / f"piano_{name}_{font.stem}.wav"
            if not path.is_file():
                _run("fluidsynth", "-niq", "-g", "0.6", "-F", str(path), str(font), str(midi))


def sounds() -> Iterator[Sound]:
    """Yield every available item."""
    target = audio_dir()
    yield from _metal(target)
    for path in sorted(target.glob("piano_*.wav")):
        yield Sound("solo piano", path.stem.removeprefix("piano_"), Waveform(_read(path)))
    yield from _speech(target)
    yield from _songs(target)
    yield from _generated(target)


def _metal(target: Path) -> Iterator[Sound]:
    """Mix the stems of Frets on Fire's songs."""
    for songs in ("fretsonfire-songs-sectoid", "fretsonfire-songs-muldjord"):
        for track in sorted((target / songs).rglob("song.ogg")):
            stems = [_read(track), _read(track.with_name("guitar.ogg"))]
            n = min(stem.shape[1] for stem in stems)
            mixed = stems[0][:, :n] + stems[1][:, :n]
            yield Sound("metal", track.parent.name, Waveform(mixed))


def _speech(target: Path) -> Iterator[Sound]:
    for path in sorted(target.glob("espeak_*.wav")):
        yield Sound("speech, read", path.stem, Waveform(_read(path)))
    speakers = [
        p for n in PACKAGES if n.startswith("asterisk") for p in (target / n).rglob("??_??_*")
    ]
    for folder in sorted(path for path in speakers if path.is_dir()):
        yield Sound("speech, read", folder.name, _prompts(folder.rglob("*.wav")))
    for who in ("m", "v"):
        lines = (target / "fillets-ng-data-nl").rglob(f"*-{who}-*.ogg")
        yield Sound("speech, acted", f"fillets-ng {who}", _prompts(lines))


def _songs(target: Path) -> Iterator[Sound]:
    """Songs with a band (an album tagged as female fronted metal, a rock song) and without."""
    paths = sorted((target / "marsshooter-data").rglob("??_-_*.ogg"))
    paths += sorted((target / "stempeg").rglob("*.stem.mp4"))
    paths += sorted((target / "basic-pitch").rglob("vocadito*.wav"))
    for path in paths:
        yield Sound("song", path.stem, Waveform(_read(path)))


def _generated(target: Path) -> Iterator[Sound]:
    """Instrumental pieces, asked for as acoustic or electronic."""
    for path in sorted((target / generated.KIND).glob("*.wav")):
        _, _, style, _ = path.stem.split("_")
        yield Sound(f"generated, {style}", path.stem, Waveform(_read(path)))


def _read(path: Path) -> NDArray[np.float32]:
    """Decode the first two minutes to ``[2, T]``."""
    samples = decode(path, _LIMITS).samples[:, : _SECONDS * SAMPLE_RATE]
    return np.broadcast_to(samples, (2, samples.shape[1]))


def _prompts(paths: Iterator[Path]) -> Waveform:
    """Join a minute of the longer recordings."""
    by_size = sorted(paths, key=lambda path: (-path.stat().st_size, path.name))[:60]
    random.Random(0).shuffle(by_size)  # noqa: S311  # no secret
    parts: list[NDArray[np.float32]] = []
    while by_size and sum(part.shape[1] for part in parts) < 60 * SAMPLE_RATE:
        try:
            parts.append(_read(by_size.pop()))
        except AudioError:
            continue
    return Waveform(np.concatenate(parts, axis=1))


if __name__ == "__main__":
    fetch()
