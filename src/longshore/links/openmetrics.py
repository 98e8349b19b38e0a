"""Metrics as text: OpenMetrics, or Prometheus' older format, as whoever asks prefers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from longshore.core.metering import Histogram, Metric, MetricType, Sample


def exposition(samples: Iterable[Sample], accept: str = "") -> tuple[bytes, str]:
    """The text of these samples and its content type, by the header `Accept` of a request."""
    encode, content_type = choose_encoder(accept)
    return encode(_Samples(samples)), content_type


class _Samples(Collector):
    """Samples, grouped by their metrics."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._families: dict[str, Family] = {}
        for sample in samples:
            self._add(sample)

    def collect(self) -> Iterator[Family]:
        yield from self._families.values()

    def _add(self, sample: Sample) -> None:
        metric, value = sample.metric, sample.value
        family = self._families.get(metric.name)
        if family is None:
            family = self._families[metric.name] = _family(metric)
        if isinstance(value, Histogram):
            assert isinstance(family, HistogramMetricFamily)
            family.add_metric(sample.labels, value.buckets(), value.total)
        else:
            assert isinstance(family, CounterMetricFamily | GaugeMetricFamily)
            family.add_metric(sample.labels, value)


def _family(metric: Metric) -> Family:
    match metric.type:
        case MetricType.COUNTER:
            return CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
        case MetricType.GAUGE:
            return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        case MetricType.HISTOGRAM:
            return HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        case _:
            assert_never(metric.type)
