"""Run a step for many tracks at once, its forwards batched across tracks.

The same step gives the same result as `pipelines.steps.run_local`; only who shares a batch differs.
"""

import asyncio
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

import torch

from pipelines.audio import Waveform
from pipelines.batcher import Batcher, BatcherMetrics, DeviceFaultError
from pipelines.device import TorchDevice
from pipelines.steps import Prepared, Step

R = TypeVar("R")


class BatchedStep(Generic[R]):
    """A step behind one batcher per model; all its models share one device.

    Args:
        step: What to compute.
        device: Where its models live.
        max_windows: Most windows in one forward of each model.
        max_queued_windows: Most windows waiting for each model (see `Batcher`).
        host_threads: Tracks whose host work (`prepare`, `finish`) runs at the same time.
    """

    def __init__(
        self,
        step: Step[R],
        device: torch.device,
        max_windows: int,
        max_queued_windows: int,
        host_threads: int = 0,
    ) -> None:
        self._step = step
        self._device = TorchDevice(device)
        self._batchers = {
            model.model_id: Batcher(model.forward, max_windows, max_queued_windows, self._device)
            for model in step.models
        }
        self._host = ThreadPoolExecutor(
            host_threads or min(4, os.cpu_count() or 1), thread_name_prefix="step"
        )

    async def run(self, waveform: Waveform) -> R:
        """Analyse one track.

        Raises:
            AudioError: The audio is not fit for this step.
            QueueFullError: Too much is queued already.
            DeviceFaultError: The device is broken; try another process.
        """
        loop = asyncio.get_running_loop()
        prepared = await loop.run_in_executor(self._host, self._step.prepare, waveform)
        outputs = await self._forward_all(prepared)
        return await loop.run_in_executor(self._host, self._step.finish, prepared, outputs)

    async def _forward_all(self, prepared: Prepared) -> dict[str, Mapping[str, torch.Tensor]]:
        tasks = {
            model_id: asyncio.create_task(self._batchers[model_id].submit(windows))
            for model_id, windows in prepared.windows.items()
        }
        try:
            await asyncio.gather(*tasks.values())
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        return {model_id: task.result() for model_id, task in tasks.items()}

    def check_health(self) -> None:
        """Raise `DeviceFaultError` once the device has broken."""
        for batcher in self._batchers.values():
            if batcher.fault is not None:
                raise DeviceFaultError(str(batcher.fault)) from batcher.fault

    def metrics(self) -> dict[str, BatcherMetrics]:
        """Take a snapshot for each model id."""
        return {model_id: batcher.metrics() for model_id, batcher in self._batchers.items()}

    def close(self) -> None:
        """End the threads after what is under way."""
        self._host.shutdown()
        self._device.close()
