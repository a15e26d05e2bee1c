"""Processes that were forked behind an analysis, as `multiprocessing` forks them."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from tests.conftest import DEMO_TRACK, REPOSITORY

FORKED = f"""
import multiprocessing, torch
torch.set_num_threads(2)
import afa
afa.analyze({str(DEMO_TRACK)!r})
with multiprocessing.get_context("fork").Pool(1) as pool:
    print(pool.map(afa.analyze, [{str(DEMO_TRACK)!r}]))
"""


def test_a_process_that_was_forked_behind_an_analysis_analyses_too(
    model_dir: Path, checkpoint: Callable[[str], dict[str, Tensor]]
) -> None:
    for name in ("vibenet", "musicnn-mtt", "musicnn-msd-768"):
        checkpoint(name)
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        cwd=REPOSITORY,
        env=os.environ | {"OMP_NUM_THREADS": "2", "AFA_MODEL_DIR": str(model_dir)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert "124.0 BPM, A minor" in done.stdout, done.stderr
