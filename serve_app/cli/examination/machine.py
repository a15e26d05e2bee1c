"""What this machine offers: its device, the decoder's sandbox, memory, and space."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from configs.settings import Settings
from pipelines.audio.decode import DecoderUnavailableError, active_walls
from serve_app.cli.examination.finding import Finding, fault
from serve_app.composition.files import LocalFiles

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  where Ray keeps objects

LEAST_FREE_GB, COMFORTABLE_GB = 2, 20
LEAST_SHARED_MEMORY_GB = 1
COMFORTABLE_MEMORY = 0.15
"""Share of the memory that other programs should leave; Ray ends processes below .05."""


def of_device(settings: Settings) -> Iterator[Finding]:
    """Check the GPU, its driver and the build of torch."""
    import torch

    from afa.device import age_fault

    build = f"torch {torch.__version__}, built for " + (
        f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU"
    )
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]
        state = f"{build}; {', '.join(names)}"
        index = int(settings.device.partition(":")[2] or 0)
        if index >= len(names):
            remedy = f"the last one here is AFA_DEVICE=cuda:{len(names) - 1}"
            yield fault("device", f"{state}; there is no {settings.device}", remedy)
        elif settings.device != "cpu" and (too_old := age_fault(index)):
            yield fault("device", f"{build}; {too_old}", "AFA_DEVICE=cpu does without it")
        else:
            yield Finding("device", state)
        return
    is_asked_for = settings.device.startswith("cuda")
    if not is_asked_for and not Path("/proc/driver/nvidia/version").exists():
        yield Finding("device", f"{build}; no GPU")
        return
    yield fault(
        "device",
        f"{build}; a GPU is {'asked for' if is_asked_for else 'there'}, and CUDA finds none",
        "look at nvidia-smi (driver too old for this CUDA?), CUDA_VISIBLE_DEVICES, whether a "
        "container was started with `--gpus all`, and whether torch is a CPU build",
    )


def of_decoder() -> Iterator[Finding]:
    """Check the sandbox of the decoder for untrusted audio."""
    try:
        for wall, state in active_walls().items():
            yield Finding("decoder", f"{wall}: {state}")
    except DecoderUnavailableError as error:
        yield fault("decoder", str(error), "no audio is accepted until this is fixed")


def of_room(settings: Settings, files: LocalFiles) -> Iterator[Finding]:
    """Check the memory, and the space for data, checkpoints and Ray, once for each disk."""
    ray = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    if not os.access(standing(files.data_dir), os.W_OK):
        state = f"{standing(files.data_dir)} cannot be written to"
        yield fault("disk", state, "name another with --data-dir")
    seen = set()
    for folder, missing, elsewhere in (
        (files.data_dir, "a full disk stops the ledger", "--data-dir"),
        (settings.resolved_model_dir(), "checkpoints lie there", "AFA_MODEL_DIR"),
        (ray, "Ray stops without room for its files", "RAY_TMPDIR"),
    ):
        above = standing(folder)
        if not above.is_dir():
            yield fault("disk", f"{above} is not a folder", f"name another with {elsewhere}")
        elif above.stat().st_dev not in seen:
            seen.add(above.stat().st_dev)
            yield of_disk(above, f"{missing}: make room, or name another with {elsewhere}")
    yield of_memory()
    if SHARED_MEMORY.is_dir():
        yield of_shared_memory()


def standing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(one for one in (path, *path.parents) if one.exists())


def of_disk(folder: Path, remedy: str) -> Finding:
    """Check the free space of the disk that a folder is on."""
    free_gb = shutil.disk_usage(folder).free / 1e9
    state = f"{free_gb:.0f} GB free at {folder}"
    if free_gb < LEAST_FREE_GB:
        return fault("disk", state, remedy)
    return Finding("disk", state, "" if free_gb > COMFORTABLE_GB else "uploads and logs take room")


def of_memory() -> Finding:
    """Check whether programs leave so little memory that Ray ends processes."""
    memory = psutil.virtual_memory()
    state = f"{memory.available / 1e9:.1f} of {memory.total / 1e9:.1f} GB available"
    remedy = "below 5 % Ray ends afa's processes: end other programs, or add memory"
    is_little = memory.available < COMFORTABLE_MEMORY * memory.total
    return Finding("memory", state, remedy if is_little else "")


def of_shared_memory() -> Finding:
    """Check the shared memory through which the processes of a node pass audio."""
    free_gb = shutil.disk_usage(SHARED_MEMORY).free / 1e9
    remedy = "Ray takes the disk instead, which is slower; a container gets more by --shm-size=2g"
    is_little = free_gb < LEAST_SHARED_MEMORY_GB
    state = f"{free_gb:.1f} GB free at {SHARED_MEMORY}"
    return Finding("memory", state, remedy if is_little else "")
