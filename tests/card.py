"""A simulated graphics card: tensors that say they are on one, computed on the CPU.

A host tensor gets onto the card only by a copy, which is counted, and cannot take part in a kernel
of the card: that fails here as on a real one.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")
"""The only kind besides the CPU that every build of torch has; here its tensors have values."""


class OnCard(Tensor):
    """A tensor on the card; its values are on the CPU."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> "OnCard":
        made: OnCard = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            held.size(),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} outside of `Card`")


class Card(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context in which tensors may be on `DEVICE`.

    Attributes:
        n_bytes: Bytes copied to it so far.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.n_bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        with self:  # a composite kernel is seen as the ones it is made of
            done = func.decompose(*args, **kwargs)
        if done is not NotImplemented:
            return done
        name = str(func)
        tensors = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, Tensor)]
        of_host = [one for one in tensors if not isinstance(one, OnCard) and one.ndim]
        wanted = kwargs.get("device")
        is_to_card = wanted is not None and torch.device(wanted).type == DEVICE.type
        is_to_host = wanted is not None and not is_to_card
        if is_to_card or is_to_host:
            kwargs["device"] = torch.device("cpu")
        was_on_card = any(isinstance(one, OnCard) for one in tensors)
        if name.startswith("aten.copy_"):
            is_to_card = isinstance(args[0], OnCard)
            was_on_card, is_to_host = is_to_card, not is_to_card
        elif name.startswith("aten._has_compatible_shallow_copy_type"):
            return False  # a module that is moved here gets new parameters
        elif was_on_card and of_host:
            raise RuntimeError(f"{name}: tensors of the card and of the host")
        if is_to_card and of_host:
            self.n_bytes += sum(one.nbytes for one in of_host)
        held = {id(one.held): one for one in tensors if isinstance(one, OnCard)}
        plain = tree_map(lambda one: one.held if isinstance(one, OnCard) else one, (args, kwargs))
        result = func(*plain[0], **plain[1])
        if not (is_to_card or was_on_card) or is_to_host:
            return args[0] if name.startswith("aten.copy_") else result
        return tree_map(
            lambda one: held.get(id(one), OnCard(one)) if isinstance(one, Tensor) else one, result
        )
