"""Equivalent forms of convolutions that cuDNN runs without tensor cores.

Two such kernels took two thirds of MERT's time on an H100. Their shapes suggest that they are its
first convolution, with one channel, and its positional one, with 128 taps in 16 groups. Converting
the other convolutions to a layout with channels innermost, and back, took a sixth of the rest.
"""

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

_ALIGNED = 8
"""Tensor cores read this many 16-bit numbers at a time."""


class FeatureEncoder(nn.Module):
    """The strided convolutions of wav2vec 2.0 and HuBERT, with channels innermost throughout.

    The first is computed as a product of frames of samples with its kernels; the others need no
    change of layout before or after them.

    Args:
        like: transformers' encoder, whose layers and tensor names it uses.

    References:
        Baevski et al., wav2vec 2.0 (2020), section 2.
    """

    def __init__(self, like: nn.Module) -> None:
        super().__init__()
        self.conv_layers = cast("nn.ModuleList", like.conv_layers)

    def forward(self, samples: Tensor) -> Tensor:
        """Map ``[B, T]`` to ``[B, T', C]``, where T' is the number of frames after all layers."""
        hidden = samples[:, None, None]
        for layer in self.conv_layers:
            conv = cast("nn.Conv1d", layer.conv)
            if conv.in_channels == 1:
                hidden = _of_one_channel(hidden, conv)
            else:
                hidden = functional.conv2d(
                    hidden, conv.weight[:, :, None], conv.bias, (1, *conv.stride)
                )
            norm = getattr(layer, "layer_norm", None)
            if isinstance(norm, nn.LayerNorm):
                hidden = norm(hidden.movedim(1, -1)).movedim(-1, 1)
            elif norm is not None:
                hidden = norm(hidden)
            hidden = cast("nn.Module", layer.activation)(hidden)
        return hidden[:, :, 0].transpose(1, 2)


def _of_one_channel(samples: Tensor, conv: nn.Conv1d) -> Tensor:
    (n_taps,), (stride,) = conv.kernel_size, conv.stride
    blanks = 0, -n_taps % _ALIGNED
    frames = functional.pad(samples[:, 0, 0].unfold(1, n_taps, stride), blanks)
    sums = functional.linear(frames, functional.pad(conv.weight[:, 0], blanks), conv.bias)
    return sums.transpose(1, 2)[:, :, None]


class FourierConvolution(nn.Module):
    """A grouped convolution with a long kernel, by overlap-save, in float32.

    References:
        Oppenheim and Schafer, Discrete-Time Signal Processing (3rd ed.), 8.7.3.

    Args:
        like: The convolution whose weights it uses; at stride 1.
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
