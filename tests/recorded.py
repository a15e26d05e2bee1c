"""The metrics that the code records, kept for tests."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from serve_app.domain.telemetry.metrics import Metric

Key = tuple[str, frozenset[tuple[str, str]]]


@dataclass
class Recorded:
    """Every value by metric and labels, in the order of recording."""

    values: dict[Key, list[float]] = field(default_factory=dict)

    def record(self, metric: Metric, value: float, labels: Mapping[str, str]) -> None:
        assert set(labels) == set(metric.labels), metric.name
        self.values.setdefault((metric.name, frozenset(labels.items())), []).append(value)

    def of(self, name: str, /, **labels: str) -> list[float]:
        """Return the values of one metric whose labels include these."""
        wanted = labels.items()
        return [
            value
            for (metric, found), values in self.values.items()
            if metric == name and wanted <= dict(found).items()
            for value in values
        ]

    def labels(self, name: str) -> list[dict[str, str]]:
        """Return the labels under which a metric has values."""
        return [dict(found) for metric, found in self.values if metric == name]
