"""Watches which checkpoints are chosen, in a process that runs none of them."""

import asyncio
import logging
import threading
import time
from collections.abc import Mapping

from serve_app.checkpoints.choice import POLL_S, SWAP_POLL_S, models_name
from serve_app.checkpoints.choices import ModelChoices
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.store.client import connect

logger = logging.getLogger(__name__)

FIRST_READ_S = 5.0
SETTLE_S = 10.0


class ChoiceWatch:
    """Reads the choice about once a second, in its own thread.

    Invariant: reading `name` costs nothing. It changes when a swap has ended, so that it always
    names checkpoints that answer; it is known before the first request if the ledger is reachable.
    """

    def __init__(self, ledger_url: str, models: Mapping[str, str]) -> None:
        """Start watching.

        Args:
            ledger_url: The ledger role, which has the choice.
            models: Role to ids in use if nothing is chosen.
        """
        self._url = ledger_url
        self._default = dict(models)
        self._models: Mapping[str, str] = self._default
        self._name = models_name(self._default)
        self._unsettled_until = 0.0
        self._is_known = threading.Event()
        threading.Thread(target=self._run, name="choice-watch", daemon=True).start()
        self._is_known.wait(FIRST_READ_S)

    def name(self) -> str:
        """Return the short name of the checkpoints in use, for cache keys."""
        return self._name

    def models(self) -> Mapping[str, str]:
        """Return role to the ids of the checkpoints in use, joined by ``+``."""
        return self._models

    def is_settled(self) -> bool:
        """Return whether every replica certainly answers with the checkpoints in `name`."""
        return time.monotonic() >= self._unsettled_until

    def _run(self) -> None:
        asyncio.run(self._watch())

    async def _watch(self) -> None:
        choices = ModelChoices(connect(self._url))
        while True:
            pause_s = POLL_S
            try:
                found = await choices.read()
            except ServiceUnavailableError:
                await asyncio.sleep(pause_s)
                continue
            except Exception:  # the name must not miss the next swap
                logger.exception("the choice of checkpoints cannot be read")
                await asyncio.sleep(pause_s)
                continue
            if found.proposal is not None:
                self._unsettled_until = time.monotonic() + SETTLE_S
                pause_s = SWAP_POLL_S
            if found.proposal is None or not self._is_known.is_set():
                self._models = self._default | dict(found.chosen)
                self._name = models_name(self._models)
            self._is_known.set()
            await asyncio.sleep(pause_s)
