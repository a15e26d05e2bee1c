"""A back-fill that is killed again and again, and what its tables contain in the end."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from serve_app.library.library import Library
from serve_app.library.track import OPERATOR
from tests.data.audio_files import click_track, encode

COMMAND = "from serve_app.cli.main import main; main()"
LOOK_S = 0.5
LIMIT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is wrong in the end; the first four lists are empty if nothing is.

    Attributes:
        lost: Files without a row.
        doubled: Files with more than one row.
        other: Rows that do not match their file, or have no track in the library.
        redone: Files in the library at a kill that were analysed again after it.
        n_tracks: Rows of files that were analysed.
        n_errors: Rows of files that could not be analysed.
        kept: Number of files in the library at each kill.
        told: The output of the last run.
    """

    lost: list[str]
    doubled: list[str]
    other: list[str]
    redone: list[str]
    n_tracks: int
    n_errors: int
    kept: list[int]
    told: str


def make_files(folder: Path, n: int, n_broken: int = 0, duration_s: float = 3) -> Path:
    """Write clicks with different tempos and titles, and files that are not audio.

    Without a title, each would be compared with the others as a possible copy.
    """
    folder.mkdir()
    for number in range(n):
        samples = click_track(60 + 0.3 * number, duration_s)
        encode(
            folder / f"{number}.flac",
            samples,
            "flac",
            "flac",
            sample_format="s16",
            title=f"{number}",
        )
    for number in range(n_broken):
        (folder / f"broken {number}.mp3").write_text(f"nothing to hear {number}")
    return folder


def kill_and_resume(source: Path, folder: Path, kill_at: Sequence[int], actors: int) -> Outcome:
    """Run a back-fill, kill -9 it at each of these counts, and then run it to its end.

    Args:
        source: Folder of files.
        folder: An empty folder, for the data and the destination.
        kill_at: Numbers of files in the library, ascending.
        actors: Number of actors.
    """
    data, out = folder / "data", folder / "out"
    environment = os.environ | {"AFA_DATA_DIR": str(data), "RAY_worker_niceness": "0"}
    command = [sys.executable, "-c", COMMAND, "backfill", str(source), "--out", str(out)]
    command += ["--actors", str(actors)]
    before: dict[str, datetime] = {}
    redone: list[str] = []
    kept: list[int] = []
    for n in kill_at:
        with subprocess.Popen(command, env=environment) as run:
            made = _wait_for(run, data, n)
            run.send_signal(signal.SIGKILL)
        redone += [one for one, at in before.items() if made.get(one) != at]
        before = _made_at(data)
        kept.append(len(before))
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    made = _made_at(data)
    redone += [one for one, at in before.items() if made.get(one) != at]
    return _judge(source, out, made, redone, kept, done.stdout)


def _wait_for(run: "subprocess.Popen[bytes]", data: Path, n: int) -> dict[str, datetime]:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        if run.poll() is not None:
            raise RuntimeError(f"it ended by itself, with {run.returncode}")
        made = _made_at(data)
        if len(made) >= n:
            return made
        time.sleep(LOOK_S)
    raise TimeoutError(f"not {n} files in {LIMIT_S:.0f} s")


def _made_at(data: Path) -> dict[str, datetime]:
    """Return when each file in the library was analysed."""
    if not (data / "library").exists():
        return {}
    library = Library((data / "library").as_uri(), data / "judge")
    try:
        library.follow()
        return {
            file.location: track.analysis.made_at
            for track in library.all([OPERATOR])
            for file in track.files
            if track.analysis is not None
        }
    finally:
        library.close()


def _judge(
    source: Path,
    out: Path,
    made: dict[str, datetime],
    redone: list[str],
    kept: list[int],
    told: str,
) -> Outcome:
    table = ds.dataset(out / "tracks").to_table()
    tracks = table.to_pylist()
    errors = ds.dataset(out / "errors").to_table().to_pylist()
    rows = Counter(row["location"] for row in [*tracks, *errors])
    files = [str(path) for path in source.rglob("*") if path.is_file()]
    other = [
        row["location"]
        for row in tracks
        if row["content_sha256"] != _digest(row["location"])
        or row["location"] not in made
        or not np.isclose(np.linalg.norm(row["embedding"]), 1, atol=1e-5)
    ]
    if table.schema.field("embedding").type != pa.list_(pa.float32(), 768):
        other.append("embedding")
    return Outcome(
        lost=sorted(set(files) - set(rows)),
        doubled=[one for one, n in rows.items() if n > 1],
        other=other + sorted(set(rows) - set(files)),
        redone=redone,
        n_tracks=len(tracks),
        n_errors=len(errors),
        kept=kept,
        told=told,
    )


def _digest(location: str) -> str:
    return hashlib.sha256(Path(location).read_bytes()).hexdigest()
