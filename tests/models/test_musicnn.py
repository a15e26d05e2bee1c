"""musicnn compared with an independent NumPy version of the published graph, on real weights."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from models.musicnn import MSD_TAGS, MTT_TAGS, Musicnn, _ScaledMax

Array = NDArray[np.float64]
Checkpoint = Callable[[str], dict[str, Tensor]]
CHECKPOINTS = ("musicnn-mtt", "musicnn-msd-768")


def published_graph(t: dict[str, Array], mel: Array) -> tuple[Array, Array]:
    """Run one patch ``[N, F]`` through the graph, layer by layer, as its source defines it."""

    def name(layer: str, n: int) -> str:
        return f"{layer}_{n}" if n else layer

    def norm(x: Array, n: int) -> Array:
        p = {k: t[f"{name('batch_normalization', n)}/{k}"] for k in NORM}
        gain = p["gamma"] / np.sqrt(p["moving_variance"] + 0.001)
        return (x - p["moving_mean"]) * gain + p["beta"]

    def conv(x: Array, n: int, pad: tuple[int, int]) -> Array:
        kernel = t[name("conv2d", n) + "/kernel"][:, :, 0]
        patches = sliding_window_view(np.pad(x, (pad, (0, 0))), kernel.shape[:2])
        return (
            np.einsum("nfij,ijo->nfo", patches, kernel, optimize=True)
            + t[name("conv2d", n) + "/bias"]
        )

    relu = lambda x: np.maximum(x, 0)  # noqa: E731
    x = norm(mel[..., None], 0)[..., 0]
    pads = [(3, 3), (3, 3), (63, 64), (31, 32), (15, 16)]
    front = np.concatenate(
        [norm(relu(conv(x, n, pad)), n + 1).max(axis=1) for n, pad in enumerate(pads)], axis=1
    )
    first = norm(relu(conv(front, 5, (3, 3)))[:, 0], 6)
    second = norm(relu(conv(first, 6, (3, 3)))[:, 0], 7) + first
    third = norm(relu(conv(second, 7, (3, 3)))[:, 0], 8) + second
    features = np.concatenate([front, first, second, third], axis=1)
    pooled = np.stack([features.max(axis=0), features.mean(axis=0)], axis=1).reshape(-1)
    hidden = norm(relu(norm(pooled, 9) @ t["dense/kernel"] + t["dense/bias"]), 10)
    logits = hidden @ t["dense_1/kernel"] + t["dense_1/bias"]
    return 1 / (1 + np.exp(-logits)), features.mean(axis=0)


NORM = ("gamma", "beta", "moving_mean", "moving_variance")


def windows(n: int) -> Tensor:
    rng = np.random.default_rng(7)
    t = np.arange(48_128) / 16_000
    rows = []
    for row in range(n):
        tones = sum(np.sin(2 * np.pi * f * t) for f in rng.uniform(60, 4000, 4))
        rows.append(0.1 * tones + 0.05 * rng.standard_normal(len(t)) * (row % 2))
    return torch.from_numpy(np.array(rows, dtype=np.float32))


@pytest.mark.parametrize("model_id", CHECKPOINTS)
def test_tags_and_embedding_are_the_published_graphs(checkpoint: Checkpoint, model_id: str) -> None:
    tensors = checkpoint(model_id)
    batch = windows(2)
    with torch.inference_mode():
        network = Musicnn(tensors)
        got = network(batch)
        mels = network.mel(batch)
    as_numpy = {k: v.numpy().astype(np.float64) for k, v in tensors.items()}
    for row, mel in enumerate(mels.numpy().astype(np.float64)):
        tags, embedding = published_graph(as_numpy, mel.T)
        np.testing.assert_allclose(got["tags"][row].numpy(), tags, atol=1e-5)
        np.testing.assert_allclose(got["embedding"][row].numpy(), embedding, atol=1e-4)


@pytest.mark.parametrize(("model_id", "n"), [("musicnn-mtt", 247), ("musicnn-msd-768", 64)])
def test_filters_that_training_faded_out_are_not_computed(
    checkpoint: Checkpoint, model_id: str, n: int
) -> None:
    network = Musicnn(checkpoint(model_id))
    assert sum(len(layer.weight) for layer in network.front) == n
    assert sum(len(layer.constants) for layer in network.front) == 561


@pytest.mark.parametrize("n_frames", [8, 187, 250])
def test_large_kernels_give_by_spectra_what_they_give_directly(
    checkpoint: Checkpoint, n_frames: int
) -> None:
    network = Musicnn(checkpoint("musicnn-mtt"))
    image = torch.randn(2, 1, 96, n_frames, generator=torch.Generator().manual_seed(n_frames))
    with torch.inference_mode():
        for layer in network.front:
            assert isinstance(layer, _ScaledMax)
            by_spectra, directly = layer._by_spectra(image), layer._directly(image)
            torch.testing.assert_close(by_spectra, directly, atol=1e-4, rtol=1e-5)


def test_a_row_of_a_batch_is_the_window_alone(checkpoint: Checkpoint) -> None:
    network = Musicnn(checkpoint("musicnn-mtt"))
    batch = windows(3)
    with torch.inference_mode():
        together = network(batch)
        alone = [network(window[None]) for window in batch]
    for name, width in (("tags", 50), ("embedding", 753)):
        assert together[name].shape == (3, width)
        rows = torch.cat([outputs[name] for outputs in alone])
        torch.testing.assert_close(together[name], rows, atol=1e-5, rtol=1e-5)
        cosine = torch.cosine_similarity(together[name], rows)
        assert cosine.min() >= 0.9999


def test_vocabularies_have_fifty_different_tags() -> None:
    assert len(set(MSD_TAGS)) == len(MSD_TAGS) == 50
    assert len(set(MTT_TAGS)) == len(MTT_TAGS) == 50
    assert MSD_TAGS[9] == "jazz"
    assert MTT_TAGS[9] == "piano"
