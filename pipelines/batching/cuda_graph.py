"""A forward of one shape, recorded as a CUDA graph and replayed without the host's launches.

Recorded here and not by torch.compile's "reduce-overhead" mode: that keeps its graphs per thread,
asserts in every thread but the first (torch 2.11, pytorch/pytorch#123177), hands a graph that one
thread owns to another network of the same shape, and never lets the memory of a graph go.
"""

import threading
from collections.abc import Mapping

import torch
from torch import Tensor

from pipelines.batching.device import Forward

WARM_UP_RUNS = 3
"""Before recording, so that plans, workspaces and compiled kernels exist."""

_recording = threading.Lock()
"""A process records one graph at a time."""


class RecordedForward:
    """Replays a forward; used on the stream on which it was made, by one thread at a time.

    Args:
        forward: Maps windows to named outputs, all on the device.
        windows: Of the shape to record, on the device; the current stream is not the default one.
    """

    def __init__(self, forward: Forward, windows: Tensor) -> None:
        self._windows = windows.clone()
        with _recording:
            for _ in range(WARM_UP_RUNS):
                forward(self._windows)
            self._graph = torch.cuda.CUDAGraph()
            stream = torch.cuda.current_stream(windows.device)
            # Other threads go on allocating and copying meanwhile.
            with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
                self._outputs = dict(forward(self._windows))

    def __call__(self, windows: Tensor) -> Mapping[str, Tensor]:
        """Run it; the outputs are the caller's own."""
        self._windows.copy_(windows)
        self._graph.replay()
        return {name: rows.clone() for name, rows in self._outputs.items()}
