"""What must last lies where every node sees it."""

from pathlib import Path

import pytest

from configs.settings import Settings
from serve_app.composition.files import LocalFiles, NotSharedError, require_shared

REDIS = "redis://10.0.0.1:6379"


@pytest.mark.parametrize(
    ("places", "told"),
    [
        ({}, ["AFA_SHARED"]),
        ({"shared": "/mnt/afa"}, ["AFA_SHARED"]),
        ({"shared": "s3://bucket/afa", "journal_store": "journal"}, ["AFA_JOURNAL_STORE"]),
        (
            {"shared": "file:///mnt/afa", "library": "/x", "object_store": "y"},
            ["AFA_OBJECT_STORE", "AFA_LIBRARY"],
        ),
    ],
)
def test_a_cluster_does_not_start_on_the_disk_of_a_node(
    places: dict[str, str], told: list[str]
) -> None:
    with pytest.raises(NotSharedError) as error:
        require_shared(Settings(redis_url=REDIS, **places))  # type: ignore[arg-type]
    assert str(error.value).startswith(f"{', '.join(told)}: ")


@pytest.mark.parametrize(
    "places", [{"shared": "s3://bucket/afa"}, {"shared": "file:///mnt/afa", "library": "s3://b/l"}]
)
def test_it_starts_on_shared_storage(places: dict[str, str]) -> None:
    require_shared(Settings(redis_url=REDIS, **places))  # type: ignore[arg-type]
    require_shared(Settings(redis_url=None))


def test_everything_lies_below_the_shared_storage(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    settings = Settings(
        shared="s3://bucket/afa?endpoint=http://minio:9000", journal_store="s3://vault/journal"
    )
    assert files.object_store_url(settings) == "s3://bucket/afa/objects?endpoint=http://minio:9000"
    assert files.library_url(settings) == "s3://bucket/afa/library?endpoint=http://minio:9000"
    assert files.payments_url(settings) == "s3://bucket/afa/payments?endpoint=http://minio:9000"
    assert files.journal_store_url(settings) == "s3://vault/journal"
    alone = Settings()
    assert files.object_store_url(alone) == (tmp_path / "objects").as_uri()
    assert files.payments_url(alone) == tmp_path.as_uri()
    assert files.served(alone) == files
    assert files.published_url(alone) is None
