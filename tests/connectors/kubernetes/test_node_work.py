"""What a Job on a node is made of, when it may be made, and what it came to: decisions that need no server."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from connectors.base import AlreadyDone, Blocked, Done, Effect, Refused, Waiting
from connectors.kubernetes.annotations import EFFECT, INCIDENT, MANAGED, NODE_WORK
from connectors.kubernetes.client import Object
from connectors.kubernetes.cordon_ownership import cordon
from connectors.kubernetes.node_work import may_work, read_templates
from connectors.kubernetes.work_results import MAX_WORDS, REBOOT_GRACE_S, judged, judged_reboot
from connectors.kubernetes.work_templates import MAX_VALUE, Template, bound, job_name, read_template
from streams.config.connector_settings import NodeWorkSettings
from streams.model.clock import parse_rfc3339, rfc3339
from streams.model.errors import ConfigError
from streams.model.run import Target
from tests.connectors.kubernetes.node_jobs import a_template
from tests.connectors.objects import effect as effect_on
from tests.connectors.objects import made, node, pod

NODE = Target("Node", "gpu-07", uid="uid-gpu-07")
FAILED_AT = "2026-03-01T12:00:00Z"


def effect(action: str = "reset_gpu", **changes: Any) -> Effect:
    made = effect_on(action, NODE)
    return Effect(**{**{name: getattr(made, name) for name in made.__slots__}, **changes})


def a_node(boot: str = "boot-1", *, ready: bool = True) -> Object:
    """A node that incident 1 has closed."""
    open_node = node("gpu-07", ready=ready)
    open_node["status"]["nodeInfo"] = {"bootID": boot}
    return made(open_node, cordon(open_node, effect_on("cordon_node", NODE)))


def a_job(about: Effect, end: str | None = None, boot: str = "boot-1") -> Object:
    job = bound(Template(about.action, a_template()), about, "work", boot)
    if end is not None:
        condition = {"type": end, "status": "True", "reason": "Because", "message": "of that"}
        job["status"] = {"conditions": [condition | {"lastTransitionTime": FAILED_AT}]}
    return job


def a_pod(exit_code: int, message: str = "") -> Object:
    ended = {"exitCode": exit_code, "message": message}
    status = {"phase": "Failed", "containerStatuses": [{"state": {"terminated": ended}}]}
    return {"metadata": {"name": "work-x", "namespace": "work"}, "spec": {}, "status": status}


def env_of(job: Object) -> dict[str, str]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return {variable["name"]: variable["value"] for variable in container["env"]}


def test_the_job_is_pinned_to_its_node_tried_once_and_says_what_it_is_for() -> None:
    about = effect()
    job = a_job(about)
    inside = job["spec"]["template"]["spec"]
    (term,) = inside["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
        "nodeSelectorTerms"
    ]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["gpu-07"]}]}
    assert inside["restartPolicy"] == "Never"
    assert (job["spec"]["backoffLimit"], job["spec"]["parallelism"], job["spec"]["completions"]) == (0, 1, 1)
    assert INCIDENT in [toleration["key"] for toleration in inside["tolerations"]]
    for thing in (job, job["spec"]["template"]):
        assert thing["metadata"]["annotations"][INCIDENT] == "inc-1"
        assert thing["metadata"]["annotations"][EFFECT] == "key-1"
        assert thing["metadata"]["labels"][NODE_WORK] == "reset_gpu"
    assert job["metadata"]["name"] == job_name(about)
    assert job_name(about) != job_name(effect(key="key-2"))
    assert len(job_name(effect(key="k" * 500))) <= 63


def test_what_is_known_of_the_incident_is_plain_data_and_never_part_of_a_command() -> None:
    hostile = "$(rm -rf /); `id` \x1b[31m\n" + "x" * 10_000
    about = effect(
        context={"gpu_pci": "0000:9d:00", "gpu_uuid": hostile}, params={"run-level": hostile, "level": 3}
    )
    job = a_job(about)
    told = env_of(job)
    assert told["FAULTLINE_GPU_PCI"] == "0000:9d:00"
    assert told["FAULTLINE_PARAM_LEVEL"] == "3"
    assert told["FAULTLINE_NODE"] == "gpu-07"
    assert told["FAULTLINE_BOOT_ID"] == "boot-1"
    for name in ("FAULTLINE_GPU_UUID", "FAULTLINE_PARAM_RUN_LEVEL"):
        # Kubernetes expands $(NAME) in values and takes $$ for a plain dollar.
        assert told[name].startswith("$$(rm -rf /); `id` ")
        assert told[name].isprintable()
        assert len(told[name]) <= MAX_VALUE + 1
    template = a_template()
    (before,), (after,) = (j["spec"]["template"]["spec"]["containers"] for j in (template, job))
    assert {name: after[name] for name in before} == before


def test_what_the_operator_wrote_stays_as_it_was() -> None:
    template = a_template()
    template["spec"]["template"]["spec"] |= {"hostPID": True, "tolerations": [{"operator": "Exists"}]}
    template["spec"]["activeDeadlineSeconds"] = 60
    before = yaml.safe_dump(template)
    job = bound(Template("reset_gpu", template), effect(), "work", "")
    assert yaml.safe_dump(template) == before
    assert job["spec"]["activeDeadlineSeconds"] == 60
    assert job["spec"]["template"]["spec"]["hostPID"] is True
    assert {"operator": "Exists"} in job["spec"]["template"]["spec"]["tolerations"]


def written(tmp_path: Path, *, drop: str = "", **changes: Any) -> Path:
    job = a_template()
    for path, value in changes.items():
        at = job
        *way, last = path.split("__")
        for key in way:
            at = at.setdefault(key, {})
        at[last] = value
    job.pop(drop, None)
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job))
    return file


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "Pod"}, "kind: must be Job"),
        ({"drop": "spec"}, "spec.template.spec.containers: must be a list of containers"),
        ({"spec__backoffLimit": 6}, "spec.backoffLimit: must be 0"),
        ({"spec__parallelism": 2}, "spec.parallelism: must be 1"),
        ({"spec__ttlSecondsAfterFinished": 60}, "spec.ttlSecondsAfterFinished: must be at least 86400"),
        ({"spec__activeDeadlineSeconds": "1h"}, "spec.activeDeadlineSeconds: must be a number"),
        ({"spec__template__spec__nodeName": "gpu-01"}, "spec.template.spec.nodeName: is Faultline's"),
        ({"spec__template__spec__restartPolicy": "OnFailure"}, "restartPolicy: must be Never"),
        ({"spec__template__spec__affinity": {"nodeAffinity": {}}}, "affinity.nodeAffinity: is Faultline's"),
        ({"spec__template__spec__containers": [{"name": "work"}]}, "containers.0: must name an image"),
        (
            {"spec__template__spec__containers": [{"image": "x", "env": [{"name": "FAULTLINE_NODE"}]}]},
            "containers.0.env: FAULTLINE_NODE is Faultline's",
        ),
    ],
)
def test_a_template_that_decides_what_is_faultlines_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    file = written(tmp_path, **changes)
    with pytest.raises(ConfigError) as error:
        read_template("reset_gpu", file)
    assert f"node_work.reset_gpu: {file}: " in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize("content", [b"- 1", b"{", b"\xff\xfe", b"#" * 70_000])
def test_what_is_no_job_at_all_is_refused_with_the_settings_name(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"node_work\.reboot_node"):
        read_templates(NodeWorkSettings(reboot_node=file))
    with pytest.raises(ConfigError, match="cannot be read"):
        read_templates(NodeWorkSettings(reboot_node=tmp_path / "none.yaml"))


def test_only_what_has_a_template_is_offered(tmp_path: Path) -> None:
    assert read_templates(NodeWorkSettings()) == {}
    assert set(read_templates(NodeWorkSettings(validate_node=written(tmp_path)))) == {"validate_node"}


def test_nothing_is_begun_on_a_node_that_this_incident_does_not_hold() -> None:
    assert may_work(a_node(), [], effect()) is None
    assert isinstance(may_work(node("gpu-07"), [], effect()), Refused)
    assert isinstance(may_work(a_node(), [], effect(incident="inc-2")), Refused)
    other = effect(target=Target("Node", "gpu-07", uid="another"))
    assert isinstance(may_work(a_node(), [], other), Refused)
    kept = a_node()
    kept["metadata"]["labels"] = {MANAGED: "false"}
    assert isinstance(may_work(kept, [], effect()), Refused)


def test_a_node_that_a_person_opened_is_theirs() -> None:
    opened = a_node()
    opened["spec"].pop("unschedulable")
    outcome = may_work(opened, [], effect("validate_node"))
    assert isinstance(outcome, Blocked)
    assert outcome.by_person


@pytest.mark.parametrize("action", ["reset_gpu", "reboot_node"])
def test_gpu_pods_of_others_stand_in_the_way_of_what_would_end_them(action: str) -> None:
    ours = pod("work", labels={NODE_WORK: action})
    ended = pod("done", phase="Succeeded")
    assert may_work(a_node(), [ours, ended], effect(action)) is None
    leaving = pod("train-1", deletionTimestamp=FAILED_AT)
    for other in (pod("train-0"), leaving):
        outcome = may_work(a_node(), [ours, ended, other], effect(action))
        assert isinstance(outcome, Blocked)
        assert not outcome.by_person
        assert f"team-a/{other['metadata']['name']}" in outcome.reason
    assert may_work(a_node(), [pod("train-0")], effect("validate_node")) is None


def test_a_node_without_a_boot_id_is_not_rebooted() -> None:
    outcome = may_work(a_node(boot=""), [], effect("reboot_node"))
    assert isinstance(outcome, Refused)
    assert "bootID" in outcome.reason


def test_a_job_is_waited_for_and_its_end_is_the_answer() -> None:
    about = effect()
    assert isinstance(judged(a_job(about), [], about), Waiting)
    assert isinstance(judged(a_job(about, "Complete"), [], about), AlreadyDone)
    begun = effect(prior={"job": f"work/{job_name(about)}"})
    assert isinstance(judged(a_job(about, "Complete"), [], begun), Done)


def test_a_failed_job_is_refused_with_its_last_words_bounded_and_inert() -> None:
    about = effect("validate_node")
    words = "GPU 3: diagnostics failed\n\x1b[31m*<!channel>*\x00" + "y" * 50_000
    outcome = judged(a_job(about, "Failed"), [a_pod(3, words)], about)
    assert isinstance(outcome, Refused)
    assert "exit code 3, GPU 3: diagnostics failed" in outcome.reason
    assert outcome.reason.isprintable()
    assert len(outcome.reason) < MAX_WORDS + 100


def test_a_reboot_is_done_when_the_node_has_booted_anew_and_is_ready() -> None:
    about, now = effect("reboot_node"), parse_rfc3339(FAILED_AT)
    job = a_job(about)
    assert isinstance(judged_reboot(job, [], a_node(), about, now), Waiting)
    assert isinstance(judged_reboot(job, [], a_node("boot-2", ready=False), about, now), Waiting)
    assert isinstance(judged_reboot(job, [], a_node("boot-2"), about, now), AlreadyDone)
    assert isinstance(judged_reboot(a_job(about, "Complete"), [], a_node(), about, now), Waiting)
    assert isinstance(judged_reboot(a_job(about, "Failed"), [], a_node("boot-2"), about, now), AlreadyDone)


def test_a_reboot_whose_job_failed_may_still_be_under_way_for_a_while() -> None:
    about, now = effect("reboot_node"), parse_rfc3339(FAILED_AT)
    job, later = a_job(about, "Failed"), now + timedelta(seconds=REBOOT_GRACE_S)
    assert isinstance(judged_reboot(job, [], a_node(), about, now), Waiting)
    assert isinstance(judged_reboot(job, [], a_node(ready=False), about, later), Waiting)
    outcome = judged_reboot(job, [a_pod(1, "no such unit")], a_node(), about, later)
    assert isinstance(outcome, Refused)
    assert "no such unit" in outcome.reason


def test_a_node_that_left_or_was_replaced_is_not_taken_for_rebooted() -> None:
    about, now = effect("reboot_node"), parse_rfc3339(FAILED_AT)
    other = effect("reboot_node", target=Target("Node", "gpu-07", uid="another"))
    assert isinstance(judged_reboot(a_job(about), [], None, about, now), Refused)
    assert isinstance(judged_reboot(a_job(other), [], a_node("boot-2"), other, now), Refused)
    assert rfc3339(now) == FAILED_AT
