"""A collection in Traktor's NML, with a grid marker for each change of tempo, and a playlist.

Mixxx reads it too, but reports an error if there are no playlists.
"""

from collections.abc import Iterable
from pathlib import PurePath
from xml.etree.ElementTree import Element, ElementTree, SubElement

from serve_app.services.export.beat_grid import beat_grid
from serve_app.services.export.key_names import KeyFormat, key_name
from serve_app.services.export.tracks import ExportTrack
from serve_app.services.export.xml_text import document

VERSION = "19"
"""Version of the format, as Traktor 3 writes it; Traktor 4 reads it."""
GRID_MARKER = "4"
PLAYLIST, PLAYLIST_ID = "afa", "afa" + 29 * "0"


def collection(tracks: Iterable[ExportTrack], keys: KeyFormat) -> "ElementTree[Element]":
    """Return a document of tracks and a playlist of them; keys are Traktor's numbers and text."""
    root = Element("NML", VERSION=VERSION)
    SubElement(root, "HEAD", COMPANY="www.native-instruments.com", PROGRAM="Traktor")
    SubElement(root, "MUSICFOLDERS")
    entries = SubElement(root, "COLLECTION")
    for track in tracks:
        _add(entries, track, keys)
    n_tracks = str(len(entries))
    entries.set("ENTRIES", n_tracks)
    top = SubElement(SubElement(root, "PLAYLISTS"), "NODE", TYPE="FOLDER", NAME="$ROOT")
    nodes = SubElement(top, "SUBNODES", COUNT="1")
    node = SubElement(nodes, "NODE", TYPE="PLAYLIST", NAME=PLAYLIST)
    playlist = SubElement(node, "PLAYLIST", ENTRIES=n_tracks, TYPE="LIST", UUID=PLAYLIST_ID)
    for place in entries.iterfind("ENTRY/LOCATION"):
        key = place.attrib["DIR"] + place.attrib["FILE"]
        SubElement(SubElement(playlist, "ENTRY"), "PRIMARYKEY", TYPE="TRACK", KEY=key)
    return document(root)


def _add(entries: Element, track: ExportTrack, keys: KeyFormat) -> None:
    who, heard = track.identity, track.features
    entry = SubElement(entries, "ENTRY", TITLE=who.title, ARTIST=who.artist)
    SubElement(entry, "LOCATION", DIR=_folder(track.path), FILE=track.path.name, VOLUME="")
    if who.album:
        SubElement(entry, "ALBUM", TITLE=who.album)
    info = {
        "GENRE": ", ".join(who.genres),
        "LABEL": who.label or "",
        "KEY": key_name(heard.key, heard.mode, keys),
        "COMMENT": f"Energy {round(100 * heard.energy)}",
        "PLAYTIME": str(round(heard.duration_s)),
        "PLAYTIME_FLOAT": f"{heard.duration_s:.6f}",
        "RELEASE_DATE": f"{who.year}/1/1" if who.year else "",
    }
    SubElement(entry, "INFO", {name: value for name, value in info.items() if value})
    if heard.tempo:
        quality = f"{100 * heard.tempo_confidence:.6f}"
        SubElement(entry, "TEMPO", BPM=f"{heard.tempo:.6f}", BPM_QUALITY=quality)
    if 0 <= heard.key <= 11 and heard.mode in (0, 1):
        # Traktor counts twelve major keys from C, then twelve minor ones.
        SubElement(entry, "MUSICAL_KEY", VALUE=str(heard.key + 12 * (1 - heard.mode)))
    for order, mark in enumerate(beat_grid(heard)):
        cue = SubElement(
            entry,
            "CUE_V2",
            NAME="AutoGrid",
            DISPL_ORDER=str(order),
            TYPE=GRID_MARKER,
            START=f"{1000 * mark.start_s:.6f}",
            LEN="0.000000",
            REPEATS="-1",
            HOTCUE="-1",
        )
        SubElement(cue, "GRID", BPM=f"{mark.bpm:.6f}")


def _folder(path: PurePath) -> str:
    """Return a folder as Traktor writes it: every part after ``/:``."""
    return "".join(f"/:{part}" for part in path.parent.parts[1:]) + "/:"
