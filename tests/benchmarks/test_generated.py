"""What a package of generated pieces says about them, as ground truth."""

from benchmarks.generated import annotate

LISTING = """All music in this directory was generated locally.

  model            4B, distilled

calm/
  calm_acoustic_1.opus                 68 bpm  C major   seed 101  [acoustic]

nostalgic/
  nostalgic_electronic_2.opus          84 bpm  Bb minor  seed 202  [electronic]
"""


def test_tempo_and_key_are_those_that_were_asked_for() -> None:
    sure = {"kind": "generated", "tempo_level": "sure"}
    assert annotate(LISTING) == {
        "ace_calm_acoustic_1": sure | {"tempo": 68.0, "key": "C", "mode": "major"},
        "ace_nostalgic_electronic_2": sure | {"tempo": 84.0, "key": "Bb", "mode": "minor"},
    }
