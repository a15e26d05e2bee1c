"""Replicas of model deployments on a real Serve: they scale with the delay, and are replaced."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow.dataset as ds
import pytest
import ray
from ray import serve

from configs.settings import Settings
from models.checkpoints.cards import CardError
from serve_app.backfill.destination import Destination
from serve_app.backfill.hearer import HearerOptions
from serve_app.backfill.run import Actors, Backfill, Report
from serve_app.checkpoints.choices import ModelChoices
from serve_app.composition.files import checkpoint_mirror
from serve_app.composition.options import (
    LibraryOptions,
    ModelOptions,
    StoreOptions,
    UrlOptions,
    WorkerOptions,
)
from serve_app.composition.profile import AppArgs
from serve_app.composition.stores import Stores, open_stores
from serve_app.deployments.handles import RayEmbed, RayIdentify, RayQuick, RayTexts
from serve_app.deployments.worker import AnalysisWorker
from serve_app.domain.credits import AccountPayer
from serve_app.domain.errors import ServiceUnavailableError
from serve_app.domain.ulid import new_ulid
from serve_app.ledger.jobs.types import AnalysisJob, FileSource, JobState, NewJob
from serve_app.library.library import Library
from serve_app.library.track import OPERATOR
from serve_app.local import embedded_redis
from serve_app.services.scan.places import Folder
from tests.api.application import store_options
from tests.data.audio_files import click_track, encode
from tests.system.conftest import running_ray
from tests.system.test_service import DEMO
from tests.system.toy_deployments import DyingDeployment, ToyDeployment, ToySpectralDeployment

pytestmark = [
    pytest.mark.ray,
    pytest.mark.redis,
    pytest.mark.timeout(900),
    pytest.mark.filterwarnings("ignore:The `metrics_interval_s` field"),
]

WINDOW_S = 0.01
SCALING = {
    "min_replicas": 1,
    "max_replicas": 2,
    "look_back_period_s": 2.0,
    "metrics_interval_s": 0.5,
    "upscale_delay_s": 1.0,
    "downscale_delay_s": 1.0,
    "policy": {
        "policy_function": "serve_app.deployments.autoscaling:QueueDelayPolicy",
        "policy_kwargs": {"target_s": 1.5},
    },
}


@dataclass(frozen=True)
class Cluster:
    stores: StoreOptions
    folder: Path
    models: ModelOptions

    def toy(self, cls: Any, name: str, **options: Any) -> Any:
        cpus = {"ray_actor_options": {"num_cpus": 0.1}}
        deployment = cls.options(name=name, max_ongoing_requests=100, **cpus, **options)
        return deployment.bind(self.models, self.stores, self.folder, WINDOW_S)

    def run(self, application: Any, name: str) -> Any:
        """Serve this application and no other."""
        serve.start(proxy_location="Disabled")
        for other in serve.status().applications:
            serve.delete(other)
        return serve.run(application, name=name, route_prefix=None)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Yield Redis and Ray as children of this process."""
    folder = Path(tempfile.mkdtemp(prefix="afa-replicas-"))
    redis = embedded_redis.start(folder, role="ledger", extra=("--appendonly", "no"))
    try:
        with running_ray():
            yield Cluster(
                store_options(redis.url, redis.url, folder),
                folder,
                ModelOptions(model_dir=folder, device="cpu", batch_windows=8, named_mib=64),
            )
            serve.shutdown()  # type: ignore[no-untyped-call]
    finally:
        redis.stop()
        shutil.rmtree(folder)


def n_running(application: str, deployment: str) -> int:
    found = serve.status().applications[application].deployments[deployment]
    return sum(n for state, n in found.replica_states.items() if state == "RUNNING")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(240):
        while not holds():  # noqa: ASYNC110  Serve's status has no event
            await asyncio.sleep(0.2)


@pytest.mark.slow
def test_replicas_follow_the_queue_delay(cluster: Cluster) -> None:
    application = cluster.toy(ToyDeployment, "Toy", autoscaling_config=SCALING)
    handle = cluster.run(application, "scaling")
    pcm = ray.put(np.ones((1, 44_100), np.float32))

    async def scenario() -> None:
        is_over = asyncio.Event()

        async def caller() -> None:
            while not is_over.is_set():
                answer = await handle.analyse.remote([pcm], 44_100)
                assert answer.models["embedding"] == "afa-embed-1"

        # A light load, one track of 0.2 s at a time, needs no second replica.
        light = asyncio.create_task(caller())
        await asyncio.sleep(4)
        assert n_running("scaling", "Toy") == 1
        callers = [asyncio.create_task(caller()) for _ in range(24)]
        await until(lambda: n_running("scaling", "Toy") == 2)
        is_over.set()
        await asyncio.gather(light, *callers)
        await until(lambda: n_running("scaling", "Toy") == 1)

    asyncio.run(scenario())


@pytest.mark.slow
def test_a_request_may_name_another_embedding(cluster: Cluster) -> None:
    application = cluster.toy(ToyDeployment, "Toy")
    handle = cluster.run(application, "named")
    pcm = ray.put(np.ones((1, 44_100), np.float32))

    async def ask(*model_id: str) -> str:
        answer = await handle.analyse.remote([pcm], 44_100, *model_id)
        ids: str = answer.models["embedding"]
        return ids

    async def scenario() -> None:
        asked = ["clap", "", "mert-95m", "clap", "afa-embed-1", ""]
        found = await asyncio.gather(*(ask(model_id) for model_id in asked))
        assert found == [model_id or "afa-embed-1" for model_id in asked]
        with pytest.raises(CardError, match="no model is called"):
            await ask("no-such-model")
        assert await ask() == "afa-embed-1"

    asyncio.run(scenario())


@pytest.mark.slow
def test_who_asked_a_replica_that_ends_may_ask_again(cluster: Cluster) -> None:
    dying = cast("Any", DyingDeployment).options(ray_actor_options={"num_cpus": 0.1})
    handle = cluster.run(dying.bind(), "dying")
    source = FileSource(str(DEMO))

    async def scenario() -> None:
        answers = await asyncio.gather(
            RayQuick(handle).analyse(source, max_audio_s=60, max_bytes=1000, with_key=False),
            RayIdentify(handle).identify("uploads/1", "0" * 64, 60),
            RayEmbed(handle).embed(source, max_audio_s=60, max_bytes=1000, model=""),
            RayTexts(handle).embed_text("calm", ""),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [ServiceUnavailableError] * 4

    asyncio.run(scenario())


async def submit(stores: Stores, account: str) -> str:
    job = await stores.jobs.submit(
        NewJob(
            job_id=f"job_{new_ulid()}",
            account=account,
            tier="scale",
            work=AnalysisJob(
                FileSource(str(DEMO)),
                max_audio_s=900,
                max_bytes=50_000_000,
                include_embedding=True,
            ),
            cost=10,
        )
    )
    return job.job_id


@pytest.mark.slow
def test_a_broken_device_costs_no_job_and_no_credit(cluster: Cluster, tmp_path: Path) -> None:
    toy = cluster.toy(ToyDeployment, "Toy", num_replicas=2, health_check_period_s=0.5)
    spectral = cluster.toy(ToySpectralDeployment, "ToySpectral")
    worker = cast("Any", AnalysisWorker).options(ray_actor_options={"num_cpus": 0.1})
    application = worker.bind(
        stores=cluster.stores,
        urls=UrlOptions(),
        options=WorkerOptions(concurrent_jobs=4),
        library=LibraryOptions(
            url=(tmp_path / "library").as_uri(), view_dir=tmp_path / "library-view"
        ),
        spectral=spectral,
        mood=toy,
        embedding=None,
    )
    cluster.run(application, "faults")

    async def scenario() -> None:
        stores = open_stores(cluster.stores)
        choices = ModelChoices(stores.ledger_store)
        issued = await stores.accounts.issue("owner-faults", "scale")
        caller = await stores.accounts.authenticate(issued.key)
        assert caller is not None
        payer = AccountPayer(caller.account, "scale")
        before = (await stores.ledger.balance(payer.account, "scale")).remaining

        async def replicas() -> set[str]:
            names = ("Toy", "ToySpectral")
            return {r.replica for r in await choices.reports() if r.deployment in names}

        # One of two replicas breaks and is replaced, then the only replica of its deployment.
        before_fault = set[str]()
        for name in ("Toy", "ToySpectral"):
            deadline = time.monotonic() + 240
            # The reports of replicas from the last test expire.
            while len(alive := await replicas()) != 3 or alive == before_fault:
                assert time.monotonic() < deadline, alive
                await asyncio.sleep(0.5)
            before_fault = alive
            (cluster.folder / f"break-{name}").write_text("2")
            job_ids = [await submit(stores, payer.account) for _ in range(8)]
            for job_id in job_ids:
                job = await stores.jobs.wait(payer.account, job_id, 200)
                assert job is not None
                assert job.state is JobState.COMPLETE, job
                # Another replica did the broken one's work, within the same attempt.
                assert (job.attempts, job.credits_used) == (1, 10)
            assert not (cluster.folder / f"break-{name}").exists()
        after = (await stores.ledger.balance(payer.account, "scale")).remaining
        assert before - after == 10 * 2 * 8
        await stores.close()

    asyncio.run(scenario())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray Data, about itself
def test_a_backfill_hears_a_file_once_and_goes_on_where_it_was(
    cluster: Cluster, tmp_path: Path
) -> None:
    """All is real: Ray Data, actors that fetch the checkpoints, the library and the tables."""
    music, out = tmp_path / "music", tmp_path / "out"
    music.mkdir()
    encode(music / "clicks.ogg", click_track(132, 6), "ogg", "vorbis")
    (music / "broken.mp3").write_bytes(b"nothing to hear")
    for other in serve.status().applications:
        serve.delete(other)
    library = Library((tmp_path / "library").as_uri(), tmp_path / "view")
    profile, settings = AppArgs(), Settings()
    published = (tmp_path / "shared").as_uri()
    checkpoint_mirror(published, settings.resolved_model_dir()).publish()
    on_nodes = settings.model_copy(update={"model_dir": tmp_path / "models"})
    options = HearerOptions(
        place=Folder(music),
        spectral=profile.model_options(profile.spectral, on_nodes, published),
        embedding=profile.model_options(profile.embedding, on_nodes, published),
        catalog_dir=tmp_path / "no catalog",
        fingerprint_dir=tmp_path / "no fingerprints",
    )

    def run() -> Report:
        backfill = Backfill(
            library,
            Destination(str(out)),
            options,
            Actors(1, 1, 0),
            lambda _: None,
            lambda: pytest.fail("there is room"),
        )
        backfill.run(list(Folder(music).find()))
        return backfill.report

    assert run() == Report(heard=1, errors=1)
    (row,) = ds.dataset(out / "tracks").to_table().to_pylist()
    (error,) = ds.dataset(out / "errors").to_table().to_pylist()
    (track,) = library.all([OPERATOR])
    assert row["track_id"] == track.track_id
    assert row["tempo"] == pytest.approx(132, abs=0.5)
    assert np.linalg.norm(row["embedding"]) == pytest.approx(1, abs=1e-5)
    assert track.embeddings == (dict(row["models"])["embedding"],)
    assert (error["location"], error["code"]) == (str(music / "broken.mp3"), "unprocessable_audio")

    assert run() == Report(before=2)
    shutil.rmtree(out / "tracks")  # as if killed between writing to the library and to the table
    assert run() == Report(before=1, known=1)
    (again,) = ds.dataset(out / "tracks").to_table().to_pylist()
    assert again == row
    library.close()
