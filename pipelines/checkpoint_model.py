"""Checkpoints as windowed models: a network, its device, and the windows its card asks for."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from models.cards import ModelCard
from models.networks import build_network
from pipelines.windows import WindowSpec, cut, window_starts


class CheckpointModel:
    """A network behind the `WindowedModel` protocol.

    Args:
        card: Gives the id and the windows.
        network: Maps windows ``[B, T]`` to named outputs, front-end included.
        device: Where it runs.
        max_windows: At most so many windows of a track; 0 means all.
    """

    def __init__(
        self, card: ModelCard, network: nn.Module, device: torch.device, max_windows: int = 0
    ) -> None:
        self.model_id = card.model_id
        self.card = card
        self.spec = WindowSpec(
            card.sample_rate, card.window_length, card.window_hop, max_windows=max_windows
        )
        self.device = device
        self.network = network.to(device).eval().requires_grad_(False)

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        """Map float32 windows ``[B, T]``, on any device, to outputs ``[B, …]`` on the model's."""
        outputs: Mapping[str, Tensor] = self.network(windows.to(self.device, non_blocking=True))
        return outputs

    def cut(self, samples: NDArray[np.float32]) -> Tensor:
        """Cut a track at the model's sample rate, ``[T]``, to windows ``[W, length]``.

        A track shorter than one window is repeated to fill it: the networks then hear music to the
        end, not a silence they would judge as well.
        """
        length = self.spec.length
        if 0 < len(samples) < length:
            samples = np.pad(samples, (0, length - len(samples)), mode="wrap")
        return cut(samples, window_starts(len(samples), self.spec), length)


def load(
    card: ModelCard, model_dir: Path, device: torch.device, max_windows: int = 0
) -> CheckpointModel:
    """Load a pulled checkpoint to a device.

    Raises:
        CheckpointError: It is not in ``model_dir``, or not what the card says.
    """
    return CheckpointModel(card, build_network(card, model_dir), device, max_windows)
