"""A collection in the XML that rekordbox imports.

References:
    "rekordbox xml format", version 1.0.0, by its maker (xml_format_list.pdf).
"""

import re
from collections.abc import Iterable
from urllib.parse import quote
from xml.etree.ElementTree import Element, ElementTree, SubElement

from serve_app.services.export.beat_grid import beat_grid
from serve_app.services.export.key_names import KeyFormat, key_name
from serve_app.services.export.tracks import ExportTrack
from serve_app.services.export.xml_text import document

PREFIX = "file://localhost"
PLAYLIST = "afa"
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_KINDS = {
    ".mp3": "MP3 File",
    ".m4a": "M4A File",
    ".flac": "FLAC File",
    ".wav": "WAV File",
    ".aif": "AIFF File",
    ".aiff": "AIFF File",
    ".aac": "AAC File",
}


def collection(
    tracks: Iterable[ExportTrack], version: str, keys: KeyFormat
) -> "ElementTree[Element]":
    """Return an XML document of tracks, and a playlist of them.

    Args:
        tracks: The tracks, in the order of the playlist.
        version: This program's version.
        keys: How keys are written.
    """
    root = Element("DJ_PLAYLISTS", Version="1.0.0")
    SubElement(root, "PRODUCT", Name="afa", Version=version, Company="afa")
    entries = SubElement(root, "COLLECTION")
    for number, track in enumerate(tracks, 1):
        entry = SubElement(entries, "TRACK", _fields(track, number, keys))
        metro = f"{track.features.time_signature}/4"
        for mark in beat_grid(track.features):
            SubElement(
                entry,
                "TEMPO",
                Inizio=f"{mark.start_s:.3f}",
                Bpm=f"{mark.bpm:.2f}",
                Metro=metro,
                Battito=str(mark.beat),
            )
    n_tracks = len(entries)
    entries.set("Entries", str(n_tracks))
    top = SubElement(SubElement(root, "PLAYLISTS"), "NODE", Type="0", Name="ROOT", Count="1")
    playlist = SubElement(top, "NODE", Name=PLAYLIST, Type="1", KeyType="0", Entries=str(n_tracks))
    for number in range(1, n_tracks + 1):
        SubElement(playlist, "TRACK", Key=str(number))
    return document(root)


def address_of(path: str) -> str:
    """Return the address of a file from its path, which may be a Windows path."""
    if _DRIVE.match(path):
        return f"{PREFIX}/{quote(path.replace(chr(92), '/'), safe='/:')}"
    return PREFIX + quote(path)


def _fields(track: ExportTrack, number: int, keys: KeyFormat) -> dict[str, str]:
    who, heard = track.identity, track.features
    fields = {
        "TrackID": str(number),
        "Name": who.title,
        "Artist": who.artist,
        "Album": who.album or "",
        "Genre": ", ".join(who.genres),
        "Kind": _KINDS.get(track.path.suffix.lower(), "Unknown Format"),
        "Size": str(track.file.size_bytes or 0),
        "TotalTime": str(round(heard.duration_s)),
        "Year": str(who.year or 0),
        "AverageBpm": f"{heard.tempo:.2f}",
        "Comments": f"Energy {round(100 * heard.energy)}",
        "Location": address_of(track.file.location),
        "Tonality": key_name(heard.key, heard.mode, keys),
        "Label": who.label or "",
    }
    if track.track.added_at is not None:
        fields["DateAdded"] = f"{track.track.added_at:%Y-%m-%d}"
    return fields
