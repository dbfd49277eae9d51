"""Rules over samples of metrics: rows of `catalog/metrics/*.yaml` on one engine."""

from streams.detect.metrics.family import MetricRules
from streams.detect.metrics.rule_rows import MetricRow, MetricSheet, sheet

__all__ = ["MetricRow", "MetricRules", "MetricSheet", "sheet"]
