"""Keep what has been loaded out of garbage collections, so that they do not pause a replica.

Python's full collection visits every object that imports and checkpoints have made, for 70 ms or
more, during which no thread runs: long enough to delay a whole batch, or all calls of an Api
replica.
"""

import gc
from threading import Lock

_freezing = Lock()


def freeze_loaded() -> None:
    """Free what is garbage now, and exclude what remains from all later collections.

    Call it, in a thread, when something that stays has been loaded, and when part of it has been
    released: only this frees what was excluded before.
    """
    with _freezing:  # one call must not exclude what another is about to free
        gc.unfreeze()
        gc.collect()
        gc.freeze()
