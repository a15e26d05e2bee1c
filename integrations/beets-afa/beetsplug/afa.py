"""Asks an afa service for the tempo, key, loudness, attributes and tags of files.

It sends the files themselves, so it works without MusicBrainz ids.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING, Any

from afa_client import AfaError, BadRequestError, Client, JobFailedError
from beets import plugins, ui
from beets.dbcore import types
from beets.exceptions import UserError

if TYPE_CHECKING:
    from pathlib import Path

    from afa_client.models import AnalysisFeatures
    from beets.importer import ImportSession, ImportTask
    from beets.library import Item, Library

AT_ONCE = 4
"""Files sent at the same time; the service batches them."""

PERCENTS = (
    *("energy", "danceability", "happiness", "acousticness", "instrumentalness"),
    *("speechiness", "liveness"),
)
MIN_TAG_SCORE = 0.6
PROBE = "afa_loudness"
"""A field that every described item has."""


class AfaPlugin(plugins.BeetsPlugin):
    """Fills `bpm`, `initial_key`, and its own fields, which begin with `afa_`."""

    item_types = {  # noqa: RUF012  beets reads it from the class
        "afa_tempo": types.Float(3),
        "afa_loudness": types.Float(1),
        "afa_camelot": types.STRING,
        "afa_tags": types.STRING,
        **{f"afa_{name}": types.INTEGER for name in PERCENTS},
    }

    def __init__(self) -> None:
        """Read the `afa` section of the configuration."""
        super().__init__()
        self.config.add(
            {"url": "http://127.0.0.1:8000", "key": "", "auto": True, "overwrite": False}
        )
        self.config["key"].redact = True
        if self.config["auto"].get(bool):
            self.import_stages = [self.imported]

    def commands(self) -> list[ui.Subcommand]:
        """Return the command `beet afa`."""
        command = ui.Subcommand("afa", help="fill tempo, key, attributes and tags by ear")
        command.parser.add_option(
            *("-f", "--force"),
            action="store_true",
            help="send also what was described before",
        )
        command.func = self.command
        return [command]

    def command(self, lib: Library, opts: Any, args: list[str]) -> None:
        """Describe the items that match a query."""
        items = [item for item in lib.items(args) if opts.force or PROBE not in item]
        try:
            self.describe(items, write=ui.should_write())
        except AfaError as error:
            raise UserError(f"afa: {error}") from error

    def imported(self, _session: ImportSession, task: ImportTask) -> None:
        """Describe the imported items; an import goes on if the service is unavailable."""
        try:
            self.describe(task.imported_items(), write=False)
        except (AfaError, UserError) as error:
            self._log.error("not described: {}", error)

    def describe(self, items: Sequence[Item], *, write: bool) -> None:
        """Send files and keep their features; a file that is not audio is skipped.

        Raises:
            UserError: There is no key.
            AfaError: The service does not answer, or refuses the key.
        """
        key = self.config["key"].as_str() or os.environ.get("AFA_API_KEY", "")
        if not key:
            raise UserError("afa: set `key` in the section `afa`, or AFA_API_KEY")
        url = self.config["url"].as_str()
        with Client(url, key) as client, ThreadPoolExecutor(AT_ONCE) as pool:
            waiting = {pool.submit(heard_in, client, one.filepath): one for one in items}
            try:
                for future in as_completed(waiting):
                    item = waiting[future]
                    try:
                        self.keep(item, future.result(), write=write)
                    except (BadRequestError, JobFailedError, OSError) as error:
                        self._log.warning("{}: {}", item.filepath, getattr(error, "message", error))
            finally:
                pool.shutdown(cancel_futures=True)  # after Ctrl-C, too, no further file is sent

    def keep(self, item: Item, heard: AnalysisFeatures, *, write: bool) -> None:
        """Store the features of an item, and also write them to its file if ``write`` is set."""
        overwrite = self.config["overwrite"].get(bool)
        if heard.tempo and (overwrite or not item.bpm):
            item.bpm = round(heard.tempo)
        if heard.key and (overwrite or not item.initial_key):
            item.initial_key = heard.key + ("m" if heard.mode == "minor" else "")
        item.afa_tempo = heard.tempo
        item.afa_loudness = heard.loudness
        item.afa_camelot = heard.camelot or ""
        item.afa_tags = ", ".join(tag.tag for tag in heard.mood_tags if tag.score >= MIN_TAG_SCORE)
        for name in PERCENTS:
            item[f"afa_{name}"] = getattr(heard, name)
        item.store()
        if write:
            item.try_write()
        self._log.info("{}: {} BPM, {}", item.filepath, item.bpm, item.initial_key or "no key")


def heard_in(client: Client, path: Path) -> AnalysisFeatures:
    """Send a file and wait for its features; raises the errors of the client."""
    return client.wait(client.analyze(path))
