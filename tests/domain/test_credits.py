"""Credits, payments and webhooks as plain types."""

import pickle
from datetime import UTC, datetime

import pytest

from serve_app.domain.credits import (
    AuditReport,
    Balance,
    HoldClosedError,
    HoldMismatchError,
    Mismatch,
)
from serve_app.domain.payments import TopupSettings
from serve_app.domain.webhooks import new_salt, secret_of, sign


def test_remaining_counts_every_bucket() -> None:
    ends = datetime(2026, 12, 1, tzinfo=UTC)
    balance = Balance("a", 5, 7, 20, 3, "2026-11", 60, 0, 0, 9, None, ends)
    assert balance.remaining == -8


@pytest.mark.parametrize(
    "error", [HoldClosedError("h1", "voided"), HoldMismatchError("h1 differs")]
)
def test_errors_cross_process_boundaries(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is type(error)
    assert (again.message, again.args) == (error.message, error.args)  # type: ignore[attr-defined]


def test_report_is_clean_without_mismatches() -> None:
    assert AuditReport(1, 2, 0, ()).is_clean
    assert not AuditReport(1, 2, 0, (Mismatch("a", "balance", "x"),)).is_clean


@pytest.mark.parametrize("values", [(-1, 1, 1, 1), (0, 0, 1, 1), (0, 1, 0, 1), (0, 1, 1, 0)])
def test_senseless_topups_are_refused(values: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        TopupSettings(*values)


def test_signature_is_the_published_one() -> None:
    """The example of the reference libraries (github.com/standard-webhooks/standard-webhooks)."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - published example
    signature = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_secrets_sign_and_differ() -> None:
    salt = new_salt()
    secret = secret_of("pepper", "acme", salt)
    assert secret == secret_of("pepper", "acme", salt)
    others = [("pepper", "acme", new_salt()), ("pepper", "bob", salt), ("other", "acme", salt)]
    assert len({secret, *(secret_of(*other) for other in others)}) == 4
    assert sign(secret, "m", 1, b"x").startswith("v1,")
    with pytest.raises(ValueError, match="whsec_"):
        sign("secret", "m", 1, b"x")
