"""`afa analyze` on real files with the real checkpoints, without any server."""

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest
from typer.testing import CliRunner

from afa.plot import DARK
from serve_app.api.wire.features import AnalysisFeatures
from serve_app.cli.main import app
from serve_app.library.library import Library
from tests.conftest import REPOSITORY
from tests.data.audio_files import click_track, encode

DEMO = Path(__file__).parents[2] / "serve_app" / "data" / "demo.mp3"
runner = CliRunner()


@pytest.fixture(autouse=True)
def no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the tests from asking a service that runs on this machine."""
    monkeypatch.setenv("AFA_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encode(tmp_path_factory.mktemp("clip") / "a.ogg", click_track(132, 10), "ogg", "vorbis")


def test_json_and_plot_of_one_file(clip: Path, tmp_path: Path) -> None:
    plot = tmp_path / "plot.png"
    done = runner.invoke(app, ["analyze", str(clip), "--json", "--embedding", "--plot", str(plot)])
    assert done.exit_code == 0, done.output
    record = json.loads(done.stdout)
    assert record["tempo"] == pytest.approx(132, rel=0.02)
    assert len(record["embedding"]) == 768
    assert plot.read_bytes().startswith(b"\x89PNG")
    assert plot.stat().st_size > 20_000


def test_the_tempo_is_looked_for_in_the_range(clip: Path, tmp_path: Path) -> None:
    lines = tmp_path / "out.jsonl"
    asked = ["analyze", str(clip), "--tempo-range", "50-90"]
    for more in (["--json"], ["--jsonl", str(lines), "--jobs", "1"]):
        done = runner.invoke(app, [*asked, *more])
        assert done.exit_code == 0, done.output
        record = json.loads(done.stdout if more == ["--json"] else lines.read_text())
        assert record["tempo"] == pytest.approx(66, rel=0.02)
        assert 132 in [round(other["tempo"]) for other in record["tempo_alternatives"]]
    for wrong, told in (("fast", "written as 80-160"), ("90-50", "lower BPM: 50-90, not 90-50")):
        done = runner.invoke(app, ["analyze", str(clip), "--tempo-range", wrong])
        assert done.exit_code == 1
        assert told in done.stderr


def test_the_table_names_tempo_and_key() -> None:
    done = runner.invoke(app, ["analyze", str(DEMO), "--max-windows", "4"])
    assert done.exit_code == 0, done.output
    assert "A minor (8A)" in done.stdout
    assert "124." in done.stdout or "123.9" in done.stdout
    assert len(re.findall(r" repeats [01]\.\d\d", done.stdout)) == 7


@pytest.mark.parametrize("words", ["analyze", "embed", "tag", "scan", "catalog fingerprint"])
def test_a_file_that_is_not_there_is_told_in_one_wording(words: str, tmp_path: Path) -> None:
    data_dir, absent = tmp_path / "data", tmp_path / "absent.mp3"
    Library((data_dir / "library").as_uri(), data_dir / "library-view").close()
    for source, names in ((str(absent), ""), ("-", f"\n{absent}\r\n")):
        done = runner.invoke(app, [*words.split(), source], input=names)
        assert done.exit_code == 1
        assert f"{absent}: no such file" in done.stderr.splitlines()


def test_a_catalog_file_that_is_not_there_is_told_in_the_same(tmp_path: Path) -> None:
    absent = tmp_path / "absent.parquet"
    done = runner.invoke(app, ["catalog", "import", str(absent)])
    assert done.exit_code == 1
    assert f"{absent}: no such file" in done.stderr


def test_sources_of_all_kinds_share_one_schema_and_one_rule(clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "music"
    folder.mkdir()
    song = folder / "The Clicks - At 132.ogg"
    song.write_bytes(clip.read_bytes())
    bad = folder / "bad.mp3"
    bad.write_bytes(b"nothing to hear")
    (folder / "cover.jpg").write_bytes(b"no audio")
    lines, table = tmp_path / "out.jsonl", tmp_path / "out.csv"
    done = runner.invoke(
        app,
        [
            *("analyze", str(folder), str(tmp_path / "absent.mp3"), str(tmp_path / "*.none"), "-"),
            *("--json", "--jsonl", str(lines), "--csv", str(table), "--jobs", "1"),
        ],
        input=f"{clip}\n",
    )
    assert done.exit_code == 1
    assert "Traceback" not in done.output
    assert f"{bad}: This is not an audio file" in done.stderr
    assert "absent.mp3: no such file" in done.stderr
    assert "*.none: no such file" in done.stderr
    assert "3 of 5 files failed" in done.stderr
    assert done.stdout == lines.read_text()
    records = {r["file"]: r for r in map(json.loads, done.stdout.splitlines())}
    assert len(records) == 5
    assert records[str(bad)]["error"] == "unprocessable_audio"
    for name in (str(song), str(clip)):
        good = records[name]
        shape = set(AnalysisFeatures.model_fields) - {"embedding", "embedding_model"}
        assert set(good) == shape | {"file"}
        assert good["tempo"] == pytest.approx(132, rel=0.02)
        assert good["true_peak"] > good["loudness"]
        assert good["loudness_range"] >= 0
    assert (records[str(song)]["artist"], records[str(song)]["title"]) == ("The Clicks", "At 132")
    rows = {row["file"]: row for row in csv.DictReader(table.read_text().splitlines())}
    assert set(rows) == {str(song), str(clip)}
    assert float(rows[str(song)]["tempo"]) == records[str(song)]["tempo"]
    assert "beats" not in rows[str(song)]


@pytest.mark.parametrize("option", ["--jsonl", "--csv", "--plot"])
def test_an_output_that_cannot_be_written_is_refused_before_the_work(
    option: str, clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path))  # the work would fail
    (tmp_path / "folder.png").mkdir()
    places = {
        tmp_path / "no" / "x.png": "there is no folder",
        tmp_path / "folder.png": "it is a folder",
    }
    for place, message in places.items():
        done = runner.invoke(app, ["analyze", str(clip), option, str(place)])
        assert done.exit_code == 1
        assert done.stderr.startswith(f"afa: cannot write {place}: ")
        assert message in done.stderr
    done = runner.invoke(app, ["analyze", str(clip), "--plot", str(tmp_path / "plot.doc")])
    assert "must end in .png, .svg, .pdf" in done.stderr


def test_a_plot_may_be_a_dark_svg(clip: Path, tmp_path: Path) -> None:
    plot = tmp_path / "plot.svg"
    named = tmp_path / "A$AP - 100% $ick_^{.ogg"  # not a formula, although it looks like one
    shutil.copyfile(clip, named)
    done = runner.invoke(app, ["analyse", str(named), "--plot", str(plot), "--dark"])
    assert done.exit_code == 0, done.output
    assert DARK.ground in plot.read_text()


def test_letters_that_no_font_has_are_told_in_a_line(clip: Path, tmp_path: Path) -> None:
    plot, named = tmp_path / "plot.png", tmp_path / "\N{CUNEIFORM SIGN A}.ogg"
    shutil.copyfile(clip, named)
    done = runner.invoke(app, ["analyse", str(named), "--plot", str(plot)])
    assert (done.exit_code, plot.exists()) == (0, True)
    assert "no installed font has them" in done.stderr
    assert "Glyph" not in done.stderr


def test_an_empty_folder_is_told(tmp_path: Path) -> None:
    done = runner.invoke(app, ["analyze", str(tmp_path)])
    assert (done.exit_code, done.stderr) == (1, f"{tmp_path}: no audio files in this folder\n")


def test_a_part_of_a_long_track_is_enough_for_mood(tmp_path: Path) -> None:
    long = encode(tmp_path / "long.mp3", click_track(120, 45), "mp3", "libmp3lame")
    bad = tmp_path / "bad.mp3"
    bad.write_bytes(b"nothing to hear")
    done = runner.invoke(app, ["embed", str(long), str(bad)])
    assert done.exit_code == 1
    records = {Path(r["file"]).name: r for r in map(json.loads, done.stdout.splitlines())}
    good, failed = records["long.mp3"], records["bad.mp3"]
    assert failed["error"] == "unprocessable_audio"
    assert len(good["embedding"]) == 768
    assert good["models"]["excerpt"] == "3 x 10 s"
    done = runner.invoke(app, ["analyze", str(long), "--partial", "--json", "--embedding"])
    assert done.exit_code == 0, done.output
    analysed = json.loads(done.stdout)
    assert analysed["models"]["excerpt"] == "3 x 10 s"
    assert analysed["tempo"] == pytest.approx(120, rel=0.02)
    cosine = sum(a * b for a, b in zip(good["embedding"], analysed["embedding"], strict=True))
    assert cosine > 0.999  # read by seeking in one case, cut from the whole in the other
    assert analysed["energy"] == pytest.approx(100 * good["energy"], abs=1)


def test_workers_without_checkpoints_say_so_once(
    clip: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path / "none"))
    done = runner.invoke(app, ["analyze", str(clip), str(DEMO), "--jobs", "2"])
    assert done.exit_code == 1
    assert done.stderr.startswith("afa: checkpoint ")
    assert "Run `afa models pull" in done.stderr
    assert "Traceback" not in capfd.readouterr().err


def test_ctrl_c_ends_workers_that_have_more_to_do(clip: Path) -> None:
    # When the tests run in the background, SIGINT may be ignored; child processes inherit that.
    heard = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    main = f"{heard}; from serve_app.cli import run; run()"
    with subprocess.Popen(
        [*(sys.executable, "-c", main), "analyze", "--json", "--jobs", "2", *[str(clip)] * 2000],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        too_late = Timer(120, os.killpg, [process.pid, signal.SIGKILL])
        too_late.start()
        _, told = process.communicate()
        too_late.cancel()
    assert process.returncode == 130
    assert "Traceback" not in told


def test_a_wrong_serve_file_is_told_once(clip: Path, tmp_path: Path) -> None:
    (tmp_path / "serve.yaml").write_text("no: serve file")
    asked = ["analyze", str(clip), str(DEMO), "--jobs", "2"]
    done = runner.invoke(app, [*asked, "--config", str(tmp_path / "serve.yaml")])
    (line,) = done.stderr.splitlines()
    assert (done.exit_code, "is not a Serve file" in line) == (1, True)


def test_a_disk_that_is_full_is_one_line(tmp_path: Path) -> None:
    done = runner.invoke(app, ["analyze", str(tmp_path / "gone.mp3"), "--jsonl", "/dev/full"])
    assert done.exit_code == 1
    assert "No space left on device" in done.stderr.splitlines()[-1]
    assert isinstance(done.exception, SystemExit)
