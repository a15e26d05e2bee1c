"""The library that `afa scan` fills and the service answers from, in this process.

It uses the service's own code, imported only when a library is opened, so that `import afa` stays
quick and does not need that code (decision 0033).
"""

import asyncio
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from html import escape
from itertools import chain
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from afa.analyzer import Analyzer
from afa.errors import AudioError, LibraryError
from afa.track import Track, Vector
from pipelines.analysis.records import EMBEDDING_DIMENSION
from pipelines.analysis.tonality.notes import CAMELOT, mode_name, pitch_class

if TYPE_CHECKING:
    import pyarrow as pa

    from serve_app.library.library import Library as Stores
    from serve_app.library.query import TrackQuery
    from serve_app.library.track import LibraryTrack as Stored
    from serve_app.services.scan.entries import Hearing

OPERATOR = ""
OWNERS = (OPERATOR,)
"""The owners whose tracks every key may see, as in `serve_app.library.track.OPERATOR`."""

SHOWN = 20
COLUMNS = ("artist", "title", "album", "year", "tempo", "key", "camelot")
KEYS = frozenset(chain(*CAMELOT))
"""The names on the Camelot wheel."""
Range = tuple[float | None, float | None]


@dataclass(frozen=True)
class LibraryTrack:
    """A track of a library: one recording, however many files hold it.

    Attributes:
        id: The library's own identifier, ``trk_…``.
        ids: The known identifiers by kind: ``mbid``, ``isrc``, ``spotify_id`` and so on.
        paths: Its files, where they were last seen.
        tags: The owner's tags, the genres, and tags with high scores in the analysis.
        duration_s: Length in seconds; None before the analysis, like the attributes below.
        tempo: BPM; 0 if there is no beat.
        key: Such as ``A minor``; None if there is none.
        camelot: The key's name on the Camelot wheel.
    """

    id: str
    artist: str
    title: str
    album: str | None
    year: int | None
    ids: dict[str, str]
    paths: tuple[Path, ...]
    tags: tuple[str, ...]
    duration_s: float | None
    tempo: float | None
    key: str | None
    camelot: str | None

    def __repr__(self) -> str:
        tempo = "not analysed" if self.tempo is None else f"{self.tempo:.1f} BPM"
        return f"<LibraryTrack {self.artist} - {self.title}: {tempo}, {self.key or 'no key'}>"


@dataclass(frozen=True)
class Similar:
    """A track that sounds like another; cosine ``distance`` 0 sounds the same, 2 is opposite."""

    track: LibraryTrack
    distance: float


class Library:
    """The tracks of one installation that every key may see: the operator's.

        library = afa.Library()
        library.search("cure", tempo=(120, 130), key="8A")
        library.similar(library["isrc:GBAAA8000001"])
        library.add("song.mp3")
        library.table().to_pandas()

    A service or a scan may use the same library at the same time; you see what they write at once.

    Args:
        data_dir: The data folder of the installation; None means the value of ``AFA_DATA_DIR``,
            and then ``AFA_LIBRARY`` counts too. If the folder does not exist, it is created with
            an empty library.

    Raises:
        LibraryError: The library cannot be opened.
    """

    def __init__(self, data_dir: str | PathLike[str] | None = None) -> None:
        from configs.settings import Settings
        from serve_app.composition.files import LocalFiles, make_private
        from serve_app.library.library import Library as Stores

        settings = (
            Settings() if data_dir is None else Settings(data_dir=Path(data_dir), library=None)
        )
        self._files = LocalFiles(settings.data_dir.absolute())
        try:
            make_private(self._files.data_dir)
            self._opened: Stores | None = Stores(
                self._files.library_url(settings), self._files.library_view_dir
            )
        except (OSError, ValueError) as error:
            raise LibraryError(f"the library cannot be opened: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the library's files; it cannot be queried any more."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def __len__(self) -> int:
        return self._followed().count(OWNERS)

    def __iter__(self) -> Iterator[LibraryTrack]:
        """Iterate over all tracks, newest first."""
        return map(_described, self._followed().all(OWNERS))

    def __getitem__(self, track_id: str) -> LibraryTrack:
        """Return the track with an identifier, in any form that look-ups accept.

        Raises:
            KeyError: There is no such track.
        """
        found = self.get(track_id)
        if found is None:
            raise KeyError(track_id)
        return found

    def get(self, track_id: str) -> LibraryTrack | None:
        """Return the track with an identifier, in any form that look-ups accept, or None."""
        stored = self._stored(track_id)
        return None if stored is None else _described(stored)

    def search(
        self,
        text: str = "",
        *,
        tempo: Range = (None, None),
        year: Range = (None, None),
        key: str | Sequence[str] = (),
        tags: Sequence[str] = (),
        limit: int = 50,
    ) -> list[LibraryTrack]:
        """Find tracks, newest first; filters that you leave out match every track.

        Args:
            text: Words from artist, title, album or tags. All must match; the last may be the
                beginning of a word.
            tempo: Lowest and highest BPM; None leaves an end open.
            year: Earliest and latest year of release, likewise.
            key: A Camelot name (1A to 12B), or several; a track needs one of them.
            tags: Tags; a track needs all of them.
            limit: Maximum number of tracks; 1 or more.

        Raises:
            ValueError: No track can match a filter, or the limit is below 1.
        """
        _check_count("limit", limit)
        query = _query(text, tempo, year, key, tags)
        return [_described(one) for one in self._followed().page(query, OWNERS, limit).items]

    def similar(
        self,
        track: LibraryTrack | Track | str,
        n: int = 10,
        *,
        tempo: Range = (None, None),
        key: str | Sequence[str] = (),
        tags: Sequence[str] = (),
    ) -> list[Similar]:
        """Find the tracks that sound most like a track, nearest first, each recording once.

        Args:
            track: A track of this library, an identifier of one, or a result of `Analyzer.analyze`.
            n: Maximum number of tracks; 1 or more.
            tempo: Lowest and highest BPM; this and the filters below work as in `search`.
            key: A Camelot name, or several.
            tags: Tags; a track needs all of them.

        Raises:
            LibraryError: The track is not in this library, has no analysis, or is silent.
            ValueError: No track can match a filter, or ``n`` is below 1.
        """
        from serve_app.domain.errors import AfaError
        from serve_app.services.similar.neighbours import LibraryNeighbours
        from serve_app.services.similar.search import Search
        from serve_app.services.similar.wanted import Seed, Wanted

        _check_count("n", n)
        query = _query("", tempo, (None, None), key, tags)
        if isinstance(track, Track):
            if not track.embedding.any():
                raise LibraryError(f"{track.path} is silent, and silence has no embedding")
            model, vector = track.models["embedding"], track.embedding.tolist()
            seeds, wanted = [], Wanted(n, vector=vector, model=model, query=query)
        else:
            seeds = [self._analysed(track)]
            wanted = Wanted(n, [Seed(seeds[0].track_id)], query=query)
        search = Search(LibraryNeighbours(self._followed()))
        try:
            _, found = search.similar(OPERATOR, wanted, seeds)
        except AfaError as error:
            raise LibraryError(error.message) from error
        return [Similar(_described(one.track), one.distance) for one in found]

    def add(self, path: str | PathLike[str], analyzer: Analyzer | None = None) -> LibraryTrack:
        """Add a file to the library as `afa scan` does, and return its track.

        A file that is already known is not analysed again; another copy of a recording joins its
        track.

        Args:
            path: An audio file. It stays where it is.
            analyzer: Analyses the file. By default a new one is made; pass one to add many files.

        Raises:
            AudioError: The file cannot be read or analysed.
            MachineError: This machine cannot decode any file, or the device failed.
        """
        from serve_app.library.rows import location_term
        from serve_app.services.scan.landmarks import LandmarkIndex
        from serve_app.services.scan.naming import Naming
        from serve_app.services.scan.places import SingleFile, Trouble, absolute, listed
        from serve_app.services.scan.scan import Scan

        path = absolute(Path(path))
        if os.path.isdir(path):  # Path.is_dir raises if the name is too long
            raise AudioError(path, "unreadable", "is a folder; `afa scan` takes folders")
        found = listed(path)
        if isinstance(found, Trouble):
            raise AudioError(path, "unreadable", found.message)
        engine = _Engine(analyzer)
        naming = Naming.open(self._files.catalog_dir, self._files.fingerprint_dir)
        landmarks = LandmarkIndex(self._files.fingerprint_dir)
        scan = Scan(self._stores, engine, naming, landmarks, lambda _location, _outcome: None)
        with ThreadPoolExecutor(1) as pool:  # a notebook already runs an event loop
            pool.submit(asyncio.run, scan.run([(SingleFile(path), [found])])).result()
        if engine.error is not None:
            raise engine.error
        if scan.report.has_failed:
            raise AudioError(path, "unprocessable_audio", scan.report.troubles[0].message)
        return _described(self._stores.of_term(location_term(str(path)), OPERATOR)[0])

    def embeddings(self, tracks: Iterable[LibraryTrack], model: str | None = None) -> Vector:
        """Return the embeddings of tracks.

        Args:
            tracks: Tracks of this library.
            model: The model that made them; by default that of the first track's last analysis.

        Returns:
            float32 ``[n, 768]``, one row of norm 1 per track in the given order.

        Raises:
            LibraryError: One of the tracks has no embedding by this model.
        """
        from serve_app.services.similar.search import models_of

        wanted = [one.id for one in tracks]
        if not wanted:
            return np.empty((0, EMBEDDING_DIMENSION), np.float32)
        if model is None:
            model = models_of(self._analysed(wanted[0]))[0]
        known = self._stores.vectors(model).get(wanted)
        lacking = [one for one in wanted if one not in known]
        if lacking:
            raise LibraryError(f"{model} made no embedding of {', '.join(lacking[:3])}")
        return np.array([known[one] for one in wanted], np.float32)

    def table(self, tracks: Iterable[LibraryTrack] | None = None) -> "pa.Table":
        """Return tracks (by default all) as an Arrow table; ``.to_pandas()`` converts it."""
        import pyarrow as pa

        text, number = pa.string(), pa.float64()
        kinds = dict.fromkeys(("id", *COLUMNS, "duration_s", "tags", "path", "mbid", "isrc"), text)
        kinds |= {"year": pa.int64(), "tempo": number, "duration_s": number, "tags": pa.list_(text)}
        rows = [_row(one) for one in (self if tracks is None else tracks)]
        return pa.Table.from_pylist(rows, pa.schema(list(kinds.items())))

    def __repr__(self) -> str:
        if self._opened is None:
            return f"<Library {self._files.data_dir}: closed>"
        return f"<Library {self._files.data_dir}: {len(self)} tracks>"

    def _repr_html_(self) -> str:
        shown = self.search(limit=SHOWN)
        head = "".join(f"<th>{name}</th>" for name in COLUMNS)
        rows = "".join(
            "<tr>" + "".join(f"<td>{_cell(getattr(one, name))}</td>" for name in COLUMNS) + "</tr>"
            for one in shown
        )
        caption = f"{len(self)} tracks, the newest {len(shown)} of them"
        return f"<table><caption>{caption}</caption><tr>{head}</tr>{rows}</table>"

    @property
    def _stores(self) -> "Stores":
        if self._opened is None:
            raise LibraryError("the library is closed; open it again with afa.Library()")
        return self._opened

    def _followed(self) -> "Stores":
        self._stores.follow()
        return self._stores

    def _stored(self, text: str) -> "Stored | None":
        from serve_app.domain.track_ids import InvalidTrackIdError, readings

        try:
            track_ids = readings(text)
        except InvalidTrackIdError:
            return None
        hits = [hit for one in track_ids for hit in self._followed().by_id(one, OWNERS)]
        return self._stores.get(hits[0].track_id) if hits else None

    def _analysed(self, track: LibraryTrack | str) -> "Stored":
        """Return the stored form of a track that has an embedding."""
        name = track if isinstance(track, str) else track.id
        stored = self._stored(name)
        if stored is None:
            raise LibraryError(f"{name} is not in this library; `add` its file, or `afa scan` it")
        if not stored.embeddings:
            raise LibraryError(
                f"{name} has no embedding. Silence has none; "
                "if it sounds, analyse it with `afa scan --again`"
            )
        return stored


class _Engine:
    """Analyses files for a scan; keeps the error of a refused file."""

    n_at_once = 1

    def __init__(self, analyzer: Analyzer | None) -> None:
        self._analyzer = analyzer
        self.error: AudioError | None = None

    async def hear(self, path: Path) -> "Hearing":
        from pipelines.audio.waveform import UndecodableAudioError

        try:
            return await asyncio.to_thread(self._hear, path)
        except AudioError as error:
            self.error = error
            raise UndecodableAudioError(error.message) from error

    def _hear(self, path: Path) -> "Hearing":
        from afa.reading import read
        from pipelines.fingerprint.make import make_chromaprint
        from serve_app.services.scan.entries import Hearing

        if self._analyzer is None:
            self._analyzer = Analyzer()
        track = self._analyzer.analyze(path)
        return Hearing(track.record, make_chromaprint(read(path)))


def _check_count(name: str, count: int) -> None:
    if count < 1:
        raise ValueError(f"{name} must be 1 or more, not {count}")


def _query(
    text: str, tempo: Range, year: Range, key: str | Sequence[str], tags: Sequence[str]
) -> "TrackQuery":
    from serve_app.library.query import TrackQuery

    for name, (least, most) in (("tempo", tempo), ("year", year)):
        if least is not None and most is not None and least > most:
            raise ValueError(f"{name}: {least} is above {most}, so that no track can match")
    keys = [key] if isinstance(key, str) else key
    for one in keys:
        if one not in KEYS:
            raise ValueError(
                f"key: {one!r} is not a key; minor keys are 1A to 12A, major ones 1B to 12B"
            )
    return TrackQuery(
        tempo_min=tempo[0],
        tempo_max=tempo[1],
        year_min=None if year[0] is None else int(year[0]),
        year_max=None if year[1] is None else int(year[1]),
        keys=keys,
        tags=tags,
        text=text,
    )


def _described(stored: "Stored") -> LibraryTrack:
    from serve_app.domain.identity import ID_FIELDS
    from serve_app.library.measures import measures_of
    from serve_app.library.rows import tags_of
    from serve_app.library.track import Place

    who, measures = stored.identity, measures_of(stored)
    note = None if measures.key is None else pitch_class(measures.key)
    mode = None if measures.mode is None else mode_name(measures.mode)
    ids = {name: getattr(who, name) for name in ID_FIELDS.values() if getattr(who, name)}
    return LibraryTrack(
        id=stored.track_id,
        artist=who.artist,
        title=who.title,
        album=who.album,
        year=who.year,
        ids=ids,
        paths=tuple(Path(one.location) for one in stored.files if one.place is Place.PATH),
        tags=tuple(tags_of(stored)),
        duration_s=measures.duration_s,
        tempo=measures.tempo,
        key=f"{note} {mode}" if note and mode else None,
        camelot=measures.camelot,
    )


def _row(track: LibraryTrack) -> dict[str, Any]:
    return {
        "id": track.id,
        **{name: getattr(track, name) for name in COLUMNS},
        "duration_s": track.duration_s,
        "tags": list(track.tags),
        "path": str(track.paths[0]) if track.paths else None,
        "mbid": track.ids.get("mbid"),
        "isrc": track.ids.get("isrc"),
    }


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.1f}" if isinstance(value, float) else escape(str(value))
