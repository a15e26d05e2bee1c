"""afa's own beat network with random weights: shapes, invariances and what a frame depends on."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from models.rhythm.network import (
    FRAME_RATE,
    HOP_LENGTH,
    N_BANDS,
    SAMPLE_RATE,
    TEMPI,
    BeatFeatures,
    BeatLogits,
    BeatNetwork,
    _frames_around,
    filter_bank,
)


@pytest.fixture
def network() -> BeatNetwork:
    torch.manual_seed(0)
    return BeatNetwork(channels=8, n_blocks=3).eval()


def noise(seconds: float, seed: int = 0) -> torch.Tensor:
    n = round(seconds * SAMPLE_RATE)
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 0.1, (1, n)).astype(np.float32))


def close(a: BeatLogits, b: BeatLogits, atol: float = 1e-5) -> bool:
    return all(torch.allclose(x, y, atol=atol) for x, y in zip(a, b, strict=True))


def test_filter_bank() -> None:
    bank = filter_bank()
    assert bank.shape == (1025, 83) == (1025, N_BANDS)
    np.testing.assert_allclose(bank.sum(axis=0), 1.0, rtol=1e-6)
    peaks = bank.argmax(axis=0) * SAMPLE_RATE / 2048
    assert peaks[0] == pytest.approx(4 * SAMPLE_RATE / 2048)
    assert peaks[-1] == pytest.approx(10_000, rel=0.05)
    assert (np.diff(peaks) > 0).all()
    np.testing.assert_allclose(peaks[-12:-1] / peaks[-13:-2], 2 ** (1 / 12), rtol=0.01)


def test_a_sine_fills_its_band() -> None:
    features = BeatFeatures()
    time = torch.arange(SAMPLE_RATE) / SAMPLE_RATE
    bands = features.bands(torch.sin(2 * torch.pi * 1000 * time)[None])[0, 10:40]
    peaks = filter_bank().argmax(axis=0) * SAMPLE_RATE / 2048
    assert abs(peaks[int(bands.mean(0).argmax())] / 1000 - 1) < 0.06


def test_a_click_is_in_the_frame_that_is_centred_on_it() -> None:
    waveform = torch.zeros(1, SAMPLE_RATE)
    waveform[0, 20 * HOP_LENGTH] = 1.0
    energy = BeatFeatures()(waveform)[0].sum(1).numpy()
    assert energy.argmax() == 20
    assert energy[19] == pytest.approx(energy[21], rel=1e-3)
    assert not energy[:18].any()


@pytest.mark.parametrize("n", [1, 440, 441, 442, 44_100])
def test_one_frame_a_hop(n: int) -> None:
    assert BeatFeatures()(torch.zeros(2, n)).shape == (2, -(-n // HOP_LENGTH), N_BANDS)


def test_silence_has_no_features_and_a_level() -> None:
    features = BeatFeatures()
    assert not features(torch.zeros(1, 4410)).any()
    assert features.level(torch.zeros(2, 4410)).tolist() == pytest.approx([1e-6, 1e-6])


@pytest.mark.parametrize("gain", [0.01, 3.0])
def test_divided_by_its_level_a_track_has_no_gain(gain: float) -> None:
    features, waveform = BeatFeatures(), noise(3)
    expected = features(waveform / features.level(waveform)[:, None])
    louder = waveform * gain
    found = features(louder / features.level(louder)[:, None])
    torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)
    assert 0.5 < float(expected.mean()) < 2


def test_a_quiet_half_does_not_move_the_level_of_a_long_track() -> None:
    features, loud = BeatFeatures(), noise(30)
    level = features.level(loud)
    faded = torch.cat([loud * 0.01, loud], dim=1)
    assert float(features.level(faded)) == pytest.approx(float(level), rel=0.1)


@pytest.mark.parametrize("step", [HOP_LENGTH, 5 * HOP_LENGTH])
@pytest.mark.parametrize("n", [1, 700, 705, 706, 1411, 2000, 4410, 22_050, 22_051, 30_000])
def test_frames_for_the_level_are_those_of_the_whole_padded_track(n: int, step: int) -> None:
    waveform = torch.rand(2, n)
    padded = functional.pad(waveform, (705, 1411))
    expected = padded.unfold(-1, 1411, step)[:, : -(-n // step)]
    assert torch.equal(_frames_around(waveform, step), expected)


def test_shapes_and_size() -> None:
    network = BeatNetwork().eval()
    logits = network(torch.rand(2, 1234, N_BANDS))
    assert logits.beat.shape == logits.downbeat.shape == (2, 1234)
    assert logits.tempo.shape == (2, 25, len(TEMPI))
    assert sum(p.numel() for p in network.parameters()) < 1_000_000
    assert TEMPI[0] == 40
    assert TEMPI[-1] > 300


def test_a_row_equals_itself_alone(network: BeatNetwork) -> None:
    features = torch.rand(3, 200, N_BANDS)
    rows = network(features)
    alone = network(features[1:2])
    assert close(BeatLogits(rows.beat[1:2], rows.downbeat[1:2], rows.tempo[1:2]), alone)


def test_a_frame_depends_on_the_receptive_field_and_no_more(network: BeatNetwork) -> None:
    reach = network.receptive_frames
    assert reach == 2 + 4 * 7
    features = torch.rand(1, 4 * reach, N_BANDS, requires_grad=True)
    middle = 2 * reach
    network(features).beat[0, middle].backward()
    assert features.grad is not None
    touched = features.grad[0].abs().sum(dim=1).nonzero().flatten()
    assert int(touched.min()) == middle - reach
    assert int(touched.max()) == middle + reach


def test_silence_is_the_same_as_nothing(network: BeatNetwork) -> None:
    features = torch.rand(1, 100, N_BANDS) + 0.1
    padded = torch.nn.functional.pad(features, (0, 0, 150, 200))
    found, expected = network(padded), network(features)
    torch.testing.assert_close(found.beat[:, 150:250], expected.beat, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.tempo[:, 3:5], expected.tempo, atol=1e-5, rtol=0)


def test_the_tempo_of_a_second_is_the_mean_over_its_frames(network: BeatNetwork) -> None:
    features = torch.rand(1, 170, N_BANDS)
    assert network(features).tempo.shape[1] == 4
    constant = torch.full((1, 400, N_BANDS), 0.5)
    tempo = network(constant).tempo[0]
    torch.testing.assert_close(tempo[3], tempo[4], atol=1e-5, rtol=0)


@pytest.mark.parametrize(("channels", "n_blocks"), [(8, 3), (16, 5)])
def test_the_size_is_read_off_the_tensors(channels: int, n_blocks: int) -> None:
    network = BeatNetwork(channels, n_blocks).eval()
    again = BeatNetwork.from_tensors(network.state_dict())
    assert not again.training
    features = torch.rand(1, 60, N_BANDS)
    assert close(again(features), network(features))


def test_foreign_tensors_are_refused(network: BeatNetwork) -> None:
    tensors = network.state_dict()
    with pytest.raises(RuntimeError, match="Unexpected key"):
        BeatNetwork.from_tensors({**tensors, "surplus": torch.zeros(1)})
    tensors.pop("tempo.weight")
    with pytest.raises(RuntimeError, match="Missing key"):
        BeatNetwork.from_tensors(tensors)


def test_it_learns_where_clicks_are() -> None:
    torch.manual_seed(0)
    network = BeatNetwork(channels=8, n_blocks=2, dropout=0.0)
    features, truth = torch.zeros(4, 200, N_BANDS), torch.zeros(4, 200)
    for row, phase in enumerate((3, 9, 14, 20)):
        features[row, phase::25] = 2.0
        truth[row, phase::25] = 1.0
    features += 0.05
    optimiser = torch.optim.AdamW(network.parameters(), 1e-2)
    for _ in range(60):
        logits = network(features)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits.beat, truth)
        loss = loss + logits.downbeat.square().mean() + logits.tempo.square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert all(p.grad is not None and p.grad.any() for p in network.parameters())
    found = network.eval()(features).beat.sigmoid().detach()
    assert float(found[truth > 0].min()) > 0.5 > float(found[truth == 0].max())
    assert FRAME_RATE == 50
