"""The default networks and every front-end on a CUDA device, compared with the CPU."""

import gc
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from models.frontends import KaldiFbank, MusicnnMel, VibenetMel
from models.musicnn import Musicnn
from models.trunks.ced import CedMel
from models.trunks.clap import ClapMel
from models.vibenet import Vibenet

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

Checkpoint = Callable[[str], dict[str, Tensor]]
FRONT_ENDS = [MusicnnMel(), VibenetMel(), KaldiFbank(16_000, 128), CedMel(), ClapMel()]


def noise(n: int = 4, samples: int = 48_128) -> Tensor:
    rng = np.random.default_rng(11)
    return torch.from_numpy(0.1 * rng.standard_normal((n, samples)).astype(np.float32))


@pytest.fixture(params=["musicnn", "vibenet"])
def network(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> nn.Module:
    if request.param == "musicnn":
        return Musicnn(checkpoint("musicnn-mtt")).eval()
    return Vibenet(checkpoint("vibenet")).eval()


@pytest.mark.parametrize("front_end", FRONT_ENDS, ids=lambda module: type(module).__name__)
def test_a_front_end_is_the_cpus_within_1e_2(front_end: nn.Module) -> None:
    want = front_end(noise())
    got = front_end.cuda()(noise().cuda()).cpu()
    front_end.cpu()
    torch.testing.assert_close(got, want, atol=1e-2, rtol=0)


def test_a_network_is_the_cpus_within_1e_3(network: nn.Module) -> None:
    with torch.inference_mode():
        want = network(noise())
        got = network.cuda()(noise().cuda())
    for name, rows in want.items():
        torch.testing.assert_close(got[name].cpu(), rows, atol=1e-3, rtol=1e-3)


def test_a_network_is_deterministic_and_blind_to_the_batch(network: nn.Module) -> None:
    windows = noise().cuda()
    with torch.inference_mode():
        network.cuda()
        first, second, alone = network(windows), network(windows), network(windows[2:3])
    for name, rows in first.items():
        assert torch.equal(rows, second[name])
        assert torch.cosine_similarity(rows[2:3], alone[name]).min() >= 0.9999


def test_memory_comes_back_when_a_network_goes(checkpoint: Checkpoint) -> None:
    tensors = checkpoint("vibenet")
    gc.collect()
    before = torch.cuda.memory_allocated()
    network = Vibenet(tensors).eval().cuda()
    with torch.inference_mode():
        network(noise().cuda())
    assert torch.cuda.memory_allocated() > before + 10_000_000
    del network
    gc.collect()
    assert torch.cuda.memory_allocated() <= before + 1_000_000
