"""Where to measure: on a GPU, or dry on the CPU, where small networks show that all of it runs."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from benchmarks.report import Options

NO_DEVICE = "there is no CUDA device here"


def device_for(options: Options) -> torch.device | None:
    """Return where to measure; None where there is no GPU, and no dry run is wanted."""
    if options.is_dry:
        return torch.device("cpu")
    return torch.device("cuda") if torch.cuda.is_available() else None


@contextmanager
def kernels(options: Options) -> Iterator[None]:
    """Let nothing be compiled in a dry run: a CPU's kernels take minutes and tell nothing."""
    with torch.compiler.set_stance("force_eager" if options.is_dry else "default"):
        yield
