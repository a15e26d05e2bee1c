"""Embeddings on request: the choice of the model, many files at once, and text queries."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from configs.tables import load_table
from serve_app.composition.options import StoreOptions
from serve_app.domain.errors import ServiceUnavailableError
from tests.api.application import Application, open_application
from tests.api.test_similar import ISRC, put, sounding, titles

pytestmark = pytest.mark.redis

EMBED = "/v1/embed"
MP3 = {"Content-Type": "audio/mpeg"}
NAMED = "efficientat-mn04"
WORDS = "tests-clap"


@pytest.fixture
async def with_words(
    api_stores: StoreOptions, demo_catalog: Path, tmp_path: Path
) -> AsyncIterator[Application]:
    """An application whose operator has a CLAP checkpoint and its tokenizer."""
    card = load_table("models")["clap"]
    card |= {"network": "clap-joint", "files": [{"path": "tokenizer.json", "sha256": "0" * 64}]}
    (tmp_path / "cards.yaml").write_text(yaml.safe_dump({WORDS: card}))
    (tmp_path / WORDS).mkdir()
    (tmp_path / WORDS / "model.safetensors").touch()
    async with open_application(api_stores, demo_catalog, model_dir=tmp_path) as application:
        yield application


async def test_a_card_that_is_wrong_spoils_no_answer(
    with_words: Application, tmp_path: Path
) -> None:
    with (tmp_path / "cards.yaml").open("a") as cards:
        cards.write("1:\n  role: embedding\n")
    client = with_words.client("pro")
    listed = await client.get("/v1/models")
    assert WORDS in {item["id"] for item in listed.json()["items"]}
    asked = await client.get("/v1/similar", params={"text": "slow piano", "model": WORDS})
    assert f"there are no vectors of '{WORDS}'" in asked.json()["message"]


def lines(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def form(*files: tuple[str, bytes]) -> Any:
    return [("file", (name, content, "audio/mpeg")) for name, content in files]


async def test_the_models_say_what_they_are_and_which_may_be_named(api: Application) -> None:
    items = (await api.client("free").get("/v1/models")).json()["items"]
    models = {item["id"]: item for item in items}
    shipped = models[NAMED]
    assert (shipped["dimension"], shipped["licence"], shipped["trained_on"]) == (
        384,
        "MIT",
        "AudioSet",
    )
    assert (shipped["may_be_named"], shipped["in_use"], shipped["reads_text"]) == (
        True,
        False,
        False,
    )
    assert not models["mert-95m"]["may_be_named"]  # it is not on this machine
    assert not models["musicnn-mtt"]["may_be_named"]  # it is for tags


async def test_what_may_not_be_named_is_400_with_the_list(
    api: Application, demo_audio: bytes
) -> None:
    sent: dict[str, Any] = {"content": demo_audio, "headers": MP3}
    address = {"json": {"url": "http://afa.test/a.mp3"}}
    for route, body, name, why in (
        ("/v1/audio-features/upload", sent, "nobody-s", "not a model"),
        ("/v1/audio-features/url", address, "musicnn-mtt", "not available"),
        (EMBED, sent, "mert-95m", "not available"),
    ):
        answer = await api.client().post(route, params={"embedding_model": name}, **body)
        assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
        message = answer.json()["message"]
        assert name in message
        assert why in message
        assert f"you may name: {NAMED}" in message
    assert await api.remaining("pro") == 60_000


async def test_a_job_says_whose_embedding_it_has(api: Application, demo_audio: bytes) -> None:
    client, path = api.client(), "/v1/audio-features/upload"
    params = {"embedding_model": NAMED, "wait": 60}
    sent: dict[str, Any] = {"content": demo_audio, "headers": MP3 | {"Idempotency-Key": "a"}}
    named = await client.post(path, params=params, **sent)
    assert named.json()["result"]["embedding_model"] == NAMED
    assert len(named.json()["result"]["embedding"]) == 768
    plain = await client.post(path, params={"wait": 60}, content=demo_audio, headers=MP3)
    assert plain.json()["result"]["embedding"] is None
    again = await client.post(path, params={"wait": 60}, **sent)
    assert (again.status_code, again.json()["error"]) == (409, "idempotency_mismatch")
    refused = await api.client("basic").post(path, params=params, content=demo_audio, headers=MP3)
    assert (refused.status_code, refused.json()["error"]) == (402, "tier_required")


async def test_only_files_that_got_a_vector_are_charged(
    api: Application, demo_audio: bytes
) -> None:
    files = form(
        ("one.mp3", demo_audio), ("two.txt", b"no audio"), ("three.mp3", demo_audio + b"x")
    )
    answer = await api.client().post(EMBED, files=files, params={"embedding_model": NAMED})
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    one, two, three = lines(answer)
    assert [one["name"], two["name"], three["name"]] == ["one.mp3", "two.txt", "three.mp3"]
    assert len(one["embedding"]) == 768
    assert (one["embedding_model"], one["error"]) == (NAMED, None)
    assert one["duration_s"] == pytest.approx(32, abs=1)
    assert (two["embedding"], two["error"]["error"]) == (None, "unprocessable_audio")
    assert three["error"] is None
    assert answer.headers["X-Credits-Used"] == "10"
    assert await api.remaining("pro") == 60_000 - 10


@pytest.mark.parametrize("path", [EMBED, "/v1/bpm"])
async def test_what_was_charged_is_answered_though_the_body_cannot_be_deleted_now(
    api: Application, demo_audio: bytes, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def away(key: str) -> None:
        raise ServiceUnavailableError("away")

    monkeypatch.setattr(api.services.objects, "delete", away)
    answer = await api.client().post(path, content=demo_audio, headers=MP3)
    assert answer.status_code == 200, answer.text
    used = int(answer.headers["X-Credits-Used"])
    assert used > 0
    assert await api.remaining("pro") == 60_000 - used


async def test_a_fault_of_ours_costs_nothing(api: Application, demo_audio: bytes) -> None:
    api.backend.fault = RuntimeError("CUDA error")
    (one,) = lines(await api.client().post(EMBED, content=demo_audio, headers=MP3))
    assert one["error"]["error"] == "internal_error"
    assert "CUDA" not in one["error"]["message"]
    assert await api.remaining("pro") == 60_000


async def test_assets_and_addresses_come_as_an_arrow_stream(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client()
    asset = (await client.post("/v1/assets/upload", content=demo_audio, headers=MP3)).json()
    named = [{"asset_id": asset["asset_id"]}, {"url": "http://127.0.0.1:1/a.mp3"}]
    named.append({"asset_id": "afa_00000000000000000000000000"})
    answer = await client.post(EMBED, json={"files": named}, params={"format": "arrow"})
    assert answer.headers["Content-Type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(answer.content).read_all()
    assert table["name"].to_pylist() == [next(iter(one.values())) for one in named]
    assert table["error"].to_pylist() == [None, "url_fetch_failed", "asset_not_found"]
    assert table["embedding_model"].to_pylist() == ["fake", None, None]
    assert table["embedding"].type.list_size == 768
    assert table["embedding"][0].as_py()[0] == 1.0
    assert await api.remaining("pro") == 60_000 - 5


async def test_a_repeat_is_answered_again_and_charged_once(
    api: Application, demo_audio: bytes
) -> None:
    sent: dict[str, Any] = {"content": demo_audio, "headers": MP3 | {"Idempotency-Key": "a"}}
    first = await api.client().post(EMBED, **sent)
    again = await api.client().post(EMBED, **sent)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert (again.content, again.headers["Content-Type"]) == (
        first.content,
        first.headers["Content-Type"],
    )
    assert await api.remaining("pro") == 60_000 - 5


async def test_what_names_no_files_is_refused(api: Application) -> None:
    json_type = {"Content-Type": "application/json"}
    refused: list[tuple[dict[str, Any], int, str]] = [
        ({"json": {"files": []}}, 400, "files"),
        ({"json": {"files": [{"asset_id": "afa_1"}] * 33}}, 400, "32"),
        ({"json": {"files": [{"asset_id": "afa_1", "url": "http://a.test/"}]}}, 400, "either"),
        ({"json": {"files": [{}]}}, 400, "either"),
        ({"content": b"{", "headers": json_type}, 400, "send a JSON object"),
        ({"content": b'{"files":' + b"[" * 20_000}, 400, "send a JSON object"),
        ({"json": {"files": [{"uri": "http://a.test/"}]}}, 400, "not known here: files.uri"),
        ({"json": {"file": []}}, 400, "files is missing; not known here: file"),
        ({"content": b"<html>no audio</html>"}, 415, "not audio"),
        ({"content": b"{" + b" " * 70_000, "headers": json_type}, 413, "JSON"),
        ({"files": form(*[("a.mp3", b"x")] * 33)}, 400, "more than 32 files"),
        ({"files": {"audio": b"x"}}, 400, "`file`"),
    ]
    for sent, status, says in refused:
        answer = await api.client().post(EMBED, **sent)
        assert answer.status_code == status, answer.text
        assert says in answer.json()["message"]
    assert await api.remaining("pro") == 60_000


@pytest.mark.parametrize("kind", [{}, {"Content-Type": "text/plain"}])
async def test_what_a_body_is_shows_in_its_first_bytes(
    api: Application, demo_audio: bytes, kind: dict[str, str]
) -> None:
    asset_id = (await api.client().post("/v1/assets/upload", content=demo_audio)).json()["asset_id"]
    named = {"asset_id": asset_id}
    for body in ({"files": [named, named]}, named):
        answer = await api.client().post(EMBED, content=json.dumps(body), headers=kind)
        assert {line["name"] for line in lines(answer)} == {asset_id}
        assert lines(answer)[0]["error"] is None
    answer = await api.client().post(
        EMBED, content=demo_audio, headers={"Content-Type": "application/json"}
    )
    assert lines(answer)[0]["embedding"]


async def test_it_takes_a_tier_and_credits_for_all_files(
    api: Application, demo_audio: bytes
) -> None:
    for who in ("free", "basic"):
        answer = await api.client(who).post(EMBED, content=demo_audio, headers=MP3)
        assert (answer.status_code, answer.json()["error"]) == (402, "tier_required")
        assert "embeddings need the pro tier" in answer.json()["message"]
    await api.stores.ledger.adjust("owner-pro", "drain", -60_000, "test", "drain")
    caller = await api.stores.accounts.authenticate(api.keys["pro"])
    assert caller is not None
    await api.stores.ledger.reserve(caller, "grace", 2_000 - 9)
    two = form(("one.mp3", demo_audio), ("two.mp3", demo_audio))
    answer = await api.client().post(EMBED, files=two)
    assert (answer.status_code, answer.json()["error"]) == (402, "insufficient_credits")
    assert lines(await api.client().post(EMBED, files=two[:1]))[0]["error"] is None


async def test_a_test_key_gets_simulated_vectors(api: Application, demo_audio: bytes) -> None:
    answers = [
        lines(await api.client("test").post(EMBED, content=demo_audio, headers=MP3))
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    assert answers[0][0]["embedding_model"] == "simulated"
    found = await api.client("test").get("/v1/similar", params={"text": "rain", "n": 3})
    assert len(found.json()["items"]) == 3


async def test_blank_words_are_refused_and_cost_nothing(api: Application) -> None:
    answer = await api.client("test").get("/v1/similar", params={"text": " \t"})
    assert answer.status_code == 400
    assert "text: should not be blank" in answer.json()["message"]


async def test_words_need_a_model_that_reads_them(api: Application) -> None:
    put(api, "Seed", sounding(0.1), isrc=ISRC)
    answer = await api.client().get("/v1/similar", params={"text": "slow piano"})
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert "'fake' reads no words" in answer.json()["message"]
    assert "operator can add a CLAP checkpoint" in answer.json()["message"]
    missing = await api.client().get("/v1/similar")
    assert "text is missing" in missing.json()["message"]
    assert await api.remaining("pro") == 60_000


async def test_words_find_tracks_among_the_vectors_of_their_model(with_words: Application) -> None:
    client = with_words.client()
    said = {"text": "slow piano", "model": WORDS}
    unheard = await client.get("/v1/similar", params=said)
    assert (unheard.status_code, unheard.json()["error"]) == (400, "bad_request")
    for title, sound in (("Near", 1.0), ("Far", 0.1)):
        vector = [(1 - sound**2) ** 0.5, sound] + [0.0] * 766
        put(with_words, title, sounding(0.0, model=WORDS, embedding=vector))
    assert await titles(client, "/v1/similar", **said) == ["Near", "Far"]
    assert await titles(client, "/v1/similar", **said, tempo_max=10) == []
    unnamed = await client.get("/v1/similar", params={"text": "slow piano"})
    assert f"these do: {WORDS}" in unnamed.json()["message"]
    assert await with_words.remaining("pro") == 60_000 - 2
