"""Catalog files of invented tracks, of any size.

Names use a 200 000-word vocabulary with Zipf-like frequencies, one artist per twelve tracks, and
random identifiers, so that term dictionaries and postings are as large as real ones.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

CHUNK_ROWS = 100_000
N_WORDS = 200_000
TRACKS_PER_ARTIST = 12
SYLLABLES = tuple(
    "ba ko ri ta mo sel un dra pi lo ne shu gar wen tis ol ma vy qua er".split()  # noqa: SIM905
)
BASE62 = np.frombuffer(
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", dtype=np.uint8
)
Strings = NDArray[np.object_]


class Names:
    """Draws artists and titles of Zipf-distributed invented words."""

    def __init__(self, rng: np.random.Generator, n_tracks: int) -> None:
        self._rng = rng
        lengths = rng.choice([1, 2, 2, 3, 3, 4], N_WORDS)
        words = ["".join(rng.choice(SYLLABLES, n)) for n in lengths]
        self._words = np.array(list(dict.fromkeys(words)), dtype=object)
        weights = 1 / np.arange(3, self._words.size + 3) ** 0.9
        self._cumulative = np.cumsum(weights / weights.sum())
        self._artists = self.draw(max(1, n_tracks // TRACKS_PER_ARTIST), 3)

    def draw(self, n: int, max_words: int) -> Strings:
        """``n`` names of one to ``max_words`` words."""
        counts = self._rng.integers(1, max_words + 1, n)
        ranks = np.searchsorted(self._cumulative, self._rng.random(int(counts.sum())))
        pieces = np.split(
            self._words[np.minimum(ranks, self._words.size - 1)], counts.cumsum()[:-1]
        )
        return np.array([" ".join(piece) for piece in pieces], dtype=object)

    def artists(self, n: int) -> Strings:
        """``n`` draws from the fixed list of artists."""
        return np.asarray(self._artists[self._rng.integers(0, self._artists.size, n)])


def random_ids(rng: np.random.Generator, n: int, length: int) -> list[str]:
    """``n`` base-62 strings whose first character is a digit up to 7."""
    letters = BASE62[rng.integers(0, 62, (n, length))]
    letters[:, 0] = ord("0") + rng.integers(0, 8, n)
    return [row.tobytes().decode() for row in letters]


def random_uuids(rng: np.random.Generator, n: int) -> list[str]:
    """``n`` version-4-like UUIDs."""
    digits = [row.tobytes().hex() for row in rng.integers(0, 256, (n, 16), dtype=np.uint8)]
    return [f"{d[:8]}-{d[8:12]}-{d[12:16]}-{d[16:20]}-{d[20:]}" for d in digits]


def synthetic_chunks(n_tracks: int, seed: int) -> Iterator[pa.Table]:
    """Catalog tables of 100 000 rows: all have four identifiers, half of them six."""
    rng = np.random.default_rng(seed)
    names = Names(rng, n_tracks)
    for start in range(0, n_tracks, CHUNK_ROWS):
        n = min(CHUNK_ROWS, n_tracks - start)
        rows = range(start, start + n)
        youtube = random_ids(rng, n, 11)
        yield pa.table(
            {
                "artist": names.artists(n),
                "title": names.draw(n, 5),
                "mbid": random_uuids(rng, n),
                "isrc": [f"QZ{row // 10**7:03d}{row % 10**7:07d}" for row in rows],
                "spotify_id": random_ids(rng, n, 22),
                "deezer_id": [str(10**8 + 97 * row) for row in rows],
                "apple_id": [str(10**9 + 89 * row) if row % 2 else None for row in rows],
                "youtube_id": [
                    i if row % 2 else None for i, row in zip(youtube, rows, strict=True)
                ],
                "album": names.draw(n, 3),
                "year": rng.integers(1960, 2026, n).astype(np.int32),
                "duration_s": rng.integers(90_000, 400_000, n) / 1000,
            }
        )


def write_synthetic(path: Path, n_tracks: int, seed: int = 0) -> None:
    """Write the synthetic catalog as Parquet."""
    writer: pq.ParquetWriter | None = None
    for table in synthetic_chunks(n_tracks, seed):
        writer = writer or pq.ParquetWriter(path, table.schema, compression="zstd")
        writer.write_table(table)
    if writer is not None:
        writer.close()
