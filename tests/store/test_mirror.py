"""Nodes read one publication or the next, never a mixture."""

import os
from pathlib import Path

import pytest

from serve_app.store.mirror import DamagedPublicationError, Mirror, Place

PLACES = (Place("catalog", "current"), Place("fingerprints", "manifest.json"))


def write(folder: Path, version: str, text: str) -> None:
    """Import a catalog, and index something."""
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
    return here, Mirror(url, here, PLACES), there, Mirror(url, there, PLACES)


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
    assert (there / "catalog" / "versions" / "1" / "index").exists()  # somebody may still read it
    node.fetch()
    assert not (there / "catalog" / "versions" / "1" / "index").exists()
    assert read(there) == ("two", "two")
    assert (here / "catalog" / "versions" / "1" / "index").exists()


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
    with pytest.raises(DamagedPublicationError, match="publish it again"):
        node.fetch()
    assert read(there) == ("one", "one")


def test_nothing_is_published_of_nothing(sides: tuple[Path, Mirror, Path, Mirror]) -> None:
    here, publisher, there, node = sides
    here.mkdir()
    assert node.fetch() != publisher.publish() == node.fetch()
    assert not (there / "catalog").exists()
