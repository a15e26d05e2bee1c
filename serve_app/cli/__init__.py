"""The `afa` command."""

import os
import signal

from serve_app.local import ending as ending  # first: what ends the process has to be called last

INTERRUPTED = 130
"""The status that shells give to what Ctrl-C ended."""


def run() -> None:
    """Run the command line. Loading it takes a second, in which Ctrl-C just ends the process."""
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not under nohup
    if is_default:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    from serve_app.cli.main import main

    if is_default:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
