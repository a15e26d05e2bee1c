from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from pipelines.training.clips import Clip, bands_of, make_clip
from pipelines.training.music.electronic import electronic
from pipelines.training.music.score import CLOSED_HAT, DRUMS, KICK, SNARE, Note, UnusableError
from pipelines.training.sound.drumkits import play_drums, sampled_kits
from pipelines.training.sound.effects import IMPACT, RISER, play_effects
from pipelines.training.sound.mix import Instruments
from pipelines.training.sound.mixing import duck, encode, master, normalise
from pipelines.training.sound.soundfonts import SAMPLE_RATE, library, play
from pipelines.training.sound.synthesis import draw_patch, play_patch, sing

SECONDS = 4.0


def onsets(waveform: NDArray[np.float32], share: float = 0.2) -> list[float]:
    """Return the seconds at which the envelope exceeds a share of its maximum after a rest."""
    window = SAMPLE_RATE // 100
    smooth = np.sqrt(np.convolve(np.square(waveform), np.ones(window) / window)[: len(waveform)])
    loud = np.flatnonzero(smooth > share * smooth.max()) / SAMPLE_RATE
    return [float(t) for i, t in enumerate(loud) if i == 0 or t - loud[i - 1] > 0.1]


def at_seconds(pitch: int, channel: int = 0, length: float = 0.2) -> list[Note]:
    return [Note(float(t), t + length, channel, pitch, 100) for t in (0.5, 1.5, 2.25, 3.0)]


@pytest.mark.parametrize("drum", [KICK, SNARE, CLOSED_HAT])
def test_synthetic_drums_sound_when_they_are_struck(drum: int) -> None:
    notes = at_seconds(drum, DRUMS)
    heard = play_drums(notes, None, SECONDS, Random("x"), np.random.default_rng(0))
    assert heard.shape == (SECONDS * SAMPLE_RATE,)
    assert onsets(heard) == pytest.approx([0.5, 1.5, 2.25, 3.0], abs=0.012)


@pytest.mark.parametrize("seed", range(6))
def test_oscillators_sound_when_they_are_heard_to(seed: int) -> None:
    patch = draw_patch(Random(f"p{seed}"))
    heard = play_patch(at_seconds(60), patch, SECONDS)
    assert onsets(heard) == pytest.approx([0.5, 1.5, 2.25, 3.0], abs=0.02)


def test_slow_attacks_begin_before_their_time() -> None:
    patches = (draw_patch(Random(f"s{i}"), is_soft=True) for i in range(40))
    slow = next(patch for patch in patches if patch.attack_s > 0.06)
    heard = play_patch(at_seconds(60, length=0.3), slow, SECONDS)
    assert onsets(heard, 0.4) == pytest.approx([0.5, 1.5, 2.25, 3.0], abs=0.05)
    assert np.abs(heard[: int(0.46 * SAMPLE_RATE)]).max() == 0
    assert np.abs(heard[: int(0.5 * SAMPLE_RATE)]).max() > 0


def test_voices_sing_the_notes() -> None:
    heard = sing(at_seconds(57, length=0.4), SECONDS, Random("v"), np.random.default_rng(0))
    assert onsets(heard) == pytest.approx([0.5, 1.5, 2.25, 3.0], abs=0.07)
    part = heard[int(0.55 * SAMPLE_RATE) : int(0.85 * SAMPLE_RATE)]
    spectrum = np.abs(np.fft.rfft(part * np.hanning(len(part)), 65536))
    hertz = np.fft.rfftfreq(65536, 1 / SAMPLE_RATE)
    low = (hertz > 150) & (hertz < 300)
    assert hertz[low][spectrum[low].argmax()] == pytest.approx(220, rel=0.03)


def test_effects_end_where_the_phrase_does() -> None:
    notes = [Note(0.5, 2.5, 16, RISER, 90)]
    heard = play_effects(notes, SECONDS, np.random.default_rng(0))
    half = SAMPLE_RATE // 2
    power = [float(np.square(heard[i * half : (i + 1) * half]).mean()) for i in range(8)]
    assert power[0] == power[5] == 0
    assert power[1] < power[2] < power[3] < power[4]
    boom = play_effects([Note(1.0, 3.0, 16, IMPACT, 90)], SECONDS, np.random.default_rng(0))
    assert onsets(boom)[0] == pytest.approx(1.0, abs=0.02)


def test_mastering_moves_nothing() -> None:
    clicks = np.zeros(int(SECONDS * SAMPLE_RATE), dtype=np.float32)
    for second in (0.5, 1.5, 2.25, 3.0):
        at = int(second * SAMPLE_RATE)
        clicks[at : at + 400] = np.hanning(400)
    for seed in range(12):
        heard = master(clicks.copy(), Random(f"m{seed}"), np.random.default_rng(seed))
        assert heard.shape == clicks.shape
        assert onsets(heard, 0.35)[:1] == pytest.approx([0.51], abs=0.015)


@pytest.mark.parametrize("seed", range(4))
def test_codecs_keep_time(seed: int) -> None:
    noise = np.random.default_rng(seed).normal(size=4 * SAMPLE_RATE).astype(np.float32)
    gate = (np.arange(len(noise)) // (SAMPLE_RATE // 2)) % 2
    original = (noise * gate * 0.1).astype(np.float32)
    heard = encode(original, Random(f"c{seed}"))
    assert heard.shape == original.shape
    lag = np.correlate(np.abs(heard[2000:-2000:10]), np.abs(original[::10]), mode="valid")
    assert int(lag.argmax()) == pytest.approx(200, abs=3)


def test_ducking_follows_the_kicks() -> None:
    steady = np.ones(2 * SAMPLE_RATE, dtype=np.float32)
    ducked = duck(steady, [1.0], 0.5)
    assert ducked[SAMPLE_RATE - 1] == 1
    assert ducked[SAMPLE_RATE] == pytest.approx(0.5, abs=0.01)
    assert ducked[-1] > 0.99


def test_normalise_leaves_silence() -> None:
    assert not normalise(np.zeros(10, dtype=np.float32)).any()
    assert np.square(normalise(np.full(10, 3, dtype=np.float32))).mean() == pytest.approx(1)


def no_fonts() -> Instruments:
    return Instruments([], [])


def test_kits_are_told_by_their_samples_names(tmp_path: Path) -> None:
    for name in ("kit/Kick-1.wav", "kit/snare.flac", "kit/HiHatOpen.wav", "bare/kick.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert {kit: set(found) for kit, found in sampled_kits(tmp_path).items()} == {
        "kit": {"kick", "snare", "open"}
    }


def test_features_are_blind_to_gain() -> None:
    waveform = np.random.default_rng(0).normal(0, 0.1, 3 * SAMPLE_RATE).astype(np.float32)
    first, louder = bands_of(waveform), bands_of(waveform * 7)
    assert first.shape == (150, 83)
    assert first.dtype == np.float16
    np.testing.assert_allclose(first.astype(float), louder.astype(float), rtol=2e-3, atol=1e-4)


def test_a_clip_survives_its_file(tmp_path: Path) -> None:
    clip = Clip(np.ones((5, 83), np.float16), np.array([0.1, 0.6]), np.array([0.1]), 13, "a:b")
    clip.save(tmp_path / "a_1.npz")
    read = Clip.load(tmp_path / "a_1.npz")
    assert np.array_equal(read.bands, clip.bands)
    assert np.array_equal(read.beats, clip.beats)
    assert (read.key, read.label) == (13, "a:b")
    assert [path.name for path in tmp_path.iterdir()] == ["a_1.npz"]


def test_a_kind_that_never_fits_is_reported() -> None:
    def refuse(rng: Random, duration_s: float) -> None:
        raise UnusableError("no")

    with pytest.raises(UnusableError, match="x 5"):
        make_clip("x", 5, {"x": refuse}, no_fonts(), 10.0)  # type: ignore[dict-item]


@pytest.fixture
def font() -> Path:
    try:
        library()
    except OSError as error:
        pytest.skip(f"libfluidsynth is not installed: {error}")
    found = sorted(Path("/usr/share/sounds/sf2").glob("*.sf2"))
    if not found:
        pytest.skip("no soundfont is installed")
    return found[-1]


def test_soundfonts_play_on_time_and_alike_every_time(font: Path) -> None:
    notes = at_seconds(72, length=0.1)
    _, first, again = (play(notes, {0: 13}, {0: 100}, font, SECONDS) for _ in range(3))
    assert np.array_equal(first, again)
    assert onsets(first) == pytest.approx([0.5, 1.5, 2.25, 3.0], abs=0.02)
    other = play(at_seconds(60), {0: 40}, {0: 80}, font, SECONDS)
    assert np.abs(other).max() > 0
    # What was played before leaves almost no trace: a few milliseconds of attacks.
    again = play(notes, {0: 13}, {0: 100}, font, SECONDS)
    assert np.mean(again != first) < 0.005


def test_a_clip_depends_on_its_seed_alone(font: Path) -> None:
    instruments = Instruments([font], [font])
    clips = [
        make_clip("electronic", seed, {"electronic": electronic}, instruments, 10.0)
        for seed in (5, 2, 5)
    ]
    difference = clips[0].bands.astype(float) - clips[2].bands.astype(float)
    assert np.abs(difference).mean() < 1e-3
    assert np.array_equal(clips[0].beats, clips[2].beats)
    assert clips[0].bands.shape != clips[1].bands.shape or not np.array_equal(
        clips[0].bands, clips[1].bands
    )
    assert 480 <= len(clips[0].bands) <= 570
    assert len(clips[0].beats) > 8
    # Beats are where the sound is: features rise there more than elsewhere.
    for clip in clips[:2]:
        power = np.log1p(clip.bands.astype(float)).sum(axis=1)
        rise = np.maximum(np.diff(power, prepend=power[:1]), 0)
        frames = np.round(clip.beats * 50).astype(int)
        frames = frames[(frames > 1) & (frames < len(rise) - 3)]
        on_beat = rise[frames[:, None] + np.arange(-2, 3)].max(axis=1).mean()
        shifted = frames + int(np.median(np.diff(frames)) * 0.4)
        shifted = shifted[shifted < len(rise) - 3]
        assert on_beat > 1.3 * rise[shifted[:, None] + np.arange(-2, 3)].max(axis=1).mean()
