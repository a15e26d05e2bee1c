"""The `afa` command."""

import gc
import os
import signal
import sys
from io import TextIOWrapper

from serve_app.local import ending as ending  # first, since its exit function must be called last

INTERRUPTED = 130
"""Status that shells report for a command that Ctrl-C ended."""


def run() -> None:
    """Run the command line. Loading it takes a second, in which Ctrl-C just ends the process."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not under nohup
    if is_default:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    if isinstance(sys.stdout, TextIOWrapper):  # a locale may lack characters of names and tables
        sys.stdout.reconfigure(errors="backslashreplace")
    gc.disable()  # what is loaded stays: collecting garbage took a seventh of the start
    from serve_app.cli.main import main

    gc.freeze()
    gc.enable()
    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
