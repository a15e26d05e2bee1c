"""The README names every route, error code, price and tier that exists."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from configs.tables import load_table
from serve_app.api.asgi import create_app
from serve_app.domain import errors

README = (Path(__file__).parents[1] / "README.md").read_text()
AUDIO_CODES = {"unprocessable_audio", "audio_too_long", "audio_too_short"}


def routes() -> list[str]:
    app = create_app(cast("Any", SimpleNamespace(public_url="http://afa.test")))
    return sorted(app.openapi()["paths"])


def codes() -> list[str]:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    return sorted({k.code for k in kinds if issubclass(k, errors.AfaError)} | AUDIO_CODES)


@pytest.mark.parametrize("path", routes())
def test_every_route_stands_in_the_readme(path: str) -> None:
    short = path.removeprefix("/spotify/v1") if path.startswith("/spotify") else path
    assert f"{short}`" in README


@pytest.mark.parametrize("code", codes())
def test_every_error_code_stands_in_the_readme(code: str) -> None:
    assert f"`{code}`" in README


@pytest.mark.parametrize(
    ("row", "price"),
    [
        ("POST /v1/audio-features/upload", "analysis"),
        ("POST /v1/bpm", "bpm"),
        ("POST /v1/identify", "identify"),
        ("GET /v1/audio-features/{id}", "features_by_id_miss"),
        ("GET /v1/audio-features", "features_by_name_miss"),
        ("GET /v1/key-bpm", "key_bpm_miss"),
        ("GET /v1/beatgrid/{id}", "beatgrid_miss"),
        ("POST /v1/audio-features", "batch_slot"),
        ("GET /v1/resolve/{id}", "resolve"),
        ("POST /v1/assets/upload", "asset_upload"),
    ],
)
def test_every_price_stands_in_the_readme(row: str, price: str) -> None:
    line = next(line for line in README.splitlines() if line.startswith(f"| `{row}` "))
    assert re.search(
        rf"\b{load_table('prices')[price]}\b", line.rpartition("|")[0].rpartition("|")[2]
    )


@pytest.mark.parametrize("tier", load_table("tiers"))
def test_the_tiers_numbers_stand_in_the_readme(tier: str) -> None:
    line = next(line for line in README.splitlines() if line.startswith(f"| {tier} "))
    numbers = line.replace(" ", "")
    row = load_table("tiers")[tier]
    for name in ("monthly_credits", "cache_lookups", "grace_credits"):
        assert str(row[name]) in numbers
    assert f"{row['upload_bytes'] // 2**20}MB" in numbers
