"""Changes the tags of a file: completely or not at all, and never its audio.

Invariant: the file is replaced in one step by a copy whose audio packets are the same, bit for bit,
or it stays as it was.
"""

import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import mkstemp

from pipelines.audio.decode import DecodeLimits, digest_packets
from serve_app.cli.library.tag_formats import open_tags
from serve_app.cli.library.tag_values import Tag
from serve_app.library.dataset import sync
from serve_app.local.locks import take_lock
from serve_app.services.scan.facts import Stamp

STAGED = ".afa-tag-"
LIMITS = DecodeLimits(max_seconds=4 * 3600.0)
Changes = dict[Tag, tuple[str | None, str]]
"""Present and wanted values; tags that already have the wanted value are left out."""


class TaggingError(Exception):
    """The file is left as it was; the message says why."""


def changes_of(path: Path, values: Mapping[Tag, str]) -> Changes:
    """Compare a file's tags with the wanted values.

    Raises:
        UnwritableTagsError: Its format has no tags that are known here.
    """
    file = open_tags(path)
    found = {tag: (file.read(tag), text) for tag, text in values.items() if file.has(tag)}
    return {tag: (before, after) for tag, (before, after) in found.items() if before != after}


def write_tags(
    path: Path, values: Mapping[Tag, str], audio_sha256: str | None, *, keep_time: bool
) -> None:
    """Write tags into a file.

    Args:
        path: The file; if it is a link, the file that it leads to is replaced.
        values: What to write; other tags stay.
        audio_sha256: Digest of the audio that the values belong to; None if unknown.
        keep_time: Whether the modification time stays too.

    Raises:
        TaggingError: It is read-only, has other audio, or its audio would not stay the same.
        UnwritableTagsError: Its tags cannot be changed.
        AudioError: It is not audio.
        OSError: It cannot be read or written.
    """
    path = path.resolve(strict=True)
    stamp, before = Stamp.of(path), path.stat()
    if not before.st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
        raise TaggingError("it is read-only; nothing was written")
    digest = digest_packets(path, LIMITS)
    if audio_sha256 is not None and digest != audio_sha256:
        raise TaggingError("it holds other audio than when it was scanned; scan it again")
    with _new_beside(path) as staged:
        shutil.copyfile(path, staged)
        open_tags(staged).write(values)
        if digest_packets(staged, LIMITS) != digest:
            raise TaggingError("its audio would have changed; nothing was written")
        _copy_stat(path, staged, keep_time=keep_time)
        _keep_owner(staged, before)
        if not keep_time:
            os.utime(staged)
        sync(staged)
        if Stamp.of(path) != stamp:
            raise TaggingError("it changed meanwhile; nothing was written")
        staged.replace(path)
        sync(path.parent)


@contextmanager
def _new_beside(path: Path) -> Iterator[Path]:
    """Yield a new empty file next to another, with a short unique name and the same extension.

    mutagen recognises formats by extension. Files left by killed runs are removed; a live run has a
    lock on its file.
    """
    for left in path.parent.glob(f"{STAGED}*"):
        with suppress(OSError), left.open("rb") as file:
            if take_lock(file.fileno()):
                left.unlink()
    descriptor, name = mkstemp(prefix=STAGED, suffix=path.suffix, dir=path.parent)
    staged = Path(name)
    try:
        take_lock(descriptor)
        yield staged
    finally:
        staged.unlink(missing_ok=True)
        os.close(descriptor)


def _copy_stat(path: Path, staged: Path, *, keep_time: bool) -> None:
    """Copy mode, times, access lists and the attributes of file managers.

    A mounted disk may give all files one mode and one owner, and refuse this to anybody else.
    """
    try:
        shutil.copystat(path, staged)
    except PermissionError:
        if keep_time or staged.stat().st_mode != path.stat().st_mode:
            raise


def _keep_owner(staged: Path, before: os.stat_result) -> None:
    now = staged.stat()
    if (now.st_uid, now.st_gid) != (before.st_uid, before.st_gid):
        os.chown(staged, before.st_uid, before.st_gid)
