"""Reads files: they are decoded in the same sandbox as strangers' uploads."""

from pathlib import Path

from afa.errors import AudioError, MachineError
from pipelines.audio.decode import DecodeLimits, DecoderUnavailableError, decode
from pipelines.audio.waveform import AudioError as PipelineAudioError
from pipelines.audio.waveform import Waveform

LIMITS = DecodeLimits(max_seconds=4 * 3600.0)


def read(path: Path) -> Waveform:
    """Decode a file.

    Raises:
        AudioError: The file is missing, or cannot be analysed.
        MachineError: This machine cannot decode any file.
    """
    try:
        return decode(path, LIMITS)
    except PipelineAudioError as error:
        raise AudioError(path, error.code, str(error)) from error
    except OSError as error:
        raise AudioError(path, "unreadable", f"cannot be read: {error.strerror}") from error
    except DecoderUnavailableError as error:
        raise MachineError(f"{error}; `afa doctor` says more") from error
