"""What is known of hosts that several switches lost, and of these switches: whether they ran on, or were booted."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from datetime import datetime, timedelta

from streams.correlate.cause_sources.source import Causes
from streams.correlate.fabric_rules.went_dark import Away
from streams.correlate.node_rules.node_death import death_policy
from streams.correlate.policy.link_parts import is_boot
from streams.correlate.sightings import Sighting
from streams.correlate.state.node_work import boots_of, work_policy
from streams.correlate.state.place import of_whole
from streams.correlate.state.rows import NodeRow, PodRow, PortRow, of_kind
from streams.model.kinds import SignalKind
from streams.model.signal import MANAGER


class HostWitnesses:
    """Reads it from what is kept of nodes, ports and jobs (`went_dark.Witnesses`), as it stands at one time (`now`)."""

    def __init__(self, causes: Causes, now: datetime) -> None:
        self._state, self._topology, self._config = causes.state, causes.topology, causes.config
        self._placements, self._now = causes.topology.placements, now

    def hosts_of(self, switch: str) -> Set[str]:
        """The hosts that are known to hang on it."""
        return self._topology.hosts_of(switch)

    def is_booted_anew(self, host: str, away: Away) -> bool:
        """Whether the host was booted meanwhile."""
        until = (away.until or self._now) + timedelta(seconds=work_policy().boot_s)
        return any(away.since < at <= until for at in boots_of(self._row(host)))

    def life_of(self, hosts: Collection[str], away: Mapping[str, Away]) -> str:
        """What shows that one of these hosts ran on while it was without links; empty where nothing does."""
        signs = (self._life_of(host, away[host]) for host in sorted(hosts))
        if found := next((sign for sign in signs if sign), ""):
            return found
        return "all of them stayed Ready" if all(self._stayed(host, away[host]) for host in hosts) else ""

    def _life_of(self, host: str, away: Away) -> str:
        row, since = self._row(host), away.since + timedelta(seconds=death_policy().life_after_s)
        # Clocks differ: what is said as the first link comes up may be said after it.
        until = self._until(away) - self._config.skew
        if any(
            since < s.at < until and MANAGER not in s.attributes and death_policy().is_by_node(s)
            for group in row.seen.values()
            for s in group
        ):
            return f"{host} kept reporting while its links were down"
        # Elastic jobs go on without a host that died: only what its own pods report counts.
        for placement in self._placements.on_node(host, away.since, away.since):
            pod = self._state.pods.get(placement.pod, PodRow())
            if any(since < at < until for at in (*pod.moves, *filter(None, [pod.progress_at]))):
                return f"{placement.job} kept running on {host} while its links were down"
        fact = row.fact
        if fact is None or fact.boot_id is None or away.until is None or fact.observed_at <= away.until:
            return ""
        known = {boot for at, boot in row.boots or () if at <= away.since}
        return f"{host} came back without a reboot" if fact.boot_id in known and fact.ready else ""

    def _stayed(self, host: str, away: Away) -> bool:
        """Whether the API server goes on to have a node for Ready that would have been missed by then."""
        row, until = self._row(host), self._until(away)
        if row.fact is None or not row.fact.ready or until < away.since + self._config.link_alone:
            return False
        missed = of_kind(row.seen, SignalKind.NODE_NOT_READY)
        return not any(s.firing and away.since <= s.at <= until + self._config.before for s in missed)

    def said_boot(self, switch: str, away: Away) -> bool:
        """Whether the switch says that it was booted then. It may say so when its first links are up again."""
        row, until = self._state.ports.get(of_whole(switch), PortRow()), self._until(away)
        said = (s for group in row.seen.values() for s in group if is_boot(s))
        return any(away.since - self._config.skew <= s.at <= until + self._config.before for s in said)

    def spoke(self, switch: str, away: Away) -> str | None:
        """The port of which the switch itself said anything in the middle of it; None where it was silent."""
        since, until = away.since + self._config.leaf_window, self._until(away) - self._config.skew
        for port in sorted(self._topology.ports_at(switch)):
            row = self._state.ports.get(port, PortRow())
            if any(since < s.at < until and _is_by(s, switch) for group in row.seen.values() for s in group):
                return port
        return None

    def _row(self, host: str) -> NodeRow:
        return self._state.nodes.get(host, NodeRow())

    def _until(self, away: Away) -> datetime:
        """Until when a line counts for that time: what is back at other ports, or booted hours later, does not."""
        return min(away.until or self._now, away.since + self._config.switch_back)


def _is_by(s: Sighting, switch: str) -> bool:
    """Whether a switch said it as it happened; who reads counters may read them from elsewhere."""
    by_others = MANAGER in s.attributes or "alert" in s.attributes or "series" in s.attributes
    return s.entity.switch == switch and not by_others and not is_boot(s)
