"""How a process ends, of the `afa` command and of the service.

It ends without the interpreter being taken apart: a thread of obstore or Lance that wants Python
at that moment aborts the process, whatever the command had to say
(https://github.com/PyO3/pyo3-async-runtimes/issues/40).
"""

import atexit
import os
import signal
import sys
from typing import NoReturn

_status: int | None = None


def end(status: int) -> NoReturn:
    """End the process; below zero by a signal of that number, as `subprocess` tells it."""
    global _status
    _status = status
    sys.exit(status)


@atexit.register
def _leave() -> None:
    """Leave; registered before what other modules have to do at the end, and so called last."""
    if _status is None:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # as where it was closed before the command began
                stream.flush()
    except OSError:
        os._exit(_status or 1)
    if _status < 0:
        signal.signal(-_status, signal.SIG_DFL)
        signal.raise_signal(-_status)
    os._exit(_status)
