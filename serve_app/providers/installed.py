"""Providers and recognisers of other packages, found by their entry points.

Invariant: an installed class is off, and not even instantiated, until one of its settings is set.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Any

PROVIDERS = "afa.providers"
RECOGNISERS = "afa.recognisers"

Setting = str | int | bool


@dataclass(frozen=True, slots=True)
class Installed:
    """A class of another package, and the settings that turn it on.

    Attributes:
        name: Name of its entry point, and prefix of its settings, before a ``_``.
        kind: The class.
        settings: Its settings without the prefix; empty while it is off. They may hold credentials.
    """

    name: str
    kind: type[Any]
    settings: Mapping[str, Setting] = field(repr=False)

    def make(self, *surroundings: object) -> Any:
        """Instantiate the class with its settings and surroundings.

        Raises:
            ValueError: The class does not accept them.
        """
        try:
            return self.kind(self.settings, *surroundings)
        except Exception as error:
            raise ValueError(f"{self.name}: {type(error).__name__}: {error}") from error


def split_settings(
    group: str, settings: Mapping[str, Setting]
) -> tuple[tuple[Installed, ...], dict[str, Setting]]:
    """Separate the settings of installed classes from our own.

    Returns:
        The installed classes of the group, by name, and the settings that belong to none of them.

    Raises:
        ValueError: A class cannot be imported.
    """
    rest = dict(settings)
    found = []
    for entry_point in sorted(entry_points(group=group), key=lambda one: one.name):
        start = f"{entry_point.name}_"
        own = {name[len(start) :]: rest.pop(name) for name in settings if name.startswith(start)}
        try:
            found.append(Installed(entry_point.name, entry_point.load(), own))
        except (ImportError, AttributeError) as error:
            raise ValueError(f"{group}: {entry_point.name} cannot be imported: {error}") from error
    return tuple(found), rest
