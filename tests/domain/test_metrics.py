"""Values of metrics reach the function that shows them, with few values per label."""

from serve_app.domain.telemetry.facts import about
from serve_app.domain.telemetry.metrics import METRICS, MOST_VALUES, Metric, count_charged
from tests.recorded import Recorded


def test_a_label_takes_few_values_and_the_rest_is_other(recorded: Recorded) -> None:
    metric = Metric("counter", "afa_of_a_test", "Counted here.", ("name",))
    del METRICS["afa_of_a_test"]
    for turn in range(2):
        for n in range(MOST_VALUES + 50):
            metric.record(1, name=f"name {n}")
        assert len(recorded.values) == MOST_VALUES + 1
        assert sum(recorded.of("afa_of_a_test", name="other")) == 50 * (turn + 1)


def test_credits_are_counted_to_what_they_were_charged_for(recorded: Recorded) -> None:
    count_charged(0)
    with about(route="/v1/bpm", key="test"):
        count_charged(3)
    assert recorded.of("afa_credits_charged", operation="/v1/bpm", key="test") == [3]
    assert len(recorded.values) == 1
