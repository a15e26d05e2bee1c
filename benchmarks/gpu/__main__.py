"""All GPU checks and benchmarks in one command: ``python -m benchmarks.gpu [--dry]``.

First the checks, then the benchmarks, each as a table; results go to benchmarks/results. Needs
torch, transformers, safetensors, numpy, matplotlib, rich, PyYAML and pydantic; with PyAV and soxr
the files are MP3s, and with all that afa installs, the service is started too. ``--dry`` runs all
of it on the CPU, small and without results, so that on a GPU only the device is new.
"""

import sys

from benchmarks.gpu import check
from benchmarks.registry import run_benchmark
from benchmarks.report import Options

BENCHMARKS = ("gpu-embed", "gpu-e2e", "gpu-analysis", "gpu-frontends", "gpu-serve")


def main(arguments: list[str]) -> int:
    """Run everything; return the exit status."""
    is_dry = arguments == ["--dry"]
    if arguments and not is_dry:
        sys.stderr.write("usage: python -m benchmarks.gpu [--dry]\n")
        return 2
    options = Options(rounds=1 if is_dry else 5, is_dry=is_dry)
    status = check.main([], options)
    for name in BENCHMARKS:
        run_benchmark(name, options=options)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
