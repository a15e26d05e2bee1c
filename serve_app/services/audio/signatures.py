"""Tell bytes that surely hold no audio by how they begin; the decoder judges the rest."""

HEAD_BYTES = 512
"""As much of a file as is looked at."""

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
"""Images, documents, archives and programs, by the registries of their formats."""

SOUND = (b"RIFF", b"RF64", b"fLaC", b"OggS", b"ID3", b"FORM", b"#!AMR", b"caff", b".snd", b"MAC ")
"""Audio whose beginning could pass for text."""

_TEXT = frozenset(range(32, 127)) | frozenset(b"\t\n\r\f")


def is_surely_no_audio(head: bytes) -> bool:
    """Tell whether a file that begins so is text, an image, an archive or the like.

    Args:
        head: The first `HEAD_BYTES` of the file, or all of a shorter one.
    """
    if head.startswith(SOUND) or not head:
        return False
    if head.startswith(NO_AUDIO):
        return True
    return all(byte in _TEXT for byte in head.removeprefix(b"\xef\xbb\xbf"))
