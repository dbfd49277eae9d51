"""Root causes that are a job's own, and which root explains the symptoms of which job."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from streams.correlate.cause_sources.nodes import NodeCauses
from streams.correlate.cause_sources.services import ServiceCauses
from streams.correlate.cause_sources.shared import SharedCauses
from streams.correlate.cause_sources.source import ByJobs, Causes, CauseSource, Round
from streams.correlate.fabric_rules.pfc_storms import is_victim
from streams.correlate.hypothesis import LEAF_GUESSED, Hypothesis
from streams.correlate.job_rules.blockers import is_unmounted, is_waiting
from streams.correlate.job_rules.culprit import MISMATCH, WANDERS
from streams.correlate.job_rules.first_failures import program_of
from streams.correlate.job_rules.job_evidence import Behind, JobEvidence
from streams.correlate.job_rules.job_evidence_cache import JobEvidenceCache
from streams.correlate.job_rules.job_verdict import judge
from streams.correlate.job_rules.pod_failures import is_of_pace
from streams.correlate.job_rules.rank_assignment import where_failures_stand
from streams.correlate.job_rules.rank_reports import names_others
from streams.correlate.job_rules.verdict import JobVerdict, LeftAlone
from streams.correlate.node_rules.pod_starts import is_of_one_job
from streams.correlate.policy.families import families
from streams.correlate.publish.publisher import Publisher
from streams.correlate.sightings import Sighting
from streams.correlate.state.device_access import says_of_access
from streams.correlate.state.incarnations import MISMATCHES_FROM
from streams.correlate.state.job_progress import last_steps, moves_of
from streams.correlate.state.place import Cause, PlaceKind, Suspect, Touched
from streams.correlate.state.pod_jobs import job_ref
from streams.correlate.state.repeat_faults import first_gpu_name, first_name, first_rank_name
from streams.correlate.state.rows import DocumentRow, JobRow, PastFault
from streams.inventory.leaf_names import may_hang_on
from streams.model.entity import Entity
from streams.model.kinds import IncidentFamily

_MAX_OWN = 16
"""Incidents of one job's own code that are known at the same time."""


class JobCauses(CauseSource):
    """Evaluates each job by what all the other sources found."""

    kind = PlaceKind.JOB

    def __init__(
        self,
        causes: Causes,
        evidence_cache: JobEvidenceCache,
        nodes: NodeCauses,
        services: ServiceCauses,
        shared: SharedCauses,
        publisher: Publisher,
    ) -> None:
        super().__init__(causes)
        self._services, self._shared = services, shared
        self._unmounted: set[str] = set()
        """Jobs of which a volume cannot be mounted."""
        self._storages: Sequence[Hypothesis] = ()
        """The faults of storage that those were judged by."""
        self._evidence_cache, self._nodes, self._publisher = evidence_cache, nodes, publisher
        self._verdicts: dict[str, JobVerdict] = {}
        self._mismatched: dict[str, tuple[Hypothesis, ...]] = {}
        """By job whose ranks called different collectives: the roots that this is, if it is the job's own."""
        self._mismatches: tuple[Hypothesis, ...] = ()
        """Those of all jobs, by which they were judged."""
        self._weights: dict[str, int] = {}
        """The number of sightings a job was evaluated by."""
        self._claimed: dict[Cause, set[str]] = defaultdict(set)
        """By cause: the jobs whose symptoms it explains."""
        self._behind: dict[str, dict[str, tuple[Behind, ...]]] = {}
        """By program and job: what its ranks waited for on one node."""
        self.left_alone: dict[str, tuple[LeftAlone, ...]] = {}
        """By job: what it complained of that makes no root. Nothing is decided by it."""
        self.deferred: set[str] = set()
        """Jobs that wait for the next tick to be evaluated."""

    def evaluate(self, round_: Round) -> None:
        """Evaluate the touched jobs, as many as the round's budget allows."""
        touched = round_.touched
        touched.jobs |= self._publisher.waiting_for_progress(touched.mentioned)
        # Progress that is read late may take the reason away that was found for a job's symptoms.
        touched.jobs |= touched.mentioned & self._verdicts.keys()
        if (storages := self._shared.storages()) != self._storages:
            self._storages = storages
            touched.jobs |= self._unmounted
        mismatches = tuple(h for key in sorted(self._mismatched) for h in self._mismatched[key])
        if mismatches != self._mismatches:
            self._mismatches = mismatches
            touched.jobs |= self._mismatched.keys()
        self._defer(touched, round_.budget)
        waiting = sorted(touched.jobs)
        for key in waiting:
            evidence = self._evidence(key)
            if evidence is not None and self._evidence_cache.is_known(key, evidence):
                continue
            before = self._verdicts.pop(key, JobVerdict())
            after = judge(evidence, self._config) if evidence is not None else JobVerdict()
            self._note(key, evidence)
            self._mismatched.pop(key, None)
            if after.mismatched:
                self._mismatched[key] = tuple(h for h in after.hypotheses if h.rule == MISMATCH)
            self.left_alone.pop(key, None)
            if after.left_alone:
                self.left_alone[key] = tuple(after.left_alone)
            if after.explained or after.hypotheses or after.suspicions or after.claims:
                self._verdicts[key] = after
                self._causes.note(after.hypotheses)
            if before.behind != after.behind:
                # What other runs of the program wait for is judged with it, and it once more by what that makes of them.
                kin = self._enter_behind(key, after.behind)
                waiting += [*kin, key] if kin else []
                touched.jobs |= kin
            touched.nodes |= {s.node for s in (*before.suspicions, *after.suspicions)}
            for cause in before.claims.keys() | after.claims.keys():
                if before.claims.get(cause) != after.claims.get(cause):
                    touched.causes.add(cause)
                    # The suspected place's former incident may be gone: re-evaluate every incident that mentions the job.
                    if isinstance(cause, Suspect):
                        touched.mentioned.add(key)
                (self._claimed[cause].add if cause in after.claims else self._claimed[cause].discard)(key)
                if not self._claimed[cause]:
                    del self._claimed[cause]
            round_.judged.append((key, before, after))

    def _enter_behind(self, key: str, behind: Sequence[Behind]) -> set[str]:
        """Keep what ranks of a job waited for. Returns the other runs of its program of which the same is known."""
        if (program := program_of(key)) is None:
            return set()
        runs = self._behind.setdefault(program, {})
        runs.pop(key, None)
        kin = set(runs)
        if behind:
            runs[key] = tuple(behind)
        if not runs:
            del self._behind[program]
        return kin

    def _kin(self, key: str) -> tuple[list[Behind], list[Hypothesis]]:
        """What other runs of a job's program waited for, and their hangs of which no node is why; in order of the jobs."""
        runs = self._behind.get(program_of(key) or "", {}) if self._behind else {}
        others = sorted(runs.keys() - {key})
        roots = [h for job in others for h in self.at(job) if h.rule == WANDERS]
        return [b for job in others for b in runs[job]], roots

    def _defer(self, touched: Touched, budget: int | None) -> None:
        """Leave the touched jobs for the next tick, if together they exceed the budget of the batch: all that do not press.

        A job is evaluated as a whole. Without this, thousands of ranks that report in a hundred batches would be evaluated a
        hundred times over, and of so many batches no single one decides anything. Nor would it if the smallest of them were
        evaluated: two hundred jobs that fail at once are small each.
        """
        self.deferred -= touched.jobs
        if budget is None:
            return
        waiting = touched.jobs - touched.pressing
        if sum(self._weights.get(key, 0) for key in waiting) > max(budget, self._config.judged_at_once):
            self.deferred |= waiting
            touched.jobs -= waiting

    def _note(self, key: str, evidence: JobEvidence | None) -> None:
        """Remember the evidence a job was evaluated by."""
        self._evidence_cache.note(key, evidence)
        self._weights.pop(key, None)
        self._causes.last_symptoms.pop(key, None)
        (
            self._unmounted.add
            if evidence is not None and any(map(is_unmounted, evidence.failed))
            else self._unmounted.discard
        )(key)
        if evidence is not None:
            self._weights[key] = len(evidence.reports) + len(evidence.codes)
            if evidence.reports:
                self._causes.last_symptoms[key] = max(t.sighting.at for t in evidence.reports)

    def _evidence(self, key: str) -> JobEvidence | None:
        placements = self._placements.placements_of(key)
        nodes = {p.node for p in placements}
        reports = self._evidence_cache.reports(key, nodes)
        codes = self._evidence_cache.codes(placements)
        told = self._evidence_cache.failed(key, nodes)
        failed = where_failures_stand(told, placements, reports, self._config)
        nodes |= {s.entity.node for s in failed if s.entity.node}
        if not reports and not codes and not failed:
            return None
        last = max((t.sighting.at for t in reports), default=None)
        nearest_first = sorted(self._causes.sources, key=lambda source: source.distance)
        offered = (h for source in nearest_first for h in source.offered_to(nodes, last))
        # What pods of one job lack on a node is the node's only where others lack it on other nodes.
        causes = [h for h in offered if not is_of_one_job(h.causes) or self._shared.owner(h.id) is not None]
        attached = self._attached(causes, nodes) if reports else {}
        row = self._state.jobs.get(key, JobRow())
        kin, kin_roots = self._kin(key) if reports else ([], [])
        return JobEvidence(
            cluster=self._cluster,
            job=placements[-1].job if placements else row.fact.job if row.fact else job_ref(key),
            reports=reports,
            codes=codes,
            placements=placements,
            failed=failed,
            causes=causes,
            near_storms=self._near_storms(key, causes, nodes, attached) if reports else frozenset(),
            closed=self._incarnations.closed(h.id for h in causes),
            attached=attached,
            moved=moves_of(self._state, self._placements, key),
            ended=row.ends,
            steps=last_steps(self._state, self._placements, key) if failed else (),
            world=row.fact.world if row.fact else None,
            addresses=self._evidence_cache.addresses,
            known_by=self._evidence_cache.names(placements) if names_others(reports) else (),
            pods=self._evidence_cache.pod_times(key) if failed else {},
            started=self._evidence_cache.started(placements, failed),
            owners=self._owners(causes) if any(map(is_of_pace, failed)) else {},
            joining=self._evidence_cache.joining(key, placements, reports),
            ran_at=row.ran_at,
            stopped=row.stops,
            asked=row.asked or (),
            done=tuple(at for at, well in row.outcomes or () if well),
            own_closed=self._own_closed(key) if failed or codes or reports else {},
            hangs_closed=self._closings(key, IncidentFamily.HANG) if reports else {},
            firsts=self._firsts({p.node for p in placements}),
            gpu_firsts=self._gpu_firsts({p.node for p in placements}),
            rank_firsts=self._rank_firsts,
            kin=kin,
            kin_roots=kin_roots,
            shortages=self._services.of_job(key),
            refused=self._services.refused_beside(key),
            mismatches=tuple(h for h in self._mismatches if h.place.name != key) if reports else (),
            rollouts=self._shared.rollouts() if any(map(is_waiting, failed)) else (),
            lost_devices=self._shared.lost_devices() if any(map(says_of_access, failed)) else (),
            storages=self._shared.storages() if any(map(is_unmounted, failed)) else (),
            forgotten=self._incarnations.forgotten(Entity(self._cluster, job=job_ref(key))),
        )

    def _own_closed(self, key: str) -> dict[int, datetime]:
        """When incidents of the job's own code were closed, by number: as many as its kept evidence can make."""
        hangs = self._incarnations.base(
            Entity(self._cluster, job=job_ref(key)), families()[IncidentFamily.HANG].domain
        )
        mismatches = MISMATCHES_FROM + (hangs.count if hangs else 0)
        return self._closings(key, IncidentFamily.APPLICATION, mismatches)

    def _closings(self, key: str, family: str, *more: int) -> dict[int, datetime]:
        """When incidents of a job were closed, by number: from what is forgotten on, and from the other numbers (`more`) on."""
        if not self._incarnations.has_closings:
            return {}
        root, domain = Entity(self._cluster, job=job_ref(key)), families()[family].domain
        base = self._incarnations.base(root, domain)
        numbers = [n + i for n in (base.count if base else 0, *more) for i in range(1, 1 + _MAX_OWN)]
        return {n: at for n in numbers if (at := self._incarnations.closing(root, domain, n)) is not None}

    def _firsts(self, nodes: set[str]) -> dict[str, tuple[PastFault, ...]]:
        """By node: earlier jobs that failed first there."""
        if not self._state.histories:
            return {}
        rows = ((node, self._state.histories.get(first_name(node))) for node in nodes)
        return {node: row.faults for node, row in rows if row is not None}

    def _gpu_firsts(self, nodes: set[str]) -> dict[str, tuple[PastFault, ...]]:
        """By node: earlier jobs that failed first on a GPU of it."""
        if not self._state.histories:
            return {}
        rows = ((node, self._state.histories.get(first_gpu_name(node))) for node in nodes)
        return {node: row.faults for node, row in rows if row is not None}

    def _rank_firsts(self, rank: int) -> tuple[PastFault, ...]:
        row = self._state.histories.get(first_rank_name(rank))
        return row.faults if row is not None else ()

    def _attached(self, causes: Iterable[Hypothesis], nodes: set[str]) -> dict[str, frozenset[str]]:
        """The switches of each node of which any is known, where it matters; by names of racks and leafs where none is of any."""
        if not any("ends" in h.facts for h in causes):
            return {}
        found = {node: self._topology.switches_of(node) for node in sorted(nodes)}
        known = {node: switches for node, switches in found.items() if switches}
        guessed = {h.root.switch for h in causes if LEAF_GUESSED in h.facts and h.root.switch}
        if known or not guessed:
            return known
        racks = {node: rack for node in sorted(nodes) if (rack := self._topology.rack_at(node)) is not None}
        return {
            node: frozenset(switch for switch in guessed if may_hang_on(switch, node, rack))
            for node, rack in racks.items()
        }

    def _near_storms(
        self,
        job: str,
        causes: Iterable[Hypothesis],
        nodes: set[str],
        attached: Mapping[str, frozenset[str]],
    ) -> frozenset[str]:
        """Ids of storms and faults of the fabric that reach a job on these nodes."""
        wide = [h for h in causes if h.domain in ("pfc", "fabric")]
        if not wide:
            return frozenset()
        leafs = set[str]().union(*(self._topology.switches_of(node) for node in nodes))
        paused = sorted(s.at for s in self._evidence_cache.pauses(nodes) if is_victim(s))
        blamed = {h.id for h in wide if any(j.key == job for j in h.jobs)}
        guessed = set[str]().union(*attached.values())
        blamed |= {h.id for h in wide if LEAF_GUESSED in h.facts and h.root.switch in guessed}
        return frozenset(h.id for h in wide if h.id in blamed or self._reaches(h, nodes, leafs, paused))

    def _reaches(
        self, storm: Hypothesis, nodes: set[str], leafs: set[str], paused: Sequence[datetime]
    ) -> bool:
        """Whether the source is one of the job's nodes or under the same leaf, or one of them receives pause frames.

        `paused` is when they did, sorted.
        """
        if storm.root.node in nodes:
            return True
        near = self._topology.switches_of(storm.root.node or "") | ({storm.root.switch} - {None})
        near |= {end.partition("/")[0] for end in storm.fact_texts("ends")}
        if leafs & near:
            return True
        if storm.domain == "fabric":
            for kind, name in self._causes.members(storm.id, storm.place):
                cable = self._topology.cable(name) if kind is PlaceKind.PORT else ()
                if name in nodes or any(end.partition("/")[0] in leafs for end in cable):
                    return True
        since, until = storm.fault_at - self._config.before, storm.last_at + self._config.retention
        first = bisect_left(paused, since)
        return first < len(paused) and paused[first] <= until

    def _owners(self, causes: Sequence[Hypothesis]) -> dict[str, Hypothesis]:
        """By id of those that were merged into another root: that root."""
        owners = {h.id: self._causes.owner_of(h.id) for h in causes}
        return {
            cause: root
            for cause, owner in owners.items()
            if owner != cause and (root := self._causes.found(owner)) is not None
        }

    def at(self, name: str) -> list[Hypothesis]:
        """The job's own roots."""
        return self._verdicts[name].hypotheses if name in self._verdicts else []

    def all(self) -> Iterable[Hypothesis]:
        """Every job's own roots."""
        return (h for verdict in self._verdicts.values() for h in verdict.hypotheses)

    def successor_of(self, row: DocumentRow, by_jobs: ByJobs) -> Hypothesis | None:
        """What explains the job's symptoms now."""
        return by_jobs()

    def explains_now(self, row: DocumentRow) -> Hypothesis | None:
        """What explains now the symptoms that the jobs of an incident had when it began."""
        incident = row.incident
        for job in incident.jobs:
            verdict = self._verdicts.get(job.key, JobVerdict())
            for since, until, cause in verdict.explained:
                fits = since - self._config.episode_gap <= incident.fault_at <= until + self._config.quiet
                owner = self._causes.owner(cause) if fits and cause != incident.id else None
                if owner is not None and (root := self._causes.found(owner)) is not None:
                    return root
            for suspicion in verdict.suspicions:
                if (suspect := self._nodes.suspect(suspicion.node)) is not None:
                    return suspect
            if others := [h for h in verdict.hypotheses if h.id != incident.id]:
                return others[0]
        return None

    def doubted(self, h: Hypothesis) -> Hypothesis:
        """A root that is told when the ranks that it explains have had time to name somebody else."""
        jobs = self._claimed.get(h.id, ())
        told_at = [self._verdicts[job].doubted.get(h.id) for job in jobs]
        known = [at for at in told_at if at is not None]
        return replace(h, ready_at=max(h.ready_at, min(known))) if known and len(known) == len(told_at) else h

    def suspected(self) -> set[str]:
        """Nodes that the ranks of any job suspect."""
        return {s.node for verdict in self._verdicts.values() for s in verdict.suspicions}

    def claims(self, wanted: Collection[str]) -> dict[str, dict[str, list[Sighting]]]:
        """By incident and job: the symptoms it explains. Those of a root that was merged into another count for that one."""
        claims: dict[str, dict[str, list[Sighting]]] = defaultdict(dict)
        merged = [source.owners for source in self._causes.sources if source.owners]
        for cause, jobs in self._claimed.items():
            # Nearly all that is open belongs to itself, and nobody asks for it now.
            if isinstance(cause, str) and cause not in wanted and not any(cause in known for known in merged):
                continue
            owner = self._causes.owner(cause)
            if owner in wanted and owner is not None:
                for job in sorted(jobs):
                    claims[owner].setdefault(job, []).extend(self._verdicts[job].claims[cause])
        return claims
