"""The hash of the audio packets: tags, covers and names do not change it, but other audio does."""

import shutil
from pathlib import Path

import mutagen
import pytest
from mutagen.id3 import APIC, ID3, TIT2

from pipelines.audio.decode import DecodeLimits, digest_packets
from pipelines.audio.waveform import UndecodableAudioError
from tests.data.audio_files import Encoding, click_track, encode

LIMITS = DecodeLimits()
ENCODINGS = [
    Encoding("MP3", "mp3", "libmp3lame"),
    Encoding("FLAC", "flac", "flac", "s16"),
    Encoding("OGG", "ogg", "vorbis"),
    Encoding("Opus", "ogg", "libopus", "flt", 48_000),
    Encoding("M4A", "ipod", "aac"),
]


def retag(path: Path) -> None:
    file = mutagen.File(path)
    if file.tags is None:
        file.add_tags()
    if isinstance(file.tags, ID3):
        file.tags.add(TIT2(encoding=3, text="Another title"))
        file.tags.add(APIC(encoding=3, mime="image/png", type=3, data=b"\x89PNG" + bytes(200_000)))
        file.save(v1=2)
    else:
        file["\xa9nam" if "mp4" in type(file).__module__ else "title"] = "Another title " * 5000
        file.save()


@pytest.mark.parametrize("encoding", ENCODINGS, ids=lambda encoding: encoding.name)
def test_tags_and_covers_do_not_change_it(encoding: Encoding, tmp_path: Path) -> None:
    path = encoding.write(tmp_path / "a", 5)
    before, digest = path.read_bytes(), digest_packets(path, LIMITS)
    retag(path)
    assert path.read_bytes() != before
    assert digest_packets(path, LIMITS) == digest
    moved = shutil.copy(path, tmp_path / "b.bin")
    assert digest_packets(moved, LIMITS) == digest


def test_other_audio_changes_it(tmp_path: Path) -> None:
    digests = {
        digest_packets(encode(tmp_path / "a.ogg", click_track(bpm, 5), "ogg", "vorbis"), LIMITS)
        for bpm in (120, 121)
    }
    assert len(digests) == 2


def test_what_is_no_audio_has_none(tmp_path: Path) -> None:
    path = tmp_path / "a.mp3"
    path.write_bytes(b"nothing to hear")
    with pytest.raises(UndecodableAudioError):
        digest_packets(path, LIMITS)
