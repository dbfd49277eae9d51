"""GPU software that breaks in the same way on node after node: an upgrade that goes wrong, and no fault of any of them.

One node with a mismatched library may have been upgraded by hand. The second one within minutes, or the third within hours,
shares with the others what was rolled out: the version that its lines name, else how it fails. Where each speaks of one GPU only,
it takes more of them. An operator that upgrades drivers closes the nodes itself, and shows a failure only by its pods, which
start over and over there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from streams.correlate.hypothesis import Hypothesis
from streams.correlate.node_rules.imex_peers import is_restarted
from streams.correlate.node_rules.node_series import series, shown
from streams.correlate.node_rules.part_policy import part_policy
from streams.correlate.node_rules.pod_starts import is_of_one_job
from streams.correlate.node_rules.shared_groups import SharedFault
from streams.correlate.policy.families import families
from streams.correlate.sightings import EACH_MINUTE, Sighting, order, split_at_gaps
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.lost_gpus import SOFTWARE, came_back
from streams.correlate.state.node_work import Work, work_at, workers_at
from streams.correlate.state.place import GroupKind, Place, PlaceKind, SharedGroup
from streams.correlate.state.rows import NodeRow
from streams.correlate.state.unstarted_pods import POD
from streams.model.entity import Entity
from streams.model.incident import Certainty
from streams.model.kinds import IncidentFamily, SignalKind

FAMILY = IncidentFamily.PLATFORM_FAULT


def of_software(row: NodeRow, hypotheses: Sequence[Hypothesis]) -> dict[SharedGroup, tuple[Hypothesis, ...]]:
    """A node's broken GPU software, by what it may share with other nodes; nothing while somebody works on the node.

    Those are `alone` that are surely the software's, with no fault of a GPU or of the host that may be why; the others count
    beside more nodes.
    """
    found: dict[SharedGroup, tuple[Hypothesis, ...]] = {}
    own = not any(FAMILY in families()[h.family].explained for h in hypotheses)
    for h in hypotheses:
        lines = [s for s in h.causes if s.kind == SignalKind.GPU_DRIVER]
        if h.family != FAMILY or not lines or _broke_at_work(h, row):
            continue
        # The node's own lines count as they come, also where all was over before the node alone would be published. What only
        # its pods tell must come again to count beside other nodes, and hold up a job to count alone. So must what a service
        # says that is started until it runs: the one before it may hold what it needs, on every node of a rollout.
        own_lines = h.alone or any(EACH_MINUTE not in s.attributes and not is_restarted(s) for s in lines)
        if own_lines or _comes_again(lines):
            group = SharedGroup(GroupKind.SOFTWARE, _name(lines))
            sure = own and _is_of_software(lines) and (own_lines or _holds_up_jobs(lines))
            found[group] = (*found.get(group, ()), replace(h, alone=sure))
    return found


def _broke_at_work(h: Hypothesis, row: NodeRow) -> bool:
    """Whether somebody worked on the node already when it broke: one that is closed because it broke was not broken by that."""
    work = None if h.since_back else work_at(row, h.fault_at)
    return work is not None and work.since <= h.fault_at


def _is_of_software(lines: Sequence[Sighting]) -> bool:
    """Whether any of them is a sign of software: what a device plugin says of its GPUs may be theirs."""
    return any(s.text("subtype") in part_policy().software_signs for s in lines)


def since_given_back(h: Hypothesis, row: NodeRow) -> Hypothesis:
    """A node's broken GPU software that broke while somebody worked there, dated to when the node was given back with it.

    Until then it was theirs, and it is still where nothing is known of it since: neither its own lines, nor pods that come there.
    """
    if h.family != FAMILY or not any(s.kind == SignalKind.GPU_DRIVER for s in h.causes):
        return h
    work = work_at(row, h.fault_at)
    if work is None or work.until is None or work.since > h.fault_at:
        return h
    lines = (s for s in h.causes if s.kind == SignalKind.GPU_DRIVER and (s.at > work.until or came_back(s)))
    if not any(_is_nobodys(s, work, work_at(row, s.at)) for s in lines):
        return h
    return replace(h, fault_at=max(h.fault_at, work.until), since_back=True)


def _is_nobodys(s: Sighting, ended: Work, work: Work | None) -> bool:
    """Whether a line that is dated after the end of some work is of no work: neither of that, nor of another one (`work`).

    A service may fail for a moment longer as the node comes back; a job that ended for it does not come back.
    """
    return work is None or (work == ended and (POD in s.attributes or came_back(s)))


def _comes_again(lines: Sequence[Sighting]) -> bool:
    """Whether what is told only of pods there was so for a second one, or at its second try: enough beside other nodes."""
    times = [s.at for s in lines]
    return (max(times) - min(times)).total_seconds() >= families().recurring.apart_s


def _holds_up_jobs(lines: Sequence[Sighting]) -> bool:
    """Whether pods there cannot be started for as long as counts for a job: then the node is told at the second try."""
    unstarted = [s for s in lines if EACH_MINUTE in s.attributes]
    of_pods = (families().rule(replace(s, kind=SignalKind.JOB_FAILED)) for s in unstarted)
    patience = max((rule.lasts_s for rule in of_pods if rule is not None), default=None)
    times = [s.at for s in unstarted]
    return patience is not None and (max(times) - min(times)).total_seconds() >= patience


def _name(lines: Sequence[Sighting]) -> str:
    """What a node's broken software shares with other nodes': its version, else what says most of how it fails.

    Which of its signs came first is chance, and NVML prints no more than the beginning of its version.
    """
    versions = {version for s in lines if (version := s.text("client_version") or s.text(SOFTWARE))}
    whole = [v for v in versions if not any(other.startswith(f"{v}.") for other in versions)]
    if len(whole) == 1:
        return whole[0]
    signs, known = {s.text("subtype") for s in lines}, part_policy().software_signs
    return next((sign for sign in known if sign in signs), min(signs))


def of_rollout(cluster: str, node: str, row: NodeRow) -> dict[SharedGroup, tuple[Hypothesis, ...]]:
    """When what an operator rolled out went on failing on a node, by what that is; by itself it is no incident of the node."""
    rule, by_name = part_policy().rollout, defaultdict[str, list[Sighting]](list)
    for s in (s for group in row.seen.values() if is_of_rollout(group[0]) for s in group):
        if name := s.text("rollout") or rule.unnamed.get(s.text("reason"), ""):
            by_name[name].append(s)
    found: dict[SharedGroup, tuple[Hypothesis, ...]] = {}
    for name, lines in sorted(by_name.items()):
        group = SharedGroup(GroupKind.SOFTWARE, name)
        for stretch in split_at_gaps(sorted(lines, key=order), lambda s: s.at, rule.quiet):
            if (h := _failing(cluster, node, row, stretch)) is not None:
                found[group] = (*found.get(group, ()), h)
    return found


def is_of_rollout(s: Sighting) -> bool:
    """Whether it is about a pod that an operator rolled out, or the operator says itself that this failed."""
    return s.kind == SignalKind.UNKNOWN and s.text("subtype") == "driver_rollout"


def _failing(cluster: str, node: str, row: NodeRow, lines: Sequence[Sighting]) -> Hypothesis | None:
    rule, first, last = part_policy().rollout, lines[0], lines[-1]
    work, said = work_at(row, first.at), any(s.text("reason") in rule.unnamed for s in lines)
    if work is not None and not said and rule.by.isdisjoint(workers_at(row, first.at)):
        return None  # a person has it in hand
    if not said and last.at - first.at < (rule.again if work is not None else rule.lasts):
        return None
    end = work.until if work is not None else last.at + rule.quiet
    if end is not None and end < first.at + rule.lasts:
        return None
    return Hypothesis(
        place=Place(PlaceKind.NODE, node),
        root=Entity(cluster, node=node),
        family=FAMILY,
        incarnation=0,
        certainty=Certainty.WEAK,
        fault_at=first.at,
        last_at=last.at,
        ready_at=first.seen_at + rule.lasts,
        cleared_at=end,
        rule="shared by a part",
        alone=False,
        causes=tuple(lines),
    )


def rollouts(
    cluster: str,
    group: SharedGroup,
    evidence: Sequence[tuple[str, Sequence[Hypothesis]]],
    incarnations: Incarnations,
) -> list[SharedFault]:
    """The times when enough nodes broke in this way, one after the other."""
    by_operator = any(is_of_rollout(s) for _, found in evidence for h in found for s in h.causes)
    if is_of_one_job(s for _, found in evidence for h in found for s in h.causes):
        return []
    policy = part_policy()
    broken = {node for node, found in evidence if any(h.root.gpu is None for h in found)}
    rule = policy.software if len(broken) >= policy.software.nodes else policy.software_of_a_gpu

    without = by_operator is False and all(
        any(map(came_back, h.causes)) for _, found in evidence for h in found
    )
    named = any(s.text(SOFTWARE) == group.name for _, found in evidence for h in found for s in h.causes)

    def why(nodes: Sequence[str]) -> str:
        where = f"{len(nodes)} nodes, one after the other ({shown(nodes)})"
        if by_operator:
            return (
                f"{group.name} fails over and over on {where}, and they are not given back: look at what is rolled out, and at "
                "what these nodes have in common, before at any of them"
            )
        if without:
            beside = f" and with {group.name}" if named else ""
            return (
                f"{where} came back from work or a reboot without their GPUs{beside}: look at what was rolled out to them, and "
                "whether the GPU driver can be installed there, before at any of them"
            )
        return (
            f"GPU software is broken in the same way on {where}: look at what was rolled out to them ({group.name}) "
            "before at any of them"
        )

    return series(
        cluster,
        group,
        evidence,
        incarnations,
        rule,
        family=FAMILY,
        why=why,
        alike="break in this way",
        sooner=policy.software_came_back if named else policy.software_soon,
    )
