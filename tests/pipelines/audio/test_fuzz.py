"""Hostile files in the real decoder: it refuses or returns sane audio, within its limits."""

import time
from pathlib import Path

import numpy as np
import pytest

from pipelines.audio.decode import GRACE_S, DecodeLimits, Decoder
from pipelines.audio.shared_rows import LOUDEST
from pipelines.audio.waveform import AudioError
from tests.pipelines.audio.hostile_files import hostile_files

LIMITS = DecodeLimits(max_seconds=60.0, cpu_s=10, wall_s=20.0)


def survive(folder: Path, count: int, seed: int) -> tuple[dict[str, int], float]:
    """Decode every file; return how often each ending occurred and the seconds of the slowest."""
    decoder, ends = Decoder(), dict[str, int]()
    path, slowest_s = folder / "hostile", 0.0
    for file in hostile_files(folder, count, seed):
        path.write_bytes(file.content)
        begun = time.monotonic()
        try:
            samples = decoder.decode(path, LIMITS).samples
        except AudioError as error:
            end = type(error).__name__
        else:
            end = "decoded"
            assert samples.shape[0] in {1, 2}, file.name
            assert samples.shape[1] <= LIMITS.max_seconds * 44_100, file.name
            assert np.abs(samples).max() <= LOUDEST, file.name
        try:
            decoder.check_head(path, LIMITS)
        except AudioError:
            ends["head refused"] = ends.get("head refused", 0) + 1
        slowest_s = max(slowest_s, time.monotonic() - begun)
        assert time.monotonic() - begun < 2 * (LIMITS.wall_s + GRACE_S), file.name
        ends[end] = ends.get(end, 0) + 1
    children = Path(f"/proc/{decoder.process_id}/task/{decoder.process_id}/children")
    while children.read_text() and time.monotonic() < begun + LIMITS.wall_s + GRACE_S:
        time.sleep(0.02)
    assert children.read_text() == ""
    decoder.close()
    return ends, slowest_s


def test_a_few_hostile_files_of_every_format(tmp_path: Path) -> None:
    ends, _ = survive(tmp_path, 93, seed=1)
    assert ends["decoded"] > 10
    assert ends["UndecodableAudioError"] > 10


@pytest.mark.slow
def test_seven_hundred_hostile_files(tmp_path: Path) -> None:
    ends, slowest_s = survive(tmp_path, 700, seed=2)
    assert sum(n for end, n in ends.items() if end != "head refused") == 700
    assert slowest_s < LIMITS.wall_s
