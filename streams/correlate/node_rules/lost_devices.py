"""Containers that had GPUs and can no longer open them, on several nodes whose GPUs are well: what took their devices away.

systemd that is reloaded (`systemctl daemon-reload`, also by an upgrade or a playbook) writes the device rules of its units anew.
Those of containers that it does not know of are gone then: what holds its GPUs goes on, and whatever opens one anew fails,
minutes or hours later, each container in its own words (NVIDIA Container Toolkit, troubleshooting, "Failed to initialize NVML:
Unknown Error"). New containers are well. So it is no fault of a node, of a GPU or of a program, but of what the nodes share:
their container runtime, and whoever reloads systemd there.

A single container that says so tells nothing: its program may have asked for other GPUs. Nor does a node with whose GPUs or
driver anything else is wrong, for that is told in the same words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.node_death import death_policy
from streams.correlate.node_rules.node_series import series, shown
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.sightings import Sighting, order, split_at_gaps
from streams.correlate.state.device_access import ENDS, FIRM, is_of_access
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.node_work import work_at
from streams.correlate.state.place import GroupKind, Place, PlaceKind, SharedGroup
from streams.correlate.state.pod_jobs import job_ref
from streams.correlate.state.rows import NodeRow, of_kind
from streams.correlate.state.unstarted_pods import POD
from streams.model.clock import to_the_second
from streams.model.entity import Entity, JobRef
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

FAMILY = IncidentFamily.PLATFORM_FAULT
DEVICES = SharedGroup(GroupKind.RUNTIME, "device access")
OWNER, TRAINS = "owner", "trains"
"""Attributes of what a container says of its node: the key of the object whose pod it is, and whether that is a training job."""
_RESTARTED = "restarted"
"""Attribute of the same: when a container of that pod was started after it."""
_IN_SIGHT = "in_sight"
"""Fact of a node's part: whether anything arrives of the node that would show a fault of its GPUs."""
_OTHER_TROUBLE = frozenset({"gpu", "node", "host", "preemption"})
"""Domains of what may be why containers on a node lose their GPUs, besides its GPU software."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod with GPUs on a node."""

    uid: str
    job: JobRef
    placed_at: datetime
    started_at: datetime | None
    """When the last of its containers started; None where nobody knows."""
    trains: bool = False


def had_gpus(told: Iterable[Sighting], container: Callable[[str, datetime], Holder | None]) -> list[Sighting]:
    """Those that say it who had held their GPUs for long, each with its owner; none of a container that says so when it is new.

    Args:
        told: What containers of a node say.
        container: By a pod's key and a time, whose pod that was on the node; None where it held no GPUs.
    """
    had = part_policy().devices.had
    by_pod: dict[str, list[tuple[Sighting, Holder]]] = defaultdict(list)
    for s in sorted({s.id: s for s in told}.values(), key=order):
        if (mine := container(s.text(POD), s.at)) is not None and mine.placed_at + had <= s.at:
            by_pod[mine.uid].append((s, mine))
    found = []
    for said in by_pod.values():
        # Its latest start is known only. One that fails again right after it has lost nothing: it starts over and over.
        started = said[0][1].started_at
        if started is not None and any(started <= s.at < started + had for s, _ in said):
            continue
        for s, mine in said:
            attributes = {**s.attributes, OWNER: mine.job.key, TRAINS: mine.trains}
            if started is not None and started > s.at:
                attributes[_RESTARTED] = started.isoformat()
            found.append(replace(s, attributes=attributes))
    return found


def of_devices(
    cluster: str, node: str, row: NodeRow, told: Sequence[Sighting], hypotheses: Sequence[Hypothesis]
) -> tuple[Hypothesis, ...]:
    """When containers of a node lost their GPUs for nothing else that is known of it; by itself it is no incident of the node.

    It is dated to when systemd was reloaded, where it was since the node's containers had their GPUs, and `alone` then.
    """
    rule = part_policy().devices
    found = []
    reloads = [
        s for s in of_kind(row.seen, SignalKind.NODE_CONDITION) if s.text("subtype") == "systemd_reload"
    ]
    for stretch in split_at_gaps(sorted(told, key=order), lambda s: s.at, rule.quiet):
        first, last = stretch[0], stretch[-1]
        near = (first.at - rule.within, last.at + rule.within)
        if work_at(row, first.at) is not None or any(
            near[0] <= h.fault_at <= near[1] and _may_be_why(h) for h in hypotheses
        ):
            continue
        # One that starts over and over says so again soon after its next start.
        started = [datetime.fromisoformat(at) for s in stretch if (at := s.text(_RESTARTED))]
        before = [s for s in reloads if first.at - rule.within <= s.at <= first.at]
        reload = max(before, key=order, default=None)
        found.append(
            Hypothesis(
                place=Place(PlaceKind.NODE, node),
                root=Entity(cluster, node=node),
                family=FAMILY,
                incarnation=0,
                certainty=Certainty.WEAK,
                fault_at=reload.at if reload is not None else first.at,
                last_at=last.at,
                ready_at=max([first.seen_at, *started]) + rule.settles,
                cleared_at=last.at + rule.quiet,
                rule="shared by a part",
                alone=reload is not None,
                facts={_IN_SIGHT: _is_in_sight(row, *near)},
                # The first dates the fault of all nodes.
                causes=(*((reload,) if reload is not None else ()), *stretch),
            )
        )
    return tuple(found)


def _is_in_sight(row: NodeRow, since: datetime, until: datetime) -> bool:
    """Whether a fault of the node's GPUs would have been seen: its own lines, or metrics of its GPUs, arrive."""
    metrics = [at for at in (row.gpus_at, row.metrics_at) if at is not None]
    if any(since - part_policy().devices.metrics <= at <= until for at in metrics):
        return True
    lines = (s for group in row.seen.values() for s in group if since <= s.at <= until)
    return any(_is_by_node(s) for s in lines)


def _is_by_node(s: Sighting) -> bool:
    if is_of_access(s):
        return False
    return s.text("subtype") == "systemd_reload" or death_policy().is_by_node(s)


def _may_be_why(h: Hypothesis) -> bool:
    """Whether a root of the node may be why containers there lose their GPUs."""
    of_software = h.family == FAMILY and any(s.kind == SignalKind.GPU_DRIVER for s in h.causes)
    return h.domain in _OTHER_TROUBLE or of_software


def _lines(found: Iterable[Hypothesis]) -> list[Sighting]:
    """What containers say, in order of time."""
    return sorted((s for h in found for s in h.causes if is_of_access(s)), key=order)


def _reloads(found: Iterable[Hypothesis]) -> list[Sighting]:
    """When systemd was reloaded before, in order of time."""
    return sorted({s.id: s for h in found for s in h.causes if not is_of_access(s)}.values(), key=order)


def device_faults(
    cluster: str,
    group: SharedGroup,
    evidence: Sequence[tuple[str, Sequence[Hypothesis]]],
    incarnations: Incarnations,
) -> list[SharedFault]:
    """The times when containers on enough nodes lost their GPUs."""
    policy = part_policy()
    pairs = sorted(((n, h) for n, found in evidence for h in found), key=lambda p: (p[1].fault_at, p[1].id))
    counted = [
        pair
        for episode in split_at_gaps(pairs, lambda p: p[1].fault_at, policy.devices.within)
        if _is_of_nobodys_program(episode)
        for pair in episode
    ]
    by_node: dict[str, list[Hypothesis]] = defaultdict(list)
    for node, h in counted:
        by_node[node].append(h)
    found = series(
        cluster,
        group,
        sorted(by_node.items()),
        incarnations,
        policy.devices,
        family=FAMILY,
        why=lambda nodes: _why(nodes, [h for n in nodes for h in by_node[n]]),
        alike="lose the GPUs of their containers so",
        facts={"lost_devices": True},
        sooner=policy.devices_after_reload,
    )
    return [_with_victims(fault, by_node) for fault in found]


def _is_of_nobodys_program(episode: Sequence[tuple[str, Hypothesis]]) -> bool:
    """Whether enough owners say so, on two nodes at least, in words that no program brings about."""
    firm = [(node, s) for node, h in episode for s in _lines((h,)) if s.attributes.get(FIRM) is True]
    owners = {s.text(OWNER) for _, s in firm}
    return len(owners) >= part_policy().devices.owners and len({node for node, _ in firm}) > 1


def _with_victims(fault: SharedFault, by_node: Mapping[str, Sequence[Hypothesis]]) -> SharedFault:
    """The fault with the jobs whose programs ended for it, and what else did; what holds its GPUs goes on."""
    h = fault.hypothesis
    mine = [found for node in h.nodes for found in by_node[node] if found.id in fault.parts]
    told: dict[tuple[str | None, str], Sighting] = {}
    for s in sorted(_lines(mine), key=lambda s: (not _ends(s), *order(s))):
        told.setdefault((s.entity.node, s.text(OWNER)), s)
    causes = sorted(told.values(), key=order)
    jobs = {s.text(OWNER) for s in causes if s.attributes.get(TRAINS) is True and _ends(s)}
    # A pod that only asks in vain how busy its GPUs are is none of those that ended.
    causes = [
        s if _ends(s) else replace(s, attributes={k: v for k, v in s.attributes.items() if k != POD})
        for s in causes
    ]
    named = replace(
        h,
        causes=tuple(causes),
        context=tuple(_reloads(mine)),
        jobs=tuple(job_ref(key) for key in sorted(jobs)),
        spares_jobs=True,
    )
    return replace(fault, hypothesis=named)


def _ends(s: Sighting) -> bool:
    return s.attributes.get(ENDS) is True


def _health(nodes: Sequence[str], found: Sequence[Hypothesis]) -> str:
    """What is known of these GPUs; of nodes of which nothing arrives, what to look at."""
    in_sight = {h.root.node for h in found if h.facts[_IN_SIGHT]}
    unseen = [node for node in nodes if node not in in_sight]
    look = "no metrics or kernel logs arrive from them, so check `nvidia-smi` and the kernel log (XIDs) there first"
    if not in_sight:
        return f"whether anything is wrong with these GPUs or their driver is not known: {look}"
    well = "nothing is wrong with these GPUs or their driver by the metrics and logs of "
    if not unseen:
        return f"{well}these nodes"
    return f"{well}{len(in_sight)} of these nodes; of the others ({shown(unseen)}) that is not known: {look}"


def _why(nodes: Sequence[str], found: Sequence[Hypothesis]) -> str:
    words = list(dict.fromkeys(s.text("reason") for s in _lines(found)))[:3]
    reloads, after = _reloads(found), ""
    if reloads:
        count = len({s.entity.node for s in reloads})
        where = f"{'all' if count == len(nodes) else count} of them"
        after = (
            f"; systemd was reloaded on {where} before (`systemctl daemon-reload`, from {to_the_second(reloads[0].at)}), which "
            "takes the device rules of containers that it does not know away"
        )
    return (
        f"containers on {len(nodes)} nodes ({shown(nodes)}) can no longer open the GPUs that they had ({', '.join(words)}), and "
        f"{_health(nodes, found)}{after}. What holds its GPUs goes on, and new containers are well: "
        "start these pods anew, then look at what reloads systemd there and at how the runtime hands out devices (CDI, cgroup "
        "driver). No node has to be closed"
    )
