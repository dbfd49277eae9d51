"""Which connector an effect goes to, and what is never handed to Slurm's commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from connectors.base import (
    Absent,
    AlreadyDone,
    Blocked,
    Connector,
    Effect,
    LeaseHeld,
    NoLease,
    Outcome,
    Refused,
    Retry,
    Waiting,
)
from connectors.http import Rejected
from connectors.slurm.api import JobUpdate, Missing
from connectors.slurm.commands import Commands
from connectors.slurm.connector import Slurm, beside
from runbooks.engine.run.plan import plan
from runbooks.language.schema import NODE_WORK
from streams.inventory.cluster_view import ClusterView
from streams.inventory.slurm import SlurmFacts
from streams.model.entity import Entity
from streams.model.errors import Temporary
from streams.model.run import Mode, Target
from streams.model.slurm_marks import JobMark
from tests.connectors.slurm.worlds import on_job, on_node
from tests.runbooks.scenes import LIBRARY, NOW, incident


class Kube:
    """A connector that remembers what it was given."""

    actions = frozenset({"cordon_node", "reset_gpu"})

    def __init__(self) -> None:
        self.given: list[str] = []

    async def apply(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        self.given.append(effect.target.name)
        return AlreadyDone()

    async def lookup(self, effect: Effect) -> Outcome:
        return AlreadyDone()

    async def undo(self, effect: Effect, lease: LeaseHeld) -> Outcome:
        return AlreadyDone()

    async def close(self) -> None: ...


def both(tmp_path: Path) -> tuple[Kube, dict[str, Connector]]:
    kube = Kube()
    found = beside(Slurm(Commands(tmp_path)), [kube])
    return kube, {action: one for one in found for action in one.actions}


async def test_a_target_goes_to_whoever_knows_it(tmp_path: Path) -> None:
    kube, by_action = both(tmp_path)
    node = Effect("k", "cordon_node", Target("Node", "kube-1", uid="u1"), "c1", "inc-1", "run-1", "s")
    assert isinstance(await by_action["cordon_node"].apply(node, NoLease()), AlreadyDone)
    assert kube.given == ["kube-1"]
    away = await by_action["cordon_node"].apply(on_node("cordon_node", "gpu-1"), NoLease())
    assert isinstance(away, Retry)  # there are no commands in that folder
    assert isinstance(await by_action["suspend_job"].apply(on_job("suspend_job", 1), NoLease()), Retry)
    assert kube.given == ["kube-1"]


async def test_work_that_only_kubernetes_can_do_is_refused_on_slurms_nodes(tmp_path: Path) -> None:
    kube, by_action = both(tmp_path)
    reset = on_node("reset_gpu", "gpu-1")
    assert isinstance(await by_action["reset_gpu"].apply(reset, NoLease()), Refused)
    assert isinstance(await by_action["reset_gpu"].lookup(reset), Absent)
    assert isinstance(await by_action["reset_gpu"].undo(reset, NoLease()), Refused)
    assert kube.given == []


@pytest.mark.parametrize("name", ["gpu-[1-9]", "gpu-1,gpu-2", "ALL gpu-1", "-n", "", "gpu-1\nState=DOWN"])
async def test_a_name_that_could_mean_more_than_a_node_is_no_argument(tmp_path: Path, name: str) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\ntouch {ran}\n")
    (tmp_path / "scontrol").chmod(0o755)
    commands = Commands(tmp_path)
    with pytest.raises(Rejected):
        await commands.drain(name, "why", "", NoLease())
    with pytest.raises(Rejected):
        await commands.update_job(1, JobUpdate(excluded=[name]), NoLease())
    assert not ran.exists()


@pytest.mark.parametrize("says", ["", "[]", "{}", '{"nodes": {}}', "not json"])
async def test_an_answer_that_is_not_slurms_is_no_empty_cluster(tmp_path: Path, says: str) -> None:
    for program in ("scontrol", "sinfo", "squeue"):
        (tmp_path / program).write_text(f"#!/bin/sh\ncat <<'E'\n{says}\nE\n")
        (tmp_path / program).chmod(0o755)
    with pytest.raises(Temporary):
        await Commands(tmp_path).nodes()
    with pytest.raises(Temporary):
        await Commands(tmp_path).jobs()


def test_a_plan_on_a_node_of_slurm_promises_no_work_that_only_kubernetes_can_do() -> None:
    view = ClusterView("c1")
    record = {"name": "gpu-1", "state": "allocated", "partitions": ["train"], "gres": "gpu:8"}
    for fact in SlurmFacts("c1")([record], [], NOW):
        view.put(fact)
    runbook = next(book for book in LIBRARY if book.id == "gpu-off-bus")
    about = incident(root=Entity("c1", node="gpu-1"), jobs=(), nodes=("gpu-1",))
    made = plan(about, runbook, view, Mode.AUTO, Slurm.actions | NODE_WORK)
    assert not {step.action for step in made.steps} & {*NODE_WORK, "uncordon_node"}
    assert any("this one is Slurm's" in why for why in made.left_out)


def told(folder: Path, job: dict[str, object]) -> Slurm:
    """A cluster of one drained, busy node, with this job."""
    node = {"name": "gpu-1", "state": "mixed", "state_flags": ["DRAIN"], "gres": "gpu:8"}
    for program, says in (("squeue", {"jobs": [job]}), ("scontrol", {"nodes": [node]})):
        (folder / program).write_text(f"#!/bin/sh\ncat <<'E'\n{json.dumps(says)}\nE\n")
        (folder / program).chmod(0o755)
    return Slurm(Commands(folder))


RUNNING = {"job_id": 7, "job_state": "RUNNING", "name": "llm", "tres_alloc_str": "gres/gpu=8"}


@pytest.mark.parametrize(("nodes", "says"), [("gpu-[1", "cannot be read"), ("", "does not say where")])
async def test_a_job_is_not_said_to_run_well_on_nodes_that_nobody_can_name(
    tmp_path: Path, nodes: str, says: str
) -> None:
    seen = await told(tmp_path, {**RUNNING, "nodes": nodes}).apply(on_job("verify_job", 7), NoLease())
    assert isinstance(seen, Waiting)
    assert says in seen.detail


async def test_a_job_whose_nodes_cannot_be_read_keeps_a_node_from_being_empty(tmp_path: Path) -> None:
    slurm = told(tmp_path, {**RUNNING, "nodes": "gpu-[1"})
    drained = await slurm.apply(on_node("drain_node", "gpu-1", only="all"), NoLease())
    assert isinstance(drained, Blocked)
    assert "job 7 still on gpu-1" in drained.reason


async def test_exclusions_that_cannot_be_read_are_never_overwritten(tmp_path: Path) -> None:
    mark = JobMark("inc-1", "key", 0).comment("")
    held = {**RUNNING, "job_state": "PENDING", "state_reason": "JobHeldUser", "priority": 0}
    job = {**held, "excluded_nodes": "gpu-[2", "admin_comment": mark}
    refused = await told(tmp_path, job).apply(on_job("resume_job", 7, avoid="gpu-1"), NoLease())
    assert isinstance(refused, Refused)
    assert "cannot be read" in refused.reason


ONE_NODE = """#!/bin/sh
echo "$*" >> {log}
case "$*" in
"show node gpu-2 --json") echo '{{"nodes": [{{"name": "gpu-2", "state": "idle"}}]}}' ;;
"show node gpu-9 --json") echo "Node gpu-9 not found"; exit 1 ;;
"show nodes --json") echo '{{"nodes": [{{"name": "gpu-1"}}, {{"name": "gpu-2"}}, {{"name": "gpu-[3"}}]}}' ;;
*) exit 2 ;;
esac
"""


async def test_of_one_node_only_that_one_is_read_where_scontrol_writes_json(tmp_path: Path) -> None:
    log = tmp_path / "log"
    (tmp_path / "scontrol").write_text(ONE_NODE.format(log=log))
    (tmp_path / "scontrol").chmod(0o755)
    commands = Commands(tmp_path)
    assert (await commands.node("gpu-2"))["state"] == "idle"
    assert log.read_text().splitlines() == ["show node gpu-2 --json"]
    with pytest.raises(Missing):
        await commands.node("gpu-9")
    log.unlink()
    # A name that could mean several nodes is no argument.
    assert (await commands.node("gpu-[3"))["name"] == "gpu-[3"
    assert log.read_text().splitlines() == ["show nodes --json"]


async def test_before_scontrol_wrote_json_a_node_is_read_among_all(tmp_path: Path) -> None:
    log, says = tmp_path / "log", '{"nodes": [{"name": "gpu-1"}, {"name": "gpu-2"}]}'
    for program, body in (
        ("scontrol", "echo \"scontrol: unrecognized option '--json'\" >&2; exit 1"),
        ("sinfo", f"echo '{says}'"),
    ):
        (tmp_path / program).write_text(f"#!/bin/sh\necho {program} >> {log}\n{body}\n")
        (tmp_path / program).chmod(0o755)
    commands = Commands(tmp_path)
    for name in ("gpu-1", "gpu-2"):
        assert (await commands.node(name))["name"] == name
    assert log.read_text().splitlines()[-2:] == ["sinfo", "sinfo"], "scontrol is not asked again"
