"""Callers who pay get an answer, and those who get none pay nothing: repeats, outages at the worst
moment, bodies that never end."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from serve_app.api.door import audio_body
from serve_app.api.unread import LINGER_BYTES
from serve_app.domain.assets import AssetRecord, NewAsset
from serve_app.domain.errors import (
    InsufficientCreditsError,
    ServiceUnavailableError,
    UnprocessableAudioError,
    UrlFetchError,
)
from serve_app.ledger.jobs.types import JobRecord, NewJob
from serve_app.services.gate import Gate
from serve_app.services.jobs import submit
from tests.api.application import Application
from tests.data.audio_files import RATE, float_wav

pytestmark = pytest.mark.redis

DEMO = "0AfaDemoTrack000000001"
MP3 = {"Content-Type": "audio/mpeg"}
BATCH = "/v1/audio-features"


async def forget_answers(api: Application, kinds: str = "idem:*") -> None:
    """Act as if the process had died before it stored an answer, and its hold had ended."""
    for name in await api.stores.ledger_store.command("KEYS", kinds):
        assert 0 < await api.stores.ledger_store.command("PTTL", name) <= 24 * 3600 * 1000
        await api.stores.ledger_store.command("DEL", name)


async def away(*_args: Any, **_options: Any) -> Any:
    raise ServiceUnavailableError("away")


# Idempotency keys


@pytest.mark.parametrize("ids", [["isrc:QZAFA2600001"], [DEMO, DEMO]])
async def test_a_keys_new_life_for_another_request_is_charged(
    api: Application, ids: list[str]
) -> None:
    client, key = api.client(), {"Idempotency-Key": "a"}
    await client.post(BATCH, json={"ids": [DEMO]}, headers=key)
    await forget_answers(api)
    other = await client.post(BATCH, json={"ids": ids}, headers=key)
    assert (other.status_code, other.json()["_meta"]["credits_used"]) == (200, 2 * len(ids))
    assert await api.remaining("pro") == 60_000 - 2 - 2 * len(ids)


@pytest.mark.parametrize("kind", ["batch", "upload"])
async def test_the_same_request_a_day_later_is_another(
    api: Application, demo_audio: bytes, kind: str
) -> None:
    key = {"Idempotency-Key": "a"}
    requests: dict[str, tuple[str, dict[str, Any], int]] = {
        "batch": (BATCH, {"json": {"ids": [DEMO]}, "headers": key}, 2),
        "upload": ("/v1/audio-features/upload", {"content": demo_audio, "headers": MP3 | key}, 10),
    }
    path, sent, price = requests[kind]
    for number in range(2):
        answer = await api.client().post(path, **sent)
        assert answer.is_success, answer.text
        assert await api.remaining("pro") == 60_000 - price * (number + 1)
        await forget_answers(api)
        await forget_answers(api, "life:*")


async def test_another_body_under_a_lapsed_key_leaves_the_first_job_its_audio(
    api: Application, demo_audio: bytes
) -> None:
    api.backend.gate = asyncio.Event()
    client, headers = api.client(), MP3 | {"Idempotency-Key": "a"}
    path = "/v1/audio-features/upload"
    first = (await client.post(path, content=demo_audio, headers=headers)).json()["job_id"]
    await forget_answers(api)
    second = await client.post(path, content=demo_audio + b"x", headers=headers)
    assert second.status_code == 202, second.text
    assert second.json()["job_id"] != first
    api.backend.gate.set()
    for job_id in (first, second.json()["job_id"]):
        done = await client.get(f"/v1/jobs/{job_id}", params={"wait": 60})
        assert done.json()["status"] == "complete", done.text


async def test_what_was_read_for_nothing_is_not_kept(api: Application) -> None:
    client, key = api.client(), {"Idempotency-Key": "a"}
    for unknown in ("x" * 2000, "y" * 2000):
        sent = {"ids": [unknown], "extended": True}
        for _ in range(2):
            answer = await client.post(BATCH, json=sent, headers=key)
            assert answer.json()["audio_features"] == [None]
            assert answer.headers["X-Credits-Used"] == "0"
            assert "Idempotent-Replayed" not in answer.headers
    assert await api.stores.ledger_store.command("KEYS", "idem:*") == []


async def test_an_answer_that_cannot_be_kept_is_given(
    api: Application, demo_audio: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, headers = api.client(), MP3 | {"Idempotency-Key": "a"}
    monkeypatch.setattr(api.services.idempotency, "finish", away)
    answer = await client.post("/v1/bpm", content=demo_audio, headers=headers)
    assert (answer.status_code, answer.json()["_meta"]["credits_used"]) == (200, 2)


async def test_an_error_is_told_though_its_key_cannot_be_given_back(
    api: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = MP3 | {"Idempotency-Key": "a"}
    monkeypatch.setattr(api.services.idempotency, "abandon", away)
    answer = await api.client().post("/v1/bpm", content=b"no audio", headers=headers)
    assert answer.json()["error"] == "unprocessable_audio"


@pytest.mark.parametrize("value", [np.nan, np.inf, 3.4e38, 1e308])
async def test_audio_that_is_no_sound_is_refused_and_free(
    api: Application, tmp_path: Path, value: float
) -> None:
    client = api.client()
    audio = float_wav(tmp_path / "a", np.full(4 * RATE, value), dtype="<f8").read_bytes()
    before = await api.remaining("pro")
    for answer in (
        await client.post("/v1/bpm", content=audio, headers=MP3),
        await client.post("/v1/identify", files={"file": ("a.wav", audio, "audio/wav")}),
    ):
        assert (answer.status_code, answer.json()["error"]) == (400, "unprocessable_audio")
    job = await client.post("/v1/audio-features/upload", content=audio, headers=MP3)
    done = (await client.get(f"/v1/jobs/{job.json()['job_id']}", params={"wait": 60})).json()
    assert (done["status"], done["error"]["error"]) == ("failed", "unprocessable_audio")
    assert "not sound" in done["error"]["message"]
    assert api.backend.n_calls == 0
    assert await api.remaining("pro") == before


async def test_repeats_are_limited_and_carry_the_rate(api: Application, demo_audio: bytes) -> None:
    client, headers = api.client("free"), MP3 | {"Idempotency-Key": "a"}
    answers: list[httpx.Response] = []
    while len(answers) < 60 and (not answers or answers[-1].status_code == 200):
        answers.append(await client.post("/v1/bpm", content=demo_audio, headers=headers))
    assert [answer.status_code for answer in answers[:10]] == [200] * 10
    assert answers[-1].status_code == 429  # the eleventh, or one later for every six seconds
    assert all('"compute";r=' in answer.headers["RateLimit"] for answer in answers)
    assert answers[1].headers["Idempotent-Replayed"] == "true"


async def test_a_request_with_a_key_counts_once(api: Application) -> None:
    answer = await api.client("free").post(
        BATCH, json={"ids": [DEMO]}, headers={"Idempotency-Key": "a"}
    )
    assert '"read";r=59' in answer.headers["RateLimit"]


async def test_another_boundary_is_the_same_form(api: Application, demo_audio: bytes) -> None:
    def form(boundary: str) -> dict[str, Any]:
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
        return {
            "content": head.encode() + demo_audio + f"\r\n--{boundary}--\r\n".encode(),
            "headers": {
                "Content-Type": f"multipart/form-data; boundary={boundary}",
                "Idempotency-Key": "a",
            },
        }

    client = api.client("test")
    first = await client.post("/v1/identify", **form("one"))
    again = await client.post("/v1/identify", **form("another-one"))
    assert first.status_code == 200, first.text
    assert (again.status_code, again.content) == (200, first.content)
    assert again.headers["Idempotent-Replayed"] == "true"


# Jobs


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "a"}])
async def test_a_job_that_was_taken_in_is_told(
    api: Application, demo_audio: bytes, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ledger becomes unavailable right after the script that holds the credits."""
    client = api.client()
    await client.get("/v1/account")
    jobs = api.services.jobs
    monkeypatch.setattr(jobs, "get", away)
    monkeypatch.setattr(api.services.ledger, "balance", away)
    answer = await client.post(
        "/v1/audio-features/upload", content=demo_audio, headers=MP3 | headers
    )
    monkeypatch.undo()
    assert answer.status_code == 202, answer.text
    meta = answer.json()["_meta"]
    assert (meta["credits_used"], meta["credits_remaining"]) == (10, 59_990)
    done = await client.get(f"/v1/jobs/{answer.json()['job_id']}", params={"wait": 60})
    assert done.json()["status"] == "complete"


@pytest.mark.parametrize("is_repeatable", [True, False])
async def test_a_job_whose_submission_was_not_answered_is_found_or_refunded(
    api: Application, demo_audio: bytes, is_repeatable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.backend.gate = asyncio.Event()
    jobs, client = api.services.jobs, api.client()
    # Two jobs keep the worker busy, so that the third waits.
    for _ in range(2):
        await client.post("/v1/audio-features/upload", content=demo_audio, headers=MP3)
    while api.backend.n_calls < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    submit = jobs.submit

    async def unanswered(job: NewJob) -> JobRecord:
        await submit(job)
        raise ServiceUnavailableError("no answer")

    headers = MP3 | ({"Idempotency-Key": "a"} if is_repeatable else {})
    monkeypatch.setattr(jobs, "submit", unanswered)
    sent: dict[str, Any] = {"content": demo_audio, "headers": headers}
    assert (await client.post("/v1/audio-features/upload", **sent)).status_code == 503
    # While the service is full, a repeat is refused and leaves the job alone.
    monkeypatch.setattr(jobs, "submit", away)
    assert (await client.post("/v1/audio-features/upload", **sent)).status_code == 503
    monkeypatch.setattr(jobs, "submit", submit)
    api.backend.gate.set()
    async with asyncio.timeout(20):
        while (await client.get("/v1/account")).json()["usage"]["open_jobs"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    assert await api.remaining("pro") == 60_000 - (30 if is_repeatable else 20)
    if is_repeatable:
        again = await client.post("/v1/audio-features/upload", **sent)
        assert again.json()["status"] == "complete"
        assert await api.remaining("pro") == 60_000 - 30


@pytest.mark.parametrize("is_taken_in", [True, False])
async def test_a_url_job_whose_submission_was_not_answered_is_withdrawn(
    api: Application, is_taken_in: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submit, "WITHDRAW_AGAIN_S", 0.05)
    store, run, late = api.stores.ledger_store, api.stores.ledger_store.run, []
    n_away = 0

    async def unanswered(name: str, keys: Any, args: Any = ()) -> Any:
        nonlocal n_away
        if name == "job_submit":
            if is_taken_in:
                await run(name, keys, args)
            late.append((name, keys, args))
            raise ServiceUnavailableError("no answer")
        if name == "job_withdraw" and n_away < 3:
            n_away += 1
            raise ServiceUnavailableError("still away")
        return await run(name, keys, args)

    url, client = "http://127.0.0.1:9/a.mp3", api.client()
    monkeypatch.setattr(store, "run", unanswered)
    sent = await client.post("/v1/audio-features/url", json={"url": url})
    assert (sent.status_code, sent.json()["error"]) == (503, "service_unavailable")
    async with asyncio.timeout(30):
        while api.services.live.analysis._withdrawals:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    monkeypatch.setattr(store, "run", run)
    assert n_away == 3
    # The call that was still on its way arrives now.
    status, _ = await run(*late[0])
    assert status == (b"DUP" if is_taken_in else b"MISMATCH")
    assert (await client.get("/v1/account")).json()["usage"]["open_jobs"] == 0
    assert await api.remaining("pro") == 60_000


async def test_a_url_job_that_a_repeat_will_ask_for_is_left_alone(
    api: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, run = api.stores.ledger_store, api.stores.ledger_store.run
    names = []

    async def unanswered(name: str, keys: Any, args: Any = ()) -> Any:
        names.append(name)
        answer = await run(name, keys, args)
        if name == "job_submit":
            raise ServiceUnavailableError("no answer")
        return answer

    monkeypatch.setattr(store, "run", unanswered)
    sent: dict[str, Any] = {
        "json": {"url": "http://127.0.0.1:9/a.mp3"},
        "headers": {"Idempotency-Key": "a"},
    }
    client = api.client()
    assert (await client.post("/v1/audio-features/url", **sent)).status_code == 503
    monkeypatch.setattr(store, "run", run)
    again = await client.post("/v1/audio-features/url", **sent)
    assert again.status_code == 202
    assert "job_withdraw" not in names


# Look-ups and assets


async def test_misses_that_were_charged_are_answered_without_the_hits(
    api: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, hit = api.client("test"), "isrc:QZTST0000001"
    assert (await client.get(f"/v1/audio-features/{hit}")).status_code == 200

    async def over(*_args: Any, **_options: Any) -> Any:
        raise InsufficientCreditsError("over the allowance")

    for number, (fault, expected) in enumerate(((over, [False, True]), (away, [True, True]))):
        monkeypatch.setattr(api.services.ledger, "count_hit", fault)
        ids = f"{hit},isrc:QZTST{7 + number:07d}"
        answer = await client.get("/spotify/v1/audio-features", params={"ids": ids})
        assert (answer.status_code, answer.headers["X-Credits-Used"]) == (200, "2"), answer.text
        slots = answer.json()["audio_features"]
        assert [slot is not None for slot in slots] == expected
        refused = await client.get("/spotify/v1/audio-features", params={"ids": hit})
        assert refused.status_code == (402 if fault is over else 503)


async def test_a_tracks_own_unfit_audio_is_404(api: Application) -> None:
    names = {"song": "Demo in A minor", "artist": "The afa Demo Band"}
    for fault in (UnprocessableAudioError("noise"), UrlFetchError("gone")):
        api.quick.fault = fault
        answer = await api.client().get("/v1/key-bpm", params=names)
        assert (answer.status_code, answer.json()["error"]) == (404, "track_not_found")
    assert await api.remaining("pro") == 60_000


async def test_an_asset_whose_record_was_not_answered_keeps_its_bytes(
    api: Application, demo_audio: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, put = api.client(), api.stores.assets.put

    async def unanswered(asset: NewAsset) -> AssetRecord:
        await put(asset)
        raise ServiceUnavailableError("no answer")

    monkeypatch.setattr(api.stores.assets, "put", unanswered)
    sent: dict[str, Any] = {"content": demo_audio, "headers": MP3}
    assert (await client.post("/v1/assets/upload", **sent)).status_code == 503
    monkeypatch.undo()
    asset_id = (await client.post("/v1/assets/upload", **sent)).json()["asset_id"]
    tempo = await client.post("/v1/bpm", json={"asset_id": asset_id})
    assert tempo.status_code == 200, tempo.text


# Bodies


async def test_a_full_identification_reads_no_form(
    api: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_bytes = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal n_bytes
        for _ in range(100):
            n_bytes += LINGER_BYTES
            yield bytes(LINGER_BYTES)

    monkeypatch.setattr(api.services.live.identify, "_gate", Gate(0))
    answer = await api.client().post(
        "/v1/identify",
        content=body(),
        headers={"Content-Type": "multipart/form-data; boundary=x"},
    )
    # What is read before the connection closes is read by the linger, not for the form.
    assert (answer.status_code, answer.headers["connection"]) == (503, "close")
    assert n_bytes <= LINGER_BYTES


@pytest.mark.parametrize(
    ("method", "path"),
    [("POST", BATCH), ("POST", "/v1/audio-features/url"), ("PUT", "/v1/account/webhook")],
)
@pytest.mark.parametrize("who", ["pro", None])
async def test_an_endless_json_body_is_refused(
    api: Application, method: str, path: str, who: str | None
) -> None:
    sent = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 40 << 20:
            sent += 1 << 16
            yield b" " * (1 << 16)

    answer = await api.client(who).request(
        method, path, content=body(), headers={"Content-Type": "application/json"}
    )
    code = "unauthorized" if who is None else "payload_too_large"
    assert answer.json()["error"] == code
    assert sent <= 4 << 20


async def test_malformed_json_without_a_key_is_unauthorized(api: Application) -> None:
    answer = await api.client(None).post(
        BATCH, content=b"{", headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 401


async def test_the_longest_batch_fits(api: Application) -> None:
    body = json.dumps({"ids": ["\u00e9" * 2048] * 100})
    answer = await api.client().post(
        BATCH, content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.json()["audio_features"] == [None] * 100


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "a"}])
async def test_a_body_that_hardly_comes_is_cut_off(
    api: Application, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audio_body, "SLOW_START_S", 0.2)

    async def body() -> AsyncIterator[bytes]:
        yield b"ID3"
        await asyncio.sleep(60)
        yield b"more"

    async with asyncio.timeout(30):
        answer = await api.client().post("/v1/bpm", content=body(), headers=MP3 | headers)
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert "too slow" in answer.json()["message"]
    assert await api.remaining("pro") == 60_000


async def test_failed_authentication_that_is_limited_says_the_rate(api: Application) -> None:
    client = api.client(None)
    answers = await asyncio.gather(*(client.get("/v1/account") for _ in range(60)))
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert refused.headers["RateLimit-Policy"] == '"auth";q=30;w=60'
