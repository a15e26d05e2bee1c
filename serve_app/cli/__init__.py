"""The `afa` command."""

import gc
import os
import signal
import sys
from io import TextIOWrapper

from serve_app.local import ending as ending  # first: what ends the process has to be called last

INTERRUPTED = 130
"""The status that shells give to what Ctrl-C ended."""


def run() -> None:
    """Run the command line. Loading it takes a second, in which Ctrl-C just ends the process."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not under nohup
    if is_default:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    if isinstance(sys.stdout, TextIOWrapper):  # a locale may lack what names and tables are made of
        sys.stdout.reconfigure(errors="backslashreplace")
    gc.disable()  # what is loaded stays: looking for garbage among it took a seventh of the start
    from serve_app.cli.main import main

    gc.freeze()
    gc.enable()
    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
