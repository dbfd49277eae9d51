"""One record to its signals: a file per family on one matcher; codes, wordings and thresholds are data in `catalog/`."""

from streams.detect.command import cli_records
from streams.detect.detector import Detected, Detector

__all__ = ["Detected", "Detector", "cli_records"]
