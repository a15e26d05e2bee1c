"""Every network and front-end at its full size with random weights, for checks that need no files.

Needs only torch, torchaudio, transformers and numpy.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from models.tonality.skey import Vqt

Forward = Callable[[Tensor], Mapping[str, Tensor]]

MIN_COSINE = 0.9999
"""Lowest cosine between rows that should be the same."""

SMALL_S = 2
"""Seconds of a small window, unless the network needs another length."""


@dataclass(frozen=True, slots=True)
class Subject:
    """Something that maps windows to outputs, row by row.

    Attributes:
        build: Makes its forward on a device; the same weights every time.
        n_samples: Length of a window.
        sample_rate: Hz.
        channels: 1, or 2 for windows ``[B, 2, T]``.
        half_cosine: Lowest allowed cosine for half precision.
    """

    name: str
    build: "Callable[[torch.device], nn.Module]"
    n_samples: int
    sample_rate: int
    channels: int = 1
    half_cosine: float = MIN_COSINE

    def windows(self, n: int, seed: int = 0) -> Tensor:
        """Make ``n`` different windows of tones with a beat and some noise, float32."""
        generator = torch.Generator().manual_seed(seed)
        t = torch.arange(self.n_samples) / self.sample_rate
        rows = []
        for row in range(n * self.channels):
            pitch_hz = 55.0 * 2 ** (row % 37 / 12)
            voices = sum(torch.sin(2 * math.pi * pitch_hz * k * t) / k for k in (1, 2, 3, 5))
            noise = torch.randn(self.n_samples, generator=generator)
            beat = torch.exp(-6 * (t % (0.35 + 0.02 * (row % 11))))
            rows.append(0.1 * voices * beat + 0.02 * noise)
        shape = (n, self.n_samples) if self.channels == 1 else (n, self.channels, self.n_samples)
        return torch.stack(rows).reshape(shape).float()


class _Named(nn.Module):
    """Gives a front-end's tensor a name, as networks do."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        return {"features": self.module(windows)}


class _FramesFirst(nn.Module):
    """Swaps bands and frames."""

    def forward(self, features: Tensor) -> Tensor:
        return features.transpose(1, 2)


class _Levels(nn.Module):
    """Energies and true peak of BS.1770."""

    def forward(self, windows: Tensor) -> dict[str, Tensor]:
        from models.loudness import peak, step_energies

        return {"energies": step_energies(windows, 44_100), "peak": peak(windows)[:, None]}


def front_ends(*, is_small: bool = False) -> Iterator[Subject]:
    """Yield the front-ends; small ones have windows of a few seconds."""
    for name, (build, n_samples, sample_rate) in _FRONT_ENDS.items():
        length = min(n_samples, SMALL_S * sample_rate) if is_small else n_samples
        yield Subject(name, _seeded(_named(build)), length, sample_rate)
    length = 44_100 * (SMALL_S if is_small else 10)
    yield Subject("bs1770 levels", _seeded(_Levels), length, 44_100, channels=2)


def networks(*, is_small: bool = False) -> Iterator[Subject]:
    """Yield the networks; small ones are made in an instant and have windows of a few seconds."""
    for name, (build, n_samples, sample_rate) in _NETWORKS.items():
        length = n_samples
        size: dict[str, Any] = {}
        if is_small:
            length, size = _SMALL.get(name, (min(n_samples, SMALL_S * sample_rate), {}))
        made = _seeded(partial(build, **size))
        half_cosine = _HALF_COSINES.get(name, MIN_COSINE)
        yield Subject(name, made, length, sample_rate, half_cosine=half_cosine)


def subjects(*, is_small: bool = False) -> Iterator[Subject]:
    """Yield all of them, front-ends first."""
    yield from front_ends(is_small=is_small)
    yield from networks(is_small=is_small)


def _named(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: _Named(build())


def _seeded(build: Callable[[], nn.Module]) -> Callable[[torch.device], nn.Module]:
    def on_device(device: torch.device) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return build().to(device).eval().requires_grad_(False)

    return on_device


def _musicnn_mel() -> nn.Module:
    from models.frontends import MusicnnMel

    return MusicnnMel()


def _vibenet_mel() -> nn.Module:
    from models.frontends import VibenetMel

    return VibenetMel()


def _kaldi_fbank() -> nn.Module:
    from models.frontends import KaldiFbank

    return KaldiFbank(16_000, 128)


def _ced_mel() -> nn.Module:
    from models.trunks.ced import CedMel

    return CedMel()


def _clap_mel() -> nn.Module:
    from models.trunks.clap import ClapMel

    return ClapMel()


def _beat_front_end() -> nn.Module:
    from models.rhythm.beatnet import BeatFrontEnd

    return BeatFrontEnd()


def _beat_features() -> nn.Module:
    from models.rhythm.network import BeatFeatures

    return BeatFeatures()


def _hpcp() -> nn.Module:
    from models.tonality.key import Hpcp

    return Hpcp()


def _sound_frames() -> nn.Module:
    from models.segments import SoundFrames

    return SoundFrames()


def _vqt() -> "Vqt":
    from models.tonality.skey import Vqt

    # As published: nine times the kernels of the highest octave, which ends at semitone 99.
    t = torch.arange(128) - 64
    semitones = torch.arange(99)
    cycles = 27.5 * 2 ** (semitones[-12:, None] / 12) / 22_050 * t
    window = torch.hann_window(128) / 24
    taps = torch.arange(256) - 127.5
    tensors = {
        "lenghts": (22_050 / (27.5 * (2 ** (1 / 12) - 1)) / 2 ** (semitones / 12)).ceil(),
        "lowpass_filter": torch.sinc(taps / 2) / 2 * torch.hann_window(256),
    }
    for octave in range(9):
        tensors[f"cqt_kernels_real_{octave}"] = (window * torch.cos(math.tau * cycles))[:, None]
        tensors[f"cqt_kernels_imag_{octave}"] = (window * torch.sin(math.tau * cycles))[:, None]
    return Vqt(tensors)


def _skey() -> nn.Module:
    from models.tonality.skey import SKey

    return _Named(SKey(_vqt()))


def _keynet() -> nn.Module:
    from models.tonality.keynet import KeyNetwork

    return _Named(KeyNetwork())


def _chordnet() -> nn.Module:
    from models.tonality.chordnet import ChordNetwork

    return _Named(ChordNetwork())


def _beatnet() -> nn.Module:
    from models.rhythm.beatnet import BeatEnsemble

    return _Named(BeatEnsemble())


def _beat_tracker() -> nn.Module:
    from models.rhythm.network import BeatNetwork
    from models.rhythm.tracker import BeatTracker

    return BeatTracker([BeatNetwork()])


def _norm(name: str, n: int, style: tuple[str, str, str, str]) -> dict[str, Tensor]:
    values = (torch.rand(n) + 0.5, torch.randn(n) / 10, torch.randn(n) / 10, torch.rand(n) + 0.5)
    return {f"{name}{part}": value for part, value in zip(style, values, strict=True)}


def _weights(*shape: int, fan_in: int) -> Tensor:
    return torch.randn(*shape) * math.sqrt(2 / fan_in)


def _musicnn() -> nn.Module:
    from models.musicnn import Musicnn

    kernels = [(7, 38, 204), (7, 67, 204), (128, 1, 51), (64, 1, 51), (32, 1, 51)]
    kernels += [(7, 561, 64), (7, 64, 64), (7, 64, 64)]
    style = ("/gamma", "/beta", "/moving_mean", "/moving_variance")
    widths = [1, *(width for *_, width in kernels), 1506, 200]
    tensors: dict[str, Tensor] = {}
    for i, n in enumerate(widths):
        tensors |= _norm("batch_normalization" + (f"_{i}" if i else ""), n, style)
    for i, (length, height, width) in enumerate(kernels):
        name = "conv2d" + (f"_{i}" if i else "")
        tensors[f"{name}/kernel"] = _weights(length, height, 1, width, fan_in=length * height)
        tensors[f"{name}/bias"] = torch.zeros(width)
    for name, n_in, n_out in (("dense", 1506, 200), ("dense_1", 200, 50)):
        tensors[f"{name}/kernel"] = _weights(n_in, n_out, fan_in=n_in)
        tensors[f"{name}/bias"] = torch.zeros(n_out)
    return Musicnn(tensors)


def _vibenet() -> nn.Module:
    from models.vibenet import ATTRIBUTES, Vibenet

    # EfficientNet-B0: expansion, kernel, output width, blocks of each stage (table 1 of the paper).
    stages = [(1, 3, 16, 1), (6, 3, 24, 2), (6, 5, 40, 2), (6, 3, 80, 3), (6, 5, 112, 3)]
    stages += [(6, 5, 192, 4), (6, 3, 320, 1)]
    tensors: dict[str, Tensor] = {}

    def convolution(name: str, n_out: int, n_in: int, size: int = 1) -> None:
        # Less than the usual gain: residual branches add up, and nothing here normalises them.
        fan_in = round(2.4 * n_in * size**2)
        tensors[f"{name}.0.weight"] = _weights(n_out, n_in, size, size, fan_in=fan_in)
        style = (".1.weight", ".1.bias", ".1.running_mean", ".1.running_var")
        tensors.update(_norm(name, n_out, style))

    convolution("backbone.features.0", 32, 3, 3)
    width = 32
    for stage, (expansion, size, n_out, n_blocks) in enumerate(stages, start=1):
        for block in range(n_blocks):
            name = f"backbone.features.{stage}.{block}.block"
            inner = width * expansion
            at = 0
            if expansion > 1:
                convolution(f"{name}.0", inner, width)
                at = 1
            convolution(f"{name}.{at}", inner, 1, size)
            squeezed = width // 4
            for part, a, b in (("fc1", squeezed, inner), ("fc2", inner, squeezed)):
                tensors[f"{name}.{at + 1}.{part}.weight"] = _weights(a, b, 1, 1, fan_in=b)
                tensors[f"{name}.{at + 1}.{part}.bias"] = torch.zeros(a)
            convolution(f"{name}.{at + 2}", n_out, inner)
            width = n_out
    convolution("backbone.features.8", 1280, width)
    tensors |= {"trunk.0.weight": torch.ones(1280), "trunk.0.bias": torch.zeros(1280)}
    tensors |= {
        "trunk.1.weight": _weights(256, 1280, fan_in=1280),
        "trunk.1.bias": torch.zeros(256),
    }
    for attribute in ATTRIBUTES:
        tensors[f"heads.{attribute}.weight"] = _weights(1, 256, fan_in=256)
        tensors[f"heads.{attribute}.bias"] = torch.zeros(1)
    return Vibenet(tensors)


def _efficientat() -> nn.Module:
    from models.efficientat import EfficientAt

    # Kernel, widened channels, channels, squeezed channels of each block: table 1 of MobileNetV3,
    # times .4, in multiples of 8.
    blocks = [(3, 8, 8, 0), (3, 24, 16, 0), (3, 32, 16, 0), (5, 32, 16, 8), (5, 48, 16, 16)]
    blocks += [(5, 48, 16, 16), (3, 96, 32, 0), (3, 80, 32, 0), (3, 72, 32, 0), (3, 72, 32, 0)]
    blocks += [(3, 192, 48, 48), (3, 272, 48, 72), (5, 272, 64, 72), (5, 384, 64, 96)]
    blocks += [(5, 384, 64, 96)]
    tensors: dict[str, Tensor] = {}

    def convolution(name: str, n_out: int, n_in: int, size: int = 1) -> None:
        # Less than the usual gain, as in `_vibenet`, so that no tag is 0 or 1.
        fan_in = round(1.6 * n_in * size**2)
        tensors[f"{name}.0.weight"] = _weights(n_out, n_in, size, size, fan_in=fan_in)
        style = (".1.weight", ".1.bias", ".1.running_mean", ".1.running_var")
        tensors.update(_norm(name, n_out, style))

    def dense(name: str, n_out: int, n_in: int) -> None:
        tensors[f"{name}.weight"] = _weights(n_out, n_in, fan_in=n_in)
        tensors[f"{name}.bias"] = torch.zeros(n_out)

    convolution("features.0", 8, 1, 3)
    width = 8
    for number, (size, inner, n_out, squeezed) in enumerate(blocks, start=1):
        name, layer = f"features.{number}.block", 0
        if inner != width:
            convolution(f"{name}.0", inner, width)
            layer = 1
        convolution(f"{name}.{layer}", inner, 1, size)
        if squeezed:
            layer += 1
            dense(f"{name}.{layer}.conc_se_layers.0.fc1", squeezed, inner)
            dense(f"{name}.{layer}.conc_se_layers.0.fc2", inner, squeezed)
        convolution(f"{name}.{layer + 1}", n_out, inner)
        width = n_out
    convolution("features.16", 384, width)
    dense("classifier.2", 512, 384)
    dense("classifier.5", 527, 512)
    return EfficientAt(tensors)


def _efficientat_mel() -> nn.Module:
    from models.efficientat import EfficientAtMel

    return EfficientAtMel()


def _ced(width: int = 768, depth: int = 12) -> nn.Module:
    from models.trunks.ced import Ced

    n_tags = 527
    tensors = {"encoder.init_bn.num_batches_tracked": torch.tensor(0)}
    style = (".weight", ".bias", ".running_mean", ".running_var")
    tensors |= _norm("encoder.init_bn", 64, style)

    def layer(name: str, *shape: int) -> None:
        fan_in = math.prod(shape[1:])
        tensors[f"{name}.weight"] = _weights(*shape, fan_in=2 * fan_in)
        tensors[f"{name}.bias"] = torch.zeros(shape[0])

    def layer_norm(name: str) -> None:
        tensors[f"{name}.weight"], tensors[f"{name}.bias"] = torch.ones(width), torch.zeros(width)

    layer("encoder.patch_embed.proj", width, 1, 16, 16)
    tensors["encoder.time_pos_embed"] = torch.randn(1, width, 1, 63) / 50
    tensors["encoder.freq_pos_embed"] = torch.randn(1, width, 4, 1) / 50
    for block in range(depth):
        name = f"encoder.blocks.{block}"
        layer_norm(f"{name}.norm1")
        layer_norm(f"{name}.norm2")
        layer(f"{name}.attn.qkv", 3 * width, width)
        layer(f"{name}.attn.proj", width, width)
        layer(f"{name}.mlp.fc1", 4 * width, width)
        layer(f"{name}.mlp.fc2", width, 4 * width)
    layer_norm("encoder.norm")
    layer_norm("outputlayer.0")
    layer("outputlayer.1", n_tags, width)
    return Ced(tensors)


def _ast(**size: Any) -> nn.Module:
    from transformers import ASTConfig

    from models.trunks.ast import AUDIOSET_MEAN, AUDIOSET_STD, AstTrunk, AudioTransformer

    config = ASTConfig(**size)
    config.num_labels = 527
    trunk = AstTrunk(config)
    return AudioTransformer(trunk, _kaldi_fbank(), AUDIOSET_MEAN, AUDIOSET_STD)


def _maest(**size: Any) -> nn.Module:
    from transformers import ASTConfig

    from models.trunks.ast import DISCOGS_MEAN, DISCOGS_STD, AstTrunk, AudioTransformer

    config = ASTConfig(**{"num_mel_bins": 96, "max_length": 1876} | size)
    config.num_labels = 400
    trunk = AstTrunk(config)
    front_end = nn.Sequential(_musicnn_mel(), _FramesFirst())
    return AudioTransformer(trunk, front_end, DISCOGS_MEAN, DISCOGS_STD)


def _mert(**size: Any) -> nn.Module:
    from transformers import HubertConfig

    from models.trunks.mert import Mert, MertTrunk

    return Mert(MertTrunk(HubertConfig(**size)))


def _clap(**size: Any) -> nn.Module:
    from transformers import ClapAudioConfig, ClapAudioModelWithProjection

    from models.trunks.clap import Clap

    return Clap(ClapAudioModelWithProjection(ClapAudioConfig(**size)), 64)


_FRONT_ENDS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {
    "musicnn mel": (_musicnn_mel, 48_128, 16_000),
    "vibenet mel": (_vibenet_mel, 320_000, 16_000),
    "kaldi fbank": (_kaldi_fbank, 164_080, 16_000),
    "ced mel": (_ced_mel, 160_000, 16_000),
    "clap mel": (_clap_mel, 480_000, 48_000),
    "efficientat mel": (_efficientat_mel, 320_000, 32_000),
    "beat spectrum": (_beat_front_end, 661_500, 22_050),
    "beat features": (_beat_features, 661_500, 22_050),
    "hpcp": (_hpcp, 661_500, 22_050),
    "vqt": (_vqt, 330_750, 22_050),
    "sound frames": (_sound_frames, 661_500, 22_050),
}

_NETWORKS: dict[str, tuple[Callable[..., nn.Module], int, int]] = {
    "beatnet": (_beatnet, 661_500, 22_050),
    "beat-tracker": (_beat_tracker, 661_500, 22_050),
    "skey": (_skey, 330_750, 22_050),
    "keynet": (_keynet, 330_750, 22_050),
    "chordnet": (_chordnet, 661_504, 22_050),
    "musicnn": (_musicnn, 48_128, 16_000),
    "vibenet": (_vibenet, 320_000, 16_000),
    "efficientat": (_efficientat, 320_000, 32_000),
    "ast": (_ast, 164_080, 16_000),
    "maest": (_maest, 480_512, 16_000),
    "ced-base": (_ced, 160_000, 16_000),
    "clap": (_clap, 480_000, 48_000),
    "mert-95m": (_mert, 120_000, 24_000),
}

_HALF_COSINES = {"vibenet": 0.9995}
"""Networks whose random weights do worse than published ones (.99995 on the same windows)."""

_TRUNK = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}
_SMALL: dict[str, tuple[int, dict[str, Any]]] = {
    "skey": (330_750, {}),
    "ast": (127 * 160 + 400, _TRUNK | {"max_length": 128}),
    "maest": (127 * 256 + 512, _TRUNK | {"max_length": 128}),
    "ced-base": (32_000, {"width": 64, "depth": 1}),
    "clap": (
        480_000,
        {
            "patch_embeds_hidden_size": 8,
            "hidden_size": 64,
            "depths": [1, 1, 1, 1],
            "num_attention_heads": [1, 2, 4, 8],
            "projection_dim": 16,
        },
    ),
    "mert-95m": (
        24_000,
        _TRUNK
        | {
            "conv_dim": (32,) * 7,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
        },
    ),
}
"""Window and size of small networks, if they differ."""
