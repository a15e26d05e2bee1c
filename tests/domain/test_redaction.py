"""No secret reaches a log, whichever way it is written into a record."""

import io
import logging
import subprocess
import sys

import pytest

from serve_app.domain.keys import new_key
from serve_app.domain.redaction import RedactedRecord, redact
from serve_app.domain.webhooks import new_salt, secret_of

KEY = new_key()
SECRET = secret_of("pepper", "acme", new_salt())
SIGNED = "https://ann:hush@bucket.example.org/a/b.mp3?X-Signature=0f0f&X-Expires=9#part"


@pytest.mark.parametrize(
    ("text", "redacted"),
    [
        (f"got {KEY} twice: {KEY}.", "got afa_live_… twice: afa_live_…."),
        (f"signed with {SECRET}, sent", "signed with whsec_…, sent"),
        (f"GET '{SIGNED}' failed", "GET 'https://bucket.example.org/a/b.mp3?…' failed"),
        ("redis://:hush@127.0.0.1:6379/0", "redis://127.0.0.1:6379/0"),
        ("unix:///tmp/a/redis.sock?db=1", "unix:///tmp/a/redis.sock?…"),
        ("see https://afa.example.org/docs", "see https://afa.example.org/docs"),
        ("ratio 3/4? yes: a@b", "ratio 3/4? yes: a@b"),
    ],
    ids=["key", "signing secret", "signed address", "password", "socket", "address", "no address"],
)
def test_secrets_are_cut(text: str, redacted: str) -> None:
    assert redact(text) == redacted
    assert redact(redacted) == redacted


def fail(text: str) -> None:
    raise ValueError(text)


def test_no_way_into_a_log_shows_a_secret() -> None:
    page = io.StringIO()
    logger = logging.getLogger("test-redaction")
    handler = logging.StreamHandler(page)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(RedactedRecord)
    try:
        logger.warning(f"in the text {KEY}")  # noqa: G004  one of the ways
        logger.warning("as text %s and %d", SIGNED, 3)
        logger.warning("as an object %r", ValueError(SECRET))
        logger.warning("by name %(url)s", {"url": SIGNED})
        try:
            fail(f"{SIGNED} {KEY}")
        except ValueError:
            logger.exception("in a traceback")
    finally:
        logging.setLogRecordFactory(before)
    written = page.getvalue()
    assert "as text https://bucket.example.org/a/b.mp3?… and 3" in written
    assert "ValueError: https://bucket.example.org" in written
    for secret in (KEY, SECRET, "hush", "0f0f"):
        assert secret not in written, written


PROGRAMS = {
    "commands": "from serve_app.cli.main import main; sys.argv = ['afa', 'no-such']; main()",
    "proxy": "from serve_app.api.proxy import middlewares; middlewares()",
    "stores": "from serve_app.composition.stores import open_stores\n"
    "from serve_app.composition.options import StoreOptions\n"
    "open_stores(StoreOptions(ledger_url='redis://127.0.0.1:1', cache_url='redis://127.0.0.1:1', "
    "object_store='file:///tmp', key_pepper='p'))",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_every_process_redacts_what_it_logs(program: str) -> None:
    code = f"import sys, logging\ntry:\n    exec({program!r})\nexcept SystemExit:\n    pass\n"
    code += f"logging.getLogger('any').warning('%s', {KEY!r})"
    # A command ends with its own status.
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "afa_live_…" in done.stderr, done.stderr
    assert KEY not in done.stderr
