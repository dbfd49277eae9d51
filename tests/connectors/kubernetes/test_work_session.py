"""Where a session of diagnostics stands: decisions that need no server."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from connectors.base import Blocked, Refused
from connectors.diagnostics.reading import Limits
from connectors.kubernetes.client import Object
from connectors.kubernetes.node_work import waits_for_others
from connectors.kubernetes.work_diagnostics import Diagnostic, read_diagnostics
from connectors.kubernetes.work_session import Standing, result_of_session, session_job_name, standing
from connectors.kubernetes.work_templates import Template, bound
from streams.model.clock import parse_rfc3339
from streams.model.errors import ConfigError
from streams.model.facts import NodeWork
from streams.model.run import Target
from tests.connectors.kubernetes.node_jobs import a_template
from tests.connectors.objects import effect as effect_on

BEGAN = "2026-03-01T12:00:00Z"
NOW = parse_rfc3339(BEGAN) + timedelta(seconds=60)
EFFECT = effect_on("validate_node", Target("Node", "gpu-07", uid="uid-gpu-07"))
AVERAGE = "# Avg bus bandwidth    : {}\n"
TEMPLATE = Template("validate_node", a_template())
NCCL = Diagnostic("nccl", TEMPLATE, "nccl-tests", Limits(at_least={"busbw_avg_gb_s": 400}), 900)
BOTH = (Diagnostic("smoke", TEMPLATE), NCCL)


def a_job(diagnostic: Diagnostic, end: str | None = None, boot: str = "boot-1") -> Object:
    job = bound(diagnostic.template, EFFECT, "work", boot, session_job_name(EFFECT, diagnostic))
    job["metadata"]["creationTimestamp"] = BEGAN
    if end is not None:
        job["status"] = {
            "conditions": [{"type": end, "status": "True", "reason": "Because", "message": "of that"}]
        }
    return job


def a_pod(message: str = "", exit_code: int = 0) -> Object:
    ended = {"exitCode": exit_code, "message": message}
    return {"metadata": {"name": "p"}, "status": {"containerStatuses": [{"state": {"terminated": ended}}]}}


def a_node(boot: str = "boot-1") -> Object:
    return {"metadata": {"name": "gpu-07"}, "status": {"nodeInfo": {"bootID": boot}}}


def seen(jobs: dict[str, Object], pods: dict[str, list[Object]] | None = None, **other: Any) -> Standing:
    given = {"node": a_node(), "now": NOW, **other}
    return standing(BOTH, jobs, pods or {}, given["node"], given["now"])


def test_diagnostics_are_begun_one_after_the_other() -> None:
    assert seen({}).following is BOTH[0]
    running = seen({"smoke": a_job(BOTH[0])})
    assert (running.running, running.following, running.over) == (BOTH[0], None, "")
    done = seen({"smoke": a_job(BOTH[0], "Complete")}, {"smoke": [a_pod("fine")]})
    assert (done.running, done.following) == (None, NCCL)
    assert not done.passed


def both_ended(average: float) -> Standing:
    jobs = {"smoke": a_job(BOTH[0], "Complete"), "nccl": a_job(NCCL, "Complete")}
    return seen(jobs, {"smoke": [a_pod("fine")], "nccl": [a_pod(AVERAGE.format(average))]})


def test_the_session_has_passed_when_all_have_and_keeps_the_figures() -> None:
    found = both_ended(431.5)
    assert found.passed
    result = result_of_session(found)
    assert result["nccl.busbw_avg_gb_s"] == 431.5
    assert result["boot_id"] == "boot-1"
    assert result["diagnostics"] == ("smoke: passed, fine", "nccl: passed, busbw_avg_gb_s 431.5")


def test_a_job_that_completed_with_too_little_bandwidth_fails_the_session() -> None:
    found = both_ended(212)
    assert not found.passed
    assert "busbw_avg_gb_s is 212, at least 400 expected" in found.over


def test_after_a_failed_diagnostic_none_is_begun() -> None:
    found = seen({"smoke": a_job(BOTH[0], "Failed")}, {"smoke": [a_pod("no link", 2)]})
    assert found.following is None
    assert "exit code 2; no link" in found.over


def test_a_boot_in_between_ends_the_session() -> None:
    jobs = {"smoke": a_job(BOTH[0], "Complete")}
    assert "booted anew" in seen(jobs, {"smoke": [a_pod()]}, node=a_node("boot-2")).over
    assert "disappeared" in seen(jobs, {"smoke": [a_pod()]}, node=None).over
    jobs["nccl"] = a_job(NCCL, "Complete", "boot-2")
    pods = {"smoke": [a_pod()], "nccl": [a_pod(AVERAGE.format(450))]}
    assert not seen(jobs, pods, node=a_node("boot-2")).passed


def test_a_diagnostic_that_does_not_end_is_a_stalled_session() -> None:
    jobs = {"smoke": a_job(BOTH[0], "Complete"), "nccl": a_job(NCCL)}
    pods = {"smoke": [a_pod()]}
    assert seen(jobs, pods, now=parse_rfc3339(BEGAN) + timedelta(seconds=899)).over == ""
    late = seen(jobs, pods, now=parse_rfc3339(BEGAN) + timedelta(seconds=900))
    assert "nccl stalled" in late.over
    assert not late.passed


def test_a_result_that_went_with_its_pod_is_no_pass() -> None:
    assert "its pod is gone" in seen({"smoke": a_job(BOTH[0], "Complete")}).over


def test_a_job_past_its_deadline_says_so() -> None:
    assert "Because: of that" in seen({"smoke": a_job(BOTH[0], "Failed")}).over


def write(folder: Path, name: str, **content: Any) -> None:
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({"diagnostic": name, "job": a_template(), **content}))


def test_diagnostics_are_read_in_the_order_of_their_files(tmp_path: Path) -> None:
    write(tmp_path, "b-nccl", reads="nccl-tests", expect={"at_least": {"busbw_avg_gb_s": 400.0}, "gpus": 8})
    write(tmp_path, "a-smoke")
    found = read_diagnostics(tmp_path)
    assert [one.name for one in found] == ["a-smoke", "b-nccl"]
    assert found[1].limits == Limits({"busbw_avg_gb_s": 400.0}, gpus=8)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"reads": "tea-leaves"}, "tea-leaves is not known"),
        ({"expect": {"gpus": 8}}, "an exit code has no figures"),
        ({"expect": {"atleast": {}}}, "expect.atleast"),
        ({"diagnostic": "../etc"}, "diagnostic"),
        ({"job": {"kind": "Pod"}}, "job.kind: must be Job"),
        (
            {
                "stall_s": 100,
                "job": a_template() | {"spec": a_template()["spec"] | {"activeDeadlineSeconds": 600}},
            },
            "stall_s",
        ),
    ],
)
def test_a_diagnostic_that_cannot_work_is_refused_at_the_start(
    tmp_path: Path, content: Any, said: str
) -> None:
    write(tmp_path, "one", **content)
    with pytest.raises(ConfigError, match=said):
        read_diagnostics(tmp_path)


def test_an_empty_folder_is_no_session(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="has 0 diagnostics"):
        read_diagnostics(tmp_path)


def test_somebody_elses_work_is_waited_for_and_named_when_it_does_not_end() -> None:
    work = NodeWork("NVSentinel", "dgxc.nvidia.com/nvsentinel-state")
    assert waits_for_others(None, EFFECT, NOW, 600) is None
    first = waits_for_others(work, EFFECT, NOW, 600)
    assert isinstance(first, Blocked)
    assert not first.by_person
    again = effect_on("validate_node", EFFECT.target)
    again = type(again)(**{name: getattr(again, name) for name in again.__slots__} | {"prior": first.result})
    assert isinstance(waits_for_others(work, again, NOW + timedelta(seconds=599), 600), Blocked)
    late = waits_for_others(work, again, NOW + timedelta(seconds=600), 600)
    assert isinstance(late, Refused)
    assert "NVSentinel works on gpu-07" in late.reason


def test_the_shipped_diagnostics_are_a_session() -> None:
    shipped = Path(__file__).parents[3] / "k8s" / "components" / "diagnostics"
    assert [one.name for one in read_diagnostics(shipped / "session")] == ["dcgm", "nccl-loopback"]
    generated = yaml.safe_load((shipped / "kustomization.yaml").read_text())["configMapGenerator"][0]["files"]
    assert sorted(shipped / name for name in generated) == sorted((shipped / "session").glob("*.yaml"))
