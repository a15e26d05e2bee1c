"""Published dumps as catalog files: fetched, and converted in parts, so that both can go on.

Invariant: what a step has finished stays. A fetch goes on where it ended, a conversion after the
last whole part; parts of two states of a dump are never mixed.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import islice
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

import httpx

from serve_app.providers.catalog.build import write_parquet
from serve_app.providers.dumps import acousticbrainz, musicbrainz
from serve_app.providers.dumps.files import DumpReport

PART_ITEMS = 200_000
"""Recordings of one part: what is converted again after a kill, some seconds' work."""

TOLD_ITEMS = 1000
"""Recordings from one word of the progress to the next."""

TIMEOUT_S = 60.0
BLOCK_BYTES = 1 << 20

Tell = Callable[[str, int, int | None], None]
"""Is called with the step, how much of it is done, and how much there is, where that is known."""


class Dump(StrEnum):
    """Dumps that can be pulled; what the first says of a recording wins."""

    MUSICBRAINZ = "musicbrainz"
    ACOUSTICBRAINZ = "acousticbrainz"


class Pulling:
    """One dump in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._fetched_dir = folder / "fetched"
        self.parts_dir = folder / "parts"

    def parts(self) -> list[Path]:
        """The catalog files, in order."""
        return sorted(self.parts_dir.glob("*.parquet"))

    def run(self, dump: Dump, sources: Sequence[str], tell: Tell) -> DumpReport | None:
        """Fetch and convert.

        Args:
            dump: Whose.
            sources: Files or addresses.
            tell: Hears of the progress.

        Returns:
            What this run converted; None where all was done before.

        Raises:
            ValueError: The sources are not those of the dump.
            DumpFormatError: A file is not the dump.
            httpx.HTTPError: An address does not answer; what was fetched stays.
        """
        wanted = 1 if dump is Dump.MUSICBRAINZ else 2
        if len(sources) != wanted:
            raise ValueError(f"{dump} needs {wanted} x --from, not {len(sources)}")
        files = [self._at_hand(source, tell) for source in sources]
        self._start_over_unless(files)
        if (self.parts_dir / "whole").exists():
            return None
        if dump is Dump.MUSICBRAINZ:
            report = self._convert_recordings(files[0], tell)
        else:
            rhythm, tonal = sorted(files, key=lambda file: "tonal" in file.name)
            tell("converting", 0, None)
            part = self.parts_dir / "features.parquet"
            report = acousticbrainz.import_features(rhythm, tonal, part)
        (self.parts_dir / "whole").touch()
        return report

    def tidy(self) -> None:
        """Remove what was fetched, once it is in the catalog."""
        shutil.rmtree(self._fetched_dir, ignore_errors=True)

    def _at_hand(self, source: str, tell: Tell) -> Path:
        if not source.startswith(("http://", "https://")):
            path = Path(source)
            if not path.is_file():
                raise ValueError(f"{source}: no such file")
            return path
        return fetch(source, self._fetched_dir, tell)

    def _start_over_unless(self, files: Sequence[Path]) -> None:
        """Forget the parts of other files, or of the same ones as they were before."""
        marks = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
        note, text = self.parts_dir / "made of", f"{marks}"
        if note.exists() and note.read_text() == text:
            return
        shutil.rmtree(self.parts_dir, ignore_errors=True)
        self.parts_dir.mkdir(parents=True)
        note.write_text(text)

    def _convert_recordings(self, dump: Path, tell: Tell) -> DumpReport:
        """Write parts that are named by how many recordings are done with them."""
        done = max((int(part.stem) for part in self.parts()), default=0)
        report = DumpReport()
        lines = musicbrainz.recordings(dump)
        for n, _ in enumerate(islice(lines, done), start=1):
            if n % TOLD_ITEMS == 0:
                tell("passing over what is converted", n, done)
        fresh = self.parts_dir / "next"
        while True:
            before = report.n_items
            of_part = _told(islice(lines, PART_ITEMS), done, report, tell)
            write_parquet(musicbrainz.identities_in(of_part, dump, report), fresh)
            if report.n_items == before:
                fresh.unlink()
                return report
            fresh.rename(self.parts_dir / f"{done + report.n_items:012}.parquet")


def _told(
    lines: Iterable[tuple[bytes, float]], done: int, report: DumpReport, tell: Tell
) -> Iterator[bytes]:
    """Give the lines, and tell how many there were and, by their length, how many there will be."""
    for line, share in lines:
        yield line
        n = done + report.n_items
        if n % TOLD_ITEMS == 0:
            tell("converting recordings", n, max(n, round(n / share)))


def fetch(address: str, folder: Path, tell: Tell) -> Path:
    """Fetch a file, from where an earlier attempt ended if it is still the same file.

    Raises:
        httpx.HTTPError: The address does not answer, or not well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / PurePosixPath(urlsplit(address).path).name
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
        note.write_text(answer.headers.get("etag") or answer.headers.get("last-modified", ""))
        done = partial.stat().st_size if goes_on else 0
        length = answer.headers.get("content-length")
        total = None if length is None else done + int(length)
        with partial.open("ab" if goes_on else "wb") as file:
            for block in answer.iter_bytes(BLOCK_BYTES):
                file.write(block)
                done += len(block)
                tell(f"fetching {whole.name}", done, total)
    partial.rename(whole)
    return whole
