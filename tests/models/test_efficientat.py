"""EfficientAT compared with the published architecture, layer by layer, and on known sounds."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from models.checkpoints.cards import ModelCard
from models.efficientat import EfficientAt, EfficientAtMel
from pipelines.audio.decode import DecodeLimits, decode
from pipelines.audio.resample import mono_at

DEMO = Path(__file__).parents[2] / "serve_app" / "data" / "demo.mp3"
MUSIC, STATIC, SINE = 137, 515, 501

# Widened channels, channels, kernel, stride, squeeze, hard swish: table 1 of the MobileNetV3 paper
# times 0.4, in multiples of 8.
BLOCKS = (
    (8, 8, 3, 1, 0, 0),
    (24, 16, 3, 2, 0, 0),
    (32, 16, 3, 1, 0, 0),
    (32, 16, 5, 2, 8, 0),
    (48, 16, 5, 1, 16, 0),
    (48, 16, 5, 1, 16, 0),
    (96, 32, 3, 2, 0, 1),
    (80, 32, 3, 1, 0, 1),
    (72, 32, 3, 1, 0, 1),
    (72, 32, 3, 1, 0, 1),
    (192, 48, 3, 1, 48, 1),
    (272, 48, 3, 1, 72, 1),
    (272, 64, 5, 2, 72, 1),
    (384, 64, 5, 1, 96, 1),
    (384, 64, 5, 1, 96, 1),
)


@pytest.fixture(scope="module")
def tensors(checkpoint: Callable[[str], dict[str, Tensor]]) -> dict[str, Tensor]:
    return checkpoint("efficientat-mn04")


@pytest.fixture(scope="module")
def network(tensors: dict[str, Tensor]) -> EfficientAt:
    return EfficientAt(tensors).eval().requires_grad_(False)


def windows(n: int, seconds: float = 4.0) -> Tensor:
    rng = np.random.default_rng(3)
    t = np.arange(int(seconds * 32_000)) / 32_000
    rows = [
        0.2 * np.sin(2 * np.pi * 110 * 2 ** (row / 3) * t) * np.exp(-3 * (t % 0.5))
        + 0.03 * row * rng.standard_normal(len(t))
        for row in range(n)
    ]
    return torch.from_numpy(np.array(rows, dtype=np.float32))


class Published:
    """The published forward on the published tensors; records which of them it used."""

    def __init__(self, tensors: dict[str, Tensor]) -> None:
        self._tensors = tensors
        self.used: set[str] = set()

    def take(self, name: str) -> Tensor:
        self.used.add(name)
        return self._tensors[name]

    def layer(
        self, x: Tensor, name: str, shape: tuple[int, ...], stride: int = 1, groups: int = 1
    ) -> Tensor:
        """A convolution without bias and its batch norm, computed separately."""
        kernel = self.take(f"{name}.0.weight")
        assert kernel.shape == shape, name
        x = functional.conv2d(x, kernel, None, stride, shape[-1] // 2, groups=groups)
        statistics = (self.take(f"{name}.1.{part}") for part in ("running_mean", "running_var"))
        affine = (self.take(f"{name}.1.{part}") for part in ("weight", "bias"))
        return functional.batch_norm(x, *statistics, *affine, training=False, eps=1e-3)

    def dense(self, x: Tensor, name: str) -> Tensor:
        return functional.linear(x, self.take(f"{name}.weight"), self.take(f"{name}.bias"))

    def block(self, x: Tensor, number: int) -> Tensor:
        wide, n_out, size, stride, squeezed, is_hard = BLOCKS[number - 1]
        name, layer, n_in = f"features.{number}.block", 0, x.shape[1]
        activation = functional.hardswish if is_hard else functional.relu
        y = x
        if wide != n_in:
            y = activation(self.layer(y, f"{name}.0", (wide, n_in, 1, 1)))
            layer = 1
        y = activation(self.layer(y, f"{name}.{layer}", (wide, 1, size, size), stride, wide))
        if squeezed:
            layer += 1
            excitation = f"{name}.{layer}.conc_se_layers.0"
            weights = functional.relu(self.dense(y.mean(dim=(2, 3)), f"{excitation}.fc1"))
            assert weights.shape[1] == squeezed
            y = y * torch.sigmoid(self.dense(weights, f"{excitation}.fc2"))[:, :, None, None]
        y = self.layer(y, f"{name}.{layer + 1}", (n_out, wide, 1, 1))
        return x + y if stride == 1 and n_in == n_out else y

    def forward(self, mel: Tensor) -> tuple[Tensor, Tensor]:
        x = functional.hardswish(self.layer(mel[:, None], "features.0", (8, 1, 3, 3), stride=2))
        for number in range(1, len(BLOCKS) + 1):
            x = self.block(x, number)
        x = functional.hardswish(self.layer(x, "features.16", (384, 64, 1, 1)))
        pooled = x.mean(dim=(2, 3))
        hidden = functional.hardswish(self.dense(pooled, "classifier.2"))
        return pooled, torch.sigmoid(self.dense(hidden, "classifier.5"))


def test_it_is_the_published_network_and_every_tensor_is_used(
    network: EfficientAt, tensors: dict[str, Tensor]
) -> None:
    batch = windows(3)
    found = network(batch)
    published = Published(tensors)
    embedding, tags = published.forward(network.mel(batch))
    assert published.used == {name for name in tensors if "num_batches" not in name}
    assert found["embedding"].shape == (3, 384)
    torch.testing.assert_close(found["embedding"], embedding, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found["tags"], tags, atol=1e-4, rtol=1e-3)


def test_the_front_end_is_the_published_one() -> None:
    import torchaudio

    wave = windows(2, seconds=1.0)
    emphasised = functional.conv1d(wave[:, None], torch.tensor([[[-0.97, 1.0]]]))[:, 0]
    spectrum = torch.stft(
        emphasised,
        1024,
        hop_length=320,
        win_length=800,
        window=torch.hann_window(800, periodic=False),
        return_complex=True,
    )
    bands, _ = torchaudio.compliance.kaldi.get_mel_banks(
        128, 1024, 32_000.0, 0.0, 15_000.0, 100.0, -500.0, 1.0
    )
    mel = functional.pad(bands, (0, 1)) @ spectrum.abs().square()
    want = ((mel + 1e-5).log() + 4.5) / 5
    got = EfficientAtMel()(wave)
    assert got.shape == (2, 128, 100)
    torch.testing.assert_close(got, want, atol=1e-3, rtol=1e-3)


def test_silence_is_the_floor() -> None:
    got = EfficientAtMel()(torch.zeros(1, 3200))
    assert float(got.max()) == float(got.min()) == pytest.approx((np.log(1e-5) + 4.5) / 5, abs=1e-4)


def test_a_row_equals_itself_alone(network: EfficientAt) -> None:
    batch = windows(4)
    together = network(batch)
    for row, window in enumerate(batch):
        alone = network(window[None])
        for name, values in alone.items():
            torch.testing.assert_close(together[name][row], values[0], atol=1e-5, rtol=1e-4)


def test_it_knows_music_noise_and_a_tone(network: EfficientAt, cards: dict[str, ModelCard]) -> None:
    n = cards["efficientat-mn04"].window_length
    music = mono_at(decode(DEMO, DecodeLimits()), 32_000)[:n]
    noise = 0.1 * np.random.default_rng(0).standard_normal(n)
    tone = 0.1 * np.sin(2 * np.pi * 440 * np.arange(n) / 32_000)
    sounds = torch.from_numpy(np.stack([music, noise, tone]).astype(np.float32))
    tags = network(sounds)["tags"]
    assert tags.argmax(dim=1).tolist() == [MUSIC, STATIC, SINE]
