"""`afa mcp`, asked by the SDK's own client: over stdio with real audio, and before a service."""

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from torch import Tensor

from serve_app.checkpoints.choice import models_name
from serve_app.cli.mcp.server import build
from serve_app.cli.mcp.service_backend import ServiceBackend
from serve_app.library.edit import Heard
from serve_app.library.library import Library
from tests.api.application import MODELS, Application
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
    """Put tracks into a library: a seed, and others that go along with it or do not."""
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
    """What every backend says of the tracks that `fill` made."""
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
    assert "no such file: /none.mp3" in await refused(client, "analyse_file", path="/none.mp3")
    assert "less than or equal to 100" in await refused(client, "similar", track=ISRC, n=101)


async def test_over_stdio_without_a_service(
    checkpoint: Callable[[str], dict[str, Tensor]], tmp_path: Path
) -> None:
    for model_id in DEFAULTS:
        checkpoint(model_id)
    library = Library((tmp_path / "library").as_uri(), tmp_path / "library-view")
    fill(library)
    library.close()
    song = encode(tmp_path / "120.ogg", click_track(120, 6), "ogg", "vorbis")
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
        assert analysed["tempo"] == pytest.approx(120, rel=0.02)
        assert analysed["duration_s"] == pytest.approx(6, abs=0.1)
        (tmp_path / "bad.mp3").write_text("nothing to hear")
        bad = await refused(client, "analyse_file", path=str(tmp_path / "bad.mp3"))
        assert bad.startswith(f"Error executing tool analyse_file: {tmp_path}/bad.mp3: ")
        unknown = await refused(client, "similar", track="isrc:QZTST2199999")
        assert "add music with `afa scan FOLDER`" in unknown
        assert "afa catalog fingerprint" in await refused(client, "identify", path=str(song))


@pytest.mark.redis
async def test_the_service_answers_where_it_runs(api: Application) -> None:
    fill(api.library, models_name(MODELS))
    async with Client(build(ServiceBackend(api.client("pro")))) as client:
        await check_the_library(client)
        analysed = await ask(client, "analyse_file", path=str(DEMO_TRACK))
        assert (analysed["tempo"], analysed["key"], analysed["tags"]) == (
            *(120.0, "A minor", {"calm": 0.9}),
        )
        nobody = await refused(client, "identify", path=str(DEMO_TRACK))
        assert "No identification service could answer" in nobody
        unknown = await refused(client, "look_up", track="isrc:QZTST2199999")
        assert "The operator can add music (`afa scan FOLDER`)" in unknown
