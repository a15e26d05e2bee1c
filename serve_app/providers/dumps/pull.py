"""Published dumps as catalog files: fetched, and converted in parts, so that both can resume.

Invariant: what a step has finished stays. A fetch resumes where it ended, a conversion after the
last complete part. Parts of two states of a dump are never mixed: each state has its own folder,
and the previous one's stays until the next one is complete.
"""

import hashlib
import shutil
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import httpx

from serve_app.providers.catalog.build import Progress, write_parquet
from serve_app.providers.dumps import features, musicbrainz
from serve_app.providers.dumps.files import DumpFormatError, DumpReport

PART_ITEMS = 200_000
"""Recordings of one part: the most to convert again after a kill, some seconds' work."""

TOLD_ITEMS = 1000
"""Recordings between two reports of progress."""

TIMEOUT_S = 60.0
BLOCK_BYTES = 1 << 20


FEATURES = (features.RHYTHM, features.TONAL)


class Dump(StrEnum):
    """Dumps that can be pulled; for a recording in several, the first takes precedence."""

    MUSICBRAINZ = "musicbrainz"
    ACOUSTICBRAINZ = "acousticbrainz"


class FetchError(Exception):
    """An address does not answer, or answers with an error; the message names it."""


class Pulling:
    """One dump in its own folder, in which one process at a time works."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._fetched_dir = folder / "fetched"

    def parts(self) -> list[Path]:
        """Return the catalog files of the last completed state, in order; empty if none is."""
        whole = max(self._folder.glob("parts*/whole"), key=_age, default=None)
        return [] if whole is None else sorted(whole.parent.glob("*.parquet"))

    def run(self, dump: Dump, sources: Sequence[str], tell: Progress) -> DumpReport:
        """Fetch and convert, unless that is already done.

        Args:
            dump: The dump to pull.
            sources: Files or addresses of it.
            tell: Called with the progress.

        Returns:
            What was converted, by this run and earlier ones.

        Raises:
            ValueError: The sources are not those of the dump.
            DumpFormatError: A file is not the dump, or is damaged; what was converted stays, what
                was fetched is removed, so that it is fetched again.
            FetchError: An address does not answer; what was fetched stays.
        """
        wanted = 1 if dump is Dump.MUSICBRAINZ else 2
        if len(sources) != wanted:
            raise ValueError(f"{dump} needs {wanted} x --from, not {len(sources)}")
        files = [self._at_hand(source, tell) for source in sources]
        try:
            return self._convert(dump, files, tell)
        except DumpFormatError:
            self.tidy()
            raise

    def tidy(self) -> None:
        """Remove the fetched files, once they are in the catalog."""
        shutil.rmtree(self._fetched_dir, ignore_errors=True)

    def _at_hand(self, source: str, tell: Progress) -> Path:
        if not source.lower().startswith(("http://", "https://")):
            path = Path(source)
            if not path.is_file():
                raise ValueError(f"{source}: no such file, and no address with http:// or https://")
            return path
        if not name_in(source):
            raise ValueError(f"{source} names no file; give the whole address of the archive")
        try:
            return fetch(source, self._fetched_dir, tell)
        except httpx.HTTPStatusError as error:
            answer = error.response
            said = f"{answer.status_code} {answer.reason_phrase}"
            raise FetchError(f"{source} answers {said}") from error
        except httpx.HTTPError as error:
            raise FetchError(f"{source}: {error}") from error

    def _convert(self, dump: Dump, files: Sequence[Path], tell: Progress) -> DumpReport:
        files = sorted(files, key=lambda file: "tonal" in file.name)
        parts_dir = self._folder / f"parts-{_state_of(files)}"
        whole = parts_dir / "whole"
        if not whole.exists():
            if dump is Dump.MUSICBRAINZ:
                next(musicbrainz.recordings(files[0]))
            else:
                for file, feature in zip(files, FEATURES, strict=True):
                    features.check(file, feature)
            for other in self._folder.glob("parts*"):
                if other != parts_dir and not (other / "whole").exists():
                    _remove(other)
            parts_dir.mkdir(parents=True, exist_ok=True)
            convert = _convert_recordings if dump is Dump.MUSICBRAINZ else _convert_features
            convert(files, parts_dir, tell).save(whole)
        whole.touch()
        for other in self._folder.glob("parts*"):
            if other != parts_dir:
                _remove(other)
        shutil.rmtree(parts_dir / "divided", ignore_errors=True)
        return DumpReport.load(whole)


def _age(mark: Path) -> int:
    return mark.stat().st_mtime_ns


def _state_of(files: Sequence[Path]) -> str:
    """Return what distinguishes these files from others, and from earlier versions of them."""
    marks = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return hashlib.sha256(repr(marks).encode()).hexdigest()[:16]


def _remove(folder: Path) -> None:
    """Rename parts before removing them, so that a kill cannot leave some of them."""
    gone = folder.with_name("removed")
    shutil.rmtree(gone, ignore_errors=True)
    folder.rename(gone)
    shutil.rmtree(gone)


def _convert_recordings(files: Sequence[Path], parts_dir: Path, tell: Progress) -> DumpReport:
    """Write parts, each named by the number of recordings done after it."""
    (dump,) = files
    last = max(parts_dir.glob("*.parquet"), default=None)
    report = DumpReport() if last is None else DumpReport.load(last.with_suffix(".json"))
    done = report.n_items
    lines = musicbrainz.recordings(dump)
    for n, _ in enumerate(islice(lines, done), start=1):
        if n % TOLD_ITEMS == 0:
            tell("passing over what is converted", n, done)
    fresh = parts_dir / "next"
    while True:
        before = report.n_items
        of_part = _told(islice(lines, PART_ITEMS), report, tell)
        write_parquet(musicbrainz.identities_in(of_part, dump, report), fresh)
        if report.n_items == before:
            fresh.unlink()
            return report
        part = parts_dir / f"{report.n_items:012}.parquet"
        report.save(part.with_suffix(".json"))
        fresh.rename(part)


def _convert_features(files: Sequence[Path], parts_dir: Path, tell: Progress) -> DumpReport:
    """Divide both archives, then write a part for each of the 16 first digits of an MBID."""
    room = parts_dir / "divided"
    room.mkdir(exist_ok=True)
    report = DumpReport()
    for file, feature in zip(files, FEATURES, strict=True):
        divided, note, fresh = room / feature.name, room / f"{feature.name}.json", room / "next"
        if not divided.exists():
            shutil.rmtree(fresh, ignore_errors=True)
            features.divide(file, feature, fresh, report, tell)
            report.save(note)
            fresh.rename(divided)
        report = DumpReport.load(note)
    for n, digit in enumerate(features.DIGITS):
        tell("converting, by sixteenths", n, len(features.DIGITS))
        part = parts_dir / f"{digit}.parquet"
        if not part.exists():
            write_parquet(features.identities_of(room, digit), part)
    return report


def _told(
    lines: Iterable[tuple[bytes, float]], report: DumpReport, tell: Progress
) -> Iterator[bytes]:
    """Yield the lines, and report their number so far and, estimated by length, in total."""
    for line, share in lines:
        yield line
        n = report.n_items
        if n % TOLD_ITEMS == 0:
            tell("converting recordings", n, max(n, round(n / share)))


def name_in(address: str) -> str:
    """Return the name of the file that an address leads to; empty if it names none."""
    return PurePosixPath(urlsplit(address).path).name


def fetch(address: str, folder: Path, tell: Progress) -> Path:
    """Fetch a file, resuming an earlier attempt if it is still the same file.

    Raises:
        httpx.HTTPError: The address does not answer, or answers with an error.
    """
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / name_in(address)
    if whole.exists():
        return whole
    partial, note = Path(f"{whole}.partial"), Path(f"{whole}.etag")
    headers = {"Accept-Encoding": "identity"}
    state = note.read_text() if partial.exists() and note.exists() else ""
    if state:
        headers |= {"Range": f"bytes={partial.stat().st_size}-", "If-Range": state}
    with httpx.stream(
        "GET", address, headers=headers, timeout=TIMEOUT_S, follow_redirects=True
    ) as answer:
        if answer.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            partial.rename(whole)  # nothing is left to fetch
            return whole
        answer.raise_for_status()
        goes_on = answer.status_code == httpx.codes.PARTIAL_CONTENT
        if not goes_on:  # the note must never be that of a file other than the bytes'
            partial.unlink(missing_ok=True)
            note.write_text(answer.headers.get("etag") or answer.headers.get("last-modified", ""))
        done = partial.stat().st_size if goes_on else 0
        length = answer.headers.get("content-length")
        total = None if length is None else done + int(length)
        with partial.open("ab") as file:
            for block in answer.iter_bytes(BLOCK_BYTES):
                file.write(block)
                done += len(block)
                tell(f"fetching {whole.name}", done, total)
    partial.rename(whole)
    return whole
