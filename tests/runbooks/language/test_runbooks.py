"""Runbook files, their errors, which one is taken, and what is planned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from runbooks.engine.run.plan import plan
from runbooks.language.loader import load, load_text
from runbooks.language.schema import DESTRUCTIVE, Runbook
from runbooks.language.select import select
from streams.correlate.policy.families import families
from streams.model.entity import Entity, JobRef
from streams.model.errors import ConfigError
from streams.model.run import Mode
from tests.runbooks.scenes import CLUSTER, JOB, LIBRARY, OTHER_JOB, cluster, incident

GOOD = """\
id: test-book
revision: 1
owner: team
mode: auto
description: something to test with
match: incident.family == "x"
steps:
  - id: cordon
    action: cordon_node
    target: root_node
    undo: true
  - id: suspend
    action: suspend_job
    target: jobs
    needs: [cordon]
"""

BROKEN = {
    "unknown key": (GOOD.replace("owner:", "ownr:"), "book.yaml:3:1: ownr: there is no such key"),
    "unknown key of a step": (
        GOOD.replace("    undo:", "    undoo:"),
        "book.yaml:11:5: steps.0.undoo: there is",
    ),
    "unknown action": (GOOD.replace("cordon_node", "reboot"), "book.yaml:9:13: steps.0.action:"),
    "bad CEL": (GOOD.replace('== "x"', "=="), "book.yaml:6:25: match: not CEL: it ends too early"),
    "CEL too long": (
        GOOD.replace('"x"', '"' + "x" * 700 + '"'),
        "book.yaml:6:8: match: an expression of 7",
    ),
    "nested macros": (
        GOOD.replace('incident.family == "x"', '"[1].all(a, [2].all(b, [3].all(c, true)))"'),
        "book.yaml:6:35: match: more than one macro",
    ),
    "job before its node is closed": (
        GOOD.replace("needs: [cordon]", "needs: []"),
        "book.yaml:15:12: steps.1.needs:",
    ),
    "need that is none": (GOOD.replace("[cordon]", "[cord]"), "book.yaml:15:12: steps.1.needs:"),
    "twice the same step": (GOOD.replace("id: suspend", "id: cordon"), "book.yaml:12:9: steps.1.id:"),
    "no YAML": (GOOD + "  - {", "book.yaml:16:6: not YAML"),
    "key twice": (GOOD + "revision: 2\n", "book.yaml:16:1: revision: the key is used twice"),
    "alias": (GOOD.replace("team", "&a team") + "x: *a\n", "book.yaml:3:8: anchors and aliases"),
    "tag that builds an object": (
        GOOD.replace("team", "!!python/name:os.system"),
        "book.yaml:3:8: could not",
    ),
    "not a mapping": ("- 1\n", "book.yaml:1:1: the top level"),
    "empty": ("", "book.yaml:1:1: the top level"),
    "too long": (GOOD + "#" * 70_000, "book.yaml:1:1: longer than"),
    "undo of what cannot be undone": (
        GOOD.replace("action: cordon_node", "action: notify").replace("needs: [cordon]", "needs: []"),
        "book.yaml:11:11: steps.0.undo: notify cannot be undone",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_fault_is_named_with_its_place(name: str) -> None:
    text, message = BROKEN[name]
    with pytest.raises(ConfigError) as error:
        load_text(text, "book.yaml")
    assert message in str(error.value)


def test_a_good_one_loads() -> None:
    assert [s.id for s in load_text(GOOD, "book.yaml").steps] == ["cordon", "suspend"]


def test_own_runbooks_stand_beside_the_shipped_ones_and_an_id_is_there_once(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(GOOD)
    assert {r.id for r in load([tmp_path])} == {r.id for r in LIBRARY} | {"test-book"}
    (tmp_path / "again.yaml").write_text(GOOD)
    with pytest.raises(ConfigError, match="test-book is also in"):
        load([tmp_path])
    with pytest.raises(ConfigError, match="is not a directory"):
        load([tmp_path / "none"])


def test_a_file_that_is_no_text_is_one_fault_among_the_others(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "later.yaml").write_text("id: later\n")
    with pytest.raises(ConfigError) as error:
        load([tmp_path])
    assert f"{tmp_path / 'binary.yaml'}:1:1: cannot be read" in str(error.value)
    assert f"{tmp_path / 'later.yaml'}:1:1: revision" in str(error.value)


@pytest.mark.parametrize("runbook", LIBRARY, ids=lambda r: r.id)
def test_a_shipped_runbook_says_what_it_is_for_and_gives_back_what_it_takes(runbook: Runbook) -> None:
    assert len(runbook.description) > 60
    actions = [step.action for step in runbook.steps]
    assert actions.count("suspend_job") == actions.count("resume_job")
    for step in runbook.steps:
        assert step.describe or step.action not in DESTRUCTIVE
        assert step.undo or step.action not in ("cordon_node", "suspend_job")
        assert step.on_failure == "continue" or step.action not in ("open_ticket", "drain_node")


@pytest.mark.parametrize(
    ("family", "root", "taken"),
    [
        ("gpu_off_bus", Entity(CLUSTER, node="n"), "gpu-off-bus"),
        ("gpu_off_bus", Entity(CLUSTER), "unknown"),
        ("gpu_memory", Entity(CLUSTER, node="n"), "gpu-memory"),
        ("gpu_fault", Entity(CLUSTER, node="n"), "gpu-fault"),
        ("gpu_nvlink", Entity(CLUSTER, node="n"), "gpu-nvlink"),
        ("silent_node", Entity(CLUSTER, node="n"), "silent-node"),
        ("node_down", Entity(CLUSTER, node="n"), "node-down"),
        ("pfc_storm", Entity(CLUSTER, node="n", nic="mlx5_0"), "pfc-storm-host"),
        ("pfc_storm", Entity(CLUSTER, switch="s", port="p"), "pfc-storm-fabric"),
        ("pfc_storm", Entity(CLUSTER, switch="s"), "pfc-storm-switch"),
        ("application", Entity(CLUSTER, job=JOB), "application"),
        ("hang", Entity(CLUSTER, job=JOB), "hang"),
        ("unknown", Entity(CLUSTER, node="n"), "unknown"),
        ("power_cooling", Entity(CLUSTER, rack="r1"), "power-cooling"),
        ("power_cooling", Entity(CLUSTER, node="n"), "power-cooling"),
        ("host_fault", Entity(CLUSTER, node="n"), "host-fault"),
        ("storage_fault", Entity(CLUSTER, storage="lfs1-OST0001"), "storage-fault"),
        ("platform_fault", Entity(CLUSTER, job=JOB), "platform-fault"),
        ("preemption", Entity(CLUSTER, node="n"), "preemption"),
        ("straggler", Entity(CLUSTER, node="n"), "straggler"),
        ("nic_link", Entity(CLUSTER, node="n", nic="mlx5_0"), "nic-link"),
        ("fabric_fault", Entity(CLUSTER, switch="leaf-1"), "fabric-fault"),
    ],
)
def test_the_right_runbook_is_taken_and_the_others_say_why_not(family: str, root: Entity, taken: str) -> None:
    choice = select(incident(family, root), LIBRARY)
    assert choice.runbook is not None
    assert choice.runbook.id == taken
    assert {name for name, _ in choice.rejected} == {r.id for r in LIBRARY} - {taken}
    assert all(why for _, why in choice.rejected)
    assert choice == select(incident(family, root), tuple(reversed(LIBRARY)))


@pytest.mark.parametrize("family", sorted(families().families))
def test_every_family_that_correlation_knows_has_a_runbook(family: str) -> None:
    roots = (
        Entity(CLUSTER, node="n"),
        Entity(CLUSTER, job=JOB),
        Entity(CLUSTER, node="n", nic="mlx5_0"),
        Entity(CLUSTER, switch="s", port="p"),
    )
    taken = [
        choice.runbook.id for root in roots if (choice := select(incident(family, root), LIBRARY)).runbook
    ]
    assert family == "unknown" or set(taken) - {"unknown"}


@pytest.mark.parametrize(
    "name",
    [
        "power-cooling",
        "host-fault",
        "storage-fault",
        "platform-fault",
        "preemption",
        "straggler",
        "nic-link",
        "fabric-fault",
    ],
)
def test_a_fault_that_is_not_surely_the_nodes_closes_no_node(name: str) -> None:
    (book,) = (r for r in LIBRARY if r.id == name)
    assert not {step.action for step in book.steps} & DESTRUCTIVE
    assert book.steps[-1].action == ("notify" if name == "straggler" else "ask")


def test_a_runbook_of_the_same_priority_loses_by_its_id() -> None:
    one = load_text(GOOD, "a.yaml")
    two = one.model_copy(update={"id": "test-aook"})
    choice = select(incident("x"), (one, two))
    assert choice.runbook is two
    assert choice.rejected == (("test-book", "as specific as test-aook, whose id comes first"),)


def bound(about: object = None, mode: Mode = Mode.AUTO, book: str = "gpu-off-bus") -> object:
    runbook = next(r for r in LIBRARY if r.id == book)
    return plan(about or incident(jobs=(JOB, OTHER_JOB)), runbook, cluster(), mode)  # type: ignore[arg-type]


def test_the_same_input_gives_the_same_plan_whatever_the_order_of_jobs() -> None:
    assert bound() == bound(incident(jobs=(OTHER_JOB, JOB, JOB)))


def test_the_digest_covers_targets_mode_and_parameters() -> None:
    plans = [bound(), bound(mode=Mode.APPROVE), bound(incident(jobs=(JOB,))), bound(incident())]
    assert len({p.digest for p in plans}) == 3  # type: ignore[attr-defined]


def test_a_step_over_several_jobs_becomes_one_per_job_and_each_waits_for_its_own() -> None:
    steps = {s.id: s for s in bound().steps}  # type: ignore[attr-defined]
    llm, evaluation = "PyTorchJob/research/llm", "Job/research/eval"
    assert steps[f"suspend:{llm}"].needs == ("cordon",)
    assert steps["drain"].needs == ("cordon", f"suspend:{evaluation}", f"suspend:{llm}")
    assert steps[f"resume:{llm}"].needs == ("drain", f"suspend:{llm}")
    assert steps[f"suspend:{llm}"].target.uid == "uid-llm"
    assert steps["cordon"].target.uid == "uid-3"


def test_a_job_that_has_finished_well_is_left_alone() -> None:
    view = cluster()
    view.put(replace(view.jobs[JOB.key], finished=True))
    runbook = next(r for r in LIBRARY if r.id == "gpu-off-bus")
    assert [s.id for s in plan(incident(), runbook, view, Mode.AUTO).steps] == ["ticket", "cordon", "drain"]


def test_a_service_with_a_gpu_on_the_node_is_moved_by_the_drain_and_not_suspended() -> None:
    service = JobRef("ReplicaSet", "serving", "chat", "uid-chat")
    assert bound(incident(jobs=(JOB, service))).steps == bound(incident()).steps  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("ceiling", "own", "mode"),
    [
        (Mode.AUTO, Mode.AUTO, Mode.AUTO),
        (Mode.SHADOW, Mode.AUTO, Mode.SHADOW),
        (Mode.AUTO, Mode.APPROVE, Mode.APPROVE),
        (Mode.APPROVE, Mode.SHADOW, Mode.SHADOW),
    ],
)
def test_the_stricter_mode_wins(ceiling: Mode, own: Mode, mode: Mode) -> None:
    runbook = load_text(GOOD, "book.yaml").model_copy(update={"mode": own})
    assert plan(incident("x"), runbook, cluster(), ceiling).mode is mode


IN_BETWEEN = """\
id: ours
revision: 1
owner: team
mode: auto
description: something stands between the cordon and the job
match: incident.family == "gpu_off_bus"
steps:
  - {id: cordon, action: cordon_node, target: root_node%s}
  - {id: tell, action: notify, target: incident, needs: [cordon], when: incident.flaps > 5}
  - {id: suspend, action: suspend_job, target: jobs, needs: [tell]}
  - {id: drain, action: drain_node, target: root_node, needs: [suspend]}
"""


@pytest.mark.parametrize("jobs", [(JOB,), ()])
def test_what_stands_behind_a_step_that_is_left_out_still_waits_for_the_node_to_be_closed(
    jobs: tuple[JobRef, ...],
) -> None:
    bound = plan(incident(jobs=jobs), load_text(IN_BETWEEN % "", "ours.yaml"), cluster(), Mode.AUTO)
    needs = {step.id.split(":")[0]: [need.split(":")[0] for need in step.needs] for step in bound.steps}
    if jobs:
        assert needs == {"cordon": [], "suspend": ["cordon"], "drain": ["suspend"]}
    else:
        assert needs == {"cordon": [], "drain": ["cordon"]}


def test_a_plan_that_would_stop_a_job_without_closing_its_node_is_refused() -> None:
    book = load_text(IN_BETWEEN % ", when: incident.flaps > 5", "ours.yaml")
    with pytest.raises(ValueError, match="before any node is cordoned"):
        plan(incident(), book, cluster(), Mode.AUTO)
