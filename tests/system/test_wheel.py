"""The wheel alone, in a separate environment and an empty folder, is a complete service."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from serve_app.local.embedded_redis import free_port
from tests.conftest import REPOSITORY

PACKAGES = {"afa", "benchmarks", "configs", "models", "pipelines", "serve_app"}

pytestmark = [pytest.mark.ray, pytest.mark.timeout(900)]


def run(line: list[str | Path], folder: Path, limit_s: float = 500.0) -> str:
    """Run a command outside the checkout, with nothing of it on the path."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment.pop("REDIS_URL", None)
    done = subprocess.run(
        line,
        cwd=folder,
        env=environment | {"COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def under_version_control() -> list[str]:
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    files = subprocess.run(listed, cwd=REPOSITORY, capture_output=True, check=True).stdout
    return list(filter(None, files.decode().split("\0")))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from files that are under version control, or about to be."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in under_version_control():
        source = REPOSITORY / name
        if source.is_file() and not source.is_symlink():
            target = folder / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*build, "--wheel-dir", folder, folder / "source"], folder)
    (made,) = folder.glob("afa-*.whl")
    return made


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the scripts of an environment that has the wheel and this one's dependencies."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    here = Path(pytest.__file__).parents[1]
    # Its packages are found, but its editable afa is not: .pth files in there are not read.
    (packages / "dependencies.pth").write_text(f"{here}\n")
    python = folder / "bin" / "python"
    pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile"]
    run([*pip, "--force-reinstall", wheel], folder)
    where = "import afa, serve_app; print(afa.__file__, serve_app.__file__)"
    found = run([python, "-c", where], folder).split()
    assert all(Path(path).is_relative_to(packages) for path in found)
    return folder / "bin"


@pytest.fixture(scope="module")
def address(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    folder = tmp_path_factory.mktemp("empty")
    try:
        told = run([installed / "afa", "up", "--port", str(free_port())], folder)
        assert "A minor (8A)" in told
        session = json.loads((folder / ".afa" / "session.json").read_text())
        assert {path.name for path in folder.iterdir()} == {".afa"}
        yield {"url": session["url"], "key": session["keys"]["pro"]}
    finally:
        run([installed / "afa", "down"], folder)


def test_it_holds_all_packages_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    roots = {name.partition("/")[0] for name in names}
    (about,) = (root for root in roots if root.endswith(".dist-info"))
    assert roots - {about} == PACKAGES
    ours = {name for name in under_version_control() if name.partition("/")[0] in PACKAGES}
    lacking = {name for name in ours - set(names) if not name.endswith(".md")}
    assert {name for name in lacking if not name.startswith("benchmarks/results/")} == set()
    assert "serve_app/cli/networks/network.py.txt" in names
    assert {f"{name}/py.typed" for name in ("afa", "models", "pipelines")} <= set(names)


@pytest.mark.slow
def test_it_serves_from_an_empty_folder(address: dict[str, str]) -> None:
    headers = {"Authorization": f"Bearer {address['key']}"}
    with httpx.Client(base_url=address["url"], headers=headers, timeout=60) as client:
        found = client.get("/v1/resolve/0AfaDemoTrack000000001").json()
        assert found["isrc"] == "QZAFA2600001"
        assert client.get("/v1/account").json()["tier"] == "pro"


def test_it_is_a_library_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.resources import files; import afa; "
        "print(afa.analyze(files('serve_app') / 'data' / 'demo.mp3'))"
    )
    assert "A minor" in run([installed / "python", "-c", code], tmp_path)
    made = run([installed / "afa", "models", "new", "my-net"], tmp_path)
    assert "afa models check" in made
    assert (tmp_path / "my-net" / "my_net.py").is_file()
