"""The library of this installation, for the commands that work on it without the service."""

from configs.settings import Settings
from serve_app.cli.environment import fail, told
from serve_app.composition.files import LocalFiles
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.library.library import Library
from serve_app.library.place import LibraryPlace


def opened(settings: Settings, files: LocalFiles) -> Library:
    """Open the library as it is now, or say why not and exit."""
    with told(ValueError, OSError, ServiceUnavailableError):
        library = Library(files.library_url(settings), files.library_view_dir)
        library.follow()
    return library


def existing(settings: Settings, files: LocalFiles) -> Library:
    """Open a library that is there, for a command that only reads; a local one is not made."""
    with told(ValueError):
        place = LibraryPlace.parse(files.library_url(settings))
    if place.folder is not None and not place.folder.is_dir():
        fail(f"there is no library in {place.folder}; `afa scan FOLDER` makes one of your music")
    return opened(settings, files)
