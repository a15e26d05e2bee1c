"""POST /v1/identify: shape, charges, cache, refusals; a real index of the bundled track."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from pipelines.audio.decode import DecodeLimits, decode
from pipelines.fingerprint.clip import Clip
from pipelines.fingerprint.make import Fingerprinter
from serve_app.composition.options import StoreOptions
from serve_app.domain.identification import Recognition
from serve_app.domain.identity import TrackIdentity
from serve_app.domain.providers import ProviderTerms, ProviderUnavailableError
from serve_app.providers.catalog.search import Catalog
from serve_app.providers.fingerprints.builder import FingerprintIndexBuilder
from serve_app.providers.fingerprints.track_keys import identity_of_key
from serve_app.providers.recognisers.own_index import LocalRecogniser
from tests.api.application import Application, open_application
from tests.data.audio_files import click_track, encode, write_wav

pytestmark = pytest.mark.redis
DEMO = Path(__file__).parents[2] / "serve_app" / "data" / "demo.mp3"
DEMO_KEY = "file:The Stub Quartet - Demo.mp3"


@dataclass
class Remote:
    """A recognition service besides our own index that behaves as a test wants."""

    name: str = "remote"
    fault: Exception | None = None
    gate: asyncio.Event | None = None
    called: asyncio.Event = field(default_factory=asyncio.Event)
    n_calls: int = 0
    timeout_s: float = 5.0
    terms: ProviderTerms = field(default_factory=lambda: ProviderTerms("test", "test"))

    def accepts(self, clip: Clip) -> bool:
        return True

    async def recognise(self, clip: Clip) -> Recognition | None:
        self.n_calls += 1
        self.called.set()
        if self.gate is not None:
            await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return None


@dataclass
class Setting:
    app: Application
    remote: Remote

    def post(self, who: str, audio: bytes, **fields: Any) -> Any:
        client = self.app.client(who)
        return client.post("/v1/identify", files={"file": ("a.mp3", audio, "audio/mpeg")}, **fields)


@pytest.fixture(scope="module")
def demo_index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("index")
    waveform = decode(DEMO, DecodeLimits())
    with FingerprintIndexBuilder(folder) as builder:
        builder.build([(DEMO_KEY, Fingerprinter().make_fingerprints([waveform])[0])])
    return folder


@pytest.fixture
async def setting(
    api_stores: StoreOptions, demo_index: Path, tmp_path: Path
) -> AsyncIterator[Setting]:
    catalog = Catalog.open(tmp_path / "catalog")
    local = LocalRecogniser(demo_index, lambda key: identity_of_key(catalog, key))
    remote = Remote()
    async with open_application(
        api_stores,
        tmp_path / "catalog",
        recognisers=[local, remote],
        fingerprint_dir=demo_index,
    ) as app:
        yield Setting(app, remote)


async def credits_of(app: Application) -> int:
    return (await app.stores.ledger.balance("owner-pro", "pro")).remaining


def synthetic_noise(length_s: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(5).normal(0, 0.1, (1, 44_100 * length_s)).astype(np.float32)


def clip_of_demo(tmp_path: Path, start_s: float = 8, length_s: float = 8) -> bytes:
    samples = decode(DEMO, DecodeLimits()).samples
    cut = samples[:, int(start_s * 44_100) : int((start_s + length_s) * 44_100)]
    return encode(tmp_path / "clip.mp3", cut, "mp3", "libmp3lame").read_bytes()


async def test_a_clip_of_a_known_track_is_named_and_charged_once(
    setting: Setting, tmp_path: Path
) -> None:
    audio = clip_of_demo(tmp_path)
    before = await credits_of(setting.app)
    answer = await setting.post("pro", audio)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["matched"] is True
    assert (body["artist"], body["title"]) == ("The Stub Quartet", "Demo")
    assert body["source_service"] == "local"
    assert body["confidence"] >= 50
    assert body["services_tried"] == {"local": "match", "remote": "skipped"}
    assert body["enrichment"]["bpm"] == 120
    assert (body["enrichment"]["key"], body["enrichment"]["camelot"]) == ("A", "8A")
    assert "label" not in body["enrichment"]
    assert None not in [*body.values(), *body["enrichment"].values()]
    assert (body["_meta"]["cache"], body["_meta"]["credits_used"]) == ("miss", 3)
    again = (await setting.post("pro", audio)).json()
    assert (again["_meta"]["cache"], again["_meta"]["credits_used"]) == ("hit", 0)
    assert {**again, "_meta": None} == {**body, "_meta": None}
    assert await credits_of(setting.app) == before - 3


async def test_a_reencoded_copy_of_a_clip_is_a_free_hit(setting: Setting, tmp_path: Path) -> None:
    samples = decode(DEMO, DecodeLimits()).samples[:, 300_000:800_000]
    first = encode(tmp_path / "a.mp3", samples, "mp3", "libmp3lame").read_bytes()
    copy = encode(tmp_path / "a.ogg", samples, "ogg", "vorbis").read_bytes()
    before = (await setting.post("pro", first)).json()
    again = (await setting.post("pro", copy)).json()
    assert (again["_meta"]["cache"], again["_meta"]["credits_used"]) == ("hit", 0)
    assert {**again, "_meta": None} == {**before, "_meta": None}
    assert again["_meta"]["credits_remaining"] == before["_meta"]["credits_remaining"]


async def test_a_clip_that_shares_a_part_with_another_is_asked_anew(
    setting: Setting, tmp_path: Path
) -> None:
    samples = decode(DEMO, DecodeLimits()).samples
    clips = {
        "long": samples[:, 300_000:700_000],
        "its beginning": samples[:, 300_000:500_000],
        "later": samples[:, 400_000:800_000],
    }
    for name, clip in clips.items():
        audio = encode(tmp_path / name, clip, "mp3", "libmp3lame").read_bytes()
        answer = (await setting.post("pro", audio)).json()
        assert answer["_meta"]["cache"] == "miss", name


async def test_what_another_account_asked_is_no_hit(setting: Setting, tmp_path: Path) -> None:
    """Nobody learns what others asked: price and `cache` are those of a first request."""
    samples = decode(DEMO, DecodeLimits()).samples[:, 400_000:900_000]
    clip = encode(tmp_path / "a.mp3", samples, "mp3", "libmp3lame").read_bytes()
    copy = encode(tmp_path / "a.ogg", samples, "ogg", "vorbis").read_bytes()
    unknown = write_wav(tmp_path / "b.wav", click_track(97, 6)).read_bytes()
    told = {}
    for who in ("pro", "scale", "basic"):
        for name, audio in (("clip", clip), ("copy", copy), ("unknown", unknown)):
            for _ in range(2):
                meta = (await setting.post(who, audio)).json()["_meta"]
                told.setdefault((who, name), []).append((meta["cache"], meta["credits_used"]))
    miss, hit = ("miss", 3), ("hit", 0)
    expected = {"clip": [miss, hit], "copy": [hit, hit], "unknown": [miss, hit]}
    assert told == {(who, name): expected[name] for who, name in told}
    assert len(told) == 9
    assert setting.remote.n_calls == 1
    first = {**(await setting.post("pro", clip)).json(), "_meta": None}
    assert first == {**(await setting.post("basic", clip)).json(), "_meta": None}


async def test_that_nothing_matched_ends_when_the_index_grows(
    setting: Setting, demo_index: Path, tmp_path: Path
) -> None:
    path = write_wav(tmp_path / "a.wav", synthetic_noise(9))
    audio = path.read_bytes()
    before = (await setting.post("pro", audio)).json()
    assert (before["matched"], before["_meta"]["cache"]) == (False, "miss")
    assert (await setting.post("pro", audio)).json()["_meta"]["cache"] == "hit"
    with FingerprintIndexBuilder(demo_index) as builder:
        waveform = decode(path, DecodeLimits())
        builder.build([("file:Noise.wav", Fingerprinter().make_fingerprints([waveform])[0])])
    after = (await setting.post("pro", audio)).json()
    assert (after["matched"], after["_meta"]["cache"]) == (True, "miss")
    assert (await setting.post("pro", audio)).json()["_meta"]["cache"] == "hit"


async def test_what_nobody_knows_is_unmatched_and_charged(setting: Setting, tmp_path: Path) -> None:
    audio = write_wav(tmp_path / "a.wav", click_track(97, 6)).read_bytes()
    body = (await setting.post("free", audio)).json()
    assert body["matched"] is False
    assert body["services_tried"] == {"local": "no_match", "remote": "no_match"}
    assert body["enrichment"] is None
    assert not body.keys() & {"artist", "title", "album", "year", "isrc", "source_service"}
    assert body["_meta"]["credits_used"] == 3


async def test_a_failing_service_leaves_a_definite_answer_uncached(
    setting: Setting, tmp_path: Path
) -> None:
    setting.remote.fault = ProviderUnavailableError("remote", "down")
    audio = write_wav(tmp_path / "a.wav", click_track(97, 6)).read_bytes()
    body = (await setting.post("pro", audio)).json()
    assert body["services_tried"] == {"local": "no_match", "remote": "error"}
    await setting.post("pro", audio)
    assert setting.remote.n_calls == 2


async def test_all_services_failing_is_502_and_free(
    api_stores: StoreOptions, tmp_path: Path
) -> None:
    remote = Remote(fault=ProviderUnavailableError("remote", "down"))
    async with open_application(api_stores, tmp_path / "c", recognisers=[remote]) as app:
        before = await credits_of(app)
        audio = write_wav(tmp_path / "a.wav", click_track(97, 6)).read_bytes()
        answer = await Setting(app, remote).post("pro", audio)
        assert (answer.status_code, answer.json()["error"]) == (502, "providers_unavailable")
        assert await credits_of(app) == before


@pytest.mark.parametrize(
    ("content", "code"), [(b"no audio", "unprocessable_audio"), (None, "audio_too_short")]
)
async def test_unfit_audio_is_400_and_free(
    setting: Setting, tmp_path: Path, content: bytes | None, code: str
) -> None:
    audio = content or write_wav(tmp_path / "a.wav", click_track(97, 2.9)).read_bytes()
    before = await credits_of(setting.app)
    answer = await setting.post("pro", audio)
    assert (answer.status_code, answer.json()["error"]) == (400, code)
    assert await credits_of(setting.app) == before


async def test_a_form_without_the_file_part_is_400(setting: Setting) -> None:
    client = setting.app.client("pro")
    answer = await client.post("/v1/identify", files={"other": b"x"})
    assert (answer.status_code, answer.json()["error"]) == (400, "bad_request")
    assert "`file`" in answer.json()["message"]
    broken = await client.post(
        "/v1/identify", content=b"x", headers={"Content-Type": "multipart/form-data; boundary=y"}
    )
    assert broken.status_code == 400
    empty = await client.post("/v1/identify", files={"file": ("a", b"", "audio/mpeg")})
    assert empty.status_code == 400


async def test_the_tiers_size_holds_for_forms(setting: Setting) -> None:
    answer = await setting.post("basic", bytes(15 * 2**20 + 1))
    assert (answer.status_code, answer.json()["error"]) == (413, "payload_too_large")


async def test_one_at_a_time_on_the_free_tier(setting: Setting, tmp_path: Path) -> None:
    setting.remote.gate = asyncio.Event()
    first_audio = write_wav(tmp_path / "a.wav", click_track(97, 6)).read_bytes()
    second_audio = write_wav(tmp_path / "b.wav", click_track(88, 6)).read_bytes()
    first = asyncio.create_task(setting.post("free", first_audio))
    await setting.remote.called.wait()
    second: httpx.Response = await setting.post("free", second_audio)
    assert (second.status_code, second.json()["error"]) == (429, "concurrency_exceeded")
    assert int(second.headers["Retry-After"]) >= 1
    setting.remote.gate.set()
    assert (await first).status_code == 200


async def test_a_test_key_gets_the_same_answer_for_the_same_bytes(
    setting: Setting, tmp_path: Path
) -> None:
    audio = clip_of_demo(tmp_path)
    answers = [(await setting.post("test", audio)).json() for _ in range(2)]
    assert answers[0]["source_service"] == "simulated"
    assert {**answers[0], "_meta": None} == {**answers[1], "_meta": None}
    assert setting.remote.n_calls == 0


def test_a_file_names_its_track(tmp_path: Path) -> None:
    catalog = Catalog.open(tmp_path)
    named = identity_of_key(catalog, "file:folder/Some One - A Song.flac")
    assert named == TrackIdentity("Some One", "A Song", source="file name")
    assert identity_of_key(catalog, "file:x/untitled.mp3") == TrackIdentity(
        "", "untitled", source="file name"
    )
    assert identity_of_key(catalog, "isrc:QZTST2100001") is None
