"""Read weights from every file format of checkpoints, and write our own.

Pickles are read with ``weights_only``: no code of a checkpoint ever runs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.checkpoints.cards import Format
from models.checkpoints.onnx_weights import read_initializers
from models.checkpoints.tf_checkpoint import read_bundle

# Training leftovers in a TensorFlow checkpoint: Adam's moments and step counters.
_OPTIMISER = ("/Adam", "beta1_power", "beta2_power", "global_step")


# Training checkpoints pickle NumPy scalars in their optimiser state; harmless, and allowed. The
# function that makes a scalar has had two module paths (NumPy 1 and 2).
_MAKE_SCALAR: Any = np.float64(0).__reduce__()[0]
_NUMPY_SCALARS: list[Any] = [
    np.dtype,
    *(np.dtypes.Float64DType, np.dtypes.Float32DType, np.dtypes.Int64DType),
    (_MAKE_SCALAR, "numpy.core.multiarray.scalar"),
    (_MAKE_SCALAR, "numpy._core.multiarray.scalar"),
]


class ConversionError(ValueError):
    """A weight file does not contain what its format promises."""


def write_tensors(
    tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write a safetensors file with the usual permissions of this process.

    Only the writer may read files from safetensors itself; a service often runs as another user.
    """
    path.touch()
    mode = path.stat().st_mode
    save_file(dict(tensors), path, None if metadata is None else dict(metadata))
    path.chmod(mode)


def read_tensors(kind: Format, paths: Sequence[Path], state_key: str) -> dict[str, Tensor]:
    """Read weight files to tensors under their original names.

    Args:
        kind: The format. ``tensorflow`` takes an index and a data file, the others one file each;
            several torch files become ``1.<name>``, ``2.<name>``, … in their order.
        paths: The files.
        state_key: Where the weights are in a pickled training checkpoint; "" means at the top.

    Raises:
        ConversionError: See there.
    """
    try:
        for path in paths:
            if not path.stat().st_size:
                raise ConversionError(f"{path.name} is empty")
        if kind == "safetensors":
            return load_file(_only(paths))
        if kind == "onnx":
            return read_initializers(_only(paths))
        if kind == "tensorflow":
            return _read_tensorflow(paths)
        states = [_read_torch(path, state_key) for path in paths]
    except ConversionError:
        raise
    except Exception as error:  # the readers of four formats do not document what they raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ConversionError(f"unreadable {kind} weights: {reason}") from error
    if len(states) == 1:
        return states[0]
    return {
        f"{number}.{name}": tensor
        for number, state in enumerate(states, start=1)
        for name, tensor in state.items()
    }


def _only(paths: Sequence[Path]) -> Path:
    if len(paths) != 1:
        raise ConversionError(f"expected one weight file, not {len(paths)}")
    return paths[0]


def _read_tensorflow(paths: Sequence[Path]) -> dict[str, Tensor]:
    if len(paths) != 2:
        raise ConversionError(f"expected an index and a data file, not {len(paths)} file(s)")
    index, data = paths
    bundle = read_bundle(index.read_bytes(), data.read_bytes())
    return {
        name: torch.from_numpy(array.copy())
        for name, array in bundle.items()
        if not any(mark in name for mark in _OPTIMISER)
    }


def _read_torch(path: Path, state_key: str) -> dict[str, Tensor]:
    try:
        with torch.serialization.safe_globals(_NUMPY_SCALARS):
            state = torch.load(path, map_location="cpu", weights_only=True)
    except (UnpicklingError, RuntimeError) as error:
        if "weights_only" not in str(error):
            raise
        # torch's own message advises loading it without that, which runs any code in it.
        raise ConversionError(
            f"{path.name} does not hold tensors alone; save `module.state_dict()`"
        ) from error
    if state_key:
        if not isinstance(state, Mapping) or state_key not in state:
            found = ", ".join(map(str, state)) if isinstance(state, Mapping) else "no keys at all"
            raise ConversionError(f"{path.name} has no state_key {state_key!r}; it has {found}")
        state = state[state_key]
    if not isinstance(state, Mapping) or not all(isinstance(v, Tensor) for v in state.values()):
        raise ConversionError(f"{path.name} holds more than tensors; a state key is missing")
    return {name: tensor.contiguous().clone() for name, tensor in state.items()}
