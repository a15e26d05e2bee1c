"""The files of the pages: their security policy and caching, what is 404, what may be off."""

import re

import httpx
import pytest

from serve_app.api.asgi import create_app
from serve_app.api.routes.pages import PLAYGROUND, REFERENCE
from tests.api.application import PUBLIC_URL, Application

pytestmark = pytest.mark.redis

LONGEST_MODULE = 300


@pytest.mark.parametrize("path", ["/", "/docs", "/playground/main.js", "/docs/docs.js"])
async def test_a_page_runs_nothing_but_its_own_files(api: Application, path: str) -> None:
    answer = await api.client(None).get(path)
    assert answer.status_code == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("pages", [PLAYGROUND, REFERENCE])
def test_no_file_names_another_host(pages: dict[str, object]) -> None:
    for name, page in pages.items():
        if name.endswith((".js", ".css", ".html", ".svg")):
            text = page.content.decode()  # type: ignore[attr-defined]
            named = set(re.findall(r"https?://[\w.]+", text))
            assert named <= {"http://www.w3.org"}, name  # SVG's namespace, not an address
            assert len(text.splitlines()) <= LONGEST_MODULE, name
            assert not re.search(r'\sstyle="|\son\w+="|<script>', text), name


async def test_a_file_that_has_not_changed_is_not_sent_again(api: Application) -> None:
    client = api.client(None)
    first = await client.get("/playground/main.js")
    assert first.headers["Content-Type"].startswith("text/javascript")
    tag = first.headers["ETag"]
    for known in (tag, f"W/{tag}", f'"another", W/{tag}'):
        again = await client.get("/playground/main.js", headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b"")
    other = await client.get("/playground/main.js", headers={"If-None-Match": '"another"'})
    assert other.content == first.content


async def test_the_document_travels_compressed(api: Application) -> None:
    answer = await api.client(None).get("/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert int(answer.headers["Content-Length"]) < len(answer.content) / 5
    plain = await api.client(None).get("/openapi.json", headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers


@pytest.mark.parametrize(
    "path", ["/playground/none.js", "/playground/README.md", "/playground/..%2Fdocs%2Fdocs.js"]
)
async def test_what_is_no_page_is_404(api: Application, path: str) -> None:
    assert (await api.client(None).get(path)).status_code == 404


async def test_the_playground_can_be_off(api: Application) -> None:
    app = create_app(api.services, playground=False)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=PUBLIC_URL) as client:
        for path in ("/", "/playground/main.js"):
            assert (await client.get(path)).status_code == 404
        assert (await client.get("/docs")).status_code == 200


async def test_no_page_has_a_key(api: Application) -> None:
    for path in ("/", "/playground/main.js"):
        text = (await api.client("pro").get(path)).text
        assert not [key for key in api.keys.values() if key in text]
