"""Exported files over HTTP: what they contain, and who learns where the tracks' files are."""

import csv
from dataclasses import replace
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import httpx
import pytest

from serve_app.library.track import Place, TrackFile
from tests.api.application import Application
from tests.library.library_setting import adding, heard, track

pytestmark = pytest.mark.redis


async def analysed(client: httpx.AsyncClient, audio: bytes) -> str:
    answer = await client.post("/v1/audio-features/upload", content=audio, params={"wait": 60})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["job_id"])


async def test_an_upload_is_exported_with_its_grid_and_place(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client("pro")
    before = await api.remaining("pro")
    job = await analysed(client, demo_audio)
    item = {"id": job, "location": "C:\\Music\\a & b.mp3"}
    body = {"format": "rekordbox", "tracks": [item], "key_format": "camelot"}
    answer = await client.post("/v1/export", json=body, headers={"Idempotency-Key": "one"})
    assert answer.headers["Content-Disposition"] == 'attachment; filename="afa-rekordbox.xml"'
    entry = ElementTree.fromstring(answer.content).find("COLLECTION/TRACK")  # noqa: S314
    assert entry is not None
    assert entry.get("Location") == "file://localhost/C:/Music/a%20%26%20b.mp3"
    assert (entry.get("AverageBpm"), entry.get("Tonality")) == ("120.00", "8A")
    assert entry.get("Name") == "Demo in A minor"
    assert [mark.get("Bpm") for mark in entry.findall("TEMPO")] == ["120.00"]
    table = await client.post("/v1/export", json={"format": "csv", "tracks": [{"id": job}]})
    (row,) = csv.DictReader(StringIO(table.text))
    assert (row["tempo"], row["camelot"], row["title"]) == ("120.0", "8A", "Demo in A minor")
    assert before - await api.remaining("pro") == 10
    other = await api.client("scale").post("/v1/export", json=body)
    assert (other.status_code, other.json()["error"]) == (404, "job_not_found")


async def test_where_the_operator_s_files_lie_is_told_on_its_machine_alone(
    api: Application, tmp_path: Path
) -> None:
    file = TrackFile(Place.PATH, str(tmp_path / "one.mp3"))
    one = replace(track(), files=(file,))
    unheard = track("Unheard")
    api.library.write([adding(one, heard("one")), adding(unheard)])
    await api.issue("here", "local")
    body = {"format": "rekordbox", "tracks": [{"id": one.track_id}]}
    told = await api.client("here").post("/v1/export", json=body)
    assert tmp_path.name in told.text
    stranger = api.client("scale")
    refused = await stranger.post("/v1/export", json=body)
    assert (refused.status_code, refused.json()["error"]) == (400, "bad_request")
    assert "location" in refused.json()["message"]
    table = await stranger.post("/v1/export", json=body | {"format": "csv"})
    assert one.track_id in table.text
    assert tmp_path.name not in table.text
    nothing = {"format": "csv", "tracks": [{"id": unheard.track_id}]}
    assert (await stranger.post("/v1/export", json=nothing)).status_code == 404


@pytest.mark.parametrize(
    "tracks",
    [[], [{"id": "isrc:QZAFA2600001"}], [{"id": "job_" + "0" * 26, "location": "music/a.mp3"}]],
)
async def test_what_cannot_be_exported_is_refused(
    api: Application, tracks: list[dict[str, str]]
) -> None:
    answer = await api.client().post("/v1/export", json={"format": "csv", "tracks": tracks})
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")


async def test_as_many_as_may_be_named_are_read_without_taking_every_connection(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client("pro")
    job = await analysed(client, demo_audio)
    tracks = [{"id": job, "location": f"/music/{n}.mp3"} for n in range(500)]
    answer = await client.post("/v1/export", json={"format": "csv", "tracks": tracks})
    assert answer.status_code == 200, answer.text
    assert len(answer.text.splitlines()) == 501


async def test_nothing_is_kept_of_what_is_free_and_only_reads(api: Application) -> None:
    api.library.write([adding(one := track(), heard("one"))])
    client, key = api.client("pro"), {"Idempotency-Key": "one"}
    for form in ("csv", "rekordbox"):
        body = {"format": form, "tracks": [{"id": one.track_id, "location": "/a.mp3"}]}
        answer = await client.post("/v1/export", json=body, headers=key)
        assert answer.status_code == 200, answer.text
