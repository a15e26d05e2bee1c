"""The options that model deployments are built with."""

from pathlib import Path

import pytest
import torch
import yaml
from pydantic import ValidationError

from afa.cards import known_cards
from models.checkpoints.cards import CardError
from pipelines.analysis.networks.checkpoint_model import EAGER, Execution
from serve_app.composition.execution import execution_on
from serve_app.composition.model_args import ExecutionOptions
from serve_app.composition.options import JobOptions, ModelOptions
from serve_app.ledger.jobs.records import JobPolicy
from tests.data.small_checkpoints import add_own_ast

FAST = ExecutionOptions(dtype="bfloat16", batch_sizes=(1, 8), cuda_graphs=True)


def test_execution_is_for_gpus_only(tmp_path: Path) -> None:
    options = ModelOptions(model_dir=tmp_path, execution=FAST)
    assert execution_on(torch.device("cpu"), options) == EAGER
    assert execution_on(torch.device("cuda"), options) == Execution(
        torch.bfloat16, (1, 8), cuda_graphs=True
    )
    assert execution_on(torch.device("cuda"), ModelOptions(model_dir=tmp_path)) == EAGER


def test_a_file_that_says_nothing_of_jobs_leaves_their_limits() -> None:
    assert JobOptions().policy() == JobPolicy()


@pytest.mark.parametrize("sizes", [(8, 1), (1, 1), (0, 4)])
def test_batch_sizes_ascend(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValidationError, match="ascend"):
        ExecutionOptions(batch_sizes=sizes)


def test_the_operators_choice_goes_before_the_files(tmp_path: Path) -> None:
    options = ModelOptions(model_dir=tmp_path, chosen={"embedding": "mert-95m", "key": "hpcp"})
    chosen = options.cards({"embedding": "clap"})
    assert [card.model_id for card in chosen["embedding"]] == ["clap"]
    assert [card.model_id for card in chosen["key"]] == ["hpcp"]
    assert [card.model_id for card in options.cards()["embedding"]] == ["mert-95m"]
    strict = options.model_copy(update={"licences": "permissive"})
    with pytest.raises(CardError, match="refuses"):
        strict.cards()


def test_operators_add_cards_of_their_own_while_the_service_runs(tmp_path: Path) -> None:
    assert "own" not in known_cards(tmp_path)
    add_own_ast(tmp_path, tmp_path, "own")
    assert known_cards(tmp_path)["own"].outputs == {"tags": 527, "embedding": 768}
    chosen = ModelOptions(model_dir=tmp_path).cards({"embedding": "own", "tags": "own"})
    assert chosen["embedding"] == chosen["tags"]
    (tmp_path / "cards.yaml").write_text(yaml.safe_dump({"clap": {}}))
    with pytest.raises(CardError, match="id of another card"):
        known_cards(tmp_path)


@pytest.mark.parametrize("text", ["own: {role: [", "- own", "own: embedding"])
def test_a_file_of_cards_that_is_half_written_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "cards.yaml").write_text(text)
    with pytest.raises(CardError, match=r"cards\.yaml"):
        known_cards(tmp_path)
