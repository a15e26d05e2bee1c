"""Where to measure: on a GPU, or dry on the CPU, with small networks to show that all runs."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from benchmarks.report import Options

NO_DEVICE = "there is no CUDA device here"


def device_for(options: Options) -> torch.device | None:
    """Return where to measure; None if there is no GPU and this is not a dry run."""
    if options.is_dry:
        return torch.device("cpu")
    return torch.device("cuda") if torch.cuda.is_available() else None


@contextmanager
def kernels(options: Options) -> Iterator[None]:
    """Compile nothing in a dry run: a CPU's kernels take minutes and show nothing."""
    with torch.compiler.set_stance("force_eager" if options.is_dry else "default"):
        yield
