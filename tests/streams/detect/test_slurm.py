"""One line of Slurm's controller speaks of many nodes."""

from __future__ import annotations

import re

import orjson
import pytest

from streams.detect import Detector
from streams.detect.deduplication import RollUp
from streams.detect.matching.log_patterns import load_sheet
from streams.detect.slurm import MAX_NODES, hosts_in
from tests.streams.detect.lines import record, signals

HEADED = re.compile(r"\[\S{20,24}\] |\w{3} \d\d \S{8} \S+ slurm\w+\[\d+\]: ")
LOST = "[2026-11-21T07:13:13.101] Killing JobId={} on failed node gpu-017"
DOWN = "[2026-11-21T07:13:13.101] error: Nodes {} not responding, setting DOWN"


@pytest.mark.parametrize(
    ("hostlist", "hosts"),
    [
        ("gpu-1", ["gpu-1"]),
        ("gpu-[08-10]", ["gpu-08", "gpu-09", "gpu-10"]),
        ("a[1,3-4]-ib,login1", ["a1-ib", "a3-ib", "a4-ib", "login1"]),
    ],
)
def test_a_host_list_is_its_hosts(hostlist: str, hosts: list[str]) -> None:
    assert list(hosts_in(hostlist)) == hosts


def test_each_node_of_the_list_has_its_signal_and_the_controller_none() -> None:
    found = signals(
        "Nov 21 07:13:13 ctl-1 slurmctld[7]: error: Nodes gpu-[017-018] not responding, setting DOWN"
    )
    assert [signal.entity.node for signal in found] == ["gpu-017", "gpu-018"]
    assert all("nodes" not in signal.attributes for signal in found)


def test_each_job_that_a_node_took_along_in_one_moment_is_a_signal() -> None:
    detector = Detector("c1")
    lost = [
        found.attributes["job_id"]
        for i in range(8)
        for found in detector.detect(record(LOST.format(4242 + i).encode(), offset=i)).signals
    ]
    assert lost == [4242 + i for i in range(8)]


def test_a_list_without_end_is_cut() -> None:
    assert len(signals(DOWN.format("gpu-[0-999999999]"))) == MAX_NODES


BODIES = sorted(
    {
        HEADED.sub("", sample.text)
        for row in load_sheet("slurm").rows
        for sample in row.samples
        if row.id != "step" and not sample.before and HEADED.match(sample.text)
    }
)
DAEMONS = {
    "its own file": "[2026-11-21T07:13:13.101] {}",
    "its own file, short": "[Nov 21 07:13:13] {}",
    "syslog": "Nov 21 07:13:13 ctl-1 slurmctld[2210]: {}",
    "syslog without a process": "Nov 21 07:13:13 ctl-1 slurmctld: {}",
    "syslog with a zone": "2026-11-21T07:13:13.101223+00:00 ctl-1 slurmctld[2210]: {}",
    "RFC 5424": "<29>1 2026-11-21T07:13:13.101Z ctl-1 slurmctld 2210 - - {}",
    "standard error, in the journal": "Nov 21 07:13:13 ctl-1 slurmctld[2210]: slurmctld: {}",
    "a container": "2026-11-21T07:13:13.101Z stdout F slurmctld: {}",
    "a journal": '{{"MESSAGE": "{}", "_HOSTNAME": "ctl-1", "SYSLOG_IDENTIFIER": "slurmctld", "PRIORITY": "6"}}',
}


@pytest.mark.parametrize("wrapping", DAEMONS)
@pytest.mark.parametrize("body", BODIES)
def test_a_message_of_the_controller_says_the_same_however_it_is_logged(body: str, wrapping: str) -> None:
    def told(text: str) -> list[tuple[object, ...]]:
        return [(s.kind, s.state, dict(s.attributes), s.entity.job) for s in signals(text)]

    assert told(f"[2026-11-21T07:13:13.101] {body}") == told(DAEMONS[wrapping].format(body)) != []


@pytest.mark.parametrize(
    "text",
    [
        "Nov 21 07:13:13 ops-1 chatrelay[7]: dana: Allocate JobId=4242 NodeList=gpu-017",
        "Nov 21 07:13:13 ctl-1 slurmctld[7]: update_job: comment of dana: why Allocate JobId=4242 NodeList=gpu-017",
    ],
)
def test_what_people_write_of_an_allocation_is_none(text: str) -> None:
    assert not signals(text)


def states(*lines: str) -> list[tuple[str | None, str, str]]:
    return [(s.entity.node, s.kind, s.state) for s in signals("\n".join(lines))]


def test_a_node_is_back_only_after_it_was_down() -> None:
    up = "[2026-11-21T07:18:13.101] Node {} now responding"
    assert not states(*(up.format(f"gpu-{i}") for i in range(3)))
    assert states(DOWN.format("gpu-[1-2]"), up.format("gpu-2"), up.format("gpu-2"), up.format("gpu-1")) == [
        ("gpu-1", "node.not_ready", "firing"),
        ("gpu-2", "node.not_ready", "firing"),
        ("gpu-2", "node.not_ready", "cleared"),
        ("gpu-1", "node.not_ready", "cleared"),
    ]


def test_the_nodes_of_a_controller_in_a_pod_may_be_pods_and_are_left_to_kubernetes() -> None:
    pod = {"pod_name": "slurm-controller-0", "namespace_name": "slurm", "host": "k8s-1"}
    found = signals(
        orjson.dumps({"@timestamp": 1795245200.5, "log": DOWN.format("worker-1"), "kubernetes": pod})
    )
    assert [(s.kind, s.entity.node) for s in found] == [("node.condition", "worker-1")]


AT = "[2026-11-21T07:13:13.101] "
PARTS = ("4242+0(4242)", "4242+1(4243)")
SHOWN = (
    "JobId={} {} JobName=pretrain UserId=ada(1000) JobState=RUNNING Partition=train NodeList=gpu-[017-018]"
)


@pytest.mark.parametrize(
    ("lines", "job", "components"),
    [
        ([f"{AT}sched: Allocate JobId={part} NodeList=gpu-[017-018]" for part in PARTS], "4242", [0, 1]),
        ([f"{AT}_job_complete: JobId={part} WEXITSTATUS 0" for part in PARTS], "4242", [0, 1]),
        ([SHOWN.format(4243, "HetJobId=4242 HetJobOffset=1")], "4242", [1]),
        ([" 4242+1 train pretrain ada R 1:00 2 gpu-[017-018]"], "4242", [1]),
        ([SHOWN.format(4251, "ArrayJobId=4242 ArrayTaskId=7")], "4242_7", [None]),
    ],
)
def test_components_are_one_job_and_tasks_of_an_array_one_each(
    lines: list[str], job: str, components: list[int | None]
) -> None:
    detector, rollup = Detector("c1"), RollUp()
    found = [
        signal
        for i, line in enumerate(lines)
        for signal in detector.read(record(line, offset=i), rollup).signals
    ]
    assert [signal.attributes.get("component") for signal in found] == components
    assert {signal.entity.job.name for signal in found if signal.entity.job} == {job}


def test_a_drained_node_that_is_given_back_is_drained_no_more() -> None:
    detector = Detector("c1")
    lines = [
        "[2026-11-21T07:13:13.101] update_node: node gpu-017 state set to DRAINED",
        "[2026-11-21T09:13:13.101] update_node: node gpu-017 state set to IDLE",
        "[2026-11-21T09:14:13.101] update_node: node gpu-018 state set to IDLE",
    ]
    found = [
        (signal.entity.node, signal.attributes["subtype"], signal.state.value)
        for i, line in enumerate(lines)
        for signal in detector.detect(record(line.encode(), offset=i)).signals
    ]
    assert found == [("gpu-017", "slurm_drain", "firing"), ("gpu-017", "slurm_drain", "cleared")]


@pytest.mark.parametrize(
    ("reason", "message", "nodes"),
    [
        ("Rewound credential", "MESSAGE_NODE_REGISTRATION_STATUS", ["ctl-1", "gpu-017"]),
        ("Expired credential", "MESSAGE_EPILOG_COMPLETE", ["ctl-1", "gpu-017"]),
        ("Invalid credential", "MESSAGE_NODE_REGISTRATION_STATUS", ["ctl-1"]),
        # What the controller sends: the node that refuses it says so of itself.
        ("Rewound credential", "REQUEST_PING", ["ctl-1"]),
    ],
)
def test_a_message_that_the_controller_refuses_for_its_time_is_of_the_clock_of_its_node(
    reason: str, message: str, nodes: list[str]
) -> None:
    head = "Nov 21 07:13:13 ctl-1 slurmctld[7]: error: "
    refused = f"slurm_unpack_received_msg: [[gpu-017]:40122] auth_g_verify: {message} has authentication error: Unspecified error"
    found = signals(f"{head}Munge decode failed: {reason}\n{head}{refused}")
    assert [s.entity.node for s in found if s.attributes["subtype"] == "munge"] == nodes
