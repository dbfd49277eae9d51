"""Teams that no job is of, and jobs that name a team nobody has set up: a misspelt row holds nothing, and nothing else tells."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence

from aiokafka.errors import KafkaError

from faultline.checks.finding import CheckFinding
from faultline.runtime.settings import Settings
from streams.config.tenant_settings import Tenant, tenant_of
from streams.kafka import clients
from streams.kafka.plain_errors import plain
from streams.kafka.topics import INVENTORY, partition_of
from streams.model.codec import decode
from streams.model.errors import BadInput, Unreachable
from streams.model.facts import FactRecord, JobFact
from streams.model.message import some
from streams.model.similar import suggestion

SHOWN = 3


async def probe_teams(settings: Settings) -> list[CheckFinding]:
    """Every finding about `responder.tenants`, held against the jobs of the inventory.

    Raises:
        Unreachable: when no broker answers.
    """
    kafka, cluster = settings.kafka, settings.cluster
    try:
        latest = await clients.read_to_end(kafka, INVENTORY, partition_of(cluster, kafka.cluster_partitions))
    except KafkaError as error:
        raise Unreachable(f"Kafka at {kafka.bootstrap}: {plain(error)}") from error
    values = [record.value or b"" for key, record in latest.items() if key.startswith(f"{cluster}/job/")]
    jobs = [fact for value in values if (fact := _fact(value)) is not None]
    return list(team_findings(settings.responder.tenants, jobs))


def _fact(value: bytes) -> JobFact | None:
    try:
        fact = decode(FactRecord, value).fact
    except BadInput:
        return None  # of a later release: `doctor` tells that by the members of groups
    return fact if isinstance(fact, JobFact) else None


def team_findings(rows: Sequence[Tenant], jobs: Collection[JobFact]) -> Iterator[CheckFinding]:
    """What rows and jobs do not say of each other. Nothing where no job is known. Pure."""
    if not jobs or not rows:
        return
    whose = {fact.job.key: tenant_of(rows, str(fact.job.namespace), fact.queue, fact.team) for fact in jobs}
    for number, row in enumerate(rows):
        fitting = [fact for fact in jobs if row.has(str(fact.job.namespace), fact.queue, fact.team)]
        if any(whose[fact.job.key] is row for fact in fitting):
            continue
        where = f"responder.tenants.{number}"
        if fitting:
            before = sorted({owner.team for fact in fitting if (owner := whose[fact.job.key]) is not None})
            what = f"team {row.team}: all {len(fitting)} jobs that it fits are of rows before it ({', '.join(before)})"
            remedy = "put the narrower row first"
            yield CheckFinding("warning", where, what, remedy, "faultline config check")
            continue
        what = f"team {row.team}: none of the {len(jobs)} jobs in the inventory is its own now"
        yield CheckFinding(
            "note",
            where,
            what,
            "compare its patterns with the jobs, if it should have some",
            "faultline jobs",
        )
    unknown: defaultdict[str, list[str]] = defaultdict(list)
    for fact in jobs:
        if fact.team and whose[fact.job.key] is None:
            unknown[fact.team].append(str(fact.job))
    known = {name for row in rows for name in (row.team, *row.marks)}
    for mark, marked in sorted(unknown.items()):
        what = (
            f"{len(marked)} jobs say that they are of team {mark!r} (faultline.dev/team), and no row fits them: "
            f"{some(sorted(marked), SHOWN)}{suggestion(mark, known)}"
        )
        remedy = "correct the mark, or give the team a row"
        yield CheckFinding("warning", "responder.tenants", what, remedy, "faultline jobs")
