"""Reading published dumps: tar archives of any compression, streamed member by member."""

import tarfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyarrow as pa


class DumpFormatError(ValueError):
    """The file is not the dump it should be."""


@dataclass(slots=True)
class DumpReport:
    """What a conversion did.

    Attributes:
        n_items: Recordings, or submissions, in the dump.
        n_used: How many of them were well-formed.
        reasons: How many were left out for each reason.
    """

    n_items: int = 0
    n_used: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def reject(self, dump: Path, reason: str) -> None:
        """Count an item that was left out."""
        self.reasons[f"{dump.name}: {reason}"] += 1


def open_members(dump: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield name, size in bytes and stream of each plain file of a tar archive, in order.

    Nothing is unpacked to disk.

    A member's stream is valid until the next one is asked for.

    Raises:
        DumpFormatError: Not a tar archive, or cut off.
    """
    with ExitStack() as stack:
        try:
            if dump.suffix in (".zst", ".zstd"):
                raw = stack.enter_context(pa.OSFile(str(dump)))
                plain = stack.enter_context(pa.CompressedInputStream(raw, "zstd"))
                archive = stack.enter_context(tarfile.open(fileobj=plain, mode="r|"))
            else:
                archive = stack.enter_context(tarfile.open(dump, mode="r|*"))
            for member in archive:
                file = archive.extractfile(member)
                if file is not None:
                    yield member.name.removeprefix("./"), member.size, file
        except (tarfile.TarError, EOFError, pa.ArrowInvalid, OSError) as error:
            raise DumpFormatError(f"{dump}: {error}") from error
