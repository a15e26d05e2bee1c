"""How benchmarks measure and report: interleaved rounds, medians, a table, JSON and a plot.

Invariant: a figure never appears without the machine on which it was measured.
"""

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class Target:
    """A bound on one figure.

    Attributes:
        at_least: True for a lower bound, False for an upper one.
    """

    name: str
    value: float
    bound: float
    at_least: bool = True

    @property
    def is_met(self) -> bool:
        """Whether the figure is within the bound."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass(frozen=True, slots=True)
class Options:
    """How thoroughly to measure.

    Attributes:
        rounds: Repetitions of every contender, interleaved.
        is_quick: Leave out what is only needed for plots, and shorten the rest.
        is_dry: Run GPU benchmarks on the CPU, with small random networks, to check that they run;
            the figures are meaningless and not kept.
    """

    rounds: int = 5
    is_quick: bool = False
    is_dry: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """A benchmark's result.

    Attributes:
        values: Figures, as written to the JSON.
        columns: Header of the table.
        rows: Its rows.
        draw: Draws the plot.
        skipped: Why nothing was measured; "" if something was.
        variant: Appended to the result file's name, so that a run of another size does not replace
            the recorded one.
    """

    name: str
    values: Mapping[str, Any] = field(default_factory=dict)
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    targets: Sequence[Target] = ()
    draw: "Callable[[Axes], None] | None" = None
    skipped: str = ""
    variant: str = ""


def interleave(
    contenders: Mapping[str, Callable[[], float]], rounds: int
) -> dict[str, list[float]]:
    """Measure every contender once per round, so that a noisy host affects all equally."""
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, measure in contenders.items():
            found[name].append(measure())
    return found


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Median of the ratios of paired rounds."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


def machine() -> dict[str, Any]:
    """Describe this machine and the load on it."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].partition(":")[2].strip() if lines else model
    return {
        "cpu": model,
        "n_cores": os.cpu_count(),
        "system": platform.system(),
        "python": platform.python_version(),
        **_gpu(),
        "load_1_min": round(os.getloadavg()[0], 2),
    }


def _gpu() -> dict[str, Any]:
    """Describe the GPU, its driver and the versions of the software on it; None without one."""
    import torch

    if not torch.cuda.is_available():
        return {"gpu": None}
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        driver = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        drivers = []
    else:
        drivers = driver.stdout.split()
    return {
        "gpu": torch.cuda.get_device_name(),
        "driver": drivers[0] if drivers else None,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }


def as_json(result: Result) -> dict[str, Any]:
    """Return the content of the result file."""
    return {
        "benchmark": result.name,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        **({"skipped": result.skipped} if result.skipped else {}),
        **result.values,
        "targets": [
            {
                "name": target.name,
                "value": target.value,
                "bound": ("≥ " if target.at_least else "≤ ") + f"{target.bound:g}",
                "met": target.is_met,
            }
            for target in result.targets
        ],
    }


def show(result: Result, console: "Console") -> None:
    """Print the table and the targets."""
    from rich.table import Table

    if result.skipped:
        console.print(f"{result.name}: skipped, {result.skipped}")
        return
    table = Table(*result.columns, title=result.name)
    for row in result.rows:
        table.add_row(*(f"{cell:.4g}" if isinstance(cell, float) else str(cell) for cell in row))
    console.print(table)
    for target in result.targets:
        sign = "≥" if target.at_least else "≤"
        verdict = "met" if target.is_met else "MISSED"
        console.print(f"  {target.name} {target.value:.4g} ({sign} {target.bound:g}): {verdict}")


def write(result: Result, json_path: Path) -> None:
    """Write the result file, and the plot next to it."""
    json_path.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(as_json(result), indent=2, ensure_ascii=False)
    json_path.write_text(content + "\n", encoding="utf-8")
    if result.draw is not None:
        from matplotlib.figure import Figure

        figure = Figure(figsize=(7, 4.5), layout="constrained")
        result.draw(figure.subplots())
        figure.savefig(json_path.with_suffix(".png"), dpi=120)
