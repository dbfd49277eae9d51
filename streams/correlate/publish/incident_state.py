"""The state and the certainty that an incident is published with, by runs, operators, affected jobs and time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from streams.correlate.hypothesis import LINK_FLAPS, Hypothesis
from streams.correlate.node_rules.notices import expires_at, has_deadline, is_unread, opens_at
from streams.correlate.node_rules.planned_work import is_planned_work, planned_at
from streams.correlate.policy.config import Config
from streams.correlate.policy.families import families
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting
from streams.correlate.state.incarnations import Incarnations
from streams.correlate.state.node_work import Expectation, expected_of_drain, work_at, work_policy
from streams.correlate.state.place import PlaceKind, SharedGroup
from streams.correlate.state.rows import NodeRow
from streams.correlate.state.store import State
from streams.model.entity import Part
from streams.model.incident import Certainty, IncidentState
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.message import some

_NAMES_TOLD = 6


class IncidentStates:
    """Works out the state of an incident. `candidates` gives the nodes that a host's name may mean at a time."""

    def __init__(
        self,
        state: State,
        incarnations: Incarnations,
        config: Config,
        candidates: Callable[[str, datetime], Sequence[str]],
    ) -> None:
        self._state = state
        self._incarnations = incarnations
        self._config = config
        self._candidates = candidates

    def of(self, h: Hypothesis, hit: bool, now: datetime) -> tuple[IncidentState, datetime | None, str]:
        """Its state, when it was closed, and what to note of that. `hit` is whether it affects a job."""
        state, closed_at, note = self._state_of(h, hit, now)
        return state, closed_at, note or self._unclear(h)

    def _state_of(
        self, h: Hypothesis, hit: bool, now: datetime
    ) -> tuple[IncidentState, datetime | None, str]:
        runs = self._incarnations.runs(h.id)
        if runs.closed_at is not None:
            return IncidentState.RESOLVED, runs.closed_at, ""
        # A run at work goes on to its end: what it has done so far may be why the fault cleared.
        cleared = h.is_repaired or (h.cleared_at is not None and h.cleared_at + self._linger(h) <= now)
        # But a notice that was taken back takes with it what was begun because of it.
        if cleared and (
            has_deadline(h) or runs.state not in (IncidentState.MITIGATING, IncidentState.VERIFYING)
        ):
            how = h.given_back.says if h.given_back is not None and h.is_repaired else "It has cleared"
            return IncidentState.RESOLVED, h.cleared_at, how
        if runs.state is not None:
            return runs.state, None, ""
        if (held := self._held_back(h, hit, now)) is not None:
            return IncidentState.SUPPRESSED, None, held
        stale_at = self._stale_at(h)
        if stale_at is not None and stale_at <= now:
            return IncidentState.RESOLVED, stale_at, "Nothing more was heard of it"
        return IncidentState.OPEN, None, h.given_back.says if h.given_back is not None else ""

    def _unclear(self, h: Hypothesis) -> str:
        """Which nodes a host's name may mean, where the inventory has none of just that name."""
        if h.root.node is None or not (found := self._candidates(h.root.node, h.last_at)):
            return ""
        return f"No node is called {h.root.node}; it may be {some(found, _NAMES_TOLD)}, and none of them is taken for it"

    def is_untold(self, h: Hypothesis, hit: bool, now: datetime) -> bool:
        """Whether it is not reported: no job is hit, and it is a notice, or somebody's work on the node does or repaired it."""
        if hit:
            return False
        if h.is_repaired:
            return True
        if h.family not in policy().maintenance.expected:
            return False
        if h.family == IncidentFamily.PREEMPTION:
            return True
        expected = self._expected(h, hit)
        return expected is not None and expected.holds(now)

    def expected_by(self, h: Hypothesis, hit: bool, now: datetime) -> str:
        """Whose work explains a fault now; empty where none does."""
        expected = self._expected(h, hit)
        return expected.says if expected is not None and expected.holds(now) else ""

    def _expected(self, h: Hypothesis, hit: bool) -> Expectation | None:
        """Why a fault of a node is what somebody's work there does to it; None when it has to be looked at.

        What such work never does counts when the node is given back with it, what it may do only when it is seen after that.
        """
        if h.place.kind is PlaceKind.SHARED and h.family in policy().maintenance.shared:
            return None if hit else self._worked_on(h)
        row = self._row(h)
        ours = h.family in policy().maintenance.expected
        if (ours or not hit) and (planned := self._planned(h.root.node, row)) is not None:
            return planned
        mark = row.fact.worked_on if row is not None and row.fact is not None else None
        if (has_deadline(h) or is_unread(h)) and (mark is None or mark.ends != "held"):
            # The mark is the notice itself, and until it is due there is work to save. A person's mark is no notice.
            return None
        if mark is not None and mark.ends == "held" and (ours or not hit):
            # Whenever it began: a person has taken the node in hand.
            return Expectation(f"{mark.by} works on it", None)
        if ours and not hit and row is not None:
            # No job starts there: what its links do until it is given back is for whoever drained it.
            drained = expected_of_drain(row, h.fault_at, h.last_at, h.cleared_at)
            if drained is not None:
                return drained
        if h.expected is not None or h.family == IncidentFamily.NODE_DOWN:
            return h.expected
        work = work_at(row, h.last_at) if row is not None else None
        # A node is closed because of what was wrong with it before. What goes on after it was given back is wrong with it now.
        if (
            work is None
            or h.since_back
            or work.since > h.fault_at + (timedelta(seconds=work_policy().late_s) if ours else timedelta())
        ):
            return None
        certain = h.certainty is Certainty.DECISIVE or h.given_back is not None
        if not ours and (hit or (certain and mark is None)):
            return None
        return Expectation(work.says, None)

    def _row(self, h: Hypothesis) -> NodeRow | None:
        """What is known of the node whose fault it is. What a node did to many others is not over with work on that node."""
        named = h.root.node if h.place.kind is not PlaceKind.SHARED else None
        return self._state.nodes.get(named) if named is not None else None

    def _planned(self, node: str | None, row: NodeRow | None) -> Expectation | None:
        """Why a fault is left to whoever works on the node by a request of our own."""
        if row is None or not any(key.startswith(SignalKind.NODE_PLANNED_WORK) for key in row.seen):
            return None
        known = (
            document.incident
            for document in self._state.documents.values()
            if document.incident.family == IncidentFamily.PLANNED_WORK and document.incident.root.node == node
        )
        closed = self._incarnations.closed(incident.id for incident in known)
        return planned_at(row, closed.values())

    def _worked_on(self, h: Hypothesis) -> Expectation | None:
        """Why a fault of what several nodes share is left alone: nearly all of them had been taken in hand before it began."""
        nodes = h.nodes or self._nodes_of(SharedGroup.parse(h.place.name))
        rows = ((node, self._state.nodes.get(node)) for node in nodes)
        mine = [says for node, row in rows if row is not None and (says := self._in_hand(h, node, row))]
        if not mine or len(mine) < policy().maintenance.nearly_all * len(nodes):
            return None
        return Expectation(f"{len(mine)} of its {len(nodes)} nodes: {mine[0]}", None)

    def _in_hand(self, h: Hypothesis, node: str, row: NodeRow) -> str:
        """What says that somebody had taken a node in hand before, or has announced work there; empty where nothing does."""
        work = work_at(row, h.last_at)
        if work is not None and work.since <= h.fault_at:
            return work.says
        planned = self._planned(node, row)
        return planned.says if planned is not None else ""

    def _nodes_of(self, part: SharedGroup) -> list[str]:
        """All nodes of a part that reports trouble while none of them is in trouble."""
        facts = [row.fact for row in self._state.nodes.values() if row.fact is not None]
        return [fact.name for fact in facts if Part(*part) in fact.shared_parts]

    def _held_back(self, h: Hypothesis, hit: bool, now: datetime) -> str | None:
        """Why nothing is to be done about a fault of a node: somebody works on it, or another incident has closed it."""
        if is_planned_work(h):
            return None
        if (opens := opens_at(h)) is not None and now < opens:
            return f"It is only listed until it opens at {opens:%H:%M} UTC on {opens:%d %b} (correlator.notice_lead_s)"
        expected = self._expected(h, hit)
        if expected is not None and expected.holds(now):
            whom = "the node" if h.root.node is not None else "its nodes"
            return f"It is left to whoever works on {whom}: {expected.says}"
        row = self._row(h)
        if row is None or row.fact is None:
            return None
        owners = row.fact.owners
        since = min((at for at, name in row.cordons if name in owners), default=None)
        if h.id in owners or hit or since is None or h.fault_at < since:
            return None
        return f"The node is closed already, by {' and '.join(owners)}"

    def ends(self, h: Hypothesis) -> list[datetime]:
        """When its state may change by itself."""
        ends = [h.cleared_at + self._linger(h)] if h.cleared_at else []
        ends += [h.sure_at] if h.sure_at is not None else []
        ends += [opens] if (opens := opens_at(h)) is not None else []
        ends += [h.expected.until] if h.expected is not None and h.expected.until is not None else []
        if (stale_at := self._stale_at(h)) is not None:
            ends.append(stale_at)
        return ends

    def _linger(self, h: Hypothesis) -> timedelta:
        """How long it stays open after its end. What flaps stays open while it may go on: each return would be news and a run."""
        # A link that flaps is over only when it has been quiet for as long (`links.verdict`).
        return self._config.flap_quiet if h.flaps and h.rule != LINK_FLAPS else self._config.linger

    def _stale_at(self, h: Hypothesis) -> datetime | None:
        """When it ends by itself. Work that is announced for next week is heard of once, and is no less true for that."""
        stale, announced_until = self._stale(h), expires_at(h)
        if stale is None:
            return announced_until
        return max(h.last_at + stale, announced_until) if announced_until is not None else h.last_at + stale

    def _stale(self, h: Hypothesis) -> timedelta | None:
        """How long after its last sign an incident ends by itself."""
        hours = families()[h.family].stale_h
        if hours is not None:
            return timedelta(hours=hours)
        return self._config.stale if h.family in (IncidentFamily.HANG, IncidentFamily.APPLICATION) else None


def settled(h: Hypothesis, claims: Mapping[str, Sequence[Sighting]], now: datetime) -> Hypothesis:
    """The hypothesis as certain as it is by now. `claims` are the symptoms that follow from it, by job.

    What lasted long enough without anything that tells otherwise is certain.
    """
    h = _strengthened(h, claims)
    if h.sure_at is None or h.sure_at > now or h.certainty is not Certainty.LIKELY:
        return h
    return replace(h, certainty=Certainty.DECISIVE, why=f"{h.why}; and {h.sure}")


def _strengthened(h: Hypothesis, claims: Mapping[str, Sequence[Sighting]]) -> Hypothesis:
    """What a job suffers makes likely roots certain: a kubelet may only be restarting, a NIC may only be slow, but not then."""
    suffering = sorted(
        job for job, symptoms in claims.items() if any(s.kind.startswith("nccl.") for s in symptoms)
    )
    if not suffering or h.certainty is not Certainty.LIKELY:
        return h
    if h.family == IncidentFamily.NODE_DOWN:
        # Connections that fail point at one of their ends; only ranks that wait say whom they wait for.
        waiting = [j for j in suffering if any(s.kind == SignalKind.NCCL_TIMEOUT for s in claims[j])]
        if not waiting:
            return h
        why = f"{h.why}; and its ranks are silent while those of {waiting[0].partition('/')[2]} wait for them"
        return replace(h, certainty=Certainty.DECISIVE, why=why)
    lost = (
        h.family == IncidentFamily.NIC_LINK
        and h.facts.get("hard") is True
        and _suffers_then(h, claims, suffering)
    )
    # Of several hosts that pause at once none is blamed for it: they may share a cause (`pfc_storms.weigh`).
    stormy = h.family == IncidentFamily.PFC_STORM and h.rule in ("pause sent", "access port")
    if lost or (stormy and h.facts.get("shared_nodes") == 1):
        why = f"{h.why}; and {len(suffering)} job(s) fail on the network meanwhile"
        return replace(h, certainty=Certainty.DECISIVE, why=why)
    return h


def _suffers_then(h: Hypothesis, claims: Mapping[str, Sequence[Sighting]], suffering: Sequence[str]) -> bool:
    """Whether ranks began to wait or to fail when the link was lost, and not at some time while it was."""
    since, until = h.fault_at - timedelta(minutes=1), h.last_at + timedelta(minutes=5)
    return any(
        since <= s.fault_at <= until for job in suffering for s in claims[job] if s.kind.startswith("nccl.")
    )
