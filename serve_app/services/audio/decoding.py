"""Counts the files given to the decoder, by outcome."""

from collections.abc import Iterator
from contextlib import contextmanager

from pipelines.audio.decode_answer import DecoderCrashedError, DecodingTooSlowError
from pipelines.audio.waveform import AudioError
from serve_app.domain.telemetry.metrics import DECODES


@contextmanager
def counted_decoding() -> Iterator[None]:
    """Count the one file that the block decodes, by outcome."""
    try:
        yield
    except AudioError as error:
        DECODES.record(1, outcome=outcome_of(error))
        raise
    DECODES.record(1, outcome="ok")


def outcome_of(error: AudioError) -> str:
    """Name how a decoder's child was killed, or why it refused the file."""
    match error:
        case DecodingTooSlowError():
            return "killed_too_slow"
        case DecoderCrashedError():
            return "killed_crashed"
        case _:
            return error.code
