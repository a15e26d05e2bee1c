"""How far two runs of the same rows agree; torch only."""

import asyncio
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from pipelines.batching.batcher import Batcher
from pipelines.batching.device import TorchDevice

Outputs = Mapping[str, Tensor]


def forward_alone(network: nn.Module, windows: Tensor, device: torch.device) -> dict[str, Tensor]:
    """Run every window by itself; return all rows on the CPU."""
    with torch.inference_mode():
        rows = [network(window[None].to(device)) for window in windows]
    return {name: torch.cat([row[name].cpu() for row in rows]) for name in rows[0]}


def sizes_of(outputs: Outputs) -> dict[str, int]:
    """Return the dimensions of outputs ``[B, dimensions]``, as in a card."""
    return {name: rows.shape[1] for name, rows in outputs.items()}


def forward_served(
    network: nn.Module, windows: Tensor, device: torch.device, max_windows: int
) -> dict[str, Tensor]:
    """Run windows through a batcher, as tracks of one, two, three, … windows at once."""
    tracks: list[Tensor] = []
    start = 0
    while start < len(windows):
        tracks.append(windows[start : start + len(tracks) + 1])
        start += len(tracks)

    async def serve() -> Sequence[Outputs]:
        torch_device = TorchDevice(device)
        batcher = Batcher(network, max_windows, len(windows), torch_device)
        try:
            return await asyncio.gather(*(batcher.submit(track) for track in tracks))
        finally:
            torch_device.close()

    results = asyncio.run(serve())
    return {name: torch.cat([result[name] for result in results]) for name in results[0]}


def lowest_cosine(one: Outputs, other: Outputs) -> float:
    """Lowest cosine between corresponding rows of corresponding outputs; two zero rows agree."""
    lowest = 1.0
    for name, rows in one.items():
        a, b = rows.double().flatten(1), other[name].double().cpu().flatten(1)
        cosines = torch.where(
            (a == b).all(dim=1), 1.0, torch.nn.functional.cosine_similarity(a, b, dim=1)
        )
        lowest = min(lowest, float(cosines.min()))
    return lowest


def largest_difference(one: Outputs, other: Outputs) -> float:
    """Largest difference of any value, relative to the largest value of its output."""
    largest = 0.0
    for name, rows in one.items():
        a, b = rows.double(), other[name].double().cpu()
        scale = float(a.abs().max()) or 1.0
        largest = max(largest, float((a - b).abs().max()) / scale)
    return largest
