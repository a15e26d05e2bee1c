"""Processes that are forked after an analysis, as `multiprocessing` forks them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from tests.conftest import REPOSITORY
from tests.data.audio_files import click_track, write_wav

FORKED = """
import multiprocessing, sys, torch
torch.set_num_threads(2)
import afa
afa.analyze(sys.argv[1])
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map(afa.analyze, sys.argv[1:]))
"""


def test_a_process_that_was_forked_behind_an_analysis_analyses_too(
    model_dir: Path, checkpoint: Callable[[str], dict[str, Tensor]], tmp_path: Path
) -> None:
    for name in ("vibenet", "musicnn-mtt", "musicnn-msd-768"):
        checkpoint(name)
    done = subprocess.run(
        [sys.executable, "-c", FORKED, write_wav(tmp_path / "clicks.wav", click_track(124, 8))],
        cwd=REPOSITORY,
        env=os.environ | {"OMP_NUM_THREADS": "2", "AFA_MODEL_DIR": str(model_dir)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert "124.0 BPM, A minor" in done.stdout, done.stderr
