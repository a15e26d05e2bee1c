"""What a command says of an error, in one line."""

import errno

from serve_app.cli.environment import reason
from serve_app.domain.errors import ServiceUnavailableError


def test_an_error_of_the_system_is_told_without_its_number() -> None:
    assert reason(OSError(errno.ENOSPC, "No space left on device")) == "No space left on device"
    error = OSError(errno.EROFS, "Read-only file system", "/music")
    assert reason(error) == "/music: Read-only file system"
    assert reason(OSError("the bucket is away")) == "the bucket is away"


def test_a_cause_is_told_without_the_line_of_its_source() -> None:
    error = ServiceUnavailableError("the store is away; try again", 5)
    error.__cause__ = OSError(
        "LanceError(IO): No space left on device (os error 28), /home/x/lance-file/src/w.rs:254:9"
    )
    expected = (
        "the store is away; try again (LanceError(IO): No space left on device (os error 28))"
    )
    assert reason(error) == expected
