"""`afa backfill` on a real Ray whose node claims to have a card."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pyarrow.dataset as ds
import pytest
import ray
from ray.util.placement_group import placement_group

from serve_app.backfill.run import Actors, has_room
from tests.conftest import DEMO_TRACK
from tests.data.audio_files import click_track, write_wav
from tests.system.conftest import running_ray

pytestmark = pytest.mark.ray
# When the tests run in the background, SIGINT may be ignored; child processes inherit that.
HEARD = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
COMMAND = [sys.executable, "-c", f"{HEARD}; from serve_app.cli import run; run()", "backfill"]

ONE_CARD = {"RAY_OVERRIDE_RESOURCES": '{"GPU": 1}'}


def environment(folder: Path) -> dict[str, str]:
    return os.environ | {"AFA_DATA_DIR": str(folder / "data"), "AFA_DEVICE": "cpu"}


@pytest.fixture(scope="module")
def three_cards() -> Iterator[str]:
    """Connect this process to a Ray with three cards and two CPUs; yield its address."""
    with running_ray(num_gpus=3) as address:
        yield address


@pytest.mark.slow
def test_an_actor_with_a_card_hears_files_and_none_is_waited_for_when_all_are_heard(
    tmp_path: Path, three_cards: str
) -> None:
    """Ray Data makes extra demands on actors with a card; here the CPU stands in for it."""
    music, out = tmp_path / "music", tmp_path / "out"
    music.mkdir()
    for n in range(3):
        write_wav(music / f"{n}.wav", click_track(100 + n, 8))
    (music / "none.mp3").write_bytes(b"nothing to hear")
    first, again = (
        subprocess.run(
            [*COMMAND, str(music), "--out", str(out), *options],
            capture_output=True,
            text=True,
            check=False,
            env=environment(tmp_path) | ONE_CARD,
        )
        for options in (("--cpus", "1"), ("--cpus", "999", "--address", three_cards))
    )
    assert first.returncode == 0, first.stderr
    assert "3 heard" in first.stdout
    assert ds.dataset(out / "tracks").to_table().num_rows == 3
    assert again.returncode == 0, again.stderr
    assert "4 there before" in again.stdout
    assert "waiting" not in first.stderr + again.stderr


def test_a_run_for_which_there_is_no_room_says_that_it_waits(
    tmp_path: Path, three_cards: str
) -> None:
    """As on a cluster where a service has taken all cards."""
    words = [str(DEMO_TRACK.parent), "--out", str(tmp_path / "out"), "--cpus", "999"]
    with subprocess.Popen(
        [*COMMAND, *words, "--address", three_cards],
        stderr=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    ) as run:
        assert run.stderr is not None
        too_late = Timer(600, run.send_signal, [signal.SIGINT])
        too_late.start()
        wanted = "waiting: an actor takes 999 CPU and 1 GPU (--cpus)"
        has_told = any(line.startswith(wanted) for line in run.stderr)
        too_late.cancel()
        if has_told:
            run.send_signal(signal.SIGINT)
            run.stderr.read()
    assert (has_told, run.returncode) == (True, 130)


@pytest.mark.usefixtures("three_cards")
def test_parts_of_cards_that_are_free_make_no_room_for_a_card() -> None:
    assert has_room(Actors(1, 2, 1))
    assert not has_room(Actors(1, 3, 1))
    replicas = [placement_group([{"GPU": 0.6}]) for _ in range(3)]
    assert all(replica.wait(60) for replica in replicas)
    assert ray.available_resources()["GPU"] > 1
    assert not has_room(Actors(1, 1, 1))
