"""`afa backfill` on a real Ray whose node says that it has a card."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.conftest import REPOSITORY

DEMO = REPOSITORY / "serve_app" / "data" / "demo.mp3"
COMMAND = [sys.executable, "-c", "from serve_app.cli import run; run()", "backfill"]


@pytest.mark.ray
def test_an_actor_with_a_card_hears_files(tmp_path: Path) -> None:
    """Ray Data asks of actors with a card what it asks of no others; the CPU stands in for it."""
    music = tmp_path / "music"
    music.mkdir()
    for n in range(3):
        (music / f"{n}.mp3").write_bytes(DEMO.read_bytes() + bytes(n))
    told = subprocess.run(
        [*COMMAND, str(music), "--out", str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ
        | {
            "AFA_DATA_DIR": str(tmp_path / "data"),
            "AFA_DEVICE": "cpu",
            "RAY_OVERRIDE_RESOURCES": '{"GPU": 1}',
        },
    )
    assert told.returncode == 0, told.stderr
    assert "3 heard" in told.stdout
    assert ds.dataset(tmp_path / "out" / "tracks").to_table().num_rows == 3
