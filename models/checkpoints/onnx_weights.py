"""Read the weights from an ONNX graph, without running the graph."""

from pathlib import Path

import torch
from torch import Tensor


def read_initializers(path: Path) -> dict[str, Tensor]:
    """Read the floating-point initializers of an ONNX file, under the exporter's names.

    Shape constants (integers) and the exporter's anonymous constants (``val_…``) are left out:
    they belong to the graph, not to the network.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(path), load_external_data=False).graph
    arrays = {
        tensor.name: numpy_helper.to_array(tensor)
        for tensor in graph.initializer
        if not tensor.name.startswith("val_")
    }
    return {
        name: torch.from_numpy(array.copy())
        for name, array in arrays.items()
        if array.dtype.kind == "f"
    }
