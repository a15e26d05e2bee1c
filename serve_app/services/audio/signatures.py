"""Recognise bytes that are certainly not audio by how they begin; the decoder judges the rest."""

HEAD_BYTES = 512
"""How much of a file is examined."""

NO_AUDIO = (
    b"\x89PNG\r\n",
    b"\xff\xd8\xff\xe0",
    b"\xff\xd8\xff\xe1",
    b"GIF8",
    b"%PDF-",
    b"PK\x03\x04",
    b"\x1f\x8b",
    b"7z\xbc\xaf",
    b"Rar!",
    b"\x7fELF",
    b"SQLite format 3",
    b"BZh",
    b"\xfd7zXZ",
    b"\x28\xb5\x2f\xfd",
)
"""Beginnings of images, documents, archives and programs, from their formats' registries."""

SOUND = {
    b"RIFF": "audio/wav",
    b"RF64": "audio/wav",
    b"fLaC": "audio/flac",
    b"OggS": "audio/ogg",
    b"ID3": "audio/mpeg",
    b"FORM": "audio/aiff",
    b"#!AMR": "audio/amr",
    b"caff": "audio/x-caf",
    b".snd": "audio/basic",
    b"MAC ": "audio/x-ape",
    b"wvpk": "audio/x-wavpack",
    b"TTA1": "audio/x-tta",
    b"MP+": "audio/x-musepack",
    b"MPCK": "audio/x-musepack",
    b"DSD ": "audio/x-dsf",
    b"FRM8": "audio/x-dff",
    b"\x1aE\xdf\xa3": "audio/x-matroska",
    b"0&\xb2u\x8ef\xcf\x11": "audio/x-ms-wma",
}
"""Beginnings of audio, to its media type; some could pass for text."""

_TEXT = frozenset(range(32, 127)) | frozenset(b"\t\n\r\f")


def is_surely_no_audio(head: bytes) -> bool:
    """Return whether a file that begins with ``head`` is text, an image, an archive or the like.

    Args:
        head: The first `HEAD_BYTES` of the file, or all of a shorter one.
    """
    if head.startswith(tuple(SOUND)) or not head:
        return False
    if head.startswith(NO_AUDIO):
        return True
    return all(byte in _TEXT for byte in head.removeprefix(b"\xef\xbb\xbf"))


def media_type_of(head: bytes) -> str:
    """Return the media type of a file from its head; ``application/octet-stream`` when unknown."""
    for start, media_type in SOUND.items():
        if head.startswith(start):
            return media_type
    if head[4:8] == b"ftyp":
        return "audio/mp4"
    # MPEG audio begins with eleven 1 bits; layer 0 occurs only in ADTS, which carries AAC.
    if len(head) > 1 and head[0] == 0xFF and head[1] & 0xE0 == 0xE0:
        return "audio/mpeg" if head[1] & 0x06 else "audio/aac"
    return "application/octet-stream"
