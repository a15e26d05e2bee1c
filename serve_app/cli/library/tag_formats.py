"""How ID3, Vorbis comments, APEv2, ASF and MP4 store the values.

The only module that imports mutagen, which is GPL-2.0-or-later and therefore not a dependency of
afa, only of the extra ``tag``.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from serve_app.cli.library.tag_values import Tag
from serve_app.providers.tags.reader import read_tags

_ID3_NAMES = {
    "title": "TIT2",
    "artist": "TPE1",
    "album": "TALB",
    "albumartist": "TPE2",
    "composer": "TCOM",
    "genre": "TCON",
    "track": "TRCK",
    "disc": "TPOS",
}
_OWN_ID3 = {
    Tag.ENERGY: "EnergyLevel",
    Tag.GAIN: "REPLAYGAIN_TRACK_GAIN",
    Tag.PEAK: "REPLAYGAIN_TRACK_PEAK",
}
_VORBIS = {
    Tag.BPM: "BPM",
    Tag.KEY: "INITIALKEY",
    Tag.ENERGY: "ENERGYLEVEL",
    Tag.GAIN: "REPLAYGAIN_TRACK_GAIN",
    Tag.PEAK: "REPLAYGAIN_TRACK_PEAK",
    Tag.COMMENT: "COMMENT",
}
# RFC 7845 does not allow the others in Opus.
_OPUS = {Tag.GAIN: None, Tag.PEAK: None, Tag.R128_GAIN: "R128_TRACK_GAIN"}
_ASF = {
    Tag.BPM: "WM/BeatsPerMinute",
    Tag.KEY: "WM/InitialKey",
    Tag.ENERGY: "EnergyLevel",
    Tag.GAIN: "replaygain_track_gain",
    Tag.PEAK: "replaygain_track_peak",
    Tag.COMMENT: "Description",
}
_OTHERS_NAMES = {"INITIALKEY": "KEY", "WM/InitialKey": "INITIALKEY"}
"""What Picard calls the key, and beets in WMA: files that have such a field keep it up to date."""
_ID3V2, _ID3V23 = (2, 2, 0), (2, 3, 0)
_MP4 = {Tag.COMMENT: "\xa9cmt"}
_ITUNES = "----:com.apple.iTunes:"
_OWN_MP4 = {
    Tag.BPM: "BPM",
    Tag.KEY: "initialkey",
    Tag.ENERGY: "EnergyLevel",
    Tag.GAIN: "replaygain_track_gain",
    Tag.PEAK: "replaygain_track_peak",
}


_OTHER_FORMAT = (
    "tags are written to MP3, FLAC, OGG, Opus, M4A, WAV, AIFF, WMA, WavPack, Musepack, DSF and"
    " DFF alone"
)
_RF64 = "tags are not written to RF64 and BW64, the WAV of more than 4 GB"
_DAMAGED = "its tags cannot be changed: it is damaged, or of another format than its name says"
_ID3V1_BYTES = 128
_MAX_END = 1 << 20


class UnwritableTagsError(Exception):
    """The file's format has no tags that are known here, or they cannot be changed."""


class TaggedFile(Protocol):
    """An open file's tags."""

    def read(self, tag: Tag) -> str | None:
        """Return a value; None when it is absent."""
        ...

    def has(self, tag: Tag) -> bool:
        """Return whether the format stores this value."""
        ...

    def write(self, values: Mapping[Tag, str]) -> None:
        """Set values and save the file.

        Raises:
            UnwritableTagsError: It is damaged, or one of its other tags cannot be rewritten.
            OSError: It cannot be written.
        """
        ...


@contextmanager
def _told() -> Iterator[None]:
    """Report what is wrong with a file that mutagen cannot read or write."""
    import mutagen

    try:
        yield
    except mutagen.MutagenError as error:
        cause = error.__context__
        if isinstance(cause, OSError) and cause.errno is not None:  # without: the file is too short
            raise cause from None
        raise UnwritableTagsError(_DAMAGED) from error


@contextmanager
def _saving(file: Any, path: Path) -> Iterator[None]:
    """Keep the end of a file: mutagen rewrites ID3v1, and drops everything after APEv2."""
    from mutagen.apev2 import APEv2File
    from mutagen.mp3 import MP3

    kept = b""
    if isinstance(file, APEv2File | MP3):
        with path.open("r+b") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - _MAX_END))
            kept = _end_of(opened.read())
            opened.truncate(size - len(kept))
    with _told():
        yield
    if kept:
        with path.open("ab") as opened:
            opened.write(kept)


def _end_of(content: bytes) -> bytes:
    """Return an ID3v1 tag that ends a file, with Lyrics3 before it; empty without one."""
    tag, before = content[-_ID3V1_BYTES:], content[:-_ID3V1_BYTES]
    if len(tag) < _ID3V1_BYTES or not tag.startswith(b"TAG"):
        return b""
    if before.endswith((b"LYRICS200", b"LYRICSEND")):
        begin = before.rfind(b"LYRICSBEGIN")
        return content[begin:] if begin >= 0 else tag
    return tag


def open_tags(path: Path) -> TaggedFile:
    """Open the tags of a file.

    Raises:
        UnwritableTagsError: It has another format, or is damaged.
        OSError: It cannot be read.
    """
    import mutagen
    from mutagen._vorbis import VComment
    from mutagen.aac import AAC
    from mutagen.ac3 import AC3
    from mutagen.apev2 import APEv2
    from mutagen.asf import ASFTags
    from mutagen.id3 import ID3
    from mutagen.monkeysaudio import MonkeysAudio
    from mutagen.mp4 import MP4
    from mutagen.oggopus import OggOpus
    from mutagen.trueaudio import TrueAudio

    with path.open("rb") as opened:  # mutagen reports no system errors
        if opened.read(4) in (b"RF64", b"BW64"):
            raise UnwritableTagsError(_RF64)
    with _told():
        file = mutagen.File(path)
        # mutagen has no tags for the first two. FFmpeg takes the tag of the third for audio, and
        # reads only one of two kinds in the fourth.
        if file is None or isinstance(file, AAC | AC3 | MonkeysAudio | TrueAudio):
            raise UnwritableTagsError(_OTHER_FORMAT)
        if file.tags is None:
            file.add_tags()  # some formats have no tags yet
        elif isinstance(file.tags, ID3):
            _load(file, path)
    if isinstance(file, MP4):
        return _Mp4File(file)
    if isinstance(file.tags, ID3):
        return _Id3File(file, _ape_beside(path), path)
    if isinstance(file.tags, VComment | APEv2):
        names = _VORBIS | (_OPUS if isinstance(file, OggOpus) else {})
        return _NamedFile(file, names, path)
    if isinstance(file.tags, ASFTags):
        return _NamedFile(file, _ASF, path)
    raise UnwritableTagsError(_OTHER_FORMAT)


def _load(file: Any, path: Path) -> None:
    """Read ID3v2 as written; without it, read ID3v1 as other programs do."""
    from mutagen.id3 import COMM, Encoding

    version = file.tags.version
    if version >= _ID3V2:  # translation would lose odd years and old frames
        file.load(path, translate=version < _ID3V23, load_v1=False)
        if version >= _ID3V23:
            _in_their_order(file.tags)
    else:
        texts = [comment.text for comment in file.tags.getall("COMM")]
        plain = [COMM(encoding=Encoding.UTF8, lang="eng", desc="", text=text) for text in texts]
        file.tags.setall("COMM", plain)


def _in_their_order(tags: Any) -> None:
    """Write frames in file order, pictures last; mutagen would sort them by size, chapters too."""
    from mutagen.id3._tags import save_frame

    def write(config: Any) -> bytes:
        frames = sorted(tags.values(), key=lambda frame: bool(frame.FrameID == "APIC"))
        known = b"".join(save_frame(frame, config=config) for frame in frames)
        return known + b"".join(tags.unknown_frames)

    tags._write = write


def _ape_beside(path: Path) -> Any:
    """Return an MP3's intact APEv2 tag, which mp3gain writes next to ID3; None without one."""
    from mutagen.apev2 import APEv2, error

    try:
        return APEv2(path)
    except error:
        return None


def _spellings(tags: Any, key: str) -> list[str]:
    """Return keys that differ only in case: readers accept either."""
    return [one for one in tags if one.lower() == key.lower()]


def _whole(text: str) -> str | None:
    try:
        return str(round(float(text)))
    except (ValueError, OverflowError):
        return None


def _joined(values: Iterable[str]) -> str | None:
    return "; ".join(dict.fromkeys(values)) or None


class _Id3File:
    def __init__(self, file: Any, ape: Any, path: Path) -> None:
        self._file, self._ape, self._path = file, ape, path

    def has(self, tag: Tag) -> bool:
        return tag is not Tag.R128_GAIN

    def read(self, tag: Tag) -> str | None:
        tags = self._file.tags
        keys = _spellings(tags, self._frame(tag, "").HashKey)
        texts = [str(text) for key in keys for text in tags[key].text[:1]]
        return _joined(texts + ([str(self._ape[_VORBIS[tag]])] if self._is_in_ape(tag) else []))

    def write(self, values: Mapping[Tag, str]) -> None:
        for tag, text in values.items():
            frame = self._frame(tag, text)
            for key in _spellings(self._file.tags, frame.HashKey):
                del self._file.tags[key]
            self._file.tags.add(frame)
        version = 3 if self._file.tags.version == _ID3V23 else 4
        if not any(self._file.tags.getall(_ID3_NAMES[name]) for name in ("title", "artist")):
            self._add_names("TYER" if version == 3 else "TDRC")
        repeated = [tag for tag in values if self._is_in_ape(tag)]
        with _saving(self._file, self._path):
            self._file.save(v2_version=version, v23_sep=None)
            for tag in repeated:
                self._ape[_VORBIS[tag]] = values[tag]
            if repeated:
                self._ape.save()

    def _add_names(self, year: str) -> None:
        """Copy the names of RIFF, AIFF or APEv2 tags: with ID3 present, players ignore those."""
        from mutagen.id3 import Encoding, Frames

        said = read_tags(self._path).fields
        for name, frame in (_ID3_NAMES | {"year": year}).items():
            if texts := said.get(name):
                self._file.tags.add(Frames[frame](encoding=Encoding.UTF8, text=list(texts)))

    def _is_in_ape(self, tag: Tag) -> bool:
        return self._ape is not None and _VORBIS.get(tag, "") in self._ape

    @staticmethod
    def _frame(tag: Tag, text: str) -> Any:
        from mutagen.id3 import COMM, TBPM, TKEY, TXXX, Encoding

        match tag:
            case Tag.BPM:
                return TBPM(encoding=Encoding.UTF8, text=text)
            case Tag.KEY:
                return TKEY(encoding=Encoding.UTF8, text=text)
            case Tag.COMMENT:
                return COMM(encoding=Encoding.UTF8, lang="eng", desc="", text=text)
            case _:
                return TXXX(encoding=Encoding.UTF8, desc=_OWN_ID3[tag], text=text)


class _NamedFile:
    def __init__(self, file: Any, names: Mapping[Tag, str | None], path: Path) -> None:
        self._file, self._names, self._path = file, names, path

    def has(self, tag: Tag) -> bool:
        return self._names.get(tag) is not None

    def read(self, tag: Tag) -> str | None:
        texts = [next(map(str, self._file.tags.get(name, [])), "none") for name in self._of(tag)]
        return None if texts == ["none"] else _joined(texts)

    def write(self, values: Mapping[Tag, str]) -> None:
        for tag, text in values.items():
            for name in self._of(tag):
                self._file.tags[name] = [text]
        with _saving(self._file, self._path):
            self._file.save()

    def _of(self, tag: Tag) -> list[str]:
        """Return the names under which the file stores a value."""
        name = str(self._names[tag])
        other = _OTHERS_NAMES.get(name)
        return [name] if other is None or other not in self._file.tags else [name, other]


class _Mp4File:
    def __init__(self, file: Any) -> None:
        self._file = file

    def has(self, tag: Tag) -> bool:
        return tag is Tag.COMMENT or tag in _OWN_MP4

    def read(self, tag: Tag) -> str | None:
        tags = self._file.tags
        if tag in _MP4:
            return next(map(str, tags.get(_MP4[tag], [])), None)
        keys = _spellings(tags, _ITUNES + _OWN_MP4[tag])
        texts = [bytes(one).decode("utf-8", "replace") for key in keys for one in tags[key][:1]]
        if tag is Tag.BPM:  # many programs read and change only the whole number
            whole = {_whole(text) for text in texts}
            texts += [text for text in map(str, tags.get("tmpo", [])) if text not in whole]
        return _joined(texts)

    def write(self, values: Mapping[Tag, str]) -> None:
        from mutagen.mp4 import AtomDataType, MP4FreeForm

        for tag, text in values.items():
            if tag in _MP4:
                self._file.tags[_MP4[tag]] = [text]
            else:
                own = _ITUNES + _OWN_MP4[tag]
                for key in _spellings(self._file.tags, own):
                    del self._file.tags[key]
                self._file.tags[own] = [MP4FreeForm(text.encode(), AtomDataType.UTF8)]
            if tag is Tag.BPM:
                self._file.tags["tmpo"] = [round(float(text))]  # whole numbers only
        with _told():
            self._file.save()
