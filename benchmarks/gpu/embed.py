"""Seconds of audio embedded per second on a GPU, as deployments do it, against its limits.

Peers are eager single precision and a bare loop over the served network; the limits are the rate at
which this GPU multiplies large bfloat16 matrices, the copies to it, and decoding on this machine,
all measured here. Random weights: speed does not depend on them. On a bare node: ``python -m
benchmarks.gpu``.
"""

import asyncio
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from benchmarks.gpu.dry import NO_DEVICE, device_for, kernels
from benchmarks.gpu.roofs import Roofs, bound, measure_roofs
from benchmarks.gpu.served import SUBJECTS, Served, loop_rate, served
from benchmarks.gpu.track_file import track_file
from benchmarks.report import Options, Result, Target, interleave, median_ratio

NAME = "gpu-embed"

ROUND_S, DRY_ROUND_S = 2.0, 0.02


@dataclass(frozen=True, slots=True)
class Found:
    """One model's median windows per second by contender, and the batcher's ratios to its peers."""

    rates: dict[str, float]
    of_loop: float
    of_single: float
    shares: dict[str, float]


def run(options: Options) -> Result:
    """Measure both trunks, if there is a GPU."""
    device = device_for(options)
    if device is None:
        return Result(NAME, skipped=NO_DEVICE)
    rows, by_model, targets = [], {}, []
    for model_id in SUBJECTS:
        with kernels(options), served(model_id, device, options) as of:
            roofs, found, kernel_shares = measure(of, options)
        audio_s = found.rates["batcher"] * of.window_s
        name, shares = model_id, found.shares
        rows.append(
            (name, audio_s, *shares.values(), found.of_loop, found.of_single, bound(shares))
        )
        by_model[name] = {
            "audio_s_per_s": audio_s,
            "shares": shares,
            "bound_by": bound(shares),
            "kernel_shares": kernel_shares,
            "batcher_to_bare_loop": found.of_loop,
            "batcher_to_one_at_a_time": found.of_single,
            "windows_per_s": found.rates,
            "gflop_per_window": of.gflop,
            "batch": of.batch,
            "roofs": roofs.as_values(),
        }
        targets += [
            Target(f"{name}: share of matrix rate", shares["matrix"], 0.45),
            Target(f"{name}: batcher / bare loop", found.of_loop, 0.95),
            Target(f"{name}: batcher / one at a time", found.of_single, 16.0),
        ]
    return Result(
        NAME,
        values={"rounds": options.rounds, "by_model": by_model},
        columns=(
            "model",
            "audio s/s",
            "of matrix rate",
            "of copy roof",
            "of decode",
            "of bare loop",
            "of one at a time",
            "bound by",
        ),
        rows=rows,
        targets=() if options.is_dry else targets,
    )


def measure(of: Served, options: Options) -> tuple[Roofs, Found, dict[str, float]]:
    """Compare the served network with its peers and the roofs, in interleaved rounds.

    Also returns the share of its time by kernel.
    """
    round_s = DRY_ROUND_S if options.is_dry else ROUND_S
    with asyncio.Runner() as runner, track_file(of.subject.sample_rate, options) as file:
        runner.run(of.step.compile())

        def read() -> float:
            of.step.prepare(file.read(file.path))
            return file.duration_s

        roofs = measure_roofs(of.device, read, options)
        # Freed before the next, so that the served network has the device to itself.
        eager = _eager_rates(of, of.batch, torch.float32, round_s, options)
        single = _eager_rates(of, 1, torch.bfloat16, round_s, options)
        contenders: dict[str, Callable[[], float]] = {
            "bare loop": lambda: runner.run(of.loop_rate(round_s)),
            "batcher": lambda: runner.run(of.served_rate(round_s)),
        }
        found = interleave(contenders, options.rounds)
        kernel_shares = runner.run(of.kernel_shares())
    found |= {"eager float32": eager, "one at a time": single}
    rates = {name: statistics.median(of_one) for name, of_one in found.items()}
    measured = Found(
        rates,
        of_loop=median_ratio(found["batcher"], found["bare loop"]),
        of_single=rates["batcher"] / rates["one at a time"],
        shares=roofs.shares(rates["batcher"], of),
    )
    return roofs, measured, kernel_shares


def _eager_rates(
    of: Served, batch: int, dtype: torch.dtype, round_s: float, options: Options
) -> list[float]:
    model = of.alone(dtype)
    work = partial(loop_rate, model.forward, of.windows(batch).to(of.device), round_s)
    return interleave({"eager": work}, options.rounds)["eager"]
