"""Convolutions in other forms of the same sum, for those that cuDNN runs without tensor cores.

Two such kernels took two thirds of MERT's time on an H100; by their shapes they are taken to be its
first convolution, of one channel, and its positional one, of 128 taps in 16 groups.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

_CHANNELS = 8
"""Tensor cores read as many numbers of 16 bits at a time."""


class FramedConvolution(nn.Conv1d):
    """A strided convolution of one channel, as one at stride 1 over frames of a stride.

    Args:
        like: Whose weights it takes; without padding.
    """

    def __init__(self, like: nn.Conv1d) -> None:
        (n_taps,), (stride,) = like.kernel_size, like.stride
        super().__init__(1, like.out_channels, n_taps, stride, bias=like.bias is not None)
        self.load_state_dict(like.state_dict())

    def forward(self, samples: Tensor) -> Tensor:
        """Map ``[B, 1, T]`` to ``[B, C, (T - taps) // stride + 1]``."""
        (n_taps,), (stride,) = self.kernel_size, self.stride
        n_strides = -(-n_taps // stride)
        n_frames = (samples.shape[-1] - n_taps) // stride + n_strides
        fitted = functional.pad(samples[:, 0], (0, n_frames * stride - samples.shape[-1]))
        taps = functional.pad(self.weight[:, 0], (0, n_strides * stride - n_taps))
        channels, kernels = (
            functional.pad(of_all.view(len(of_all), -1, stride), (0, -stride % _CHANNELS))
            .transpose(1, 2)
            .contiguous()
            for of_all in (fitted, taps)
        )
        return functional.conv1d(channels, kernels, self.bias)


class FourierConvolution(nn.Module):
    """A grouped convolution with a long kernel, by overlap-save, in float32.

    References:
        Oppenheim and Schafer, Discrete-Time Signal Processing (3rd ed.), 8.7.3.

    Args:
        like: Whose weights it takes; at stride 1.
    """

    spectrum: Tensor
    """complex64 ``[G, F, I, O]``: groups, frequencies, and channels in and out of each group."""

    def __init__(self, like: nn.Conv1d) -> None:
        super().__init__()
        self.groups = like.groups
        (self.padding,) = cast("tuple[int]", like.padding)
        (self.n_taps,) = like.kernel_size
        self.n_fft = 4 * self.n_taps
        self.weight = nn.Parameter(like.weight.detach().clone())
        self.bias = like.bias
        self.register_buffer("spectrum", self._transformed(), persistent=False)
        self.register_load_state_dict_post_hook(_transform_again)  # type: ignore[no-untyped-call]

    def _transformed(self) -> Tensor:
        n_outputs, n_inputs, _ = self.weight.shape
        kernels = self.weight.detach().view(self.groups, n_outputs // self.groups, n_inputs, -1)
        spectra: Tensor = torch.fft.rfft(kernels, self.n_fft).conj().permute(0, 3, 2, 1)
        return spectra.resolve_conj().contiguous()

    def forward(self, inputs: Tensor) -> Tensor:
        """Map ``[B, C, T]`` to float32 ``[B, C', T + 2 padding - taps + 1]``."""
        n, n_channels, n_inputs = inputs.shape
        n_outputs = n_inputs + 2 * self.padding - self.n_taps + 1
        hop = self.n_fft - self.n_taps + 1
        n_blocks = -(-n_outputs // hop)
        behind = (n_blocks - 1) * hop + self.n_fft - self.padding - n_inputs
        padded = functional.pad(inputs.float(), (self.padding, behind))
        blocks = torch.fft.rfft(padded.unfold(-1, self.n_fft, hop))
        of_groups = blocks.view(n, self.groups, n_channels // self.groups, n_blocks, -1)
        products = torch.einsum("bginf,gfio->bgonf", of_groups, self.spectrum)
        sums = torch.fft.irfft(products, self.n_fft)[..., :hop]
        outputs: Tensor = sums.reshape(n, len(self.weight), -1)[..., :n_outputs]
        return outputs if self.bias is None else outputs + self.bias[:, None]


def _transform_again(module: nn.Module, _: object) -> None:
    if isinstance(module, FourierConvolution):
        module.spectrum = module._transformed()
