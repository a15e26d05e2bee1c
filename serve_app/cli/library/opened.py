"""The library of this installation, for the commands that work on it without the service."""

from configs.settings import Settings
from serve_app.cli.environment import told
from serve_app.composition.files import LocalFiles
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.library.library import Library


def opened(settings: Settings, files: LocalFiles) -> Library:
    """Open the library as it is now, or say why not and exit."""
    with told(ValueError, OSError, ServiceUnavailableError):
        library = Library(files.library_url(settings), files.library_view_dir)
        library.follow()
    return library
