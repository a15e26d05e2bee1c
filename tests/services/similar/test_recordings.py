"""One recording is one answer, however many copies the library has."""

from dataclasses import replace

import numpy as np

from configs.tables import load_table
from serve_app.services.similar.neighbours import Neighbour
from serve_app.services.similar.recordings import OURS, distinct
from tests.library.library_setting import track

MODEL = "afa-embed-1"
RANDOM = np.random.default_rng(5)


def of(title: str, vector: np.ndarray | None = None, **fields: object) -> Neighbour:
    values = RANDOM.standard_normal(768) if vector is None else vector
    return Neighbour(track(title, **fields), 0.0, (values / np.linalg.norm(values)).astype("f4"))


def test_identifiers_and_names_tell_a_recording() -> None:
    seed = of("A Forest", isrc="QZTST2100001", mbid="4f0a8b3c-1d2e-4f5a-8b6c-7d8e9f0a1b2c")
    same = [
        seed,
        of("a forest"),
        of("Other title", isrc="QZTST2100001"),
        of("Another", mbid="4f0a8b3c-1d2e-4f5a-8b6c-7d8e9f0a1b2c"),
    ]
    others = [of("A Forest (live)"), of("Lullaby", isrc="QZTST2100002")]
    assert distinct(MODEL, [*same, *others], [seed]) == others


def test_the_first_of_two_answers_stays() -> None:
    near, far = of("Song"), of("Song")
    assert distinct(MODEL, [near, far], []) == [near]


def test_copies_sound_the_same_for_as_long() -> None:
    seed = of("One", duration_s=200.0)
    noise = 0.01 * RANDOM.standard_normal(768) / np.sqrt(768)
    copy = of("Track 01", seed.vector + noise, duration_s=200.3)
    edit = of("Radio edit", seed.vector + noise, duration_s=180.0)
    unknown = of("No length", seed.vector + noise)
    other = of("Other", duration_s=200.0)
    assert distinct(MODEL, [copy, edit, unknown, other], [seed]) == [edit, unknown, other]


def test_tracks_without_names_are_not_one() -> None:
    nameless = [replace(of(""), track=track("", artist="")) for _ in range(2)]
    assert distinct(MODEL, nameless, []) == nameless


def test_in_a_space_that_nobody_measured_the_same_samples_alone_are_copies() -> None:
    seed = of("One", duration_s=30.0)
    noise = 0.01 * RANDOM.standard_normal(768) / np.sqrt(768)
    other = of("Two", seed.vector + noise, duration_s=30.0)
    copy = of("Three", seed.vector, duration_s=30.0)
    assert distinct("my-net", [other, copy], [seed]) == [other]


def test_models_that_come_with_afa_are_known() -> None:
    cards = load_table("models").items()
    assert {model for model, card in cards if card["role"] == "embedding"} == OURS
