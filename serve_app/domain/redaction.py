"""Keeps secrets out of logs: keys, signing secrets, and users, passwords and queries of addresses.

Invariant: it works where records are made, so no handler of the process can bypass it, whatever
adds it and when.
"""

import logging
import re
import traceback
from functools import partial
from typing import Any

from serve_app.domain.keys import KEY_PATTERN, LIVE_PREFIX
from serve_app.domain.webhooks import SECRET_PREFIX

_SECRET = re.compile(rf"{SECRET_PREFIX}[A-Za-z0-9+/=_-]+")
_URL = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?:[^\s/?#@'\"<>]*@)?(?P<rest>[^\s?#'\"<>]*)"
    r"(?P<query>\?[^\s'\"<>]*)?",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Shorten keys and secrets, and remove user, password and query from addresses."""
    text = KEY_PATTERN.sub(lambda match: match.group()[: len(LIVE_PREFIX)] + "…", text)
    text = _SECRET.sub(f"{SECRET_PREFIX}…", text)
    return _URL.sub(_plain_url, text)


def _plain_url(match: re.Match[str]) -> str:
    return match["scheme"] + match["rest"] + ("?…" if match["query"] else "")


class RedactedError(Exception):
    """Replaces an exception in a record: its traceback as text, without secrets."""


class RedactedRecord(logging.LogRecord):
    """A record whose text, arguments, traceback and stack contain no secret."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.msg = redact(self.msg) if isinstance(self.msg, str) else self.msg
        if isinstance(self.args, tuple):
            self.args = tuple(redact(arg) if isinstance(arg, str) else arg for arg in self.args)
        if self.stack_info:
            self.stack_info = redact(self.stack_info)
        if self.exc_info and self.exc_info[0] is not None:
            # Formatters use a traceback that is already there; one that does not also writes this.
            self.exc_text = redact("".join(traceback.format_exception(*self.exc_info))).rstrip()
            error = self.exc_info[0]
            kind = type(error.__name__, (RedactedError,), {"__module__": error.__module__})
            self.exc_info = (kind, kind(self.exc_text), None)

    def getMessage(self) -> str:  # noqa: N802  logging's name
        """Return the message; arguments that are not text may also write a secret."""
        return redact(super().getMessage())


_make_record = logging.Logger.makeRecord
DEEPEST = 8
"""Levels of ``extra`` that are redacted; logged data may contain itself."""
_OWN = frozenset(logging.makeLogRecord({}).__dict__)


def make_record(logger: logging.Logger, *args: Any, **kwargs: Any) -> logging.LogRecord:
    """Make a record, as `logging.Logger` does, but without secrets in ``extra``."""
    record = _make_record(logger, *args, **kwargs)
    for name in record.__dict__.keys() - _OWN:
        record.__dict__[name] = redact_data(record.__dict__[name])
    return record


def redact_data(value: object, depth: int = DEEPEST) -> object:
    """Redact all texts in plain data; deeper levels are left out."""
    if not depth:
        return "…"
    inner = partial(redact_data, depth=depth - 1)
    match value:
        case str():
            return redact(value)
        case dict():
            return {
                redact(key) if isinstance(key, str) else key: inner(item)
                for key, item in list(value.items())  # another thread may change it
            }
        case list():
            return list(map(inner, value))
        case tuple():
            return tuple(map(inner, value))
        case set() | frozenset():
            return frozenset(map(inner, value))
    return value


def redact_logs() -> None:
    """Redact every record that this process makes from now on."""
    logging.setLogRecordFactory(RedactedRecord)
    # Loggers add ``extra`` after the factory has made the record.
    logging.Logger.makeRecord = make_record  # type: ignore[assignment, method-assign]
