"""Let torchaudio run with a CPU-only torch: `python -m serve_app.local.torchaudio_cpu`.

The published torchaudio wheel has a native extension built for CUDA, and importing it with a CPU
build of torch fails; torchaudio treats a *missing* extension as "not built" and runs in pure torch.
So `make` renames the extension files, once (idempotent; nothing happens with a CUDA torch).
"""

import importlib.util
import sys
from pathlib import Path

SUFFIX = ".cuda-only"


def disable_cuda_extension(library_folder: Path) -> list[Path]:
    """Rename torchaudio's native extension files in ``library_folder``; return their new paths."""
    return [
        path.rename(path.with_name(path.name + SUFFIX))
        for path in sorted(library_folder.glob("*torchaudio*.so"))
    ]


def main() -> None:
    """Rename the extension of the installed torchaudio if torch has no CUDA build."""
    import torch

    spec = importlib.util.find_spec("torchaudio")
    if torch.version.cuda is not None or spec is None or spec.origin is None:
        return
    renamed = disable_cuda_extension(Path(spec.origin).parent / "lib")
    if renamed:
        sys.stdout.write(f"torchaudio: {len(renamed)} CUDA-only extension files set aside\n")


if __name__ == "__main__":
    main()
