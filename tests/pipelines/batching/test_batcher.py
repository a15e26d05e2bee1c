"""The batcher's guarantees, on a simulated clock and device, and on the real CPU device."""

import asyncio
import heapq
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from pipelines.batching.batcher import (
    BATCHES_AHEAD,
    Batcher,
    DeviceFaultError,
    DeviceGoneError,
    Observation,
    QueueFullError,
)
from pipelines.batching.device import Forward, Take, TorchDevice, Turns, is_device_fault
from pipelines.batching.windows import LazyWindows


class SimulatedLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        scheduled: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            heapq.heappop(scheduled)._scheduled = False
        if not self._ready and scheduled:  # type: ignore[attr-defined]
            self._now = max(self._now, scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


class SimulatedDevice:
    """Takes 2 ms to stage and ``fixed + n·per_window`` to compute, one batch at a time."""

    def __init__(self, fixed_s: float = 0.05, per_window_s: float = 0.0) -> None:
        self.turns = Turns()
        self.batches: list[list[float]] = []
        self.starts_s: list[float] = []
        self.busy_s = 0.0
        self._fixed_s, self._per_window_s = fixed_s, per_window_s
        self._compute = asyncio.Lock()

    async def run(
        self, forward: Forward, parts: Sequence[Take], n_padding: int
    ) -> tuple[Mapping[str, Tensor], float]:
        await asyncio.sleep(0.002)
        batch = torch.cat([take() for take in parts])
        async with self._compute:
            self.batches.append(batch[:, 0].tolist())
            self.starts_s.append(asyncio.get_running_loop().time())
            duration_s = self._fixed_s + len(batch) * self._per_window_s
            outputs = forward(torch.cat([batch, batch.new_zeros(n_padding, *batch.shape[1:])]))
            await asyncio.sleep(duration_s)
            self.busy_s += duration_s
        return outputs, duration_s


def simulate(scenario: Callable[[], Awaitable[Any]]) -> Any:
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        return runner.run(scenario())  # type: ignore[arg-type]


def double(windows: Tensor) -> dict[str, Tensor]:
    return {"twice": windows * 2, "sum": windows.sum(dim=1)}


def rows(*values: float) -> Tensor:
    return torch.tensor(values)[:, None].repeat(1, 3)


def now() -> float:
    return asyncio.get_running_loop().time()


def test_a_lone_window_does_not_wait() -> None:
    async def scenario() -> float:
        batcher = Batcher(double, 32, 1000, SimulatedDevice())
        outputs = await batcher.submit(rows(3))
        assert outputs["twice"].tolist() == [[6, 6, 6]]
        assert outputs["sum"].tolist() == [9]
        return now()

    assert simulate(scenario) == pytest.approx(0.052)


def test_what_arrives_while_the_device_is_busy_goes_together() -> None:
    device = SimulatedDevice()

    async def scenario() -> None:
        batcher = Batcher(double, 8, 1000, device)
        first = asyncio.create_task(batcher.submit(rows(0)))
        await asyncio.sleep(0.01)
        others = [asyncio.create_task(batcher.submit(rows(i))) for i in range(1, 6)]
        await asyncio.gather(first, *others)

    simulate(scenario)
    assert device.batches == [[0], [1, 2, 3, 4, 5]]


def test_a_long_track_does_not_hold_up_a_short_one() -> None:
    async def scenario() -> tuple[float, float]:
        batcher = Batcher(double, 4, 1000, SimulatedDevice())
        long = asyncio.create_task(batcher.submit(rows(*range(100))))
        await asyncio.sleep(0.001)
        outputs = await batcher.submit(rows(500, 501))
        short_s = now()
        assert outputs["sum"].tolist() == [1500, 1503]
        assert (await long)["sum"].tolist() == [3 * i for i in range(100)]
        return short_s, now()

    short_s, long_s = simulate(scenario)
    assert short_s < 0.16
    assert long_s > 1.2


def test_tracks_share_a_batch_in_turn() -> None:
    device = SimulatedDevice()

    async def scenario() -> None:
        batcher = Batcher(double, 6, 1000, device)
        await asyncio.gather(
            batcher.submit(rows(*range(10, 19))),
            batcher.submit(rows(20)),
            batcher.submit(rows(30, 31, 32, 33)),
        )

    simulate(scenario)
    assert sorted(device.batches[0]) == [10, 11, 12, 20, 30, 31]


def test_a_backlog_fills_every_batch_and_keeps_the_device_busy() -> None:
    device = SimulatedDevice(0.05)

    async def scenario() -> float:
        batcher = Batcher(double, 8, 1000, device)
        await asyncio.gather(*(batcher.submit(rows(*range(i, i + 5))) for i in range(0, 400, 5)))
        return now()

    duration_s = simulate(scenario)
    assert {len(batch) for batch in device.batches} == {8}
    assert device.busy_s / duration_s > 0.99  # staging (2 ms of 50) is hidden


def test_feeding_what_is_wanted_keeps_batches_full_and_the_queue_short() -> None:
    async def scenario() -> None:
        device = SimulatedDevice(fixed_s=0.01)
        batcher = Batcher(double, 8, 1_000_000, device)
        most_queued = 0
        async with asyncio.TaskGroup() as tracks:
            for _ in range(200):
                await batcher.wants_more()
                tracks.create_task(batcher.submit(rows(1.0, 2.0, 3.0)))
                await asyncio.sleep(0)
                most_queued = max(most_queued, batcher.metrics().queued_windows)
        assert most_queued < BATCHES_AHEAD * 8 + 3
        assert device.busy_s >= 0.95 * now()
        assert {len(batch) for batch in device.batches[1:-1]} == {8}

    simulate(scenario)


def test_partial_batches_are_not_formed_ahead_of_time() -> None:
    device = SimulatedDevice(0.05)

    async def scenario() -> None:
        batcher = Batcher(double, 8, 1000, device)
        tasks = [asyncio.create_task(batcher.submit(rows(0)))]
        for i in range(1, 5):
            await asyncio.sleep(0.01)
            tasks.append(asyncio.create_task(batcher.submit(rows(i))))
        await asyncio.gather(*tasks)

    simulate(scenario)
    assert device.batches == [[0], [1, 2, 3, 4]]


def test_abandoned_work_is_dropped() -> None:
    device, seen = SimulatedDevice(0.05), list[Observation]()

    async def scenario() -> None:
        batcher = Batcher(double, 4, 1000, device)
        batcher.watch(seen.append)
        kept = asyncio.create_task(batcher.submit(rows(1)))
        await asyncio.sleep(0.01)
        gone = asyncio.create_task(batcher.submit(rows(*range(10, 50))))
        other = asyncio.create_task(batcher.submit(rows(2)))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.gather(kept, other)
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert sum(one.dropped_windows for one in seen) >= 36
        assert batcher.metrics().queued_windows == 0

    simulate(scenario)
    assert sum(value >= 10 for batch in device.batches for value in batch) <= 4


def test_queue_is_bounded_but_one_oversized_track_is_served() -> None:
    seen: list[Observation] = []

    async def scenario() -> None:
        batcher = Batcher(double, 4, 10, SimulatedDevice())
        batcher.watch(seen.append)
        big = asyncio.create_task(batcher.submit(rows(*range(30))))
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="windows are queued"):
            await batcher.submit(rows(1))
        assert len((await big)["sum"]) == 30
        assert (await batcher.submit(rows(1)))["sum"].tolist() == [3]
        assert sum(one.refused_tracks for one in seen) == 1

    simulate(scenario)


def test_each_track_of_a_batch_is_told_with_where_it_came_from() -> None:
    whose: ContextVar[str] = ContextVar("whose")
    seen: list[Observation] = []

    async def submit(batcher: Batcher, name: str, n: int) -> None:
        whose.set(name)
        await batcher.submit(rows(*range(n)))

    async def scenario() -> None:
        batcher = Batcher(double, 8, 1000, SimulatedDevice())
        batcher.watch(seen.append)
        await asyncio.gather(submit(batcher, "one", 3), submit(batcher, "two", 6))

    simulate(scenario)
    told = [[(context[whose], n) for context, n in one.shares] for one in seen if one.batch_s]
    assert told == [[("one", 3), ("two", 5)], [("two", 1)]]


def test_a_forward_that_lacks_rows_fails_its_tracks_and_nothing_hangs() -> None:
    def cut_short(windows: Tensor) -> dict[str, Tensor]:
        return {"sum": windows[:-1].sum(dim=1)}

    async def scenario() -> None:
        batcher = Batcher(cut_short, 4, 1000, SimulatedDevice())
        tasks = (batcher.submit(rows(1)), batcher.submit(rows(2, 3)))
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(one) for one in found] == [RuntimeError, RuntimeError]

    simulate(scenario)


def test_the_next_batch_starts_before_the_last_ones_callers_go_on() -> None:
    order: list[str] = []

    class Noted(SimulatedDevice):
        async def run(
            self, forward: Forward, parts: Sequence[Take], n_padding: int
        ) -> tuple[Mapping[str, Tensor], float]:
            order.append("start")
            return await super().run(forward, parts, n_padding)

    async def scenario() -> None:
        batcher = Batcher(double, 4, 1000, Noted())

        async def ask(delay_s: float) -> None:
            await asyncio.sleep(delay_s)
            await batcher.submit(rows(1))
            order.append("answered")

        await asyncio.gather(ask(0), ask(0.01))

    simulate(scenario)
    assert order == ["start", "start", "answered", "answered"]


def spoilt_by(bad: float) -> Forward:
    def forward(windows: Tensor) -> dict[str, Tensor]:
        if (windows == bad).any():
            raise ValueError(f"cannot take {bad}")
        return double(windows)

    return forward


def test_a_bad_track_fails_alone() -> None:
    seen: list[Observation] = []

    async def scenario() -> list[Any]:
        batcher = Batcher(spoilt_by(13), 8, 1000, SimulatedDevice())
        batcher.watch(seen.append)
        tracks = [rows(1, 2), rows(12, 13), rows(3), rows(4, 5, 6)]
        results = await asyncio.gather(
            *(batcher.submit(track) for track in tracks), return_exceptions=True
        )
        assert sum(one.failed_tracks for one in seen) == 1
        assert batcher.fault is None
        return results

    good, bad, third, fourth = simulate(scenario)
    assert isinstance(bad, ValueError)
    assert str(bad) == "cannot take 13"
    assert [good["sum"].tolist(), third["sum"].tolist()] == [[3, 6], [9]]
    assert fourth["sum"].tolist() == [12, 15, 18]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        torch.AcceleratorError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA driver error: out of memory"),
        RuntimeError("GET was unable to find an engine to execute this computation"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to"),
        MemoryError("Unable to allocate 2 GiB"),
    ],
)
def test_out_of_memory_halves_the_batch(error: Exception) -> None:
    def forward(windows: Tensor) -> dict[str, Tensor]:
        if len(windows) > 3:
            raise error
        return double(windows)

    async def scenario() -> None:
        batcher = Batcher(forward, 16, 1000, SimulatedDevice())
        outputs = await batcher.submit(rows(*range(11)))
        assert outputs["sum"].tolist() == [3 * i for i in range(11)]
        assert batcher.fault is None

    simulate(scenario)


def test_a_broken_device_fails_everything_and_says_so() -> None:
    def forward(windows: Tensor) -> dict[str, Tensor]:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    async def scenario() -> None:
        batcher = Batcher(forward, 2, 1000, SimulatedDevice())
        results = await asyncio.gather(
            *(batcher.submit(rows(i, i)) for i in range(5)), return_exceptions=True
        )
        begun, untouched = [DeviceFaultError] * 4, [DeviceGoneError]
        assert [type(result) for result in results] == begun + untouched
        assert "illegal memory access" in str(batcher.fault)
        with pytest.raises(DeviceGoneError):
            await batcher.submit(rows(1))

    simulate(scenario)


def test_device_faults_are_told_from_input_faults() -> None:
    assert is_device_fault(RuntimeError("CUDA error: device-side assert triggered"))
    assert is_device_fault(RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED when calling"))
    assert is_device_fault(torch.AcceleratorError("CUDA error: unspecified launch failure"))
    # Raised by compiled kernels and transforms, whichever code launches them.
    assert is_device_fault(RuntimeError("Triton Error [CUDA]: an illegal memory access was"))
    assert is_device_fault(RuntimeError("CUDA driver error: unspecified launch failure"))
    assert is_device_fault(RuntimeError("cuFFT error: CUFFT_EXEC_FAILED"))
    assert not is_device_fault(torch.OutOfMemoryError("CUDA out of memory. CUDA error"))
    assert not is_device_fault(torch.AcceleratorError("CUDA error: out of memory"))
    assert not is_device_fault(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"))
    assert not is_device_fault(RuntimeError("shape mismatch"))


def test_rows_that_cannot_be_joined_fail_their_track_instead_of_hanging_it() -> None:
    def forward(windows: Tensor) -> dict[str, Tensor]:
        return {"rows": windows[:, : len(windows)]}  # as many columns as rows

    async def scenario() -> None:
        batcher = Batcher(forward, 2, 1000, SimulatedDevice())
        async with asyncio.timeout(10):
            with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
                await batcher.submit(rows(1, 2, 3))
            assert len((await batcher.submit(rows(4)))["rows"]) == 1

    simulate(scenario)


def test_static_batch_sizes_are_padded_and_cut() -> None:
    sizes = []
    seen: list[Observation] = []

    def forward(windows: Tensor) -> dict[str, Tensor]:
        sizes.append(len(windows))
        return double(windows)

    async def scenario() -> None:
        batcher = Batcher(forward, 8, 1000, SimulatedDevice(), batch_sizes=(1, 4, 8))
        batcher.watch(seen.append)
        assert (await batcher.submit(rows(1)))["sum"].tolist() == [3]
        assert (await batcher.submit(rows(1, 2, 3)))["sum"].tolist() == [3, 6, 9]
        assert len((await batcher.submit(rows(*range(13))))["sum"]) == 13
        assert sum(one.padded_windows for one in seen) == 1 + 3

    simulate(scenario)
    assert sizes == [1, 4, 8, 8]


def test_two_models_take_turns_on_one_device() -> None:
    device = SimulatedDevice(0.05)

    async def scenario() -> float:
        busy = Batcher(double, 4, 1000, device)
        quiet = Batcher(double, 4, 1000, device)
        backlog = asyncio.create_task(busy.submit(rows(*range(200))))
        await asyncio.sleep(0.12)
        start_s = now()
        await quiet.submit(rows(7))
        waited_s = now() - start_s
        await backlog
        return waited_s

    assert simulate(scenario) < 0.26


def test_windows_of_two_shapes_are_never_mixed() -> None:
    device = SimulatedDevice()

    async def scenario() -> None:
        batcher = Batcher(double, 8, 1000, device)
        tracks = [torch.ones(5, 3), torch.ones(5, 4), torch.ones(9, 3), torch.ones(2, 4)]
        results = await asyncio.gather(*(batcher.submit(track) for track in tracks))
        for track, outputs in zip(tracks, results, strict=True):
            assert outputs["twice"].equal(2 * track)
        assert len(device.batches) == 3

    simulate(scenario)


def test_everybody_leaving_before_a_turn_is_harmless() -> None:
    async def scenario() -> None:
        device = SimulatedDevice()
        first, second = Batcher(double, 8, 100, device), Batcher(double, 8, 100, device)
        running = asyncio.create_task(first.submit(rows(1)))
        await asyncio.sleep(0.01)
        leaver = asyncio.create_task(second.submit(rows(2)))
        await asyncio.sleep(0.01)
        leaver.cancel()
        await running
        assert (await second.submit(rows(3)))["sum"].tolist() == [9]

    simulate(scenario)


def test_an_observer_sees_what_the_metrics_add_up() -> None:
    seen: list[Observation] = []

    def forward(windows: Tensor) -> dict[str, Tensor]:
        if (windows == 13).any():
            raise ValueError("cannot take 13")
        return double(windows)

    async def scenario() -> None:
        batcher = Batcher(forward, 4, 1000, SimulatedDevice(0.05), batch_sizes=(2, 4))
        batcher.watch(seen.append)
        tracks = [rows(1), rows(2, 3), rows(13), rows(*range(20, 29)), rows(*range(30, 40))]
        tasks = [asyncio.create_task(batcher.submit(track)) for track in tracks]
        await asyncio.sleep(0.06)
        tasks[-1].cancel()
        await asyncio.wait(tasks)
        await asyncio.sleep(0.2)
        metrics = batcher.metrics()
        forwards = [one for one in seen if one.windows]
        assert sum(one.windows for one in forwards) == metrics.windows
        assert sum(one.padded_windows for one in forwards) > 0
        assert sum(one.device_s for one in forwards) == pytest.approx(metrics.device_s)
        assert sum(one.dropped_windows for one in seen) > 0
        assert sum(one.failed_tracks for one in seen) == 1
        begun_s = [queue_s for one in seen for queue_s in one.queue_s]
        assert len(begun_s) == len(tracks)

    simulate(scenario)


def test_an_observer_is_told_queue_batch_and_device_time() -> None:
    device, seen = SimulatedDevice(0.05), list[Observation]()

    async def scenario() -> None:
        batcher = Batcher(double, 2, 1000, device)
        batcher.watch(seen.append)
        await asyncio.gather(*(batcher.submit(rows(i)) for i in range(6)))
        metrics = batcher.metrics()
        assert (len(device.batches), metrics.windows) == (3, 6)
        assert metrics.device_s == pytest.approx(0.15)
        begun_s = sorted(queue_s for one in seen for queue_s in one.queue_s)
        assert begun_s[3] == 0  # the second batch is staged during the first
        assert begun_s[5] == pytest.approx(0.052, abs=0.001)
        batches_s = sorted(one.batch_s for one in seen if one.batch_s)
        assert batches_s[1] == pytest.approx(0.1, abs=0.01)

    simulate(scenario)


def test_wrong_sizes_are_refused() -> None:
    device = SimulatedDevice()
    with pytest.raises(ValueError, match="at least 1"):
        Batcher(double, 0, 10, device)
    with pytest.raises(ValueError, match="include max_windows"):
        Batcher(double, 8, 10, device, batch_sizes=(1, 4))

    async def scenario() -> None:
        with pytest.raises(ValueError, match="no windows"):
            await Batcher(double, 8, 10, device).submit(torch.empty(0, 3))

    simulate(scenario)


Arrival = tuple[float, int, bool]


@settings(max_examples=150, deadline=None)
@given(
    arrivals=st.lists(
        st.tuples(st.floats(0, 1), st.integers(1, 20), st.booleans()), min_size=1, max_size=30
    ),
    max_windows=st.integers(1, 9),
    per_window_s=st.sampled_from([0.0, 0.01]),
)
def test_every_caller_gets_its_own_rows_once(
    arrivals: list[Arrival], max_windows: int, per_window_s: float
) -> None:
    device = SimulatedDevice(0.02, per_window_s)
    computed: list[float] = []

    async def caller(batcher: Batcher, index: int, arrival: Arrival) -> None:
        start_s, n, gives_up = arrival
        await asyncio.sleep(start_s)
        values = [1000.0 * index + k for k in range(n)]
        submission = batcher.submit(rows(*values))
        if gives_up:
            try:
                async with asyncio.timeout(0.03):
                    await submission
            except TimeoutError:
                return
        else:
            outputs = await submission
            assert outputs["twice"][:, 0].tolist() == [2 * value for value in values]
            computed.extend(values)

    async def scenario() -> None:
        batcher = Batcher(double, max_windows, 10_000, device)
        await asyncio.gather(*(caller(batcher, i, a) for i, a in enumerate(arrivals)))
        assert batcher.metrics().queued_windows == 0

    simulate(scenario)
    ran = [value for batch in device.batches for value in batch]
    assert len(ran) == len(set(ran))
    assert set(computed) <= set(ran)
    assert max(len(batch) for batch in device.batches) <= max_windows


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=2, max_size=10),
    max_windows=st.integers(1, 8),
)
def test_a_track_finishes_within_its_fair_share(lengths: list[int], max_windows: int) -> None:
    """Of k tracks queued together, a track of n windows is done after at most k·n windows."""
    device = SimulatedDevice(0.05)
    finished_s: dict[int, float] = {}

    async def caller(batcher: Batcher, index: int) -> None:
        await batcher.submit(rows(*([float(index)] * lengths[index])))
        finished_s[index] = now()

    async def scenario() -> None:
        batcher = Batcher(double, max_windows, 10_000, device)
        await asyncio.gather(*(caller(batcher, i) for i in range(len(lengths))))

    simulate(scenario)
    for index, n in enumerate(lengths):
        n_before = sum(min(n, other) for other in lengths)
        n_batches = -(-n_before // max_windows)
        assert finished_s[index] <= n_batches * 0.05 + 0.002 * (n_batches + 1) + 1e-6


@pytest.fixture
async def cpu() -> AsyncIterator[TorchDevice]:
    device = TorchDevice("cpu")
    yield device
    device.close()


async def test_real_device_gives_the_rows_of_the_bare_model(cpu: TorchDevice) -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv1d(1, 8, 9), torch.nn.GELU(), torch.nn.Flatten())

    def forward(windows: Tensor) -> dict[str, Tensor]:
        return {"vector": network(windows[:, None])}

    batcher = Batcher(forward, 5, 1000, cpu, batch_sizes=(2, 5))
    tracks = [torch.randn(n, 64) for n in (1, 7, 3, 12)]
    results = await asyncio.gather(*(batcher.submit(track) for track in tracks))
    for track, outputs in zip(tracks, results, strict=True):
        torch.testing.assert_close(outputs["vector"], network(track[:, None]).detach())
    assert batcher.metrics().device_s > 0


async def test_lazy_windows_are_made_for_one_batch_at_a_time_where_the_forwards_run(
    cpu: TorchDevice,
) -> None:
    made: list[tuple[float, str]] = []
    heard: list[int] = []

    def make(part: slice) -> Tensor:
        assert torch.is_inference_mode_enabled()
        numbers = torch.arange(5.0)[part]
        made.extend((i, threading.current_thread().name) for i in numbers.tolist())
        return numbers[:, None].expand(-1, 4)

    def forward(windows: Tensor) -> dict[str, Tensor]:
        assert threading.current_thread().name == made[-1][1]
        heard.append(len(made))
        return double(windows)

    windows = LazyWindows(torch.Size((5, 4)), torch.float32, make)
    outputs = await Batcher(forward, 2, 1000, cpu).submit(windows)
    assert outputs["sum"].tolist() == [0, 4, 8, 12, 16]
    assert [i for i, _ in made] == [0, 1, 2, 3, 4]
    assert heard == [2, 4, 5]


async def test_real_device_leaves_the_event_loop_free(cpu: TorchDevice) -> None:
    may_end = threading.Event()

    def slow(windows: Tensor) -> dict[str, Tensor]:
        assert may_end.wait(60)
        return double(windows)

    batcher = Batcher(slow, 4, 100, cpu)
    task = asyncio.create_task(batcher.submit(rows(1)))
    for _ in range(15):
        await asyncio.sleep(0.005)
        assert not task.done()
    may_end.set()
    assert not (await task)["sum"].requires_grad
