"""Files that training runs keep: a damaged one is named, and a partly written one is never read."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from pipelines.training import evaluate
from pipelines.training.chords.clips import ChordClip
from pipelines.training.chords.recordings import TaughtRecording
from pipelines.training.clips import Clip
from pipelines.training.embedding.hear import load_evidence
from pipelines.training.key.clips import KeyClip
from pipelines.training.key.recordings import HeardRecording
from pipelines.training.landmarks.tracks import LandmarkTrack
from pipelines.training.plan import PlanError
from tests.conftest import DEMO_TRACK

KINDS = (Clip, KeyClip, ChordClip, HeardRecording, TaughtRecording, LandmarkTrack)


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    path = tmp_path / "kept.npz"
    np.savez(path, bands=np.zeros(99))
    return path


@pytest.mark.parametrize("load", [kind.load for kind in KINDS])
@pytest.mark.parametrize("damage", ["cut", "empty", "other", "lacking"])
def test_a_damaged_file_is_told_by_its_name(
    load: Callable[[Path], object], damage: str, kept: Path
) -> None:
    whole = kept.read_bytes()
    content = {"cut": whole[:-30], "empty": b"", "other": b"hello", "lacking": whole}
    kept.write_bytes(content[damage])
    with pytest.raises(PlanError, match=r"kept\.npz is damaged; remove it, and a run of all"):
        load(kept)
    kept.unlink()
    with pytest.raises(FileNotFoundError):
        load(kept)


def test_evidence_that_is_damaged_is_told_and_half_of_it_passed_over(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(9))
    (tmp_path / "b.part.npy").write_bytes(b"half")
    assert list(load_evidence(tmp_path)) == ["a"]
    (tmp_path / "b.npy").write_bytes(b"half")
    with pytest.raises(PlanError, match=r"b\.npy is damaged"):
        load_evidence(tmp_path)


def test_hearing_that_is_stopped_leaves_nothing_to_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(path: Path, **arrays: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("numpy.savez", stopped)
        with pytest.raises(KeyboardInterrupt):
            evaluate.hear(DEMO_TRACK, tmp_path)
    heard = evaluate.hear(DEMO_TRACK, tmp_path)
    assert np.array_equal(evaluate.hear(DEMO_TRACK, tmp_path).bands, heard.bands)
