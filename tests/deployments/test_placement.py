from types import SimpleNamespace

import pytest
import torch

from pipelines.analysis.networks.checkpoint_model import EAGER, Execution
from serve_app.deployments import placement
from serve_app.deployments.placement import (
    CONTEXT_BYTES,
    DeviceMissingError,
    Placement,
    keep_to_share,
    replica_device,
)


@pytest.mark.parametrize(("wanted", "n_gpus"), [("auto", 0.2), ("cuda", 0.0), ("cuda:1", 1.0)])
def test_a_replica_that_should_have_a_gpu_and_has_none_says_why(
    monkeypatch: pytest.MonkeyPatch, wanted: str, n_gpus: float
) -> None:
    monkeypatch.setattr(placement, "_assigned", lambda _resource, _otherwise: n_gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceMissingError, match="nvidia-smi") as told:
        replica_device(wanted)
    assert f"{n_gpus:g} GPU given, AFA_DEVICE={wanted}" in str(told.value)


def test_a_card_beside_those_that_ray_gave_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(placement, "_assigned", lambda _resource, _otherwise: 0.5)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _index: (9, 0))
    with pytest.raises(DeviceMissingError, match=r"AFA_DEVICE=cuda:1, but 1 seen.*=auto finds it"):
        replica_device("cuda:1")
    assert replica_device("cuda:0") == torch.device("cuda:0")
    assert replica_device("auto") == torch.device("cuda")


@pytest.mark.parametrize(("capability", "n_gpus"), [((6, 1), 0.0), ((7, 0), 0.5), ((7, 5), 0.0)])
def test_a_card_that_is_too_old_for_this_torch_is_none(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], n_gpus: float
) -> None:
    """The wheels for CUDA 13, as pinned here, support compute capability 7.5 and later."""
    monkeypatch.setattr(placement, "_assigned", lambda _resource, _otherwise: n_gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_90a", "sm_75", "compute_120"])
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _index: capability)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _index: "an old card")
    if capability >= (7, 5):
        assert replica_device("auto").type == replica_device("cuda").type == "cuda"
        return
    told = r"an old card has the compute capability \d\.\d, and torch .* runs from 7\.5 on; AFA_DEV"
    with pytest.raises(DeviceMissingError, match=told):
        replica_device("cuda")
    if n_gpus:  # Ray says that this node has a card
        with pytest.raises(DeviceMissingError, match=told):
            replica_device("auto")
    else:
        assert replica_device("auto").type == "cpu"


@pytest.mark.parametrize(("wanted", "n_gpus"), [("auto", 0.0), ("cpu", 0.5)])
def test_the_cpu_is_taken_where_it_is_meant(
    monkeypatch: pytest.MonkeyPatch, wanted: str, n_gpus: float
) -> None:
    monkeypatch.setattr(placement, "_assigned", lambda _resource, _otherwise: n_gpus)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert replica_device(wanted).type == "cpu"


def test_a_placement_says_device_precision_and_compiled_sizes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cpu = torch.device("cpu")
    assert Placement(cpu, EAGER).name == "cpu float32"
    assert (
        Placement(cpu, Execution(torch.bfloat16, (1, 8))).name == "cpu bfloat16 compiled for 1, 8"
    )
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "NVIDIA L4")
    gpu = torch.device("cuda")
    assert Placement(gpu, EAGER).name == "NVIDIA L4 float32 with TF32 convolutions"
    assert Placement(gpu, Execution(torch.bfloat16)).name == "NVIDIA L4 bfloat16"


@pytest.mark.parametrize("device", ["cuda", "cuda:0"])
@pytest.mark.parametrize(("share", "wanted"), [(0.5, 0.5 - 0.03125), (1.0, None), (0.0, None)])
def test_a_replica_keeps_to_its_share_of_the_memory(
    monkeypatch: pytest.MonkeyPatch, share: float, wanted: float | None, device: str
) -> None:
    set_to: list[float] = []

    def set_fraction(part: float, device: torch.device | int) -> None:
        assert torch.cuda._utils._get_device_index(device) == 0  # as torch itself reads it
        set_to.append(part)

    card = SimpleNamespace(total_memory=CONTEXT_BYTES * 32)
    monkeypatch.setattr(placement, "_assigned", lambda _resource, _otherwise: share)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _device: card)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", set_fraction)
    keep_to_share(torch.device(device))
    assert set_to == ([] if wanted is None else [wanted])
    keep_to_share(torch.device("cpu"))
    assert len(set_to) <= 1
