"""What HTTP and its clients expect: HEAD, Allow, slashes, other origins, and messages that help."""

import json
import re
from collections.abc import Sequence
from typing import Any

import httpx
import pytest
from starlette.types import Message

from serve_app.api.asgi import create_app
from serve_app.api.routes import bpm
from tests.api.application import PUBLIC_URL, Application
from tests.api.described import described_app

pytestmark = pytest.mark.redis

DEMO = "0AfaDemoTrack000000001"
MBID = "83d91898-7763-47d7-b03b-b92132375c47"
PAGE = "https://page.example"


async def test_routes_are_analysed_once_for_all_applications_of_a_process(api: Application) -> None:
    again = create_app(api.services)
    assert {*map(id, bpm.router.routes)} <= {*map(id, again.routes)}


@pytest.mark.parametrize(
    "path",
    ["/healthz", "/docs", "/openapi.json", "/v1/account", f"/v1/resolve/{DEMO}", "/v1/nothing"],
)
async def test_head_is_get_without_its_body(api: Application, path: str) -> None:
    client = api.client()
    get, head = await client.get(path), await client.head(path)
    assert head.status_code == get.status_code
    assert head.content == b""
    assert head.headers["Content-Type"] == get.headers["Content-Type"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/audio-features", "GET, HEAD, POST"),
        ("POST", "/v1/account/webhook", "DELETE, GET, HEAD, PUT"),
        ("GET", "/v1/bpm", "POST"),
        ("DELETE", "/v1/account", "GET, HEAD"),
        ("OPTIONS", "/v1/library/map", "GET, HEAD"),
        ("PUT", "/v1/audio-features/upload", "POST"),
        ("GET", "/v1/audio-features/url", "POST"),
        ("DELETE", "/v1/assets/upload", "POST"),
        ("PUT", f"/v1/audio-features/{DEMO}", "GET, HEAD"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ],
)
async def test_405_names_what_the_path_takes(
    api: Application, method: str, path: str, allowed: str
) -> None:
    answer = await api.client().request(method, path)
    assert (answer.status_code, answer.headers["Allow"]) == (405, allowed)
    assert allowed in answer.json()["message"]


async def test_a_slash_at_the_end_leads_to_the_path_without(api: Application) -> None:
    client = api.client()
    answer = await client.get("/v1/audio-features/", params={"song": "a b", "artist": "ü"})
    assert answer.status_code == 308
    assert answer.headers["Location"] == "/v1/audio-features?song=a+b&artist=%C3%BC"
    posted = await client.post("/v1/bpm/", content=b"x", follow_redirects=False)
    assert (posted.status_code, posted.headers["Location"]) == (308, "/v1/bpm")
    assert (await client.get("/healthz/", follow_redirects=True)).json()["status"] == "ok"


@pytest.mark.parametrize("path", ["/v1/bpm", "/v1/nothing"])
async def test_an_error_of_who_hangs_up_is_not_waited_for(api: Application, path: str) -> None:
    sent: list[Message] = []

    async def receive() -> Message:
        raise RuntimeError("the task was cancelled")

    async def send(message: Message) -> None:
        sent.append(message)

    request = api.client().build_request("POST", path, content=b"RIFF")
    headers = [(name.lower(), value) for name, value in request.headers.raw]
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode()}
    await api.app({**scope, "query_string": b"", "headers": headers}, receive, send)
    assert sent[0]["status"] < 500


@pytest.mark.parametrize("route", ["audio-features", "resolve"])
async def test_an_encoded_slash_at_the_end_belongs_to_the_address(
    api: Application, route: str
) -> None:
    address = "https%3A%2F%2Fopen.spotify.com%2Ftrack%2F0AfaDemoTrack000000001%2F"
    answer = await api.client().get(f"/v1/{route}/{address}")
    assert answer.status_code == 200, answer.headers


@pytest.mark.parametrize("path", ["//evil.example/", "/\\evil.example/", "/%5Cevil.example/"])
async def test_no_slash_leads_to_another_host(api: Application, path: str) -> None:
    request = httpx.Request("GET", PUBLIC_URL)
    request.url = request.url.copy_with(raw_path=path.encode())
    answer = await api.client().send(request)
    assert "Location" not in answer.headers or answer.headers["Location"].startswith("/%")


def client_of(api: Application, origins: Sequence[str]) -> httpx.AsyncClient:
    app = create_app(api.services, cors_origins=origins)
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=PUBLIC_URL)
    api.clients.append(client)
    return client


def preflight(origin: str) -> dict[str, Any]:
    asked = {"Access-Control-Request-Method": "POST"}
    asked["Access-Control-Request-Headers"] = "authorization,content-type,idempotency-key"
    return {"headers": {"Origin": origin, **asked}}


async def test_pages_of_named_origins_may_call(api: Application, demo_audio: bytes) -> None:
    client = client_of(api, [PAGE])
    allowed = await client.options("/v1/bpm", **preflight(PAGE))
    assert (allowed.status_code, allowed.headers["Access-Control-Allow-Origin"]) == (200, PAGE)
    headers = {"Origin": PAGE, "Authorization": f"Bearer {api.keys['pro']}"}
    answer = await client.post("/v1/bpm", content=demo_audio, headers=headers)
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    assert "X-Credits-Used" in answer.headers["Access-Control-Expose-Headers"]
    refused = await client.get("/v1/account", headers={"Origin": PAGE})
    assert (refused.status_code, refused.headers["Access-Control-Allow-Origin"]) == (401, PAGE)
    other = await client.options("/v1/bpm", **preflight("https://other.example"))
    assert other.status_code == 400
    assert "Access-Control-Allow-Origin" not in other.headers
    assert (other.headers["Vary"], other.json()["error"]) == ("Origin", "bad_request")
    assert other.json()["trace_id"] == other.headers["X-Trace-Id"]


async def test_pages_are_told_which_part_of_a_call_is_refused(api: Application) -> None:
    asked = preflight(PAGE)
    asked["headers"] |= {"Access-Control-Request-Method": "BREW"}
    answer = await client_of(api, [PAGE]).options("/v1/bpm", **asked)
    assert (answer.status_code, answer.headers["Access-Control-Allow-Origin"]) == (400, PAGE)
    message = answer.json()["message"]
    assert message.startswith("web pages may not call with the method BREW; ")
    assert message.endswith("PUT, PATCH, DELETE")
    spotify = await client_of(api, ["*"]).options("/spotify/v1/search", **asked)
    assert spotify.headers["Access-Control-Allow-Origin"] == "*"
    assert spotify.json()["error"]["status"] == 400


async def test_a_public_page_may_be_let_into_a_private_network(api: Application) -> None:
    asked = preflight(PAGE)
    asked["headers"] |= {"Access-Control-Request-Private-Network": "true"}
    answer = await client_of(api, [PAGE]).options("/v1/bpm", **asked)
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"
    other = await client_of(api, ["https://other.example"]).options("/v1/bpm", **asked)
    assert other.status_code == 400
    assert f"the origin {PAGE};" in other.json()["message"]
    assert "Access-Control-Allow-Private-Network" not in other.headers


async def test_pages_may_send_any_header_and_read_the_name_of_an_export(api: Application) -> None:
    asked = preflight(PAGE)
    sent = "authorization, tracestate, x-requested-with"
    asked["headers"] |= {"Access-Control-Request-Headers": sent}
    client = client_of(api, [PAGE])
    allowed = await client.options("/v1/bpm", **asked)
    assert (allowed.status_code, allowed.headers["Access-Control-Allow-Headers"]) == (200, sent)
    answer = await client.get("/healthz", headers={"Origin": PAGE})
    assert "Content-Disposition" in answer.headers["Access-Control-Expose-Headers"].split(", ")


async def test_no_page_may_call_by_default(api: Application) -> None:
    answer = await api.client(None).options("/v1/bpm", **preflight(PAGE))
    assert answer.status_code == 405
    headers = {"Origin": PAGE}
    plain = await api.client().get("/v1/account", headers=headers)
    assert "Access-Control-Allow-Origin" not in plain.headers


@pytest.mark.parametrize(
    ("headers", "params", "told"),
    [
        ({}, {}, "there is no Authorization header"),
        ({"Authorization": "KEY"}, {}, "lacks `Bearer `"),
        ({"Authorization": "Basic KEY"}, {}, "another scheme"),
        ({"Authorization": "Bearer "}, {}, "no key behind"),
        ({"X-API-Key": "KEY"}, {}, "X-API-Key is not read"),
        ({}, {"api_key": "KEY"}, "keys in the address are not read"),
    ],
)
async def test_401_says_what_was_seen_and_repeats_no_key(
    api: Application, headers: dict[str, str], params: dict[str, str], told: str
) -> None:
    key = api.keys["pro"]
    sent = {name: value.replace("KEY", key) for name, value in headers.items()}
    asked = {name: value.replace("KEY", key) for name, value in params.items()}
    answer = await api.client(None).get("/v1/account", headers=sent, params=asked)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    message = answer.json()["message"]
    assert told in message
    assert "Authorization: Bearer afa_live_" in message
    assert key not in answer.text


@pytest.mark.parametrize("kind", [None, "application/x-www-form-urlencoded", "text/plain"])
async def test_json_needs_no_content_type(api: Application, kind: str | None) -> None:
    headers = {} if kind is None else {"Content-Type": kind}
    body = b'{"ids": ["%s"]}' % DEMO.encode()
    answer = await api.client().post("/v1/audio-features", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    keyed = headers | {"Idempotency-Key": f"one-{kind}"}
    again = await api.client().post("/v1/audio-features", content=body, headers=keyed)
    assert again.status_code == 200, again.text


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/audio-features", b"ids=1", "the body is no JSON"),
        ("/v1/audio-features", b"[]", "send a JSON object"),
        ("/v1/similar", b"\xff\xfb\x90\x00", "the body is no JSON"),
        ("/v1/audio-features", b"{}", "ids is missing"),
        ("/v1/audio-features/url", b'{"url": 5}', "not 5"),
        (f"/v1/audio-features/{DEMO}?format=xml", None, "format: should be 'spotify', not 'xml'"),
        ("/v1/assets?limit=500", None, "less than or equal to 200, not '500'"),
        ("/v1/assets?limit=x", None, "limit: should be a valid integer, not 'x'"),
        ("/v1/audio-features?song=&artist=a", None, "song: should have at least 1 character, not"),
        ("/v1/audio-features", b'{"ids": []}', "ids: should have at least 1 item, not 0"),
        ("/v1/assets?cursor=x", None, "cursor: should be the `next_cursor` of the page before"),
        ("/v1/jobs?cursor=x", None, "cursor: should be the `next_cursor` of the page before"),
        ("/v1/library?cursor=x", None, "cursor: should be the `next_cursor` of the page before"),
        ("/v1/library", b'{"asset_id": "x"}', "asset_id: should begin with afa_"),
        ("/v1/library", b'{"asset_id": "afa_x", "title": " "}', "title: should not be blank"),
        ("/v1/library", b'{"x":' + b"[" * 20_000, "body: send a JSON object"),
        ("/v1/bpm", b'{"x":' + b"[" * 20_000, "the JSON body names no audio"),
        ("/v1/audio-features", b'{"x":' + b"[" * 20_000, "the body is no JSON"),
        ("/v1/library?tag=%20", None, "tag.0: should not be blank"),
        ("/v1/similar", b'{"seeds": [{"job_id": "x"}]}', "seeds.0.job_id: should begin with job_"),
        ("/v1/similar", b'{"seeds": [{"asset_id": "x"}]}', "should begin with afa_, as ids of"),
        ("/v1/similar", b"{}", "seeds is missing; send some, or an embedding with the model"),
        ("/v1/similar", b'{"job_id": "job_x"}', "seeds is missing"),
        ("/v1/similar", b'{"seed": [], "job_id": "job_x"}', "not known here: seed, job_id"),
        ("/v1/similar", b'{"seeds": [{"job": "job_x"}]}', "seeds.0: name one of id, asset_id and"),
        ("/v1/similar", b'{"seeds": [{"job": "job_x"}]}', "not known here: seeds.job"),
        ("/v1/similar", rb'{"\ud800": 1}', "not known here: %3F"),
        ("/v1/similar", rb'{"seeds": [{"\ud800": 1}]}', "job_id; not known here: seeds.%3F"),
        ("/v1/export", b'{"format": "csv", "tracks": [{"id": "x"}]}', "tracks.0.id: should be the"),
        (
            "/v1/export",
            b'{"format": "csv", "tracks": [{"id": "%s", "location": "/a\\n"}]}'
            % (b"job_" + b"0" * 26),
            "tracks.0.location: should be the whole path",
        ),
        ("/spotify/v1/audio-features?ids=,", None, "ids: should name an id, or several"),
    ],
)
async def test_400_says_what_was_seen(
    api: Application, path: str, body: bytes | None, told: str
) -> None:
    method = "GET" if body is None else "POST"
    answer = await api.client().request(method, path, content=body)
    assert answer.status_code == 400, answer.text
    assert told in answer.json()["message"]
    assert "pattern" not in answer.json()["message"]


def numbers() -> list[tuple[str, str, str]]:
    """Method, path and name of every numeric query parameter."""
    return [
        (method, path, parameter["name"])
        for path, methods in described_app().openapi()["paths"].items()
        for method, operation in methods.items()
        for parameter in operation.get("parameters", [])
        for schema in [parameter["schema"]]
        if {one.get("type") for one in schema.get("anyOf", [schema])} & {"integer", "number"}
    ]


async def test_numbers_are_not_read_as_python_reads_them(api: Application) -> None:
    client = api.client()
    for method, path, name in numbers():
        answer = await client.request(method, path.replace("{mbid}", MBID), params={name: "1_0"})
        assert answer.status_code == 400, (path, name)
        assert f"{name}: should be a valid number, not '1_0'" in answer.text
    body = {"n": "1_0", "seeds": [{"id": DEMO, "weight": "1_0"}]}
    answer = await client.post("/v1/similar", json=body)
    assert answer.status_code == 400, answer.text
    for name in ("n", "seeds.0.weight"):
        assert f"{name}: should be a valid number, not '1_0'" in answer.text


MANY = [str(n) + "x" * 70 for n in range(9)]


@pytest.mark.parametrize(
    ("path", "unknown"),
    [
        ("/v1/jobs?wiat=30&limit=5", "wiat"),
        ("/v1/jobs?limit=5", None),
        ("/v1/jobs", None),
        (f"/v1/audio-features/{DEMO}?fromat=spotify&a,b=1", "fromat, a%2Cb"),
        (f"/spotify/v1/audio-features?ids={DEMO}&market=DE", "market"),
        ("/v1/jobs?a%0d%0aX-Test:%20b=1&%C3%A4=1", "a%0D%0AX-Test%3A%20b, %C3%A4"),
        ("/v1/jobs?=5&x=1", "x"),
        (f"/v1/jobs?{'=&'.join(MANY)}=", ", ".join(name[:60] for name in MANY[:5])),
        (f"/v1/similar/{DEMO}?model=a&embedding_model=b&tempo_mni=3", "tempo_mni"),
    ],
)
async def test_parameters_that_nobody_reads_are_named(
    api: Application, path: str, unknown: str | None
) -> None:
    answer = await api.client().get(path)
    assert answer.status_code in (200, 400, 404), answer.text
    assert answer.headers.get("X-Unknown-Parameters") == unknown


async def test_a_repeated_answer_names_unknown_parameters_once(
    api: Application, demo_audio: bytes
) -> None:
    for replayed in (None, "true"):
        answer = await api.client().post(
            "/v1/assets/upload?fiel=a",
            files={"file": ("a.mp3", demo_audio)},
            headers={"Idempotency-Key": "one-upload"},
        )
        assert answer.headers.get("Idempotent-Replayed") == replayed
        assert answer.headers.get_list("X-Unknown-Parameters") == ["fiel"]


@pytest.mark.parametrize(
    ("path", "body", "unknown"),
    [
        ("/v1/audio-features", {"ids": [DEMO], "format": "spotify", "ä\n": 1}, "format, %C3%A4%0A"),
        ("/v1/audio-features", {"ids": [DEMO], "extended": True}, None),
        ("/v1/audio-features", {"id": DEMO}, "id"),
        (
            "/v1/audio-features/upload",
            {"asset_id": "", "include_embedding": True},
            "include_embedding",
        ),
        ("/v1/audio-features/upload", {"asset_id": "", "wait": 5}, "wait"),
        ("/v1/bpm", {"asset_id": "", "url": "https://example.org/a.mp3"}, "url"),
        ("/v1/library", {"asset_id": "", "titel": "Song"}, "titel"),
        ("/v1/embed", {"files": [{"asset_id": ""}], "model": "m"}, "model"),
        ("/v1/similar", {"seeds": [{"id": DEMO}], "embedding_model": "m"}, None),
        (
            "/v1/similar",
            {"seeds": [{"id": DEMO, "wieght": 2}] * 2, "unlike": [{"": 1, "id": DEMO, "w": {}}]},
            "seeds.wieght, unlike.w",
        ),
        ("/v1/embed", {"files": [{"asset_id": "", "name": "a"}]}, "files.name"),
        ("/v1/export", {"format": "csv", "tracks": [{"id": DEMO, "path": "/a"}]}, "tracks.path"),
    ],
)
async def test_fields_that_nobody_reads_are_named(
    api: Application, demo_audio: bytes, path: str, body: dict[str, object], unknown: str | None
) -> None:
    asset_id = (await api.client().post("/v1/assets/upload", content=demo_audio)).json()["asset_id"]
    text = json.dumps(body).replace('"asset_id": ""', f'"asset_id": "{asset_id}"')
    headers = {"Idempotency-Key": "one", "Content-Type": "application/json"}
    for replayed in (None, "true"):
        answer = await api.client().post(path, content=text, headers=headers)
        assert answer.headers.get("X-Unknown-Fields") == unknown, answer.text
        if answer.is_success:
            assert answer.headers.get("Idempotent-Replayed") == replayed


@pytest.mark.parametrize(
    "path", ["audio-features/upload", "library", "bpm", "assets/upload", "embed"]
)
async def test_parts_of_a_form_that_nobody_reads_are_named(
    api: Application, demo_audio: bytes, path: str
) -> None:
    parts = {"title": "My song", "include_embedding": "true"}
    headers = {"Idempotency-Key": path.replace("/", "-")}
    for replayed in (None, "true"):
        answer = await api.client().post(
            f"/v1/{path}", files={"file": ("a.mp3", demo_audio)}, data=parts, headers=headers
        )
        assert answer.is_success, answer.text
        assert answer.headers["X-Unknown-Fields"] == "title, include_embedding"
        assert answer.headers.get("Idempotent-Replayed") == replayed


async def test_what_is_missing_may_have_come_by_another_name(api: Application) -> None:
    answer = await api.client().get("/v1/audio-features?songs=A&artist=B")
    assert answer.json()["message"] == "song is missing; not known here: songs"


async def test_who_polls_a_job_too_often_is_told_how_to_wait(api: Application) -> None:
    answers = [await api.client().get("/v1/jobs/job_x") for _ in range(6)]
    assert [answer.status_code for answer in answers[:5]] == [404] * 5
    assert answers[5].status_code == 429
    message = answers[5].json()["message"]
    assert "more than 1 time a second" in message
    assert "?wait=30" in message
    assert '"job";r=0' in answers[5].headers["RateLimit"]


async def test_an_address_cut_at_its_question_mark_is_told_to_be_encoded(api: Application) -> None:
    asked = "/v1/resolve/https://www.youtube.com/watch"
    answer = await api.client().get(f"{asked}?v=AfaDemoTrk0")
    assert "its ? is written %3F" in answer.json()["message"]
    assert (await api.client().get(f"{asked}%3Fv%3DAfaDemoTrk0")).status_code == 200


async def test_a_form_of_nothing_is_told_to_be_empty(api: Application) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    answer = await api.client().post("/v1/identify", content=b"--b--\r\n", headers=headers)
    assert answer.json()["message"] == "the form is empty; put the audio into `file`"


async def test_what_an_answer_cost_stands_in_its_headers_as_the_document_says(
    api: Application, demo_audio: bytes
) -> None:
    client = api.client()
    upload, job_path = "/v1/audio-features/upload", "/v1/jobs/{job_id}"
    queued = await client.post(upload, content=demo_audio)
    job = queued.json()["job_id"]
    kind = {"Content-Type": "audio/mpeg"}
    failed = await client.post(f"{upload}?wait=60", content=b"no audio" * 50, headers=kind)
    answers = [
        (upload, "post", queued),
        (upload, "post", failed),
        (job_path, "get", await client.get(f"/v1/jobs/{job}", params={"wait": 60})),
        ("/v1/bpm", "post", await client.post("/v1/bpm", content=demo_audio)),
        ("/v1/embed", "post", await client.post("/v1/embed", content=demo_audio)),
        ("/v1/resolve/{id}", "get", await client.get(f"/v1/resolve/{DEMO}")),
    ]
    for path, id in [
        ("/spotify/v1/audio-features/{id}", DEMO),
        ("/spotify/v1/audio-analysis/{id}", DEMO),
        ("/acousticbrainz/{mbid}/low-level", "afa00000-0000-4000-8000-000000000001"),
    ]:
        answers += [(path, "get", await client.get(re.sub("{.*}", id, path)))]
    paths = described_app().openapi()["paths"]
    for path, method, answer in answers:
        headers = paths[path][method]["responses"][str(answer.status_code)]["headers"]
        told = {"X-Cache", "X-Credits-Used", "X-Credits-Remaining"}
        assert told <= headers.keys(), path
        assert told <= {name.title() for name in answer.headers}, path
        meta = answer.json().get("_meta")
        if meta is not None:
            assert answer.headers["X-Credits-Used"] == str(meta["credits_used"])
            assert answer.headers["X-Credits-Remaining"] == str(meta["credits_remaining"])
    assert failed.headers["X-Credits-Used"] == "0"


async def test_a_job_that_failed_at_once_is_kept_under_its_key(api: Application) -> None:
    headers = {"Idempotency-Key": "failing", "Content-Type": "audio/mpeg"}
    path, audio = "/v1/audio-features/upload?wait=60", b"no audio" * 50
    first = await api.client().post(path, content=audio, headers=headers)
    again = await api.client().post(path, content=audio, headers=headers)
    assert (first.json()["status"], again.content) == ("failed", first.content)
    assert again.headers["Idempotent-Replayed"] == "true"
    assert again.headers["X-Credits-Used"] == "0"


async def test_answers_to_test_keys_say_so(api: Application, demo_audio: bytes) -> None:
    for who, test in (("test", True), ("pro", None)):
        client = api.client(who)
        plain = await client.get(f"/v1/audio-features/{DEMO}")
        spotify = await client.get(f"/spotify/v1/audio-features/{DEMO}")
        job = await client.post(
            "/v1/audio-features/upload", content=demo_audio, params={"wait": 60}
        )
        for body in (plain.json(), job.json()):
            assert body["_meta"].get("test") is test
        named = await client.get(f"/spotify/v1/tracks/{DEMO}")
        found = await client.get("/spotify/v1/search?q=demo")
        for answer in (plain, spotify, job, named, found):
            assert answer.headers.get("X-Test") == ("true" if test else None)
    known = (await api.client("test").post("/v1/identify", content=demo_audio)).json()
    assert known["enrichment"].keys() >= {"bpm", "key", "camelot"}
