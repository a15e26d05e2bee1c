"""The benchmark of attributes: its pieces, its summary, and a machine that cannot download."""

import struct
import subprocess

import pytest

from benchmarks.attributes import attributes
from benchmarks.attributes.piano_pieces import PIECES, as_midi
from benchmarks.report import Options
from models.vibenet import ATTRIBUTES


@pytest.mark.parametrize("name", PIECES)
def test_pieces_are_midi_files_with_every_note_begun_and_ended(name: str) -> None:
    piece = PIECES[name]
    data = as_midi(piece)
    assert data[:14] == b"MThd" + struct.pack(">IHHH", 6, 0, 1, 480)
    assert struct.unpack(">I", data[18:22])[0] == len(data) - 22
    assert data.count(0x90) >= len(piece.notes)
    assert data.endswith(b"\xff\x2f\0")
    assert all(21 <= pitch <= 108 and length > 0 for _, length, pitch, _ in piece.notes)
    assert 25 < max(at for at, *_ in piece.notes) * 60 / piece.tempo < 120


def test_bounds_are_held_against_the_mean_of_a_kind() -> None:
    metal = dict.fromkeys(ATTRIBUTES, 0.5)
    loud, soft = metal | {"energy": 0.9, "acousticness": 0.1}, metal | {"energy": 0.7}
    result = attributes.summarise({"metal": {"loud": loud, "soft": soft}})
    met = {target.name: (target.value, target.is_met) for target in result.targets}
    assert met == {
        "metal: energy": (pytest.approx(0.8), True),
        "metal: acousticness": (pytest.approx(0.3), True),
    }
    assert result.values["sounds"]["metal"]["soft"]["energy"] == 0.7


def test_a_machine_that_cannot_fetch_skips(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise subprocess.CalledProcessError(100, "apt-get")

    monkeypatch.setattr(attributes, "fetch", fail)
    assert "cannot be fetched" in attributes.run(Options()).skipped
