"""Facts about the current request or job for its log lines: trace, job, account, route.

Invariant: an account is written as a pseudonym, which nobody can derive without the key pepper.
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
    """Return an account's name in logs: always the same, and revealing nothing else about it."""
    digest = hmac.new(_pepper, b"log:" + account.encode(), hashlib.sha256)
    return digest.hexdigest()[:PSEUDONYM_DIGITS]


@contextmanager
def about(**facts: str) -> Iterator[None]:
    """Add these facts to the log lines of the body and of the tasks that it starts."""
    token = _facts.set(dict(facts))
    try:
        yield
    finally:
        _facts.reset(token)


def note(**facts: str) -> None:
    """Add facts to those of the surrounding body, if there is one."""
    known = _facts.get()
    if known is not None:
        known.update(facts)


def known_facts() -> Mapping[str, str]:
    """Return the current facts."""
    return _facts.get() or {}
