"""The names of the checkpoints in use, in a process that runs none."""

import time
from collections.abc import Callable

import pytest

from serve_app.checkpoints.choice import Choices, Proposal, models_name
from serve_app.checkpoints.watch import ChoiceWatch

DEFAULT = {"embedding": "afa-embed-1"}


class Scripted:
    """Returns one outcome after another, and repeats the last one forever."""

    def __init__(self, *outcomes: Choices | Exception) -> None:
        self.outcomes = list(outcomes)

    async def read(self) -> Choices:
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scripted], ChoiceWatch]:
    monkeypatch.setattr("serve_app.checkpoints.watch.POLL_S", 0.01)
    monkeypatch.setattr("serve_app.checkpoints.watch.SWAP_POLL_S", 0.01)
    monkeypatch.setattr("serve_app.checkpoints.watch.connect", lambda url: None)

    def start(script: Scripted) -> ChoiceWatch:
        monkeypatch.setattr("serve_app.checkpoints.watch.ModelChoices", lambda store: script)
        return ChoiceWatch("redis://nowhere", DEFAULT)

    return start


def until(holds: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < give_up_s
        time.sleep(0.01)


def test_the_name_changes_when_the_swap_has_ended(
    watch: Callable[[Scripted], ChoiceWatch],
) -> None:
    proposal = Proposal("embedding", "clap", "token")
    script = Scripted(Choices())
    watched = watch(script)
    assert watched.name() == models_name(DEFAULT)
    assert watched.is_settled()
    script.outcomes = [Choices({"embedding": "clap"}, proposal)]
    until(lambda: not watched.is_settled())
    assert watched.name() == models_name(DEFAULT)
    script.outcomes = [Choices({"embedding": "clap"})]
    until(lambda: watched.name() == models_name({"embedding": "clap"}))
    assert not watched.is_settled()


def test_what_cannot_be_read_once_is_read_again(watch: Callable[[Scripted], ChoiceWatch]) -> None:
    unknown = TypeError("Proposal() got an unexpected keyword argument")
    watched = watch(Scripted(Choices(), unknown, Choices({"embedding": "clap"})))
    until(lambda: watched.name() == models_name({"embedding": "clap"}))
