"""Providers and recognisers of other packages, found by their entry points.

Invariant: what is installed is off, and not even made, until the operator names a setting of it.
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
        name: Of its entry point; what settings of it begin with, before a ``_``.
        kind: Makes it.
        settings: Without that beginning; empty while it is off. They may hold credentials.
    """

    name: str
    kind: type[Any]
    settings: Mapping[str, Setting] = field(repr=False)

    def make(self, *surroundings: object) -> Any:
        """Make it of its settings and what surrounds it.

        Raises:
            ValueError: Its class does not take them.
        """
        try:
            return self.kind(self.settings, *surroundings)
        except Exception as error:
            raise ValueError(f"{self.name}: {type(error).__name__}: {error}") from error


def split_settings(
    group: str, settings: Mapping[str, Setting]
) -> tuple[tuple[Installed, ...], dict[str, Setting]]:
    """Tell the settings of what is installed from our own.

    Returns:
        Everything in the group, by name, and the settings that are nobody's of it.

    Raises:
        ValueError: One cannot be imported.
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
