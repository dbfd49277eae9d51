"""Which jobs of Slurm hold a host's GPUs, as the label of its metrics says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import orjson
import pytest

from streams.detect import Detector
from streams.detect.deduplication import RollUp
from streams.detect.metrics import gpu_jobs
from streams.detect.metrics.rule_rows import JobLabels, sheet
from streams.detect.snapshot import Snapshot
from streams.model.clock import rfc3339
from streams.model.signal import Signal
from tests.streams.detect.lines import NOW, record

PLACE, SOURCE = ("raw.metrics", 0), "raw.metrics/0"
NAME = "DCGM_FI_DEV_GPU_UTIL"
Label = Callable[[int, int], str | tuple[str, ...] | None]
"""What a GPU's samples bear (several series where it is a tuple, no label where None), by its number and the second."""


class Host:
    """A host with eight GPUs that is scraped every 15 s."""

    def __init__(self, name: str = "gn1", **labels: str) -> None:
        self.detector = Detector("c1")
        self._name, self._labels = name, labels
        self._rollup = RollUp()

    def scraped(
        self, since: int, until: int, label: Label, every: int = 15, apart: int = 0
    ) -> list[tuple[str, str, float, int]]:
        """What was reported: the job, the state, when it was so, and how many GPUs it holds. `apart`: seconds from GPU to GPU."""
        found: list[Signal] = []
        for second in range(since, until, every):
            for gpu in range(8):
                borne = label(gpu, second)
                for one in borne if isinstance(borne, tuple) else (borne,):
                    found += self._sample(second + gpu * apart, gpu, one)
        return [
            (
                one.entity.job.name if one.entity.job else "",
                one.state.value,
                (one.occurred_at - NOW).total_seconds(),
                int(str(one.attributes["gpus"])),
            )
            for one in found
            if one.kind == "job.allocation" and one.entity.node == self._name
        ]

    def _sample(self, second: int, gpu: int, label: str | None) -> list[Signal]:
        at = NOW + timedelta(seconds=second)
        named = {"hpc_job": label} if label is not None else {}
        labels = {"__name__": NAME, "Hostname": self._name, "gpu": str(gpu), "UUID": f"GPU-{gpu}", **named}
        labels |= self._labels
        sample = {"timestamp": rfc3339(at), "value": "97", "name": NAME, "labels": labels}
        raw = record(orjson.dumps(sample), topic="raw.metrics", key=self._name.encode(), at=at)
        return list(self.detector.read(raw, self._rollup).signals)

    def restart(self) -> None:
        """Another process takes the partition over."""
        read = Snapshot(SOURCE)
        for block in list(Snapshot(SOURCE, self.detector.rule_state(*PLACE), self._rollup).blocks()):
            read.load(block)
        self.detector = Detector("c1")
        self.detector.set_rule_states({PLACE: read.rule_state})
        self._rollup = read.rollup


def test_a_job_is_reported_when_it_begins_and_when_it_is_gone_and_not_in_between() -> None:
    found = Host().scraped(0, 8000, lambda _, second: "4242" if 600 <= second < 7200 else "")
    assert found == [
        ("4242", "firing", 600, 8),
        ("4242", "cleared", 7170, 8),
    ]


def test_it_is_reported_again_after_hours() -> None:
    found = Host().scraped(0, 7 * 3600, lambda *_: "4242", every=300)
    assert [(job, state) for job, state, *_ in found] == [("4242", "firing")] * 2


@pytest.mark.parametrize("label", [None, "", "0", "N/A", " "])
def test_what_names_no_job_is_none(label: str | None) -> None:
    assert Host().scraped(0, 600, lambda *_: label) == []


@pytest.mark.parametrize("labels", ["10,11", ("10", "11")])
def test_a_gpu_that_jobs_share_tells_of_each(labels: str | tuple[str, ...]) -> None:
    found = Host().scraped(0, 3600, lambda *_: labels)
    assert sorted(found) == [("10", "firing", 0, 8), ("11", "firing", 0, 8)]


def test_jobs_that_share_a_host_come_and_go_by_themselves() -> None:
    def label(gpu: int, second: int) -> str:
        if gpu < 4:
            return "10" if second < 1800 else ""
        return "11" if gpu < 6 else ""

    found = Host().scraped(0, 3600, label)
    assert [(job, state, gpus) for job, state, _, gpus in found] == [
        ("10", "firing", 4),
        ("11", "firing", 2),
        ("10", "cleared", 4),
    ]


def test_an_instance_of_a_gpu_counts_for_its_gpu() -> None:
    host = Host(GPU_I_ID="5")
    assert host.scraped(0, 600, lambda gpu, _: "77" if gpu == 3 else "") == [("77", "firing", 0, 1)]


def test_a_label_that_is_missing_for_a_moment_or_there_for_one_is_nothing() -> None:
    assert Host().scraped(0, 3600, lambda _, second: "" if second % 300 < 60 else "9") == [
        ("9", "firing", 60, 8)
    ]
    assert Host().scraped(0, 3600, lambda _, second: "9" if second == 600 else "") == []


def test_a_host_that_sends_nothing_keeps_its_job() -> None:
    host = Host()
    assert len(host.scraped(0, 600, lambda *_: "9")) == 1
    assert host.scraped(10_800, 11_400, lambda *_: "9") == []
    (gone,) = host.scraped(20_000, 20_600, lambda *_: "")
    assert gone[:2] == ("9", "cleared")
    assert 11_300 <= gone[2] < 11_400


def test_a_restart_reports_nothing_twice_and_misses_no_end() -> None:
    host = Host()
    found = []
    for begin in range(0, 3600, 20):
        found += host.scraped(begin, begin + 20, lambda _, second: "9" if second < 1800 else "", every=20)
        host.restart()
    assert [(job, state) for job, state, *_ in found] == [("9", "firing"), ("9", "cleared")]


@pytest.mark.parametrize(("lasts", "gone", "seen"), [("30s", "2m", []), ("5m", "15m", ["firing"])])
def test_a_site_that_scrapes_every_five_minutes_sets_longer_times(
    lasts: str, gone: str, seen: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its GPUs are read one after the other: those without the job, half a minute before, end what no scrape has confirmed."""
    waits = JobLabels.model_validate({"lasts": lasts, "gone": gone, "again": "6h"})
    monkeypatch.setattr(gpu_jobs, "sheet", lambda: sheet().model_copy(update={"job_labels": waits}))
    found = Host().scraped(0, 3600, lambda gpu, _: "4242" if gpu > 5 else None, every=300, apart=10)
    assert [state for _, state, _, _ in found] == seen
