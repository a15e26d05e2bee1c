"""The music that identification is measured on, unpacked from Debian packages.

``python -m benchmarks.identify.music`` fetches and unpacks the packages (3.5 GB) into
``$AFA_IDENTIFY_AUDIO`` (default: ``afa-identify`` in ``~/.cache``). Rendered clips of the tempo
evaluation set (`AFA_EVAL_AUDIO`) are added where they exist, and are marked as synthetic.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.evaluation_set import ask_for_nothing

KNOWN = (
    "amoebax-data",
    "colobot-common-sounds",
    "drascula-music",
    "extremetuxracer-data",
    "fillets-ng-data",
    "hyperrogue-music",
    "marsshooter-data",
    "noiz2sa-data",
    "planetblupi-music-ogg",
    "pushover-data",
    "singularity-music",
    "starfighter-data",
    "unknown-horizons",
    "warmux-data",
    "xmoto-data",
    "zaz-data",
)
"""Packages whose music is indexed; choices were made on these and on `UNKNOWN` …"""
UNKNOWN = (
    "ardentryst",
    "asc-music",
    "btanks-data",
    "enigma-data",
    "flare-game",
    "freeorion-data",
    "frozen-bubble-data",
    "hedgewars-data",
    "lincity-ng-data",
    "lordsawar-data",
    "lugaru-data",
    "megaglest-data",
    "scorched3d-data",
    "supertux-data",
    "trackballs-data",
    "wesnoth-1.16-music",
)
"""Packages whose music is not indexed: any match for it is a false accept."""
REPORTED_KNOWN = (
    "supertuxkart-data",
    "ufoai-music",
)
"""… and none on these and `REPORTED_UNKNOWN`, so their figures are what to expect."""
REPORTED_UNKNOWN = (
    "berusky2-data",
    "funnyboat",
    "nexuiz-music",
    "redeclipse-data",
    "widelands-data",
)
NOT_MUSIC = (
    "DesertAmbient",
    "Wind",
    "cave_wind_loop",
    "day",
    "desertday",
    "hell",
    "night",
    "nightime",
    "rain",
    "sunny_day",
    "wind",
    "wind_ambient",
    "wind_loop",
)
"""Files with weather and animals."""
PARTS = {
    "known": KNOWN,
    "unknown": UNKNOWN,
    "reported-known": REPORTED_KNOWN,
    "reported-unknown": REPORTED_UNKNOWN,
}
RENDERED = ("dband_", "dm21_", "lmms_", "msx_")
SMALLEST_BYTES = 400_000
SHORTEST_S = 25.0


@dataclass(frozen=True, slots=True)
class Track:
    """A recording of the set.

    Attributes:
        key: Unique and stable.
        is_known: Whether it is indexed.
        is_reported: Whether nothing was chosen on its package.
        is_synthetic: Rendered from notes, not recorded or produced by musicians.
    """

    key: str
    path: Path
    is_known: bool
    is_reported: bool
    is_synthetic: bool


def audio_dir() -> Path:
    """Return the set's folder."""
    return Path(os.environ.get("AFA_IDENTIFY_AUDIO", "~/.cache/afa-identify")).expanduser()


def find_tracks() -> list[Track]:
    """All available tracks, without copies of the same file; empty before they are fetched."""
    found = [
        (path, part.removeprefix("reported-") == "known", part.startswith("reported"), False)
        for part in PARTS
        for path in _music(audio_dir() / part)
    ]
    rendered = Path(os.environ.get("AFA_EVAL_AUDIO", "~/.cache/afa-evalset")).expanduser()
    found += [
        (p, True, False, True)
        for p in sorted(rendered.glob("*.wav"))
        if p.name.startswith(RENDERED)
    ]
    tracks: dict[str, Track] = {}
    for path, *marks in found:
        digest = hashlib.sha1(path.read_bytes(), usedforsecurity=False).hexdigest()
        tracks.setdefault(digest, Track(f"{path.stem}-{digest[:6]}", path, *marks))
    return list(tracks.values())


def _music(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in (".ogg", ".mp3")
        and path.stem not in NOT_MUSIC
        and path.stat().st_size > SMALLEST_BYTES
    )


def decode_stereo(path: Path) -> NDArray[np.float32] | None:
    """Decode to float32 ``[2, T]`` at 44.1 kHz; None if it cannot be read or is too short."""
    import av

    blocks = []
    try:
        with av.open(str(path)) as file:
            to_stereo = av.AudioResampler(format="fltp", layout="stereo", rate=44_100)
            for frame in file.decode(audio=0):
                blocks += [part.to_ndarray() for part in to_stereo.resample(frame)]
            blocks += [part.to_ndarray() for part in to_stereo.resample(None)]
    except (av.FFmpegError, UnicodeDecodeError):
        return None
    if not blocks:
        return None
    audio: NDArray[np.float32] = np.concatenate(blocks, axis=1)
    return audio if audio.shape[1] >= SHORTEST_S * 44_100 else None


def fetch() -> None:
    """Download and unpack all packages; needs ``apt-get`` and ``dpkg-deb``, but no root."""
    for part, packages in PARTS.items():
        target = audio_dir() / part
        target.mkdir(parents=True, exist_ok=True)
        for package in packages:
            with tempfile.TemporaryDirectory() as folder:
                sys.stdout.write(f"{package}\n")
                subprocess.run(["apt-get", "download", package], cwd=folder, check=True)  # noqa: S603, S607  # names from above
                for deb in Path(folder).glob("*.deb"):
                    subprocess.run(["dpkg-deb", "-x", str(deb), str(target)], check=True)  # noqa: S603, S607  # as above
        for archive in target.rglob("*.pk3"):
            with zipfile.ZipFile(archive) as packed:
                packed.extractall(archive.with_suffix(""))


if __name__ == "__main__":
    ask_for_nothing("benchmarks.identify.music", __doc__ or "")
    fetch()
