"""How instrumentalness and speechiness are weighed with the voice tags."""

import pytest
import torch

from pipelines.analysis.tags.tagging import AUDIOSET, MSD, MTT, Vocabulary
from pipelines.analysis.tags.vocals import (
    VOICE_TAGS,
    WORDLESS,
    instrumentalness,
    speechiness,
    voices,
    with_voices,
)


def heard(vocabulary: Vocabulary, **tags: float) -> torch.Tensor:
    return torch.tensor([tags.get(name.replace(" ", "_"), 0.004) for name in vocabulary.names])


@pytest.mark.parametrize("vocabulary", [MTT, MSD, AUDIOSET])
def test_every_vocabulary_of_ours_has_voices(vocabulary: Vocabulary) -> None:
    assert VOICE_TAGS & {name.lower() for name in vocabulary.names}


def test_a_song_that_the_network_takes_for_instrumental() -> None:
    # Falcon 69, a rock song: VibeNet .76, musicnn's tags as below.
    song = heard(MTT, vocal=0.130, vocals=0.109, singing=0.093, male=0.152, man=0.123)
    assert instrumentalness(0.76, MTT, song) < 0.1


def test_an_instrumental_stays_one() -> None:
    assert instrumentalness(0.84, MTT, heard(MTT, vocal=0.007, guitar=0.6)) > 0.9


def test_both_voices_count() -> None:
    silent, sung = heard(MTT), heard(MTT, vocals=0.08)
    for network in (0.0, 0.2, 0.8, 1.0):
        assert instrumentalness(network, MTT, sung) < instrumentalness(network, MTT, silent)
    rising = [instrumentalness(network, MTT, sung) for network in (0.0, 0.3, 0.6, 0.9, 1.0)]
    assert rising == sorted(rising)
    assert 0 <= rising[0] < rising[-1] <= 1


def test_a_choirs_ohs_are_an_instrument() -> None:
    tags = heard(MTT, choir=0.9, choral=0.6, opera=0.4)
    assert instrumentalness(0.8, MTT, tags) == instrumentalness(0.8, MTT, heard(MTT))


def test_without_tags_of_voices_the_network_decides() -> None:
    genres = Vocabulary(("techno", "house"), {"techno": 0.01, "house": 0.01})
    assert instrumentalness(0.37, genres, torch.tensor([0.5, 0.1])) == 0.37


@pytest.mark.parametrize(
    ("network", "without_vocals", "want"),
    [(0.9, 0.0, 0.9), (0.6, 1.0, WORDLESS), (0.05, 1.0, 0.05), (0.5, 0.9, 0.19)],
)
def test_where_nobody_is_heard_nobody_speaks(
    network: float, without_vocals: float, want: float
) -> None:
    assert speechiness(network, without_vocals) == pytest.approx(want)


@pytest.mark.parametrize("voice", ["singing", "male_vocals", "female_vocals", "rap", "speech"])
def test_each_kind_of_voice_is_one(voice: str) -> None:
    nobody, somebody = (heard(AUDIOSET, **tags)[None] for tags in ({}, {voice: 0.3}))
    assert voices(AUDIOSET, nobody) < 0 < voices(AUDIOSET, somebody)


def test_a_voice_counts_by_its_share_of_the_track() -> None:
    windows = [heard(AUDIOSET, singing=0.2), *[heard(AUDIOSET)] * 9]
    assert 0 < voices(AUDIOSET, torch.stack(windows)) < voices(AUDIOSET, windows[0][None])
    ohs = heard(AUDIOSET, choir=0.6, opera=0.3)[None]
    assert voices(AUDIOSET, ohs) == voices(AUDIOSET, heard(AUDIOSET)[None])


def test_what_hears_sounds_of_all_kinds_weighs_most() -> None:
    """Values of a lone guitar in which the song tagger finds a singer, and of a quiet singer."""
    assert with_voices(0.06, -1.1)[0] > 0.5
    assert with_voices(0.82, 1.6)[0] < 0.2
    for heard_so in (-3.0, 0.0, 3.0):
        rising = [with_voices(before, heard_so)[0] for before in (0.0, 0.2, 0.8, 1.0)]
        assert rising == sorted(rising)
        assert 0 < rising[0] < rising[-1] < 1


def test_the_slope_is_the_derivative() -> None:
    for before in (0.1, 0.5, 0.9):
        lower, upper = (with_voices(before + step, 0.3)[0] for step in (-1e-5, 1e-5))
        assert with_voices(before, 0.3)[1] == pytest.approx((upper - lower) / 2e-5, rel=1e-4)
