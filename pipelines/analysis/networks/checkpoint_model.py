"""Checkpoints as windowed models: a network, its device, and the windows its card asks for."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.checkpoints.cache import CheckpointError, load_tensors
from models.checkpoints.cards import CardError, ModelCard
from models.networks import build_network
from models.precision import HalvableNetwork, TransformerNetwork, halve_weights
from models.vibenet import ATTRIBUTES
from pipelines.analysis.networks.compiled import CompiledFile
from pipelines.analysis.records import EMBEDDING_DIMENSION
from pipelines.batching.batcher import DeviceFaultError
from pipelines.batching.cuda_graph import RecordedForward
from pipelines.batching.device import is_device_fault, is_out_of_memory
from pipelines.batching.windows import WindowSpec, cut, repeated, window_starts

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Execution:
    """How networks should run, as far as they support it.

    Attributes:
        dtype: float32, or bfloat16 for half precision if a network supports it.
        batch_sizes: Compile transformers for these numbers of windows, ascending. Batches are
            padded to the next of these sizes, so that every shape is static. Empty means no
            compilation.
        cuda_graphs: Record a CUDA graph for each batch size, if the device is a GPU.
    """

    dtype: torch.dtype = torch.float32
    batch_sizes: tuple[int, ...] = ()
    cuda_graphs: bool = False


EAGER = Execution()

MAX_COMPILED = 64
"""Maximum number of shapes that torch may compile of one function. All transformers share one
outermost function, and beyond the default limit of eight shapes the rest silently run uncompiled.
"""

_LONGEST_REASON = 200

LEVEL = 0.1
"""RMS of the noise that networks are tried on: about the level of tracks at their input."""


class CheckpointModel:
    """A network behind the `WindowedModel` protocol.

    Args:
        card: Gives the id and the windows.
        network: Maps windows ``[B, T]`` to named outputs, front-end included.
        device: Where it runs.
        max_windows: Maximum number of windows of a track; 0 means all.
        execution: The requested precision and compilation.
        compiled: Where compiled forwards are kept for other replicas; None keeps none.

    Attributes:
        execution: How it runs: as requested, as far as the network supports it.
    """

    def __init__(
        self,
        card: ModelCard,
        network: nn.Module,
        device: torch.device,
        max_windows: int = 0,
        execution: Execution = EAGER,
        compiled: CompiledFile | None = None,
    ) -> None:
        self._compiled = compiled
        self.model_id = card.model_id
        self.card = card
        self.spec = WindowSpec(
            card.sample_rate, card.window_length, card.window_hop, max_windows=max_windows
        )
        self.device = device
        self.network = network.to(device).eval().requires_grad_(False)
        self._cuda_graphs = execution.cuda_graphs and device.type == "cuda"
        self._recorded: dict[int, RecordedForward] = {}
        if not isinstance(network, TransformerNetwork):
            execution = Execution(execution.dtype)
        if not isinstance(network, HalvableNetwork):
            execution = EAGER
        elif execution.dtype == torch.bfloat16:
            network.precision = execution.dtype
            halve_weights(self.network)
        if isinstance(network, TransformerNetwork) and execution.batch_sizes:
            network.compile_trunk(dynamic=False)
        self.execution = execution

    @property
    def batch_sizes(self) -> tuple[int, ...]:
        """The numbers of windows it is compiled for, ascending; empty if any number will do."""
        return self.execution.batch_sizes

    def forward(self, windows: Tensor) -> Mapping[str, Tensor]:
        """Map windows ``[B, T]``, on any device, to outputs ``[B, …]`` on the model's."""
        n = len(windows)
        on_device = windows.to(self.device, torch.float32, non_blocking=True)
        n_static = next((size for size in self.batch_sizes if size >= n), n)
        if n_static > n:
            on_device = functional.pad(on_device, (0, 0, 0, n_static - n))
        forward = self._recorded.get(n_static, self.network)
        outputs: Mapping[str, Tensor] = forward(on_device)
        return {name: rows[:n] for name, rows in outputs.items()}

    def warm_up(self) -> None:
        """Run every compiled batch size (or one window) once, so that no request waits for it.

        Call it in the thread and on the stream of the forwards. It reuses what another replica has
        compiled. The first window is noise, and its outputs are checked.

        Raises:
            CheckpointError: The outputs do not match the card, or are not finite.
        """
        begun_s = time.perf_counter()
        was_kept = False
        if self.batch_sizes:
            from torch._dynamo import config

            config.recompile_limit = MAX_COMPILED  # holds in this thread only
            was_kept = self._compiled is not None and self._compiled.restore()
        with torch.inference_mode():
            for size in self.batch_sizes or (1,):
                windows = torch.zeros(size, self.spec.length, device=self.device)
                windows[0] = noise(1, self.spec.length)[0]
                self._check({name: rows[:1] for name, rows in self.forward(windows).items()})
                if self._cuda_graphs and self.batch_sizes:
                    self._recorded[size] = RecordedForward(self.network, windows)
        if self._compiled is not None and self.batch_sizes:
            self._compiled.keep()
        took_s = time.perf_counter() - begun_s
        logger.info("%s is warm after %.1f s, compiled before: %s", self.model_id, took_s, was_kept)

    def _check(self, outputs: Mapping[str, Tensor]) -> None:
        fault = outputs_fault(self.card, outputs)
        if fault:
            remedy = f"`afa models check {self.model_id}` says more."
            raise CheckpointError(self.model_id, self.card.source, fault, remedy)

    def cut(self, samples: Tensor) -> Tensor:
        """Cut a track at the model's sample rate, ``[T]``, into windows ``[W, length]``.

        A track shorter than one window is repeated to fill it, so that the networks analyse music
        to the end and do not judge silence as well.
        """
        length = self.spec.length
        if 0 < len(samples) < length:
            samples = repeated(samples, length)
        return cut(samples, window_starts(len(samples), self.spec), length)


def load(
    card: ModelCard,
    model_dir: Path,
    device: torch.device,
    max_windows: int = 0,
    execution: Execution = EAGER,
) -> CheckpointModel:
    """Load a pulled checkpoint to a device.

    Raises:
        CheckpointError: It is not in ``model_dir``, or does not match the card.
        CardError: No class here runs this card.
    """
    with _taking_weights(card):
        network = build_network(card, model_dir)
    compiled = None
    if execution.batch_sizes and card.format != "none":
        compiled = CompiledFile.of(card, model_dir, device)
    return CheckpointModel(card, network, device, max_windows, execution, compiled)


def build_own(card: ModelCard, model_dir: Path, build: Callable[[dict[str, Tensor]], T]) -> T:
    """Build one of afa's own networks for beats, key or chords, whose windows no card sets.

    Raises:
        CheckpointError: The weights are not in ``model_dir``, do not match the card, are not
            finite, or belong to another network.
    """
    tensors = load_tensors(card, model_dir)
    for name, tensor in tensors.items():
        if not bool(tensor.isfinite().all()):
            remedy = "Put weights into its card whose training did not diverge."
            raise CheckpointError(card.model_id, card.source, f"{name}: not finite", remedy)
    with _taking_weights(card):
        return build(tensors)


@contextmanager
def _taking_weights(card: ModelCard) -> Iterator[None]:
    try:
        yield
    except CardError:
        raise
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        if is_out_of_memory(error) or is_device_fault(error):
            raise
        reason = f"{card.network} does not take the weights: {reason_of(error)}"
        remedy = "Put the network of these weights into its card."
        raise CheckpointError(card.model_id, card.source, reason, remedy) from error


def try_all(models: Iterable[CheckpointModel]) -> None:
    """Run each network once before anything is analysed with it.

    Raises:
        CheckpointError: One cannot run, or its outputs do not match its card or are not finite.
        DeviceFaultError: The device is broken, or too small for one of them.
    """
    for model in models:
        try:
            model.warm_up()
        except CheckpointError:
            raise
        except Exception as error:
            fault = f"cannot be run: {reason_of(error)}"
            if is_out_of_memory(error) or is_device_fault(error):
                raise DeviceFaultError(f"{model.model_id} {fault}") from error
            remedy = f"`afa models check {model.model_id}` says more."
            raise CheckpointError(model.model_id, model.card.source, fault, remedy) from error


def noise(n_windows: int, length: int) -> Tensor:
    """Return windows of noise, the same every time, float32 ``[n_windows, length]``."""
    return LEVEL * torch.randn(n_windows, length, generator=torch.Generator().manual_seed(0))


def outputs_fault(card: ModelCard, outputs: Mapping[str, Tensor]) -> str:
    """Say how a network's outputs differ from its card; "" if they match."""
    found = {name: tuple(rows.shape[1:]) for name, rows in outputs.items()}
    for name, n_dimensions in card.outputs.items():
        if name not in found:
            return f"the card has {name!r}, the network gives {', '.join(sorted(found))}"
        if found[name] != (n_dimensions,):
            return f"{name} has the shape {found[name]}, the card says {n_dimensions}"
    if card.role not in card.outputs:
        return f"a checkpoint for {card.role} needs an output {card.role!r}"
    if card.outputs.get("embedding", 0) > EMBEDDING_DIMENSION:
        return f"an embedding has at most {EMBEDDING_DIMENSION} dimensions"
    if card.outputs.get("attributes", len(ATTRIBUTES)) != len(ATTRIBUTES):
        return f"the attributes are {', '.join(ATTRIBUTES)}"
    wrong = [name for name in card.outputs if not bool(outputs[name].isfinite().all())]
    return f"{', '.join(wrong)}: not finite" if wrong else ""


def reason_of(error: Exception) -> str:
    """Return a network's error as one line; if weights do not fit, with some missing ones."""
    line, *rest = str(error).split("\n")
    if line.endswith(":") and rest:
        line = shorten(f"{line} {rest[0]}", _LONGEST_REASON, placeholder=" …").rstrip(". ")
    return f"{type(error).__name__}: {line}"
