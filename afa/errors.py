"""What can go wrong in the library.

AfaError
├── AudioError     a file cannot be read or analysed: ``path``, ``code``
├── ModelError     a checkpoint is not known, not here, or not what its card says
├── MachineError   the decoder or the device does not work on this machine
└── LibraryError   a library cannot be opened, or does not have what is asked for
"""

from pathlib import Path


class AfaError(Exception):
    """Root of all errors of the library; the text says what to do."""


class AudioError(AfaError):
    """A file cannot be read or analysed.

    Attributes:
        path: Which.
        code: As the service says it: ``unprocessable_audio``, ``audio_too_short``,
            ``audio_too_long``; ``unreadable`` where there is no file to read.
    """

    def __init__(self, path: Path, code: str, message: str) -> None:
        super().__init__(path, code, message)
        self.path = path
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


class ModelError(AfaError):
    """A checkpoint is not known, not here, or not what its card says."""


class MachineError(AfaError):
    """The decoder or the device does not work on this machine."""


class LibraryError(AfaError):
    """A library cannot be opened, or does not have what is asked for."""
