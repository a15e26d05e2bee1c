"""The pinned blocks that batches pass through on their way to a GPU, without one."""

from typing import Any

import torch

from pipelines.batching.device import DEPTH, StagingBlocks


class Copy:
    """The event behind a copy that reads a block; it ends when somebody waits for it."""

    def __init__(self, block: torch.Tensor) -> None:
        self.block, self.waited = block, 0
        self.arrived: torch.Tensor | None = None

    def synchronize(self) -> None:
        self.waited += 1
        self.arrived = self.block.clone()


def test_batches_pass_through_two_blocks_and_none_is_written_while_it_is_read() -> None:
    blocks = StagingBlocks(1_000, is_pinned=False)
    copies: list[Copy] = []
    for number in range(7):
        parts = [torch.full((n, 5), float(number)) for n in (2, 1 + number % 3)]
        rows = blocks.gather(parts)
        torch.testing.assert_close(rows, torch.cat(parts))
        copy: Any = Copy(rows)
        blocks.is_copied_after(copy)
        copies.append(copy)
    assert len({copy.block.data_ptr() for copy in copies}) == DEPTH
    done, under_way = copies[:-DEPTH], copies[-DEPTH:]
    assert [copy.waited for copy in done] == [1] * len(done)
    assert [copy.waited for copy in under_way] == [0] * DEPTH
    for number, copy in enumerate(done):
        assert copy.arrived is not None
        assert (copy.arrived == number).all()


def test_a_batch_that_is_larger_than_expected_gets_a_larger_block_once() -> None:
    blocks = StagingBlocks(16, is_pinned=False)
    places = [blocks.gather([torch.ones(100)]).data_ptr() for _ in range(6)]
    assert len(set(places)) == DEPTH
