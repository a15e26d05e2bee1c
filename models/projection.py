"""One vector from several networks' outputs for a track."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

_LEAST = 1e-6


def evidence_of(rows: Mapping[str, Tensor]) -> Tensor:
    """Summarise a network's outputs for a track.

    Args:
        rows: ``embedding [W, D]`` and ``tags [W, K]`` (probabilities) of its windows.

    Returns:
        float32 ``[D + K]``: the means of the embedding and of the tags' log-odds.
    """
    log_odds = torch.logit(rows["tags"].float(), eps=_LEAST)
    return torch.cat([rows["embedding"].float().mean(dim=0), log_odds.mean(dim=0)])


class Projection:
    """Standardises the concatenated evidence of several networks, and projects it.

    Args:
        tensors: ``mean [N]``, ``scale [N]`` and ``matrix [768, N]``, where N counts the values of
            all networks' evidence.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._mean = tensors["mean"].double()
        self._scale = tensors["scale"].double()
        self._matrix = tensors["matrix"].double()

    def __call__(self, evidence: Sequence[Tensor]) -> Tensor:
        """Map the evidence of each network, in the order of its card, to ``[768]``."""
        standard = (torch.cat(list(evidence)).double() - self._mean) * self._scale
        return self._matrix @ standard
