from dataclasses import replace

import pytest

from faultline.replay.what_if.budget import KEYS, exceeded, read_budget, spent
from faultline.replay.what_if.summary import Hours, Moved, Summary
from streams.model.errors import BadInput

NOTHING = Moved(4, 0, 0)
SUMMARY = Summary(
    same=4, incidents=NOTHING, culprits=0, certainties=0, impacts=0, runbooks=0, modes=0, steps=0, verdicts=0,
    actions=NOTHING, approvals=NOTHING, cordons=NOTHING, tickets=NOTHING, pages=NOTHING, gpu_hours=Hours(10, 10, 0),
)  # fmt: skip


def test_every_figure_of_the_summary_can_have_a_budget() -> None:
    assert set(KEYS) == set(Summary.__slots__) - {"same"}
    assert [spent(SUMMARY, key) for key in KEYS] == [0.0] * len(KEYS)


def test_a_budget_is_exceeded_by_more_and_not_by_as_much() -> None:
    summary = replace(SUMMARY, culprits=2, cordons=Moved(4, 1, 3), gpu_hours=Hours(10, 22.5, 1))
    assert exceeded(summary, {"culprits": 2, "cordons": 1, "gpu_hours": 12.5}) == ()
    found = exceeded(summary, {"gpu_hours": 12, "cordons": 0, "culprits": 1})
    assert list(map(str, found)) == [
        "incidents with another culprit: 2, budget 1",
        "nodes more that are closed without asking: 1, budget 0",
        "GPU-hours more: 12.5, budget 12",
    ]


def test_what_is_saved_takes_nothing_of_a_budget_but_a_lost_incident_does() -> None:
    summary = replace(SUMMARY, pages=Moved(4, 0, 2), gpu_hours=Hours(10, 2, 0), incidents=Moved(4, 0, 1))
    assert (spent(summary, "pages"), spent(summary, "gpu_hours"), spent(summary, "incidents")) == (0, 0, 1)


def test_budgets_are_read_from_one_text_or_several() -> None:
    assert read_budget(("cordons=0,pages=2", "gpu_hours=1.5")) == {"cordons": 0, "pages": 2, "gpu_hours": 1.5}


def test_every_wrong_budget_is_named() -> None:
    with pytest.raises(BadInput) as error:
        read_budget(("cordon=1,pages=many,tickets=-1,pages=nan",))
    assert str(error.value).splitlines()[1:] == [
        "  cordon=1: there is no budget cordon; did you mean cordons?",
        "  pages=many: expected pages=NUMBER, 0 or more",
        "  tickets=-1: expected tickets=NUMBER, 0 or more",
        "  pages=nan: expected pages=NUMBER, 0 or more",
    ]
