"""Checkpoints are swapped under load: no request fails, and the choice survives a restart."""

import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from models.checkpoints.cache import pull
from models.checkpoints.cards import ModelCard, choose_cards
from tests.data.small_checkpoints import add_own_ast
from tests.system.conftest import AFA, REPOSITORY, Service, running_service
from tests.system.test_routes import DEMO_ISRC
from tests.system.test_service import DEMO, finish, submit

pytestmark = [pytest.mark.ray, pytest.mark.redis, pytest.mark.slow]

OLD, NEW = "afa-embed-1", "own-ast"


@dataclass
class Load:
    """Customers that keep sending requests while checkpoints are swapped."""

    service: Service
    failures: list[Any] = field(default_factory=list)
    jobs: list[tuple[float, str]] = field(default_factory=list)
    lookups: list[str] = field(default_factory=list)
    is_over: threading.Event = field(default_factory=threading.Event)

    def submit_jobs(self, tier: str) -> None:
        with self.service.client(tier, is_patient=False) as client:
            while not self.is_over.is_set():
                submitted_s = time.monotonic()
                answer = submit(client, DEMO.read_bytes(), "audio/mpeg", include_embedding="true")
                if answer.status_code != 202:
                    self.failures.append(answer.text)
                    return
                envelope = finish(client, answer.json()["job_id"])
                if envelope["status"] != "complete":
                    self.failures.append(envelope)
                    return
                assert len(envelope["result"]["embedding"]) == 768
                self.jobs.append((submitted_s, envelope["result"]["models"]["embedding"]))

    def look_up(self) -> None:
        with self.service.client("scale", is_patient=False) as client:
            while not self.is_over.is_set():
                answer = client.get(f"/v1/audio-features/isrc:{DEMO_ISRC}")
                if answer.status_code == 503 and "being computed" in answer.text:
                    time.sleep(int(answer.headers["Retry-After"]))  # a miss, on a slow machine
                    continue
                if answer.status_code != 200:
                    self.failures.append(answer.text)
                    return
                self.lookups.append(answer.json()["_meta"]["cache"])
                time.sleep(0.2)

    def look_up_twice_more(self) -> None:
        """Look up twice: the load may end before the miss that follows the swap, or with it."""
        with self.service.client("scale") as client:
            for _ in range(2):
                answer = client.get(f"/v1/audio-features/isrc:{DEMO_ISRC}")
                self.lookups.append(answer.json()["_meta"]["cache"])

    def wait_for_jobs(self, n: int) -> None:
        deadline = time.monotonic() + 120
        target = len(self.jobs) + n
        while len(self.jobs) < target and not self.failures:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.fixture
def settings(tmp_path: Path, cards: dict[str, ModelCard], model_dir: Path) -> dict[str, str]:
    """Return settings: a model folder with the defaults and an operator's own checkpoint."""
    own = tmp_path / "models"
    own.mkdir()
    for chosen in choose_cards(cards).values():
        for card in chosen:
            pull(card, model_dir)
            for it in (card, *card.parts):
                if not it.is_always_here:
                    (own / it.model_id).symlink_to(model_dir / it.model_id)
    add_own_ast(own, tmp_path, NEW)
    return {"AFA_MODEL_DIR": str(own)}


def afa(service: Service, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*AFA, *arguments],
        cwd=REPOSITORY,
        env=service.environment | {"AFA_DATA_DIR": str(service.data_dir)},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def embedding_id(service: Service) -> str:
    with service.client() as client:
        job = submit(client, DEMO.read_bytes(), "audio/mpeg", include_embedding="true").json()
        model_id: str = finish(client, job["job_id"])["result"]["models"]["embedding"]
    return model_id


@pytest.mark.timeout(900)  # two starts of the service, on a machine that does other work too
def test_a_swap_under_load_fails_nothing_and_survives_a_restart(
    settings: dict[str, str], tmp_path: Path
) -> None:
    with running_service(tmp_path / "data", settings) as service:
        load = Load(service)
        threads = [
            threading.Thread(target=load.submit_jobs, args=("pro",)),
            threading.Thread(target=load.submit_jobs, args=("scale",)),
            threading.Thread(target=load.look_up),
        ]
        for thread in threads:
            thread.start()
        try:
            load.wait_for_jobs(2)
            refused = afa(service, "models", "swap", "embedding", "no-such-model")
            done = afa(service, "models", "swap", "embedding", NEW)
            swapped_s = time.monotonic()
            again = afa(service, "models", "swap", "embedding", NEW)
            load.wait_for_jobs(4)
        finally:
            load.is_over.set()
            for thread in threads:
                thread.join()
        assert load.failures == []
        load.look_up_twice_more()
        assert refused.returncode == 1
        assert "no-such-model" in refused.stderr
        assert done.returncode == 0, done.stdout + done.stderr
        for state in ("loading", "ready", "switched"):
            assert f": {state} after" in done.stdout
        assert f"{OLD} → {NEW} on 1 replica" in done.stdout
        assert f"{NEW} served already, with the weights that were loaded" in again.stdout
        assert {model_id for _, model_id in load.jobs} == {OLD, NEW}
        assert {model_id for at_s, model_id in load.jobs if at_s > swapped_s} == {NEW}
        # At most one miss for each of the two checkpoints, and hits between and after.
        assert load.lookups.count("miss") <= 2
        assert load.lookups[-1] == "hit"
    with running_service(tmp_path / "data", settings) as service:
        assert embedding_id(service) == NEW
        back = afa(service, "models", "swap", "embedding", "default")
        assert f"{NEW} → {OLD} on 1 replica" in back.stdout, back.stdout + back.stderr
        assert embedding_id(service) == OLD
