"""Every row of the metric rules tells its stories and leaves its look-alikes alone."""

from __future__ import annotations

import pytest

from streams.detect.catalog import FOLDER
from streams.detect.metrics import MetricRow, MetricRules, sheet
from streams.detect.metrics.rule_rows import FILES, Story
from tests.streams.detect.stories import said, samples

RULES = MetricRules()
STORIES = [
    pytest.param(row, story, id=f"{row.id}-{number}")
    for row in sheet().rows
    for number, story in enumerate(row.stories)
]
LOOK_ALIKES = [
    pytest.param(row, story, id=f"{row.id}: {story.why}") for row in sheet().rows for story in row.look_alikes
]


@pytest.mark.parametrize(("row", "story"), STORIES)
def test_a_row_tells_its_story(row: MetricRow, story: Story) -> None:
    told = said(RULES, samples(row, story))
    assert [(one.finding.state, one.after) for one in told] == [(t.state, t.after) for t in story.expect]
    for one, expected in zip(told, story.expect, strict=True):
        finding = one.finding
        assert (finding.kind, finding.severity) == (row.kind, row.severity)
        wanted = {**row.attributes, **expected.attributes}
        assert {name: finding.attributes.get(name) for name in wanted} == wanted


@pytest.mark.parametrize(("row", "story"), LOOK_ALIKES)
def test_a_row_leaves_its_look_alikes_alone(row: MetricRow, story: Story) -> None:
    assert not said(RULES, samples(row, story))


def test_every_file_of_the_catalog_is_read() -> None:
    assert sorted(FILES) == sorted(path.stem for path in (FOLDER / "metrics").iterdir())
