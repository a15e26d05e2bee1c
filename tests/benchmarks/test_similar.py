"""The benchmark of similar tracks: its exact answers, its vectors, and a small run."""

import numpy as np
import pytest

from benchmarks.lookup import similar
from benchmarks.lookup.manifold import Manifold
from benchmarks.report import Options


def test_vectors_have_neighbours() -> None:
    vectors = Manifold().draw(2000, 5)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(2000), abs=1e-5)
    assert (Manifold().draw(3, 5) == Manifold().draw(3, 5)).all()
    distances = np.sort(1 - vectors @ vectors.T, axis=1)[:, 1:]
    assert np.median(distances[:, 9]) < 0.6 * np.median(distances)


def test_exact_answers_are_those_of_one_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    manifold = Manifold()
    vectors, queries = manifold.draw(4000, 1), manifold.draw(4, 2)
    asked = np.array([3, 700, 1500, 3999])
    exact = similar.Exact(asked, queries)
    for start in range(0, 4000, 500):
        exact.see(np.arange(start, start + 500), vectors[start : start + 500])
    scores = queries @ vectors.T
    scores[range(4), asked] = -2
    for name, one in similar.FILTERS.items():
        meets = np.flatnonzero(one.meets(np.arange(4000)))
        expected = meets[np.argsort(-scores[:, meets], axis=1)[:, : similar.N]]
        assert (exact.best[name][1] == expected).all(), name


def test_a_small_run_finds_what_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("FRAGMENT_ROWS", 1500),
        ("N_QUICK", 3000),
        ("N_QUERIES", 4),
        ("N_FRESH", 50),
    ):
        monkeypatch.setattr(similar, name, value)
    monkeypatch.setattr(similar, "N_WARM", 1)
    result = similar.run(Options(is_quick=True))
    searches = result.values["searches"]
    assert {one["recall_at_10"] for one in searches.values()} == {1.0}
    assert [target.name for target in result.targets] == ["recall@10", "p95 ms"]
