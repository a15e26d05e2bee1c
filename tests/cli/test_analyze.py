"""`afa analyze` on real files with the real checkpoints, without any server."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from serve_app.cli.main import app
from tests.data.audio_files import click_track, encode

DEMO = Path(__file__).parents[2] / "serve_app" / "data" / "demo.mp3"
runner = CliRunner()


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
    done = runner.invoke(app, ["analyze", str(clip), "--tempo-range", "fast"])
    assert done.exit_code == 1
    assert "written as 80-160" in done.stderr


def test_the_table_names_tempo_and_key() -> None:
    done = runner.invoke(app, ["analyze", str(DEMO), "--max-windows", "4"])
    assert done.exit_code == 0, done.output
    assert "A minor (8A)" in done.stdout
    assert "124." in done.stdout or "123.9" in done.stdout


def test_many_files_give_one_record_each_and_a_bad_one_an_error(clip: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.mp3"
    bad.write_bytes(b"nothing to hear")
    output = tmp_path / "out.jsonl"
    arguments = ["analyze", str(clip), str(bad), "--jsonl", str(output), "--jobs", "1"]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    records = {Path(r["file"]).name: r for r in map(json.loads, output.read_text().splitlines())}
    assert records["bad.mp3"]["error"] == "unprocessable_audio"
    good = records["a.ogg"]
    for field in (
        *("tempo", "tempo_confidence", "beats", "downbeats", "time_signature", "key", "mode"),
        *("key_confidence", "loudness", "duration_s", "time_signature_confidence"),
        *("true_peak_dbtp", "loudness_range_lu", "mix_in", "mix_out", "camelot", "mood_tags"),
    ):
        assert field in good
    assert good["tempo"] == pytest.approx(132, rel=0.02)


def test_bad_input_is_told_not_thrown(tmp_path: Path) -> None:
    done = runner.invoke(app, ["analyze", str(tmp_path / "absent.mp3")])
    assert done.exit_code == 1
    assert "no such file" in done.stderr
    text = tmp_path / "text.mp3"
    text.write_bytes(b"hello")
    done = runner.invoke(app, ["analyze", str(text)])
    assert done.exit_code == 1
    assert "Traceback" not in done.output


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
    assert cosine > 0.999  # the parts were sought here and cut there
    assert analysed["energy"] == pytest.approx(100 * good["energy"], abs=1)
