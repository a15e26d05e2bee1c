"""The common part of the model deployments: a batched step that takes object references."""

import asyncio
import time
from abc import abstractmethod
from dataclasses import dataclass
from traceback import clear_frames
from typing import ClassVar, Generic, TypeVar

import torch
from ray import ObjectRef

from models.checkpoints.cards import CardError
from models.checkpoints.stored import stored_bytes
from pipelines.analysis.networks.checkpoint_model import EAGER, CheckpointModel
from pipelines.audio.waveform import Samples, Waveform
from pipelines.batching.batcher import DeviceFaultError, DeviceGoneError, Observation
from pipelines.batching.device import Turns, is_device_fault, is_out_of_memory
from pipelines.batching.runner import BatchedStep
from pipelines.batching.steps import Step
from serve_app.checkpoints.exchange import Cards, Exchange, ids_by_role
from serve_app.checkpoints.freeze import freeze_loaded
from serve_app.checkpoints.shelf import Shelf, ShelfFullError
from serve_app.composition.execution import execution_on
from serve_app.composition.options import ModelOptions, StoreOptions
from serve_app.deployments.autoscaling import BACKLOG, BUSY
from serve_app.deployments.batch_metrics import Queues, observe
from serve_app.deployments.following import follow
from serve_app.deployments.placement import (
    Placement,
    PlacementGauge,
    assigned_cpus,
    keep_to_share,
    replica_device,
)
from serve_app.deployments.telemetry import tell_operators
from serve_app.domain.telemetry.metrics import WARM_UP

EMBEDDING = "embedding"

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

Pcm = ObjectRef[Samples]


@dataclass(frozen=True, slots=True)
class Answer(Generic[R_co]):
    """A result, and the checkpoints that computed it.

    Attributes:
        models: Role to ids, joined by ``+``.
    """

    result: R_co
    models: dict[str, str]


@dataclass(frozen=True, slots=True)
class NamedEmbedding:
    """An embedding model that a request names.

    Attributes:
        model_id: Id of the model.
        other_roles: The choice for the step's other roles, as role and model id.
    """

    model_id: str
    other_roles: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return self.model_id


class ModelServer(Generic[R]):
    """Runs one step for many tracks at once, with the chosen checkpoints."""

    roles: ClassVar[tuple[str, ...]]

    async def __init__(  # type: ignore[misc]  # Serve awaits it; loading must not block its loop
        self, options: ModelOptions, stores: StoreOptions
    ) -> None:
        tell_operators()
        torch.set_num_threads(assigned_cpus())
        self._options = options
        self._device = replica_device(options.device)
        keep_to_share(self._device)
        self._execution = execution_on(self._device, options)
        self._placements = PlacementGauge()
        self._turns = Turns()
        self._queues = Queues()
        self._device_s = 0.0
        self._fault: BaseException | None = None
        self._exchange: Exchange[BatchedStep[R]] = Exchange(
            self._load, BatchedStep.retire, self._release
        )
        self._follower = await follow(options, stores, self.roles, self._exchange)
        self._shelf: Shelf[NamedEmbedding, BatchedStep[R]] = Shelf(
            self._load_named,
            BatchedStep.retire,
            options.named_mib << 20,
            self._release,
            self._expected_bytes,
        )
        self._measured = time.monotonic(), 0.0
        self._show()

    @abstractmethod
    def build(self, cards: Cards) -> Step[R]:
        """Load the step's checkpoints onto the device.

        Raises:
            CheckpointError: One is not on this machine, or not what its card says.
        """

    async def analyse(
        self, pcm: list[Pcm], sample_rate: int, embedding_model: str = ""
    ) -> Answer[R]:
        """Analyse a track.

        Args:
            pcm: One reference to a `Waveform`'s samples; nested, so that the audio is fetched
                here from the object store and never copied through the caller.
            sample_rate: Hz.
            embedding_model: Id of the embedding model, if not the chosen one.

        Raises:
            AudioError: The audio is not fit for this analysis.
            CardError: There is no such embedding model, or none may be named here.
            ShelfFullError: It needs more memory than named models may have, or the device has.
            QueueFullError: Too much is already queued.
            DeviceFaultError: The device is broken; try another replica.
        """
        self._check_device()
        samples = await pcm[0]
        step, models = self._exchange.current, self._exchange.serving
        if embedding_model and embedding_model != models.get(EMBEDDING, embedding_model):
            step, models = await self._named(embedding_model)
        return Answer(await step.run(Waveform(samples, sample_rate)), models)

    def _check_device(self) -> None:
        if self._fault is not None:
            raise DeviceGoneError(str(self._fault)) from self._fault

    async def check_health(self) -> None:
        """Raise when the device no longer computes, so that Serve replaces the replica."""
        self._show()
        if self._fault is not None:
            raise DeviceFaultError(str(self._fault)) from self._fault
        for step in self._steps:
            step.check_health()

    def _show(self) -> None:
        self._queues.show([step.metrics() for step in self._steps])
        placed = {}
        for step in self._steps:
            for model in step.step.models:
                execution = model.execution if isinstance(model, CheckpointModel) else EAGER
                placed[model.model_id] = Placement(self._device, execution)
                WARM_UP.record(step.warm_up_s, model=model.model_id)
        self._placements.show(placed)

    async def record_autoscaling_stats(self) -> dict[str, float]:
        """Return what `QueueDelayPolicy` uses, for Serve's controller."""
        (then_s, device_s), now_s = self._measured, time.monotonic()
        self._measured = now_s, self._device_s
        busy = (self._device_s - device_s) / max(now_s - then_s, 1e-3)
        return {BACKLOG: sum(step.backlog_s() for step in self._steps), BUSY: min(busy, 1.0)}

    async def ready(self) -> bool:
        """Answer once the model is loaded and warmed up."""
        return True

    @property
    def _steps(self) -> list[BatchedStep[R]]:
        """Return the step of the chosen models and those of named ones; all share the device."""
        return [self._exchange.current, *self._shelf.values]

    def _observe(self, model_id: str, seen: Observation) -> None:
        self._device_s += seen.device_s
        observe(model_id, seen)

    async def _load(self, cards: Cards) -> BatchedStep[R]:
        """Load a step and warm it up.

        Raises:
            DeviceFaultError: The device broke; this replica must be replaced.
            Exception: Any error that loading raised.
        """
        try:
            step = await self._loaded(cards)
        except Exception as error:
            if not isinstance(error, DeviceFaultError) and not is_device_fault(error):
                raise
            self._fault = error
            raise DeviceFaultError(str(error)) from error
        step.watch(self._observe)
        return step

    async def _loaded(self, cards: Cards) -> BatchedStep[R]:
        step = BatchedStep(
            await asyncio.to_thread(self.build, cards),
            device=self._device,
            max_windows=self._options.batch_windows,
            max_batch_bytes=self._options.batch_mib << 20,
            max_queued_bytes=self._options.queue_mib << 20,
            finishers=assigned_cpus() if self._device.type == "cuda" else 0,
            turns=self._turns,
        )
        try:
            await step.warm_up()
        except BaseException:
            await asyncio.to_thread(step.close)
            raise
        return step

    async def _named(self, model_id: str) -> tuple[BatchedStep[R], dict[str, str]]:
        if not self._options.named_mib:
            raise CardError(f"{model_id} is not the chosen embedding, and no other may be named")
        chosen = self._follower.chosen
        others = [role for role in self.roles if role in chosen and role != EMBEDDING]
        named = NamedEmbedding(model_id, tuple((role, chosen[role]) for role in others))
        ids = ids_by_role(self._cards_of(named))
        return await self._shelf.get(named), ids

    async def _load_named(self, named: NamedEmbedding) -> tuple[BatchedStep[R], int]:
        if self._fault is not None:  # it broke while this one waited for its turn to load
            raise DeviceGoneError(str(self._fault)) from self._fault
        try:
            step = await self._load(self._cards_of(named))
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            clear_frames(error.__traceback__)  # they hold what was loaded so far
            await asyncio.to_thread(freeze_loaded)
            await asyncio.to_thread(self._release)
            reason = "does not fit into what memory the device has free; try again later"
            raise ShelfFullError(named.model_id, reason) from None
        return step, step.weight_bytes

    def _expected_bytes(self, named: NamedEmbedding) -> int:
        cards = self._cards_of(named).values()
        return sum(stored_bytes(card, self._options.model_dir) for of in cards for card in of)

    def _cards_of(self, named: NamedEmbedding) -> Cards:
        cards = self._options.cards({**dict(named.other_roles), EMBEDDING: named.model_id})
        return {role: cards[role] for role in self.roles}

    def _release(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
