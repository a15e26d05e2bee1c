"""No secret reaches a log, whichever way it is written into a record."""

import io
import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest

from serve_app.domain.keys import new_key
from serve_app.domain.redaction import RedactedRecord, redact, redact_logs
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


@pytest.fixture
def redacting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Logs are redacted during the test."""
    before = logging.getLogRecordFactory()
    monkeypatch.setattr(logging.Logger, "makeRecord", logging.Logger.makeRecord)
    redact_logs()
    yield
    logging.setLogRecordFactory(before)


class OwnWay(logging.Formatter):
    """Takes what it likes from a record, as JSON formatters do."""

    def format(self, record: logging.LogRecord) -> str:
        traceback = self.formatException(record.exc_info) if record.exc_info else ""
        return f"{traceback} {vars(record)}"


@pytest.mark.parametrize("kind", [logging.Formatter, OwnWay])
@pytest.mark.usefixtures("redacting")
def test_no_way_into_a_log_shows_a_secret(kind: type[logging.Formatter]) -> None:
    page = io.StringIO()
    logger = logging.Logger("test-redaction")  # noqa: LOG001  for this test only
    handler = logging.StreamHandler(page)
    handler.setFormatter(kind("%(levelname)s %(message)s"))
    logger.addHandler(handler)
    logger.warning(f"in the text {KEY}")  # noqa: G004  one of the ways
    logger.warning("as text %s and %d", SIGNED, 3)
    if kind is logging.Formatter:
        logger.warning("as an object %r", ValueError(SECRET))
        logger.warning("by name %(url)s", {"url": SIGNED})
    logger.warning("beside it", extra={"url": SIGNED, "headers": [{"Authorization": KEY}, (KEY,)]})
    try:
        fail(f"{SIGNED} {KEY}")
    except ValueError:
        logger.exception("in a traceback")
    written = page.getvalue()
    assert "https://bucket.example.org/a/b.mp3?…" in written
    assert "ValueError: https://bucket.example.org" in written
    for secret in (KEY, SECRET, "hush", "0f0f"):
        assert secret not in written, written


def test_a_stack_shows_no_secret() -> None:
    record = RedactedRecord("any", 30, "a.py", 1, "text", (), None, None, f'log("{KEY}")')
    assert record.stack_info == 'log("afa_live_…")'


@pytest.mark.usefixtures("redacting")
def test_whatever_stands_beside_the_message_is_taken() -> None:
    ring: dict[str, object] = {"key": KEY}
    ring["itself"] = ring
    extra = {"by_pair": {("a", 1): KEY}, "several": {SIGNED}, "pair": (KEY, 2), "ring": ring}
    record = logging.getLogger("test").makeRecord(
        "any", 30, "a.py", 1, "text", (), None, extra=extra
    )
    told = vars(record)
    assert told["by_pair"] == {("a", 1): "afa_live_…"}
    assert told["several"] == {"https://bucket.example.org/a/b.mp3?…"}
    assert told["pair"] == ("afa_live_…", 2)
    assert KEY not in repr(told["ring"])


def test_an_error_keeps_its_name() -> None:
    record = RedactedRecord(
        "any", 40, "a.py", 1, "text", (), (ValueError, ValueError(KEY), None), None
    )
    assert isinstance(record.exc_info, tuple)
    kind, error, _ = record.exc_info
    assert kind is not None
    assert (kind.__module__, kind.__qualname__) == ("builtins", "ValueError")
    assert KEY not in str(error)


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
