"""Ends the processes of the `afa` command and of the service.

They end without finalising the interpreter: a thread of obstore or Lance that needs Python at that
moment would abort the process, whatever status the command had
(https://github.com/PyO3/pyo3-async-runtimes/issues/40).
"""

import atexit
import os
import signal
import sys
from typing import NoReturn

_status: int | None = None


def end(status: int) -> NoReturn:
    """End the process; a negative status means the signal with that number, as in `subprocess`."""
    global _status
    _status = status
    sys.exit(status)


@atexit.register
def _leave() -> None:
    """Leave the process; registered before other modules' exit functions, so called last."""
    if _status is None:
        return
    try:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # None if it was closed before the command began
                stream.flush()
    except OSError:
        os._exit(_status or 1)
    if _status < 0:
        signal.signal(-_status, signal.SIG_DFL)
        signal.raise_signal(-_status)
    os._exit(_status)
