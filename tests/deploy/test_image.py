"""The image of deploy/Dockerfile is built, started as documented, and analyses a file.

``pytest -m slow tests/deploy/test_image.py -s``. ``AFA_CONTAINERS`` is the program with its options
("podman", otherwise "docker"), ``AFA_IMAGE`` an image that exists already, and
``AFA_IMAGE_BUILD`` more options for the build, such as another index or a mirror.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from configs.settings import Settings
from tests.conftest import REPOSITORY

PROGRAM = shlex.split(
    os.environ.get("AFA_CONTAINERS") or shutil.which("podman") or shutil.which("docker") or ""
)
START_LIMIT_S, LOOK_S = 900, 5
AS_IN_COMPOSE = (
    *("--read-only", "--tmpfs", "/tmp", "--shm-size", "1g", "--network", "none"),  # noqa: S108
    *("--cap-drop", "all", "--security-opt", "no-new-privileges"),
)
ASK = """
import json, sys, time
from importlib.resources import files
import httpx

audio = (files("serve_app") / "data" / "demo.mp3").read_bytes()
headers = {"Authorization": f"Bearer {sys.argv[1]}", "Content-Type": "audio/mpeg"}
with httpx.Client(base_url="http://127.0.0.1:8000", headers=headers, timeout=60) as client:
    job = client.post("/v1/audio-features/upload", content=audio).raise_for_status().json()
    while job["status"] not in ("complete", "failed"):
        time.sleep(2)
        answer = client.get(f"/v1/jobs/{job['job_id']}", params={"wait": 5})
        if answer.status_code not in (429, 503):
            job = answer.raise_for_status().json()
print(json.dumps(job))
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.ray,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not PROGRAM, reason="needs podman or docker"),
]


def told(*words: str, code: str | None = None) -> str:
    """Run the program; return its output."""
    done = subprocess.run(
        [*PROGRAM, *words], cwd=REPOSITORY, input=code, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout.strip()


@pytest.fixture(scope="module")
def image() -> str:
    """Build the CPU variant, or return the image that is named."""
    if name := os.environ.get("AFA_IMAGE"):
        return name
    more = shlex.split(os.environ.get("AFA_IMAGE_BUILD", ""))
    if subprocess.run([*PROGRAM, "info"], capture_output=True, check=False).returncode:
        pytest.skip(f"{PROGRAM[0]} does not run here")
    file = str(REPOSITORY / "deploy" / "Dockerfile")
    told("build", "-f", file, "-t", "afa:test", "--build-arg", "VARIANT=cpu", *more, ".")
    return "afa:test"


@pytest.fixture(scope="module")
def container(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start the image as in compose.yaml, with this machine's checkpoints; yield the container."""
    models = tmp_path_factory.mktemp("models")
    shutil.copytree(Settings().resolved_model_dir(), models, dirs_exist_ok=True)
    for path in (models, *models.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    for above in models.parents[:2]:
        above.chmod(0o755)
    name = told("run", "--detach", *AS_IN_COMPOSE, "-v", f"{models}:/data/models:ro", image)
    try:
        yield name
    finally:
        sys.stdout.write(told("logs", "--tail", "20", name) + "\n")
        told("rm", "--force", "--volumes", name)


def in_python(container: str, code: str, *words: str) -> str:
    """Run code in the container."""
    return told("exec", "--interactive", container, "python", "-", *words, code=code)


def state_of(container: str) -> dict[str, Any]:
    """Return the service's readiness; empty while it does not answer."""
    ask = "import httpx; print(httpx.get('http://127.0.0.1:8000/readyz').text)"
    done = subprocess.run(
        [*PROGRAM, "exec", container, "python", "-c", ask],
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def test_it_starts_as_nobody_on_a_read_only_root_and_analyses_a_file(
    image: str, container: str
) -> None:
    n_bytes = int(told("image", "inspect", "--format", "{{.Size}}", image))
    began_s = time.monotonic()
    while (state := state_of(container)).get("status") != "ok":
        assert time.monotonic() - began_s < START_LIMIT_S, state
        time.sleep(LOOK_S)
    ready_s = time.monotonic() - began_s

    who = in_python(container, "print(open('/proc/self/status').read())")
    lines = dict(line.split(":\t", 1) for line in who.splitlines() if ":\t" in line)
    assert set(lines["Uid"].split()) == {"10001"}
    assert (int(lines["CapBnd"], 16), int(lines["NoNewPrivs"])) == (0, 1)
    with pytest.raises(AssertionError, match="Read-only file system"):
        in_python(container, "open('/opt/afa/here', 'w')")
    for absent in ("pytest", "mypy", "ruff", "moto"):
        with pytest.raises(AssertionError, match="ModuleNotFoundError"):
            in_python(container, f"import {absent}")

    answer = json.loads(in_python(container, ASK, told("exec", container, "afa", "keys", "local")))
    assert answer["status"] == "complete", answer
    sys.stdout.write(f"{n_bytes / 1e9:.2f} GB, every part ready after {ready_s:.0f} s\n")
    result = answer["result"]
    assert result["tempo"] == pytest.approx(124, rel=0.01)
    assert (result["camelot"], result["time_signature"]) == ("8A", 4)
    assert len(result["mood_tags"]) > 3
