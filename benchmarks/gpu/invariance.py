"""The same window alone and in any batch: networks and front-ends at full size, random weights."""

from typing import TYPE_CHECKING

import torch

from benchmarks.gpu.agreement import (
    forward_alone,
    forward_served,
    largest_difference,
    lowest_cosine,
)
from benchmarks.gpu.subjects import subjects
from benchmarks.report import Options, Result, Target

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAME = "invariance"

N_WINDOWS, MAX_WINDOWS = 4, 3
LARGE = ("ast", "maest", "mert-95m")
"""Left out when quick: minutes on a CPU."""


def run(options: Options) -> Result:
    """Compare every row, on the GPU if there is one."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    rows: list[tuple[str, float, float]] = []
    for subject in subjects():
        if options.is_quick and subject.name in LARGE:
            continue
        network = subject.build(device)
        windows = subject.windows(N_WINDOWS)
        alone = forward_alone(network, windows, device)
        served = forward_served(network, windows, device, MAX_WINDOWS)
        rows.append((subject.name, lowest_cosine(alone, served), largest_difference(alone, served)))
    lowest = min(cosine for _, cosine, _ in rows)
    return Result(
        NAME,
        values={
            "lowest_cosine": lowest,
            "device": str(device),
            "by_model": {
                name: {"lowest_cosine": cosine, "largest_difference": difference}
                for name, cosine, difference in rows
            },
        },
        columns=("model", "lowest cosine", "largest relative difference"),
        rows=[(name, f"{cosine:.8f}", difference) for name, cosine, difference in rows],
        targets=(Target("lowest_cosine", lowest, 0.9999),),
        draw=lambda axes: _draw(axes, rows),
    )


def _draw(axes: "Axes", rows: list[tuple[str, float, float]]) -> None:
    names = [name for name, _, _ in rows]
    axes.barh(names, [max(1 - cosine, 1e-16) for _, cosine, _ in rows])
    axes.axvline(1e-4, color="tab:red", label="allowed")
    axes.set(xscale="log", xlabel="1 - lowest cosine", title="A batch row against the window alone")
    axes.legend()
