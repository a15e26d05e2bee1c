"""What can go wrong in the library.

AfaError
├── AudioError     a file cannot be read or analysed: ``path``, ``code``
├── ModelError     a checkpoint is unknown, missing here, or not what its card says
├── MachineError   the decoder or the device does not work on this machine
└── LibraryError   a library cannot be opened, or lacks what you asked for
"""

from pathlib import Path


class AfaError(Exception):
    """Root of all errors of the library; the text says what to do."""


class AudioError(AfaError):
    """A file cannot be read or analysed.

    Attributes:
        path: The file.
        code: The service's error code: ``unprocessable_audio``, ``audio_too_short`` or
            ``audio_too_long``; ``unreadable`` if there is no file to read.
    """

    def __init__(self, path: Path, code: str, message: str) -> None:
        super().__init__(path, code, message)
        self.path = path
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ModelError(AfaError):
    """A checkpoint is unknown, missing here, or not what its card says."""


class MachineError(AfaError):
    """The decoder or the device does not work on this machine."""


class LibraryError(AfaError):
    """A library cannot be opened, or lacks what you asked for."""
