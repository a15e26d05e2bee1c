"""The operator's choice of checkpoints on a real Redis."""

import pytest

from serve_app.checkpoints.choice import Choices, Proposal, ReplicaReport
from serve_app.checkpoints.choices import ALIVE_S, ModelChoices
from serve_app.store.client import Store
from tests.store.setting import Setting

pytestmark = pytest.mark.redis

MERT = Proposal("embedding", "mert-95m", "token")


@pytest.fixture
def choices(live_store: Store) -> ModelChoices:
    return ModelChoices(live_store)


async def test_nothing_is_chosen_at_first(choices: ModelChoices) -> None:
    assert await choices.read() == Choices({}, None)
    assert await choices.reports() == []


async def test_a_choice_stays_until_the_default_is_chosen(choices: ModelChoices) -> None:
    await choices.choose("embedding", "mert-95m")
    await choices.choose("tags", "musicnn-mtt")
    assert (await choices.read()).chosen == {"embedding": "mert-95m", "tags": "musicnn-mtt"}
    await choices.choose("embedding", "")
    assert (await choices.read()).chosen == {"tags": "musicnn-mtt"}


async def test_a_proposal_lapses(choices: ModelChoices) -> None:
    assert await choices.propose(MERT, 0.01)
    while (await choices.read()).proposal is not None:
        pass
    assert await choices.propose(MERT, 10)


async def test_replicas_that_are_silent_by_the_servers_clock_are_forgotten(
    setting: Setting,
) -> None:
    choices, alive_ms = ModelChoices(setting.store), int(ALIVE_S * 1000)
    first = ReplicaReport("b", "Mood", {"tags": "musicnn-mtt"}, ready_for="t", ready_ids="x")
    await choices.report(first)
    await setting.after(alive_ms)
    await choices.report(ReplicaReport("a", "Mood", {"tags": "musicnn-mtt"}, error="no"))
    found = await choices.reports()
    assert [report.replica for report in found] == ["a", "b"]
    assert (found[0].error, found[1].ready_for, found[1].ready_ids) == ("no", "t", "x")
    await setting.after(1000)
    assert [report.replica for report in await choices.reports()] == ["a"]
    await setting.after(-1000)
    assert [report.replica for report in await choices.reports()] == ["a"]
