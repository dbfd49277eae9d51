"""Roots that are the job itself: its own code, and a hang whose culprit nobody knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from streams.correlate.hypothesis import Hypothesis, Retry, rejected
from streams.correlate.job_rules.applications import Burst, together
from streams.correlate.job_rules.connection_votes import only_deaths
from streams.correlate.job_rules.culprit import ERRORS_ONLY, MISMATCH, HangFinding
from streams.correlate.job_rules.explaining_causes import in_time, time_needed, was_outlived
from streams.correlate.job_rules.first_failures import circumstances, first_gpu, first_host, suspected_host
from streams.correlate.job_rules.job_evidence import JobEvidence, placed_at, recovered
from streams.correlate.job_rules.pod_failures import is_exception
from streams.correlate.job_rules.rank_reports import Episode
from streams.correlate.job_rules.start_failures import tries_to_start
from streams.correlate.policy.config import Config
from streams.correlate.policy.policy import policy
from streams.correlate.sightings import Sighting, order
from streams.correlate.state.incarnations import MISMATCHES_FROM
from streams.correlate.state.placement import Placement
from streams.correlate.state.repeat_faults import FIRST_GPU, FIRST_HOST, FIRST_NODES, FIRST_RANK
from streams.model.clock import span, to_the_second
from streams.model.entity import Entity
from streams.model.incident import Audience, Candidate, Certainty
from streams.model.kinds import IncidentFamily, SignalKind
from streams.model.signal import Attribute


def application_root(
    evidence: JobEvidence,
    crashes: Sequence[Burst],
    count: int,
    config: Config,
    *,
    follows_gpu: bool,
) -> Hypothesis | None:
    """The job's own code, by what its processes left each time it failed so; None where that says nothing by itself.

    `follows_gpu`: it failed in the same way on the same GPU before.
    """
    burst = together(crashes, config)
    if burst.says_nothing or (burst.is_silent and burst.tries < 2):
        return None
    job, code = evidence.job, burst.code
    no_hardware = f"{code} asks for no reset, and no other code stands beside it"
    gpus = sorted({s.entity.key: s.entity for s in burst.sightings if s.kind == SignalKind.GPU_XID}.items())
    facts: dict[str, Attribute] = {"signature": burst.signature}
    facts |= {"shared_nodes": len(burst.nodes)} if burst.is_shared else {}
    certainty, why = burst.certainty, burst.why(job)
    if (last_words := _last_words(evidence, crashes, config)) is not None:
        why = f"{last_words.says}. {why}"
        facts |= last_words.facts
    if len(crashes) > 1:
        sets = len({_nodes_at(evidence, crash) for crash in crashes})
        places = len({crash.nodes for crash in crashes if crash.nodes})
        facts |= {"crashes": len(crashes), "crash_node_sets": sets}
        where = f", on {sets} sets of nodes: the program" if sets > 1 else ""
        if places > sets:
            # Its pods may stand on the nodes of before, each on another one.
            where, sets = f", on {places} of its nodes in turn: the program or its data", places
        alike = len({crash.signature for crash in crashes}) == 1
        how = "in the same way" if alike else "on the same host, in several ways"
        why = f"it failed {len(crashes)} times {how}{where}. {why}"
        # What follows a program from nodes to nodes is the program's.
        certainty = Certainty.LIKELY if sets > 2 and certainty is Certainty.WEAK else certainty
    there = placed_at(evidence.placements, burst.start, config)
    if (host := first_host(burst, there)) is not None:
        facts |= {FIRST_HOST: host, FIRST_NODES: circumstances(there, burst)}
    if (at := first_gpu(burst, there)) is not None and at.rank:
        facts |= {FIRST_GPU: at.name, FIRST_RANK: at.rank, FIRST_NODES: circumstances(there, burst)}
    if code:
        facts |= {"xid": code, "xids": tuple(sorted({s.code for s in burst.sightings if s.code}))}
    if (place := burst.gpu) is not None and place.gpu is not None:
        names = {"gpu_node": place.node, "gpu_pci": place.gpu.pci, "gpu_uuid": place.gpu.uuid}
        facts |= {name: value for name, value in names.items() if value}
    comes_back = follows_gpu or sum(crash.tries for crash in crashes) >= policy().own_failures.times
    tried = burst.is_plain or burst.is_faint
    retry, patience = _retries(evidence, crashes, config) if tried and not comes_back else ("", None)
    ready_at, cleared_at = _ready_at(crashes, evidence, config), recovered(evidence, burst.end, config)
    if cleared_at is not None and cleared_at <= ready_at and tries_to_start(burst, evidence, config):
        return None  # it has found its GPUs since
    return Hypothesis(
        place=evidence.place,
        root=evidence.root,
        family=IncidentFamily.APPLICATION,
        incarnation=count,
        certainty=certainty,
        fault_at=burst.began(config.episode_gap),
        last_at=burst.end,
        ready_at=ready_at,
        rule="same code on many nodes" if burst.is_shared else "application code" if code else "own failure",
        why=why,
        # Nobody waits for a job of one pod that ended.
        alone=comes_back
        or any(_is_dear(evidence, crash, config) for crash in crashes)
        or not (burst.is_plain or len(there) == 1),
        retry=retry,
        brief_until=patience,
        cleared_at=cleared_at,
        causes=burst.sightings,
        jobs=(job,),
        facts=facts,
        # The third time on one GPU it may be the GPU's after all.
        audience=Audience.ON_CALL
        if follows_gpu
        else audience_of(evidence, [crash.start for crash in crashes], config),
        candidates=tuple(
            rejected(
                entity,
                IncidentFamily.GPU_FAULT,
                "hardware",
                no_hardware,
                f"a line of the GPU itself, or a code that asks for its reset, within {span(config.board)}; "
                f"seen: {code or 'no code'} alone",
            )
            for _, entity in gpus[:6]
        ),
    )


_SAME_STEP = 0.01
"""By what share of their number steps differ at which a program fails at one point of its data."""


class _LastWords(NamedTuple):
    """With which exception a program ended, and where: in words for people, and as facts."""

    says: str
    facts: dict[str, Attribute]


def _last_words(evidence: JobEvidence, crashes: Sequence[Burst], config: Config) -> _LastWords | None:
    """The exceptions of these crashes; None where there was none.

    The first of a crash counts: what other ranks raise afterwards follows from it.
    """
    exceptions = sorted((s for s in evidence.failed if s.firing and is_exception(s)), key=order)
    found: list[tuple[str, int | None]] = []
    for crash in crashes:
        since, until = crash.start - policy().starts.apart, crash.end + config.together
        if (first := next((s for s in exceptions if since <= s.at <= until), None)) is not None:
            rank = first.entity.rank if first.entity.rank is not None else first.number("rank")
            found.append((first.text("reason"), rank))
    if not found:
        return None
    words, rank = found[-1]
    facts: dict[str, Attribute] = {"exception": words}
    says = f"rank {rank}: {words}" if rank is not None else words
    if rank is not None:
        facts["exception_rank"] = rank
    if len(found) > 1 and set(found) == {found[0]}:
        says += ", each time"
    steps = [step for crash in crashes if (step := _step_before(evidence, crash, config)) is not None]
    if steps:
        facts["step"] = steps[-1]
        # A rank reports its step now and then: those of one moment of the program differ by a few.
        about = len(steps) > 1 and max(steps) - min(steps) <= max(steps) * _SAME_STEP
        says += f", at about step {max(steps)}" if about else f"; the last step was {steps[-1]}"
    return _LastWords(says, facts)


def _step_before(evidence: JobEvidence, crash: Burst, config: Config) -> int | None:
    """The last step that the job reported before a crash, of the pods that crashed; None where that is not known."""
    since = max((p.start for p in evidence.placements if p.start <= crash.start), default=crash.start)
    steps = [step for at, step in evidence.steps if since <= at <= crash.start + config.together]
    return max(steps, default=None)


def _is_dear(evidence: JobEvidence, burst: Burst | Episode, config: Config) -> bool:
    """Whether the job was so large, or ran for so long, that its end is more than its owner's own business."""
    ran = burst.start - evidence.ran_at if evidence.ran_at is not None else None
    return policy().own_failures.is_dear(_gpus(evidence, burst.start, config), ran)


def audience_of(evidence: JobEvidence, moments: Sequence[datetime], config: Config) -> Audience:
    """Who has to know of what the program did to itself at these moments, by how many GPUs stood still at most."""
    return policy().own_failures.audience(max(_gpus(evidence, at, config) for at in moments))


def _gpus(evidence: JobEvidence, at: datetime, config: Config) -> int:
    """How many GPUs the job held."""
    there = placed_at(evidence.placements, at, config)
    return sum(p.gpus or policy().own_failures.gpus_a_node for p in there)


def _retries(
    evidence: JobEvidence, crashes: Sequence[Burst | Episode], config: Config
) -> tuple[Retry, datetime | None]:
    """How the job got over its failures, and until when it may still get over one. What was published of one stays published."""
    ends = [_patience_ends(evidence, crash, config) for crash in crashes]
    each = [_retry(evidence, crash, until, config) for crash, until in zip(crashes, ends, strict=True)]
    if "" in each:
        return "", None
    waiting = [until for until, retry in zip(ends, each, strict=True) if retry == "waits"]
    return ("waits", min(waiting)) if waiting else ("over", None)


def _retry(evidence: JobEvidence, burst: Burst | Episode, until: datetime, config: Config) -> Retry:
    """How the job went on after its program failed: by its progress, where it reports any, else by pods that stand again.

    All by the times of what happened: what was told when the patience (`until`) ended stays an incident that ends.
    """
    if evidence.moved:
        went_on = any(burst.end + config.together < at <= until for at in evidence.moved)
    else:
        went_on = any(p.end is None or p.end > until or p.succeeded for p in _anew(evidence, burst, config))
    if went_on:
        return "over"
    return "" if any(burst.start < end <= until for end in evidence.ended) else "waits"


def _patience_ends(evidence: JobEvidence, burst: Burst | Episode, config: Config) -> datetime:
    """Until when the job may still be tried again, or be on its way since it was."""
    retry = policy().own_failures.retry
    return burst.end + (retry if _anew(evidence, burst, config) else config.restart_settle)


def _anew(evidence: JobEvidence, burst: Burst | Episode, config: Config) -> list[Placement]:
    until = burst.end + config.restart_settle
    return [p for p in evidence.placements if burst.start < p.start <= until]


def _ready_at(crashes: Sequence[Burst], evidence: JobEvidence, config: Config) -> datetime:
    """What only the kernel reports may have been anybody's process, or a helper's, if the job goes on.

    A try to start that found no GPU is followed by others, and enough of them tell whose fault it is.
    """
    starts = policy().starts
    tries: list[list[Sighting]] = []
    found: list[datetime] = []
    for crash in crashes:
        settle = config.restart_settle if crash.is_mute else config.application_settle
        if mine := tries_to_start(crash, evidence, config):
            tries += mine
            found.append(mine[0][0].seen_at + starts.patience)
        else:
            found.append(crash.seen_at + settle)
    if len(tries) >= starts.tries:
        found.append(tries[starts.tries - 1][-1].seen_at + config.application_settle)
    return min(found)


def _nodes_at(evidence: JobEvidence, crash: Burst) -> frozenset[str]:
    return frozenset(p.node for p in evidence.placements if p.overlaps(crash.start, crash.start))


def hang_root(
    evidence: JobEvidence,
    episode: Episode,
    finding: HangFinding,
    count: int,
    family: str,
    ready_at: datetime,
    candidates: tuple[Candidate, ...],
    teardown: list[Sighting],
    config: Config,
) -> Hypothesis:
    """A hang that names no node: its culprit is not known, or the program is."""
    facts, there = culprit_facts(finding, episode), placed_at(evidence.placements, episode.start, config)
    if (host := suspected_host(finding, there)) is not None:
        facts |= {FIRST_HOST: host, FIRST_NODES: circumstances(there)}
    retry: Retry = ""
    patience: datetime | None = None
    if only_deaths(episode.reports) and count < policy().own_failures.times:
        # That a process ended is a program's daily business while its controller tries again and that helps.
        retry, patience = _retries(evidence, [episode], config)
    return Hypothesis(
        place=evidence.place,
        root=evidence.root,
        family=family,
        incarnation=count if family == IncidentFamily.HANG else MISMATCHES_FROM + count,
        certainty=finding.certainty,
        fault_at=episode.start,
        last_at=episode.end,
        ready_at=ready_at,
        rule=finding.rule,
        why=finding.why,
        retry=retry,
        brief_until=patience,
        cleared_at=recovered(evidence, episode.end, None),
        causes=tuple(episode.lines),
        symptoms=tuple(teardown),
        jobs=(evidence.job,),
        facts=facts,
        candidates=candidates,
        audience=audience_of(evidence, [episode.start], config)
        if family == IncidentFamily.APPLICATION
        or finding.is_of_program
        or _only_ended(evidence, finding, episode, config)
        else Audience.ON_CALL,
    )


def _only_ended(evidence: JobEvidence, finding: HangFinding, episode: Episode, config: Config) -> bool:
    """Whether ranks of a small or young job say no more than that others ended or never came, and nobody is suspected of it.

    That is how a program ends whose output lacks its reason, and how one ends that was started with a wrong address.
    """
    return (
        finding.rule == ERRORS_ONLY
        and not finding.suspects
        and only_deaths(episode.reports)
        and not _is_dear(evidence, episode, config)
    )


_AGAIN = "; it failed so "
_NAMELESS = frozenset({MISMATCH, ERRORS_ONLY, "all equal"})
"""Rules of hangs that name nobody: when the next try ends in the same way, it ends for the same reason."""


def one_of_repeats(found: Sequence[Hypothesis], evidence: JobEvidence, config: Config) -> list[Hypothesis]:
    """These roots, hangs of a job that name nobody and come back try after try as one with a count.

    A mismatch is the program's for hours; the others are one while the next follows within the hour. What comes after a run or a
    person has closed one is new.
    """
    kept: list[Hypothesis] = []
    at: dict[str, int] = {}
    for h in found:
        if h.rule not in _NAMELESS:
            kept.append(h)
            continue
        first = kept[at[h.rule]] if h.rule in at else None
        if first is None or _is_anew(h, first, evidence, config):
            at[h.rule] = len(kept)
            kept.append(h)
            continue
        times = int(str(first.facts.get("crashes", 1))) + 1
        kept[at[h.rule]] = replace(
            first,
            last_at=h.last_at,
            cleared_at=h.cleared_at,
            retry=h.retry if first.retry else "",
            brief_until=h.brief_until if first.brief_until else None,
            why=f"{first.why.partition(_AGAIN)[0]}{_AGAIN}{times} times",
            causes=(*first.causes, *h.causes),
            symptoms=(*first.symptoms, *h.symptoms),
            facts={**first.facts, "crashes": times},
        )
    return kept


def resubmission_of(
    finding: HangFinding, episode: Episode, evidence: JobEvidence, config: Config
) -> Hypothesis | None:
    """The job that this one is the next try of: its ranks called the very same collectives apart, and it was over before.

    A person who starts a program anew gets another number or name for it, and other nodes.
    """
    found = [
        h
        for h in evidence.mismatches
        if h.root.job is not None
        and (h.root.job.kind, h.root.job.namespace) == (evidence.job.kind, evidence.job.namespace)
        and h.why.partition(_AGAIN)[0] == finding.why
        and h.last_at < episode.start <= h.last_at + config.link_again
    ]
    return min(found, key=lambda h: (h.fault_at, h.id), default=None)


def _is_anew(h: Hypothesis, first: Hypothesis, evidence: JobEvidence, config: Config) -> bool:
    """Whether a hang has another reason than the one before it, or its reason was taken away since."""
    closings = evidence.own_closed if h.rule == MISMATCH else evidence.hangs_closed
    closed = closings.get(first.incarnation)
    over = closed is not None and h.fault_at > closed + config.linger
    return over or h.fault_at > first.last_at + (config.stale if h.rule == MISMATCH else config.link_again)


def culprit_facts(finding: HangFinding, episode: Episode) -> dict[str, Attribute]:
    """The facts of a hang for runbooks and responders."""
    ranks = tuple(r for r in finding.ranks if isinstance(r, int))[:64]
    facts: dict[str, Attribute] = {
        "culprit_ranks": ranks,
        "suspect_nodes": finding.suspects[:16],
        "silent": finding.silent,
        "ranks_reported": len(episode.reporters),
        "waited_s": int((episode.reported_at - episode.start).total_seconds()),
    }
    if finding.others_keep_up:
        facts["others_keep_up"] = True
    if finding.gpus:
        facts["culprit_gpus"] = finding.gpus[:16]
    vote = finding.vote
    if vote is not None and vote.pairs:
        facts["failing_pairs"] = vote.pairs
        facts |= {name: value for name, value in (("nic", vote.nic), ("leaf", vote.leaf)) if value}
    return facts


def rejections(
    evidence: JobEvidence, episode: Episode, finding: HangFinding, config: Config
) -> tuple[Candidate, ...]:
    """What was weighed as the reason of a hang and found wanting, with the reason of that."""
    found = []
    for cause in evidence.causes:
        if cause.certainty is Certainty.WEAK:
            reason = "its evidence is too weak to explain a hang"
            needs = "likely or decisive evidence; it is weak"
        elif cause.stops == "never":
            reason = "it makes a job slow and does not stop it"
            needs = (
                f"a sign that a rank stands still for it; {cause.family} stops none by itself (families.yaml)"
            )
        elif cause.family == IncidentFamily.PFC_STORM and cause.id not in evidence.near_storms:
            reason = "the storm does not reach this job's nodes"
            needs = (
                "its source on a node or leaf of the job, or pause frames received by one of its nodes from "
                f"{span(config.before)} before the storm on; neither was seen"
            )
        elif was_outlived(cause, episode.start, evidence, config):
            reason = "the job made progress after it"
            needs = (
                f"a sign of it within {span(config.outlived)} of the job's last progress; its last was at "
                f"{to_the_second(cause.last_at)}"
            )
        elif not in_time(cause, episode.start, episode.reported_at, evidence, config):
            reason = "it was over before the hang began, or came long after"
            needs = time_needed(cause, episode.start, episode.reported_at, config)
        else:
            continue
        found.append(rejected(cause.root, cause.family, cause.rule, reason, needs))
    nodes: list[tuple[str, str, str, str]] = []
    if finding.node is None and len(finding.suspects) > 1:
        reason = "one of several suspected nodes: none is closed on that"
        needs = (
            f"all suspected ranks on one node, or a hardware signal of it within {span(config.before)}; they stand on "
            f"{len(finding.suspects)}"
        )
        nodes += ((node, finding.rule, reason, needs) for node in finding.suspects[:6])
    agree = "sources of ranks that agree on where a rank stands, or one of them alone"
    nodes += ((node, "source of ranks", reason, agree) for node, reason in finding.doubts[:4])
    nodes += (
        (node, "victim", reason, "ranks that are missing in their group and wait in no other; these do wait")
        for node, reason in finding.cleared
    )
    found += (
        rejected(Entity(evidence.cluster, node=node), IncidentFamily.SILENT_NODE, rule, reason, needs)
        for node, rule, reason, needs in nodes
    )
    return tuple(found[:12])
