import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from models.checkpoints.cards import CardError, CardFile, ModelCard
from models.checkpoints.sources import file_sha256
from models.musicnn import MSD_TAGS, MTT_TAGS
from pipelines.analysis.records import MoodTag
from pipelines.analysis.tags import kinds
from pipelines.analysis.tags.attributes import attributes_from_tags
from pipelines.analysis.tags.audioset import N_CLASSES
from pipelines.analysis.tags.tagging import (
    AUDIOSET,
    MAX_TAGS,
    MSD,
    MTT,
    Vocabulary,
    calibrated_tags,
    joined_tags,
    merge_tags,
    score,
    scores,
    vocabulary_of,
)
from serve_app.api.wire.features import to_extended
from serve_app.services.simulation.features import simulated_features


@pytest.mark.parametrize(
    ("probability", "reference", "want"),
    [(0.05, 0.05, 0.5), (0.0192, 0.01, 0.5), (0.1374, 0.25, 0.5), (0.0, 0.1, 0.0), (1.0, 0.1, 1.0)],
)
def test_scores_are_relative_to_what_is_usual(
    probability: float, reference: float, want: float
) -> None:
    assert score(probability, reference) == pytest.approx(want, abs=2e-3)


def test_scores_rise_with_probability_and_fall_with_frequency() -> None:
    rising = [score(p, 0.1) for p in (0.01, 0.1, 0.5, 0.9, 0.999)]
    assert rising == sorted(rising)
    assert score(0.2, 0.01) > score(0.2, 0.3)


def test_a_rare_tag_can_stand_before_a_common_one_that_is_more_probable() -> None:
    vocabulary = Vocabulary(
        ("common", "rare", "absent"), {"common": 0.3, "rare": 0.01, "absent": 0.1}
    )
    tags = calibrated_tags(vocabulary, torch.tensor([0.25, 0.12, 0.001]))
    assert [tag.tag for tag in tags] == ["rare", "common"]


def test_one_thing_has_one_name() -> None:
    merged = merge_tags(
        [MoodTag("female voice", 0.7), MoodTag("woman", 0.8), MoodTag("Hip-Hop", 0.6)],
        [MoodTag("female vocalists", 0.9), MoodTag("hip-hop", 0.65), MoodTag("chillout", 0.55)],
    )
    assert merged == [
        MoodTag("female vocals", 0.9),
        MoodTag("hip-hop", 0.65),
        MoodTag("chill", 0.55),
    ]


def test_an_instrument_that_the_tagger_does_not_hear_is_a_candidate() -> None:
    tagger = [MoodTag("piano", 0.7), MoodTag("jazz", 0.6)]
    trunk = [MoodTag("piano", 0.9), MoodTag("organ", 0.8), MoodTag("salsa", 0.75)]
    assert joined_tags(tagger, [*trunk, MoodTag("flute", 0.51)]) == [
        *(MoodTag("piano", 0.9), MoodTag("salsa", 0.75), MoodTag("jazz", 0.6)),
        *(MoodTag("organ", 0.55), MoodTag("flute", 0.51)),
    ]


def test_weak_tags_are_left_out_and_the_list_is_bounded() -> None:
    many = [MoodTag(f"tag {i:02}", 0.5 + i / 100) for i in range(40)]
    merged = merge_tags(many, [MoodTag("weak", 0.49)])
    assert len(merged) == MAX_TAGS
    assert merged[0] == MoodTag("tag 39", 0.89)
    assert merge_tags() == []
    assert merge_tags([MoodTag("b", 0.6), MoodTag("a", 0.6)])[0].tag == "a"


def test_every_tag_has_a_reference(cards: dict[str, ModelCard]) -> None:
    for model_id, names in (("musicnn-mtt", MTT_TAGS), ("musicnn-msd-768", MSD_TAGS)):
        vocabulary = vocabulary_of(cards[model_id], Path("unused"))
        assert vocabulary.names == names
        assert set(vocabulary.reference) == set(names)
        assert all(0.01 <= value < 0.5 for value in vocabulary.reference.values())
    with pytest.raises(CardError, match="no tag vocabulary"):
        vocabulary_of(cards["vibenet"], Path("unused"))


@pytest.mark.parametrize(
    ("first", "names"),
    [
        ("Calm", ("calm", *map(str, range(1, N_CLASSES)))),
        ("Speech", AUDIOSET.names),
        ("LABEL_0", AUDIOSET.names),
    ],
)
def test_names_of_ones_own_win_over_audiosets(
    first: str, names: tuple[str, ...], cards: dict[str, ModelCard], tmp_path: Path
) -> None:
    labels = dict(enumerate((first, *map(str, range(1, N_CLASSES)))))
    config = tmp_path / "own" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"id2label": labels}))
    file = CardFile("config.json", file_sha256(config))
    card = replace(cards["ast-audioset"], model_id="own", files=(file,))
    vocabulary = vocabulary_of(card, tmp_path)
    assert vocabulary.names == names
    if first == "Calm":
        assert scores(vocabulary, torch.full((N_CLASSES,), 0.3))["calm"] == pytest.approx(0.3)
    with pytest.raises(CardError, match="527 names for 4 tags"):
        vocabulary_of(replace(card, outputs={"tags": 4}), tmp_path)


def heard(vocabulary: Vocabulary, *tags: str) -> dict[str, float]:
    """Return the attributes of a track with high scores for exactly these tags."""
    probabilities = torch.tensor([0.8 if name in tags else 0.002 for name in vocabulary.names])
    assert {k for k, v in scores(vocabulary, probabilities).items() if v > 0.5} == set(tags)
    return attributes_from_tags(vocabulary, probabilities)


def test_attributes_follow_the_tags_of_magnatagatune() -> None:
    quartet = heard(MTT, "violin", "cello", "classical", "slow", "no vocals")
    club = heard(MTT, "techno", "beat", "dance", "female vocal", "singing")
    speech = heard(MTT, "man", "voice", "male voice")
    assert quartet["acousticness"] > 0.9 > 0.1 > club["acousticness"]
    assert club["energy"] > 0.9 > 0.2 > quartet["energy"]
    assert club["danceability"] > quartet["danceability"] + 0.4
    assert quartet["instrumentalness"] > 0.9 > 0.1 > club["instrumentalness"]
    assert speech["speechiness"] > 0.3 > club["speechiness"]
    for values in (quartet, club, speech):
        assert all(0 <= value <= 1 for value in values.values())


def test_attributes_follow_the_tags_of_audioset() -> None:
    concert = heard(
        AUDIOSET, "rock", "electric guitar", "drums", "male vocals", "crowd", "cheering"
    )
    lullaby = heard(AUDIOSET, "acoustic guitar", "tender", "lullaby", "sad")
    talk = heard(AUDIOSET, "speech", "narration")
    assert concert["liveness"] > 0.7 > 0.2 > lullaby["liveness"]
    assert concert["energy"] > 0.9 > 0.1 > lullaby["energy"]
    assert lullaby["acousticness"] > 0.9 > 0.1 > concert["acousticness"]
    assert lullaby["instrumentalness"] > 0.8 > 0.3 > concert["instrumentalness"]
    assert talk["speechiness"] > 0.8 > 0.2 > lullaby["speechiness"]
    for values in (concert, lullaby, talk):
        assert all(0 <= value <= 1 for value in values.values())


def test_only_the_music_of_audioset_is_reported() -> None:
    probabilities = torch.full((527,), 0.001)
    probabilities[[137, 74, 276, 219]] = torch.tensor(
        [0.9, 0.9, 0.04, 0.6]
    )  # music, dog, happy, rock
    assert [tag.tag for tag in calibrated_tags(AUDIOSET, probabilities)] == ["rock", "happy"]


def test_other_vocabularies_map_to_no_attributes() -> None:
    with pytest.raises(CardError, match="MagnaTagATune's and AudioSet's"):
        attributes_from_tags(MSD, torch.full((50,), 0.1))


def test_every_word_that_is_no_genre_is_one_that_a_tagger_says() -> None:
    said = {tag.tag for vocabulary in (MTT, MSD, AUDIOSET) for tag in _all_tags(vocabulary)}
    assert set(kinds._KINDS) <= said


def _all_tags(vocabulary: Vocabulary) -> list[MoodTag]:
    names = [name for name in vocabulary.names if name]
    return [
        tag
        for i in range(0, len(names), MAX_TAGS)
        for tag in merge_tags([MoodTag(name, 1.0) for name in names[i : i + MAX_TAGS]])
    ]


@pytest.mark.parametrize(
    ("tag", "kind"),
    [
        *(("happy", "mood"), ("mellow", "mood"), ("techno", "genre"), ("piano", "instrument")),
        *(("female vocals", "voice"), ("instrumental", "voice"), ("80s", "era"), ("slow", "sound")),
    ],
)
def test_moods_are_apart_from_genres_and_instruments(tag: str, kind: str) -> None:
    assert kinds.kind_of(tag) == kind


def test_an_answer_says_the_kind_of_each_tag() -> None:
    said = [MoodTag("sad", 0.9), MoodTag("jazz", 0.8), MoodTag("trumpet", 0.7)]
    features = replace(simulated_features("one"), mood_tags=said)
    body = to_extended(features, "", "").model_dump()
    assert body["mood_tags"] == [
        {"tag": "sad", "kind": "mood", "score": 0.9},
        {"tag": "jazz", "kind": "genre", "score": 0.8},
        {"tag": "trumpet", "kind": "instrument", "score": 0.7},
    ]
