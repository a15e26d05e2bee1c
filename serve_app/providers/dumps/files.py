"""Reading published dumps: tar archives of any compression, streamed member by member."""

import io
import lzma
import tarfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pyarrow as pa
from pydantic import TypeAdapter

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BUFFER_BYTES = 1 << 20


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

    def save(self, file: Path) -> None:
        """Write the report; the file appears only when complete."""
        fresh = file.with_name(f"{file.name}.partial")
        fresh.write_bytes(_REPORTS.dump_json(self))
        fresh.replace(file)

    @classmethod
    def load(cls, file: Path) -> "DumpReport":
        """Read what `save` wrote."""
        return _REPORTS.validate_json(file.read_bytes())


_REPORTS = TypeAdapter(DumpReport)


def open_members(dump: Path) -> Iterator[tuple[str, int, IO[bytes]]]:
    """Yield name, size in bytes and stream of each regular file of a tar archive, in order.

    Nothing is unpacked to disk.

    A member's stream is valid until the next one is requested; its ``tell`` returns the bytes read.
    The checksum of gzip is not checked.

    Raises:
        DumpFormatError: It is not a tar archive, or is damaged or cut off; raised by reads, too.
    """
    with ExitStack() as stack, _damage_told(dump):
        if dump.suffix in (".zst", ".zstd"):
            raw = stack.enter_context(pa.OSFile(str(dump)))
            plain = stack.enter_context(pa.CompressedInputStream(raw, "zstd"))
            archive = stack.enter_context(tarfile.open(fileobj=plain, mode="r|"))
        else:
            archive = stack.enter_context(tarfile.open(dump, mode="r|*"))
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                stream = io.BufferedReader(_Member(file, dump), BUFFER_BYTES)
                yield member.name.removeprefix("./"), member.size, stream


class _Member(io.RawIOBase):
    """A file of an archive that reports damage as an error of the archive."""

    def __init__(self, file: IO[bytes], dump: Path) -> None:
        self._file, self._dump = file, dump
        self._n_read = 0

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._n_read

    def readinto(self, buffer: "WriteableBuffer") -> int:
        with _damage_told(self._dump):
            n_bytes: int = self._file.readinto(buffer)  # type: ignore[attr-defined]
        self._n_read += n_bytes
        return n_bytes


@contextmanager
def _damage_told(dump: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, OSError, zlib.error, lzma.LZMAError, pa.ArrowInvalid) as e:
        if isinstance(e, OSError) and e.errno is not None:
            raise  # the disk is at fault, not the file
        raise DumpFormatError(
            f"{dump}: not a tar archive, or cut off or damaged ({e}); fetch it again"
        ) from e
