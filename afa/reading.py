"""Files on their way in: decoded behind the same walls as strangers' uploads."""

from pathlib import Path

from afa.errors import AudioError, MachineError
from pipelines.audio.decode import DecodeLimits, DecoderUnavailableError, decode
from pipelines.audio.waveform import AudioError as PipelineAudioError
from pipelines.audio.waveform import Waveform

LIMITS = DecodeLimits(max_seconds=4 * 3600.0)


def read(path: Path) -> Waveform:
    """Decode a file.

    Raises:
        AudioError: It is not there, or not fit for analysis.
        MachineError: Nothing can be decoded on this machine.
    """
    try:
        return decode(path, LIMITS)
    except PipelineAudioError as error:
        raise AudioError(path, error.code, str(error)) from error
    except OSError as error:
        raise AudioError(path, "unreadable", f"cannot be read: {error.strerror}") from error
    except DecoderUnavailableError as error:
        raise MachineError(f"{error}; `afa doctor` tells more") from error
