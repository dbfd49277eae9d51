"""A job kind that is not served is logged until it is."""

from __future__ import annotations

from structlog.testing import capture_logs

from streams.inventory.unserved_kinds import NOT_PERMITTED, REMIND_S, Unserved
from streams.model.pulse import Pulse
from streams.model.watch import KindListed
from tests.streams.inventory.objects import AT

JOBSET, PYTORCH = "jobset.x-k8s.io/v1alpha2/JobSet", "kubeflow.org/v1/PyTorchJob"


def missing(kind: str) -> KindListed:
    return KindListed(AT, kind, None, served=False)


def test_a_kind_that_was_asked_for_is_warned_of_at_once_and_again_until_it_is_served() -> None:
    pulse = Pulse()
    unserved = Unserved([JOBSET], pulse)
    with capture_logs() as lines:
        for minute in range(21):  # the server is asked every minute
            unserved.update(missing(JOBSET))
            unserved.remind(minute * 60.0)
    assert [(line["log_level"], line["kinds"]) for line in lines] == [("warning", [JOBSET])] * 3
    assert REMIND_S == 600
    assert pulse.states == {"kinds_not_served": [JOBSET]}
    with capture_logs() as lines:
        unserved.update(KindListed(AT, JOBSET, frozenset()))
        unserved.remind(3600.0)
    assert [(line["log_level"], line["kind"]) for line in lines] == [("info", JOBSET)]
    assert pulse.states == {}


def test_a_kind_that_is_watched_by_default_is_told_once_and_is_no_warning() -> None:
    unserved = Unserved([], Pulse())
    with capture_logs() as lines:
        for minute in range(60):
            unserved.update(missing(PYTORCH))
            unserved.remind(minute * 60.0)
    assert [(line["log_level"], line["kinds"]) for line in lines] == [("info", [PYTORCH])]


def test_a_kind_that_vanishes_later_is_warned_of_without_waiting_for_the_next_reminder() -> None:
    unserved = Unserved([JOBSET, PYTORCH], Pulse())
    with capture_logs() as lines:
        unserved.update(missing(JOBSET))
        unserved.remind(0.0)
        unserved.update(KindListed(AT, PYTORCH, frozenset()))
        unserved.update(missing(PYTORCH))
        unserved.remind(1.0)
    assert [line["kinds"] for line in lines] == [[JOBSET], [JOBSET, PYTORCH]]


def forbidden(kind: str) -> KindListed:
    return KindListed(AT, kind, None, permitted=False)


def test_a_kind_that_may_not_be_listed_is_told_once_with_what_to_apply_and_is_no_part_of_ready() -> None:
    pulse = Pulse()
    unserved = Unserved([], pulse)
    with capture_logs() as lines:
        for minute in range(60):
            unserved.update(forbidden(JOBSET))
            unserved.remind(minute * 60.0)
    assert lines == [
        {
            "log_level": "info",
            "event": NOT_PERMITTED,
            "kind": JOBSET,
            "remedy": "apply k8s/components/jobs-jobset",
        }
    ]
    assert pulse.states == {}


def test_a_kind_that_was_asked_for_and_may_not_be_listed_is_warned_of_and_stands_in_ready() -> None:
    pulse = Pulse()
    unserved = Unserved([JOBSET], pulse)
    with capture_logs() as lines:
        for minute in range(21):
            unserved.update(forbidden(JOBSET))
            unserved.remind(minute * 60.0)
    assert [(line["log_level"], line["kind"]) for line in lines] == [("warning", JOBSET)] * 3
    assert pulse.states == {"kinds_not_permitted": [JOBSET]}


def test_that_a_kind_is_installed_now_but_not_permitted_is_told_of_anew() -> None:
    unserved = Unserved([], Pulse())
    with capture_logs() as lines:
        for seen in (missing(JOBSET), forbidden(JOBSET), KindListed(AT, JOBSET, frozenset())):
            unserved.update(seen)
            unserved.remind(0.0)
    assert [line["event"].partition(",")[0] for line in lines] == [
        "job kinds not installed here",
        "jobs of this kind are not watched: not permitted",
        "job kind now available",
    ]
