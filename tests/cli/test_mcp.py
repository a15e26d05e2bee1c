"""`afa mcp`, called by the SDK's own client: over stdio with real audio, and with a service."""

import os
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mutagen
import numpy as np
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from torch import Tensor

from pipelines.audio.decode import DecodeLimits, decode
from pipelines.fingerprint.make import Fingerprinter
from serve_app.checkpoints.choice import models_name
from serve_app.cli.mcp.server import build
from serve_app.cli.mcp.service_backend import ServiceBackend
from serve_app.composition.files import LocalFiles
from serve_app.composition.options import StoreOptions
from serve_app.library.edit import Heard
from serve_app.library.library import Library
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.track_keys import identity_of_key
from serve_app.providers.recognisers.own_index import LocalRecogniser
from tests.api.application import MODELS, Application, open_application
from tests.conftest import DEMO_TRACK, REPOSITORY
from tests.data.audio_files import click_track, encode
from tests.library.library_setting import MODEL_SET, adding, heard, track

TOOLS = ["analyse_file", "look_up", "similar", "find_mixable", "identify", "library_search"]
COMMAND = "from serve_app.cli.main import main; main()"
DEFAULTS = ("vibenet", "musicnn-mtt", "musicnn-msd-768")
ISRC = "QZTST2100001"
MODEL = "fake-embedding"
BASE = np.random.default_rng(7).standard_normal(768)


def fill(library: Library, made_by: str = MODEL_SET) -> None:
    """Add tracks to a library: a seed, and others that do or do not go well with it."""
    seed = {"tempo": 120.0, "key": 9, "mode": 0, "camelot": "8A"}
    others = {
        "Half the Tempo": seed | {"tempo": 61.0, "key": 4, "camelot": "9A"},
        "Too Fast": seed | {"tempo": 140.0},
        "Another Key": seed | {"key": 2, "mode": 1, "camelot": "10B"},
    }
    for number, (title, measured) in enumerate({"Seed": seed, **others}.items()):
        vector = BASE + number * np.random.default_rng(number).standard_normal(768)
        unit = (vector / np.linalg.norm(vector)).tolist()
        said = heard(title, model=MODEL).features
        features = replace(said, embedding=unit, mood_tags=[], **measured)  # type: ignore[arg-type]
        ids = {"isrc": ISRC} if title == "Seed" else {}
        library.write([adding(track(title, **ids), Heard(features, made_by))])


async def ask(client: Client, tool: str, **said: Any) -> dict[str, Any]:
    answer = await client.call_tool(tool, said)
    assert not answer.is_error, answer.content
    assert answer.structured_content is not None
    return answer.structured_content


async def refused(client: Client, tool: str, **said: Any) -> str:
    answer = await client.call_tool(tool, said)
    assert answer.is_error
    return str(answer.content[0].text)  # type: ignore[union-attr]


async def check_the_library(client: Client) -> None:
    """Check what every backend says about the tracks that `fill` added."""
    found = await ask(client, "library_search", text="cure", keys=["8A"], tempo_max=130)
    (seed,) = found["tracks"]
    assert (seed["title"], seed["tempo"], seed["key"]) == ("Seed", 120.0, "A minor")
    known = await ask(client, "look_up", track=seed["id"])
    assert (known["artist"], known["camelot"]) == ("The Cure", "8A")
    assert await ask(client, "look_up", artist="the cure", title="seed") == known
    near = await ask(client, "similar", track=ISRC, n=2)
    assert [one["title"] for one in near["tracks"]] == ["Half the Tempo", "Too Fast"]
    (mixable,) = (await ask(client, "find_mixable", track=ISRC))["tracks"]
    assert (mixable["title"], mixable["key_relation"]) == ("Half the Tempo", "fifth up")
    assert mixable["tempo_ratio"] == pytest.approx(61 / 120, abs=1e-4)
    assert "give track, or artist and title" in await refused(client, "look_up")
    assert "/none.mp3: no such file" in await refused(client, "analyse_file", path="/none.mp3")
    assert "less than or equal to 100" in await refused(client, "similar", track=ISRC, n=101)


def index_demo(folder: Path) -> None:
    """Make a fingerprint index of the demo track."""
    heard_as = Fingerprinter().make_fingerprints([decode(DEMO_TRACK, DecodeLimits())])
    with FingerprintIndexBuilder(folder) as builder:
        builder.build([("file:The Stub Quartet - Demo.mp3", heard_as[0])])


def clip_of_demo(folder: Path) -> Path:
    """Return eight seconds from the middle of the demo track, encoded again."""
    samples = decode(DEMO_TRACK, DecodeLimits()).samples[:, 8 * 44_100 : 16 * 44_100]
    return encode(folder / "clip.mp3", samples, "mp3", "libmp3lame")


async def check_identification(client: Client, clip: Path, unknown: Path) -> None:
    """Check what every backend says about a clip of the indexed track, and about an unknown one."""
    found = await ask(client, "identify", path=str(clip))
    assert (found["matched"], found["artist"], found["title"]) == (True, "The Stub Quartet", "Demo")
    assert found["confidence"] > 50
    assert not (await ask(client, "identify", path=str(unknown)))["matched"]


async def test_over_stdio_without_a_service(
    checkpoint: Callable[[str], dict[str, Tensor]], tmp_path: Path
) -> None:
    for model_id in DEFAULTS:
        checkpoint(model_id)
    library = Library((tmp_path / "library").as_uri(), tmp_path / "library-view")
    fill(library)
    library.close()
    song = encode(tmp_path / "120.ogg", click_track(120, 6), "ogg", "vorbis")
    tags = mutagen.File(song)
    tags.update({"artist": "The Clicks", "title": "At 120"})
    tags.save()
    settings = {name: value for name, value in os.environ.items() if name.startswith("AFA_")}
    process = StdioServerParameters(
        command=sys.executable,
        args=["-c", COMMAND, "mcp"],
        cwd=REPOSITORY,
        env=settings | {"AFA_DATA_DIR": str(tmp_path), "OMP_NUM_THREADS": "1"},
    )
    async with Client(process) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == TOOLS
        for one in tools.values():
            assert one.output_schema is not None
            assert all(said.get("description") for said in one.input_schema["properties"].values())
        await check_the_library(client)
        analysed = await ask(client, "analyse_file", path=str(song))
        assert (analysed["artist"], analysed["title"]) == ("The Clicks", "At 120")
        assert analysed["tempo"] == pytest.approx(120, rel=0.02)
        assert analysed["duration_s"] == pytest.approx(6, abs=0.1)
        (tmp_path / "bad.mp3").write_text("nothing to hear")
        bad = await refused(client, "analyse_file", path=str(tmp_path / "bad.mp3"))
        assert bad.startswith(f"Error executing tool analyse_file: {tmp_path}/bad.mp3: ")
        unknown = await refused(client, "similar", track="isrc:QZTST2199999")
        assert "add music with `afa scan FOLDER`" in unknown
        assert "afa catalog fingerprint" in await refused(client, "identify", path=str(song))
        index_demo(LocalFiles(tmp_path).fingerprint_dir)
        await check_identification(client, clip_of_demo(tmp_path), song)


@pytest.fixture
async def identifying(api_stores: StoreOptions, tmp_path: Path) -> AsyncIterator[Application]:
    """Yield a service that can identify the demo track by its sound."""
    catalog, folder = Catalog.open(tmp_path / "catalog"), tmp_path / "fingerprints"
    index_demo(folder)
    local = LocalRecogniser(folder, lambda key: identity_of_key(catalog, key))
    async with open_application(
        api_stores, tmp_path / "catalog", recognisers=[local], fingerprint_dir=folder
    ) as application:
        yield application


@pytest.mark.redis
async def test_the_service_answers_where_it_runs(identifying: Application, tmp_path: Path) -> None:
    api = identifying
    fill(api.library, models_name(MODELS))
    song = encode(tmp_path / "120.ogg", click_track(120, 6), "ogg", "vorbis")
    async with Client(build(ServiceBackend(api.client("pro")))) as client:
        await check_the_library(client)
        await check_identification(client, clip_of_demo(tmp_path), song)
        analysed = await ask(client, "analyse_file", path=str(DEMO_TRACK))
        assert (analysed["tempo"], analysed["key"], analysed["tags"]) == (
            *(120.0, "A minor", {"calm": 0.9}),
        )
        assert "at least 1 character" in await refused(client, "similar", track="")
        named = await refused(client, "library_search", key="8B", mode="minor", text="a")
        assert named.startswith("library_search takes no key, mode; it takes text, tempo_min, ")
        assert "no such file" in await refused(client, "identify", path="~nobody-here/a.mp3")
        long = await refused(client, "analyse_file", path=f"/{'x' * 300}.mp3")
        assert long.endswith(".mp3: File name too long")
        memory = await refused(client, "analyse_file", path="/proc/self/mem")
        assert memory.endswith("Input/output error")
        (tmp_path / "bad.mp3").write_text("nothing to hear")
        for tool in ("analyse_file", "identify"):
            bad = await refused(client, tool, path=str(tmp_path / "bad.mp3"))
            assert "form" not in bad
        unknown = await refused(client, "look_up", track="isrc:QZTST2199999")
        assert "The operator can add music (`afa scan FOLDER`)" in unknown
