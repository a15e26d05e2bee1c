"""Read what a run keeps on disk between its parts; errors name the damaged file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from pipelines.training.plan import PlanError


@contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """Open kept arrays; opened here, since NumPy does not close a damaged file that it opened.

    Raises:
        PlanError: They are damaged.
        OSError: The file does not exist, or is not readable.
    """
    how = f"{path} is damaged; remove it, and a run of all parts makes it again"
    with told_as(how), path.open("rb") as file:
        yield file


@contextmanager
def told_as(damage: str) -> Iterator[None]:
    """Raise any error with this message, except that a file is missing or not readable."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # readers of damaged files raise a dozen kinds, OSError too
        raise PlanError(damage) from error
