"""Reading what a run keeps on disk between its parts: a damaged file is told by its name."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pipelines.training.plan import PlanError


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """Read arrays that were kept; numpy leaves a damaged file open that it has opened itself.

    Raises:
        PlanError: They are damaged.
        OSError: There is no such file, or it may not be read.
    """
    how = f"{path} is damaged; remove it, and a run of all parts makes it anew"
    with told_as(how), path.open("rb") as file:
        yield file


@contextmanager
def told_as(damage: str) -> Iterator[None]:
    """Tell all that goes wrong in these words, but that a file is not there or not allowed."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # readers of damaged files raise a dozen kinds, OSError too
        raise PlanError(damage) from error
