"""afa's own beat tracker: features, and the mean of one or several beat networks."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from models.rhythm.network import (
    HOP_LENGTH,
    TEMPI,
    TEMPO_STRIDE,
    BeatFeatures,
    BeatNetwork,
    is_pause,
)

TRIM_FRAMES = 500
"""Windows are cut to whole multiples of this (10 s), so that few shapes occur."""


class BeatTracker(nn.Module):
    """Probabilities of beats and downbeats, and evidence of the tempo, from samples."""

    def __init__(self, networks: list[BeatNetwork]) -> None:
        super().__init__()
        self.features = BeatFeatures()
        self.networks = networks
        self._registered = nn.ModuleList(networks)

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> "BeatTracker":
        """Build from one network's tensors, or from several's, named ``1.<name>``, ``2.<name>``, ….

        Raises:
            RuntimeError: Tensors are missing, extra or misshapen.
        """
        states: dict[str, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            number, _, rest = name.partition(".")
            states.setdefault(number, {})[rest] = tensor
        if not all(number.isdigit() for number in states):
            return cls([BeatNetwork.from_tensors(tensors)]).eval()
        return cls([BeatNetwork.from_tensors(state) for _, state in sorted(states.items())]).eval()

    @property
    def receptive_frames(self) -> int:
        """Frames before and after a frame that it depends on."""
        # A frame is 1,411 samples around its centre: it spans two hops to either side.
        return 2 + max(network.receptive_frames for network in self.networks)

    def level(self, waveform: Tensor) -> float:
        """Measure the level that ``[T]`` samples of a track must be divided by."""
        return float(self.features.level(waveform[None]))

    def forward(self, waveform: Tensor) -> Mapping[str, Tensor]:
        """Return the evidence in every frame.

        Args:
            waveform: float32 ``[B, T]`` at 22,050 Hz, divided by the track's `level`; T is a whole
                number of seconds. On a CPU, float16 is accepted too.

        Returns:
            ``activations``: float32 ``[B, T / 441, 2]``, 0 to 1, probability of a beat that is not
            a downbeat, and of a downbeat. ``tempo``: float32 ``[B, T / 22050, 64]``, logits over
            `TEMPI`.
        """
        n_frames = waveform.shape[-1] // HOP_LENGTH
        if waveform.device.type != "cpu":
            outputs = self.average(self.features(waveform))
            return {"activations": outputs[0], "tempo": outputs[1]}
        activations = torch.zeros(len(waveform), n_frames, 2)
        tempo = torch.zeros(len(waveform), n_frames // TEMPO_STRIDE, len(TEMPI))
        for i, row in enumerate(waveform):
            # Silence after the track changes nothing before it, so it is not computed.
            n = _heard_frames(row, n_frames)
            beats, tempi = self.average(self.features(row[None, : n * HOP_LENGTH].float()))
            activations[i, :n], tempo[i, : n // TEMPO_STRIDE] = beats[0], tempi[0]
        return {"activations": activations, "tempo": tempo}

    def average(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Average the networks' probabilities ``[B, N, 2]`` and tempo logits ``[B, M, 64]``.

        No beat begins in a pause, for which the networks only report what is usual.
        """
        said = [network(features) for network in self.networks]
        beat = torch.stack([logits.beat.sigmoid() for logits in said]).mean(0)
        downbeat = torch.stack([logits.downbeat.sigmoid() for logits in said]).mean(0)
        activations = torch.stack([(beat - downbeat).clamp_min(0.0), downbeat], dim=-1)
        activations = activations * ~is_pause(features)[..., None]
        return activations, torch.stack([logits.tempo for logits in said]).mean(0)


def _heard_frames(samples: Tensor, n_frames: int) -> int:
    """Frames of ``samples [T]`` up to the last sound, rounded up to whole multiples."""
    block = TRIM_FRAMES * HOP_LENGTH
    sound = samples.numpy()  # NumPy's any() is three times as fast
    n_blocks = -(-len(sound) // block)
    while n_blocks and not sound[(n_blocks - 1) * block : n_blocks * block].any():
        n_blocks -= 1
    # The last sound is still in the frame centred after it.
    return min(n_frames, n_blocks * TRIM_FRAMES + TEMPO_STRIDE)
