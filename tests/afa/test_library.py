"""`import afa` on real files with the real checkpoints."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any
from warnings import catch_warnings

import numpy as np
import pytest
import torch
from matplotlib.font_manager import FontEntry, fontManager
from torch import Tensor
from typer.testing import CliRunner

import afa
from afa import streaming
from pipelines.batching.upload import bring
from serve_app.cli.main import app
from tests.conftest import DEMO_TRACK, REPOSITORY
from tests.data.audio_files import click_track, encode, write_wav
from tests.data.small_checkpoints import add_own_ast

DEFAULTS = ("vibenet", "musicnn-mtt", "musicnn-msd-768")


@pytest.fixture(scope="module")
def analyzer(checkpoint: Callable[[str], dict[str, Tensor]]) -> afa.Analyzer:
    for model_id in DEFAULTS:
        checkpoint(model_id)
    return afa.Analyzer(device="cpu")


@pytest.fixture(scope="module")
def clips(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("clips")
    return [
        encode(folder / f"{bpm}.ogg", click_track(bpm, 8), "ogg", "vorbis")
        for bpm in (96, 120, 144)
    ]


@pytest.fixture(scope="module")
def demo(analyzer: afa.Analyzer) -> afa.Track:
    return analyzer.analyze(DEMO_TRACK)


def test_what_is_public_is_listed() -> None:
    assert afa.__all__ == sorted(afa.__all__, key=lambda name: (name.islower(), name))
    ours = {
        name
        for name, value in vars(afa).items()
        if getattr(value, "__module__", "").startswith("afa") and not name.startswith("_")
    }
    assert ours == set(afa.__all__)
    for name in afa.__all__:
        assert getattr(afa, name).__doc__


def test_importing_it_is_quick_and_loads_no_network() -> None:
    heavy = ("torch", "transformers", "ray", "fastapi", "pydantic", "matplotlib")

    def imported(what: str) -> tuple[float, str]:
        """Return the processor seconds that it takes, and the heavy modules that it loads."""
        code = f"import sys, time, {what}; "
        code += f"print(time.process_time(), [name for name in {heavy} if name in sys.modules])"
        line = [sys.executable, "-c", code]
        done = subprocess.run(line, cwd=REPOSITORY, capture_output=True, text=True, check=True)
        took_s, _, loaded = done.stdout.strip().partition(" ")
        return float(took_s), loaded

    took_s, loaded = imported("afa")
    assert loaded == "[]"
    # It takes half a second; numpy takes a tenth.
    assert took_s < 5 * max(0.1, imported("numpy")[0])


def test_a_track_says_what_the_command_says(demo: afa.Track) -> None:
    told = json.loads(
        CliRunner().invoke(app, ["analyze", str(DEMO_TRACK), "--json", "--embedding"]).stdout
    )
    assert demo.tempo == pytest.approx(told["tempo"], abs=1e-3)
    assert demo.key == f"{told['key']} {told['mode']}" == "A minor"
    assert demo.camelot == "8A"
    assert demo.loudness_lufs == pytest.approx(told["loudness"], abs=0.01)
    np.testing.assert_allclose(demo.beats, told["beats"], atol=1e-3)
    np.testing.assert_allclose(demo.embedding, told["embedding"], atol=1e-6)
    assert list(demo.tags) == [tag["tag"] for tag in told["mood_tags"]]
    assert round(100 * demo.attributes["valence"]) == told["happiness"]
    assert demo.models == told["models"]
    assert set(demo.downbeats) <= set(demo.beats)
    assert (demo.embedding.dtype, demo.embedding.shape) == (np.float32, (768,))


def test_a_track_prints_as_a_line_and_shows_as_a_table(demo: afa.Track) -> None:
    assert repr(demo).startswith("<Track demo.mp3: 124.")
    assert "BPM, A minor, " in repr(demo)
    table = demo._repr_html_()
    assert "<td>A minor (8A)</td>" in table
    assert "<th>danceability</th>" in table
    assert table.count("<tr>") == table.count("</tr>") == 12


def test_a_name_of_a_file_is_no_html(analyzer: afa.Analyzer, clips: list[Path]) -> None:
    nasty = clips[0].with_name("<b>&.ogg")
    nasty.write_bytes(clips[0].read_bytes())
    shown = analyzer.analyze(nasty)._repr_html_()
    nasty.unlink()
    assert "<caption>&lt;b&gt;&amp;.ogg</caption>" in shown


def test_a_track_draws_itself(
    demo: afa.Track, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    picture = demo.plot()
    png = picture._repr_png_()
    assert png.startswith(b"\x89PNG")
    kept = (request.config.getoption("--screenshots") or tmp_path) / "plot.png"
    picture.savefig(kept)
    assert kept.stat().st_size > len(png) > 20_000
    headline = picture.get_suptitle()
    assert "124.0 BPM (or 62.0" in headline
    assert "A minor · 8A" in headline
    assert "LUFS" in headline
    wave, chroma, attributes, tags, loudness = picture.axes
    assert wave.get_legend_handles_labels()[1] == [
        *("wave", "beats", "bars", "mix in, mix out", "loudness")
    ]
    bold = [one.get_text() for one in chroma.get_yticklabels() if one.get_fontweight() == "bold"]
    assert bold == ["C", "D", "E", "F", "G", "A", "B"]
    assert len(attributes.patches) == 7
    assert "happiness" in [label.get_text() for label in attributes.get_yticklabels()]
    assert len(tags.patches) == 7
    assert len(loudness.lines) == 1


def test_a_name_in_letters_of_another_font_is_drawn(demo: afa.Track, tmp_path: Path) -> None:
    named = tmp_path / "A\N{COMBINING ENCLOSING CIRCLE}.mp3"  # in STIX, which matplotlib brings
    named.write_bytes(demo.path.read_bytes())
    with catch_warnings(action="error"):
        picture = replace(demo, path=named).plot()
        picture._repr_png_()
    (headline,) = picture.texts
    assert headline.get_fontfamily() == ["sans-serif", "STIXGeneral"]


def test_a_font_that_is_gone_is_passed_over(
    demo: afa.Track, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = FontEntry(fname=str(tmp_path / "gone.ttf"), name="Gone")
    monkeypatch.setattr(fontManager, "ttflist", [gone, *fontManager.ttflist])
    named = tmp_path / "A\N{COMBINING ENCLOSING CIRCLE}.mp3"
    named.write_bytes(demo.path.read_bytes())
    (headline,) = replace(demo, path=named).plot().texts
    assert headline.get_fontfamily() == ["sans-serif", "STIXGeneral"]


def test_a_long_track_is_drawn_with_bars_alone(demo: afa.Track) -> None:
    record = replace(demo.record, beats=[n / 8 for n in range(240)], key=5, mode=1)
    picture = replace(demo, record=record).plot()
    wave, chroma = picture.axes[:2]
    assert "beats" not in wave.get_legend_handles_labels()[1]
    assert "bars" in wave.get_legend_handles_labels()[1]
    bold = [one.get_text() for one in chroma.get_yticklabels() if one.get_fontweight() == "bold"]
    assert bold == ["C", "D", "E", "F", "G", "A", "B♭"]


def test_the_loudness_curve_falls_where_the_sound_does(demo: afa.Track) -> None:
    length_s, middle_s = demo.record.duration_s / 400, demo.record.duration_s / 2
    segments = [
        replace(
            demo.record.segments[0],
            start_s=n * length_s,
            duration_s=length_s,
            loudness_max_db=-10.0 if n < 200 else -40.0,
            loudness_max_time_s=length_s / 2,
        )
        for n in range(400)
    ]
    picture = replace(demo, record=replace(demo.record, segments=segments)).plot()
    at, level = picture.axes[-1].lines[0].get_data()
    falls_s = np.interp(25.0, -np.asarray(level), at)
    assert falls_s == pytest.approx(middle_s, abs=length_s)
    assert at[0] == pytest.approx(demo.record.duration_s - at[-1])


def test_many_files_give_what_each_gives_alone(
    analyzer: afa.Analyzer, clips: list[Path], tmp_path: Path
) -> None:
    bad = tmp_path / "bad.mp3"
    bad.write_bytes(b"nothing to hear")
    os.mkfifo(tmp_path / "pipe.wav")
    no_files = [tmp_path / name for name in ("absent.wav", "zero\0.wav", "\ud800.wav", "pipe.wav")]
    outcomes = list(analyzer.stream([*clips, bad, *no_files]))
    tracks = {one.path: one for one in outcomes if isinstance(one, afa.Track)}
    errors = {one.path.name: one.code for one in outcomes if isinstance(one, afa.AudioError)}
    unreadable = {path.name: "unreadable" for path in no_files}
    assert errors == {"bad.mp3": "unprocessable_audio", **unreadable}
    assert set(tracks) == set(clips)
    for clip in clips:
        alone = analyzer.analyze(clip)
        assert tracks[clip].tempo == pytest.approx(float(clip.stem), rel=0.02)
        np.testing.assert_array_equal(tracks[clip].beats, alone.beats)
        np.testing.assert_allclose(tracks[clip].embedding, alone.embedding, atol=1e-5)


def test_embeddings_are_rows_in_the_order_of_the_files(
    analyzer: afa.Analyzer, clips: list[Path], demo: afa.Track
) -> None:
    rows = analyzer.embed([DEMO_TRACK, *clips, DEMO_TRACK])
    assert (rows.shape, rows.dtype) == ((5, 768), np.float32)
    np.testing.assert_allclose(rows[0], demo.embedding, atol=1e-5)
    np.testing.assert_array_equal(rows[0], rows[4])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0, atol=1e-5)
    assert analyzer.embed([]).shape == (0, 768)
    with pytest.raises(TypeError, match=r"embed\(\[path\]\)"):
        analyzer.embed(str(DEMO_TRACK))
    with pytest.raises(TypeError, match=r"stream\(\[path\]\)"):
        next(analyzer.stream(str(DEMO_TRACK)))


def test_files_are_begun_as_results_are_taken(
    analyzer: afa.Analyzer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AHEAD", "BATCH_WINDOWS"):
        monkeypatch.setattr(streaming, name, 2)
    begun: list[Path] = []

    def endless() -> Iterator[Path]:
        clip = write_wav(tmp_path / "short.wav", click_track(120, 2))
        while True:
            begun.append(clip)
            yield clip

    results = analyzer.stream(endless())
    first = next(results)
    assert isinstance(first, afa.Track)
    deadline = time.monotonic() + 60
    seen = -1
    while len(begun) > seen and time.monotonic() < deadline:
        seen = len(begun)
        time.sleep(1.5)
    assert seen == len(begun) < 100
    results.close()  # type: ignore[attr-defined]
    ended = len(begun)
    time.sleep(0.3)
    assert len(begun) == ended


def test_a_stream_that_is_left_does_not_wait_for_what_is_analysed(
    analyzer: afa.Analyzer, clips: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_analysed = Event()

    class Endless(streaming.BatchedStep[Any]):
        async def complete(self, prepared: Any) -> Any:
            is_analysed.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(streaming, "BatchedStep", Endless)
    results = analyzer.stream([tmp_path / "absent", clips[0]])
    assert isinstance(next(results), afa.AudioError)
    assert is_analysed.wait(60)
    leaving = Thread(target=results.close, daemon=True)  # type: ignore[attr-defined]
    leaving.start()
    leaving.join(60)
    assert not leaving.is_alive()


def test_the_functions_share_one_analyzer(analyzer: afa.Analyzer, demo: afa.Track) -> None:
    assert afa.analyze(str(DEMO_TRACK)).tempo == demo.tempo
    np.testing.assert_allclose(afa.embed([DEMO_TRACK])[0], demo.embedding, atol=1e-5)


def test_a_checkpoint_of_ones_own_is_chosen_by_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model_dir: Path, clips: list[Path]
) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for name in DEFAULTS:
        (models / name).symlink_to(model_dir / name)
    add_own_ast(models, tmp_path, "own-ast")
    monkeypatch.setenv("AFA_MODEL_DIR", str(models))
    with pytest.raises(afa.ModelError, match="Run `afa models pull own-ast`"):
        afa.Analyzer(models={"embedding": "own-ast"})
    assert CliRunner().invoke(app, ["models", "pull", "own-ast"]).exit_code == 0
    track = afa.Analyzer(models={"embedding": "own-ast"}).analyze(clips[0])
    assert track.models["embedding"] == "own-ast"


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"models": {"embedding": "nobodys"}}, afa.ModelError, "no model is called 'nobodys'"),
        ({"models": {"mood": "vibenet"}}, afa.ModelError, "no such role: mood"),
        ({"device": "cuda:9"}, afa.MachineError, "no device 'cuda:9' here"),
        ({"device": "toaster"}, afa.MachineError, "no device 'toaster' here"),
    ],
)
def test_a_wrong_choice_is_named(settings: dict[str, object], error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        afa.Analyzer(**settings)  # type: ignore[arg-type]


def test_a_device_that_breaks_is_told(
    analyzer: afa.Analyzer, clips: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_args: object, **_options: object) -> None:
        raise torch.AcceleratorError("CUDA error: GPU is lost\nCompile with")

    monkeypatch.setattr("pipelines.batching.upload.bring", lost)
    with pytest.raises(afa.MachineError, match=r"^the device broke: CUDA error: GPU is lost$"):
        analyzer.analyze(clips[0])
    monkeypatch.setattr("pipelines.batching.device.bring", lost)
    with pytest.raises(afa.MachineError, match="GPU is lost"):
        next(analyzer.stream(clips))


def test_a_file_for_which_the_device_has_no_memory_fails_alone(
    analyzer: afa.Analyzer, clips: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    brought: list[int] = []

    def full(*args: Any, **options: Any) -> Any:
        brought.append(1)
        if len(brought) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20 GiB.")
        return bring(*args, **options)

    monkeypatch.setattr("pipelines.batching.upload.bring", full)
    with pytest.raises(afa.AudioError, match="too little free memory for it") as told:
        analyzer.analyze(clips[0])
    assert told.value.code == "audio_too_long"
    brought.clear()
    monkeypatch.setattr("pipelines.batching.device.bring", full)
    outcomes = list(analyzer.stream(clips))
    assert len(outcomes) == len(clips) > 1
    (failed,) = [one for one in outcomes if isinstance(one, afa.AudioError)]
    assert failed.code == "audio_too_long"


def test_a_device_without_memory_for_the_networks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr(torch.nn.Module, "to", full)
    with pytest.raises(afa.MachineError, match="no memory for the networks"):
        afa.Analyzer()


def test_without_checkpoints_the_command_that_fetches_them_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AFA_MODEL_DIR", str(tmp_path))
    with pytest.raises(afa.ModelError, match="Run `afa models pull musicnn-msd-768`"):
        afa.Analyzer()


def test_a_file_is_added_to_a_library_once_and_followed(
    analyzer: afa.Analyzer, clips: list[Path], tmp_path: Path
) -> None:
    song = tmp_path / "Kraftwerk - Computer Love.ogg"
    song.write_bytes(clips[1].read_bytes())
    with afa.Library(tmp_path / "data") as library:
        added = library.add(song, analyzer)
        assert (added.artist, added.title) == ("Kraftwerk", "Computer Love")
        assert added.tempo == pytest.approx(120, rel=0.02)
        assert added.paths == (song,)
        moved = song.rename(tmp_path / "b.ogg")
        again = library.add(moved, analyzer)
        assert (again.id, again.paths, len(library)) == (added.id, (moved,), 1)
        heard = analyzer.analyze(clips[1])
        np.testing.assert_allclose(library.embeddings([added])[0], heard.embedding, atol=1e-5)
        with pytest.raises(afa.LibraryError, match="is silent, and silence has no embedding"):
            library.similar(replace(heard, embedding=np.zeros(768, np.float32)))
        (itself,) = library.similar(heard)
        assert (itself.track.id, itself.distance) == (added.id, pytest.approx(0, abs=1e-5))
        for name, content, code in (
            ("a.mp3", b"no", "unprocessable_audio"),
            ("b", None, "unreadable"),
            ("b" * 300, None, "unreadable"),
            ("b\0", None, "unreadable"),
            ("data", None, "unreadable"),
        ):
            if content is not None:
                (tmp_path / name).write_bytes(content)
            with pytest.raises(afa.AudioError) as caught:
                library.add(tmp_path / name, analyzer)
            assert (caught.value.code, caught.value.path) == (code, tmp_path / name)


def test_samples_in_memory_are_refused_with_what_to_do(analyzer: afa.Analyzer) -> None:
    for samples in (np.zeros(100, np.float32), torch.zeros(100)):
        for hear in (analyzer.analyze, analyzer.embed, lambda x: list(analyzer.stream(x))):
            with pytest.raises(TypeError, match="write samples to a file"):
                hear(samples)  # type: ignore[operator]
