"""Nodes read one publication or the next, never a mixture."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from serve_app.composition.files import checkpoint_mirror
from serve_app.domain.telemetry import metrics
from serve_app.domain.telemetry.metrics import Metric
from serve_app.store.mirror import FETCHED, LOCK, DamagedPublicationError, Mirror, Place

PLACES = (Place("catalog", "current"), Place("fingerprints", "manifest.json"))


def write(folder: Path, version: str, text: str) -> None:
    """Write a catalog and an index, as imports do."""
    (folder / "catalog" / "versions" / version).mkdir(parents=True)
    (folder / "catalog" / "versions" / version / "index").write_text(text)
    link = folder / "catalog" / "fresh"
    os.symlink(f"versions/{version}", link)
    link.replace(folder / "catalog" / "current")
    (folder / "fingerprints" / f"segment-{version}").mkdir(parents=True)
    (folder / "fingerprints" / f"segment-{version}" / "hashes").write_text(text)
    (folder / "fingerprints" / "manifest.json").write_text(version)


def read(folder: Path) -> tuple[str, str]:
    """Read as a node does."""
    manifest = (folder / "fingerprints" / "manifest.json").read_text()
    hashes = folder / "fingerprints" / f"segment-{manifest}" / "hashes"
    return (folder / "catalog" / "current" / "index").read_text(), hashes.read_text()


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Mirror, Path, Mirror]:
    url = (tmp_path / "shared").as_uri()
    here, there = tmp_path / "here", tmp_path / "there"
    return here, Mirror(url, here, PLACES, "tracks"), there, Mirror(url, there, PLACES, "tracks")


def test_a_node_follows_what_is_published(sides: tuple[Path, Mirror, Path, Mirror]) -> None:
    here, publisher, there, node = sides
    assert node.fetch() == ""
    write(here, "1", "one")
    first = publisher.publish()
    assert node.fetch() == first
    assert read(there) == ("one", "one")
    write(here, "2", "two")
    assert node.fetch() == first  # not published yet
    second = publisher.publish()
    assert node.fetch() == second != first
    assert read(there) == ("two", "two")
    assert (there / "catalog" / "versions" / "1" / "index").exists()  # a reader may still use it
    node.fetch()
    assert not (there / "catalog" / "versions" / "1" / "index").exists()
    assert read(there) == ("two", "two")
    assert (here / "catalog" / "versions" / "1" / "index").exists()


def test_a_replica_tells_which_generation_its_node_has(
    sides: tuple[Path, Mirror, Path, Mirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, publisher, _, node = sides
    shown: dict[str, float] = {}

    def record(_: Metric, value: float, labels: Mapping[str, str]) -> None:
        assert labels["what"] == "tracks"
        shown[labels["generation"]] = value

    monkeypatch.setattr(metrics, "_recorder", record)
    assert node.generations() == ("", "")
    write(here, "1", "one")
    first = publisher.publish()
    assert node.generations() == (first, "")
    node.fetch()
    assert shown == {first: 1}
    write(here, "2", "two")
    second = publisher.publish()
    assert node.generations() == (second, first)
    node.fetch()
    assert node.generations() == (second, second)
    assert shown == {first: 0, second: 1}


def test_what_is_damaged_is_not_served(
    sides: tuple[Path, Mirror, Path, Mirror], tmp_path: Path
) -> None:
    here, publisher, there, node = sides
    write(here, "1", "one")
    publisher.publish()
    node.fetch()
    write(here, "2", "two")
    publisher.publish()
    for blob in (tmp_path / "shared" / "blobs").iterdir():
        if blob.read_text() == "two":
            blob.write_text("owt")
    publisher.publish()  # it goes by names, which are digests
    with pytest.raises(DamagedPublicationError, match="publish it again") as damage:
        node.fetch()
    assert read(there) == ("one", "one")
    (told,) = re.findall(r"blobs/\w+", str(damage.value))
    (tmp_path / "shared" / told).unlink()
    publisher.publish()
    node.fetch()
    assert read(there) == ("two", "two")


def test_nothing_is_published_of_nothing(sides: tuple[Path, Mirror, Path, Mirror]) -> None:
    here, publisher, there, node = sides
    here.mkdir()
    assert node.fetch() != publisher.publish() == node.fetch()
    assert not (there / "catalog").exists()


def test_a_node_has_the_checkpoints_that_are_published_and_keeps_its_own(tmp_path: Path) -> None:
    here, there, url = tmp_path / "here", tmp_path / "there", (tmp_path / "shared").as_uri()
    for name, text in (("one", "weights"), ("two", "others")):
        (here / name).mkdir(parents=True)
        (here / name / "model.safetensors").write_text(text)
        (here / name / "config.json").write_text("{}")
    (here / "two" / "compiled-h200.bin").write_text("of this card")
    (here / "cards.yaml").write_text("two: {}")
    (there / "own").mkdir(parents=True)
    (there / "own" / "model.safetensors").write_text("pulled here")
    published = checkpoint_mirror(url, here).publish()
    node = checkpoint_mirror(url, there)
    assert node.fetch() == node.fetch() == published
    found = {path.relative_to(there).as_posix() for path in there.rglob("*.*") if path.is_file()}
    assert found - {FETCHED, LOCK} == {
        "cards.yaml",
        *("one/config.json", "one/model.safetensors"),
        *("two/compiled-h200.bin", "two/config.json", "two/model.safetensors"),
        "own/model.safetensors",
    }
    (there / "one" / "model.safetensors").write_text("WEIGHTS")  # same length, different content
    (here / "cards.yaml").write_text("two: {role: tags}")
    checkpoint_mirror(url, here).publish()
    node.fetch()
    assert (there / "one" / "model.safetensors").read_text() == "weights"
    assert (there / "cards.yaml").read_text() == "two: {role: tags}"
