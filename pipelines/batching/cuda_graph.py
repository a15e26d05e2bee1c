"""A forward of one shape, recorded as a CUDA graph and replayed without the host's launches.

Recorded here instead of by torch.compile's "reduce-overhead" mode, which keeps its graphs per
thread, asserts in every thread but the first (torch 2.11, pytorch/pytorch#123177), hands a graph
that one thread owns to another network of the same shape, and never frees the memory of a graph.
"""

import threading
from collections.abc import Mapping

import torch
from torch import Tensor

from pipelines.batching.device import Forward

WARM_UP_RUNS = 3
"""Runs before recording, so that plans, workspaces and compiled kernels exist."""

_recording = threading.Lock()
"""A process records one graph at a time."""


class RecordedForward:
    """Replays a forward; used on the stream on which it was made, by one thread at a time.

    Args:
        forward: Maps windows to named outputs, all on the device.
        windows: Have the shape to record and lie on the device; the current stream must not be the
            default one.
    """

    def __init__(self, forward: Forward, windows: Tensor) -> None:
        self._windows = windows.clone()
        with _recording:
            for _ in range(WARM_UP_RUNS):
                forward(self._windows)
            self._graph = torch.cuda.CUDAGraph()
            stream = torch.cuda.current_stream(windows.device)
            # Other threads continue to allocate and copy meanwhile.
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._outputs = dict(forward(self._windows))

    def __call__(self, windows: Tensor) -> Mapping[str, Tensor]:
        """Replay the forward; the caller owns the outputs."""
        self._windows.copy_(windows)
        self._graph.replay()
        return {name: rows.clone() for name, rows in self._outputs.items()}
