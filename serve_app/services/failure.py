"""What is wrong with one file of many, in the form of the API's errors."""

from dataclasses import dataclass

from pipelines.audio.waveform import AudioError
from serve_app.domain.errors import AfaError
from serve_app.providers.web.url_guard import UrlError


@dataclass(frozen=True, slots=True)
class Failure:
    """What is wrong with a file, with a code like those of the API's errors."""

    code: str
    message: str

    @classmethod
    def of(cls, error: Exception) -> "Failure":
        """Turn an exception into what is wrong with a file."""
        match error:
            case AfaError():
                return cls(error.code, error.message)
            case AudioError():
                return cls(error.code, str(error))
            case UrlError():
                return cls("url_fetch_failed", str(error))
            case OSError():
                return cls("unreadable", reason_of(error))
            case _:
                return cls("internal_error", repr(error))


def reason_of(error: OSError) -> str:
    """Return why a file or folder could not be read, for a line that begins with its name."""
    if isinstance(error, FileNotFoundError):
        return "no such file"
    return error.strerror or str(error)
