"""Tempo, beats, downbeats and key on an evaluation set, against other libraries on the same files.

The set is a `Setting`'s; real recordings, songs with a game's charts, pieces from a generator,
rendered music, tracker modules and clips of single metres are reported separately. Peers run in
their own Python, and their predictions are cached.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.accuracy.charts import KIND as CHARTS
from benchmarks.accuracy.metres import KIND as METRES
from benchmarks.accuracy.modules import KIND as MODULES
from benchmarks.evaluation_set import Setting
from benchmarks.generated import KIND as GENERATED
from benchmarks.report import Options, Result, Target, as_json, show, write
from pipelines.training.metrics import METRICS, Score, reliability, score_all, summarise

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "accuracy"
OWN = "afa"
PEERS = ("essentia", "librosa", "sonara")
BOUNDS = {
    "tempo accuracy 1": 0.77,
    "tempo accuracy 2": 0.95,
    "beat F": 0.84,
    "beat F any level": 0.93,
    "downbeat F": 0.50,
    "key weighted": 0.92,
}
MOST_CPU_S = 0.60
"""Processor seconds per minute of audio, one thread."""

_APART = {CHARTS, GENERATED, MODULES, METRES}
"""Kinds left out of the figures over all tracks, so that these stay comparable with older ones."""
_REAL = ("real", CHARTS)
_QUICK_STRIDE = 8
_SINGLE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}


def run(options: Options, setting: Setting | None = None) -> Result:
    """Predict, score and compare.

    Args:
        options: ``is_quick`` takes every eighth clip.
        setting: Where the set, audio and peers are.
    """
    setting = setting or Setting()
    if not (setting.evalset / "annotations.json").is_file():
        return Result(NAME, skipped=f"no evaluation set in {setting.evalset} (AFA_EVALSET)")
    skipped = setting.skip or ("\0",)
    truth: dict[str, Any] = {}
    files: dict[str, Path] = {}
    for folder, audio in (
        (setting.evalset, setting.audio),
        (setting.charts, setting.charts),
        (setting.generated, setting.generated),
        (setting.modules, setting.modules),
        (setting.metres, setting.metres),
    ):
        if (folder / "annotations.json").is_file():
            tracks = json.loads((folder / "annotations.json").read_text())
            truth |= {k: v for k, v in sorted(tracks.items()) if not k.startswith(skipped)}
            files |= {name: audio / f"{name}.wav" for name in tracks}
    if options.is_quick:
        truth = dict(list(truth.items())[::_QUICK_STRIDE])
    files = {name: files[name] for name in truth}
    missing = [name for name, path in files.items() if not path.is_file()]
    if missing:
        return Result(
            NAME,
            skipped=f"{len(missing)} clips are not there (AFA_EVAL_AUDIO), {missing[0]} for one",
        )
    found = {OWN: _predict(setting, list(files.values()))}
    minutes = found[OWN]["minutes"]
    for peer in PEERS if setting.peers_python else ():
        found[peer] = _predict_peer(peer, setting, list(files.values()))
    return _result(truth, found, minutes)


def _result(
    truth: Mapping[str, Any], found: Mapping[str, Mapping[str, Any]], minutes: float
) -> Result:
    scores = {name: score_all(truth, run["predictions"]) for name, run in found.items()}
    kinds = {name: str(track.get("kind", "")) for name, track in truth.items()}
    summary = {
        name: summarise({k: v for k, v in tracks.items() if kinds[k] not in _APART})
        for name, tracks in scores.items()
    }
    by_kind = {name: _grouped(tracks, kinds) for name, tracks in scores.items()}
    half_real = {name: _half_real(groups) for name, groups in by_kind.items()}
    cpu = {name: run["cpu_s"] / minutes for name, run in found.items()}
    own = scores[OWN]
    music = {name: track for name, track in own.items() if kinds[name] != METRES}
    values = {
        "minutes": minutes,
        "cpu_s_per_minute": cpu,
        "all": {
            name: {metric: asdict(score) for metric, score in metrics.items()}
            for name, metrics in summary.items()
        },
        "by_kind": {name: _as_dicts(groups) for name, groups in by_kind.items()},
        "half_real": half_real,
        "by_source": {
            name: _as_dicts(_grouped(tracks, {k: k.partition("_")[0] for k in tracks}))
            for name, tracks in scores.items()
        },
        "time_signatures": _told_metres(truth, found[OWN]["predictions"]),
        "reliability": {
            "tempo": _reliability(music, found[OWN], "tempo accuracy 1", "tempo_confidence"),
            "key": _reliability(music, found[OWN], "key exact", "key_confidence"),
        },
        "tracks": own,
    }
    targets = [
        Target(metric, summary[OWN][metric].mean, bound)
        for metric, bound in BOUNDS.items()
        if metric in summary[OWN]
    ]
    targets.append(Target("CPU s per minute", cpu[OWN], MOST_CPU_S, at_least=False))

    def draw(axes: "Axes") -> None:
        _draw(axes, summary)

    return Result(
        NAME,
        values,
        columns=("", *METRICS, "CPU s/min"),
        rows=[
            (name, *(_cell(summary[name].get(metric)) for metric in METRICS), f"{cpu[name]:.2f}")
            for name in found
        ]
        + [
            (f"{OWN}, {kind}", *(_counted(scored.get(metric)) for metric in METRICS), "")
            for kind, scored in by_kind[OWN].items()
            if kind
        ]
        + [
            (
                f"{OWN}, real weighing half",
                *(
                    f"{half_real[OWN][metric]:.3f}" if metric in half_real[OWN] else "-"
                    for metric in METRICS
                ),
                "",
            )
        ],
        targets=targets,
        draw=draw,
    )


def _cell(score: Score | None) -> str:
    return "-" if score is None else str(score)


def _counted(score: Score | None) -> str:
    return "-" if score is None else score.counted


Groups = Mapping[str, Mapping[str, Score]]
"""Group of tracks → metric → score."""


def _grouped(tracks: Mapping[str, Mapping[str, float]], group: Mapping[str, str]) -> Groups:
    return {
        name: summarise({k: v for k, v in tracks.items() if group[k] == name})
        for name in sorted({group[k] for k in tracks})
    }


def _as_dicts(groups: Groups) -> dict[str, dict[str, Any]]:
    return {
        name: {metric: asdict(score) for metric, score in scored.items()}
        for name, scored in groups.items()
    }


def _half_real(groups: Groups) -> dict[str, float]:
    """Weigh real recordings as much as all other kinds together, if they are annotated."""
    figures = {}
    for metric in METRICS:
        real = [groups[kind][metric] for kind in _REAL if metric in groups.get(kind, {})]
        if not real:
            continue
        mean = sum(score.n * score.mean for score in real) / sum(score.n for score in real)
        others = [
            group[metric].mean
            for kind, group in groups.items()
            if kind not in {*_REAL, GENERATED, METRES} and metric in group
        ]
        figures[metric] = (mean + sum(others) / len(others)) / 2 if others else mean
    return figures


def _told_metres(
    truth: Mapping[str, Any], predictions: Mapping[str, Mapping[str, Any]]
) -> dict[str, dict[str, int]]:
    """Count the reported beats per bar by source, most common first."""
    told: dict[str, Counter[str]] = {}
    for name, track in truth.items():
        if "time_signature" in track:
            counts = told.setdefault(name.partition("_")[0], Counter())
            counts[str(predictions[name]["time_signature"])] += 1
    return {source: dict(counts.most_common()) for source, counts in told.items()}


def _reliability(
    scores: Mapping[str, Mapping[str, float]],
    run: Mapping[str, Any],
    metric: str,
    confidence: str,
) -> list[tuple[float, float, int]]:
    names = [name for name, track in scores.items() if metric in track]
    return reliability(
        [run["predictions"][name][confidence] for name in names],
        [scores[name][metric] for name in names],
    )


def _predict(setting: Setting, files: list[Path]) -> dict[str, Any]:
    out = setting.cache / f"{OWN}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.accuracy.predict"]
    command += ["--out", str(out), "--model-dir", str(setting.model_dir)]
    return _run([*command, *map(str, files)], out)


def _predict_peer(peer: str, setting: Setting, files: list[Path]) -> dict[str, Any]:
    """Run a peer, or take its cached predictions for the same files."""
    stamp = "\n".join(f"{path.name} {path.stat().st_size}" for path in files)
    digest = hashlib.sha256(stamp.encode()).hexdigest()[:16]
    out = setting.cache / f"{peer}-{digest}.json"
    if out.is_file():
        cached: dict[str, Any] = json.loads(out.read_text())
        return cached
    out.parent.mkdir(parents=True, exist_ok=True)
    script = Path(__file__).with_name("peers.py")
    return _run([str(setting.peers_python), str(script), peer, str(out), *map(str, files)], out)


def _run(command: list[str], out: Path) -> dict[str, Any]:
    subprocess.run(command, check=True, env={**os.environ, **_SINGLE_THREAD})  # noqa: S603
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def _draw(axes: "Axes", summary: Mapping[str, Mapping[str, Score]]) -> None:
    width = 0.8 / len(summary)
    for i, (name, metrics) in enumerate(summary.items()):
        known = [(j, metrics[metric]) for j, metric in enumerate(METRICS) if metric in metrics]
        axes.bar(
            [j + i * width for j, _ in known],
            [score.mean for _, score in known],
            width,
            yerr=[
                [score.mean - score.low for _, score in known],
                [score.high - score.mean for _, score in known],
            ],
            label=name,
            capsize=2,
        )
    axes.set_xticks([j + 0.3 for j in range(len(METRICS))], METRICS, rotation=30, ha="right")
    axes.set_ylim(0, 1.15)
    axes.legend(loc="upper center", ncols=len(summary))
    axes.set_title("Mean and 95 % bootstrap interval")


def as_markdown(values: Mapping[str, Any]) -> str:
    """Return a result file's figures as tables: all tracks, and afa's by kind and source."""
    head = "| " + " | ".join(("", *METRICS, "CPU s per minute")) + " |"
    lines = [head, "|" + " --- |" * (len(METRICS) + 2)]
    for name, metrics in values["all"].items():
        cells = [_cell(Score(**metrics[m]) if m in metrics else None) for m in METRICS]
        cells.append(f"{values['cpu_s_per_minute'][name]:.2f}")
        lines.append("| " + " | ".join((name, *cells)) + " |")
    for title in ("kind", "source"):
        lines += ["", f"| {title} (tracks) | " + " | ".join(METRICS) + " |"]
        lines.append("|" + " --- |" * (len(METRICS) + 1))
        for name, metrics in values[f"by_{title}"][OWN].items():
            cells = [_counted(Score(**metrics[m])) if m in metrics else "-" for m in METRICS]
            lines.append("| " + " | ".join((name, *cells)) + " |")
    lines += ["", "| source | told beats in a bar (clips) |", "| --- | --- |"]
    for name, told in values["time_signatures"].items():
        counts = ", ".join(f"{metre} ({n})" for metre, n in told.items())
        lines.append(f"| {name} | {counts} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run from the command line, without the service's entry point."""
    parser = argparse.ArgumentParser(description=__doc__)
    defaults = Setting()
    folders = ("evalset", "audio", "charts", "generated", "modules", "metres")
    for option in (*folders, "model-dir", "cache"):
        name = option.replace("-", "_")
        parser.add_argument(f"--{option}", type=Path, default=getattr(defaults, name))
    parser.add_argument("--peers-python", type=Path)
    parser.add_argument("--skip", action="append", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=Path, default=Path("benchmarks/results/accuracy.json"))
    given = vars(parser.parse_args())
    options, target = Options(is_quick=given.pop("quick")), given.pop("json")
    result = run(options, Setting(**{**given, "skip": tuple(given["skip"])}))
    show(result, Console())
    write(result, target)
    if not result.skipped:
        target.with_suffix(".md").write_text(as_markdown(as_json(result)), encoding="utf-8")


if __name__ == "__main__":
    main()
