"""The number of replicas that the policy asks for."""

from dataclasses import dataclass, field

import pytest
import yaml
from ray.serve.config import AutoscalingConfig

from serve_app.deployments.autoscaling import BACKLOG, BUSY, QueueDelayPolicy
from tests.configs.test_serve_files import REPOSITORY


@dataclass
class Context:
    """What Serve's controller passes to a policy."""

    backlogs: list[float]
    busy: list[float]
    total_num_requests: float = 10.0
    total_queued_requests: float | None = 0.0
    current_num_replicas: int = 0
    target_num_replicas: int = 0
    aggregated_metrics: dict[str, dict[str, float]] | None = field(init=False)

    def __post_init__(self) -> None:
        self.current_num_replicas = self.current_num_replicas or len(self.busy)
        self.target_num_replicas = self.target_num_replicas or self.current_num_replicas
        self.aggregated_metrics = {
            BACKLOG: {str(i): value for i, value in enumerate(self.backlogs)},
            BUSY: {str(i): value for i, value in enumerate(self.busy)},
        }


@pytest.fixture
def policy() -> QueueDelayPolicy:
    return QueueDelayPolicy(target_s=2.0, idle_share=0.5, max_growth=2.0)


@pytest.mark.parametrize(
    ("context", "wanted"),
    [
        (Context([0.0], [1.0]), 1),  # busy, but nothing waits: the batches keep up
        (Context([1.9], [1.0]), 1),
        (Context([2.1], [1.0]), 2),
        (Context([90.0], [1.0]), 2),  # at most doubled in one step
        (Context([3.0, 3.0, 3.0, 3.0], [1.0] * 4), 6),
        (Context([0.0, 8.0], [0.5, 1.0]), 4),  # the mean counts: 4 s
        (Context([0.0, 0.0, 0.0], [0.2, 0.3, 0.4]), 2),  # two would be busy 0.45 of the time each
        (Context([0.0, 0.0, 0.0], [0.4, 0.4, 0.4]), 3),  # two would be busy 0.6 of the time
        (Context([0.0] * 8, [0.0] * 8), 4),  # at most halved in one step
        (Context([0.6, 0.6], [0.1, 0.1]), 2),  # something waits, so none is removed
        (Context([0.0], [0.0]), 1),
        (Context([], [], current_num_replicas=3), 3),  # no data is no reason to change
        (Context([1.2], [1.0], total_num_requests=30, total_queued_requests=20), 2),  # at handles
        (Context([1.2], [1.0], total_num_requests=30, total_queued_requests=None), 1),
        (Context([0.0, 0.0], [0.1, 0.1], target_num_replicas=4), 4),  # two are starting
        (Context([5.0, 5.0], [1.0, 1.0], target_num_replicas=6), 6),
    ],
)
def test_the_number_follows_the_delay(
    policy: QueueDelayPolicy, context: Context, wanted: int
) -> None:
    assert policy(context) == (wanted, {})


def test_serve_takes_the_policy_of_the_gpu_file() -> None:
    content = yaml.safe_load((REPOSITORY / "configs" / "serve.gpu.yaml").read_text())
    scaled = [
        AutoscalingConfig(**row["autoscaling_config"])
        for row in content["applications"][0]["deployments"]
        if row["ray_actor_options"].get("num_gpus")
    ]
    assert scaled
    for config in scaled:
        policy = config.policy.get_policy()
        assert policy.__name__ == "QueueDelayPolicy"
        assert policy(**config.policy.policy_kwargs)(Context([60.0], [1.0]))[0] == 2
        assert config.max_replicas > config.min_replicas
