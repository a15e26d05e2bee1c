"""Whose request or job this is, for every log line on its way: trace, job, account, route.

Invariant: an account is written as a pseudonym, which nobody can make without the key pepper.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache

_facts: ContextVar[dict[str, str] | None] = ContextVar("afa_facts", default=None)
_pepper = b""

PSEUDONYM_DIGITS = 16


def use_pepper(pepper: str) -> None:
    """Make pseudonyms with the secret that API keys are hashed with."""
    global _pepper
    _pepper = pepper.encode()
    pseudonym.cache_clear()


@lru_cache(maxsize=4096)
def pseudonym(account: str) -> str:
    """Return what logs call an account: the same for the same account, and nothing else of it."""
    digest = hmac.new(_pepper, b"log:" + account.encode(), hashlib.sha256)
    return digest.hexdigest()[:PSEUDONYM_DIGITS]


@contextmanager
def about(**facts: str) -> Iterator[None]:
    """Have the log lines of the body, and of the tasks that it starts, carry these facts."""
    token = _facts.set(dict(facts))
    try:
        yield
    finally:
        _facts.reset(token)


def note(**facts: str) -> None:
    """Add facts to those of the body that this is called in, if there is one."""
    known = _facts.get()
    if known is not None:
        known.update(facts)


def known_facts() -> Mapping[str, str]:
    """Return the facts of this moment."""
    return _facts.get() or {}
