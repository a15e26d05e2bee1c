"""The Python client, blocking and asynchronous, against the application behind real HTTP."""

import asyncio
import json
import re
import time
import tomllib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import afa_client
import httpx
import pytest
from afa_client import AsyncClient, Client, Retries

from clients.generate import document, files
from serve_app.ledger.jobs import webhooks
from serve_app.ledger.jobs.webhooks import Webhooks
from tests.api.live import LiveApplication
from tests.conftest import DEMO_TRACK
from tests.redis_fixtures import BUSY_MACHINE_S

pytestmark = pytest.mark.redis

REPOSITORY = Path(__file__).parents[2]
FOLDER = REPOSITORY / "clients" / "python"
DEMO = "0AfaDemoTrack000000001"
HURRIED = Retries(1, first_pause_s=0.01)


class Recorder:
    """Notes the operations that were sent, and may lose the first answer."""

    def __init__(self, *, is_lossy: bool = False) -> None:
        self.sent: list[str] = []
        self.keys: list[str | None] = []
        self._is_lossy = is_lossy

    def note(self, request: httpx.Request) -> None:
        self.sent.append(f"{request.method} {request.url.path}")
        self.keys.append(request.headers.get("idempotency-key"))

    def lose(self) -> None:
        if self._is_lossy:
            self._is_lossy = False
            raise httpx.ReadError("the answer was lost")


class BlockingTransport(httpx.HTTPTransport):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._recorder.note(request)
        response = super().handle_request(request)
        self._recorder.lose()
        return response


class AsyncTransport(httpx.AsyncHTTPTransport):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._recorder.note(request)
        response = await super().handle_async_request(request)
        self._recorder.lose()
        return response


class InTurn:
    """The asynchronous client, called like the blocking one."""

    def __init__(self, client: AsyncClient, runner: asyncio.Runner) -> None:
        self._client = client
        self._runner = runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        async def answer(*arguments: Any, **named: Any) -> Any:
            called = method(*arguments, **named)
            if hasattr(called, "__aiter__"):
                return [item async for item in called]
            return await called

        return lambda *arguments, **named: self._runner.run(answer(*arguments, **named))


Connect = Callable[..., Any]


@pytest.fixture(params=["blocking", "asynchronous"])
def connect(request: pytest.FixtureRequest, live: LiveApplication) -> Iterator[Connect]:
    """Make a client of a tier; ``recorder`` sees what is sent."""
    with asyncio.Runner() as runner:
        made: list[Any] = []

        def build(
            who: str = "pro", recorder: Recorder | None = None, url: str = "", **settings: Any
        ) -> Any:
            recorder = recorder or Recorder()
            key = live.application.keys.get(who, who)
            if request.param == "blocking":
                transport = BlockingTransport(recorder)
                made.append(Client(url or live.url, key, transport=transport, **settings))
            else:
                there = AsyncClient(
                    url or live.url, key, transport=AsyncTransport(recorder), **settings
                )
                made.append(InTurn(there, runner))
            return made[-1]

        yield build
        for client in made:
            client.close() if isinstance(client, Client) else client.aclose()


@pytest.fixture
def audio_url(demo_audio: bytes) -> Iterator[str]:
    """Where the demo track can be fetched."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(demo_audio)))
            self.end_headers()
            self.wfile.write(demo_audio)

        def log_message(self, format: str, *arguments: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/demo.mp3"
        server.shutdown()
        thread.join()


def operations() -> set[str]:
    """Every operation under /v1, as ``METHOD /path``."""
    return {
        f"{method.upper()} {path}"
        for path, methods in document()["paths"].items()
        if path.startswith("/v1/")
        for method in methods
    }


def operation_of(sent: str, known: set[str]) -> str:
    """Return the operation of a request; a literal path takes precedence over one with an id."""
    patterns = sorted(known, key=lambda one: one.count("{"))
    return next(one for one in patterns if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", one), sent))


def test_every_operation_of_the_service_can_be_asked(connect: Connect, audio_url: str) -> None:
    recorder = Recorder()
    afa = connect(recorder=recorder)
    asset = afa.upload_asset(DEMO_TRACK)
    assert afa.asset(asset.asset_id).content_type == "audio/mpeg"
    assert [one.asset_id for one in afa.assets()] == [asset.asset_id]
    job = afa.analyze(asset)
    assert afa.job(job.job_id, wait_s=20).status == "complete"
    features = afa.wait(afa.analyze_url(audio_url))
    assert (features.tempo, features.key, features.embedding) == (120.0, "A", None)
    assert afa.features(DEMO).title == "Demo in A minor"
    assert afa.features_by_name("Demo in A minor", "The afa Demo Band").camelot == "8A"
    found, unknown = afa.batch([DEMO, "7unknownTrack000000000"]).audio_features
    assert (found.tempo, unknown) == (120.0, None)
    assert afa.key_bpm("Demo in A minor", "The afa Demo Band").mode == "minor"
    assert afa.resolve(DEMO).isrc == "QZAFA2600001"
    assert afa.beatgrid(DEMO).beats
    assert afa.analysis(job.job_id).tempo == 120.0
    assert afa.bpm(asset).asset_id == asset.asset_id
    assert afa.identify(asset).title == "Demo"
    assert afa.account().tier == "pro"
    added = afa.add_to_library(asset, artist="The Clients", title=audio_url, tags=["mine"])
    afa.wait(added.job_id)
    kept = afa.library_track(added.track.id).track
    assert (kept.tempo, kept.tags) == (120.0, ["mine"])
    changes = {"album": "First", "tags": ["mine", "b"]}
    assert afa.change_library_track(kept.id, changes).track.album == "First"
    assert [one.id for one in afa.library(q="clients", tempo_min=119, tag=["mine", "b"])] == [
        kept.id
    ]
    assert [one.id for one in afa.library(tempo_max=119, q="clients")] == []
    assert afa.similar(kept.id, filters={"tempo_max": 110}).items == []
    assert [one.id for one in afa.library_map().items] == [kept.id]
    with pytest.raises(afa_client.NotFoundError, match="has a picture"):
        afa.library_cover(kept.id)
    assert b"The Clients" in afa.export("csv", [kept.id])
    assert b"/Music/a.mp3" in afa.export("rekordbox", {kept.id: "/Music/a.mp3"})
    assert afa.similar_to({"seeds": [{"id": kept.id}], "n": 3}).meta.credits_used == 1
    with pytest.raises(afa_client.AfaError, match="reads no words"):
        afa.similar_to_text("slow piano")
    vectors = afa.embed([asset, audio_url], embedding_model="efficientat-mn04")
    assert [one.embedding_model for one in vectors] == ["efficientat-mn04"] * 2
    assert "efficientat-mn04" in {one.id for one in afa.models() if one.may_be_named}
    with pytest.raises(afa_client.AfaError, match="same recording"):
        afa.path(kept.id, kept.id)
    afa.remove_from_library(kept.id)
    assert job.job_id in {one.job_id for one in afa.jobs(page_size=1)}
    afa.delete_job(job.job_id)
    with pytest.raises(afa_client.NotFoundError):
        afa.job(job.job_id)
    afa.delete_asset(asset.asset_id)
    hook = afa.set_webhook("https://example.org/afa")
    assert afa.webhook() == hook
    afa.delete_webhook()
    known = operations()
    assert {operation_of(sent, known) for sent in recorder.sent} == known


def test_audio_is_sent_as_file_bytes_and_stream_and_tells_how_far_it_is(
    connect: Connect, demo_audio: bytes
) -> None:
    afa = connect()
    steps: list[tuple[int, int]] = []
    tempo = afa.bpm(DEMO_TRACK, progress=lambda *step: steps.append(step)).tempo
    assert tempo == afa.bpm(demo_audio).tempo == 120.0
    for view in (bytearray(demo_audio), memoryview(demo_audio)):
        assert afa.bpm(view).tempo == 120.0
    for asked in (afa.bpm, afa.analyze):
        with pytest.raises(afa_client.BadRequestError, match="160-80"):
            asked(demo_audio, tempo_range=(160, 80))
    with DEMO_TRACK.open("rb") as file:
        assert afa.bpm(file).tempo == 120.0
    assert steps == sorted(set(steps))
    assert steps[-1] == (len(demo_audio), len(demo_audio))
    assert len(steps) > 5
    form: list[tuple[int, int]] = []
    assert afa.identify(str(DEMO_TRACK), progress=lambda *step: form.append(step)).matched
    assert form[-1] == steps[-1]


def test_an_embedding_comes_with_the_features(connect: Connect) -> None:
    afa = connect()
    job = afa.analyze(DEMO_TRACK, include_embedding=True)
    features = afa.wait(job)
    assert len(features.embedding) == 768
    named = afa.wait(afa.analyze(DEMO_TRACK, embedding_model="efficientat-mn04"))
    assert named.embedding_model == "efficientat-mn04"
    assert features.beats[:2] == [0.0, 0.5]
    spotify = afa.wait(job.job_id, format="spotify")
    assert (spotify.key, spotify.mode, spotify.energy) == (9, 0, 0.3)
    assert afa.features(DEMO, format="spotify").id == DEMO


@pytest.mark.parametrize("extended", [False, True])
@pytest.mark.parametrize("format", [None, "spotify"])
def test_a_slot_of_a_batch_has_the_shape_that_was_asked_for(
    connect: Connect, extended: bool, format: Any
) -> None:
    (slot,) = connect().batch([DEMO], extended=extended, format=format).audio_features
    name = f"{'Extended' if extended else ''}{'Spotify' if format else ''}Features"
    assert type(slot).__name__ == name


def test_all_pages_are_read(connect: Connect, live: LiveApplication, demo_audio: bytes) -> None:
    recorder = Recorder()
    afa = connect("scale", recorder)
    made = [afa.upload_asset(demo_audio + bytes([n])).asset_id for n in range(3)]
    assert {one.asset_id for one in afa.assets(page_size=2)} == set(made)
    assert recorder.sent.count("GET /v1/assets") == 2


def test_an_answer_that_is_lost_is_asked_for_again_and_charged_once(
    connect: Connect, live: LiveApplication, demo_audio: bytes
) -> None:
    owner = f"lossy-{time.monotonic_ns()}"
    live.call(live.application.issue(owner, "pro"))
    recorder = Recorder(is_lossy=True)
    afa = connect(owner, recorder, retries=Retries(first_pause_s=0.01))
    job = afa.analyze(demo_audio)
    afa.wait(job)
    first, second, *polls = recorder.keys
    assert first == second is not None
    assert set(polls) == {None}
    assert job.meta.credits_used == 10
    assert afa.account().credits.remaining == 60_000 - 10


def test_a_key_of_ones_own_makes_the_same_job(connect: Connect, demo_audio: bytes) -> None:
    afa = connect()
    key = f"mine-{time.monotonic_ns()}"
    jobs = {afa.analyze(demo_audio, idempotency_key=key).job_id for _ in range(2)}
    assert len(jobs) == 1
    with pytest.raises(afa_client.BadRequestError, match="409 idempotency_mismatch"):
        afa.analyze(demo_audio + b"x", idempotency_key=key)


def test_errors_say_what_the_service_says(connect: Connect, demo_audio: bytes) -> None:
    for key in ("afa_live_nobodys", "afa_live_\N{HORIZONTAL ELLIPSIS}"):
        with pytest.raises(afa_client.UnauthorizedError, match="401 unauthorized: "):
            connect(key).account()
    with pytest.raises(afa_client.NotFoundError) as missing:
        connect().features("7unknownTrack000000000")
    assert missing.value.code == "track_not_found"
    assert len(missing.value.trace_id) == 32
    with pytest.raises(afa_client.PaymentRequiredError, match="402 tier_required"):
        connect("free").analyze(demo_audio)
    with pytest.raises(afa_client.NotFoundError):
        connect().resolve("spotify/../../account?x=1")
    for elsewhere in ("", ".", ".."):
        with pytest.raises(ValueError, match="no id"):
            connect().job(elsewhere)


def test_a_service_that_is_away_is_named_after_all_retries(connect: Connect) -> None:
    recorder = Recorder()
    afa = connect("pro", recorder, "http://127.0.0.1:1", retries=Retries(2, first_pause_s=0.01))
    with pytest.raises(afa_client.NoAnswerError):
        afa.account()
    assert len(recorder.sent) == 3


def test_a_service_that_stays_silent_is_not_waited_for_past_the_end() -> None:
    asked = []

    def silent(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        raise httpx.ReadTimeout("", request=request)

    transport = httpx.MockTransport(silent)
    with (
        Client("http://a.test", "KEY", retries=Retries(1, 30.0), transport=transport) as afa,
        pytest.raises(afa_client.NoAnswerError),
    ):
        afa.wait("job_1", timeout_s=0)
    assert len(asked) == 1


def told_by(
    answer: Callable[[httpx.Request], httpx.Response], retries: Retries = HURRIED
) -> afa_client.AfaError:
    transport = httpx.MockTransport(answer)
    with (
        Client("http://afa.test", "KEY", retries=retries, transport=transport) as afa,
        pytest.raises(afa_client.AfaError) as told,
    ):
        afa.account()
    return told.value


@pytest.mark.parametrize(
    ("written", "asked_s"),
    [
        ("%a, %d %b %Y %H:%M:%S GMT", 300),
        ("%A, %d-%b-%y %H:%M:%S GMT", 300),
        ("%a %b %d %H:%M:%S %Y", 300),
        ("Sun, 06 Nov 1994 08:49:37 GMT", 0),
        ("7", 7),
        ("soon", None),
        ("-5", None),
        ("Sun, 06 Nov 1994 08:49:37 +99999999999999999999", None),
        ("", None),
    ],
)
def test_a_pause_is_asked_for_in_seconds_or_until_a_date(
    written: str, asked_s: float | None
) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        until = datetime.now(UTC) + timedelta(seconds=300)
        return httpx.Response(503, headers={"Retry-After": until.strftime(written)})

    transport, retries = httpx.MockTransport(answer), Retries(1, longest_pause_s=0.1)

    async def ask() -> None:
        async with AsyncClient(
            "http://afa.test", "KEY", retries=retries, transport=transport
        ) as afa:
            await afa.account()

    with pytest.raises(afa_client.ServerError) as told_later:
        asyncio.run(ask())
    for told in (told_by(answer, retries), told_later.value):
        assert isinstance(told, afa_client.ServerError)
        assert told.retry_after_s == pytest.approx(asked_s, abs=5)


@pytest.mark.parametrize(
    ("answer", "kind", "text"),
    [
        (httpx.Response(200, html="<p>Log in</p>"), "StatusError", "200 not_from_afa: <p>Log in"),
        (httpx.Response(200), "StatusError", "200 not_from_afa: OK"),
        (httpx.Response(200, json={"items": 1}), "StatusError", "200 not_from_afa"),
        (httpx.Response(502, html="<p>Bad</p>"), "ServerError", "502 not_from_afa: <p>Bad"),
        (
            httpx.Response(301, headers={"Location": "https://afa.test/v1/account"}),
            "StatusError",
            "301 not_from_afa: the address redirects to https://afa.test/v1/account; give that",
        ),
    ],
)
def test_what_answers_in_place_of_the_service_is_told(
    answer: httpx.Response, kind: str, text: str
) -> None:
    told = told_by(lambda _: answer)
    assert (type(told).__name__, str(told)[: len(text)]) == (kind, text)


def test_an_answer_that_cannot_be_unpacked_is_asked_for_again() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        packed = httpx.ByteStream(b"no gzip")
        return httpx.Response(200, headers={"Content-Encoding": "gzip"}, stream=packed)

    assert isinstance(told_by(answer), afa_client.NoAnswerError)
    assert len(asked) == 2


def test_a_key_may_end_with_its_line_and_is_never_repeated(
    connect: Connect, live: LiveApplication
) -> None:
    assert connect(f"{live.key('pro')}\n").account().tier == "pro"
    for key in ("afa_live_secret\nX: y", " "):
        with pytest.raises(ValueError, match="characters that no request can carry") as told:
            connect(key)
        assert "secr" not in str(told.value)


def test_a_job_that_fails_is_told(connect: Connect) -> None:
    afa = connect()
    job = afa.analyze(b"RIFF" + bytes(2000))
    with pytest.raises(afa_client.JobFailedError) as failed:
        afa.wait(job)
    assert failed.value.code == "unprocessable_audio"


def test_a_job_that_has_not_ended_in_time_is_told(live: LiveApplication, connect: Connect) -> None:
    afa = connect()
    gate = live.application.backend.gate = asyncio.Event()
    try:
        job = afa.analyze(DEMO_TRACK)
        with pytest.raises(afa_client.JobUnfinishedError, match="after 0 s"):
            afa.wait(job, timeout_s=0)
    finally:
        live.application.backend.gate = None
        live.loop.call_soon_threadsafe(gate.set)
    assert afa.wait(job).tempo == 120.0


def test_a_message_of_the_service_is_read_and_no_other(
    live: LiveApplication, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "ROUND_S", BUSY_MACHINE_S)
    afa = connect("scale")
    secret = afa.set_webhook("https://example.org/afa").secret
    job = afa.analyze(DEMO_TRACK)
    afa.wait(job)
    posted: list[tuple[dict[str, str], bytes]] = []

    async def post(url: str, headers: Any, body: bytes) -> int:
        posted.append((dict(headers), body))
        return 200

    stores = live.application.stores
    hooks = Webhooks(stores.ledger_store, stores.jobs, post, pepper="pepper")
    live.call(hooks.deliver_due())
    headers, body = next(
        message for message in posted if json.loads(message[1])["data"]["job_id"] == job.job_id
    )
    message = afa_client.verify_webhook(secret, headers, body)
    assert (message.type, message.data.job_id) == ("job.complete", job.job_id)
    capital = {name.title(): value for name, value in headers.items()}
    assert afa_client.verify_webhook(secret, capital, body) == message
    late = headers | {"webhook-timestamp": str(int(time.time()) - 301)}
    other = "whsec_" + secret[6:][::-1].lstrip("=") + "="
    for false in ((secret, headers, body + b" "), (other, headers, body), (secret, late, body)):
        with pytest.raises(afa_client.SignatureError):
            afa_client.verify_webhook(*false)
    with pytest.raises(afa_client.SignatureError, match="missing"):
        afa_client.verify_webhook(secret, {}, body)
    afa.delete_webhook()


def test_what_is_generated_is_up_to_date() -> None:
    stale = [path.name for path, content in files() if path.read_text() != content]
    assert stale == [], "run `make clients`"


def test_the_example_of_the_readme_runs(live: LiveApplication, tmp_path: Path) -> None:
    page = (FOLDER / "README.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert len(examples) == 2
    for example in examples:
        example = example.replace("http://127.0.0.1:8000", live.url)
        example = example.replace("YOUR-KEY", live.key("pro"))
        example = example.replace("song.mp3", str(DEMO_TRACK))
        exec(compile(example, "README.md", "exec"), {"__name__": "__main__"})  # noqa: S102


def test_the_client_has_the_version_of_the_service_and_few_dependencies() -> None:
    ours = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    theirs = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    assert theirs["version"] == afa_client.__version__ == ours["version"]
    names = [re.split("[<>=]", dependency)[0] for dependency in theirs["dependencies"]]
    assert names == ["httpx", "pydantic"]
