"""Rules over samples of metrics: rows of `catalog/metrics/*.yaml` on one engine."""

from streams.detect.metrics.family import MetricRules
from streams.detect.metrics.rule_rows import Row, Sheet, sheet

__all__ = ["MetricRules", "Row", "Sheet", "sheet"]
