"""The digest: every number has its incidents, and few values are not dressed up as statistics.

`python -m tests.faultline.report.test_digest` writes `golden/week.*` anew; what changed is read.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from faultline.cli.commands.digest import written
from faultline.report.digest import Digest, digest_of
from faultline.report.figures import amount_of, count_of, times_of
from faultline.report.repeat_offenders import offenders_of
from streams.model.entity import Entity, Gpu
from streams.model.incident import incident_id
from tests.faultline.report.days import SINCE, UNTIL, week
from tests.faultline.report.scenes import CLUSTER, EVIL, hostile, incident

GOLDEN = Path(__file__).with_name("golden")
KINDS = ("md", "html", "json")


def digest(**changes: Any) -> Digest:
    days = replace(week(), **changes)
    return digest_of(
        days.cluster, days.incidents, days.runs, days.timeline, days.nodes, since=SINCE, until=UNTIL
    )


@pytest.mark.parametrize("kind", KINDS)
def test_a_digest_is_the_one_that_was_read(kind: str) -> None:
    assert written(week(), kind, SINCE, UNTIL) == (GOLDEN / f"week.{kind}").read_text(encoding="utf-8")


def test_documents_in_another_order_give_the_same_digest() -> None:
    days = week()
    turned = replace(
        days,
        incidents=dict(reversed(list(days.incidents.items()))),
        runs=days.runs[::-1],
        nodes=dict(reversed(list(days.nodes.items()))),
    )
    assert written(turned, "json", SINCE, UNTIL) == written(days, "json", SINCE, UNTIL)


def lists(value: object) -> list[dict[str, Any]]:
    """Every object of the JSON that counts or sums something."""
    found: list[dict[str, Any]] = []
    if isinstance(value, dict):
        found += [value] if "incidents" in value and ("value" in value or "count" in value) else []
        found += [one for part in value.values() for one in lists(part)]
    elif isinstance(value, list):
        found += [one for part in value for one in lists(part)]
    return found


def test_every_number_carries_the_incidents_that_made_it() -> None:
    told = json.loads(written(week(), "json", SINCE, UNTIL))
    known = set(week().incidents)
    figures = lists(told)
    assert len(figures) > 20
    for figure in figures:
        assert set(figure["incidents"]) <= known
        if figure.get("value") or figure.get("count"):
            assert figure["incidents"]


def test_a_count_is_as_long_as_its_list() -> None:
    made = digest()
    assert (made.opened.value, len(made.opened.incidents)) == (9, 9)
    assert made.still_open.value == 1
    assert made.open_from_before.value == 1
    assert sum(row.total.value for row in made.families) == made.opened.value
    for row in made.families:
        assert sum(count.value for count in row.by_state.values()) == row.total.value


@pytest.mark.parametrize(
    ("values", "median", "p90"),
    [
        ([], None, None),
        ([4.0], None, None),
        ([4.0, 6.0], None, None),
        ([4.0, 6.0, 5.0], 5.0, None),
        ([float(n) for n in range(1, 10)], 5.0, None),
        ([float(n) for n in range(1, 11)], 5.5, 9.0),
        ([float(n) for n in range(1, 101)], 50.5, 90.0),
    ],
)
def test_few_values_have_no_statistics(values: list[float], median: float | None, p90: float | None) -> None:
    made = times_of((f"inc-{number}", value) for number, value in enumerate(values))
    assert (made.count, made.median_s, made.p90_s) == (len(values), median, p90)
    assert (made.least_s, made.most_s) == ((min(values), max(values)) if values else (None, None))


def test_an_unknown_part_is_counted_and_never_zero() -> None:
    made = amount_of([("a", 1.5), ("b", None), ("c", 0.0)])
    assert (made.value, made.incidents, made.unknown) == (1.5, ("a", "c"), ("b",))
    assert count_of(["a", "b", "a"]).value == 2


def test_what_was_saved_is_against_this_clusters_own_median() -> None:
    """A test vector: three runs of 32 GPUs after 212 s each, people's median two hours; the nic's run was longer waited for."""
    saved = digest().gpu_hours_saved
    assert saved.by_people_s == 7200.0
    assert len(saved.by_people) == 3
    assert saved.value == pytest.approx(len(saved.incidents) * 32 * (7200 - 212) / 3600)


def test_without_three_incidents_of_people_nothing_is_said_to_be_saved() -> None:
    days = week()
    few = {name: one for name, one in days.incidents.items() if one.root.node not in ("gpu-31", "gpu-32")}
    saved = digest(incidents=few).gpu_hours_saved
    assert saved.value is None
    assert saved.why == "people ended 1 incident with stopped jobs in this time, and a median needs 3"


def test_a_gpu_that_moved_to_another_node_is_the_same_offender() -> None:
    found = {(one.kind, one.name): one for one in digest().repeat_offenders}
    assert found["gpu", "GPU-5f3a"].count == 3
    assert ("cable", "leaf-00 Ethernet7") in found
    assert ("node", "gpu-11") not in found


def test_earlier_incidents_count_as_the_correlator_remembers_them() -> None:
    (one,) = offenders_of([incident(facts={"repeats": 2})])
    assert (one.kind, one.count, one.earlier, one.interval.count) == ("gpu", 1, 2, 0)
    assert not offenders_of([incident(facts={})])


def test_several_parts_of_one_node_make_it_an_offender() -> None:
    roots = [Entity(CLUSTER, node="gpu-03", gpu=Gpu(index=number)) for number in (1, 2)]
    both = [incident(root, id=incident_id(CLUSTER, root, "gpu_off_bus", 1), facts={}) for root in roots]
    assert [(one.kind, one.name, one.count) for one in offenders_of(both)] == [("node", "gpu-03", 2)]


def test_a_wait_is_told_with_who_ended_it() -> None:
    (wait,) = digest().waits
    assert (wait.step, wait.by, wait.outcome) == ("reset", "ada (U024BE7LH)", "approved")
    assert digest().waited.count == 1


def test_what_people_overruled_leaves_out_what_ended_no_run() -> None:
    assert [(one.by, one.what) for one in digest().overruled] == [
        ("eve", "rejected by eve: it is being drained")
    ]


def test_shadow_mode_is_compared_with_what_people_did() -> None:
    shadow = digest().shadow
    assert shadow.by_agreement["same"].value == 3
    assert shadow.agreed_share == 1.0
    assert len(shadow.gpu_hours_saved.incidents) == 3


def test_an_empty_week_says_so() -> None:
    page = written(replace(week(), incidents={}, runs=[], timeline=[]), "md", SINCE, UNTIL)
    for words in (
        "Nothing broke more than once.",
        "Nothing waited for a person.",
        "No run was in shadow mode.",
    ):
        assert words in page


def test_hostile_names_are_text_in_a_digest() -> None:
    scene = hostile()
    days = replace(
        week(), incidents={scene.incident.id: scene.incident}, runs=scene.runs, timeline=scene.timeline[:1]
    )
    assert EVIL[:8] not in written(days, "html", SINCE, UNTIL)
    assert "<script" not in written(days, "html", SINCE, UNTIL)
    assert "\\<script\\>" in written(days, "md", SINCE, UNTIL)


def test_a_page_of_thousands_stays_readable_and_the_json_whole() -> None:
    roots = [Entity(CLUSTER, node=f"gpu-{number}") for number in range(3000)]
    many = [incident(root, id=incident_id(CLUSTER, root, "node_down", 1), facts={}) for root in roots]
    days = replace(week(), incidents={one.id: one for one in many}, runs=[], timeline=[])
    assert len(written(days, "md", SINCE, UNTIL)) < 100_000
    assert len(json.loads(written(days, "json", SINCE, UNTIL))["incidents"]) == 3000
    assert UNTIL - timedelta(days=1) > SINCE


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for kind in KINDS:
        (GOLDEN / f"week.{kind}").write_text(written(week(), kind, SINCE, UNTIL), encoding="utf-8")
