"""Keep what has been loaded out of garbage collections, so that they do not halt a replica.

Python's full collection walks every object that imports and checkpoints have made, 70 ms and more
during which no thread runs: long enough to hold up a whole batch, or all calls of an Api replica.
"""

import gc
from threading import Lock

_freezing = Lock()


def freeze_loaded() -> None:
    """Free what is garbage now, and leave what remains out of all later collections.

    To be called, in a thread, when something has been loaded that stays, and when something of it
    has been let go: only this frees what was left out before.
    """
    with _freezing:  # one must not leave out what another is about to free
        gc.unfreeze()
        gc.collect()
        gc.freeze()
