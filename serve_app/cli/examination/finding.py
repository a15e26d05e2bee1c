"""What an examination finds, and what becomes of one that fails itself."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from redis.exceptions import RedisClusterException, RedisError

from serve_app.cli.environment import reason
from serve_app.domain.errors import AfaError

ORDINARY = (AfaError, OSError, ValueError, RedisError, RedisClusterException)
"""Errors whose text says enough; of the others the kind is told, too."""

REPORT = "afa did not expect this: please report it"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        part: What it belongs to.
        state: How it is.
        remedy: What to do; "" where nothing has to be done.
        is_fault: Whether the installation is wrong as it is; else the remedy is advice.
    """

    part: str
    state: str
    remedy: str = ""
    is_fault: bool = False


def fault(part: str, state: str, remedy: str) -> Finding:
    """Make a finding of something wrong."""
    return Finding(part, state, remedy, is_fault=True)


def attempt(
    part: str, look: Callable[[], Iterable[Finding]], remedy: str = REPORT
) -> Iterator[Finding]:
    """Look; where that fails, it is a fault of the part, and the next can be looked at.

    Args:
        part: What is looked at.
        look: Gives what is found.
        remedy: Against an ordinary error.
    """
    try:
        yield from look()
    except ORDINARY as error:
        yield fault(part, reason(error).partition("\n")[0], remedy)
    except Exception as error:  # noqa: BLE001  whatever it is, the others are looked at
        yield fault(part, f"{type(error).__name__}: {error}", REPORT)
