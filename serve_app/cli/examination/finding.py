"""The findings of checks, and what happens if a check itself fails."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from redis.exceptions import RedisClusterException, RedisError

from serve_app.cli.environment import reason
from serve_app.domain.errors import AfaError

ORDINARY = (AfaError, OSError, ValueError, RedisError, RedisClusterException)
"""Errors whose text says enough; for others the type is reported too."""

REPORT = "afa did not expect this: please report it"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked.

    Attributes:
        part: What it belongs to.
        state: Its state.
        remedy: What to do; "" if nothing needs to be done.
        is_fault: Whether something is wrong; otherwise the remedy is advice.
    """

    part: str
    state: str
    remedy: str = ""
    is_fault: bool = False


def fault(part: str, state: str, remedy: str) -> Finding:
    """Make a finding that something is wrong."""
    return Finding(part, state, remedy, is_fault=True)


def attempt(
    part: str, look: Callable[[], Iterable[Finding]], remedy: str = REPORT
) -> Iterator[Finding]:
    """Run a check; if it fails, that is a fault of the part, and the next check can run.

    Args:
        part: The part that is checked.
        look: Returns what is found.
        remedy: What to do about an ordinary error.
    """
    try:
        yield from look()
    except ORDINARY as error:
        yield fault(part, reason(error).partition("\n")[0], remedy)
    except Exception as error:  # noqa: BLE001  whatever it is, the others are checked
        yield fault(part, f"{type(error).__name__}: {error}", REPORT)
