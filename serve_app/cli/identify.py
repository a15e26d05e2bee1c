"""`afa identify` and `afa catalog fingerprint`: the fingerprint index, without a server."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from os.path import lexists
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from configs.settings import Settings
from pipelines.audio.decode import DecodeLimits, decode, decode_segments
from pipelines.audio.waveform import AudioError, AudioTooLongError
from serve_app.cli.analysis.sources import SOURCES_HELP, audio_files, expanded, files_below
from serve_app.cli.catalog import AudioAnywhere, audio_policy
from serve_app.cli.environment import console, errors, fail, tell_of, tell_to_publish, told
from serve_app.cli.library.opened import existing, opened_if_there
from serve_app.cli.output.each_file import each_file
from serve_app.composition.files import LocalFiles
from serve_app.domain.identity import TrackIdentity
from serve_app.library.library import Library
from serve_app.library.rows import location_term
from serve_app.library.track import OPERATOR
from serve_app.providers.catalog.build import CatalogFileError, rows_in
from serve_app.providers.catalog.rows import DEFAULT_AUDIO, AudioPolicy, RowError, parse_row
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.fingerprints.manifest import (
    FingerprintIndexError,
    OutdatedIndexError,
    read_manifest,
)
from serve_app.providers.fingerprints.track_keys import (
    file_of_key,
    identity_of_key,
    key_of_file,
    key_of_identity,
)
from serve_app.services.export.tracks import files_of
from serve_app.services.export.tracks import tracks_of as library_tracks
from serve_app.services.failure import Failure
from serve_app.services.scan.entries import is_as_listed
from serve_app.services.scan.places import Found, Trouble, absolute, listed

if TYPE_CHECKING:
    from models.fingerprint.landmarks import Fingerprint
    from pipelines.fingerprint.make import Fingerprinter
    from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
    from serve_app.providers.fingerprints.index import IndexMatch

FILE_SCHEME = "file://"
CATALOG_ENDING = ".parquet"
LIMITS = DecodeLimits(max_seconds=3600)
LONG = DecodeLimits(max_seconds=4 * 3600.0)
N_THREADS = min(4, os.cpu_count() or 1)
"""Tracks of up to an hour fingerprinted at once; of longer ones, which take 5 GB, only one."""
_one_is_long = Lock()

Track = tuple[str, Path]


class OwnIndex:
    """The fingerprint index of this installation, and the sources of its tracks' names.

    Raises:
        FingerprintIndexError: There is no index that can be read.
    """

    def __init__(self, files: LocalFiles, library: Library | None) -> None:
        from pipelines.fingerprint.make import Fingerprinter
        from serve_app.providers.fingerprints.index import FingerprintIndex

        self._catalog, self._library = Catalog.open(files.catalog_dir), library
        self._index = FingerprintIndex.open(files.fingerprint_dir)
        self._fingerprinter = Fingerprinter()

    def best_match(self, path: Path) -> "tuple[TrackIdentity, IndexMatch] | None":
        """Return the track that a recording is, by its first hour, if one matches with certainty.

        Raises:
            AudioError: It cannot be decoded.
        """
        from serve_app.providers.recognisers.own_index import first_known

        try:
            heard = decode(path, LIMITS)
        except AudioTooLongError:
            (heard,) = decode_segments(path, [(0.0, LIMITS.max_seconds)], LIMITS)
        clip = self._fingerprinter.make_clip(heard)
        matches = self._index.query(clip.fingerprint, clip.closer)
        return first_known(matches, lambda key: identity_of_key(self._catalog, key, self._library))


def identify(
    sources: Annotated[
        list[str],
        typer.Argument(help=f"Audio of three seconds or more. {SOURCES_HELP}", metavar="SOURCE"),
    ],
) -> None:
    """Find which track of your index a recording is; the exit status is 1 if one has no match."""
    settings = Settings()
    local = LocalFiles(settings.data_dir.absolute())
    with told(FingerprintIndexError):
        index = OwnIndex(local, opened_if_there(settings, local))
    files = audio_files(sources)
    is_all_known = True

    def name_of(file: str) -> str:
        nonlocal is_all_known
        found = index.best_match(Path(file))
        if found is None:
            is_all_known = False
            return "no match"
        who, match = found
        name = f"{who.artist} - {who.title}" if who.artist else who.title
        return f"{name}, at {match.offset_s:.1f} s, confidence {match.confidence}"

    def show(file: str, name: str | Failure) -> None:
        if isinstance(name, str):
            console.print(f"{file}: {name}" if len(files) > 1 else name)

    with told(FingerprintIndexError), each_file(len(files), show) as told_of:
        for file in files:
            if not isinstance(file, str):
                told_of.absent(file)
                continue
            try:
                name = name_of(file)
            except (AudioError, OSError) as error:
                told_of.done(file, error)
            else:
                told_of.done(file, name)
    if not is_all_known:
        raise typer.Exit(1)


def fingerprint(
    sources: Annotated[
        list[str] | None,
        typer.Argument(help=f"{SOURCES_HELP} Also catalog files (.parquet).", metavar="SOURCE"),
    ] = None,
    whole_library: Annotated[
        bool, typer.Option("--library", help="The library's tracks whose files exist.")
    ] = False,
    again: Annotated[bool, typer.Option(help="Also tracks that the index already has.")] = False,
    audio_anywhere: AudioAnywhere = False,
) -> None:
    """Add tracks to the fingerprint index; running services see them within a second.

    With AFA_SHARED they see what you publish. Files of the library count as its tracks, and have
    the names that it knows. Other files are named by `Artist - Title.ext`. Rows of a catalog file
    are named by their identifier, and their audio is at a path relative to that file.
    """
    settings = Settings()
    files = LocalFiles(settings.data_dir.absolute())
    if bool(sources) == whole_library:
        fail("name files, folders or catalog files, or give --library")
    policy = audio_policy(audio_anywhere)
    library = existing(settings, files) if whole_library else opened_if_there(settings, files)
    found = [
        one for source in expanded(sources or []) for one in tracks_of(source, policy, library)
    ]
    tracks = [one for one in found if not isinstance(one, Trouble)]
    troubles = [one for one in found if isinstance(one, Trouble)]
    for trouble in troubles:
        tell_of(trouble.location, trouble.message)
    if whole_library and library is not None:
        tracks = [
            (one.track.track_id, copy.path)
            for one in library_tracks(library)
            for copy in (one, *files_of(one.track))
        ]
    os.umask(0o077)  # new files from here on are in the data folder
    with told(FingerprintIndexError, OSError):
        n_added, n_failed = build(files.fingerprint_dir, tracks, again=again)
    n_left = len({key for key, _ in tracks}) - n_added - n_failed
    n_failed += len(troubles)
    console.print(f"{n_added} added, {n_left} left as they were, {n_failed} failed")
    tell_to_publish()
    if n_failed:
        raise typer.Exit(1)


def tracks_of(
    source: str, audio: AudioPolicy, library: Library | None
) -> Iterator[Track | Trouble]:
    """Yield keys and files of a folder, of a catalog file, or of one audio file."""
    path = Path(source)
    if path.suffix == CATALOG_ENDING:
        try:
            yield from rows_of(path, audio)
        except CatalogFileError as error:
            yield Trouble(source, str(error).removeprefix(f"{source}: "))
        return
    for file in files_below(source):
        if isinstance(file, Trouble):
            yield file
        else:
            yield key_in(library, Path(file)), Path(file)


def key_in(library: Library | None, path: Path) -> str:
    """Return the library's key for a file that it has unchanged, otherwise the file's own key."""
    found = listed(absolute(path))
    if library is not None and isinstance(found, Found):
        for track in library.of_term(location_term(found.location), OPERATOR):
            for file in track.files:
                is_there = file.location == found.location and file.missing_since is None
                if is_there and is_as_listed(file, found):
                    return track.track_id
    return key_of_file(absolute(path))


def rows_of(file: Path, audio: AudioPolicy = DEFAULT_AUDIO) -> Iterator[Track]:
    """Yield keys and files of a catalog file.

    Raises:
        CatalogFileError: It is not a catalog file.
    """
    for row in rows_in(file):
        try:
            identity = parse_row(row, file.parent, audio)
        except RowError as error:
            errors.print(f"{file}: row left out: {error}", highlight=False)
            continue
        key = key_of_identity(identity)
        if key is not None and (identity.audio_url or "").startswith(FILE_SCHEME):
            yield key, Path((identity.audio_url or "").removeprefix(FILE_SCHEME))


def build(folder: Path, tracks: list[Track], *, again: bool = False) -> tuple[int, int]:
    """Fingerprint tracks into the index; print a line with the name of each unreadable one.

    Entries that were added as files are removed if their track is known by now.

    Returns:
        How many were added, and how many could not be read.
    """
    import torch

    from pipelines.fingerprint.make import Fingerprinter
    from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder

    try:
        read_manifest(folder)
    except OutdatedIndexError as error:
        console.print(f"{error} It is started over.", style="yellow")
    except FingerprintIndexError:
        pass  # none yet; the builder reports a damaged one
    torch.set_num_threads(1)  # the cores work on different tracks
    fingerprinter = Fingerprinter()

    def fingerprint_of(path: Path) -> "Fingerprint | AudioError | OSError":
        try:
            return whole(path, fingerprinter)
        except (AudioError, OSError) as error:
            return error

    with (
        Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress,
        FingerprintIndexBuilder(folder) as builder,
        ThreadPoolExecutor(N_THREADS) as pool,
    ):
        tracks = without_links(builder, tracks)
        wanted: dict[str, Path] = {}
        for key, path in tracks:
            if again or key not in builder:
                wanted.setdefault(key, path)
        task = progress.add_task("fingerprinting", total=len(wanted))
        n_failed = 0
        results = pool.map(fingerprint_of, wanted.values())

        def fingerprints() -> "Iterator[tuple[str, Fingerprint]]":
            nonlocal n_failed
            for (key, path), found in zip(wanted.items(), results, strict=True):
                progress.advance(task)
                if isinstance(found, Exception):
                    n_failed += 1
                    message = Failure.of(found).message
                    tell_of(path, message)
                else:
                    yield key, found

        try:
            n_added = builder.build(fingerprints())
        finally:
            pool.shutdown(cancel_futures=True)
        drop_replaced(builder, tracks)
    return n_added, n_failed


def whole(path: Path, fingerprinter: "Fingerprinter") -> "Fingerprint":
    """Fingerprint a file; if it is beyond `LIMITS`, only one such file at a time.

    Raises:
        AudioError: It cannot be decoded, or is beyond `LONG`.
        OSError: It cannot be read.
    """
    try:
        return fingerprinter.make_fingerprints([decode(path, LIMITS)])[0]
    except AudioTooLongError:
        with _one_is_long:
            return fingerprinter.make_fingerprints([decode(path, LONG)])[0]


def without_links(builder: "FingerprintIndexBuilder", tracks: list[Track]) -> list[Track]:
    """Leave out links to files that the index has or will have, and remove them from it."""
    links = {key: path for key, path in tracks if file_of_key(key) and path.is_symlink()}
    had = {path.resolve() for key, path in tracks if key not in links} if links else set()
    twins = set()
    for key, path in links.items():
        there = path.resolve()
        if there in had or key_of_file(there) in builder:
            twins.add(key)
            builder.remove(key)
        had.add(there)  # if there are two links to a file, the first is kept
    return [(key, path) for key, path in tracks if key not in twins]


def drop_replaced(builder: "FingerprintIndexBuilder", tracks: list[Track]) -> None:
    """Remove entries of files that now have a better name, or that were moved."""
    here = [(key, absolute(path)) for key, path in tracks if key in builder]
    names = {path.name for _, path in here}
    files = ((key, file) for key in builder if (file := file_of_key(key)) and file.name in names)
    # Paths used to be relative to the named folder, wherever that was.
    gone = {key: file for key, file in files if not (file.is_absolute() and lexists(file))}
    lost = {file.name for file in gone.values()}
    news = [(key, path) for key, path in here if path.name in lost]
    sounds = builder.digests([key for key, _ in news] + list(gone))
    there = {(path.name, sounds[key]) for key, path in news}
    replaced = {key for key, file in gone.items() if (file.name, sounds[key]) in there}
    replaced.update(key_of_file(path) for _, path in here)
    if sum(map(builder.remove, replaced - {key for key, _ in here})):
        builder.commit()
