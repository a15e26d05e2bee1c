"""The TypeScript client: built, its types compared, and its own tests run on a live application."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Route

from clients.generate import TYPESCRIPT, typescript_types
from tests.api.live import LiveApplication
from tests.browser.conftest import opened_browser
from tests.conftest import DEMO_TRACK
from tests.npm import npm_with

pytestmark = [pytest.mark.redis, pytest.mark.npm]

REPOSITORY = Path(__file__).parents[2]


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command in the client's folder."""
    return subprocess.run(
        command,
        cwd=TYPESCRIPT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


@pytest.fixture(scope="module")
def npm() -> str:
    """The path of npm, with the client's dependencies installed from its lock file."""
    return npm_with(TYPESCRIPT, "ci")


def test_the_types_are_those_of_the_openapi_document(npm: str, tmp_path: Path) -> None:
    typescript_types(tmp_path / "schema.ts")
    checked_in = TYPESCRIPT / "src" / "schema.ts"
    assert (tmp_path / "schema.ts").read_text() == checked_in.read_text(), "run `make clients`"


@pytest.fixture(scope="module")
def built(npm: str) -> Path:
    """The folder of the built client."""
    done = run(npm, "run", "build")
    assert done.returncode == 0, done.stdout
    return TYPESCRIPT / "dist"


@pytest.mark.usefixtures("built")
def test_it_is_built_without_any_types_of_node_and_works(npm: str, live: LiveApplication) -> None:
    settings = json.loads((TYPESCRIPT / "tsconfig.json").read_text())["compilerOptions"]
    assert (settings["types"], "DOM" in settings["lib"]) == ([], True)
    done = run(
        npm,
        "test",
        AFA_URL=live.url,
        AFA_KEY=live.key("pro"),
        AFA_AUDIO=str(DEMO_TRACK),
    )
    assert done.returncode == 0, done.stdout
    cases = (TYPESCRIPT / "test" / "client.test.mjs").read_text().count("\ntest(")
    assert f" pass {cases}\n" in done.stdout


IN_A_PAGE = """
async ([url, key]) => {
    const { Afa, AfaError, verifyWebhook } = await import("./index.js");
    const afa = new Afa(url, key);
    const audio = await (await fetch("./demo.mp3")).blob();
    const job = await afa.analyze(audio);
    const features = await afa.wait(job);
    const asset = await afa.uploadAsset(audio);
    const named = await afa.wait(await afa.analyze({ asset_id: asset.asset_id }));
    const assets = [];
    for await (const one of afa.assets()) assets.push(one.asset_id);
    const refused = await new Afa(url, "afa_live_wrong").account().catch((error) => error);
    const sent = String(Math.floor(Date.now() / 1000));
    const headers = new Headers({ "webhook-id": "a", "webhook-timestamp": sent });
    headers.set("webhook-signature", "v1,AAAA");
    const forged = await verifyWebhook("whsec_AAAA", headers, "{}").catch(String);
    return {
        tempo: [features.tempo, named.tempo],
        is_listed: assets.includes(asset.asset_id),
        refused: [refused instanceof AfaError, refused.status, refused.code],
        forged,
    };
}
"""


def test_it_works_in_a_page(built: Path, live: LiveApplication) -> None:
    def answer(route: Route) -> None:
        name = route.request.url.rpartition("/")[2]
        if name == "page.html":
            route.fulfill(body="<!doctype html><title>client</title>", content_type="text/html")
        else:
            route.fulfill(path=DEMO_TRACK if name == "demo.mp3" else built / name)

    with opened_browser() as browser:
        page = browser.new_page()
        page.route(f"{live.url}/client/*", answer)
        page.goto(f"{live.url}/client/page.html", timeout=240_000)
        seen = page.evaluate(IN_A_PAGE, [live.url, live.key("pro")])
    assert seen["tempo"] == [120.0, 120.0]
    assert seen["is_listed"]
    assert seen["refused"] == [True, 401, "unauthorized"]
    assert "not signed with this secret" in seen["forged"]


def test_it_has_the_version_of_the_python_client_and_no_dependencies() -> None:
    package = json.loads((TYPESCRIPT / "package.json").read_text())
    assert "dependencies" not in package
    assert f'version = "{package["version"]}"' in (REPOSITORY / "pyproject.toml").read_text()
    assert (
        package["version"] == json.loads((TYPESCRIPT / "package-lock.json").read_text())["version"]
    )
    assert all(version[0].isdigit() for version in package["devDependencies"].values())
