"""What loading leaves to later garbage collections, and what releasing frees."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from serve_app.checkpoints.freeze import freeze_loaded


class Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def thaw() -> Iterator[None]:
    yield
    gc.unfreeze()


def test_what_stays_is_left_out_of_collections_until_it_is_let_go() -> None:
    loaded = Node()
    freeze_loaded()
    assert gc.get_freeze_count() > 10_000
    assert not any(known is loaded for known in gc.get_objects())
    seen = weakref.ref(loaded)
    del loaded
    gc.collect()
    assert seen() is not None
    freeze_loaded()
    assert seen() is None


def test_garbage_goes_at_once() -> None:
    seen = weakref.ref(Node())
    freeze_loaded()
    assert seen() is None
