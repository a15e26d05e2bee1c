"""`afa identify` and `afa catalog fingerprint`: the fingerprint index, without any server."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import pyarrow.parquet as pq
import typer
from rich.progress import Progress

from configs.settings import Settings
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.waveform import AudioError
from serve_app.cli.catalog import AudioAnywhere, audio_policy
from serve_app.cli.environment import console, existing, fail, told
from serve_app.cli.library.opened import opened
from serve_app.composition.files import LocalFiles
from serve_app.providers.catalog.rows import DEFAULT_AUDIO, AudioPolicy, RowError, parse_row
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.fingerprints.manifest import (
    FingerprintIndexError,
    OutdatedIndexError,
    read_manifest,
)
from serve_app.providers.fingerprints.track_keys import (
    identity_of_key,
    key_of_file,
    key_of_identity,
)
from serve_app.services.export.tracks import tracks_of as library_tracks
from serve_app.services.scan.places import AUDIO_ENDINGS

if TYPE_CHECKING:
    from models.fingerprint.landmarks import Fingerprint

FILE_SCHEME = "file://"
LIMITS = DecodeLimits(max_seconds=3600)
N_THREADS = min(4, os.cpu_count() or 1)
"""Tracks decoded and fingerprinted at once; an hour of music takes 1.3 GB meanwhile."""

Track = tuple[str, Path]


def identify(file: Annotated[str, typer.Argument(help="Audio, three seconds or more.")]) -> None:
    """Tell which track of the own index a recording is."""
    from pipelines.fingerprint.make import Fingerprinter
    from serve_app.providers.fingerprints.index import FingerprintIndex
    from serve_app.providers.recognisers.own_index import MIN_CONFIDENCE

    settings = Settings()
    files = LocalFiles(settings.data_dir.absolute())
    catalog = Catalog.open(files.catalog_dir)
    with told(AudioError, FingerprintIndexError):
        clip = Fingerprinter().make_clip(decode(existing(file), LIMITS))
        matches = FingerprintIndex.open(files.fingerprint_dir).query(clip.fingerprint)
    if not matches or matches[0].confidence < MIN_CONFIDENCE:
        console.print("no match")
        raise typer.Exit(1)
    best = matches[0]
    who = identity_of_key(catalog, best.track_key, opened(settings, files))
    name = f"{who.artist} - {who.title}" if who is not None else best.track_key
    console.print(f"{name}, at {best.offset_s:.1f} s, confidence {best.confidence}")


def fingerprint(
    source: Annotated[
        Path | None,
        typer.Argument(help="Folder of audio files, or a catalog file (Parquet)."),
    ] = None,
    whole_library: Annotated[
        bool, typer.Option("--library", help="The library's tracks whose files are there.")
    ] = False,
    again: Annotated[bool, typer.Option(help="Also tracks that are in the index.")] = False,
    audio_anywhere: AudioAnywhere = False,
) -> None:
    """Add tracks to the fingerprint index; running services see them within a second.

    Files of the library are named as the library knows them, those of a folder by
    `Artist - Title.ext`; rows of a catalog file by their identifier, with audio at a path relative
    to the file.
    """
    settings = Settings()
    files = LocalFiles(settings.data_dir.absolute())
    if (source is None) != whole_library:
        fail("name a folder or a catalog file, or give --library")
    if source is None:
        tracks = [(one.track.track_id, one.path) for one in library_tracks(opened(settings, files))]
    else:
        tracks = list(tracks_of(source, audio_policy(audio_anywhere)))
    if not tracks:
        fail(f"no audio in {source or 'the library'}")
    with told(FingerprintIndexError):
        n_added = build(files.fingerprint_dir, tracks, again=again)
    console.print(f"{n_added} added, {len(tracks) - n_added} left as they were or not audio")


def tracks_of(source: Path, audio: AudioPolicy = DEFAULT_AUDIO) -> Iterator[Track]:
    """Give keys and files of a folder or a catalog file."""
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            if path.suffix.lower() in AUDIO_ENDINGS:
                yield key_of_file(path.relative_to(source)), path
        return
    for row in pq.read_table(existing(str(source))).to_pylist():
        try:
            identity = parse_row(row, source.parent, audio)
        except RowError as error:
            console.print(f"row left out: {error}", style="yellow")
            continue
        key = key_of_identity(identity)
        if key is not None and (identity.audio_url or "").startswith(FILE_SCHEME):
            yield key, Path((identity.audio_url or "").removeprefix(FILE_SCHEME))


def build(folder: Path, tracks: list[Track], *, again: bool = False) -> int:
    """Fingerprint tracks into the index; unreadable ones are told and left out."""
    import torch

    from pipelines.fingerprint.make import Fingerprinter
    from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder

    try:
        read_manifest(folder)
    except OutdatedIndexError as error:
        console.print(f"{error} It is started over.", style="yellow")
    except FingerprintIndexError:
        pass  # none yet; a damaged one is the builder's to tell
    torch.set_num_threads(1)  # tracks are what is shared out between the cores
    fingerprinter = Fingerprinter()

    def fingerprint_of(path: Path) -> "Fingerprint | AudioError | OSError":
        try:
            return fingerprinter.make_fingerprints([decode(path, LIMITS)])[0]
        except (AudioError, OSError) as error:
            return error

    with (
        Progress(console=console, transient=True) as progress,
        FingerprintIndexBuilder(folder) as builder,
        ThreadPoolExecutor(N_THREADS) as pool,
    ):
        wanted: dict[str, Path] = {}
        for key, path in tracks:
            if again or key not in builder:
                wanted.setdefault(key, path)
        task = progress.add_task("fingerprinting", total=len(wanted))
        results = pool.map(fingerprint_of, wanted.values())

        def fingerprints() -> "Iterator[tuple[str, Fingerprint]]":
            for (key, path), found in zip(wanted.items(), results, strict=True):
                progress.advance(task)
                if isinstance(found, Exception):
                    console.print(f"{path}: {found}", style="yellow")
                else:
                    yield key, found

        try:
            return builder.build(fingerprints())
        finally:
            pool.shutdown(cancel_futures=True)
